"""Outputs of a fit or a prediction: maps, model, report."""

from __future__ import annotations

import csv
import importlib.util
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.app.commands._choice import choice_as_text
from daskclust.app.commands._estimators import takes_labels
from daskclust.app.commands.console import counted, ending
from daskclust.app.commands.requests import UsageError
from daskclust.app.report.page import Report
from daskclust.app.report.summary import (
    NothingInCommonError,
    agreement_of,
    compare_classes,
    legend_of,
    n_clusters_of,
    singles_advice,
)
from daskclust.colors import Legend, name_of, positions_of_names
from daskclust.core.persistence.mixin import class_names_of, merged_classes_of, name_classes
from daskclust.core.storage.outputs import Group, Output
from daskclust.core.storage.redact import redact
from daskclust.core.storage.stores import check_protocol, local_path
from daskclust.scenes.formats.geotiff import LABEL_MAP, VALUE_MAP, map_at
from daskclust.semisupervised import predict

#: Attributes of options with output paths.  The checkpoint is next to the first of them.
OUTPUTS = ("output", "model", "report", "uncertainty", "score", "performance")

#: Pages, the libraries that draw them, and the extras that bring these.
_DRAWN_BY = (("report", "matplotlib", "plot"), ("performance", "bokeh", "dashboard"))


def outputs_of(options: Any) -> dict[str, Output]:
    outputs: dict[str, Output] = {}
    for name in OUTPUTS:
        target = getattr(options, name, None)
        if target is None:
            continue
        if name in ("report", "performance"):
            output: Output = Report(target)
        elif name == "model":
            output = Group(target, "model")
        else:
            output = map_at(target, LABEL_MAP if name == "output" else VALUE_MAP)
        outputs[f"--{name}"] = output
    return outputs


def job_of(path: str) -> dict[str, Any]:
    """Return the description of the job that saved a model, or {}."""
    existing = Group(path, "model").written()
    return {} if existing is None else existing.job


def refuse_model_of_table(path: str) -> None:
    """Raise ValueError if a model was fitted to a table, because the data are a cube."""
    columns = job_of(path).get("columns")
    if columns is not None:
        raise ValueError(
            f"The model was fitted to the columns {columns} of a table, got a cube. Use a table "
            f"with these columns."
        )


def output_paths(options: Any) -> dict[str, str]:
    paths = {name: getattr(options, name, None) for name in OUTPUTS}
    return {name: redact(path) for name, path in paths.items() if path is not None}


def check_outputs(
    options: Any,
    inputs: Mapping[str, str | None],
    mark: str,
    outputs: Mapping[str, Output] | None = None,
) -> dict[str, bool]:
    """Check that outputs differ from the inputs and from each other, and may be written.

    Return True for each flag whose output may be replaced. An output may be replaced if an earlier
    run of the same job (`mark`) wrote it, or with ``--overwrite`` if this program wrote it. By
    default, `outputs` are all outputs among the options.
    """
    for name, needed, extra in _DRAWN_BY:
        if getattr(options, name, None) is not None and importlib.util.find_spec(needed) is None:
            raise ImportError(
                f"--{name} requires {needed}, which is not installed. Use: "
                f"pip install 'daskclust[{extra}]'"
            )
    if outputs is None:
        outputs = {k: v for k, v in outputs_of(options).items() if k not in inputs}
    taken = {_real_path(path): flag for flag, path in inputs.items() if path is not None}
    replace = {}
    for flag, output in outputs.items():
        path = output.location
        location = _real_path(path)
        for other, name in taken.items():
            if location == other or location in other.parents or other in location.parents:
                raise ValueError(
                    f"{flag} {redact(path)!r} is in the same place as {name}. Use another path."
                )
        taken[location] = flag
        try:
            check_protocol(path)
            output.overwrite = replace[flag] = options.overwrite or output.is_of(mark)
            output.check()
        except (FileExistsError, ValueError) as error:
            kind = FileExistsError if isinstance(error, FileExistsError) else ValueError
            raise kind(f"{flag} {error}") from error
        if path.startswith("memory:"):
            raise ValueError(
                f"{flag} {redact(path)!r} must not be in the memory of this process, which is lost "
                f"at its end. Use a path or the URL of a store."
            )
        if output.path is not None:
            check_writable(flag, path, output.path)
    return replace


