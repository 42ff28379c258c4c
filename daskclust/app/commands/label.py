"""``daskclust label``: label pixels of a scene in a browser, and save labels, a model and a map."""

from __future__ import annotations

import argparse
import importlib.util
import time
import webbrowser
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from daskclust.app.commands._cubes import (
    count_pixels,
    name_of_cube,
    open_cube_of,
    open_exclusion,
    paths_of,
)
from daskclust.app.commands._estimators import make_estimator
from daskclust.app.commands._fit_request import fit_by, job_mark
from daskclust.app.commands._outputs import check_outputs, check_writable, output_paths
from daskclust.app.commands._plan import check_memory, make_plan
from daskclust.app.commands.console import Progress, open_client
from daskclust.app.commands.fit import open_cube_job
from daskclust.app.commands.requests import FitRequest, LabelRequest, UsageError
from daskclust.core.storage.outputs import lock_outputs
from daskclust.core.storage.stores import local_path


def _run(options: argparse.Namespace) -> int:
    label(LabelRequest.of(options))
    return 0


def _with_names(request: LabelRequest) -> LabelRequest:
    """Set default names of the files, from the name of the scene."""
    # Only the suffix is removed, so that scenes with similar names get different files.
    first = request.cube if isinstance(request.cube, str) else (request.cube or [""])[0]
    stem = Path(name_of_cube(first).removesuffix(".zip")).stem or "scene"
    ending = "zarr" if importlib.util.find_spec("rasterio") is None else "tif"
    return replace(
        request,
        labels=request.labels or f"{stem}_labels.geojson",
        output=request.output or f"{stem}_map.{ending}",
    )


def fit_request(request: LabelRequest) -> FitRequest:
    """Return the request of the fit that the button `Save map` runs."""
    # The name of the map without its suffix. URLs and paths are treated alike.
    output = str(request.output)
    base, dot, ending = output.rpartition(".")
    if not dot or "/" in ending:
        base, ending = output.rstrip("/"), "zarr"
    draws = importlib.util.find_spec("matplotlib") is not None and local_path(base) is not None
    shared = {option.name for option in fields(LabelRequest)} & {
        option.name for option in fields(FitRequest)
    }
    options = {name: getattr(request, name) for name in shared}
    options |= {"model": request.model or f"{base}_model.zarr"}
    return FitRequest(
        **options,
        estimator="label-spreading",
        class_column="class",
        uncertainty=f"{base}_margin.{ending}",
        report=f"{base}_report.html" if draws else None,
    )


def label(options: LabelRequest) -> None:
    """Serve the page that asks for labels, until Ctrl-C."""
    if options.cube is None:
        raise UsageError("CUBE is required")
    if options.incomplete == "keep":
        raise UsageError("label requires complete pixels and does not support --incomplete keep")
    options = _with_names(options)
    progress = Progress()
    saving = fit_request(options)
    # These checks come first, so that no answers are lost by a late error.
    inputs = {**paths_of(options.cube), "--labels": options.labels, "--mask": options.mask}
    inputs["--exclude"] = options.exclude
    mark = job_mark(saving, make_estimator(saving).get_params(deep=False))
    outputs = check_outputs(saving, inputs, mark)
    path = local_path(options.labels)
    if path is not None:
        check_writable("--labels", str(options.labels), path)
    with lock_outputs([options.labels, *(getattr(saving, flag[2:]) for flag in outputs)]):
        _label(options, saving, progress)


def _label(options: LabelRequest, saving: FitRequest, progress: Progress) -> None:
    """Serve the page until the user ends it; labels and outputs are locked."""
    from daskclust.app.labeling.files import AnswersFile, read_answers
    from daskclust.app.labeling.pictures import Pictures
    from daskclust.app.labeling.server import Page, serve
    from daskclust.app.labeling.session import Session

    file = AnswersFile(str(options.labels))
    cube = open_cube_of(options)
    exclude = open_exclusion(cube, options)
    file.check()
    if file.is_package and cube.pixel_grid.crs is None:
        raise UsageError(
            "--labels: a GeoPackage requires a coordinate system, which the scene does not have. "
            "Use .geojson"
        )
    about, labels = read_answers(file, cube.pixel_grid) if file.exists() else ({}, [])
    shape = int(cube.shape[0]), int(cube.shape[1])
    if about and tuple(about["shape"]) != shape:
        raise ValueError(
            f"--labels {options.labels!r} must belong to a scene of {shape[0]} x {shape[1]} "
            f"pixels, got {about['shape'][0]} x {about['shape'][1]}. Use another file."
        )
    outside = [
        entry
        for entry in labels
        if not (0 <= entry.row < shape[0] and 0 <= entry.column < shape[1])
    ]
    if outside:
        raise ValueError(
            f"--labels {options.labels!r} must contain only points inside the scene, got "
            f"{len(outside)} of {len(labels)} outside. Use another file, or remove these points."
        )
    colors = {entry["name"]: entry["color"] for entry in about.get("classes", ())}
    session = Session(shape, [*colors, *options.classes], labels, colors)
    check_memory(make_plan(cube, options, None, constrained=False))
    client: Any = None

    def save() -> dict[str, str]:
        # Other existing files were refused above, so only files of this page are overwritten.
        saving.overwrite = True
        model = make_estimator(saving)
        colors = {entry.name: entry.color for entry in session.classes}
        job = replace(open_cube_job(saving, model, fits=True), colors=colors)
        fit_by(client, model, job, progress, time.perf_counter())
        return output_paths(saving)

    pictures = Pictures(cube, None if exclude is None else cube.excluding(exclude))
    page = Page(session, pictures, file, save, progress.task, name_of_cube(options.cube))
    with ExitStack() as stack:
        try:
            url = stack.enter_context(serve(page, options.port))
        except OSError as error:
            raise OSError(
                f"--port {options.port} cannot be used ({error.strerror}). Use another port, or "
                f"omit it."
            ) from error
        print(url, flush=True)
        progress.say(f"Labels: {options.labels}. Press Ctrl-C to end; the labels stay in the file.")
        if not options.no_browser:
            webbrowser.open(url)
        client = stack.enter_context(
            open_client(options, useful_workers=cube.blocks.count, progress=progress)
        )
        page.run(lambda page: _prepare(page, cube, options.seed, exclude))


def _prepare(page: Any, cube: Any, seed: int, exclude: Any) -> Any:
    from daskclust.app.labeling.learner import Learner

    count_pixels(cube, page.task)
    with page.task("Overview"):
        page.pictures.choose_bands(page.pictures.bands, page.pictures.stretch)
        page.show_scene()
    learner = Learner.of(cube, seed, page.task, exclude)
    with page.task("Cells of the overview"):
        page.pictures.classify(learner.cells)
    return learner
