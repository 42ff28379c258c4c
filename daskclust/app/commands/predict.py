"""``daskclust predict``: a cube and a saved model in, a label map out."""

from __future__ import annotations

import argparse
import time
from typing import Any

from daskclust.app.commands import _outputs
from daskclust.app.commands._fit_request import run, with_file
from daskclust.app.commands._plan import only_plan, plan_as_text
from daskclust.app.commands._tables import (
    is_table,
    open_table_job,
    without_names,
)
from daskclust.app.commands.console import Progress, ending, tell
from daskclust.app.commands.contradictions import check_needs
from daskclust.app.commands.fit import open_cube_job
from daskclust.app.commands.requests import PredictRequest, UsageError


def _run(options: argparse.Namespace) -> int:
    options = with_file(options)
    return tell(options, predict(PredictRequest.of(options)), _as_text)


def predict(options: PredictRequest) -> dict[str, Any]:
    """Label pixels or rows by a saved model, write the outputs of the request, and return results.

    With ``dry_run`` nothing is computed, and the plan is returned.
    """
    import daskclust

    check_needs("predict", options)
    if options.model is None:
        raise UsageError("--model is needed: what fit --model has written")
    wanted = ("output", "uncertainty", "score", "report", "truth")
    if all(getattr(options, name) is None for name in wanted):
        raise UsageError(
            "nothing to write: --output is needed, or --uncertainty, --score, --report, --truth, "
            "or several of them"
        )
    began = time.perf_counter()
    model = daskclust.load(options.model)
    if not hasattr(model, "predict"):
        raise ValueError(
            f"{type(model).__name__} labels the rows of its fit alone; expected the model of an "
            "estimator that predicts, such as HDBSCAN. Or fit it to these data."
        )
    job: Any
    if is_table(options):
        job, model = open_table_job(options, model), without_names(model)
    else:
        job = open_cube_job(options, model, fits=False)
    plan = only_plan(options, "predict", job.plan)
    return run(model, job, Progress(), began) if plan is None else plan


def _as_text(found: dict[str, Any]) -> list[str]:
    if "dry_run" in found:
        return plan_as_text(found)
    of_table, noise = "rows" in found, found.get("noise", 0)
    n = found["rows"] if of_table else found["pixels"]["valid"]
    head = f"{'Rows' if of_table else 'Pixels':<10}{n - noise} labeled"
    head += f", {noise} noise" if "noise" in found else ""
    head += "" if of_table else f", {found['pixels']['masked']} masked"
    shown = (_outputs.classes_as_text, _outputs.agreements_as_text, ending)
    return [head, *(line for lines in shown for line in lines(found))]
