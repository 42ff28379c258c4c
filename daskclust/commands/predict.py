"""``daskclust predict``: a cube and a saved model in, a label map out."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from daskclust.commands._cubes import (
    add_cube_arguments,
    open_cube_of,
    paths_of,
    store_and_variable,
)
from daskclust.commands._data import bands_of_model, check_same_data
from daskclust.commands._jobs import add_job_arguments, effective, with_file
from daskclust.commands._outputs import JOB, check_outputs
from daskclust.commands._plan import check_memory, make_plan, plan_as_text
from daskclust.commands._results import classes_as_text
from daskclust.commands._resume import job_mark
from daskclust.commands._tables import (
    add_table_arguments,
    is_table,
    predict_table,
    table_as_text,
)
from daskclust.commands._uncertainty import add_uncertainty_argument, check_margin
from daskclust.commands._written import add_classes, read_legend, write_map, write_uncertainty
from daskclust.commands.console import Progress, add_cluster_arguments, open_client
from daskclust.report.summary import summarize
from daskclust.storage.targets import written_attributes
from daskclust.storage.urls import redact

__all__ = ["add_command"]


def add_command(commands: Any) -> None:
    """Add ``predict`` to the command line."""
    parser = commands.add_parser(
        "predict",
        usage="%(prog)s [options] [CUBE ...]",
        help="label the pixels of a cube, or the rows of a table, by a saved model",
        description="Label the valid pixels of a cube, or the rows of a table, by a model that "
        "fit has saved. Pixels are scaled as they were for the fit, and classes keep their "
        "codes, names and colors.",
    )
    add_cube_arguments(parser, scale=False)
    add_table_arguments(parser)
    group = parser.add_argument_group("model")
    group.add_argument("--model", metavar="STORE", help="a saved model (needed)")
    group = parser.add_argument_group("outputs", "At least one is needed.")
    group.add_argument(
        "--output",
        metavar="STORE",
        help="label map: Zarr, or a GeoTIFF (.tif) for GIS; of a table a folder of Parquet files",
    )
    add_uncertainty_argument(group)
    add_cluster_arguments(parser)
    add_job_arguments(parser)
    parser.set_defaults(run=_run, parser=parser)


def _run(options: argparse.Namespace) -> int:
    import daskclust

    options = with_file(options.parser, options, options.arguments)
    if options.cube is None:
        options.parser.error("no CUBE given, neither on the command line nor in --config")
    if options.model is None:
        options.parser.error("--model is needed: what fit --model has written")
    if options.output is None and options.uncertainty is None:
        options.parser.error("nothing to write: --output is needed, or --uncertainty, or both")
    began = time.perf_counter()
    progress = Progress()
    model = daskclust.load(options.model)
    if is_table(options):
        of_table = predict_table(options, model, progress)
        print(json.dumps(of_table, indent=2) if options.json else table_as_text(of_table))
        return 0
    job_of_model = (written_attributes(options.model) or {}).get(JOB)
    if isinstance(job_of_model, dict) and "columns" in job_of_model:
        raise ValueError(
            f"The model was fitted to the columns {job_of_model['columns']} of a table; expected a "
            "table with them."
        )
    check_margin(options, model)
    mark = job_mark(options, model.get_params(deep=False), options.model)
    replace = check_outputs(
        {"--output": options.output, "--uncertainty": options.uncertainty},
        {
            "--model": options.model,
            "--mask": None if options.mask is None else store_and_variable(options.mask)[0],
            "--config": None if options.config is None else str(options.config),
            **paths_of(options.cube),
        },
        mark=mark,
        overwrite=options.overwrite,
    )
    cube = open_cube_of(
        options,
        scale="none",
        bands=bands_of_model(job_of_model, lambda: open_cube_of(options, scale="none")),
    )
    check_same_data(job_of_model, cube)
    if cube.shape[2] != model.n_features_in_:
        raise ValueError(
            f"The cube has {cube.shape[2]} bands, the model was fitted to "
            f"{model.n_features_in_}; expected the same bands: a scene of the same sensor, or "
            "--bad-bands."
        )
    plan = make_plan(cube, options, None, constrained=False)
    if options.dry_run:
        found: dict[str, Any] = {"command": "predict", "dry_run": True, **plan}
        print(json.dumps(found, indent=2) if options.json else plan_as_text(plan))
        return 0
    check_memory(plan)
    with open_client(options, useful_workers=plan["blocks"], progress=progress):
        with progress.task("Valid pixels"):
            n_valid = cube.n_valid
        if n_valid == 0:
            raise ValueError(f"All {cube.n_masked} pixels are masked; check --nodata and --mask.")
        legend = read_legend(job_of_model, model)
        job = {
            "mark": mark,
            "command": "predict",
            "version": daskclust.__version__,
            "estimator": type(model).__name__,
            "configuration": effective(options, model.get_params(deep=False)),
        }
        sizes: dict[str, Any] = {}
        if options.output is not None:
            labels = legend.encode(model.predict(cube))
            image = write_map(options, cube, labels, legend, job, replace, progress)
            add_classes(sizes, legend, summarize(image, legend.codes, cube=cube))
        if options.uncertainty is not None:
            write_uncertainty(options, cube, model, job, replace, progress)
    found = {
        **{key: value for key, value in job.items() if key != "mark"},
        "pixels": {"valid": n_valid, "masked": cube.n_masked},
        "n_clusters": len(legend.codes),
        **sizes,
        "seconds": time.perf_counter() - began,
        "outputs": {
            name: redact(getattr(options, name))
            for name in ("output", "uncertainty")
            if getattr(options, name) is not None
        },
    }
    print(json.dumps(found, indent=2) if options.json else _as_text(found))
    return 0


def _as_text(found: dict[str, Any]) -> str:
    pixels = found["pixels"]
    return "\n".join(
        [
            f"Pixels    {pixels['valid']} labeled, {pixels['masked']} masked",
            *classes_as_text(found),
            f"Time      {found['seconds']:.1f} s",
            f"Written   {', '.join(found['outputs'].values())}",
        ]
    )
