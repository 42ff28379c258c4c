"""A fit or a prediction, of a cube or of a table: the same steps over the rows of either.

A job has opened and checked all that it reads and writes.  It has a `plan` (what it would
cost), a `mark`, `replace` (flags of outputs), `pairs` (arguments of ``fit``), `parts` (more
workers have nothing to do) and `data` (what a model is fitted to).  It can `count` its rows,
read their `labels`, tell `facts` for the results, and `write` what was asked for.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from daskclust.commands._class_colors import paint
from daskclust.commands._estimators import flags_of, takes_labels
from daskclust.commands._examine import look_before_fit
from daskclust.commands._hold_out import hold_out
from daskclust.commands._job_files import effective
from daskclust.commands._results import numbers_of
from daskclust.commands._resume import alone, resumable
from daskclust.commands.console import Progress, counted, open_client
from daskclust.report.legend import legend_of

__all__ = ["fit_by", "run_fit", "run_predict"]


def run_fit(
    options: argparse.Namespace, model: Any, job: Any, progress: Progress, began: float
) -> dict[str, Any]:
    """Fit a model, write what was asked for, and return what became of it as JSON values."""
    with (
        alone(options, job.replace, job.mark),
        open_client(options, useful_workers=job.parts, progress=progress) as client,
    ):
        return fit_by(client, options, model, job, progress, began)


def fit_by(
    client: Any,
    options: argparse.Namespace,
    model: Any,
    job: Any,
    progress: Progress,
    began: float,
) -> dict[str, Any]:
    """Do what :func:`run_fit` does, on a cluster that is there."""
    import daskclust

    with resumable(options, model, job.mark, progress):
        threads = client.nthreads()
        cluster = {"workers": len(threads), "threads": sum(threads.values())}
        progress.say(
            f"Cluster: {counted(cluster['workers'], 'worker')}, "
            f"{counted(cluster['threads'], 'thread')}"
        )
        look_before_fit(client, progress)
        n = job.count(progress)
        arguments, apart = dict(job.pairs), None
        if takes_labels(model):
            # An estimator that cannot do without labels says so itself.
            arguments["y"] = y = job.labels()
            if options.hold_out is not None:
                with progress.task("Labels kept apart"):
                    rows, labels = y
                    groups, unit = job.groups(rows, labels)
                    share, number = options.hold_out, options.seed
                    apart = hold_out(rows, labels, groups, share, unit=unit, seed=number)
                arguments["y"] = apart.y
        with progress.task(type(model).__name__, rows=n):
            with daskclust.on_iteration(progress.iteration):
                model.fit(job.data, **arguments)
        flags = flags_of(options).keys() - {"checkpoint"}
        found = _record("fit", options, model, flags)
        found |= {**job.facts("fit"), "cluster": cluster, **numbers_of(model)}
        job.name(model)
        if options.colors is not None:
            paint(model, options.colors)
        if apart is not None:
            # In the place of the agreement with labels, of which the fit has seen most.
            with progress.task("Accuracy on labels kept apart"):
                found["held_out"] = apart.judged(
                    model, job, legend_of(model), baseline=options.baseline, seed=options.seed
                )
        job.write(model, model.labels_, found, progress)
    return _ended(found, job.places, began)


def run_predict(
    options: argparse.Namespace, model: Any, job: Any, progress: Progress, began: float
) -> dict[str, Any]:
    """Label rows by a model, write what was asked for, and return what became of it."""
    with (
        alone(options, job.replace),
        open_client(options, useful_workers=job.parts, progress=progress),
    ):
        job.count(progress)
        found = _record("predict", options, model)
        found |= {**job.facts("predict"), "n_clusters": len(legend_of(model).codes)}
        job.write(model, model.predict(job.data), found, progress)
    return _ended(found, job.places, began)


def _record(command: str, options: argparse.Namespace, model: Any, *flags: Any) -> dict[str, Any]:
    import daskclust

    return {
        "command": command,
        "version": daskclust.__version__,
        "estimator": type(model).__name__,
        "configuration": effective(options, model.get_params(deep=False), *flags),
    }


def _ended(found: dict[str, Any], places: dict[str, str], began: float) -> dict[str, Any]:
    if found["command"] == "predict":
        places = {name: place for name, place in places.items() if name != "model"}
    return {**found, "seconds": time.perf_counter() - began, "outputs": places}
