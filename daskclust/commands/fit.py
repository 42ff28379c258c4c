"""``daskclust fit``: a cube in; a label map, a model and a report out."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import inspect
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np

from daskclust.commands._cubes import (
    add_cube_arguments,
    integers,
    open_cube_of,
    store_and_variable,
)
from daskclust.commands._estimators import (
    add_estimator_arguments,
    flags_of,
    make_estimator,
    takes_labels,
)
from daskclust.commands._jobs import add_job_arguments, effective, with_file
from daskclust.commands._outputs import JOB, check_outputs
from daskclust.commands._plan import check_memory, make_plan, plan_as_text
from daskclust.commands.console import Progress, add_cluster_arguments, open_client
from daskclust.cube._images import open_image
from daskclust.report.summary import agreement_of, as_classes, n_clusters_of, summarize
from daskclust.storage.stores import local_path

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
        metavar="STORE[::NAME]",
        help="map of partial labels: used by the estimators that take labels, compared for all",
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
    for name in ("must-link", "cannot-link"):
        group.add_argument(
            f"--{name}", metavar="FILE", help="pairs of row numbers: .npy, or text with two columns"
        )
        group.add_argument(f"--{name}-weight", type=float, metavar="NUMBER", help="of these pairs")
    group = parser.add_argument_group("outputs")
    group.add_argument("--output", metavar="STORE", help="label map, as Zarr")
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
        plan = _plan(open_cube_of(options), options, model)
        print(
            json.dumps({"command": "fit", "dry_run": True, **plan}, indent=2)
            if options.json
            else plan_as_text(plan)
        )
        return 0
    found = run_fit(options, model, progress)
    print(json.dumps(found, indent=2) if options.json else _as_text(found))
    return 0


def _plan(cube: Any, options: argparse.Namespace, model: Any) -> dict[str, Any]:
    constrained = takes_labels(model) and any(
        value is not None for value in (options.labels, options.must_link, options.cannot_link)
    )
    return make_plan(cube, options, model.get_params(deep=False), constrained=constrained)


def _check(options: argparse.Namespace) -> None:
    outputs = {f"--{name}": getattr(options, name) for name in ("output", "model", "report")}
    inputs = {"the cube": options.cube}
    for name in ("labels", "truth", "mask"):
        given = getattr(options, name)
        inputs[f"--{name}"] = None if given is None else store_and_variable(given)[0]
    if options.report is not None and importlib.util.find_spec("matplotlib") is None:
        raise ImportError(
            "A report needs matplotlib, which is not installed. Use: pip install 'daskclust[plot]'"
        )
    # Labels may lie beside the cube in one store.
    places = {path: flag for flag, path in inputs.items() if path is not None}
    check_outputs(
        outputs, {flag: path for path, flag in places.items()}, overwrite=options.overwrite
    )


def _pairs(path: str | None) -> Any:
    if path is None:
        return None
    if path.endswith(".npy"):
        return np.load(path, allow_pickle=False)
    with open(path, encoding="utf-8") as file:
        text = file.read().replace(",", " ")
    return np.loadtxt(text.splitlines(), dtype=np.int64, ndmin=2)


def run_fit(options: argparse.Namespace, model: Any, progress: Progress) -> dict[str, Any]:
    """Run a job and return what became of it, as JSON values."""
    import daskclust
    from daskclust.engine import on_notice

    began = time.perf_counter()
    _check(options)
    cube = open_cube_of(options)
    plan = _plan(cube, options, model)
    check_memory(plan)
    with open_client(options, useful_workers=plan["blocks"]) as client:
        threads = client.nthreads()
        progress.say(f"Cluster: {len(threads)} workers, {sum(threads.values())} threads")
        with progress.task("Valid pixels"):
            n_valid = cube.n_valid
        if n_valid == 0:
            raise ValueError(
                f"All {cube.n_masked} pixels are masked, by nodata "
                f"({', '.join(map(str, (*cube.nodata, 'NaN')))}) or "
                "--mask; check --nodata, --bad-bands and --mask, or use --missing nan."
            )
        arguments = _fit_arguments(options, cube, model)
        with _checkpoint(options, model, progress):
            with progress.task(type(model).__name__, rows=n_valid):
                with daskclust.on_iteration(progress.iteration), on_notice(progress.say):
                    model.fit(cube.samples, **arguments)
            config = effective(options, model.get_params(deep=False), _flags(options))
            found = {
                "command": "fit",
                "version": daskclust.__version__,
                "estimator": type(model).__name__,
                "configuration": config,
                "pixels": {"valid": n_valid, "masked": cube.n_masked},
                "cluster": {"workers": len(threads), "threads": sum(threads.values())},
                **_numbers(model),
            }
            _write(options, cube, model, found, progress)
    found["seconds"] = time.perf_counter() - began
    found["outputs"] = {
        name: getattr(options, name)
        for name in ("output", "model", "report")
        if getattr(options, name) is not None
    }
    return found


def _flags(options: argparse.Namespace) -> set[str]:
    """Options that are parameters of the estimator, and told as such."""
    return flags_of(options).keys() - {"checkpoint"}


def _fit_arguments(options: argparse.Namespace, cube: Any, model: Any) -> dict[str, Any]:
    known = inspect.signature(model.fit).parameters
    found: dict[str, Any] = {}
    if options.labels is not None and takes_labels(model):
        store, name = store_and_variable(options.labels)
        found["y"] = cube.rows_of(store, unlabeled=options.unlabeled, variable=name)
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


@contextmanager
def _checkpoint(options: argparse.Namespace, model: Any, progress: Progress) -> Iterator[None]:
    """Let the fit leave its state behind where it is interrupted, and clean up at the end."""
    if "checkpoint" not in model.get_params(deep=False):
        yield
        return
    path = _checkpoint_path(options, model)
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    model.set_params(checkpoint=str(path))
    if path.is_file():
        progress.say(f"Going on from the checkpoint {str(path)!r}")
    try:
        yield
    except BaseException:
        if path.exists():
            progress.say(
                f"The state of the last iteration is in {str(path)!r}; the same command goes on "
                "from there."
            )
        raise
    if options.checkpoint is None:
        path.unlink(missing_ok=True)


def _checkpoint_path(options: argparse.Namespace, model: Any) -> Path | None:
    """Return the file that was asked for, or one beside the first local output."""
    if options.checkpoint is not None:
        path = Path(options.checkpoint).absolute()
        return path / "daskclust-checkpoint.npz" if path.is_dir() else path
    for output in (options.output, options.model, options.report):
        local = None if output is None else local_path(output)
        if local is not None:
            # Another job that writes to the same place has another checkpoint.
            job = json.dumps(effective(options, model.get_params(deep=False)), sort_keys=True)
            mark = hashlib.sha256(job.encode()).hexdigest()[:8]
            return local.with_name(f".{local.name}.{mark}.checkpoint.npz")
    return None


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
    options: argparse.Namespace, cube: Any, model: Any, found: dict[str, Any], progress: Progress
) -> None:
    """Write what was asked for, and add what the label map says to the results."""
    from daskclust.persistence.models import save

    k = found["n_clusters"]
    scaling = cube.scaling
    job = {
        **{key: found[key] for key in ("command", "version", "estimator", "configuration")},
        "scale": options.scale,
        "scaling": None if scaling is None else [part.tolist() for part in scaling],
    }
    if options.output is not None:
        with progress.task("Label map"):
            written = cube.write_labels(
                model.labels_,
                options.output,
                overwrite=options.overwrite,
                n_clusters=k,
                attributes={JOB: job},
            )
        image = da.from_zarr(written["labels"])
    else:
        image = cube.to_map(model.labels_)
    if options.model is not None:
        with progress.task("Model"):
            save(model, options.model, overwrite=options.overwrite, attributes={JOB: job})
    if (
        options.output is None
        and options.report is None
        and options.truth is options.labels is None
    ):
        return
    with progress.task("Summary"):
        summary = summarize(image, k)
        found["sizes"] = summary.sizes.tolist()
        used = None
        for name in ("labels", "truth"):
            given = getattr(options, name)
            if given is not None:
                store, variable = store_and_variable(given)
                opened = open_image(
                    f"--{name}", store, cube.shape[:2], place=cube._place, variable=variable
                )
                known = as_classes(opened.values, (*options.unlabeled, *opened.nodata))
                if name == "truth" and used is not None:
                    # Pixels whose class was told are no test of what was found.
                    known = da.where(used >= 0, -1, known)
                used = known if name == "labels" and takes_labels(model) else None
                scores = agreement_of(image, known, cube._grid)
                if opened.meanings is not None:
                    scores["class_names"] = [
                        opened.meanings.get(value, str(value)) for value in scores["classes"]
                    ]
                found[f"agreement_with_{name}"] = scores
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
                overwrite=options.overwrite,
            )


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
