"""Outputs: refused before anything is computed, whole or absent afterwards."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import zarr

from daskclust.storage.stores import local_path

__all__ = ["JOB", "check_outputs"]

#: Attribute of outputs that holds the configuration they were made with.
JOB = "daskclust_job"


def check_outputs(
    outputs: Mapping[str, str | None], inputs: Mapping[str, str | None], *, overwrite: bool
) -> None:
    """Refuse outputs that exist, cannot be written or are inputs.

    Parameters
    ----------
    outputs, inputs : mapping of flag to path or URL
    overwrite : bool
        Replace what this program has written; never anything else.

    Raises
    ------
    FileExistsError, PermissionError, NotADirectoryError
    ValueError
        Two outputs, or an output and an input, in the same place.
    """
    taken = {_place(path): flag for flag, path in inputs.items() if path is not None}
    for flag, path in outputs.items():
        if path is None:
            continue
        place = _place(path)
        for other, name in taken.items():
            if place == other or place in other.parents or other in place.parents:
                raise ValueError(f"{flag} {path!r} is in the same place as {name}; choose another.")
        taken[place] = flag
        folder = local_path(path)
        if folder is not None:
            _check_local(flag, path, folder, overwrite=overwrite)


def _place(path: str) -> Path:
    local = local_path(path)
    return Path(os.path.realpath(local)) if local is not None else Path(path)


def _check_local(flag: str, name: str, path: Path, *, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        raise FileExistsError(f"{flag} {name!r} exists already; choose another or --overwrite.")
    if path.exists() and not _is_ours(path):
        raise FileExistsError(
            f"{flag} {name!r} was not written by daskclust; --overwrite replaces its own output "
            "only. Choose another name."
        )
    parent = path.parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise NotADirectoryError(f"{flag} {name!r}: {str(parent)!r} is no folder.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionError(f"{flag} {name!r}: the folder {str(parent)!r} cannot be written to.")


def _is_ours(path: Path) -> bool:
    if path.is_file():
        with path.open("rb") as file:
            return b"daskclust" in file.read(4096)
    try:
        attributes = zarr.open_group(str(path), mode="r", use_consolidated=False).attrs
        return JOB in attributes or "daskclust_model" in attributes
    except Exception:  # whatever it is, it is none of ours
        return False
