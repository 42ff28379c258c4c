"""``.npy`` files, read block by block where the block is needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

__all__ = ["open_npy"]


class _NpyFile:
    """An array in a file: what travels to workers is its path, not its values."""

    def __init__(self, path: Path) -> None:
        values = _mapped(path)
        self.path = str(path)
        self.shape, self.dtype, self.ndim = values.shape, values.dtype, values.ndim
        self._seen = _stamp(path)

    def __getitem__(self, key: Any) -> NDArray[Any]:
        if _stamp(Path(self.path)) != self._seen:
            raise OSError(
                f"{self.path!r} is another file than the one that was opened; expected one that "
                "stays as it is, and that workers see as the client does. Open it again."
            )
        return np.array(_mapped(Path(self.path))[key])


def _mapped(path: Path) -> NDArray[Any]:
    """Map an array of numbers into memory."""
    try:
        mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # NumPy's header is Python, and so are the errors about it
        raise ValueError(
            f"{str(path)!r} cannot be read as an array of numbers: {error}. Is the file whole?"
        ) from error
    return mapped


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def open_npy(path: str | os.PathLike[str]) -> da.Array:
    """Open a ``.npy`` file as a lazy Dask array."""
    place = Path(path).absolute()
    held = _NpyFile(place)
    meta = np.empty((0,) * held.ndim, held.dtype)
    return da.from_array(held, chunks="auto", asarray=False, meta=meta)
