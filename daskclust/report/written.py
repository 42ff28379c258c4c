"""Reports on disk: which files are ours."""

from __future__ import annotations

import re
from typing import Any

from daskclust.storage.files import is_folder_at_url, read_start
from daskclust.storage.outputs import JOB, Output, Written
from daskclust.storage.urls import redact

__all__ = ["START", "Report", "mark_tag"]

#: How every report begins; no configuration file can.
START = (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="generator" content="daskclust">\n'
)
_MARK = re.compile(r'<meta name="daskclust-job" content="([0-9a-f]*)">\n')


def mark_tag(mark: str) -> str:
    """Return what follows :data:`START`: whose the report is."""
    return f'<meta name="daskclust-job" content="{mark}">\n'


class Report(Output):
    """One HTML file; its head says that it is ours, and of which job."""

    def __init__(self, place: Any, *, overwrite: bool = False) -> None:
        super().__init__(place, "report", overwrite=overwrite)

    def check_place(self) -> None:
        """Refuse web servers and folders."""
        super().check_place()
        is_folder = is_folder_at_url(self.place) if self.path is None else self.path.is_dir()
        if is_folder:
            # Some file systems would let the report hide what is below.
            raise FileExistsError(f"{redact(self.place)!r} is a folder; expected one HTML file.")

    def exists(self) -> bool:
        """Whether there is such a file."""
        return read_start(self.place, 0) is not None

    def written(self) -> Written | None:
        """Return the job of the report.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "job.yaml"
        >>> _ = path.write_text("title: by daskclust")
        >>> Report(path).written() is None
        True
        """
        try:
            start = read_start(self.place, len(START) + 200)
        except (IsADirectoryError, NotADirectoryError, PermissionError):
            return None
        head = (start or b"").decode("utf-8", errors="replace")
        found = _MARK.match(head, len(START)) if head.startswith(START) else None
        return None if found is None else Written(self.kind, {JOB: {"mark": found.group(1)}})
