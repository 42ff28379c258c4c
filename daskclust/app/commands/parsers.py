"""The parser of each command: ``add_NAME(commands)`` adds it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from daskclust.app.commands._arguments import (
    add_cluster_arguments,
    add_cube_arguments,
    add_estimator_arguments,
    add_exclude_argument,
    add_hold_out_arguments,
    add_job_arguments,
    add_known_classes,
    add_output_arguments,
    add_report_arguments,
    add_seed_argument,
    add_table_arguments,
    as_names,
)
from daskclust.app.commands.console import Parser, natural, one_of, seed

_FIT_EXAMPLES = """examples:
  daskclust fit scene.tif --n-clusters 6 --output map.tif --report report.html
  daskclust fit scene.zarr --estimator label-spreading --labels fields.gpkg \\
      --output map.tif --uncertainty margin.tif --model model.zarr
  daskclust fit table.parquet --columns a,b,c --n-clusters 4 --output labels.parquet
  daskclust fit --estimator label-spreading --help
"""


_LABEL_EXAMPLES = """examples:
  daskclust label scene.tif --classes water,forest,soil --output map.tif
  daskclust label scene.zarr --labels fields.geojson --scheduler tcp://host:8786
  ssh -L 8900:127.0.0.1:8900 HOST    with  --port 8900 --no-browser  on HOST