def _real_path(path: str) -> Path:
    local = local_path(path)
    return Path(os.path.realpath(local)) if local is not None else Path(path.rstrip("/"))


def check_writable(flag: str, name: str, path: Path) -> None:
    parent = path.parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise NotADirectoryError(f"{flag} {name!r}: {str(parent)!r} is not a folder.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionError(f"{flag} {name!r}: the folder {str(parent)!r} cannot be written to.")


#: Definitions of margins for legends, by the method of the estimator that computes them.
_KINDS = {
    "margin": "probability of the best class minus the probability of the second best class",
    "predict_proba": "posterior of the best component minus the posterior of the second best",
    "transform": "1 minus the ratio of the distances to the nearest and the second nearest center",
}


def margin_kind(model: Any) -> str | None:
    """Return the definition of the margin of a model, or None if it has no margin."""
    return _KINDS.get(_source(type(model)))


def check_margin(options: Any, model: Any) -> None:
    if options.uncertainty is not None and margin_kind(model) is None:
        raise UsageError(
            f"--uncertainty requires an estimator with centers or probabilities, such as kmeans, "
            f"gaussianmixture or label-spreading, got {type(model).__name__}"
        )


def _source(kind: type) -> str:
    if hasattr(kind, "margin"):
        return "margin"
    if hasattr(kind, "predict_proba"):
        return "predict_proba"
    # The transform of an estimator with a kernel returns an embedding, not distances.
    return "transform" if hasattr(kind, "transform") and not hasattr(kind, "kernel") else ""


def margins(model: Any, X: Any) -> Any:
    """Return the margin of each row, lazily for a cube; in one pass over the rows.

    Clusters with the same value in the label map, such as merged classes, count as one class.
    """
    source, legend = _source(type(model)), legend_of(model)
    if source == "transform":
        distances = model.transform(X)
        groups = np.asarray(legend.encode(np.arange(distances.shape[1])))
        return da.map_blocks(_gap, distances, groups=groups, drop_axis=1, dtype=distances.dtype)
    joined = merged_classes_of(model)
    if source == "margin" and not joined:
        return model.margin(X)
    shares = model.predict_proba(X)
    k = shares.shape[1]
    groups = legend.encode(getattr(model, "classes_", np.arange(k))) if joined else np.arange(k)
    return da.map_blocks(_lead, shares, groups=groups, drop_axis=1, dtype=shares.dtype)


def _lead(shares: NDArray[Any], *, groups: NDArray[Any]) -> NDArray[Any]:
    """Return the largest probability minus the second largest probability, of groups of columns.

    >>> _lead(np.array([[0.5, 0.25, 0.25]]), groups=np.array([0, 1, 1])).tolist()
    [0.0]
    """
    order = np.argsort(groups, kind="stable")
    _, first = np.unique(groups[order], return_index=True)
    if len(first) < len(groups):
        shares = np.add.reduceat(shares[:, order], first, axis=1)
    return predict.margins(shares)


def _gap(distances: NDArray[Any], *, groups: NDArray[Any]) -> NDArray[Any]:
    """Return 1 - nearest distance / nearest distance of another group, 1 with a single group.

    >>> _gap(np.array([[1.0, 2.0, 4.0], [0.0, 0.0, 1.0]]), groups=np.array([0, 0, 1])).tolist()
    [0.75, 1.0]
    """
    nearest = distances.argmin(axis=1)
    best = distances[np.arange(len(distances)), nearest]
    other = np.where(groups == groups[nearest][:, None], np.inf, distances).min(axis=1)
    # Two equal centers are a tie.
    return np.asarray(1 - np.divide(best, other, out=np.ones_like(best), where=other > 0))


def check_smoothing(options: Any, model: Any) -> None:
    if options.smooth is not None and not 0 <= options.smooth < float("inf"):
        raise UsageError(f"--smooth must be finite and at least 0, got {options.smooth}")
    if options.min_pixels is not None and options.min_pixels < 0:
        raise UsageError(f"--min-pixels must be an integer of at least 0, got {options.min_pixels}")
    if options.smooth and not hasattr(model, "predict_proba"):
        raise UsageError(
            f"--smooth requires an estimator with probabilities, got {type(model).__name__}. "
            f"--min-pixels supports all estimators"
        )


_COLOR = re.compile(r"#[0-9a-f]{6}")


def read_class_colors(path: str) -> dict[str, str]:
    """Return colors, as ``#rrggbb``, by name or code of the class.

    A CSV file has lines ``class,color``. A QGIS style (``.qml``) must be the style of a raster of
    classes, or of features by category.
    """
    text = Path(path).read_text(encoding="utf-8-sig")
    if path.lower().endswith(".qml"):
        pairs = _of_style(path, text)
    else:
        pairs = pairs_of_lines(f"--colors {path!r}", text, ("class", "color"))
    if not pairs:
        raise ValueError(f"--colors {path!r} must contain lines class,color, got none.")
    for name, color in pairs.items():
        if not _COLOR.fullmatch(color.lower()):
            raise ValueError(
                f"--colors {path!r}: the color of {name!r} must be #rrggbb, got {color!r}. Write "
                "for example #1f77b4."
            )
    return {name: color.lower() for name, color in pairs.items()}


def pairs_of_lines(
    what: str, text: str, header: tuple[str, str], known: Collection[str] = ()
) -> dict[str, str]:
    """Return the lines of a CSV file of two columns, without the header.

    `header` are the names of the two columns. The first line is not a header if it begins with a
    `known` name.
    """
    pairs: dict[str, str] = {}
    for number, line in enumerate(csv.reader(text.splitlines()), start=1):
        cells = [cell.strip() for cell in line]
        is_header = number == 1 and cells[-1].lower().replace("ou", "o") == header[1]
        is_header &= cells[0].lower() == header[0] or cells[0] not in known
        if is_header or not any(cells):
            continue
        if len(cells) != 2:
            raise ValueError(
                f"{what}, line {number}, must have the two fields {','.join(header)}, got "
                f"{len(cells)}. Put quotes around a name that contains a comma."
            )
        if pairs.setdefault(*cells) != cells[1]:
            raise ValueError(
                f"{what} must have one line per class, got two different lines for {cells[0]!r}."
            )
    return pairs


def _of_style(path: str, text: str) -> dict[str, str]:
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"--colors {path!r} cannot be read as a QGIS style: {error}.") from error
    pairs = [
        (entry.get("label", "") or entry.get("value", ""), entry.get("color", "").lower())
        for entry in root.iter("paletteEntry")
    ]
    symbols = {}
    for symbol in root.iter("symbol"):
        for item in symbol.iter():
            # QGIS 3 stores the color of a symbol in an Option element, QGIS 2 in a prop element.
            if item.tag in ("Option", "prop") and item.get("name", item.get("k")) == "color":
                channels = [int(n) for n in item.get("value", item.get("v", "")).split(",")[:3]]
                symbols[symbol.get("name", "")] = "#{:02x}{:02x}{:02x}".format(*channels)
                break
    for category in root.iter("category"):
        color = symbols.get(category.get("symbol", ""))
        if color is not None and category.get("value"):
            pairs.append((category.get("value", ""), color))
    colors: dict[str, str] = {}
    for name, color in pairs:
        if colors.setdefault(name, color) != color:
            raise ValueError(
                f"--colors {path!r} must have one color per class, got {colors[name]} and {color} "
                f"for {name!r}. Remove one of the two."
            )
    return colors


