"""What a report holds, and putting it together."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust import plotting
from daskclust.engine import compute
from daskclust.report._page import Page, escape
from daskclust.report._pictures import map_png, photo_png, svg
from daskclust.report.summary import MapSummary, agreement_of, as_classes, n_clusters_of, summarize
from daskclust.report.written import check_report
from daskclust.storage.files import write_whole
from daskclust.storage.stores import local_path
from daskclust.storage.urls import redact

__all__ = ["write_report"]

#: Stored bytes up to which a cube is read once more, for a color picture of the scene.
_PHOTO_BYTES = 512 * 2**20
_PACKAGES = ("daskclust", "dask", "distributed", "numpy", "numba", "scipy", "scikit-learn", "zarr")
#: Violated pairs that are listed.
_LISTED = 20


def write_report(
    path: Any,
    *,
    cube: Any,
    model: Any,
    labels: Any = None,
    truth: Any = None,
    unlabeled: int | Sequence[int] = -1,
    class_names: Sequence[str] | None = None,
    title: str | None = None,
    configuration: Mapping[str, Any] | None = None,
    summary: MapSummary | None = None,
    agreement: Mapping[str, Mapping[str, Any]] | None = None,
    overwrite: bool = False,
    job: str = "",
) -> Path | str:
    """Write a report of a fit as one HTML file, without anything from elsewhere.

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
        Values of `truth` that mean none.
    class_names : sequence of str, default=None
        Of the clusters; their numbers by default.
    title : str, default=None
    configuration : mapping, default=None
        What the fit was run with; the model's parameters by default.
    summary, agreement : optional
        What is known of the label map already; else it is computed, in two passes over
        the labels.
    overwrite : bool, default=False
        Replace a report that daskclust has written; never another file.
    job : str, default=""
        Hexadecimal mark of the job that the report belongs to.

    Returns
    -------
    Path
        The URL as it was given, where it is one.

    Raises
    ------
    FileExistsError
        The file exists and `overwrite` is False, or it is no report of daskclust.
    ImportError
        Without matplotlib.

    Notes
    -----
    Large scenes are shown by every so many pixels, at most 1000 along a side.  A scene
    of up to 512 MiB is read once more, for a picture in the colors of light.

    Examples
    --------
    >>> import tempfile, daskclust
    >>> from daskclust.report import write_report
    >>> scene = daskclust.datasets.make_hyperspectral_cube(
    ...     tempfile.mkdtemp() + "/s.zarr", shape=(20, 30), n_bands=8, n_classes=3, random_state=0)
    >>> cube = daskclust.open_cube(scene)
    >>> model = daskclust.KMeans(3, random_state=0).fit(cube.samples)
    >>> write_report(tempfile.mkdtemp() + "/report.html", cube=cube, model=model).stat().st_size > 0
    True
    """
    check_report(path, overwrite=overwrite)
    k = n_clusters_of(model)
    names = [str(i) for i in range(k)] if class_names is None else [str(n) for n in class_names]
    names += [str(i) for i in range(len(names), k)]
    if summary is None or (agreement is None and truth is not None):
        image = cube.to_map(model.labels_ if labels is None else labels)
        summary = summarize(image, k) if summary is None else summary
        if truth is not None and agreement is None:
            none = (unlabeled,) if isinstance(unlabeled, int) else tuple(unlabeled)
            known = as_classes(da.asarray(truth), none)
            agreement = {"truth": agreement_of(image, known, cube.blocks)}
    plain = f"{type(model).__name__} of {cube.shape[0]} x {cube.shape[1]} pixels"
    page = Page(redact(title or plain))
    page.lead(
        f"{type(model).__name__}, {k} clusters. Written "
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC by daskclust {_version('daskclust')}."
    )
    page.facts(_facts(cube, model, agreement))
    _add_map(page, cube, summary, names)
    _add_spectra(page, cube, model, names)
    _add_history(page, model)
    for key, found in (agreement or {}).items():
        _add_agreement(page, key, found, names)
    _add_violations(page, model)
    shown = dict(configuration) if configuration is not None else model.get_params(deep=False)
    page.details("Configuration", _rows_of(shown))
    page.details("Cube", _rows_of(_cube_facts(cube)))
    versions = {"python": platform.python_version(), **{n: _version(n) for n in _PACKAGES}}
    page.details("Versions", _rows_of(versions))
    write_whole(
        path,
        page.html(job).encode("utf-8"),
        check=lambda: check_report(path, overwrite=overwrite),
    )
    return path if local_path(path) is None else Path(path)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _facts(cube: Any, model: Any, agreement: Any) -> list[tuple[str, str]]:
    found = [
        (f"{cube.n_valid:,}", "pixels clustered"),
        (f"{cube.n_masked / max(1, cube.n_valid + cube.n_masked):.1%}", "without data"),
        (f"{cube.shape[2]}", "bands"),
    ]
    weights = getattr(model, "feature_weights_", None)
    if weights is not None:
        found.append((f"{int((weights > 0).sum())}", "bands with weight"))
    for name, text in (
        ("objective_", "objective"),
        ("inertia_", "inertia"),
        ("lower_bound_", "log-likelihood a row"),
    ):
        value = getattr(model, name, None)
        if value is not None:
            found.append((f"{value:.4g}", text))
            break
    history = getattr(model, "history_", None) or []
    if history:
        seconds = sum(record.get("seconds") or 0.0 for record in history)
        found.append((f"{len(history)}", "iterations"))
        found.append((f"{history[-1].get('passes', '?')}", "passes over the data"))
        found.append((f"{seconds:.1f} s", "in iterations"))
    for key, scores in (agreement or {}).items():
        found.append((f"{scores['ari']:.3f}", f"adjusted Rand index, {key}"))
    violations = getattr(model, "constraint_violations_", None)
    if violations is not None:
        found.append((f"{len(violations)}", "pairs violated"))
    return found


def _add_map(page: Page, cube: Any, summary: MapSummary, names: Sequence[str]) -> None:
    step = summary.step
    shown = "every pixel" if step == 1 else f"every {step}th pixel in both directions"
    figures = [
        page.image(
            map_png(summary.preview, len(names)), "Label map", f"Label map, {shown}; dark: no data"
        )
    ]
    photo = _photo(cube, summary.preview, step)
    if photo is not None:
        light = "red, green and blue light" if cube.wavelengths is not None else "three bands"
        figures.append(page.image(photo_png(photo), "Scene", f"The scene in {light}"))
    total = max(int(summary.sizes.sum()), 1)
    largest = max(int(summary.sizes.max(initial=0)), 1)
    colors = plotting.label_colors(len(names))
    rows = [
        f'<tr><td><i class="chip" style="background:{color}"></i>{escape(name)}</td>'
        f'<td class="n">{size:,}</td><td class="n">{size / total:.1%}</td>'
        f'<td style="width:40%"><div class="bar" style="width:{100 * size / largest:.2f}%;'
        f'background:{color}"></div></td></tr>'
        for name, size, color in zip(names, summary.sizes.tolist(), colors, strict=True)
    ]
    legend = (
        '<div class="legend"><table><tr><th>cluster</th><th class="n">pixels</th>'
        f'<th class="n">share</th><th></th></tr>{"".join(rows)}</table></div>'
    )
    page.section("Map", f'<div class="maps">{"".join(figures)}{legend}</div>')


def _photo(cube: Any, preview: NDArray[Any], step: int) -> NDArray[Any] | None:
    """Read a small color picture of a scene that is not too large."""
    n_bands = cube.shape[2]
    if cube.stored.nbytes > _PHOTO_BYTES:
        return None
    bands = cube.bands[plotting.rgb_bands(n_bands, cube.wavelengths)]
    (shown,) = compute("a picture of the scene", cube.stored_bands(bands.tolist())[::step, ::step])
    picture = np.ma.getdata(shown).astype(float)
    picture[preview < 0] = np.nan
    return plotting.stretch(picture)


def _add_spectra(page: Page, cube: Any, model: Any, names: Sequence[str]) -> None:
    centers = getattr(model, "cluster_centers_", None)
    centers = getattr(model, "means_", None) if centers is None else centers
    if centers is None or centers.shape[1] != cube.shape[2]:
        return
    scaling = cube.scaling
    if scaling is not None:
        centers = scaling[0] + centers * scaling[1]
    weights = getattr(model, "feature_weights_", None)
    if weights is None:
        weights = getattr(model, "metric_weights_", None)

    def draw(ax: Any, below: Any = None) -> None:
        if weights is not None:
            plotting.draw_bands(below, weights, wavelengths=cube.wavelengths)
        plotting.draw_spectra(
            ax, centers, wavelengths=cube.wavelengths, bands=cube.bands, names=names
        )
        if weights is not None:
            ax.set_xlabel("")
            below.set_ylabel("weight")

    if weights is None:
        page.section("Cluster spectra", f"<figure>{svg(draw, (11, 4.2))}</figure>")
    else:
        picture = svg(draw, (11, 6.0), (2.2, 1.0))
        page.section("Cluster spectra and feature weights", f"<figure>{picture}</figure>")


def _add_history(page: Page, model: Any) -> None:
    history = getattr(model, "history_", None)
    if not history:
        return
    page.pair(
        (
            "Objective of each iteration",
            svg(lambda ax: plotting.draw_history(ax, history), (5.4, 3.2)),
        ),
        ("Time of each iteration", svg(lambda ax: plotting.draw_seconds(ax, history), (5.4, 3.2))),
    )


def _add_agreement(page: Page, key: str, found: Mapping[str, Any], names: Sequence[str]) -> None:
    scores = {
        "Adjusted Rand index": found["ari"],
        "Normalized mutual information": found["nmi"],
        "Pairwise F-score": found["pairwise_f"],
        "Accuracy of the best matching": found["accuracy"],
    }
    rows = "".join(
        f'<tr><td>{name}</td><td class="n">{value:.4f}</td></tr>' for name, value in scores.items()
    )
    classes = found.get("class_names") or found["classes"]
    clusters = [names[i] if i < len(names) else i for i in found["clusters"]]
    height = min(12.0, 1.2 + 0.42 * len(classes))
    picture = svg(
        lambda ax: plotting.draw_confusion(ax, found["counts"], classes=classes, clusters=clusters),
        (max(5.0, min(11.0, 2.5 + 0.7 * len(clusters))), height),
    )
    page.section(
        f"Agreement with {key}",
        f'<div class="maps"><figure>{picture}<figcaption>Share of each class in each cluster, over '
        f"{found['pixels']:,} pixels</figcaption></figure><div><table>{rows}</table></div></div>",
    )


def _add_violations(page: Page, model: Any) -> None:
    violations = getattr(model, "constraint_violations_", None)
    if violations is None or not len(violations):
        return
    rows = "".join(
        f'<tr><td class="n">{int(v["i"])}</td><td class="n">{int(v["j"])}</td>'
        f"<td>{escape(v['kind'])}</td></tr>"
        for v in violations[:_LISTED]
    )
    more = len(violations) - _LISTED
    page.section(
        "Violated constraints",
        f'<table><tr><th class="n">row</th><th class="n">row</th><th>kind</th></tr>{rows}</table>'
        + (f"<p>and {more:,} more</p>" if more > 0 else ""),
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
