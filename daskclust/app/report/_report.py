"""The contents of a report."""

from __future__ import annotations

import base64
import importlib.metadata
import platform
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from daskclust import plotting
from daskclust.app.report.page import (
    Column,
    Page,
    Report,
    figure,
    map_png,
    photo_jpeg,
    photo_of,
    svg,
)
from daskclust.app.report.sections import (
    add_agreement,
    add_contradicting_pairs,
    add_errors,
    add_held_out,
    add_profiles,
    mostly_of,
)
from daskclust.app.report.summary import (
    MapSummary,
    agreement_of,
    area_unit,
    compare_classes,
    known_classes,
    legend_of,
    summarize,
)
from daskclust.colors import Legend
from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.storage.outputs import json_text
from daskclust.core.storage.redact import redact
from daskclust.scenes.bands import name_of_samples

#: Maximum number of characters of the layers of a map in the page.
_MAX_CHARACTERS = 3_000_000
#: Maximum number of pixels along the longer side of the static picture, and of the scene.
_SMALL, _PHOTO = 600, 1000
#: Number of steps of a margin, and the stored number that means no margin.
_MARGIN_STEPS, _NO_MARGIN = 100, 255


def _deflated(values: Array) -> str:
    return base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 9)).decode()


@dataclass(frozen=True)
class KnownClasses:
    """Known classes of a map, and the number of right pixels.

    `matches` are the positions in the legend of the class or cluster that is right for each known
    class, -1 if none is right.
    """

    codes: Ints
    names: list[str]
    matches: list[int]
    right: int
    pixels: int
    by_matching: bool

    def layer(self, shown: Array) -> Array:
        """Return numbers of known classes, counted from 1; 0 for other pixels."""
        positions = np.minimum(np.searchsorted(self.codes, shown), len(self.codes) - 1)
        return np.where(self.codes[positions] == shown, positions + 1, 0)

    def errors(self, summary: MapSummary) -> Array:
        """Return -1 for unknown, 0 for right, and the known class for wrong pixels."""
        known = self.layer(np.asarray(summary.known))
        wrong = np.where(np.asarray([-1, *self.matches])[known] == summary.preview, 0, known)
        return np.where((known == 0) | (summary.preview < 0), -1, wrong)


def known_classes_of(
    summary: MapSummary, agreement: Mapping[str, Mapping[str, Any]] | None, legend: Legend
) -> KnownClasses | None:
    """Return the known classes, or None without known classes that can occur in the map."""
    scores = (agreement or {}).get("truth")
    if summary.known is None or scores is None or scores["compared_by"] is None:
        return None
    clusters = scores["clusters"]
    positions = {code: i for i, code in enumerate(legend.codes)}
    right_codes = [clusters[i] if i >= 0 else None for i in scores["matched"]]
    share = scores.get("accuracy", scores.get("best_matching_accuracy"))
    return KnownClasses(
        np.asarray(scores["classes"]),
        [str(name) for name in scores.get("class_names", scores["classes"])],
        [-1 if code is None else positions.get(code, -1) for code in right_codes],
        round(share * scores["pixels"]),
        scores["pixels"],
        scores["compared_by"] == "matching",
    )


def packed(summary: MapSummary, n_codes: int, known: KnownClasses | None = None) -> dict[str, Any]:
    """Return the layers of a map as compressed text; pixels are skipped until the text fits.

    Labels have one byte up to 255 codes, else two or four bytes (little endian). The result has
    ``width``, ``height``, ``step`` (pixels of the map per pixel shown), ``bytes`` per label,
    ``labels`` (0: no label), ``margins`` in hundredths (255: no margin), and ``known``, the labels
    of the known classes.
    """
    largest = max(n_codes, 0 if known is None else len(known.codes))
    size = 1 if largest < 2**8 else 2 if largest < 2**16 else 4
    thin = 1
    while True:
        labels = (summary.preview[::thin, ::thin] + 1).astype(f"<u{size}")
        layers: dict[str, Any] = {
            "width": labels.shape[1],
            "height": labels.shape[0],
            "step": summary.step * thin,
            "bytes": size,
            "labels": _deflated(labels),
        }
        if summary.values is not None:
            margins = summary.values[::thin, ::thin]
            steps = np.rint(np.clip(np.nan_to_num(margins), 0, 1) * _MARGIN_STEPS)
            steps = np.where(np.isnan(margins) | (labels == 0), _NO_MARGIN, steps)
            layers["margins"] = _deflated(steps.astype(np.uint8))
        if known is not None and summary.known is not None:
            numbers = np.where(labels > 0, known.layer(summary.known[::thin, ::thin]), 0)
            layers["known"] = _deflated(numbers.astype(labels.dtype))
        if (
            sum(len(layers.get(name, "")) for name in ("labels", "margins", "known"))
            <= _MAX_CHARACTERS
        ):
            return layers
        thin += 1