def paint(model: Any, path: str) -> list[str]:
    """Store the colors in a file for classes or clusters in a fitted model.

    Return sentences about classes that are missing in the file or the model.
    """
    colors = read_class_colors(path)
    legend = legend_of(model)
    codes = {str(code): code for code in legend.codes}
    for name, i in zip(colors, positions_of_names(legend.names, list(colors)), strict=True):
        if i >= 0:
            codes[name] = legend.codes[i]
    color_by_code: dict[int, str] = {}
    for name, color in colors.items():
        if name in codes and color_by_code.setdefault(codes[name], color) != color:
            both = next(other for other in colors if codes.get(other) == codes[name])
            raise ValueError(
                f"--colors {path!r} must have one color per class, got two, because {both!r} and "
                f"{name!r} are the same class. Remove one of the two."
            )
    if not color_by_code:
        raise ValueError(
            f"--colors {path!r} must name a class of the fit ({', '.join(legend.names[:10])}), got "
            f"{', '.join(list(colors)[:10])}. Use the names of the fit."
        )
    names, old_colors = class_names_of(model)
    name_classes(model, names, {**old_colors, **color_by_code})
    problems = []
    unknown = [name for name in colors if name not in codes]
    if unknown:
        problems.append(
            f"--colors {path!r} contains {_some(unknown)}, which are not classes of the fit"
        )
    uncolored = [legend.by_code[code] for code in legend.codes if code not in color_by_code]
    if uncolored:
        problems.append(
            f"--colors {path!r} lacks a color of {_some(uncolored)}: the color of the labels or "
            f"the default color is used"
        )
    return problems


