"""Writing what a fit or a prediction was asked for: maps, model, report."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da

from daskclust.colors import Legend
from daskclust.commands._cubes import image_of
from daskclust.commands._estimators import takes_labels
from daskclust.commands._outputs import job_of
from daskclust.commands._results import agreements, agreements_in
from daskclust.commands._smoothing import smooth_labels
from daskclust.commands._uncertainty import margin_kind, margins
from daskclust.commands.console import Progress
from daskclust.report.legend import legend_of
from daskclust.report.summary import known_classes, summarize
from daskclust.storage.outputs import JOB
from daskclust.storage.seen import as_dask

__all__ = [
    "add_classes",
    "add_score_argument",
    "write_outputs",
]


def write_outputs(
    options: argparse.Namespace,
    job: Any,
    model: Any,
    labels: Any,
    found: dict[str, Any],
    progress: Progress,
) -> None:
    """Write the outputs that were asked for, and add the sizes of the label map to the results.

    The model is saved if it is among the outputs of `job`. `labels` are those of the pixels, as the
    model gives them.
    """
    from daskclust.persistence.models import save

    cube = job.cube
    legend = legend_of(model)
    stored = {
        "mark": job.mark,
        **{key: found[key] for key in ("command", "version", "estimator", "configuration")},
    }
    if found["command"] == "predict":
        # By which maps of one model are known to be such.
        stored["model_mark"] = job_of(options.model).get("mark")
    if "--model" in job.replace:
        with progress.task("Model"):
            save(model, options.model, overwrite=job.replace["--model"], attributes={JOB: stored})
    labels = smooth_labels(options, cube, model, legend.encode(labels))
    if options.output is None:
        image = cube.to_map(labels)
    else:
        image = _write_map(options, cube, labels, legend, stored, job.replace, progress)
    uncertainty = None
    if options.uncertainty is not None:
        uncertainty = _write_uncertainty(options, cube, model, stored, job.replace, progress)
    if options.score is not None:
        _write_score(options, cube, model, stored, job.replace, progress)
    if options.output is None and options.report is None and not job.maps:
        return
    with progress.task("Summary"):
        summary = summarize(image, legend.codes, values=uncertainty, cube=cube)
        add_classes(found, legend, summary)
        known = {
            name: (known_classes(opened, options.unlabeled), opened)
            for name, opened in job.maps.items()
        }
        are_used = takes_labels(model)
        found.update(agreements(known, image, cube.blocks, legend, are_used=are_used))
        if "held_out" in found:
            found.pop("agreement_with_labels", None)
    if options.report is not None:
        from daskclust.explain import profiles as profiles_of
        from daskclust.report import write_report

        with progress.task("Profiles"):
            profiles = profiles_of(None, cube, labels)
        names = [legend.by_code[code] for code in profiles.labels.tolist()]
        profiles = replace(profiles, names=names)
        with progress.task("Report"):
            write_report(
                options.report,
                cube=cube,
                model=model,
                legend=legend,
                title=options.title,
                configuration=found["configuration"],
                summary=summary,
                uncertainty_is=margin_kind(model),
                agreement=agreements_in(found),
                profiles=profiles,
                held_out=found.get("held_out"),
                overwrite=job.replace["--report"],
                job=job.mark,
            )


def _write_map(
    options: argparse.Namespace,
    cube: Any,
    labels: Any,
    legend: Legend,
    stored: dict[str, Any],
    replace: dict[str, bool],
    progress: Progress,
) -> da.Array:
    """Write the label map, and return it as it was written: lazy, -1 for none."""
    with progress.task("Label map"):
        written = cube.write_labels(
            labels,
            options.output,
            overwrite=replace["--output"],
            class_names=legend.by_code,
            class_colors=legend.color_by_code,
            attributes={JOB: stored},
        )
    image: da.Array = image_of(cube, written)
    return image


def _write_uncertainty(
    options: argparse.Namespace,
    cube: Any,
    model: Any,
    stored: dict[str, Any],
    replace: dict[str, bool],
    progress: Progress,
) -> da.Array:
    """Write the map of margins, and return it as it was written: lazy, NaN for none."""
    with progress.task("Uncertainty"):
        written = cube.write_map(
            margins(model, cube),
            options.uncertainty,
            overwrite=replace["--uncertainty"],
            attributes={JOB: stored, "long_name": "margin", "description": margin_kind(model)},
        )
    if not isinstance(written, Path):
        return as_dask(written["values"])
    return da.asarray(cube.open_map("the map written", written).values)


def _write_score(
    options: argparse.Namespace,
    cube: Any,
    model: Any,
    stored: dict[str, Any],
    replace: dict[str, bool],
    progress: Progress,
) -> None:
    """Write the map of scores: how normal each pixel is."""
    meaning = (type(model).score_samples.__doc__ or "").partition("\n")[0]
    with progress.task("Score"):
        cube.write_map(
            model.score_samples(cube),
            options.score,
            overwrite=replace["--score"],
            attributes={JOB: stored, "long_name": "score", "description": meaning},
        )


def add_score_argument(parser: Any) -> None:
    """Add ``--score`` to a parser or a group of one."""
    parser.add_argument(
        "--score",
        metavar="STORE",
        help="map of how normal each pixel is, or of a table a column: higher is more normal",
    )


def add_classes(found: dict[str, Any], legend: Legend, summary: Any) -> None:
    """Add the pixels of each class to results, as JSON values."""
    found["sizes"] = summary.sizes.tolist()
    found["classes"] = [
        {"code": code, "name": name, "pixels": size}
        for code, name, size in zip(legend.codes, legend.names, found["sizes"], strict=True)
    ]
    for item, area in zip(found["classes"], summary.square_meters or (), strict=False):
        item["square_meters"] = area
