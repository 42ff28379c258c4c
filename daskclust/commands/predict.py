"""``daskclust predict``: a cube and a saved model in, a label map out."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from daskclust.commands import _cubes, _outputs
from daskclust.commands._job import add_job_arguments, job_mark, run_predict, with_file
from daskclust.commands._plan import make_plan, only_planned
from daskclust.commands._tables import (
    add_table_arguments,
    is_table,
    open_table_to_predict,
    without_names,
)
from daskclust.commands.console import Progress, add_cluster_arguments
from daskclust.commands.fit import CubeJob, open_maps
from daskclust.persistence.saveable import check_same_data


def add_command(commands: Any) -> None:
    parser = commands.add_parser(
        "predict",
        usage="%(prog)s [options] [CUBE ...]",
        description="Label the valid pixels of a cube, or the rows of a table, by a model that "
        "fit has saved. Pixels are scaled as they were for the fit, and classes keep their "
        "codes, names and colors.",
    )
    _cubes.add_cube_arguments(parser, scale=False)
    add_table_arguments(parser)
    group = parser.add_argument_group("model")
    group.add_argument("--model", metavar="STORE", help="a saved model (needed)")
    group = parser.add_argument_group("outputs", "At least one is needed, or --truth.")
    _outputs.add_output_arguments(group, model=False)
    _cubes.add_known_classes(parser.add_argument_group("known classes"), "--truth")
    add_cluster_arguments(parser)
    add_job_arguments(parser)
    parser.set_defaults(run=_run, parser=parser)


def _run(options: argparse.Namespace) -> int:
    import daskclust

    options = with_file(options.parser, options, options.arguments)
    if options.model is None:
        options.parser.error("--model is needed: what fit --model has written")
    wanted = ("output", "uncertainty", "score", "report", "truth")
    if all(getattr(options, name) is None for name in wanted):
        options.parser.error(
            "nothing to write: --output is needed, or --uncertainty, --score, --report, --truth, "
            "or several of them"
        )
    began = time.perf_counter()
    progress = Progress()
    model = daskclust.load(options.model)
    if not hasattr(model, "predict"):
        raise ValueError(
            f"{type(model).__name__} labels the rows of its fit alone; expected the model of an "
            "estimator that predicts, such as HDBSCAN. Or fit it to these data."
        )
    job: Any
    if is_table(options):
        job, model = open_table_to_predict(options, model), without_names(model)
    else:
        job = _open(options, model)
    if only_planned(options, "predict", job.plan):
        return 0
    found = run_predict(options, model, job, progress, began)
    print(json.dumps(found, indent=2) if options.json else _as_text(found))
    return 0


def _open(options: argparse.Namespace, model: Any) -> CubeJob:
    _outputs.refuse_model_of_table(options.model)
    _outputs.check_margin(options, model)
    _outputs.check_smoothing(options, model)
    _cubes.check_named(options, "truth")
    _outputs.check_report(options)
    mark = job_mark(options, model.get_params(deep=False), options.model)
    replace = _outputs.check_outputs(
        {flag: out for flag, out in _outputs.outputs_of(options).items() if flag != "--model"},
        _cubes.inputs_of(options, "model"),
        mark=mark,
        overwrite=options.overwrite,
    )
    cube = _cubes.open_cube_of(options, scale="none", model=model)
    check_same_data(model, cube)
    if cube.shape[2] != model.n_features_in_:
        raise ValueError(
            f"The cube has {cube.shape[2]} bands, the model was fitted to "
            f"{model.n_features_in_}; expected the same bands: a scene of the same sensor, or "
            "--bad-bands."
        )
    maps = open_maps(options, cube, "truth")
    plan = make_plan(cube, options, None, constrained=False)
    return CubeJob(options, plan, {}, mark, replace, cube, maps)


def _as_text(found: dict[str, Any]) -> str:
    head = f"Rows      {found['rows']} labeled" if "rows" in found else ""
    if not head:
        pixels = found["pixels"]
        head = f"Pixels    {pixels['valid']} labeled, {pixels['masked']} masked"
    return "\n".join(
        [
            head,
            *_outputs.classes_as_text(found),
            *_outputs.agreements_as_text(found),
            f"Time      {found['seconds']:.1f} s",
            *([f"Written   {', '.join(found['outputs'].values())}"] if found["outputs"] else []),
        ]
    )