def _some(names: list[str]) -> str:
    more = len(names) - 10
    return ", ".join(map(repr, names[:10])) + (f" and {more} more" if more > 0 else "")


def numbers_of(model: Any) -> dict[str, Any]:
    numbers: dict[str, Any] = {"n_clusters": n_clusters_of(model)}
    for name in ("n_iter_", "inertia_", "objective_", "lower_bound_", "converged_"):
        value = getattr(model, name, None)
        if isinstance(value, bool | int | float | np.generic):
            numbers[name.rstrip("_")] = value.item() if isinstance(value, np.generic) else value
    history = getattr(model, "history_", None)
    if history:
        numbers["passes"] = history[-1].get("passes")
        numbers["iteration_seconds"] = sum(record.get("seconds") or 0.0 for record in history)
        for name in ("mixing_weights", "left_out_log_loss", "advice"):
            # NaN means that there are too few labels. JSON has no NaN.
            value = history[-1].get(name)
            is_known = not isinstance(value, dict) or not np.isnan(list(value.values())).any()
            if value is not None and is_known:
                numbers[name] = value
    weights = getattr(model, "feature_weights_", None)
    if weights is not None:
        numbers["features_used"] = int((weights > 0).sum())
    pairs = getattr(model, "contradicting_pairs_", None)
    if pairs is not None:
        numbers["violations"] = int(pairs.violated.sum())
    return numbers


def without_training_labels(
    maps: Mapping[str, tuple[Any, Any]], model: Any
) -> dict[str, tuple[Any, Any]]:
    """Remove the training labels from the truth, because they are not a test of the fit.

    `maps` contains ``labels`` and ``truth`` if given: codes (-1 if unknown) and the opened labels.
    """
    if not (maps.keys() >= {"labels", "truth"} and takes_labels(model)):
        return dict(maps)
    truth, opened = maps["truth"]
    return {**maps, "truth": (da.where(maps["labels"][0] >= 0, -1, truth), opened)}


def add_agreements(
    results: dict[str, Any],
    maps: Mapping[str, tuple[Any, Any]],
    image: da.Array,
    grid: Any,
    legend: Legend,
    model: Any,
) -> None:
    """Compare labels with the known classes, as :func:`without_training_labels` returns them.

    With a `grid`, labels and classes are images on it.
    """
    for name in ("labels", "truth"):
        # Scores of held-out labels are reported elsewhere.
        if name not in maps or (name == "labels" and "held_out" in results):
            continue
        classes, opened = maps[name]
        fit_used_labels = "labels" in maps and takes_labels(model)
        used = name == "labels" and fit_used_labels
        try:
            # Polygons of the training labels are not a sample of other polygons.
            scores = agreement_of(image, classes, grid, None if used else opened)
        except NothingInCommonError:
            unit = "row" if grid is None else "pixel"
            results.setdefault("not_compared", {})[name] = (
                f"the fit used the labels of all {unit}s of known class"
                if fit_used_labels and name == "truth"
                else f"none of the labeled {unit}s has a known class"
            )
            continue
        compare_classes(scores, legend, opened, warns=not used)
        scores["used_by_fit"] = used
        scores["unseen_by_fit"] = name == "truth" and fit_used_labels
        results[f"agreement_with_{name}"] = scores


