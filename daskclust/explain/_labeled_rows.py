"""Rows with labels: names of labels, and tables with categories as columns of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from daskclust.colors import name_of
from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.engine import (
    Carry,
    Rows,
    as_label_vector,
    distinct,
    is_dask,
    open_labeled_rows,
    open_rows,
    unwrap,
)
from daskclust.core.estimator.base import center_space, label_function
from daskclust.core.estimator.columns import check_dates
from daskclust.core.estimator.validation import (
    Scene,
    as_percent,
    check_dense,
    check_rows,
    is_partial,
    rows_outside,
)
from daskclust.core.persistence.mixin import class_names_of, clusters_are_classes, merged_classes_of
from daskclust.core.reduction import Reduction
from daskclust.core.warn import warn
from daskclust.exceptions import DaskclustWarning
from daskclust.explain.profile_reductions import CenterDistances, RowLabels
from daskclust.scenes.bands import name_of_samples

#: Label of rows without a label.
NO_LABEL = -1
#: Name of label -1 in maps and reports, for models that detect noise.
NOISE = "noise"
#: Bytes of a predicted label and of a distance.
_LABEL_BYTES = 4 + 8
#: Maximum number of levels of a categorical column.
_MAX_LEVELS = 100


@dataclass(frozen=True)
class Labeled:
    """Rows and their labels.

    Lazy labels are an additional last column of `rows`.  Otherwise `row_labels` is an array of
    labels, or a function that computes them.  `classes` are the names of the labels 0, 1, ..., if
    labels are text.  Rows with the label `ignored` are ignored.
    """

    rows: Rows
    X: Any
    stored_labels: Any
    row_labels: RowLabels
    features: list[str]
    classes: Array | None
    ignored: int | None
    cube: Any
    model: Any
    #: Wavelengths of the features, and name and unit of the values, if X is a cube with metadata.
    wavelengths: Floats | None
    values_are: str | None

    @property
    def labels(self) -> Any:
        """Return the labels of all rows."""
        return self.model.predict(self.X) if callable(self.row_labels) else self.stored_labels

    def name(self, label: int) -> str:
        """Return the name of a label."""
        return name_of_label(self.model, self.classes, label)

    def classes_of(self, labels: Ints) -> list[str | None]:
        """Return the class of each cluster; None for clusters without a class."""
        return [_class_of(self.model, label) for label in labels.tolist()]

    def reduce(self, reduction: Reduction, request: Any, carry: Carry) -> Any:
        """Run a pass.  Blocks store the labels that they compute if there is enough memory."""
        store_labels = callable(self.row_labels) and self.rows.can_keep(_LABEL_BYTES)
        return self.rows.reduce(
            reduction if store_labels else reduction.without_carry(), request, carry
        )

    def check_range(self, x: Array) -> None:
        """Warn if most of these rows are outside the range of the data of the fit."""
        columns = self._columns_of_fit()
        result = rows_outside(self.model, x[:, columns]) if columns else None
        if not columns or result is None:
            return
        share, feature = result
        name, values = self.features[columns[feature]], x[:, columns[feature]]
        low, high = self.model._fit_low[feature], self.model._fit_high[feature]
        warn(
            f"{as_percent(share)} of the rows of X are outside the range of the data that the "
            f"{type(self.model).__name__} was fitted on, most of them in {name!r}: "
            f"{np.nanmin(values):.4g} to {np.nanmax(values):.4g}, and in the fit {low:.4g} to "
            f"{high:.4g}. Their clusters are not reliable. Scale X as for the fit, or pass the "
            "complete pipeline as model.",
            DaskclustWarning,
        )

    def _columns_of_fit(self) -> list[int]:
        """Return the columns of the features of the fit, or an empty list if one is missing."""
        if self.model is None:
            return []
        names = getattr(self.model, "feature_names_in_", None)
        if names is None or list(map(str, names)) == self.features:
            p = getattr(self.model, "n_features_in_", None)
            return list(range(p)) if p == len(self.features) else []
        columns = {name: column for column, name in enumerate(self.features)}
        complete = all(str(name) in columns for name in names)
        return [columns[str(name)] for name in names] if complete else []

    @property
    def joined(self) -> dict[int, int]:
        """Clusters that were joined: the new label for each old label."""
        if self.model is None or hasattr(self.model, "cluster_classes_"):
            return {}
        return merged_classes_of(self.model)

    @property
    def n_clusters(self) -> int | None:
        """Number of clusters of the model, or None if it has no centers."""
        space = None if self.model is None else center_space(self.model)
        return None if space is None else len(space.centers)

    def center_distances(self, labels: Ints, means: Floats, deviations: Floats) -> CenterDistances:
        """Return the centers of the model and its distances.

        Without comparable centers, use the means of the rows.  Features are then divided by their
        standard deviations.
        """
        space = None if self.model is None else center_space(self.model)
        if (
            space is None
            or self.X.shape[1] != self.model.n_features_in_
            or merged_classes_of(self.model)
        ):
            scale = np.where(deviations > 0, deviations, 1.0)
            return CenterDistances(means, scale**-2.0)
        centers = np.full((len(labels), space.centers.shape[1]), np.nan)
        has_center = (labels >= 0) & (labels < len(space.centers))
        centers[has_center] = space.centers[labels[has_center]]
        # With missing values, the model uses other distances, which are scaled to all features.
        are_of_labels = (
            callable(self.row_labels) and space.metric is None and not is_partial(self.model)
        )
        return CenterDistances(centers, space.feature_weights, space.metric, are_of_labels)


def _name_of(model: Any, label: int, default: str) -> str:
    class_name = _class_of(model, label)
    if class_name is not None:
        return f"{class_name} ({label})"
    if hasattr(model, "cluster_classes_"):
        return default
    if clusters_are_classes(model) and model.classes_.dtype.kind in "iu":
        default = name_of(label)
    is_noise = label == NO_LABEL and getattr(model, "_finds_noise", False)
    return NOISE if is_noise else class_names_of(model)[0].get(label, default)


def _class_of(model: Any, label: int) -> str | None:
    """Return the name of the class of a cluster; None if clusters have no classes."""
    names, class_index = class_names_of(model)[0], getattr(model, "cluster_classes_", None)
    if class_index is None or not 0 <= label < len(class_index):
        return None
    classes = model.classes_
    codes = np.arange(len(classes)) if classes.dtype.kind not in "iub" else classes
    if class_index[label] < 0:
        # A cluster without a class has a code above the codes of the classes.
        code = int(codes.max(initial=-1)) + 1 + int((class_index[:label] < 0).sum())
        default = name_of(code, kind="cluster")
    else:
        code, default = int(codes[class_index[label]]), str(classes[class_index[label]])
    code = merged_classes_of(model).get(code, code)
    if class_index[label] >= 0 and classes.dtype.kind in "iub":
        default = name_of(code)
    return names.get(code, default)


def model_input(model: Any, X: Any) -> Any:
    """Select the columns of a table that the model was fitted on; return other data unchanged."""
    names = getattr(model, "feature_names_in_", None)
    columns = getattr(X, "columns", None)
    if names is None or columns is None or list(columns) == list(names):
        return X
    missing = [name for name in names if name not in set(columns)]
    if missing:
        raise ValueError(
            f"X must have the columns of the fit; {missing[0]!r} is missing, got "
            f"{[str(c) for c in columns]}."
        )
    return X[list(names)]


def _levels(column: Any, name: Any) -> list[Any]:
    categorical = hasattr(column, "cat")
    if hasattr(column, "to_dask_array"):
        if not categorical or not column.cat.known:
            raise ValueError(
                f"Column {name!r} must have numbers or known categories, got text with unknown "
                f"levels. Use X.categorize([{name!r}]), or omit the column."
            )
        return list(column.cat.categories)
    return list(column.cat.categories) if categorical else sorted(set(column.dropna()), key=str)


def _columns_of(frame: Any, *, dummies: list[tuple[Any, Any]]) -> Any:
    """Return a pandas table with a column of 0 and 1 for each level of each category."""
    import pandas

    out = {}
    for number, (name, level) in enumerate(dummies):
        column = frame[name]
        if level is None:
            out[number] = column.astype("float64")
        else:
            out[number] = (column == level).astype("float64").where(column.notna())
    return pandas.DataFrame(out, index=frame.index)


def _as_numbers(X: Any) -> tuple[Any, list[str]]:
    check_dates(X)
    dummies: list[tuple[Any, Any]] = []
    are_numbers = True
    for name in X.columns:
        dtype = X[name].dtype
        kind = getattr(dtype, "kind", "O")
        if not hasattr(X[name], "cat") and kind in "iufb":
            dummies.append((name, None))
            are_numbers = are_numbers and isinstance(dtype, np.dtype)
            continue
        are_numbers = False
        levels = _levels(X[name], name)
        if len(levels) > _MAX_LEVELS:
            raise ValueError(
                f"Column {name!r} must have at most {_MAX_LEVELS} levels, got {len(levels)}. Omit "
                "it, or join levels."
            )
        dummies.extend((name, level) for level in levels)
    names = [str(name) if level is None else f"{name} = {level}" for name, level in dummies]
    if are_numbers:
        return unwrap(X) if hasattr(X, "to_dask_array") else X.to_numpy(), names
    convert = partial(_columns_of, dummies=dummies)
    if hasattr(X, "to_dask_array"):
        meta = convert(X._meta)
        return X.map_partitions(convert, meta=meta).to_dask_array(), names
    return convert(X).to_numpy(), names


def _join_labels(labels: Ints, *, targets: Mapping[int, int]) -> Ints:
    out = labels.astype(np.int64)
    for code, target in targets.items():
        out[labels == code] = target
    return out


def _codes(values: Array, *, classes: Array) -> Ints:
    return np.searchsorted(classes, values).astype(np.int64)


def _labels(y: Any) -> tuple[Any, Array | None]:
    """Return labels as numbers (-1 for missing labels), and the names of text labels."""
    values = unwrap(y)
    if not is_dask(values):
        values = np.asanyarray(values)
        if values.dtype.kind in "USO" and values.ndim == 1:
            names = distinct(values, "y", masked=True)
            if names.dtype.kind != "O" or all(isinstance(name, str) for name in names.tolist()):
                return as_label_vector(values, "y", masked=True), names
    return as_label_vector(values, "y", masked=True), None


def name_of_label(model: Any, classes: Array | None, label: int) -> str:
    """Return the name of a label; without a model, it is a label that the user passed."""
    default = str(label)
    if classes is not None and 0 <= label < len(classes):
        default = str(classes[label])
    return default if model is None else _name_of(model, label, default)


def labels_of(model: Any, X: Any, y: Any) -> tuple[Any, Array | None]:
    """Return the labels `y`, or the predictions of a model, as numbers; and names of text."""
    if (model is None) == (y is None):
        raise ValueError(
            "Either model or y must be set, got "
            f"{'None for both' if y is None else 'both'}. Pass a fitted model, or None and labels."
        )
    return _predicted(model, model.predict(X)) if y is None else _labels(y)


def _predicted(model: Any, labels: Any) -> tuple[Any, Array | None]:
    """Return labels of a model as numbers, and their names if they are text."""
    numbers, names = _numbered(model, labels)
    targets = merged_classes_of(model)
    if not targets or hasattr(model, "cluster_classes_"):
        return numbers, names
    return _mapped(numbers, partial(_join_labels, targets=targets)), names


def _numbered(model: Any, labels: Any) -> tuple[Any, Array | None]:
    classes = getattr(model, "classes_", None)
    if labels.dtype.kind in "iu" or classes is None:
        return labels, None
    classes = np.asarray(classes)
    order = np.sort(classes)
    return _mapped(labels, partial(_codes, classes=order)), order


def _mapped(labels: Any, function: Callable[[Array], Ints]) -> Any:
    if is_dask(labels):
        return labels.map_blocks(function, dtype=np.int64, meta=np.empty(0, np.int64))
    return function(np.asarray(labels))


def open_labeled(
    model: Any,
    X: Any,
    y: Any = None,
    features: Sequence[str] | None = None,
    predicted: Any = None,
    store_labels: bool = False,
) -> Labeled:
    """Combine rows with labels `y`, or with the predictions of a model.

    `predicted` are predictions that exist already, for example ``labels_``.  With `store_labels`,
    rows in memory are labeled once, and not again in each pass.
    """
    if model is None and y is None:
        raise ValueError(
            "model or y must be set, got None for both. Pass a fitted model, or labels as y."
        )
    if model is not None and predicted is None and not hasattr(model, "predict"):
        raise TypeError(
            f"model must have predict, got a {type(model).__name__}. For labels such as labels_ of "
            "DBSCAN, use profiles(None, X, labels)."
        )
    cube: Any = X if isinstance(X, Scene) else None
    features = None if features is None else list(features)
    wavelengths, values_are = None, None
    if cube is not None:
        data = check_rows(model, X, reset=False) if model is not None else cube.samples
        kind = getattr(model, "_cube_scale", cube.sample_scaling.kind)
        values_are = name_of_samples(cube.attributes, kind)
        if kind == "whitened":
            features = [f"direction {number}" for number in range(data.shape[1])]
        elif cube.wavelengths is not None:
            wavelengths = cube.wavelengths
            features = [f"{center:g} nm" for center in np.round(wavelengths, 2)]
            if len(set(features)) < len(features):  # several dates, or overlapping detectors
                numbers = zip(features, cube.bands, strict=True)
                features = [f"{name} (band {band})" for name, band in numbers]
        else:
            features = cube.band_names or [f"band {band}" for band in cube.bands]
        model_rows = X
    else:
        check_dense(X)
        model_rows = X if model is None else model_input(model, X)
        if hasattr(X, "columns"):
            data, features = _as_numbers(X)
        elif model is None:
            data = unwrap(X)
            data = data if is_dask(data) or np.ma.isMA(data) else np.asarray(data)
        else:
            data = check_rows(model, X, reset=False)
    if model is not None:
        check_is_fitted(model)
    if data.ndim != 2 or data.dtype.kind not in "fiub":
        raise ValueError(
            f"X must have shape (n, p) and numbers, got shape {data.shape} and dtype {data.dtype}."
        )
    if features is None:
        features = [f"x{j}" for j in range(data.shape[1])]
    predictor, ignored = (model, None) if y is None else (None, NO_LABEL)
    row_labels: RowLabels = None
    by_block = y is None and predicted is None and not hasattr(X, "columns")
    if by_block and not merged_classes_of(model) and not (store_labels and not is_dask(data)):
        function = label_function(model, data.dtype)
        row_labels = None if function is None else function.labeled
    if row_labels is not None:
        # Each block is labeled on the worker that holds it.
        one_chunk = not is_dask(data) or data.numblocks[1] == 1
        rows = open_rows(data if one_chunk else data.rechunk({1: -1}))
        predicted, classes = None, None
    elif y is None:
        predicted, classes = _predicted(
            model, model.predict(model_rows) if predicted is None else predicted
        )
    else:
        predicted, classes = _labels(y)
    if row_labels is None:
        if is_dask(data) or is_dask(predicted) or len(data) != len(predicted):
            rows = open_labeled_rows(data, predicted, masked=True)
        else:
            rows, row_labels = open_rows(data), np.asarray(predicted)
    metadata = wavelengths, values_are
    return Labeled(
        rows, data, predicted, row_labels, features, classes, ignored, cube, predictor, *metadata
    )
