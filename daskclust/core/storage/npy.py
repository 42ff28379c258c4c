"""Arrays in ``.npy`` files, which tasks map into memory to read rows and to write labels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.core.storage.outputs import Output, Written
from daskclust.core.storage.redact import redact
from daskclust.core.storage.retry import unseen
from daskclust.core.storage.stored_array import SeenFiles

_START = b"\x93NUMPY"


class NpyFile:
    """Array in a file.  Workers receive the path and not the values."""

    def __init__(self, path: Path) -> None:
        values = _mapped(path)
        self.path = str(path)
        self.shape, self.dtype, self.ndim = values.shape, values.dtype, values.ndim
        self._files = SeenFiles([path])

    def __getitem__(self, key: Any) -> NDArray[Any]:
        self._files.check()
        # Copy to row order, because files may be in column order.
        return np.array(_mapped(Path(self.path))[key], order="C")


def _mapped(path: Path) -> NDArray[Any]:
    try:
        mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # NumPy evaluates the header as Python, so any error can occur
        raise ValueError(
            f"{str(path)!r} cannot be read as a numeric array: {error}. Check that the file is "
            "complete."
        ) from error
    return mapped


class NewNpy:
    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.path, self.shape, self.dtype = path, shape, dtype
        np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape).flush()

    def __setitem__(self, key: Any, values: Any) -> None:
        if not self.path.is_file():
            raise unseen(repr(str(self.path)), who="which the client created")
        mapped = np.lib.format.open_memmap(self.path, mode="r+")
        mapped[key] = values
        mapped.flush()


class NpyOutput(Output):
    """Labels in a ``.npy`` file.  It has no mark, so only files of integers are replaced."""

    def check_location(self) -> None:
        super().check_location()
        if self.path is None:
            raise ValueError(
                f"{redact(self.location)!r} must be a local .npy file or a Zarr store (.zarr), not "
                "a URL."
            )

    def written(self) -> Written | None:
        if self.path is None:
            return None
        try:
            labels = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except Exception:  # any other file does not contain labels
            return None
        return Written(self.kind) if labels.ndim == 1 and labels.dtype.kind == "i" else None


def is_npy(name: str) -> bool:
    """Return True for a ``.npy`` file, by its first bytes, or by its name if it does not exist."""
    if os.path.isfile(name):
        with open(name, "rb") as file:
            return file.read(len(_START)) == _START
    return name.lower().endswith(".npy")
