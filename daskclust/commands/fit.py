"""``daskclust fit``: a cube in; a label map, a model and a report out."""

from __future__ import annotations

import argparse
import inspect
import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskclust.commands._cubes import (
    add_cube_arguments,
    add_known_classes,
    check_named,
    open_cube_of,
    open_sources,
    paths_of,
    sources_of,
)
from daskclust.commands._estimators import (
    add_estimator_arguments,
    check_count,
    make_estimator,
    takes_labels,
)
from daskclust.commands._job import (
    add_hold_out_arguments,
    add_job_arguments,
    check_hold_out,
    check_resumable,
    fields_of,
    job_mark,
    run_fit,
    with_file,
)
from daskclust.commands._plan import make_plan, only_planned
from daskclust.commands._tables import add_table_arguments, is_table, open_table_to_fit
from daskclust.commands._written import (
    add_output_arguments,
    check_margin,
    check_outputs,
    check_report,
    check_smoothing,
    fit_as_text,
    outputs_of,
    places_of,
    read_class_colors,
    write_outputs,
)
from daskclust.commands.console import Progress, add_cluster_arguments
from daskclust.cube.formats.vector import check_codes
from daskclust.cube.pixels import places_of_rows
from daskclust.persistence.saveable import clusters_are_classes, name_classes

_EXAMPLES = """examples:
  daskclust fit scene.tif --n-clusters 6 --output map.tif --report report.html
  daskclust fit scene.zarr --estimator label-spreading --labels fields.gpkg \\
      --output map.tif --uncertainty margin.tif --model model.zarr
  daskclust fit table.parquet --columns a,b,c --n-clusters 4 --output labels.parquet
  daskclust fit --estimator label-spreading --help
"""


def add_command(commands: Any) -> None:
    parser = commands.add_parser(
        "fit",
        usage="%(prog)s [options] [CUBE ...]",
        description="Cluster the valid pixels of an image cube on a Dask cluster, and write a\n"
        "label map, the model, a map of the uncertainty and a report; or the rows of a\n"
        "table, and write it with their labels.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_cube_arguments(parser)
    _add_labels(parser)
    add_table_arguments(parser, label_column=True)
    add_estimator_arguments(parser)
    group = parser.add_argument_group("outputs", "At least one of the first four is needed.")
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
        help="file or folder for the state of every iteration; the same command continues there "
        "(default: a hidden file beside the first output, removed at the end)",
    )
    parser.set_defaults(run=_run, parser=parser)


