"""``daskclust fit``: fit an estimator to a cube or a table; write maps, a model and a report."""

from __future__ import annotations

import argparse
import inspect
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np

from daskclust.app.commands import _cubes, _estimators, _outputs
from daskclust.app.commands._choice import make_choice
from daskclust.app.commands._fit_request import (
    Job,
    check_hold_out,
    check_resumable,
    fields_of,
    job_mark,
    run,
    with_file,
)
from daskclust.app.commands._plan import make_plan, only_plan, plan_as_text
from daskclust.app.commands._tables import is_table, open_table_job
from daskclust.app.commands.console import Progress, print_results
from daskclust.app.commands.contradictions import check_needs
from daskclust.app.commands.requests import FitRequest, UsageError
from daskclust.app.report.summary import (
    MapSummary,
    known_classes,
    legend_of,
    pixels_and_areas,
    summarize,
)
from daskclust.colors import Legend
from daskclust.core.engine import keep_on_workers
from daskclust.core.persistence.mixin import check_same_data, clusters_are_classes, name_classes
from daskclust.core.persistence.models import fingerprint
from daskclust.core.storage.stored_array import as_dask
from daskclust.scenes import write_together
from daskclust.scenes.areas import line_weights
from daskclust.scenes.formats.vector import check_codes


def _run(options: argparse.Namespace) -> int:
    options = with_file(options)
    return print_results(options, fit(FitRequest.of(options)), _as_text)


def _as_text(found: dict[str, Any]) -> list[str]:
    return plan_as_text(found) if "dry_run" in found else _outputs.fit_as_text(found)


def fit(options: FitRequest) -> dict[str, Any]:
    """Fit an estimator, write the outputs of the request, and return the results.

    With ``dry_run``, return the plan and compute nothing.
    """
    check_needs("fit", options)
    began = time.perf_counter()
    model: Any = (
        make_choice(options) if options.choose_by_pairs else _estimators.make_estimator(options)
    )
    check_hold_out(options, model)
    if options.colors is not None:
        _outputs.read_class_colors(options.colors)  # refused now, not after the fit
    job: Any
    if is_table(options):
        job = open_table_job(options, model, pairs_of(options, model))
    else:
        job = open_cube_job(options, model, fits=True)
    plan = only_plan(options, "fit", job.plan)
    if plan is not None:
        return plan
    if not job.output_paths and options.hold_out is None:
        raise UsageError(
            "at least one output is required: --output for the label map, --model, --report, "
            "--uncertainty or --score. --dry-run only plans"
        )
    return run(model, job, Progress(), began)


