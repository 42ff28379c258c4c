"""Outputs: refused before anything is computed, whole or absent afterwards."""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daskclust.cube.formats.geotiff import LABEL_MAP, VALUE_MAP, map_at
from daskclust.report.written import Report
from daskclust.storage.outputs import Output
from daskclust.storage.stores import check_protocol, local_path
from daskclust.storage.targets import Group
from daskclust.storage.urls import redact

__all__ = [
    "OUTPUTS",
    "check_outputs",
    "check_report",
    "check_writable",
    "job_of",
    "outputs_of",
    "places_of",
]

#: Options that say where to write, as attributes; the first one given has the checkpoint beside it.
OUTPUTS = ("output", "model", "report", "uncertainty", "score")


def outputs_of(options: argparse.Namespace) -> dict[str, Output]:
    """Return what the options ask to be written, of a cube."""
    found: dict[str, Output] = {}
    for name in OUTPUTS:
        place = getattr(options, name, None)
        if place is None:
            continue
        if name == "report":
            output: Output = Report(place)
        elif name == "model":
            output = Group(place, "model")
        else:
            output = map_at(place, LABEL_MAP if name == "output" else VALUE_MAP)
        found[f"--{name}"] = output
    return found


def job_of(path: str) -> dict[str, Any]:
    """Return the job that has saved a model; empty where it does not say."""
    found = Group(path, "model").written()
    return {} if found is None else found.job


def places_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the outputs that were asked for, as results tell them."""
    given = {name: getattr(options, name, None) for name in OUTPUTS}
    return {name: redact(place) for name, place in given.items() if place is not None}


def check_outputs(
    outputs: Mapping[str, Output],
    inputs: Mapping[str, str | None],
    *,
    mark: str,
    overwrite: bool,
) -> dict[str, bool]:
    """Refuse outputs that exist, cannot be written, are inputs, or share a place.

    Return for each flag whether its output may be replaced: one that an earlier run of the same job
    (`mark`) has written, and with `overwrite` one that this program has written.
    """
    taken = {_place(path): flag for flag, path in inputs.items() if path is not None}
    replace = {}
    for flag, output in outputs.items():
        path = output.place
        if not path.strip():
            raise ValueError(f"{flag} is empty; expected a path.")
        place = _place(path)
        for other, name in taken.items():
            if place == other or place in other.parents or other in place.parents:
                raise ValueError(
                    f"{flag} {redact(path)!r} is in the same place as {name}; choose another."
                )
        taken[place] = flag
        try:
            check_protocol(path)
            output.overwrite = replace[flag] = overwrite or output.is_of(mark)
            output.check()
        except (FileExistsError, ValueError) as error:
            kind = FileExistsError if isinstance(error, FileExistsError) else ValueError
            raise kind(f"{flag} {error}") from error
        if path.startswith("memory:"):
            raise ValueError(
                f"{flag} {redact(path)!r} lies in the memory of this process and would end with "
                "it; give a path or the URL of a store."
            )
        if output.path is not None:
            check_writable(flag, path, output.path)
    return replace


def _place(path: str) -> Path:
    local = local_path(path)
    return Path(os.path.realpath(local)) if local is not None else Path(path.rstrip("/"))


def check_report(options: argparse.Namespace) -> None:
    """Refuse a report where pictures cannot be drawn."""
    if options.report is not None and importlib.util.find_spec("matplotlib") is None:
        raise ImportError(
            "A report needs matplotlib, which is not installed. Use: pip install 'daskclust[plot]'"
        )


def check_writable(flag: str, name: str, path: Path) -> None:
    """Refuse a file or folder that could not be made."""
    parent = path.parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise NotADirectoryError(f"{flag} {name!r}: {str(parent)!r} is no folder.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionError(f"{flag} {name!r}: the folder {str(parent)!r} cannot be written to.")