def agreements_in(results: Mapping[str, Any]) -> dict[str, Any]:
    keys = {name: f"agreement_with_{name}" for name in ("truth", "labels")}
    return {name: results[key] for name, key in keys.items() if key in results}


#: Maximum number of clusters whose sizes are listed.
_SIZES = 100


def classes_as_text(results: Mapping[str, Any]) -> list[str]:
    if "sizes" not in results:
        return []
    classes = results["classes"]
    if all(item["name"] == name_of(item["code"], kind="cluster") for item in classes):
        sizes = results["sizes"]
        if len(sizes) <= _SIZES:
            return ["Sizes     " + " ".join(map(str, sizes))]
        unit = "rows" if "rows" in results else "pixels"
        low, middle, high = np.quantile(sizes, (0, 0.5, 1))
        advice = singles_advice(sizes)
        return [
            f"Sizes     {low:.0f} to {high:.0f} {unit}, median {middle:g}",
            *([f"Advice    {advice}"] if advice else []),
        ]
    width = max(len(item["name"]) for item in classes)
    return [
        f"{'' if i else 'Classes':<10}{item['code']:>3}  {item['name']:<{width}}  "
        + (f"{item['rows']:>9} rows" if "rows" in item else f"{item['pixels']:>9} pixels")
        + (f"  {item['square_meters'] / 1e6:>10.4g} km2" if "square_meters" in item else "")
        for i, item in enumerate(classes)
    ]


def _accuracy(scores: Mapping[str, Any]) -> str:
    if scores["compared_by"] is None:
        return ""
    if scores["compared_by"] == "matching":
        return f", best matching of clusters to classes {scores['best_matching_accuracy']:.3f}"
    # An interval for labels that the fit used would be meaningless.
    used = scores.get("used_by_fit", False)
    span = "" if used else " ({:.3f} to {:.3f})".format(*scores["accuracy_interval"])
    kappa = "" if scores["kappa"] is None else f", kappa {scores['kappa']:.3f}"
    n_units = scores["independent_units"]
    units = "" if n_units is None else f" in {counted(n_units, 'polygon')}"
    return f", accuracy by {scores['compared_by']} {scores['accuracy']:.3f}{span}{units}{kappa}"


def agreements_as_text(results: Mapping[str, Any]) -> list[str]:
    lines = []
    for name in ("truth", "labels"):
        scores = results.get(f"agreement_with_{name}")
        reason = results.get("not_compared", {}).get(name)
        if reason is not None:
            lines.append(f"{name.capitalize():<10}not compared: {reason}")
        if not scores:
            continue
        unit = "rows" if "rows" in results else "pixels"
        lines.append(
            f"{name.capitalize():<10}ARI {scores['ari']:.3f}, NMI {scores['nmi']:.3f}, "
            f"pairwise F {scores['pairwise_f']:.3f}{_accuracy(scores)} on "
            f"{scores['pixels']} {unit}"
            # Scores of labels that the fit used say nothing about the rest of the map.
            + (" used in the fit" if scores.get("used_by_fit") else "")
            + (" not used in the fit" if scores.get("unseen_by_fit") else "")
        )
        if "by_class" in scores and not scores.get("used_by_fit"):
            lines += _by_class_as_text(scores["by_class"])
    return lines