@dataclass(frozen=True)
class CubeJob(Job):
    cube: Any
    #: Opened label maps ``labels`` and ``truth``, if given.
    maps: dict[str, Any]
    #: Colors by class name, which replace the colors of the labels.
    colors: Mapping[str, str] = field(default_factory=dict)

    @property
    def parts(self) -> int:
        return int(self.plan["blocks"])

    @property
    def data(self) -> Any:
        return self.cube

    @property
    def samples(self) -> Any:
        return self.cube.samples

    def groups(self, rows: Any, labels: Any) -> tuple[Any, str]:
        lines, columns = np.divmod(self.cube.places_of_rows(rows), self.cube.shape[1])
        if self.options.hold_out_by != "tiles":
            return fields_of(lines, columns, labels), "fields"
        return _cubes.tiles_of_pixels(self.cube, self.options, lines, columns), "tiles"

    def count(self, progress: Progress) -> int:
        return _cubes.count_pixels(self.cube, progress.task)

    def labels(self) -> Any:
        label_map = self.maps.get("labels")
        if label_map is None:
            return None
        rows, labels = self.cube.rows_of(label_map, unlabeled=self.options.unlabeled)
        if not len(rows):
            raise ValueError(
                "--labels must give a class to at least one pixel with data, got none: all its "
                "values are --unlabeled or nodata or on masked pixels, or its polygons cover no "
                "center of a pixel."
            )
        if self.options.output is not None and not label_map.by_name:
            check_codes(np.unique(labels).tolist())
        return rows, labels

    def facts(self) -> dict[str, Any]:
        cube = self.cube
        bands = {"bands": {"used": len(cube.bands), "stored": cube.stored.shape[2]}}
        pixels = {"valid": cube.n_valid, "masked": cube.n_masked}
        return {"pixels": pixels, **(bands if self.fits else {})}

    def name(self, model: Any) -> None:
        label_map = self.maps.get("labels")
        if label_map is not None and not label_map.by_name and clusters_are_classes(model):
            name_classes(model, label_map.meanings, label_map.colors)
        if self.colors:
            named_codes = legend_of(model).by_code.items()
            colors = {
                c: self.colors.get(name) or self.colors.get(str(c)) for c, name in named_codes
            }
            name_classes(model, None, {code: color for code, color in colors.items() if color})

    def write(self, model: Any, labels: Any, results: dict[str, Any], progress: Progress) -> None:
        options, cube, legend = self.options, self.cube, legend_of(model)
        # The fingerprint identifies the maps of one model: the same job may fit other data.
        attributes = self.save(model, results, progress, model_mark=fingerprint(model))
        values: dict[str, Any] = {}
        if options.uncertainty is not None:
            values["uncertainty"] = _outputs.margins(model, cube)
        if options.score is not None:
            values["score"] = model.score_samples(cube)
        is_smoothed = bool(options.smooth or options.min_pixels)
        has_summary = options.report is not None or bool(self.maps)
        if is_smoothed:
            values["unsmoothed"] = legend.encode(labels)
            values["output"] = self._smoothed(model, labels, legend)
        else:
            values["output"] = legend.encode(labels)
        if is_smoothed or (options.output is None and has_summary):
            # Several steps use the blocks of the labels.
            with progress.task("Labels"):
                persisted = keep_on_workers("the labels", *values.values())
            values = dict(zip(values, persisted, strict=True))
        maps = self._written(model, values, legend, attributes, progress)
        if options.output is None and not has_summary:
            return
        image = maps.get("output", cube.to_map(values["output"]))
        with progress.task("Summary"):
            known = {
                name: (known_classes(opened, options.unlabeled), opened)
                for name, opened in self.maps.items()
            }
            if "truth" in self.maps:
                cube.warn_of_left_out(self.maps["truth"], options.unlabeled)
            known = _outputs.without_training_labels(known, model)
            truth = known["truth"][0] if "truth" in known and options.report else None
            summary = summarize(
                image, legend.codes, values=maps.get("uncertainty"), known=truth, cube=cube
            )
            if is_smoothed:
                before = cube.to_map(values["unsmoothed"])
                pixels_before = pixels_and_areas(before, legend.codes, cube)
                summary = replace(summary, before=pixels_before)
            pixels, areas = summary.before or (None, None)
            _outputs.add_classes(
                results,
                legend,
                summary.sizes,
                "pixels",
                square_meters=summary.square_meters,
                pixels_before_smoothing=None if pixels is None else pixels.tolist(),
                square_meters_before_smoothing=areas,
            )
            _outputs.add_agreements(results, known, image, cube.blocks, legend, model)
        if options.report is not None:
            labels = cube.values_of_rows(image) if "output" in maps else values["output"]
            self._write_report(model, labels, results, legend, summary, progress)

    def _written(
        self,
        model: Any,
        values: Mapping[str, Any],
        legend: Legend,
        attributes: Mapping[str, Any],
        progress: Progress,
    ) -> dict[str, Any]:
        """Write all maps in one pass; return label map and margins as lazy images."""
        options, cube, writers = self.options, self.cube, {}
        if options.output is not None:
            writers["output"] = cube.write_labels(
                values["output"],
                options.output,
                overwrite=self.replace["--output"],
                class_names=legend.by_code,
                class_colors=legend.color_by_code,
                attributes=attributes,
                compute=False,
            )
        score = (type(model).score_samples.__doc__ or "") if options.score is not None else ""
        descriptions = {"uncertainty": ("margin", _outputs.margin_kind(model))}
        descriptions["score"] = "score", score.partition("\n")[0]
        for name, (short_name, meaning) in descriptions.items():
            if name in values:
                writers[name] = cube.write_map(
                    values[name],
                    getattr(options, name),
                    overwrite=self.replace[f"--{name}"],
                    attributes={**attributes, "long_name": short_name, "description": meaning},
                    compute=False,
                )
        if not writers:
            return {}
        with progress.task("Maps"):
            written = dict(zip(writers, write_together(*writers.values()), strict=True))
        names = {"output": "labels", "uncertainty": "values"}
        return {k: self._image(written[k], name) for k, name in names.items() if k in written}

    def _image(self, written: Any, name: str) -> Any:
        """Return a map that was just written as a lazy image; missing labels are -1."""
        if not isinstance(written, Path):
            return as_dask(written[name])
        opened = self.cube.open_image("the map written", written)
        if name == "values":
            return da.asarray(opened.values)
        values = opened.values.astype("int64")
        return da.where(da.isin(values, list(opened.nodata)), -1, values)

    def _smoothed(self, model: Any, labels: Any, legend: Legend) -> Any:
        """Return the lazy values of the map, smoothed if requested.

        Smoothing uses the probabilities of the model's classes, and regions the values of the map.
        """
        strength, least = self.options.smooth, self.options.min_pixels
        if strength:
            labels = self.cube.smooth(labels, model.predict_proba(self.cube), strength=strength)
        labels = legend.encode(labels)
        return self.cube.smooth(labels, min_pixels=least) if least else labels

    def _write_report(
        self,
        model: Any,
        labels: Any,
        results: dict[str, Any],
        legend: Legend,
        summary: MapSummary,
        progress: Progress,
    ) -> None:
        from daskclust.app.report import write_report
        from daskclust.explain import profiles as profiles_of

        with progress.task("Profiles"):
            profiles = profiles_of(None, self.cube, labels)
        names = [legend.by_code[code] for code in profiles.labels.tolist()]
        with progress.task("Report"):
            write_report(
                self.options.report,
                cube=self.cube,
                model=model,
                legend=legend,
                title=self.title_of(model),
                configuration=results["configuration"],
                summary=summary,
                uncertainty_is=_outputs.margin_kind(model),
                agreement=_outputs.agreements_in(results),
                profiles=replace(profiles, names=names),
                held_out=results.get("held_out"),
                not_compared=results.get("not_compared"),
                predicted=not self.fits,
                overwrite=self.replace["--report"],
                job=self.mark,
            )


