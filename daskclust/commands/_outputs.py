"""Outputs: refused before anything is computed, whole or absent afterwards."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from daskclust.cube.formats.geotiff import check_cog, is_geotiff, tags_of
from daskclust.report.written import check_report, report_mark
from daskclust.storage.stores import check_protocol, local_path
from daskclust.storage.targets import check_target, written_attributes
from daskclust.storage.urls import redact

__all__ = ["JOB", "KINDS", "OUTPUTS", "TABLE", "check_outputs", "check_writable"]

#: Attribute of outputs that holds the configuration they were made with.
JOB = "daskclust_job"
#: What a flag writes.
KINDS = {
    "--output": "label map",
    "--model": "model",
    "--report": "report",
    "--uncertainty": "map of values",
}
#: What ``--output`` writes of a table.
TABLE = "labels of a table"
#: Those that may be a GeoTIFF.
_MAPS = ("--output", "--uncertainty")
#: Options that say where to write, as attributes; the first one given has the checkpoint beside it.
OUTPUTS = ("output", "model", "report", "uncertainty")


def check_outputs(
    outputs: Mapping[str, str | None],
    inputs: Mapping[str, str | None],
    *,
    mark: str,
    overwrite: bool,
    kinds: Mapping[str, str] = KINDS,
) -> dict[str, bool]:
    """Refuse outputs that exist, cannot be written or are inputs.

    Parameters
    ----------
    outputs, inputs : mapping of flag to path or URL
    mark : str
        Of the job: what an earlier run of the same job has written is its own.
    overwrite : bool
        Replace what this program has written; never anything else.
    kinds : mapping of flag to str, default=KINDS
        What flags write.  Whether a target without a kind, or the labels of a table, may be
        replaced is left to others.

    Returns
    -------
    dict of str to bool
        For each flag whether the output may be replaced.

    Raises
    ------
    FileExistsError, PermissionError, NotADirectoryError
    ValueError
        Two outputs, or an output and an input, in the same place; or one at a web server.
    """
    taken = {_place(path): flag for flag, path in inputs.items() if path is not None}
    replace = {}
    for flag, path in outputs.items():
        if path is None:
            continue
        place = _place(path)
        for other, name in taken.items():
            if place == other or place in other.parents or other in place.parents:
                raise ValueError(
                    f"{flag} {redact(path)!r} is in the same place as {name}; choose another."
                )
        taken[place] = flag
        try:
            check_protocol(path)
        except ValueError as error:
            raise ValueError(f"{flag} {error}") from error
        # What is no report cannot have a mark.
        readable = flag in kinds and not (flag == "--report" and _is_folder(path))
        replace[flag] = overwrite or (readable and _mark_of(kinds[flag], path) == mark)
        if kinds.get(flag) in (None, TABLE):
            pass
        elif flag == "--report":
            if _is_folder(path):
                raise IsADirectoryError(f"--report {path!r} is a folder; expected one HTML file.")
            try:
                check_report(path, overwrite=replace[flag])
            except FileExistsError as error:
                raise FileExistsError(f"{flag} {error}") from error
        else:
            try:
                if flag in _MAPS and is_geotiff(path):
                    check_cog(path, kind=kinds[flag], overwrite=replace[flag])
                else:
                    check_target(path, kind=kinds[flag], overwrite=replace[flag])
            except (FileExistsError, ValueError) as error:
                kind = FileExistsError if isinstance(error, FileExistsError) else ValueError
                raise kind(f"{flag} {error}") from error
        if path.startswith("memory:"):
            raise ValueError(
                f"{flag} {redact(path)!r} lies in the memory of this process and would end with "
                "it; give a path or the URL of a store."
            )
        folder = local_path(path)
        if folder is not None:
            check_writable(flag, path, folder)
    return replace


def _is_folder(path: str) -> bool:
    local = local_path(path)
    return local is not None and local.is_dir()


def _place(path: str) -> Path:
    local = local_path(path)
    return Path(os.path.realpath(local)) if local is not None else Path(path.rstrip("/"))


def _mark_of(kind: str, path: str) -> str | None:
    """Return the mark of the job that has written an output."""
    if kind == KINDS["--report"]:
        return report_mark(path)
    if kind == TABLE:
        from daskclust.tables import written_labels

        attributes = written_labels(path)
    elif is_geotiff(path):
        tags = tags_of(path) if Path(path).is_file() else None
        attributes = None if tags is None else {JOB: json.loads(tags.get(JOB, "null"))}
    else:
        attributes = written_attributes(path)
    job = None if attributes is None else attributes.get(JOB)
    return job.get("mark") if isinstance(job, dict) else None


def check_writable(flag: str, name: str, path: Path) -> None:
    """Refuse a file or folder that could not be made.

    Raises
    ------
    PermissionError, NotADirectoryError
    """
    parent = path.parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise NotADirectoryError(f"{flag} {name!r}: {str(parent)!r} is no folder.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionError(f"{flag} {name!r}: the folder {str(parent)!r} cannot be written to.")