def held_out_as_text(results: Mapping[str, Any]) -> list[str]:
    """Return lines with the accuracy on held-out labels, of the fit and of other methods."""
    scores = results.get("held_out")
    if scores is None:
        return []
    if "accuracy" in scores:
        bounds = scores["accuracy"], *scores["accuracy_interval"]
        accuracy = "accuracy {:.3f} ({:.3f} to {:.3f})".format(*bounds)
    else:
        accuracy = f"best matching of clusters to classes {scores['best_matching_accuracy']:.3f}"
    # The interval is computed from fields, because the pixels of a field are similar.
    lines = [
        f"Held out  {accuracy} on {scores['groups_held_out']} of {scores['groups']} "
        f"{scores['unit']}, with {counted(scores['rows'], 'label')}"
    ]
    if scores["not_held_out"]:
        lines.append(
            f"{'':<10}not evaluated, because they have only one group: "
            f"{', '.join(scores['not_held_out'])}"
        )
    if "by_class" in scores:
        lines += _by_class_as_text(scores["by_class"])
    others = scores.get("baselines", {})
    for name, other in others.items():
        if not name.startswith("rows"):
            lines.append(f"{'':<10}{name}: {other:.3f} on {others['rows']} of the same labels")
    return [*lines, f"{'':<10}To use all labels, fit again without --hold-out."]


def _by_class_as_text(items: list[dict[str, Any]]) -> list[str]:
    width = max(5, *(len(item["class"]) for item in items))
    lines = [f"{'':<10}{'class':<{width}}  {'known':>9}  {'found':>9}  producer's  user's     F1"]
    for item in items:
        shown = (
            "-" if item[key] is None else f"{item[key]:.3f}" for key in ("producers", "users", "f1")
        )
        lines.append(
            f"{'':<10}{item['class']:<{width}}  {item['truth']:>9}  {item['labels']:>9}  "
            "{:>10}  {:>6}  {:>5}".format(*shown)
        )
    return lines


def fit_as_text(results: Mapping[str, Any]) -> list[str]:
    is_table, noise = "rows" in results, results.get("noise", 0)
    n = results["rows"] if is_table else results["pixels"]["valid"]
    noise_text = f", {noise} noise" if "noise" in results else ""
    columns, unit_of_weights = counted(len(results.get("columns", ())), "column"), "Columns"
    if "features" in results:
        columns, unit_of_weights = (
            f"{results['features']} values of {results['columns'][0]}",
            "Values",
        )
    # Trees have no iterations.
    words = {"n_iter": "iterations", "passes": "passes"}
    counts = [f"{results[key]} {word}" for key, word in words.items() if results.get(key)]
    lines = [
        f"Rows      {n - noise} clustered{noise_text} by {columns}"
        if is_table
        else f"Pixels    {n - noise} clustered{noise_text}, {results['pixels']['masked']} masked",
        "Fit       "
        + ", ".join([results["estimator"], f"{results['n_clusters']} clusters", *counts]),
    ]
    for key, label, unit in (
        ("inertia", "Inertia", ""),
        ("objective", "Objective", ""),
        ("lower_bound", "Bound", " of the log-likelihood a row"),
        ("features_used", unit_of_weights if is_table else "Bands", " with weight"),
        ("violations", "Violated", " pairs"),
    ):
        if key in results:
            value = results[key]
            shown = f"{value:.6g}" if isinstance(value, float) else value
            lines.append(f"{label:<10}{shown}{unit}")
    if "candidates" in results:
        lines += choice_as_text(results["candidates"])
    if "advice" in results:
        lines.append(f"Labels    {results['advice']}")
    sections = (classes_as_text, agreements_as_text, held_out_as_text, ending)
    return [*lines, *(line for section in sections for line in section(results))]


def add_classes(
    results: dict[str, Any], legend: Legend, sizes: Iterable[int], unit: str, **more: Any
) -> None:
    """Add sizes of classes in a unit, further values (`more`), and the size of the noise."""
    results["sizes"] = [int(size) for size in sizes]
    results["classes"] = [
        {"code": code, "name": name, unit: size}
        for code, name, size in zip(legend.codes, legend.names, results["sizes"], strict=True)
    ]
    for key, values in more.items():
        for item, value in zip(results["classes"], () if values is None else values, strict=False):
            item[key] = value
    if legend.noise is not None:
        results["noise"] = results["sizes"][legend.codes.index(legend.noise)]
