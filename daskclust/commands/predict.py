"""``daskclust predict``: a cube and a saved model in, a label map out."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from daskclust.commands._cubes import (
    add_cube_arguments,
    image_of,
    open_cube_of,
    paths_of,
    store_and_variable,
)
from daskclust.commands._data import bands_of_model, check_same_data, read_scaling
from daskclust.commands._jobs import add_job_arguments, effective, with_file
from daskclust.commands._outputs import JOB, check_outputs
from daskclust.commands._plan import check_memory, make_plan, plan_as_text
from daskclust.commands._resume import job_mark
from daskclust.commands.console import Progress, add_cluster_arguments, open_client
from daskclust.report.summary import n_clusters_of, summarize
from daskclust.storage.targets import written_attributes
from daskclust.storage.urls import redact

__all__ = ["add_command"]


def add_command(commands: Any) -> None:
    """Add ``predict`` to the command line."""
    parser = commands.add_parser(
        "predict",
        usage="%(prog)s [options] [CUBE]",
        help="label the pixels of a cube by a saved model",
        description="Label the valid pixels of a cube by a model that fit has saved. Rows are "
        "scaled as they were for the fit.",
        allow_abbrev=False,
    )
    add_cube_arguments(parser, scale=False)
    parser.add_argument("--model", metavar="STORE", help="a saved model (needed)")
    parser.add_argument(
        "--output", metavar="STORE", help="label map: Zarr, or a GeoTIFF (.tif) for GIS (needed)"
    )
    add_job_arguments(parser)
    add_cluster_arguments(parser)
    parser.set_defaults(run=_run, parser=parser)


def _run(options: argparse.Namespace) -> int:
    import daskclust

    options = with_file(options.parser, options, options.arguments)
    for name in ("model", "output"):
        if getattr(options, name) is None:
            options.parser.error(f"--{name} is needed")
    began = time.perf_counter()
    progress = Progress()
    model = daskclust.load(options.model)
    mark = job_mark(options, model.get_params(deep=False), options.model)
    replace = check_outputs(
        {"--output": options.output},
        {
            "--model": options.model,
            "--mask": None if options.mask is None else store_and_variable(options.mask)[0],
            "--config": None if options.config is None else str(options.config),
            **paths_of(options.cube),
        },
        mark=mark,
        overwrite=options.overwrite,
    )
    job_of_model = (written_attributes(options.model) or {}).get(JOB)
    cube = open_cube_of(
        options,
        scale=read_scaling(job_of_model),
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
        labels = model.predict(cube.samples)
        k = n_clusters_of(model)
        job = {
            "mark": mark,
            "command": "predict",
            "version": daskclust.__version__,
            "estimator": type(model).__name__,
            "configuration": effective(options, model.get_params(deep=False)),
        }
        with progress.task("Label map"):
            written = cube.write_labels(
                labels,
                options.output,
                overwrite=replace["--output"],
                n_clusters=k,
                class_names=(job_of_model or {}).get("class_names"),
                attributes={JOB: job},
            )
            sizes = summarize(image_of(cube, written), k).sizes
    found = {
        **{key: value for key, value in job.items() if key != "mark"},
        "pixels": {"valid": n_valid, "masked": cube.n_masked},
        "n_clusters": k,
        "sizes": sizes.tolist(),
        "seconds": time.perf_counter() - began,
        "outputs": {"output": redact(options.output)},
    }
    print(json.dumps(found, indent=2) if options.json else _as_text(found))
    return 0


def _as_text(found: dict[str, Any]) -> str:
    pixels = found["pixels"]
    return "\n".join(
        [
            f"Pixels    {pixels['valid']} labeled, {pixels['masked']} masked",
            f"Sizes     {' '.join(map(str, found['sizes']))}",
            f"Time      {found['seconds']:.1f} s",
            f"Written   {found['outputs']['output']}",
        ]
    )
