"""``daskclust suggest``: suggest the pixels of a scene to label next."""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from daskclust.app.commands import _cubes
from daskclust.app.commands._fit_request import job_mark, with_file
from daskclust.app.commands._outputs import check_outputs, output_paths
from daskclust.app.commands._plan import make_plan, only_plan, plan_as_text
from daskclust.app.commands.console import Progress, open_client, print_results
from daskclust.app.commands.contradictions import check_needs
from daskclust.app.commands.requests import SuggestRequest, UsageError
from daskclust.core.persistence.mixin import check_same_data
from daskclust.core.storage.outputs import Output, lock_outputs
from daskclust.core.storage.redact import redact


def _run(options: argparse.Namespace) -> int:
    options = with_file(options)
    return print_results(options, suggest(SuggestRequest.of(options)), _as_text)


def suggest(options: SuggestRequest) -> dict[str, Any]:
    """Find the pixels to label next, write them, and return the results.

    With ``dry_run`` nothing is computed, and the plan is returned.
    """
    import daskclust
    from daskclust.app.labeling.files import QuestionsFile
    from daskclust.app.report.page import Report

    if options.output is None:
        raise UsageError("--output is required")
    check_needs("suggest", options)
    began = time.perf_counter()
    outputs: dict[str, Output] = {"--output": QuestionsFile(options.output)}
    if options.report is not None:
        outputs["--report"] = Report(options.report)
        if outputs["--report"].path is None:
            raise ValueError(
                f"--report {redact(options.report)!r} is a URL; this report is written to a local "
                "path."
            )
    mark = job_mark(options, {}, options.model)
    replace = check_outputs(options, _cubes.inputs_of(options, "model"), mark, outputs)
    model = None if options.model is None else daskclust.load(options.model)
    cube = _cubes.open_cube_of(options, model=model)
    if model is not None:
        check_same_data(model, cube)
    plan = only_plan(options, "suggest", make_plan(cube, options, None, constrained=False))
    if plan is not None:
        return plan
    with lock_outputs([options.output, options.report]):
        results = _suggest(options, cube, model, replace.get("--report", False), mark)
    return {**results, "seconds": time.perf_counter() - began}


def _suggest(
    options: SuggestRequest, cube: Any, model: Any, replace_report: bool, mark: str
) -> dict[str, Any]:
    from daskclust.app.labeling.files import QuestionsFile, write_questions
    from daskclust.scenes.questions import questions_of
    from daskclust.selection import expected_gain, suggest_labels

    progress = Progress()
    image = None
    exclude = _cubes.open_exclusion(cube, options)
    if options.labels is not None:
        image = _cubes.open_labels(cube, options, "labels")
    with open_client(options, useful_workers=cube.blocks.count, progress=progress):
        n_valid = _cubes.count_pixels(cube, progress.task)
        labeled, n_skipped = (None, 0) if image is None else _labeled(options, cube, image)
        has_labels = labeled is not None and len(labeled[0]) > n_skipped
        arguments = {"y": labeled, "model": model, "exclude": exclude, "random_state": options.seed}
        gain = None
        with progress.task("Questions", rows=n_valid):
            if has_labels or model is not None:
                gain = expected_gain(cube, options.n, **arguments)
                rows = gain.rows
            else:
                rows = suggest_labels(cube, options.n, **arguments)
        with progress.task("Pixels"):
            questions = questions_of(cube, rows)
        if options.report is not None:
            from daskclust.app.labeling.report import write_questions_report

            with progress.task("Report"):
                write_questions_report(
                    options.report,
                    cube=cube,
                    questions=questions,
                    gain=gain,
                    title=options.title
                    or f"{len(rows)} pixels to be labeled in {_cubes.name_of_cube(options.cube)}",
                    overwrite=replace_report,
                    job=mark,
                )
    # The questions are written last: a command that is killed before this line leaves no file that
    # only --overwrite would replace.
    write_questions(QuestionsFile(str(options.output), overwrite=options.overwrite), questions)
    results: dict[str, Any] = {
        "command": "suggest",
        "questions": len(rows),
        "labels": 0 if gain is None else gain.n_labels,
        "pixels": [
            {"order": i + 1, "row": int(row), "column": int(questions.columns[i])}
            for i, row in enumerate(questions.lines)
        ],
        "outputs": {k: v for k, v in output_paths(options).items() if k != "model"},
    }
    if gain is not None:
        names = ("changed", "changed_low", "changed_high", "gain")
        gains = {name: getattr(gain, name).tolist() for name in names}
        results["expected"] = {"accuracy": gain.accuracy, **gains}
    return results


def _labeled(options: SuggestRequest, cube: Any, image: Any) -> tuple[tuple[Any, Any], int]:
    """Return rows and labels, with skipped rows (label -1), and the number of skipped rows."""
    from daskclust.app.labeling.files import skipped_pixels

    rows, labels = cube.rows_of(image, unlabeled=options.unlabeled)
    skipped = [np.empty(0, np.int64)]
    for source in _cubes.sources_of(str(options.labels)):
        pixels = skipped_pixels(_cubes.store_and_variable(source)[0])
        if len(pixels[0]):
            skipped.append(cube.rows_of_pixels(*pixels))
    skipped_rows = np.setdiff1d(np.concatenate(skipped), rows)
    # In an array of text, -1 becomes "-1".
    none = np.full(len(skipped_rows), -1).astype(
        labels.dtype if labels.dtype.kind == "U" else np.int64
    )
    return (np.concatenate([rows, skipped_rows]), np.concatenate([labels, none])), len(skipped_rows)


def _as_text(results: dict[str, Any]) -> list[str]:
    if "dry_run" in results:
        return plan_as_text(results)
    lines = [f"Questions {results['questions']} pixels, {results['labels']} labels so far"]
    if "expected" in results:
        expected = results["expected"]
        lines.append(
            f"Expected  {expected['changed'][-1]:.1%} of the pixels change "
            f"({expected['changed_low'][-1]:.1%} to {expected['changed_high'][-1]:.1%}), "
            "estimated from the model's probabilities"
        )
    lines.append(f"Time      {results['seconds']:.1f} s")
    return lines + [f"Written   {path}" for path in results["outputs"].values()]