"""


#: Largest port number.
_PORTS = 65535


#: Blocks that are read to estimate the share of pixels without data, unless --full.
_SAMPLE = 16


def add_demo(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        description="Make a hyperspectral scene, cluster its pixels from five labeled pixels per "
        "class, and write the label map, a picture and a report.",
    )
    where = "folder to write, with the same path on all workers (default: %(default)s)"
    parser.add_argument("--output", default="daskclust-demo", metavar="DIR", help=where)
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier output")
    size: dict[str, Any] = {"nargs": 3, "type": natural, "default": (256, 256, 120)}
    parser.add_argument("--size", **size, metavar="N", help="rows, columns and bands of the scene")
    parser.add_argument("--seed", type=seed, default=0, help="seed of scene and fits")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_cluster_arguments(parser)


def add_fit(commands: Any) -> None:
    parser = commands.add_parser(
        "fit",
        usage="%(prog)s [options] [CUBE ...]",
        description="Cluster the valid pixels of an image cube on a Dask cluster, and write a\n"
        "label map, the model, a map of the uncertainty and a report. Or cluster the\n"
        "rows of a table, and write the table with the labels.",
        epilog=_FIT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_cube_arguments(parser)
    _add_labels(parser)
    add_table_arguments(parser, label_column=True)
    add_estimator_arguments(parser).add_argument(
        "--weights",
        type=one_of("area"),
        metavar="KIND",
        help="weights of pixels in the fit; area: area of a pixel, which depends on the latitude "
        "if coordinates are longitude and latitude (default: equal weights)",
    )
    parser.help_for = _help_for
    group = parser.add_argument_group("outputs", "At least one of the first four is required.")
    add_output_arguments(group, model=True)
    group.add_argument(
        "--colors",
        metavar="FILE",
        help="colors of classes, which the model keeps: CSV of class,color, or a QGIS style (.qml)",
    )
    add_cluster_arguments(parser)
    add_job_arguments(parser).add_argument(
        "--checkpoint",
        metavar="FILE",
        help="file or folder for the state of each iteration, from which the same command resumes "
        "(default: a hidden file next to the first output, removed at the end)",
    )


def _add_labels(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("labels")
    group.add_argument(
        "--labels",
        metavar="STORE[::NAME],...",
        help="partial labels: raster, polygons, CSV, or answered questions; several are joined",
    )
    add_known_classes(group, "--labels and --truth")
    add_hold_out_arguments(group)
    for name in ("must-link", "cannot-link"):
        group.add_argument(
            f"--{name}", metavar="FILE", help="pairs of row numbers: .npy, or text with two columns"
        )
    group.add_argument(
        "--choose-by-pairs",
        action="store_const",
        const=True,
        help="choose the estimator that satisfies held-out pairs best",
    )


def add_predict(commands: Any) -> None:
    parser = commands.add_parser(
        "predict",
        usage="%(prog)s [options] [CUBE ...]",
        description="Label the valid pixels of a cube, or the rows of a table, with a model saved "
        "by fit. Pixels are scaled as they were for the fit, and classes keep their "
        "codes, names and colors.",
    )
    add_cube_arguments(parser, scale=False)
    add_table_arguments(parser)
    group = parser.add_argument_group("model")
    group.add_argument("--model", metavar="STORE", help="saved model (required)")
    group = parser.add_argument_group("outputs", "At least one output or --truth is required.")
    add_output_arguments(group, model=False)
    add_known_classes(parser.add_argument_group("known classes"), "--truth")
    add_cluster_arguments(parser)
    add_job_arguments(parser)


def add_explain(commands: Any) -> None:
    parser = commands.add_parser(
        "explain",
        usage="%(prog)s MODEL CUBE [CUBE ...] [options]",
        description="Describe the clusters of a saved model on a cube or a table: distinguishing "
        "features, their AUC against the rest, nearest pixels or rows, and rules with their "
        "fidelity. This takes three passes over the data.",
    )
    parser.add_argument("model", metavar="MODEL", help="saved model, written by fit --model")
    add_cube_arguments(parser, scale=False)
    add_table_arguments(parser, output=False)
    parser.add_argument(
        "--output", metavar="FILE", help="page (.html), or table of all features (.csv, .json)"
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier output")
    add_cluster_arguments(parser)


def add_rename(commands: Any) -> None:
    parser = commands.add_parser(
        "rename",
        usage="%(prog)s [options] MODEL FILE",
        description="Rename classes or clusters of a saved model. Classes with the same new name "
        "are merged. The model is changed, and predict and explain use the new names.",
    )
    parser.add_argument("model", metavar="MODEL", help="saved model, which is changed")
    parser.add_argument(
        "file", metavar="FILE", help="CSV of old,new: a name or a code, and its new name"
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")


def add_compare(commands: Any) -> None:
    parser = commands.add_parser(
        "compare",
        usage="%(prog)s [options] FIRST SECOND",
        help="compare two label maps",
        description="Compare two label maps of the same area: matching classes, unchanged area, "
        "and the area of each transition between two classes. This takes one pass.",
    )
    parser.add_argument("first", metavar="FIRST[::NAME]", help="the older label map")
    parser.add_argument("second", metavar="SECOND[::NAME]", help="the newer label map")
    parser.add_argument(
        "--match",
        type=one_of("auto", "name", "code", "overlap"),
        default="auto",
        metavar="WAY",
        help="criterion for equal classes: name, code, overlap (one to one, by the number of "
        "shared pixels), or auto: name if both maps have names; code if neither has, or if one "
        "model made both; else overlap (default: auto)",
    )
    parser.add_argument(
        "--resample",
        action="store_true",
        help="resample SECOND to the grid of FIRST, by the nearest pixel",
    )
    parser.add_argument(
        "--output",
        metavar="STORE",
        help="map of the changes: 0 unchanged, a class for each transition; Zarr or GeoTIFF (.tif)",
    )
    add_report_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print as JSON")
    parser.add_argument("--overwrite", action="store_true", help="replace earlier outputs")
    add_cluster_arguments(parser)


def add_inspect(commands: Any) -> None:
    parser = commands.add_parser(
        "inspect",
        usage="%(prog)s [options] [CUBE]",
        description="Describe a cube: dimensions, chunks, bands, the fraction of pixels without "
        "data, and advice for faster reading. Also describe label maps and models written by "
        "daskclust, tables, and vector files of classes.",
    )
    add_cube_arguments(parser, scale=False)
    parser.add_argument(
        "--class-column", metavar="NAME", help="column of the classes in a vector file"
    )
    parser.add_argument(
        "--scene", metavar="CUBE", help="scene that should contain the features of a vector file"
    )
    parser.add_argument(
        "--sample",
        type=natural,
        default=_SAMPLE,
        metavar="N",
        help="blocks to read for the share without data (default: %(default)s)",
    )
    parser.add_argument("--full", action="store_true", help="read all blocks")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def add_doctor(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor",
        usage="%(prog)s [options] [CUBE]",
        description="Check versions, memory and threads of a cluster. Check also that every worker "
        "can read a cube and write next to an output. Exit code 1 if there is a problem.",
    )
    add_cube_arguments(parser, scale=False)
    parser.add_argument(
        "--output",
        metavar="STORE",
        help="planned output; a test file is written next to it and removed",
    )
    parser.add_argument(
        "--compile",
        action="store_true",
        help="only compile the kernels of all estimators, and print where they are stored: next "
        "to the package, or in NUMBA_CACHE_DIR",
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")
    add_cluster_arguments(parser)


def add_suggest(commands: Any) -> None:
    parser = commands.add_parser(
        "suggest",
        usage="%(prog)s [options] [CUBE]",
        description="Suggest the pixels whose labels would help most, and write them as points "
        "with an empty column `class`. Fill in the column, and pass the file to fit: --labels "
        "ask.geojson,few.tif. Pixels without a class are not suggested again.",
    )
    add_cube_arguments(parser, scale=False)
    group = parser.add_argument_group("known labels")
    group.add_argument(
        "--labels",
        metavar="STORE[::NAME],...",
        help="labels so far (raster, polygons, CSV, answered questions; several are joined)",
    )
    add_known_classes(group, "--labels", truth=False)
    group.add_argument(
        "--model",
        metavar="STORE",
        help="LabelSpreading model of this scene, saved by fit (default: fit a model)",
    )
    group = parser.add_argument_group("questions")
    add_exclude_argument(group)
    group.add_argument(
        "--n", type=natural, default=20, metavar="NUMBER", help="number of pixels (default: 20)"
    )
    add_seed_argument(group)
    group.add_argument(
        "--output", metavar="FILE", help="file of the points, .geojson or .csv (required)"
    )
    add_report_arguments(group)
    add_job_arguments(parser)
    add_cluster_arguments(parser)


def add_label(commands: Any) -> None:
    parser = commands.add_parser(
        "label",
        usage="%(prog)s [options] [CUBE ...]",
        description="Show the scene in a browser, ask for the classes of informative pixels, and\n"
        "show the map and its margin after each answer. Labels are saved after each answer,\n"
        "and the same command continues with them. `Save map` on the page fits\n"
        "LabelSpreading, and writes map, margin, model and report as `fit` does.",
        epilog=_LABEL_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_cube_arguments(parser, scale=False)
    group = parser.add_argument_group("labels")
    group.add_argument(
        "--labels",
        metavar="FILE",
        help="file of labels (.geojson or .gpkg), saved after each answer; an existing file is "
        "continued (default: CUBE_labels.geojson in this folder)",
    )
    group.add_argument(
        "--classes",
        type=as_names,
        default=(),
        metavar="NAME,...",
        help="initial classes; more can be added on the page",
    )
    add_exclude_argument(group)
    add_seed_argument(group)
    group = parser.add_argument_group("outputs", "Written by `Save map` on the page.")
    group.add_argument(
        "--output",
        metavar="MAP",
        help="label map: GeoTIFF (.tif) or Zarr; margin and report are written next to it "
        "(default: CUBE_map.tif in this folder)",
    )
    group.add_argument(
        "--model", metavar="STORE", help="the fitted model (default: next to the map)"
    )
    group.add_argument(
        "--overwrite", action="store_true", help="replace earlier outputs of this program"
    )
    group = parser.add_argument_group("page")
    group.add_argument(
        "--port",
        type=_port,
        default=0,
        metavar="N",
        help="port on this machine (default: a free port)",
    )
    group.add_argument("--no-browser", action="store_true", help="only print the address")
    add_cluster_arguments(parser)


def _port(text: str) -> int:
    number = int(text) if text.isdecimal() else -1
    if not 0 <= number <= _PORTS:
        raise argparse.ArgumentTypeError(f"must be a port from 0 to {_PORTS}, got {text!r}")
    return number


def _help_for(arguments: Sequence[str]) -> str | None:
    """Return the help page of the estimator that the arguments name, or None."""
    finder = Parser(add_help=False)
    finder.add_argument("--estimator")
    named = argparse.ArgumentParser.parse_known_args(finder, arguments)[0].estimator
    if named is None:
        return None
    from daskclust.app.commands._estimators import help_page

    return help_page(named.lower())
