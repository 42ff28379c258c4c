"""Labels on the command line: one source, or several that are joined."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from daskclust.commands._cubes import integers, open_classes, store_and_variable
from daskclust.storage.urls import redact

__all__ = [
    "add_known_classes",
    "add_resampling",
    "check_named",
    "open_sources",
    "parts_of",
    "sources_of",
]


def parts_of(text: str) -> list[str]:
    """Divide ``a.tif,b.geojson``; a file whose own name has a comma is one.

    Examples
    --------
    >>> parts_of("ask.geojson,few.tif"), parts_of("few.zarr::classes")
    (['ask.geojson', 'few.tif'], ['few.zarr::classes'])
    """
    if Path(store_and_variable(text)[0]).exists():
        return [text]
    return [part for part in (part.strip() for part in text.split(",")) if part]


def sources_of(flag: str, text: str | None) -> dict[str, str | None]:
    """Return the paths of all sources, by what messages call them."""
    parts = [] if text is None else parts_of(text)
    if len(parts) == 1:
        return {flag: store_and_variable(parts[0])[0]}
    return {f"source {i} of {flag}": store_and_variable(p)[0] for i, p in enumerate(parts, 1)}


def add_resampling(group: Any, flags: str) -> None:
    """Add ``--resample-labels`` to a group of arguments."""
    group.add_argument(
        "--resample-labels",
        action="store_true",
        help=f"bring {flags} of another grid to that of the cube, by the nearest pixel",
    )


def add_known_classes(group: Any, flags: str) -> None:
    """Add ``--truth``, and what is said of files of classes, to a group of arguments."""
    group.add_argument(
        "--class-column",
        metavar="NAME",
        help=f"of {flags} in vector files (GeoJSON, GeoPackage, Shapefile) and CSV",
    )
    add_resampling(group, flags)
    group.add_argument(
        "--unlabeled",
        type=integers,
        default=(-1,),
        metavar="LIST",
        help=f"values of {flags} that mean none, besides their nodata (default: -1)",
    )
    group.add_argument(
        "--truth",
        metavar="STORE[::NAME]",
        help="map of known classes, or of a table a column, only to compare with",
    )


def check_named(options: argparse.Namespace, *flags: str) -> None:
    """Refuse options about labels where no labels are named."""
    if any(getattr(options, flag) is not None for flag in flags):
        return
    for name in ("class_column", "resample_labels"):
        if getattr(options, name):
            needed = " or ".join(f"--{flag}" for flag in flags)
            raise ValueError(
                f"--{name.replace('_', '-')} is about {needed}, and none is given: "
                "name the labels, or leave it out."
            )


def open_sources(
    cube: Any,
    flag: str,
    text: str,
    class_column: str | None,
    unlabeled: Sequence[int],
    *,
    resample: bool = False,
) -> Any:
    """Open the label maps that a flag names, as one; only metadata are read.

    Sources that contradict each other are an error when the values are computed.
    """
    from daskclust.cube.joined_labels import join_labels

    parts = parts_of(text)
    if not parts:
        raise ValueError(f"{flag} {text!r} names no file.")
    columns = [_column(part, class_column) for part in parts]
    opened = [
        (redact(part), open_classes(cube, flag, part, column, resample=resample))
        for part, column in zip(parts, columns, strict=True)
    ]
    return opened[0][1] if len(opened) == 1 else join_labels(opened, cube.chunks, tuple(unlabeled))


def _column(part: str, class_column: str | None) -> str | None:
    """Column of the classes; files of questions have their own."""
    from daskclust.cube.formats.questions import read_pixels

    return (
        "class" if class_column and read_pixels(part, answered=True) is not None else class_column
    )