def open_cube_job(options: Any, model: Any, *, fits: bool) -> CubeJob:
    """Open and check the inputs and outputs of a fit or a prediction, from metadata only."""
    if not fits:
        _outputs.refuse_model_of_table(options.model)
    _outputs.check_margin(options, model)
    _outputs.check_smoothing(options, model)
    params = model.get_params(deep=False)
    map_names = ("labels", "truth") if fits else ("truth",)
    mark = job_mark(options, params, None if fits else options.model)
    read = ("must_link", "cannot_link", "checkpoint", "colors") if fits else ("model",)
    may_replace = _outputs.check_outputs(options, _cubes.inputs_of(options, *read), mark)
    pairs: dict[str, Any] = {}
    if fits:
        check_resumable(options, mark)
        pairs = pairs_of(options, model)
        cube = _cubes.open_cube_of(options)
        if options.weights is not None:
            if "sample_weight" not in inspect.signature(model.fit).parameters:
                raise UsageError(f"{type(model).__name__} does not support weights: omit --weights")
            line_weights(cube.pixel_grid)  # Raises an error now, not after the start of workers.
        n_pixels = cube.shape[0] * cube.shape[1]
        for kind in ("must_link", "cannot_link"):
            numbers = pairs.get(kind, np.zeros(1, int))
            low, high = numbers.min(), numbers.max()
            if low < 0 or high >= n_pixels:  # masked pixels are not known yet
                raise ValueError(
                    f"--{kind.replace('_', '-')} must contain row numbers from 0 to "
                    f"{n_pixels - 1}, got {low if low < 0 else high}. Number the valid pixels of "
                    "the scene from 0."
                )
        _estimators.check_count(params, n_pixels, "pixels")
    else:
        cube = _cubes.open_cube_of(options, model=model)
        check_same_data(model, cube)
        if cube.shape[2] != model.n_features_in_:
            raise ValueError(
                f"The cube must have the {model.n_features_in_} bands of the model, got "
                f"{cube.shape[2]}. Use a scene of the same sensor, or --bad-bands."
            )
    maps = {
        name: _cubes.open_labels(cube, options, name)
        for name in map_names
        if getattr(options, name) is not None
    }
    constrained = fits and _estimators.takes_labels(model) and bool(pairs or "labels" in maps)
    plan = make_plan(cube, options, params if fits else None, constrained=constrained)
    return CubeJob(options, fits, plan, pairs, mark, may_replace, cube, maps)


def pairs_of(options: FitRequest, model: Any) -> dict[str, Any]:
    """Read pairs of rows."""
    accepted = inspect.signature(model.fit).parameters
    arguments: dict[str, Any] = {}
    for kind in ("must_link", "cannot_link"):
        path, flag = getattr(options, kind), f"--{kind.replace('_', '-')}"
        if path is None:
            continue
        if kind not in accepted:
            raise UsageError(f"{type(model).__name__} does not support pairs: omit {flag}")
        try:
            if path.endswith(".npy"):
                pairs = np.load(path, allow_pickle=False)
            else:
                text = Path(path).read_text(encoding="utf-8-sig").replace(",", " ")
                lines = [line for line in text.splitlines() if line.strip()]
                pairs = np.loadtxt(lines or ["0 0"], dtype=np.int64, ndmin=2)[: len(lines)]
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{flag}: the file {path!r} does not exist; give the path of an existing file."
            ) from error
        except Exception as error:  # the header of a .npy file is code, which can raise any error
            raise ValueError(
                f"{flag} {path!r} cannot be read as pairs of row numbers: {str(error).rstrip('.')}."
            ) from error
        is_integer = pairs.dtype.kind in "iu"
        if pairs.ndim != 2 or pairs.shape[1] != 2 or not is_integer or not len(pairs):
            raise ValueError(
                f"{flag} {path!r} must contain integers of shape (m, 2) and at least one pair, got "
                f"{pairs.dtype} of shape {pairs.shape}. Write the numbers of two rows per line."
            )
        arguments[kind] = pairs
    return arguments
