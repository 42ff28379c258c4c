"""Groups of flags that several commands have, and readers of their values.

This module imports no numerical library, so that help and usage errors are fast.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import textwrap
from pathlib import Path
from typing import Any

from daskclust.app.commands.console import Parser, natural, number, one_of, seed

_NUMBER = r"(\d+(?:\.\d+)?)"


def add_cube_arguments(parser: argparse.ArgumentParser, *, scale: bool = True) -> None:
    group = parser.add_argument_group("data")
    group.add_argument(
        "cube",
        nargs="*",
        action=_Files,
        default=None,  # Without a default, argparse would require CUBE.
        metavar="CUBE",
        help="Zarr (folder, .zip or URL), GeoTIFF, COG, VRT, ENVI, NetCDF, HDF5, .npy, a "
        "Sentinel-2 SAFE folder, or several band files; all workers of a cluster must have access "
        "to it",
    )
    group.add_argument("--variable", metavar="NAME", help="array inside the store")
    group.add_argument(
        "--dims", type=as_names, metavar="Y,X,BAND", help="dimensions in stored order, if unnamed"
    )
    group.add_argument(
        "--nodata",
        type=_nodata,
        default="auto",
        metavar="VALUE",
        help="value of pixels without data; auto: from the attributes; none: no such value "
        "(default: auto)",
    )
    group.add_argument(
        "--mask",
        metavar="STORE[::NAME]",
        help="boolean image, true for pixels to exclude; or one image per date, true for pixels to "
        "exclude on this date",
    )
    group.add_argument(
        "--bad-bands",
        type=parse_bands,
        metavar="LIST",
        help="bands to exclude, such as 0-3,107,400nm-450nm; none: use all bands (default: exclude "
        "the bad bands that the file lists)",
    )
    group.add_argument(
        "--wavelengths",
        type=_wavelengths,
        metavar="FILE|FROM-TO",
        help="band centers in nm: a text file with one number per stored band, or first and last, "
        "such as 400-2500 (default: from the file)",
    )
    group.add_argument(
        "--incomplete",
        type=one_of("mask", "keep"),
        default="mask",
        metavar="{mask,keep}",
        help="treatment of pixels with missing bands; mask: exclude them; keep: use NaN for the "
        "bands (default: mask)",
    )
    group.add_argument(
        "--min-observed",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="minimum fraction of observed bands or dates of a pixel (default: 0, at least one)",
    )
    group.add_argument(
        "--chunks",
        type=_chunks,
        metavar="ROWSxCOLUMNS",
        help="size of a block (default: as stored)",
    )
    _add_mosaic_arguments(parser)
    if scale:
        group.add_argument(
            "--scale",
            type=one_of("none", "standard", "unit", "angle", "whitened"),
            default="none",
            metavar="NAME",
            help="scaling of features (default: none); standard: mean 0 and variance 1 (also for "
            "tables); angle: spectra of length 1; whitened: like angle, with white noise",
        )


def _add_mosaic_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("mosaic")
    group.add_argument(
        "--mosaic",
        nargs="+",
        action=_Files,
        default=False,
        metavar="TILE",
        help="files that are tiles of one cube, instead of CUBE, or one file of STAC items "
        "(.json, .geojson, .parquet); tiles may have several coordinate systems and resolutions",
    )
    group.add_argument(
        "--assets",
        type=as_names,
        metavar="NAMES",
        help="assets of STAC items, or bands of Sentinel-2 products, that are read, as in b02,b03",
    )
    group.add_argument(
        "--crs",
        metavar="CODE",
        help="coordinate system of the grid, as in EPSG:3035 (default: the system of most pixels)",
    )
    group.add_argument(
        "--resolution",
        type=_resolution,
        metavar="SIZE",
        help="size of a pixel, or width,height, in units of --crs (default: as most pixels)",
    )
    group.add_argument(
        "--region",
        type=_region,
        metavar="LEFT,BOTTOM,RIGHT,TOP",
        help="bounds of the grid in units of --crs; after an equals sign if they begin with a "
        "minus (default: all tiles)",
    )
    group.add_argument(
        "--resampling",
        type=one_of("nearest", "bilinear", "cubic", "average"),
        metavar="NAME",
        help="method for tiles with another grid: nearest, bilinear, cubic, average (default: "
        "nearest)",
    )
    group.add_argument(
        "--overlap",
        type=one_of("first", "last", "mean"),
        metavar="NAME",
        help="value of a pixel in several tiles: the first or the last value with data, or the "
        "mean (default: first)",
    )
    group.add_argument(
        "--skip-damaged",
        action="store_true",
        help="leave out tiles that cannot be opened, with a warning",
    )


def add_exclude_argument(group: Any) -> None:
    group.add_argument(
        "--exclude",
        metavar="STORE[::NAME]",
        help="pixels that are never suggested: boolean image (true: excluded), or polygons; they "
        "stay in the map",
    )


def add_seed_argument(group: Any) -> None:
    group.add_argument(
        "--seed", type=seed, default=0, metavar="N", help="seed of random numbers (default: 0)"
    )


def add_report_arguments(group: Any) -> None:
    group.add_argument("--report", metavar="FILE", help="report, one HTML file")
    group.add_argument("--title", metavar="TEXT", help="title of the report")


def as_names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _nodata(text: str) -> float | str | None:
    if text.lower() in ("none", "null"):
        return None
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, auto or none") from error


def _wavelengths(text: str) -> tuple[float, ...]:
    """Read the first and the last wavelength, a list, or a file of all, for ``argparse``."""
    from daskclust.scenes.bands import in_descriptions, numbers

    ends = re.fullmatch(rf"{_NUMBER}(?:nm)?-{_NUMBER}(?:nm)?", text.replace(" ", ""))
    if ends is not None:
        return float(ends[1]), float(ends[2])
    if "," in text and numbers(text) is not None:
        return tuple(float(part) for part in text.split(","))
    try:
        content = Path(text).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither FROM-TO in nm, as in 400-2500, nor a text file: {error}"
        ) from error
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    if lines and not re.search(r"\d", lines[0]):
        del lines[0]  # a header
    stated = in_descriptions(lines)
    values = numbers(",".join(line.strip(",;") for line in lines)) if stated is None else stated
    if values is None or not len(values):
        raise argparse.ArgumentTypeError(
            f"{text!r} must contain one number per band, separated by lines or commas"
        )
    return tuple(values.tolist())


def _chunks(text: str) -> tuple[int, int]:
    sizes = text.lower().replace(",", "x").split("x")
    if len(sizes) != 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not ROWSxCOLUMNS, as in 256x256")
    return natural(sizes[0]), natural(sizes[1])


def _numbers(text: str, kind: type = float) -> tuple[Any, ...]:
    try:
        values = tuple(kind(part) for part in text.split(","))
    except ValueError as error:
        what = "integers" if kind is int else "numbers"
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of {what}") from error
    if not all(abs(value) < math.inf for value in values):
        raise argparse.ArgumentTypeError(f"{text!r} has a number that is not finite")
    return values


def _resolution(text: str) -> tuple[float, ...]:
    values = _numbers(text)
    if len(values) > 2 or min(values) <= 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a positive size, or two of them, as in 10 or 10,20"
        )
    return values[0], values[-1]


def _region(text: str) -> tuple[float, ...]:
    values = _numbers(text)
    if len(values) != 4 or values[0] >= values[2] or values[1] >= values[3]:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not LEFT,BOTTOM,RIGHT,TOP with LEFT < RIGHT and BOTTOM < TOP"
        )
    return values


def parse_bands(text: str) -> tuple[int, ...] | str:
    """Read numbers and ranges of bands, for ``argparse``; wavelengths stay text.

    >>> parse_bands("0-2,7"), parse_bands("none"), parse_bands("400nm-450nm")
    ((0, 1, 2, 7), (), '400nm-450nm')
    """
    from daskclust.scenes.bands import parse_bands as ranges_of_bands

    if text.lower() in ("none", "null"):
        return ()
    if text == "auto":
        return text
    try:
        items = ranges_of_bands(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if any(item.by_wavelength for item in items):
        return text
    return tuple(n for item in items for n in range(int(item.first), int(item.last) + 1))


class _Files(argparse.Action):
    """Stores one CUBE as a string, and several files or the tiles of a mosaic as a tuple."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        if not values:
            return
        is_mosaic = option is not None
        # With a job file, a command line is parsed twice.
        if namespace.cube is not None and namespace.mosaic != is_mosaic:
            parser.error("files must be given either as CUBE or after --mosaic, not both")
        is_single = len(values) == 1 and not is_mosaic
        namespace.cube, namespace.mosaic = values[0] if is_single else tuple(values), is_mosaic


