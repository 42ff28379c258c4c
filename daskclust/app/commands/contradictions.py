"""Errors in the arguments of a command: contradictions and missing files."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import PurePath

from daskclust.app.commands.requests import CubeOptions, UsageError

#: Options that require one of several other options: command, option, other options, message.
_NEEDS = (
    *(
        ("fit", flag, ("--hold-out",), "requires held-out labels; use --hold-out 0.3")
        for flag in ("--baseline", "--groups", "--hold-out-by")
    ),
    (
        "fit",
        "--hold-out",
        ("--labels", "--label-column"),
        "requires --labels (for a table: --label-column), and an estimator that accepts labels",
    ),
    *(
        (
            command,
            flag,
            needed,
            f"requires {' or '.join(needed)}; add the labels, or omit this option",
        )
        for command, needed in (
            ("fit", ("--labels", "--truth")),
            ("predict", ("--truth",)),
            ("suggest", ("--labels",)),
        )
        for flag in ("--class-column", "--resample-labels")
    ),
)
#: Options that require ``--mosaic``.
OF_MOSAICS = ("assets", "crs", "resolution", "region", "resampling", "overlap", "skip_damaged")
#: Options that are about pixels.
OF_PIXELS = (
    *"variable dims mask bad_bands chunks labels class_column wavelengths smooth nodata".split(),
    *"min_pixels incomplete min_observed unlabeled resample_labels hold_out_by weights".split(),
    *OF_MOSAICS,
)
#: Remedies for options that are about pixels.
_INSTEAD = {
    "class_column": "name the column of the known classes with --truth",
    "labels": "name the column of the labels with --label-column",
}
#: Commands whose words before the flags are paths of files or stores.
_TAKE_PATHS = ("fit", "predict", "explain", "compare", "inspect", "suggest", "label")
#: Suffixes of tables. Other tables are recognized by their content.
_TABLES = (".parquet", ".csv")


def missing_need(command: str, flags: Collection[str]) -> str | None:
    """Return a message about a flag that requires a missing flag, or an empty text.

    >>> missing_need("fit", ["--baseline", "--labels"])
    '--baseline requires held-out labels; use --hold-out 0.3'
    """
    for needing, flag, needed, requirement in _NEEDS:
        if needing == command and flag in flags and not set(needed).intersection(flags):
            return f"{flag} {requirement}"
    return None


def not_of_tables(path: str, name: str) -> str:
    """Return the error for an option of pixels (name with underscores) and a path of a table."""
    flag = f"--{name.replace('_', '-')}"
    return f"{path!r} is a table, and {flag} is for pixels; {_INSTEAD.get(name, 'omit it')}"


def missing_file(arguments: Sequence[str]) -> str | None:
    """Return the first path of a command line that certainly does not exist, or None.

    URLs, names for GDAL, and arrays inside stores and archives are looked up when they are opened.

    >>> missing_file(["fit", "nosuch.tif", "--output", "map.tif"])
    'nosuch.tif'
    >>> missing_file(["inspect", "https://example.org/scene.tif"]) is None
    True
    """
    command, *words = arguments
    if command not in _TAKE_PATHS or "-h" in words or "--help" in words:
        return None
    for word in words:
        if word.startswith("-"):
            break
        path = PurePath(os.path.expanduser(word))
        is_in_store = any(parent.suffix and os.path.exists(parent) for parent in path.parents)
        if (
            word.strip()
            and not {":", "*"} & set(word)
            and not is_in_store
            and not os.path.exists(path)
        ):
            return word
    return None


def contradiction(arguments: Sequence[str]) -> str | None:
    """Return the first contradiction in a command line, or None.

    >>> contradiction(["fit", "a.csv", "--nodata=0"])
    "'a.csv' is a table, and --nodata is for pixels; omit it"
    >>> contradiction(["fit", "a.csv", "--config", "job.toml"]) is None
    True
    """
    command, *words = arguments
    flags = [word.partition("=")[0] for word in words if word.startswith("--")]
    if {"--config", "--help"}.intersection(flags) or "-h" in words:
        return None  # the file may contain the missing options
    if command in ("fit", "predict") and words and PurePath(words[0]).suffix in _TABLES:
        for name in OF_PIXELS:
            if f"--{name.replace('_', '-')}" in flags:
                return not_of_tables(words[0], name)
    return missing_need(command, flags)


def check_needs(command: str, request: CubeOptions) -> None:
    """Raise a UsageError if an option needs another one, or the cube is missing."""
    if request.cube is None:
        raise UsageError("CUBE is required, on the command line or in --config")
    given = [name for name in vars(request) if request.is_given(name)]
    problem = missing_need(command, [f"--{name.replace('_', '-')}" for name in given])
    if problem is not None:
        raise UsageError(problem)
