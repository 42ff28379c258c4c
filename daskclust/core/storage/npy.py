"""Arrays in ``.npy`` files: mapped by the tasks that read them, labels written by tasks."""

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
    """An array in a file: what travels to workers is its path, not its values."""

    def __init__(self, path: Path) -> None:
        values = _mapped(path)
        self.path = str(path)
        self.shape, self.dtype, self.ndim = values.shape, values.dtype, values.ndim
        self._files = SeenFiles([path])

    def __getitem__(self, key: Any) -> NDArray[Any]:
        self._files.check()
        # By rows: files may be laid out by columns.
        return np.array(_mapped(Path(self.path))[key], order="C")


def _mapped(path: Path) -> NDArray[Any]:
    try:
        mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # NumPy's header is Python, and so are the errors about it
        raise ValueError(
            f"{str(path)!r} cannot be read as an array of numbers: {error}. Is the file whole?"
        ) from error
    return mapped


class NewNpy:
    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.path, self.shape, self.dtype = path, shape, dtype
        np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape).flush()

    def __setitem__(self, key: Any, values: Any) -> None:
        if not self.path.is_file():
            raise unseen(repr(str(self.path)), who="which the client made")
        mapped = np.lib.format.open_memmap(self.path, mode="r+")
        mapped[key] = values
        mapped.flush()


class NpyOutput(Output):
    """Labels in a ``.npy`` file, which does not say who wrote it: only integers are replaced."""

    def check_place(self) -> None:
        super().check_place()
        if self.path is None:
            raise ValueError(
                f"{redact(self.place)!r} is a URL; expected a local .npy file, or a Zarr store "
                "(.zarr)."
            )

    def written(self) -> Written | None:
        if self.path is None:
            return None
        try:
            found = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except Exception:  # whatever it is, it holds no labels
            return None
        return Written(self.kind) if found.ndim == 1 and found.dtype.kind == "i" else None


def is_npy(name: str) -> bool:
    """Whether a file on this machine is one, by its first bytes; what is not there, by its name."""
    if os.path.isfile(name):
        with open(name, "rb") as file:
            return file.read(len(_START)) == _START
    return name.lower().endswith(".npy")