def add_known_classes(group: Any, flags: str, *, truth: bool = True) -> None:
    group.add_argument(
        "--class-column",
        metavar="NAME",
        help=f"column of the classes in vector files (GeoJSON, GeoPackage, Shapefile) or CSV of "
        f"{flags}",
    )
    group.add_argument(
        "--resample-labels",
        action="store_true",
        help=f"resample {flags} to the grid of the cube, by the nearest pixel",
    )
    group.add_argument(
        "--unlabeled",
        type=lambda text: _numbers(text, int),
        default=(-1,),
        metavar="LIST",
        help=f"values of {flags} that mean no class, in addition to nodata (default: -1)",
    )
    if truth:
        group.add_argument(
            "--truth",
            metavar="STORE[::NAME]",
            help="known classes, only for comparison: a map, or a column of the table",
        )


def add_table_arguments(
    parser: argparse.ArgumentParser, *, label_column: bool = False, output: bool = True
) -> None:
    group = parser.add_argument_group(
        "tables",
        "CUBE may be a table: Parquet, CSV, rows x values in .npy or STORE.zarr/NAME.",
    )
    group.add_argument(
        "--columns",
        type=as_names,
        metavar="A,B,...",
        help="feature columns (default: all numeric columns, or the columns of the model)",
    )
    group.add_argument(
        "--keep",
        type=as_names,
        metavar="A,B,...",
        help="columns in outputs (default: all), and columns shown for the nearest rows in reports "
        "(default: text columns, for vectors)",
    )
    if label_column:
        group.add_argument(
            "--label-column",
            metavar="NAME",
            help="column of partial labels, text or codes; empty values and -1 mean no label",
        )
        group.add_argument(
            "--groups",
            metavar="NAME",
            help="column of groups; --hold-out holds out complete groups (default: single rows)",
        )
    if not output:
        return
    group.add_argument(
        "--output-column",
        default="label",
        metavar="NAME",
        help="name of the label column in --output (default: %(default)s)",
    )


