"""Output folders and files that appear under their name only when they are whole."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["check_folder", "new_file", "new_folder"]


def check_folder(path: Path, contents: Collection[str], *, overwrite: bool) -> None:
    """Refuse a target that must not be replaced.

    Parameters
    ----------
    path : Path
    contents : collection of str
        Names that a folder written by the same command may hold; a folder with
        anything else in it is somebody's work and never replaced.
    overwrite : bool

    Raises
    ------
    FileExistsError
        The target exists and `overwrite` is False, or it holds something else.
    """
    if not path.exists():
        return
    if not overwrite:
        raise FileExistsError(f"{str(path)!r} exists already; choose another name or --overwrite.")
    if not path.is_dir():
        raise FileExistsError(f"{str(path)!r} is a file, not a folder; choose another name.")
    foreign = sorted(item.name for item in path.iterdir() if item.name not in contents)
    if foreign:
        raise FileExistsError(
            f"{str(path)!r} also holds {foreign[0]!r}, which this command did not write; "
            "--overwrite replaces its own output only. Choose another name."
        )


@contextmanager
def new_folder(path: Path, contents: Collection[str], *, overwrite: bool) -> Iterator[Path]:
    """Yield a hidden sibling of `path` to write into, renamed to `path` at the end.

    After an exception (Ctrl-C included) the sibling is removed, and what was at
    `path` is still there.

    Parameters
    ----------
    path : Path
        The target, absolute.
    contents, overwrite
        As in :func:`check_folder`, which is called before and after.
    """
    check_folder(path, contents, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    mark = uuid.uuid4().hex[:12]
    partial = path.with_name(f".{path.name}.{mark}.partial")
    partial.mkdir()
    try:
        yield partial
        check_folder(path, contents, overwrite=overwrite)
        old = path.with_name(f".{path.name}.{mark}.old")
        replaced = path.exists()
        if replaced:
            path.rename(old)
        try:
            partial.rename(path)
        except OSError:
            if replaced:
                old.rename(path)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a hidden sibling of `path`, renamed to it at the end; removed after a failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
