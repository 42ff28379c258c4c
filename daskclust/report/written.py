"""Reports on disk: which files are ours."""

from __future__ import annotations

import re
from typing import Any

from daskclust.storage.files import is_folder_at_url, read_start
from daskclust.storage.stores import check_protocol
from daskclust.storage.urls import redact

__all__ = ["START", "check_report", "mark_tag", "report_mark"]

#: How every report begins; no configuration file can.
START = (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="generator" content="daskclust">\n'
)
_MARK = re.compile(r'<meta name="daskclust-job" content="([0-9a-f]*)">\n')


def mark_tag(mark: str) -> str:
    """Return what follows :data:`START`: whose the report is."""
    return f'<meta name="daskclust-job" content="{mark}">\n'


def report_mark(place: Any) -> str | None:
    """Return the mark of the job that has written a report; None for any other file.

    Parameters
    ----------
    place : path or URL

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "job.yaml"
    >>> _ = path.write_text("title: by daskclust")
    >>> report_mark(path) is None
    True
    """
    try:
        start = read_start(place, len(START) + 200)
    except (IsADirectoryError, NotADirectoryError, PermissionError):
        return None
    return None if start is None else _mark_in(start)


def _mark_in(start: bytes) -> str | None:
    head = start.decode("utf-8", errors="replace")
    if not head.startswith(START):
        return None
    found = _MARK.match(head, len(START))
    return None if found is None else found.group(1)


def check_report(place: Any, *, overwrite: bool) -> None:
    """Refuse a place that holds something, unless it is a report that may be replaced.

    Raises
    ------
    FileExistsError
    ValueError
        It is at a web server, which is only read from.
    """
    check_protocol(place)
    start, shown = read_start(place, len(START) + 200), redact(place)
    if start is None:
        if is_folder_at_url(place):
            # Some file systems would let the report hide what is below.
            raise FileExistsError(f"{shown!r} is a folder; expected the name of a file.")
        return
    if not overwrite:
        raise FileExistsError(
            f"{shown!r} exists already; choose another or overwrite=True (--overwrite)."
        )
    if _mark_in(start) is None:
        raise FileExistsError(
            f"{shown!r} was not written by daskclust; overwrite replaces its reports only. Choose "
            "another name."
        )