#: Parameters that have a flag of their own.
PARAMETER_FLAGS = {
    "random_state": "--seed",
    "checkpoint": "--checkpoint",
    "n_clusters": "--n-clusters",
    "n_components": "--n-clusters",
}


#: Other names of estimators on the command line.
OTHER_WORDS = {
    "hierarchical-kmeans": "HierarchicalKMeans",
    "label-spreading": "LabelSpreading",
    "spectral": "SpectralClustering",
    "ward": "AgglomerativeClustering",
}


def add_estimator_arguments(parser: Parser) -> Any:
    """Add ``--estimator``, ``--n-clusters``, ``--set`` and ``--seed``.

    The help lists the estimators; with ``--estimator NAME`` it lists the estimator's parameters.
    """
    import daskclust

    easier = {name: word for word, name in OTHER_WORDS.items()}
    # The classes themselves are not imported.
    estimators = [name for name in daskclust.__all__ if name[0].isupper() and name != "Cube"]
    names = sorted(easier.get(name, name.lower()) for name in estimators)
    words = sorted({*map(str.lower, estimators), *OTHER_WORDS})
    group = parser.add_argument_group(
        "estimator",
        textwrap.fill(
            f"Names: {', '.join(names)}. Description and parameters of an estimator: "
            "daskclust fit --estimator NAME --help",
            76,
        ),
    )
    group.add_argument(
        "--estimator",
        type=lambda text: one_of(*words)(text.lower()),
        default="kmeans",
        metavar="NAME",
        help="(default: kmeans)",
    )
    group.add_argument(
        "--n-clusters",
        type=_value,
        metavar="K",
        help="number of clusters or mixture components; required if the estimator has such a "
        "parameter without a useful default",
    )
    group.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another parameter of the estimator, for example --set tol=1e-3; may be repeated",
    )
    add_seed_argument(group)
    return group