def add_map(
    page: Page,
    cube: Any,
    summary: MapSummary,
    legend: Legend,
    *,
    mostly: Mapping[int, str],
    uncertainty_is: str | None,
    known: KnownClasses | None = None,
) -> None:
    axes = cube.pixel_grid.axes
    layers = packed(summary, len(legend.codes), known)
    thin = max(1, -(-max(summary.preview.shape) // _PHOTO))
    scene = photo_of(cube, summary.step * thin, summary.preview[::thin, ::thin] >= 0)
    photo = None if scene is None else photo_jpeg(scene)
    data = {
        **layers,
        "rows": cube.shape[0],
        "columns": cube.shape[1],
        "names": legend.names,
        "codes": legend.codes,
        "colors": legend.colors,
        "photo": photo,
        **({} if known is None else {"knownNames": known.names, "matches": known.matches}),
        **{name: getattr(axes, name) for name in ("left", "across", "top", "down", "unit")},
        "xName": axes.x_name,
        "yName": axes.y_name,
    }
    thin = max(1, -(-max(summary.preview.shape) // _SMALL))
    picture = map_png(summary.preview[::thin, ::thin], legend.colors)
    what = f"Label map of {cube.shape[0]} x {cube.shape[1]} pixels: {_in_words(summary, legend)}"
    light = "red, green and blue light" if cube.wavelengths is not None else "three bands"
    choices = [("labels", "Label map")]
    choices += [("photo", f"The scene in {light}")] * (photo is not None)
    choices += [("margins", "Uncertainty")] * (summary.values is not None)
    choices += [("errors", "Errors")] * (known is not None)
    columns = _legend_columns(summary, legend)
    if mostly:
        known_pixels = [mostly.get(code, "") for code in legend.codes]
        columns.append(Column("known pixels", known_pixels, "text"))
    widths = 100 * summary.sizes / max(int(summary.sizes.max(initial=0)), 1)
    page.section(
        "Map",
        "map",
        choices=choices,
        picture=picture,
        about=what,
        margins=_margin_facts(summary, uncertainty_is),
        known=known,
        axes=axes,
        step=layers["step"],
        columns=columns,
        classes=list(zip(legend.names, legend.colors, widths.tolist(), strict=True)),
    )
    page.data("map-data", json_text(data))


def _in_words(summary: MapSummary, legend: Legend) -> str:
    total = max(1, int(summary.sizes.sum()))
    order = np.argsort(-summary.sizes, kind="stable")[:5]
    words = [f"{legend.names[i]} {summary.sizes[i] / total:.0%}" for i in order.tolist()]
    rest = len(legend.names) - len(words)
    return ", ".join(words) + (f", and {rest} more" if rest > 0 else "")


def _margin_facts(summary: MapSummary, uncertainty_is: str | None) -> dict[str, Any] | None:
    if summary.values is None:
        return None
    values = summary.values[np.isfinite(summary.values)]
    return {
        "meaning": uncertainty_is,
        "median": float(np.median(values)) if len(values) else float("nan"),
        "low": float(np.mean(values < 0.1)) if len(values) else 0.0,
    }


def _legend_columns(summary: MapSummary, legend: Legend) -> list[Column]:
    """Return the numbers of each class, a column each."""
    total = max(int(summary.sizes.sum()), 1)
    unit_size, unit = area_unit(summary.square_meters)
    before, areas_before = (None, None) if summary.before is None else summary.before
    margins = _mean_margins(summary, len(legend.codes))
    columns = [
        Column("code", legend.codes),
        Column("pixels", [f"{size:,}" for size in summary.sizes]),
        Column("share", [f"{size / total:.1%}" for size in summary.sizes]),
    ]
    if summary.square_meters is not None:
        areas = [f"{area / unit_size:,.4g}" for area in summary.square_meters]
        columns.append(Column(f"area ({unit})", areas))
    if before is not None:
        columns.append(Column("pixels before smoothing", [f"{int(size):,}" for size in before]))
    if areas_before is not None:
        areas = [f"{area / unit_size:,.4g}" for area in areas_before]
        columns.append(Column(f"area before ({unit})", areas))
    if margins is not None:
        shown = ["" if np.isnan(margin) else f"{margin:.2f}" for margin in margins]
        columns.append(Column("mean margin", shown))
    return columns


def _mean_margins(summary: MapSummary, n_codes: int) -> Floats | None:
    """Return the mean margin of each class over the pixels shown; NaN for classes not shown."""
    if summary.values is None:
        return None
    is_shown = (summary.preview >= 0) & np.isfinite(summary.values)
    labels = summary.preview[is_shown]
    sums = np.bincount(labels, summary.values[is_shown], n_codes)
    counts = np.bincount(labels, minlength=n_codes)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


#: Explanation of jumps of the objective of estimators with feature weights.
_ROUNDS = (
    "A dotted line is the start of a round with new feature weights. The unit of the objective "
    "depends on the weights, so compare values only within a round. A jump at a dotted line has "
    "no meaning. Rounds end when the weights no longer change."
)
#: Largest wavelength in nanometers from which axes are in micrometers.
_LONG = 3000.0
_PACKAGES = ("daskclust", "dask", "distributed", "numpy", "numba", "scipy", "scikit-learn", "zarr")


def write_report(
    path: Any,
    *,
    cube: Any,
    model: Any,
    labels: Any = None,
    truth: Any = None,
    unlabeled: int | Sequence[int] = -1,
    class_names: Sequence[str] | Mapping[int, str] | None = None,
    uncertainty: Any = None,
    uncertainty_is: str | None = None,
    title: str | None = None,
    configuration: Mapping[str, Any] | None = None,
    legend: Legend | None = None,
    summary: MapSummary | None = None,
    agreement: Mapping[str, Mapping[str, Any]] | None = None,
    profiles: Any = None,
    held_out: Mapping[str, Any] | None = None,
    not_compared: Mapping[str, str] | None = None,
    predicted: bool = False,
    overwrite: bool = False,
    job: str = "",
) -> Path | str:
    """Write a report of a fit as one self-contained HTML file.

    Parameters
    ----------
    path : path-like
        The file, or a URL that fsspec knows, such as ``"s3://bucket/report.html"``.
    cube : Cube
        The scene.
    model : estimator
        Fitted to ``cube.samples``.
    labels : array of shape (n_valid,), default=None
        ``model.labels_`` by default.
    truth : array of shape (y, x), int, default=None
        Known classes to compare with.
    unlabeled : int or sequence of int, default=-1
        Values of `truth` that mean "no class".
    class_names : sequence of str or mapping of int to str, default=None
        Names of the clusters; or names of the classes by code, if clusters are classes.
    uncertainty : array of shape (n_valid,), float, default=None
        Margin of each row, from 0 (a tie) to 1, such as the result of
        :meth:`daskclust.LabelSpreading.margin`.  It is shown as a layer of the map.
    uncertainty_is : str, default=None
        Description of the margin.
    title : str, default=None
    configuration : mapping, default=None
        Settings of the fit; the model's parameters by default.
    legend, summary, agreement : optional
        Earlier results for the label map.  If they are missing they are computed, in two
        passes over the labels.
    profiles : Profiles, optional
        Profiles of the labels in the map; see :func:`daskclust.explain.profiles`.
    held_out : mapping, optional
        Accuracy on held-out labels, as ``fit --hold-out --json`` prints it.
    not_compared : mapping of str to str, optional
        Reason why labels are not compared with ``"labels"`` or ``"truth"``.
    predicted : bool, default=False
        True if the labels were predicted for another scene than that of the fit. The report then
        omits the iterations and other facts of the fit.
    overwrite : bool, default=False
        Replace a report that daskclust has written. Other files are never replaced.
    job : str, default=""
        Hexadecimal mark of the job that the report belongs to.

    Returns
    -------
    Path
        Path of the report; a URL is returned as given.

    Raises
    ------
    FileExistsError
        The file exists and `overwrite` is False, or daskclust has not written it.
    ImportError
        matplotlib is not installed.

    Notes
    -----
    A script inside the file zooms the map and hides classes.  With scripts disabled the
    map is a static picture.  Large scenes are shown at lower resolution: at most 2500
    pixels along a side, and fewer if the layers would take more than 3 MB.  A scene of up
    to 512 MiB is read once more, for a picture in natural colors.

    Examples
    --------
    >>> import tempfile, daskclust
    >>> from daskclust.app.report import write_report
    >>> scene = daskclust.datasets.make_hyperspectral_cube(
    ...     tempfile.mkdtemp() + "/s.zarr", shape=(20, 30), n_bands=8, n_classes=3, random_state=0)
    >>> cube = daskclust.open_cube(scene)
    >>> model = daskclust.KMeans(3, random_state=0).fit(cube.samples)
    >>> write_report(tempfile.mkdtemp() + "/report.html", cube=cube, model=model).stat().st_size > 0
    True
    """
    output = Report(path, overwrite=overwrite)
    output.check()
    if legend is None:
        by_code = class_names if isinstance(class_names, Mapping) else None
        if class_names is not None and by_code is None:
            by_code = {code: str(name) for code, name in enumerate(class_names)}
        legend = legend_of(model, by_code)
    if summary is None or (agreement is None and truth is not None):
        image = cube.to_map(legend.encode(model.labels_ if labels is None else labels))
        no_class = (unlabeled,) if isinstance(unlabeled, int) else tuple(unlabeled)
        opened = None if truth is None else cube.open_map("truth", truth)
        known = None if opened is None else known_classes(opened, no_class)
        if summary is None:
            margins = None if uncertainty is None else cube.to_map(uncertainty, fill_value=np.nan)
            summary = summarize(image, legend.codes, values=margins, known=known, cube=cube)
        if agreement is None and opened is not None and known is not None:
            scores = agreement_of(image, known, cube.blocks, opened)
            compare_classes(scores, legend, opened, warns=True)
            agreement = {"truth": scores}
    plain = f"{type(model).__name__} of {cube.shape[0]} x {cube.shape[1]} pixels"
    page = Page(redact(title or plain))
    page.written(f"{type(model).__name__}, {_count_in_words(legend)}. ")
    page.facts(_facts(cube, model, agreement, summary, legend, predicted))
    if not predicted:
        _add_advice(page, model)
    compared_classes = known_classes_of(summary, agreement, legend)
    add_map(
        page,
        cube,
        summary,
        legend,
        mostly=mostly_of(agreement) if legend.is_of_clusters else {},
        uncertainty_is=uncertainty_is,
        known=compared_classes,
    )
    _add_spectra(page, cube, model, legend)
    notes = (None, held_out, not_compared)
    _add_rest(page, model, legend, agreement, profiles, *notes, predicted=predicted)
    if agreement and compared_classes is not None:
        add_errors(page, agreement["truth"], legend, compared_classes.errors(summary))
    shown = dict(configuration) if configuration is not None else model.get_params(deep=False)
    _add_details(page, {"Configuration": shown, "Cube": _cube_facts(cube)})
    output.write(page.html(job))
    return path if output.path is None else Path(path)


def write_table_report(
    output: Report,
    *,
    model: Any,
    legend: Legend,
    results: Mapping[str, Any],
    agreement: Mapping[str, Mapping[str, Any]],
    profiles: Any,
    rules: Any,
    title: str | None,
    job: str,
) -> None:
    """Write a report of a fit to a table, or of its labels, as one self-contained HTML file.

    `results` are the results of the job as JSON values.
    """
    n, columns = results["rows"], results["columns"]
    page = Page(redact(title or f"{type(model).__name__} of {n:,} rows"))
    features = ("columns", len(columns))
    if "features" in results:
        features = (f"values of {columns[0]}", results["features"])
    page.written(f"{type(model).__name__} of {features[1]} {features[0]}. ")
    noise, predicted = results.get("noise", 0), results["command"] == "predict"
    treated = "labeled" if predicted else "clustered"
    facts = [(f"{n - noise:,}", f"rows {treated}"), (f"{features[1]}", features[0])]
    facts[1:1] = [(f"{noise:,}", "rows of noise")] * ("noise" in results)
    page.facts(facts + _facts_of_model(model, agreement, predicted))
    if not predicted:
        _add_advice(page, model)
    notes = (rules, results.get("held_out"), results.get("not_compared"))
    _add_rest(page, model, legend, agreement, profiles, *notes, "rows", predicted=predicted)
    _add_details(
        page, {"Configuration": results["configuration"], "Table": {"columns": ", ".join(columns)}}
    )
    output.write(page.html(job))


def _add_advice(page: Page, model: Any) -> None:
    advice = (getattr(model, "history_", None) or [{}])[-1].get("advice")
    if advice:
        page.section("Labels", "text", text=advice)


def _add_rest(
    page: Page,
    model: Any,
    legend: Legend,
    agreement: Any,
    profiles: Any,
    rules: Any,
    held_out: Mapping[str, Any] | None,
    not_compared: Mapping[str, str] | None,
    things: str = "pixels",
    *,
    predicted: bool,
) -> None:
    if held_out is not None:
        add_held_out(page, held_out)
    if profiles is not None:
        colors = [legend.color_by_code[int(code)] for code in profiles.labels]
        add_profiles(page, profiles, rules, colors)
    if not predicted:
        _add_tree(page, model)
        _add_history(page, model)
    for key, scores in (agreement or {}).items():
        add_agreement(page, key, scores, legend, things)
    for key, reason in (not_compared or {}).items():
        page.section(f"Agreement with {key}", "text", text=f"Not compared: {reason}.")
    if not predicted:
        add_contradicting_pairs(page, model)


def _add_details(page: Page, sections: Mapping[str, Mapping[str, Any]]) -> None:
    versions = {"python": platform.python_version(), **{n: _version(n) for n in _PACKAGES}}
    for heading, values in {**sections, "Versions": versions}.items():
        page.details(heading, _rows_of(values))


def _count_in_words(legend: Legend) -> str:
    """Return a phrase with the number of classes or clusters, without noise.

    >>> _count_in_words(Legend.of([0, 1]))
    '2 clusters'
    """
    k = len(legend.codes) - (legend.noise is not None)
    if legend.is_of_clusters or not legend.classes:
        return f"{k} clusters"
    free = k - len(legend.classes)
    more = f", {free} cluster{'s' * (free > 1)} of no class" if free else ""
    return f"{len(legend.classes)} classes{more}"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _facts(
    cube: Any, model: Any, agreement: Any, summary: MapSummary, legend: Legend, predicted: bool
) -> list[tuple[str, str]]:
    noise = () if legend.noise is None else (summary.sizes[legend.codes.index(legend.noise)],)
    facts = [
        (f"{cube.n_valid - sum(noise):,}", f"pixels {'labeled' if predicted else 'clustered'}"),
        *((f"{size:,}", "pixels of noise") for size in noise),
        (f"{cube.n_masked / max(1, cube.n_valid + cube.n_masked):.1%}", "masked"),
        (f"{cube.shape[2]}", "bands"),
    ]
    return facts + _facts_of_model(model, agreement, predicted)


def _facts_of_model(model: Any, agreement: Any, predicted: bool) -> list[tuple[str, str]]:
    facts = []
    weights = getattr(model, "feature_weights_", None)
    if weights is not None:
        facts.append((f"{int((weights > 0).sum())}", "features with weight"))
    facts += [] if predicted else _facts_of_fit(model)
    for key, scores in (agreement or {}).items():
        if not scores.get("used_by_fit"):
            facts.append((f"{scores['ari']:.3f}", f"adjusted Rand index, {key}"))
    return facts


def _facts_of_fit(model: Any) -> list[tuple[str, str]]:
    facts = []
    texts = {"objective": "objective", "inertia": "inertia", "lower_bound": "log-likelihood a row"}
    for name, text in texts.items():
        value = getattr(model, f"{name}_", None)
        if value is not None:
            facts.append((f"{value:.4g}", text))
            break
    history = getattr(model, "history_", None) or []
    if history:
        seconds = sum(record.get("seconds") or 0.0 for record in history)
        # Not the number of records, which differs for estimators with rounds.
        facts.append((f"{getattr(model, 'n_iter_', len(history))}", "iterations"))
        facts.append((f"{history[-1].get('passes', '?')}", "passes over the data"))
        facts.append((f"{seconds:.1f} s", "in iterations"))
    pairs = getattr(model, "contradicting_pairs_", None)
    if pairs is not None:
        facts.append((f"{pairs.violated.sum()}", "pairs violated"))
    return facts


def spectrum_axes(cube: Any, kind: str) -> tuple[Floats | None, str, str]:
    """Return wavelengths of a cube's bands, and the names of both axes of its spectra, with units.

    Wavelengths are in the unit of the first name; `kind` is how the spectra are scaled.
    """
    shown, where = name_of_samples(cube.attributes, kind), cube.wavelengths
    if where is None:
        return None, "band", shown
    if np.max(where) >= _LONG:
        return where / 1000.0, "wavelength (\N{MICRO SIGN}m)", shown
    return where, "wavelength (nm)", shown


def _add_spectra(page: Page, cube: Any, model: Any, legend: Legend) -> None:
    centers = getattr(model, "cluster_centers_", None)
    centers = getattr(model, "means_", None) if centers is None else centers
    if centers is None or centers.shape[1] != cube.shape[2]:
        return
    # The cube of a prediction is not scaled; the model stores the scaling of its fit.
    kind = getattr(model, "_cube_scale", cube.sample_scaling.kind)
    if kind == "whitened":
        # The features of these centers are directions, not bands.
        return
    if kind == "standard":
        stored = getattr(model, "_cube_mean", None), getattr(model, "_cube_std", None)
        mean, std = cube.scaling if stored[0] is None else stored
        centers, kind = mean + centers * std, "none"
    weights = getattr(model, "feature_weights_", None)
    if weights is None:
        weights = getattr(model, "metric_weights_", None)
    wavelengths, x_name, y_name = spectrum_axes(cube, kind)
    codes = np.asarray(legend.encode(np.arange(len(centers)))).tolist()
    names = [legend.by_code.get(code, str(code)) for code in codes]
    colors = [legend.color_by_code.get(code, "#888888") for code in codes]

    def draw(ax: Any, below: Any = None) -> None:
        plotting.draw_spectra(
            centers, ax, wavelengths=wavelengths, bands=cube.bands, names=names, colors=colors
        )
        ax.set_ylabel(y_name)
        lowest = ax
        if weights is not None:
            plotting.draw_bands(weights, below, wavelengths=wavelengths)
            below.set_ylabel("weight")
            ax.set_xlabel("")
            lowest = below
        lowest.set_xlabel(x_name)

    n, heights = len(centers), (1.0,) if weights is None else (2.2, 1.0)
    what = f"Spectra of {n} clusters over {x_name}"
    heading = "Cluster spectra"
    if weights is not None:
        used = int((weights > 0).sum())
        what += f"; {used} of {len(weights)} bands have weight"
        heading += " and feature weights"
    picture = svg(draw, (11, 4.2 if weights is None else 6.0), heights, name=what)
    page.figure(heading, picture, wide=True)


def _add_tree(page: Page, model: Any) -> None:
    if hasattr(model, "cut_table"):
        if not model.cut_table():
            return
        what = f"Tree of {model.n_leaves_} leaves, cut at {model.n_clusters_} clusters"
        picture = svg(lambda ax: plotting.dendrogram(model, ax), (11, 4.2), name=what)
        page.figure("Tree", picture, wide=True, after=Markup(model._cuts_as_html()))
    elif hasattr(model, "condensed_tree_"):
        what = f"Condensed tree, {model.n_clusters_} clusters chosen"
        picture = svg(lambda ax: plotting.condensed_tree(model, ax), (11, 4.2), name=what)
        page.figure("Condensed tree", picture, wide=True)


def _add_history(page: Page, model: Any) -> None:
    history = getattr(model, "history_", None)
    if not history or len(history) == 1:
        # A single record needs no plot; its numbers are among the facts.
        return
    values = [r["objective"] for r in history if r.get("objective") is not None]
    range_text = f", from {values[0]:.6g} to {values[-1]:.6g}" if values else ""
    seconds = sum(record.get("seconds") or 0.0 for record in history)
    objective = svg(
        lambda ax: plotting.draw_history(history, ax),
        (5.4, 3.2),
        name=f"Objective of {len(history)} steps{range_text}",
    )
    times = svg(
        lambda ax: plotting.draw_seconds(history, ax),
        (5.4, 3.2),
        name=f"Time of {len(history)} steps, {seconds:.1f} s in all",
    )
    rounds = {record["round"] for record in history if "round" in record}
    page.pair(
        ("Objective of each step", figure(objective, caption=_ROUNDS if len(rounds) > 1 else "")),
        ("Time of each step", figure(times)),
    )


def _cube_facts(cube: Any) -> dict[str, Any]:
    wavelengths = cube.wavelengths
    return {
        "pixels": f"{cube.shape[0]} x {cube.shape[1]}",
        "bands": cube.shape[2],
        "wavelengths": None
        if wavelengths is None
        else f"{wavelengths.min():g} to {wavelengths.max():g} nm",
        "blocks": f"{len(cube.chunks[0])} x {len(cube.chunks[1])}",
        "nodata": ", ".join(map(str, cube.nodata)) or None,
        "valid": cube.n_valid,
        "masked": cube.n_masked,
        **cube.georeference.group_attributes,
        **cube.georeference.attributes,
    }


def _rows_of(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            rows += [(f"{key}.{inner}", text) for inner, text in _rows_of(value)]
        else:
            text = redact(value)
            rows.append((str(key), text if len(text) <= 400 else f"{text[:400]} ..."))
    return rows