def _add_labels(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("labels")
    group.add_argument(
        "--labels",
        metavar="STORE[::NAME],...",
        help="partial labels (raster, polygons, CSV, answered questions; several are joined): for "
        "the estimators that take labels, compared for all",
    )
    add_known_classes(group, "--labels and --truth")
    add_hold_out_arguments(group)
    for name in ("must-link", "cannot-link"):
        group.add_argument(
            f"--{name}", metavar="FILE", help="pairs of row numbers: .npy, or text with two columns"
        )
        group.add_argument(f"--{name}-weight", type=float, metavar="NUMBER", help="of these pairs")


def _run(options: argparse.Namespace) -> int:
    options = with_file(options.parser, options, options.arguments)
    if options.cube is None:
        options.parser.error("no CUBE given, neither on the command line nor in --config")
    began = time.perf_counter()
    progress = Progress()
    model = make_estimator(options)
    job: Any
    learns = options.labels is not None or options.label_column is not None
    check_hold_out(options, learns and takes_labels(model))
    if options.colors is not None:
        read_class_colors(options.colors)  # refused now, not after the fit
    if is_table(options):
        job = open_table_to_fit(options, model, _pairs_of(options, model))
    else:
        check_margin(options, model)
        check_smoothing(options, model)
        job = open_job(options, model)
    if only_planned(options, "fit", job.plan):
        return 0
    if not job.places:
        options.parser.error(
            "nothing to write: give --output for the label map, --model, --report, --uncertainty, "
            "--score, or several of them; --dry-run only plans"
        )
    found = run_fit(options, model, job, progress, began)
    print(json.dumps(found, indent=2) if options.json else fit_as_text(found))
    return 0


@dataclass(frozen=True)
class CubeJob:
    """A fit or prediction of a cube, opened and checked: nothing is found out later."""

    options: argparse.Namespace
    cube: Any
    plan: dict[str, Any]
    pairs: dict[str, Any]
    #: ``labels`` and ``truth``, if given.
    maps: dict[str, Any]
    mark: str
    #: For each output whether it may be replaced.
    replace: dict[str, bool]

    @property
    def places(self) -> dict[str, str]:
        return places_of(self.options)

    @property
    def parts(self) -> int:
        return int(self.plan["blocks"])

    @property
    def data(self) -> Any:
        return self.cube

    @property
    def samples(self) -> Any:
        return self.cube.samples

    def groups(self, rows: Any, labels: Any) -> tuple[Any, str]:
        lines, columns = np.divmod(places_of_rows(self.cube, rows), self.cube.shape[1])
        return fields_of(lines, columns, labels), "fields"

    def count(self, progress: Progress) -> int:
        cube = self.cube
        with progress.task("Valid pixels"):
            n_valid = int(cube.n_valid)
        if n_valid == 0:
            raise ValueError(
                f"All {cube.n_masked} pixels are masked, by nodata "
                f"({', '.join(map(str, (*cube.nodata, 'NaN')))}) or "
                "--mask; check --nodata, --bad-bands and --mask, or use --incomplete keep."
            )
        return n_valid

    def labels(self) -> Any:
        given = self.maps.get("labels")
        if given is None:
            return None
        rows, labels = self.cube.rows_of(given, unlabeled=self.options.unlabeled)
        if not len(rows):
            raise ValueError(
                "--labels gives no class to any pixel with data: all its values mean none "
                "(--unlabeled, nodata), lie on masked pixels, or its polygons cover no center "
                "of a pixel."
            )
        if self.options.output is not None and not given.by_name:
            check_codes(np.unique(labels).tolist())
        return rows, labels

    def facts(self, command: str) -> dict[str, Any]:
        cube = self.cube
        found: dict[str, Any] = {"pixels": {"valid": cube.n_valid, "masked": cube.n_masked}}
        if command == "fit":
            found["bands"] = {"used": len(cube.bands), "stored": cube.stored.shape[2]}
        return found

    def name(self, model: Any) -> None:
        given = self.maps.get("labels")
        if given is not None and not given.by_name and clusters_are_classes(model):
            name_classes(model, given.meanings, given.colors)

    def write(self, model: Any, labels: Any, found: dict[str, Any], progress: Progress) -> None:
        write_outputs(self.options, self, model, labels, found, progress)


def open_job(options: argparse.Namespace, model: Any) -> CubeJob:
    """Open and check whatever a fit will need, from metadata only."""
    params = model.get_params(deep=False)
    check_named(options, "labels", "truth")
    mark = job_mark(options, params)
    replace = _check_outputs(options, mark)
    check_resumable(options, mark)
    pairs = _pairs_of(options, model)
    cube = open_cube_of(options)
    n_pixels = cube.shape[0] * cube.shape[1]
    _check_pairs(pairs, n_pixels)
    check_count(params, n_pixels, "pixels")
    maps = open_maps(options, cube, "labels", "truth")
    constrained = takes_labels(model) and bool(pairs or "labels" in maps)
    plan = make_plan(cube, options, params, constrained=constrained)
    return CubeJob(options, cube, plan, pairs, maps, mark, replace)


def open_maps(options: argparse.Namespace, cube: Any, *names: str) -> dict[str, Any]:
    given = {name: getattr(options, name) for name in names}
    return {
        name: open_sources(
            cube,
            f"--{name}",
            text,
            options.class_column,
            options.unlabeled,
            resample=options.resample_labels,
        )
        for name, text in given.items()
        if text is not None
    }


def _check_outputs(options: argparse.Namespace, mark: str) -> dict[str, bool]:
    inputs: dict[str, str | None] = {**paths_of(options.cube)}
    for name in ("labels", "truth", "mask"):
        given = getattr(options, name)
        inputs |= sources_of(f"--{name}", given)
    for name in ("must_link", "cannot_link", "config", "checkpoint", "colors"):
        given = getattr(options, name)
        inputs[f"--{name.replace('_', '-')}"] = None if given is None else str(given)
    check_report(options)
    # Labels may lie beside the cube in one store.
    places = {path: flag for flag, path in inputs.items() if path is not None}
    return check_outputs(
        outputs_of(options),
        {flag: path for path, flag in places.items()},
        mark=mark,
        overwrite=options.overwrite,
    )


def _pairs_of(options: argparse.Namespace, model: Any) -> dict[str, Any]:
    """Read pairs of rows and their weights; wrong usage ends the program."""
    known = inspect.signature(model.fit).parameters
    found: dict[str, Any] = {}
    for kind in ("must_link", "cannot_link"):
        pairs, weight = getattr(options, kind), getattr(options, f"{kind}_weight")
        if (pairs is not None or weight is not None) and kind not in known:
            flag = f"--{kind.replace('_', '-')}"
            options.parser.error(f"{type(model).__name__} takes no pairs, so no {flag}")
        if pairs is not None:
            found[kind] = _pairs(f"--{kind.replace('_', '-')}", pairs)
        if weight is not None:
            found[f"{kind}_weight"] = weight
    return found


def _pairs(flag: str, path: str) -> Any:
    try:
        if path.endswith(".npy"):
            pairs = np.load(path, allow_pickle=False)
        else:
            with open(path, encoding="utf-8") as file:
                lines = [
                    line for line in file.read().replace(",", " ").splitlines() if line.strip()
                ]
            pairs = np.loadtxt(lines or ["0 0"], dtype=np.int64, ndmin=2)[: len(lines)]
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{flag}: there is no file {path!r}; give the path of an existing one."
        ) from error
    except Exception as error:  # NumPy's header is Python, and so are the errors about it
        raise ValueError(
            f"{flag} {path!r} cannot be read as pairs of row numbers: {str(error).rstrip('.')}."
        ) from error
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu" or not len(pairs):
        raise ValueError(
            f"{flag} {path!r} holds {pairs.dtype} of shape {pairs.shape}; expected integers of "
            "shape (m, 2), the numbers of two rows each, and one pair at least."
        )
    return pairs


def _check_pairs(pairs: dict[str, Any], n_pixels: int) -> None:
    """Refuse pairs of rows that a cube cannot have; masked pixels make it fewer still."""
    for kind in ("must_link", "cannot_link"):
        found = pairs.get(kind)
        if found is not None and (found.min() < 0 or found.max() >= n_pixels):
            wrong = found.min() if found.min() < 0 else found.max()
            raise ValueError(
                f"--{kind.replace('_', '-')} names the row {wrong}; expected numbers from 0 to "
                f"{n_pixels - 1}, for there are {n_pixels} pixels."
            )