def _value(text: str) -> Any:
    """Read a number, true, false, none, JSON list or word.

    >>> [_value(text) for text in ("7", "1e-4", "none", "[[1, 2]]", "k-means++")]
    [7, 0.0001, None, [[1, 2]], 'k-means++']
    """
    words = {"none": None, "null": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for read in (int, float, json.loads):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _setting(text: str) -> tuple[str, Any]:
    """Read ``NAME=VALUE``.

    >>> _setting("max-iter=7"), _setting("init=k-means++")
    (('max_iter', 7), ('init', 'k-means++'))
    """
    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not (equals and name.isidentifier()):
        raise argparse.ArgumentTypeError(f"{text!r} must be NAME=VALUE, as in tol=1e-3")
    if name in PARAMETER_FLAGS:
        raise argparse.ArgumentTypeError(
            f"{name} is not supported by --set: use {PARAMETER_FLAGS[name]}"
        )
    return name, _value(value.strip())


def add_output_arguments(group: Any, *, model: bool) -> None:
    group.add_argument(
        "--output",
        metavar="STORE",
        help="label map: Zarr or GeoTIFF (.tif); for a table: a folder of Parquet files, or only "
        "labels (.npy, .zarr)",
    )
    if model:
        group.add_argument("--model", metavar="STORE", help="fitted model, for predict")
    add_report_arguments(group)
    group.add_argument(
        "--uncertainty",
        metavar="STORE",
        help="map of the margin of each label, from 0 (a tie) to 1: Zarr or GeoTIFF (.tif); for a "
        "table: a column",
    )
    group.add_argument(
        "--score",
        metavar="STORE",
        help="map of scores, higher is more normal; for a table: a column",
    )
    group.add_argument(
        "--smooth",
        nargs="?",
        const=0.5,
        type=float,
        metavar="STRENGTH",
        help="smooth the label map where neighboring spectra are similar (without a number: 0.5)",
    )
    group.add_argument(
        "--min-pixels",
        type=int,
        metavar="N",
        help="minimum size of a region in the label map; smaller regions get the class of the "
        "largest neighbor",
    )


def add_hold_out_arguments(group: Any) -> None:
    group.add_argument(
        "--hold-out",
        type=number(lambda value: 0 < value < 1, "is not between 0 and 1, as in 0.3"),
        metavar="SHARE",
        help="fraction of the labels used only to test the accuracy, in complete fields (touching "
        "pixels) or --groups",
    )
    group.add_argument(
        "--hold-out-by",
        type=one_of("fields", "tiles"),
        metavar="UNIT",
        help="unit of --hold-out, which is held out as a whole: fields, or tiles of --mosaic "
        "(default: fields)",
    )
    group.add_argument(
        "--baseline",
        action="store_true",
        help="also report the accuracy of 1-NN and a random forest",
    )


def add_job_arguments(parser: argparse.ArgumentParser) -> Any:
    group = parser.add_argument_group("run")
    group.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="TOML or YAML file of options (keys are the names of flags); flags take precedence",
    )
    group.add_argument(
        "--dry-run",
        action="store_true",
        help="print passes, tasks, bytes and memory; compute nothing",
    )
    group.add_argument("--json", action="store_true", help="print results as JSON")
    group.add_argument(
        "--performance",
        metavar="FILE",
        help="Dask's performance report, one HTML file",
    )
    group.add_argument(
        "--overwrite", action="store_true", help="replace earlier outputs of this command"
    )
    return group


#: Maximum number of worker processes on one machine. A larger number is probably a typing error.
_MAX_PROCESSES = 1024


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    section = parser.add_argument_group("cluster")
    group = section.add_mutually_exclusive_group()
    group.add_argument(
        "--local",
        type=_processes,
        metavar="N",
        help="number of worker processes to start on this machine (default: one per usable core)",
    )
    group.add_argument("--scheduler", metavar="ADDRESS", help="use the Dask cluster at ADDRESS")
    group.add_argument(
        "--scheduler-file",
        type=Path,
        metavar="FILE",
        help="use the Dask cluster whose scheduler wrote FILE",
    )
    section.add_argument(
        "--memory-limit",
        type=_size,
        metavar="SIZE",
        help="memory limit of each started worker process, such as 1GB (default: an equal share)",
    )


def _processes(text: str) -> int:
    too_many = f"processes on one machine are too many; use at most {_MAX_PROCESSES}"
    return int(number(lambda value: value <= _MAX_PROCESSES, too_many, natural)(text))


def _size(text: str) -> str:
    from dask.utils import parse_bytes

    try:
        size = parse_bytes(text)
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, such as 1GB") from error
    if size < 2**27:
        raise argparse.ArgumentTypeError(f"{text} is less than 128 MiB, which a worker needs")
    return text
