"""``daskclust predict``: label a cube or a table with a saved model."""

from __future__ import annotations

import argparse
import time
from typing import Any

from daskclust.app.commands import _outputs
from daskclust.app.commands._fit_request import run, with_file
from daskclust.app.commands._plan import only_plan, plan_as_text
from daskclust.app.commands._tables import is_table, open_table_job, without_names
from daskclust.app.commands.console import Progress, ending, print_results
from daskclust.app.commands.contradictions import check_needs
from daskclust.app.commands.fit import open_cube_job
from daskclust.app.commands.requests import PredictRequest, UsageError


def _run(options: argparse.Namespace) -> int:
    options = with_file(options)
    return print_results(options, predict(PredictRequest.of(options)), _as_text)


def predict(options: PredictRequest) -> dict[str, Any]:
    """Label pixels or rows with a saved model, write the requested outputs, and return results.

    With ``dry_run`` nothing is computed, and the plan is returned.
    """
    import daskclust

    check_needs("predict", options)
    if options.model is None:
        raise UsageError("--model is required: a model written by fit --model")
    wanted = ("output", "uncertainty", "score", "report", "truth")
    if all(getattr(options, name) is None for name in wanted):
        raise UsageError(
            "at least one output is required: --output, --uncertainty, --score, --report or --truth"
        )
    began = time.perf_counter()
    model = daskclust.load(options.model)
    if not hasattr(model, "predict"):
        raise ValueError(
            f"--model must be a model with predict, got {type(model).__name__}, which labels only "
            f"the rows of its fit. Use for example HDBSCAN, or fit the estimator to these data."
        )
    job: Any
    if is_table(options):
        job, model = open_table_job(options, model), without_names(model)
    else:
        job = open_cube_job(options, model, fits=False)
    plan = only_plan(options, "predict", job.plan)
    return run(model, job, Progress(), began) if plan is None else plan


def _as_text(results: dict[str, Any]) -> list[str]:
    if "dry_run" in results:
        return plan_as_text(results)
    is_of_rows, noise = "rows" in results, results.get("noise", 0)
    n = results["rows"] if is_of_rows else results["pixels"]["valid"]
    head = f"{'Rows' if is_of_rows else 'Pixels':<10}{n - noise} labeled"
    head += f", {noise} noise" if "noise" in results else ""
    head += "" if is_of_rows else f", {results['pixels']['masked']} masked"
    shown = (_outputs.classes_as_text, _outputs.agreements_as_text, ending)
    return [head, *(line for lines in shown for line in lines(results))]
