"""What a user gives to an estimator, checked with one wording for all."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

import dask.array as da
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator
from sklearn.utils import check_scalar, get_tags
from sklearn.utils.validation import validate_data

from daskclust.config import check_choice as check_choice
from daskclust.config import without_mask as without_mask
from daskclust.core.array_types import Array, Bools, Floats
from daskclust.core.engine import Rows, compute, is_dask, open_rows, read_again, unwrap
from daskclust.core.estimator.arrow import as_table
from daskclust.core.estimator.columns import check_dates, check_lazy_columns, column_at_fault
from daskclust.core.estimator.row_functions import column_name, infinite_message, nonfinite_message
from daskclust.core.persistence.mixin import check_same_data
from daskclust.core.reduction import Survey
from daskclust.core.reduction.survey import (
    HEAVIEST,
    LARGEST_VALUE,
    LIGHTEST,
    LOG_LARGEST,
    PartialSurvey,
)
from daskclust.core.warn import warn
from daskclust.exceptions import (
    ConstraintError,
    DaskclustWarning,
    MissingValuesWarning,
    PrecisionWarning,
)

_Drawn = Literal["k-means||", "k-means++", "random", "maximin", "dkm++", "robin"]
_Paired = Literal["auto", "ss-k-means||", "ss-k-means++", "neighborhoods"]
_View = Literal["raw", "standard", "angle", "whitened", "mean", "mixture", "pckid"]

#: First centers of estimators that know nothing but rows.
Init = _Drawn | ArrayLike | Callable[..., Any]
#: Of estimators that know pairs of rows.
InitWithPairs = _Paired | _Drawn | ArrayLike | Callable[..., Any]
#: Cost of a violated pair; a number is the factor of ``"scaled"``.
PairPenalty = Literal["scaled", "distance", "constant"] | float
#: Of estimators that know some labels.
InitWithLabels = (
    Literal["auto", "ss-k-means||", "ss-k-means++", "seeded-random"]
    | ArrayLike
    | Callable[..., Any]
)
#: Whether NaN is an error or a value that is not known.
Missing = Literal["error", "partial"]
#: Spaces in which prototypes are compared.
Views = Literal["auto"] | _View | tuple[_View, ...]


#: Starts that look at rows as they are.
_COMPLETE_STARTS = ("dkm++", "robin")


def check_integer(value: Any, name: str, minimum: int) -> None:
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}={value!r}; expected a whole number of {minimum} or more.")
    check_scalar(value, name, numbers.Integral, min_val=minimum)


def check_real(
    value: Any, name: str, minimum: float, *, boundaries: str = "left", maximum: float | None = None
) -> None:
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}={value!r}; expected a number.")
    check_scalar(
        value,
        name,
        numbers.Real,
        min_val=minimum,
        max_val=maximum,
        include_boundaries="both" if maximum is not None else boundaries,
    )
    if not np.isfinite(value):
        raise ValueError(f"{name} == {value}, must be finite.")


def is_partial(estimator: Any) -> bool:
    return getattr(estimator, "missing", "error") == "partial"


def check_missing(estimator: Any) -> None:
    """Check ``missing``, if there is one, and starts and metrics that need complete rows."""
    if not hasattr(estimator, "missing"):
        return
    check_choice(estimator.missing, "missing", ("error", "partial"))
    if is_partial(estimator) and getattr(estimator, "metric", "euclidean") != "euclidean":
        raise ValueError(
            f"metric={estimator.metric!r} needs complete rows and cannot go with missing="
            '"partial"; use metric="euclidean", on rows that are scaled as they should be.'
        )
    init = getattr(estimator, "init", None)
    if is_partial(estimator) and isinstance(init, str) and init in _COMPLETE_STARTS:
        raise ValueError(
            f'init={init!r} compares densities of complete rows and cannot go with missing="'
            'partial"; use "k-means||", "k-means++", "random", "maximin" or an array.'
        )


def data_centers(model: Any) -> Any:
    """Return the centers of a model in the space of its rows, not of an embedding, or None."""
    if hasattr(model, "embedding_dim"):
        return None
    return getattr(model, "cluster_centers_", getattr(model, "means_", None))


def check_same_features(what: str, mine: Any, theirs: Any) -> None:
    if mine is None or theirs is None or list(mine) == list(theirs):
        return
    if len(mine) == len(theirs):
        at = next(i for i, pair in enumerate(zip(mine, theirs, strict=True)) if pair[0] != pair[1])
        raise ValueError(
            f"{what} other features, or in another order: number {at} is {mine[at]!r} in one and "
            f"{theirs[at]!r} in the other. Fit with the same columns."
        )


def check_init_array(init: Any, n_clusters: int, n_features: int) -> Floats:
    """Return checked starting centers as float64; a fitted model stands for its centers."""
    if hasattr(init, "get_params"):
        kind = type(init).__name__
        init = data_centers(init)
        if init is None:
            raise ValueError(
                f"init is a {kind} without centers among the data; expected a fitted model that "
                "has cluster_centers_ (clones of models are not fitted), or an array."
            )
    centers = np.array(without_mask(fetched(init, "init"), "init"), dtype=np.float64, order="C")
    if centers.shape != (n_clusters, n_features):
        raise ValueError(
            f"The starting centers have shape {centers.shape}; with n_clusters={n_clusters} and "
            f"{n_features} features they must have shape ({n_clusters}, {n_features})."
        )
    if not np.isfinite(centers).all():
        row, column = np.argwhere(~np.isfinite(centers))[0]
        raise ValueError(
            f"The starting centers contain {centers[row, column]} (center {row}, feature "
            f"{column}); they must be finite."
        )
    return centers


def given_centers(
    init: Any, X: Any, n_clusters: int, n_features: int, seeds: tuple[int, ...]
) -> Floats:
    """Return starting centers (r, k, p): a callable is called for each seed."""
    found = [init]
    if callable(init):
        found = [init(X, n_clusters, np.random.RandomState(seed % 2**32)) for seed in seeds]
    return np.stack([check_init_array(centers, n_clusters, n_features) for centers in found])


@runtime_checkable
class Scene(Protocol):
    """An image whose valid pixels are the rows of a fit, such as :class:`daskclust.Cube`.

    Its `shape`, `samples` (n, p), `n_valid`, and `sample_scaling`, a dataclass, are left out here
    because looking for them would read the image.
    """

    def described(self) -> dict[str, Any]:
        """Return what is saved with a model."""

    def scaled_as(self, scaling: Any) -> Any: ...

    def open_map(self, name: str, image: Any) -> Any:
        """Open a label map that lies where the image does."""

    def rows_of(self, label_map: Any) -> Any: ...

    def sample_pixels(self, count: int, seed: int) -> Any:
        """Draw rows, and pairs of adjacent ones; one pass."""

    def places_of_rows(self, rows: Any) -> Any:
        """Return numbers of rows that do not depend on the chunks."""

    def count_neighbors(self, connectivity: Any, weight: Any = None) -> Any:
        """Count near nodes, and nodes of adjacent pixels; one pass."""


def fetched(values: Any, name: str) -> Any:
    """Return values, of a lazy array with reads that are checked."""
    values = unwrap(values)
    return compute(name, read_again(values))[0] if is_dask(values) else values


def unmasked(y: Any) -> Any:
    """Return labels as they are, with no label where they are masked, or missing in a table."""
    if hasattr(y, "isna") and not isinstance(y.dtype, np.dtype):
        # A nullable column, which NumPy would turn into floats with NaN.
        values = np.array(y, dtype=object)
        values[np.asarray(y.isna())] = None
        return values
    if not isinstance(y, np.ma.MaskedArray):
        return y
    if y.dtype.kind in "iuf":
        return np.ma.filled(y.astype(np.float64 if y.dtype.kind == "f" else np.int64), -1)
    if y.dtype.kind in "USO":
        return np.ma.filled(y.astype(object), "-1")
    return np.ma.getdata(y)  # refused for its type


def labels_for(X: Any, y: Any) -> tuple[Any, Any]:
    """Return partial labels as they are, and of a label map ``(rows, labels)`` and itself, opened.

    A label map is what :meth:`daskclust.Cube.rows_of` takes: (y, x), or a path or group of one.
    """
    if y is None or isinstance(y, tuple | list | numbers.Number) or not isinstance(X, Scene):
        return y, None
    cube: Any = X
    n_dims = len(getattr(y, "shape", ())) or None
    is_map = n_dims == 2 and (y.shape[1] != 1 or cube.shape[1] == 1)
    if n_dims is not None and not is_map:
        return y, None
    opened = cube.open_map("label_map", y)
    return cube.rows_of(opened), opened


def pairs_for(X: Any, pairs: Any, name: str) -> Any:
    """Return pairs of row numbers; text, dates and the like are looked up in the index of X.

    Integers are row numbers, whatever the index is.
    """
    pandas = sys.modules.get("pandas")
    if pandas is None or pairs is None or not isinstance(X, pandas.DataFrame):
        return pairs
    values = np.asarray(pairs)
    integers = values.dtype.kind == "O" and all(isinstance(v, numbers.Number) for v in values.flat)
    if values.dtype.kind in "biufc" or values.size == 0 or integers:
        return pairs
    if not X.index.is_unique:
        label = X.index[X.index.duplicated()][0]
        raise ConstraintError(
            f"{name} gives index labels, and the index of X repeats the label {label!r}; expected "
            "a unique index. Pass row numbers."
        )
    rows = X.index.get_indexer(pandas.Index(values.ravel())).reshape(values.shape)
    if (rows < 0).any():
        missing = values[rows < 0].tolist()
        raise ConstraintError(
            f"{name} contains {missing[0]!r}, which is not in the index of X; expected index "
            "labels of X or row numbers."
        )
    return rows


def as_labels(y: Any) -> Any:
    """Return partial labels as a pair (rows, labels), or a NumPy or Dask array of shape (n,)."""
    if isinstance(y, tuple) and len(y) == 2 and all(np.ndim(part) == 1 for part in y):
        if np.ma.is_masked(y[0]):
            at = int(np.argmax(np.ma.getmaskarray(y[0])))
            raise ConstraintError(
                f"The rows of y = (rows, labels) are masked, the first at position {at}; expected "
                "a row number for each label. Leave out what is masked from both."
            )
        rows, labels = (fetched(part, "y") for part in y)
        return np.asarray(rows), np.asarray(unmasked(labels))
    if hasattr(y, "to_dask_array"):
        # Of nullable and text columns Dask would make objects too, but warn.
        y = y.astype(object)
    y = unwrap(y)
    if getattr(y, "ndim", 1) == 2 and hasattr(y, "iloc") and y.shape[1] == 1:
        y = y.iloc[:, 0]
    if not is_dask(y):
        y = np.asarray(unmasked(y))
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise ConstraintError(
            f"y has shape {y.shape}; expected one label a row, -1 where there is none, or "
            "y=(rows, labels)."
        )
    return y


def _check_dask(X: Any) -> Any:
    if X.ndim > 2:
        # To reshape an image of (band, y, x) would mix bands and pixels.
        raise ValueError(
            f"Expected a Dask array of 2 dimensions (rows, features), got {X.ndim} of shape "
            f"{X.shape}. For an image use daskclust.open_cube(X, dims=...).samples, which knows "
            "the order of its axes; for other data bring the features to the last axis, then "
            "X.reshape(-1, X.shape[-1])."
        )
    if X.ndim != 2:
        raise ValueError(
            f"Expected a Dask array of 2 dimensions (rows, features), got {X.ndim} of shape "
            f"{X.shape}. Use X[:, None] for a single feature."
        )
    if X.dtype.kind not in "fiub":
        raise ValueError(
            f"X has dtype {X.dtype}; daskclust needs real numbers. Use X.astype('float32') if "
            "its values are numbers."
        )
    n, p = X.shape
    if np.isnan(p):
        raise ValueError(
            "X is a Dask array of an unknown number of columns; expected a known one. Use "
            "X.compute_chunk_sizes(), or give blocks of a known shape to map_blocks (chunks=)."
        )
    for size, unit in ((n, "sample(s)"), (p, "feature(s)")):
        if size == 0:
            raise ValueError(
                f"Found array with 0 {unit} (shape={X.shape}) while a minimum of 1 is required."
            )
    return X


#: Types of values that stay as they are; of others float64 is made.
_KEPT = [np.float64, np.float32, np.float16, np.int8, np.uint8, np.int16, np.uint16]

#: An estimator's record of its cube: its description, and its scaling, by attribute.
_SCENE = "_cube_data"
_SCALING = {
    "_cube_scale": "kind",
    "_cube_mean": "mean",
    "_cube_std": "std",
    "_cube_matrix": "matrix",
}
#: All that an estimator remembers of X besides the number of features.
ORIGIN = ("feature_names_in_", _SCENE, *_SCALING)


def cube_of_fit(estimator: Any, cube: Any) -> Any:
    """Return a cube of the same bands and units, scaled as that of the fit."""
    if not hasattr(estimator, "_cube_scale"):
        return cube
    # Bands without any data are left out when pixels are counted.
    scaling = cube.sample_scaling
    check_same_data(estimator, cube)
    known = {of: getattr(estimator, name, None) for name, of in _SCALING.items()}
    return cube.scaled_as(replace(scaling, **known))


def check_rows(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """Return X, or the `samples` of a cube, as a NumPy or Dask array, checked by its metadata.

    Values are left to the first pass.  Sets (`reset`) or compares ``n_features_in_`` and
    ``feature_names_in_``.
    """
    if reset:
        # What is known of the scene of the last fit.
        for name in (_SCENE, *_SCALING):
            vars(estimator).pop(name, None)
        if isinstance(X, Scene):
            known: Any = X
            for name, of in _SCALING.items():
                value = getattr(known.sample_scaling, of)
                if value is not None:
                    setattr(estimator, name, value)
            setattr(estimator, _SCENE, known.described())
            X = known.samples
    elif isinstance(X, Scene):
        X = cube_of_fit(estimator, X).samples
    X = as_table(X)
    check_dates(X)
    if hasattr(X, "to_dask_array"):
        check_lazy_columns(X)
        if X.ndim == 1:
            raise ValueError(
                f"X must have rows and features, got the Dask Series {X.name!r}. Use X.to_frame() "
                "for a single feature."
            )
    data = table = unwrap(X)
    if hasattr(table, "to_numpy") and not (hasattr(table, "columns") or hasattr(table, "iloc")):
        data = table.to_numpy()  # a column of vectors, such as a polars Series of arrays
    if np.ma.is_masked(data):
        # NumPy would go on with what is below the mask.
        if get_tags(estimator).input_tags.allow_nan and data.dtype.kind in "fiub":
            dtype = data.dtype if data.dtype.kind == "f" else np.float64
            return check_rows(estimator, np.ma.filled(data.astype(dtype), np.nan), reset=reset)
        row = int(np.flatnonzero(np.ma.getmaskarray(data).reshape(len(data), -1).any(axis=1))[0])
        raise ValueError(
            f"X is a masked array with masked values, the first in row {row}; daskclust needs all "
            "values. Leave such rows out, or use an estimator that models missing values."
        )
    if is_dask(data):
        data = _check_dask(data)
        names, named = getattr(X, "columns", None), data
        if names is not None:
            # Names and their order are checked on an empty table with the same columns.
            import pandas

            named = pandas.DataFrame(columns=names)
        validate_data(estimator, named, reset=reset, skip_check_array=True)
        return data
    if getattr(getattr(data, "dtype", None), "kind", "f") in "mMUS":
        # scikit-learn would take nanoseconds for numbers, and read text.
        raise ValueError(
            f"X has dtype {data.dtype}; daskclust needs real numbers. Use X.astype('float32') if "
            "its values are numbers."
        )
    try:
        return validate_data(
            estimator, data, reset=reset, dtype=_KEPT, order="C", ensure_all_finite=False
        )
    except (TypeError, ValueError) as error:
        fault = column_at_fault(table)
        if fault is None:
            raise
        raise ValueError(fault) from error


def _constant(x: NDArray[Any], value: float) -> Floats:
    return np.full(len(x), value)


def check_output(estimator: Any, X: Any) -> None:
    """Refuse tables as results of lazy input: they would bring all rows to the client."""
    graph = getattr(X, "__dask_graph__", None)
    if not isinstance(X, Scene) and (graph is None or graph() is None):
        return
    # Where scikit-learn keeps what `set_output` of an estimator was given; else it is for all.
    own = vars(estimator).get("_sklearn_output_config", {})
    kind = own.get("transform", get_config()["transform_output"])
    if kind != "default":
        raise ValueError(
            f"set_output(transform={kind!r}) would bring a table of all rows to the client; X is "
            'lazy. Use set_output(transform="default"), which returns a lazy array, and '
            "dask.dataframe.from_dask_array(result, columns=model.get_feature_names_out())."
        )


def check_weight(sample_weight: Any, X: Any) -> Any:
    """Return weights fit for X: None, a NumPy or a Dask array; values are checked by a pass."""
    if sample_weight is None:
        return None
    n = X.shape[0]
    if isinstance(sample_weight, numbers.Real):
        if sample_weight == 1:
            return None
        value = float(sample_weight)
        if not is_dask(X):
            return np.full(n, value)
        if not np.isnan(n):
            return da.full(n, value)
        return X[:, 0].map_blocks(
            _constant, value, dtype=np.dtype(np.float64), meta=np.empty(0), token="daskclust-weight"
        )
    if hasattr(sample_weight, "to_dask_array") and not np.isnan(n):
        # Where rows have numbers, those of a Dask Series are counted, to be cut like X.
        weight = sample_weight.to_dask_array(lengths=True)
    else:
        weight = unwrap(sample_weight)
    if not is_dask(X):
        # As values, whose mask is seen here, and not by a conversion that drops it.
        weight = fetched(weight, "sample_weight")
    if np.ma.is_masked(weight):
        raise ValueError(
            "sample_weight is a masked array with masked values, the first in row "
            f"{int(np.argmax(np.ma.getmaskarray(weight)))}; expected a weight for each row. A "
            "weight of 0 leaves a row out: sample_weight.filled(0)."
        )
    if not is_dask(weight):
        weight = np.asarray(weight)
    if weight.dtype.kind not in "fiubO":
        raise ValueError(f"sample_weight has dtype {weight.dtype}; expected numbers.")
    if not is_dask(weight) and weight.dtype.kind == "O":
        try:
            weight = weight.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"sample_weight holds a value that is no number ({error}); expected numbers."
            ) from error
    known = not (np.isnan(n) or np.isnan(weight.shape[:1]).any())
    if weight.ndim != 1 or (known and weight.shape[0] != n):
        raise ValueError(
            f"sample_weight has shape {weight.shape}; X has {n} rows. Give one weight a row, as a "
            "1D array."
        )
    if is_dask(X):
        return weight
    return np.asarray(weight, dtype=np.float64)


@dataclass
class Data:
    """Checked data, opened once, and what an estimator records of X (`origin`, by attribute).

    `cube` is the scene whose samples are X, if there is one. Features that an estimator has made
    have no units that a user could change.
    """

    X: Any
    weight: Any = None
    origin: Mapping[str, Any] = field(default_factory=dict)
    opened: Rows | None = None
    cube: Any = None
    has_units: bool = True

    @property
    def rows(self) -> Rows:
        """The data, bound when first asked for; chunks of unknown length are counted by a pass."""
        if self.opened is None:
            self.opened = open_rows(self.X, self.weight)
        return self.opened

    def through(self, rows: Rows) -> Data:
        return replace(self, opened=rows)

    @property
    def names(self) -> Any:
        """Names of the features, where X has names; else None."""
        return self.origin.get("feature_names_in_")

    @property
    def n_rows(self) -> float:
        """Number of rows; NaN where that takes a pass which is not made yet."""
        return self.X.shape[0] if self.opened is None else self.opened.n_rows


def check_enough_rows(data: Data, count: int, of: str = "clusters") -> None:
    """Raise where there are fewer rows than clusters; not where rows are not counted yet."""
    if data.n_rows < count:
        raise ValueError(
            f"n_samples={data.n_rows} should be >= n_{of}={count}. Ask for fewer {of}."
        )


def check_data(X: Any, sample_weight: Any = None, estimator: BaseEstimator | None = None) -> Data:
    """Check what is known without a look at the values; tell the estimator of the features."""
    estimator = BaseEstimator() if estimator is None else estimator
    cube = X if isinstance(X, Scene) else None
    X = check_rows(estimator, X, reset=True)
    known = vars(estimator)
    origin = {name: known[name] for name in ORIGIN if name in known}
    return Data(X, check_weight(sample_weight, X), origin, cube=cube)


#: Steps between numbers near the mean, as a share of the spread, that are too coarse.
_COARSE = 1e-3


def check_values(survey: Survey, names: Any = None) -> None:
    """Raise for the first value that must not be there, for too large ones, and unusable weights.

    NaN means missing in a :class:`PartialSurvey`. `names` are those of the columns, if any.
    """
    if survey.first_bad is not None:
        row, place = survey.first_bad[0], column_name(survey.first_bad[1], names)
        if isinstance(survey, PartialSurvey):
            raise ValueError(infinite_message(row, place))
        raise ValueError(nonfinite_message(survey.bad_is_nan, row, place))
    # Squares must not overflow.
    size = np.maximum(np.abs(survey.low), np.abs(survey.high))
    # Without any value the range is (inf, -inf).
    size[survey.low > survey.high] = 0.0
    # A row of weight 0 is measured, too: it gets a label, and 0 times infinity is NaN.
    size = np.maximum(size, survey.idle)
    if (size > LARGEST_VALUE).any():
        column = int(np.argmax(size))
        raise ValueError(
            f"Column {column_name(column, names)} of X has values up to {size[column]:.3g} in "
            f"size; squared distances overflow beyond {LARGEST_VALUE:g}. Mask such "
            "values if they stand for missing data, else rescale the column."
        )
    largest = float(size.max(initial=0.0))
    # The logarithm, since the product itself would overflow.
    if largest and survey.weight > 0 and np.log(survey.weight) + 2 * np.log(largest) > LOG_LARGEST:
        raise ValueError(
            f"Weights of {survey.weight:.3g} in all, values up to {largest:.3g} in size: sums of "
            "squared distances overflow. Divide the weights by their mean, or rescale X."
        )
    if survey.bad_weight_row is not None:
        raise ValueError(
            f"sample_weight of row {survey.bad_weight_row} is NaN, infinite or negative, or too "
            "small or large to be summed; weights must be finite and non-negative: 0, or from "
            f"{LIGHTEST:g} to {HEAVIEST:g}. Divide them by their mean."
        )


def check_survey(
    survey: Survey,
    said: str | None = "they are left out, and their label is -1",
    names: Any = None,
) -> None:
    """Raise for what no fit can use, columns without any value included.

    Warn of rows without any value, of which something is `said`.
    """
    check_values(survey, names)
    if survey.weight <= 0:
        raise ValueError("All sample weights are zero; at least one must be positive.")
    if isinstance(survey, PartialSurvey):
        if survey.informed <= 0:
            raise ValueError("X has no value at all: every entry is NaN.")
        empty = np.flatnonzero(survey.observed <= 0)
        if len(empty):
            columns = [column_name(at, names) for at in empty.tolist()]
            raise ValueError(
                f"Column {columns[0]} of X has no value at all: every entry is NaN. Drop the "
                f"columns {', '.join(columns)}."
            )
        if survey.n_unobserved and said is not None:
            warn(
                f"{survey.n_unobserved} row(s) of X have no value at all, the first is row "
                f"{survey.first_unobserved}: {said}.",
                MissingValuesWarning,
            )
    # Means are rounded to steps, which may no longer be small beside the spread.
    mean, spread = survey.mean, float(np.sqrt(survey.variance.sum()))
    if not (np.isfinite(mean).all() and np.isfinite(spread) and spread > 0):
        return
    steps = np.spacing(np.abs(mean))
    column = int(np.argmax(steps))
    if steps[column] > _COARSE * spread:
        warn(
            f"Column {column_name(column, names)} of X lies about {mean[column]:.3g}, where "
            f"numbers of float64 are {steps[column]:.3g} apart; rows spread by {spread:.3g} "
            "in all. Centers are rounded to such steps, and inertia and labels with them. Use X - "
            "X.mean(axis=0), or leave out constant columns.",
            PrecisionWarning,
        )


#: Share of the variance of all features from which one of them decides distances alone.
_DOMINANT = 0.99


def dominant_feature(variances: Floats, varies: Bools) -> tuple[int, float] | None:
    """Return the feature with nearly all of the variance, and its share; None if there is none.

    `varies` tells which features have more than one value: the others are not outweighed.

    >>> dominant_feature(np.array([1.0, 999.0]), np.array([True, True]))
    (1, 0.999)
    >>> dominant_feature(np.array([0.0, 999.0]), np.array([False, True])) is None
    True
    """
    total = float(variances.sum())
    if np.count_nonzero(varies) < 2 or not 0 < total < np.inf:
        return None
    at = int(np.argmax(variances))
    share = float(variances[at] / total)
    return (at, share) if share >= _DOMINANT else None


def warn_of_dominance(survey: Survey, names: Any, *, is_scene: bool) -> None:
    """Warn where distances depend on one feature alone, which other units would change."""
    found = dominant_feature(survey.variance, survey.low < survey.high)
    if found is None:
        return
    at, share = found
    what, page, remedy = (
        ("Band", "how-to/scenes", 'open_cube(..., scale="standard"), --scale standard')
        if is_scene
        else ("Column", "how-to/tables", "sklearn.preprocessing.StandardScaler")
    )
    warn(
        f"{what} {column_name(at, names)} of X has {as_percent(share)} of the variance, so that it "
        f"decides the clusters almost alone. Scale the {what.lower()}s first ({remedy}), unless "
        f"all are in one unit. See the page {page}.",
        DaskclustWarning,
    )


def as_percent(share: float) -> str:
    """Return a large share in percent, never rounded up to all.

    >>> as_percent(0.99), as_percent(0.99996)
    ('99.0 %', 'over 99.9 %')
    """
    return "over 99.9 %" if share > 0.999 else f"{100 * share:.1f} %"


#: What an estimator remembers of the range of its data.
_LOW, _HIGH, _ROWS = "_fit_low", "_fit_high", "_fit_rows"


def remember_range(estimator: Any, survey: Survey, n_rows: int) -> None:
    """Let an estimator remember the least and the largest value of each feature."""
    setattr(estimator, _LOW, np.asarray(survey.low, dtype=np.float64))
    setattr(estimator, _HIGH, np.asarray(survey.high, dtype=np.float64))
    setattr(estimator, _ROWS, int(n_rows))


def forget_range(estimator: Any) -> None:
    """Let an estimator forget the range of its data."""
    for name in (_LOW, _HIGH, _ROWS):
        vars(estimator).pop(name, None)


def rows_outside(estimator: Any, x: Array) -> tuple[float, int] | None:
    """Return which share of rows lies outside the range of the fit, and the feature that most do.

    None where it is no more than half, beyond what rows of the same distribution do by chance: a
    value exceeds the range of n others with probability 2 / (n + 1). Missing values do not.
    """
    if not hasattr(estimator, _ROWS) or not len(x):
        return None
    outside = (x < getattr(estimator, _LOW)) | (x > getattr(estimator, _HIGH))
    by_feature = outside.mean(axis=0)
    chance = 2.0 / (getattr(estimator, _ROWS) + 1)
    share, at = float(outside.any(axis=1).mean()), int(np.argmax(by_feature))
    many = by_feature[at] > 0.5 + chance or share > 0.5 + chance * x.shape[1]
    return (share, at) if many else None
