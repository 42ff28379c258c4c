"""Output folders that appear under their name only when they are whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from daskclust.storage.atomic import discard, hidden_sibling, put_in_place, remove_stale

__all__ = ["check_folder", "new_folder"]


def check_folder(
    path: Path,
    contents: Collection[str],
    *,
    overwrite: bool,
    is_ours: Callable[[Path], bool] = lambda path: True,
) -> None:
    """Refuse a target that must not be replaced.

    Parameters
    ----------
    path : Path
    contents : collection of str
        Names that a folder written by the same command may hold; a folder with
        anything else in it is somebody's work and never replaced.
    overwrite : bool
    is_ours : callable, optional
        Whether a folder with such names, not empty, was written by the same command.

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
    names = sorted(item.name for item in path.iterdir())
    foreign = [name for name in names if name not in contents]
    if names and not foreign and not is_ours(path):
        foreign = names
    if foreign:
        raise FileExistsError(
            f"{str(path)!r} also holds {foreign[0]!r}, which this command did not write; "
            "--overwrite replaces its own output only. Choose another name."
        )


@contextmanager
def new_folder(
    path: Path,
    contents: Collection[str],
    *,
    overwrite: bool,
    is_ours: Callable[[Path], bool] = lambda path: True,
) -> Iterator[Path]:
    """Yield a hidden sibling of `path` to write into, renamed to `path` at the end.

    After an exception (Ctrl-C included) the sibling is removed, and what was at
    `path` is still there.

    Parameters
    ----------
    path : Path
        The target, absolute.
    contents, overwrite, is_ours
        As in :func:`check_folder`, which is called before and after.
    """
    check_folder(path, contents, overwrite=overwrite, is_ours=is_ours)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = hidden_sibling(path, "partial")
    partial.mkdir()
    try:
        yield partial
        check_folder(path, contents, overwrite=overwrite, is_ours=is_ours)
        put_in_place(partial, path)
        remove_stale(path)
    finally:
        discard(partial)
