"""Reports on disk: which files are ours."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["START", "mark_tag", "report_mark"]

#: How every report begins; no configuration file can.
START = (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="generator" content="daskclust">\n'
)
_MARK = re.compile(r'<meta name="daskclust-job" content="([0-9a-f]*)">\n')


def mark_tag(mark: str) -> str:
    """Return what follows :data:`START`: whose the report is."""
    return f'<meta name="daskclust-job" content="{mark}">\n'


def report_mark(path: Path) -> str | None:
    """Return the mark of the job that has written a report; None for any other file.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "job.yaml"
    >>> _ = path.write_text("title: by daskclust")
    >>> report_mark(path) is None
    True
    """
    try:
        with path.open("rb") as file:
            head = file.read(len(START) + 200).decode("utf-8", errors="replace")
    except OSError:
        return None
    if not head.startswith(START):
        return None
    found = _MARK.match(head, len(START))
    return None if found is None else found.group(1)
