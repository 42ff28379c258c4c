"""``daskclust fit``: a cube in; a label map, a model and a report out."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np

from daskclust.commands._cubes import (
    add_cube_arguments,
    image_of,
    integers,
    open_cube_of,
    paths_of,
)
from daskclust.commands._data import described
from daskclust.commands._estimators import (
    add_estimator_arguments,
    flags_of,
    make_estimator,
    takes_labels,
)
from daskclust.commands._examine import look_before_fit
from daskclust.commands._jobs import add_job_arguments, effective, with_file
from daskclust.commands._label_sources import open_sources, sources_of
from daskclust.commands._outputs import JOB, check_outputs
from daskclust.commands._plan import check_memory, make_plan, plan_as_text
from daskclust.commands._resume import job_mark, resumable
from daskclust.commands.console import Progress, add_cluster_arguments, open_client
from daskclust.report.summary import agreement_of, as_classes, n_clusters_of, summarize
from daskclust.storage.urls import redact

__all__ = ["add_command", "run_fit"]


def add_command(commands: Any) -> None:
    """Add ``fit`` to the command line."""
    parser = commands.add_parser(
        "fit",
        usage="%(prog)s [options] [CUBE]",
        help="cluster the pixels of a cube",
        description="Cluster the valid pixels of an image cube in Zarr on a Dask cluster, and "
        "write a label map, the model and a report.",
        allow_abbrev=False,
    )
    add_cube_arguments(parser)
    group = parser.add_argument_group("labels and constraints")
    group.add_argument(
        "--labels",
        metavar="STORE[::NAME],...",
        help="partial labels (raster, polygons, CSV, answered questions; several are joined): for "
        "the estimators that take labels, compared for all",
    )
    group.add_argument(
        "--unlabeled",
        type=integers,
        default=(-1,),
        metavar="LIST",
        help="values of --labels and --truth that mean none, besides their nodata (default: -1)",
    )
    group.add_argument(
        "--truth", metavar="STORE[::NAME]", help="map of known classes, only to compare with"
    )
    group.add_argument(
        "--class-column",
        metavar="NAME",
        help="of --labels and --truth in vector files (GeoJSON, GeoPackage, Shapefile) and CSV",
    )
    for name in ("must-link", "cannot-link"):
        group.add_argument(
            f"--{name}", metavar="FILE", help="pairs of row numbers: .npy, or text with two columns"
        )
        group.add_argument(f"--{name}-weight", type=float, metavar="NUMBER", help="of these pairs")
    group = parser.add_argument_group("outputs")
    group.add_argument(
        "--output", metavar="STORE", help="label map: Zarr, or a GeoTIFF (.tif) for GIS"
    )
    group.add_argument("--model", metavar="STORE", help="the fitted model, for predict")
    group.add_argument("--report", metavar="FILE", help="report to look at, one HTML file")
    group.add_argument("--title", metavar="TEXT", help="of the report")
    add_estimator_arguments(parser)
    add_job_arguments(parser)
    add_cluster_arguments(parser)
    parser.set_defaults(run=_run, parser=parser)


def _run(options: argparse.Namespace) -> int:
    options = with_file(options.parser, options, options.arguments)
    progress = Progress()
    model = make_estimator(options)
    if options.dry_run:
        job = open_job(options, model)
        plan = {"command": "fit", "dry_run": True, **job.plan}
        print(json.dumps(plan, indent=2) if options.json else plan_as_text(job.plan))
        return 0
    found = run_fit(options, model, progress)
    print(json.dumps(found, indent=2) if options.json else _as_text(found))
    return 0


@dataclass(frozen=True)
class Job:
    """A fit with all of its inputs opened and checked: nothing of them is found out later.

    Attributes
    ----------
    cube : Cube
    plan : dict
    pairs : dict
        Arguments of ``fit`` about pairs of rows.
    maps : dict of str to Image
        ``labels`` and ``truth``, if given.
    mark : str
    replace : dict of str to bool
        For each output whether it may be replaced.
    """

    cube: Any
    plan: dict[str, Any]
    pairs: dict[str, Any]
    maps: dict[str, Any]
    mark: str
    replace: dict[str, bool]


def open_job(options: argparse.Namespace, model: Any) -> Job:
    """Open and check whatever a fit will need, from metadata only."""
    params = model.get_params(deep=False)
    mark = job_mark(options, params)
    replace = _check_outputs(options, mark)
    pairs = _pairs_of(options, model)
    cube = open_cube_of(options)
    given = {name: getattr(options, name) for name in ("labels", "truth")}
    maps = {
        name: open_sources(cube, f"--{name}", text, options.class_column, options.unlabeled)
        for name, text in given.items()
        if text is not None
    }
    constrained = takes_labels(model) and bool(pairs or "labels" in maps)
    plan = make_plan(cube, options, params, constrained=constrained)
    return Job(cube, plan, pairs, maps, mark, replace)


def _check_outputs(options: argparse.Namespace, mark: str) -> dict[str, bool]:
    outputs = {f"--{name}": getattr(options, name) for name in ("output", "model", "report")}
    inputs: dict[str, str | None] = {**paths_of(options.cube)}
    for name in ("labels", "truth", "mask"):
        given = getattr(options, name)
        inputs |= sources_of(f"--{name}", given)
    for name in ("must_link", "cannot_link", "config", "checkpoint"):
        given = getattr(options, name)
        inputs[f"--{name.replace('_', '-')}"] = None if given is None else str(given)
    if options.report is not None and importlib.util.find_spec("matplotlib") is None:
        raise ImportError(
            "A report needs matplotlib, which is not installed. Use: pip install 'daskclust[plot]'"
        )
    # Labels may lie beside the cube in one store.
    places = {path: flag for flag, path in inputs.items() if path is not None}
    return check_outputs(
        outputs,
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
            found[kind] = _pairs(pairs)
        if weight is not None:
            found[f"{kind}_weight"] = weight
    return found


def _pairs(path: str) -> Any:
    if path.endswith(".npy"):
        return np.load(path, allow_pickle=False)
    with open(path, encoding="utf-8") as file:
        text = file.read().replace(",", " ")
    return np.loadtxt(text.splitlines(), dtype=np.int64, ndmin=2)


def run_fit(options: argparse.Namespace, model: Any, progress: Progress) -> dict[str, Any]:
    """Run a job and return what became of it, as JSON values."""
    import daskclust

    began = time.perf_counter()
    job = open_job(options, model)
    check_memory(job.plan)
    cube = job.cube
    with (
        open_client(options, useful_workers=job.plan["blocks"], progress=progress) as client,
        resumable(options, model, job.mark, progress),
    ):
        threads = client.nthreads()
        progress.say(f"Cluster: {len(threads)} workers, {sum(threads.values())} threads")
        look_before_fit(client, progress)
        with progress.task("Valid pixels"):
            n_valid = cube.n_valid
        if n_valid == 0:
            raise ValueError(
                f"All {cube.n_masked} pixels are masked, by nodata "
                f"({', '.join(map(str, (*cube.nodata, 'NaN')))}) or "
                "--mask; check --nodata, --bad-bands and --mask, or use --missing nan."
            )
        arguments = dict(job.pairs)
        if "labels" in job.maps and takes_labels(model):
            arguments["y"] = cube.rows_of(job.maps["labels"], unlabeled=options.unlabeled)
        elif takes_labels(model):
            # An estimator that cannot do without labels says so itself.
            arguments["y"] = None
        with progress.task(type(model).__name__, rows=n_valid):
            with daskclust.on_iteration(progress.iteration):
                # Views of an image need to know which pixels lie side by side.
                model.fit(cube if hasattr(model, "views") else cube.samples, **arguments)
        config = effective(options, model.get_params(deep=False), _flags(options))
        found = {
            "command": "fit",
            "version": daskclust.__version__,
            "estimator": type(model).__name__,
            "configuration": config,
            "pixels": {"valid": n_valid, "masked": cube.n_masked},
            "bands": {"used": len(cube.bands), "stored": cube.stored.shape[2]},
            "cluster": {"workers": len(threads), "threads": sum(threads.values())},
            **_numbers(model),
        }
        _write(options, job, model, found, progress)
    found["seconds"] = time.perf_counter() - began
    found["outputs"] = {
        name: redact(getattr(options, name))
        for name in ("output", "model", "report")
        if getattr(options, name) is not None
    }
    return found


def _flags(options: argparse.Namespace) -> set[str]:
    """Options that are parameters of the estimator, and told as such."""
    return flags_of(options).keys() - {"checkpoint"}


def _numbers(model: Any) -> dict[str, Any]:
    """Return what a fit has found, as far as it is a number."""
    found: dict[str, Any] = {"n_clusters": n_clusters_of(model)}
    names = ("n_iter_", "inertia_", "objective_", "lower_bound_", "converged_")
    for name in names:
        value = getattr(model, name, None)
        if isinstance(value, bool | int | float | np.generic):
            found[name.rstrip("_")] = value.item() if isinstance(value, np.generic) else value
    history = getattr(model, "history_", None)
    if history:
        found["passes"] = history[-1].get("passes")
        found["fit_seconds"] = sum(record.get("seconds") or 0.0 for record in history)
    weights = getattr(model, "feature_weights_", None)
    if weights is not None:
        found["features_used"] = int((weights > 0).sum())
    violations = getattr(model, "constraint_violations_", None)
    if violations is not None:
        found["violations"] = len(violations)
    return found


def _write(
    options: argparse.Namespace, job: Job, model: Any, found: dict[str, Any], progress: Progress
) -> None:
    """Write what was asked for, and add what the label map says to the results."""
    from daskclust.persistence.models import save

    cube, k = job.cube, found["n_clusters"]
    scaling = cube.scaling
    stored = {
        "mark": job.mark,
        **{key: found[key] for key in ("command", "version", "estimator", "configuration")},
        "scale": options.scale,
        "scaling": None if scaling is None else [part.tolist() for part in scaling],
        "data": described(cube),
        "class_names": _class_names(job, model),
    }
    if options.output is not None:
        with progress.task("Label map"):
            written = cube.write_labels(
                model.labels_,
                options.output,
                overwrite=job.replace["--output"],
                n_clusters=k,
                class_names=stored["class_names"],
                attributes={JOB: stored},
            )
        image = image_of(cube, written)
    else:
        image = cube.to_map(model.labels_)
    if options.model is not None:
        with progress.task("Model"):
            save(
                model,
                options.model,
                overwrite=job.replace["--model"],
                attributes={JOB: stored},
            )
    if options.output is None and options.report is None and not job.maps:
        return
    with progress.task("Summary"):
        summary = summarize(image, k)
        found["sizes"] = summary.sizes.tolist()
        found.update(_agreement(job, image, options.unlabeled, takes_labels(model)))
    if options.report is not None:
        from daskclust.report import write_report

        with progress.task("Report"):
            write_report(
                options.report,
                cube=cube,
                model=model,
                title=options.title,
                configuration=found["configuration"],
                summary=summary,
                agreement={
                    name: found[f"agreement_with_{name}"]
                    for name in ("truth", "labels")
                    if f"agreement_with_{name}" in found
                },
                overwrite=job.replace["--report"],
                job=job.mark,
            )


def _class_names(job: Job, model: Any) -> list[str] | None:
    """Return the names of the clusters that are classes of the labels, in their order."""
    opened = job.maps.get("labels")
    if opened is None or opened.meanings is None or not hasattr(model, "classes_"):
        return None
    return [opened.meanings.get(int(code), f"class_{code}") for code in model.classes_]


def _agreement(
    job: Job, image: da.Array, unlabeled: tuple[int, ...], are_used: bool
) -> dict[str, Any]:
    """Compare a label map with the known classes.

    Parameters
    ----------
    are_used : bool
        Whether the fit used the partial labels: these pixels are no test of it.
    """
    found: dict[str, Any] = {}
    used = None
    for name, opened in job.maps.items():
        known = as_classes(opened.values, (*unlabeled, *opened.nodata))
        if name == "labels":
            used = known if are_used else None
        elif used is not None:
            known = da.where(used >= 0, -1, known)
        scores = agreement_of(image, known, job.cube.blocks)
        if opened.meanings is not None:
            scores["class_names"] = [
                opened.meanings.get(value, str(value)) for value in scores["classes"]
            ]
        found[f"agreement_with_{name}"] = scores
    return found


def _as_text(found: Mapping[str, Any]) -> str:
    pixels = found["pixels"]
    lines = [
        f"Pixels    {pixels['valid']} clustered, {pixels['masked']} masked",
        f"Fit       {found['estimator']}, {found['n_clusters']} clusters, "
        f"{found.get('n_iter', '?')} iterations, {found.get('passes', '?')} passes",
    ]
    for key, label in (
        ("inertia", "Inertia"),
        ("objective", "Objective"),
        ("lower_bound", "Bound"),
        ("features_used", "Bands"),
        ("violations", "Violated"),
    ):
        if key in found:
            value = found[key]
            unit = {"features_used": " with weight", "violations": " pairs"}.get(key, "")
            lines.append(
                f"{label:<10}{value:.6g}{unit}"
                if isinstance(value, float)
                else f"{label:<10}{value}{unit}"
            )
    if "sizes" in found:
        lines.append("Sizes     " + " ".join(map(str, found["sizes"])))
    for name in ("truth", "labels"):
        scores = found.get(f"agreement_with_{name}")
        if scores:
            lines.append(
                f"{name.capitalize():<10}ARI {scores['ari']:.3f}, NMI {scores['nmi']:.3f}, "
                f"pairwise F {scores['pairwise_f']:.3f}, accuracy {scores['accuracy']:.3f} on "
                f"{scores['pixels']} pixels"
            )
    lines.append(f"Time      {found['seconds']:.1f} s")
    if found["outputs"]:
        lines.append("Written   " + ", ".join(found["outputs"].values()))
    return "\n".join(lines)
