"""Check the arguments of estimators, with the same error text for all."""

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
from sklearn.utils import get_tags
from sklearn.utils.validation import validate_data

from daskclust.config import check_choice as check_choice
from daskclust.config import without_mask as without_mask
from daskclust.core.array_types import Array, Bools, Floats
from daskclust.core.engine import Rows, compute, is_dask, open_rows, read_again, unwrap
from daskclust.core.estimator.arrow import as_table
from daskclust.core.estimator.columns import check_dates, check_lazy_columns, column_at_fault
from daskclust.core.estimator.parameters import Interval, check_value
from daskclust.core.estimator.row_functions import column_name, infinite_message, nonfinite_message
from daskclust.core.kernels.sparse import canonical, is_sparse
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

#: Initializations that choose rows of the data.
NamedInit = Literal["k-means||", "k-means++", "random", "maximin", "dkm++", "robin"]
_Paired = Literal["auto", "ss-k-means||", "ss-k-means++", "neighborhoods"]
_View = Literal["raw", "standard", "angle", "whitened", "mean", "mixture", "pckid"]

#: Initial centers of estimators without constraints.
Init = NamedInit | ArrayLike | Callable[..., Any]
#: Initial centers of estimators with pairwise constraints.
InitWithPairs = _Paired | NamedInit | ArrayLike | Callable[..., Any]
#: Cost of a violated pair; a number is the factor of ``"scaled"``.
PairPenalty = Literal["scaled", "distance", "constant"] | float
#: Initial centers of estimators with partial labels.
InitWithLabels = (
    Literal["auto", "ss-k-means||", "ss-k-means++", "seeded-random"]
    | ArrayLike
    | Callable[..., Any]
)
#: Policy for NaN: an error, or a missing value.
Missing = Literal["error", "partial"]
#: Scaled copies of the features in which prototypes are compared.
Views = Literal["auto"] | _View | tuple[_View, ...]


#: Initializations that need complete rows.
_COMPLETE_INITS = ("dkm++", "robin")


def check_integer(value: Any, name: str, minimum: int) -> None:
    check_value(value, name, Interval(numbers.Integral, minimum))


def is_partial(estimator: Any) -> bool:
    return getattr(estimator, "missing", "error") == "partial"


def check_missing(estimator: Any) -> None:
    """Check that initialization and metric support missing values, if ``missing="partial"``."""
    if is_partial(estimator) and getattr(estimator, "metric", "euclidean") != "euclidean":
        raise ValueError(
            f"metric={estimator.metric!r} needs complete rows and does not support "
            'missing="partial". Scale the rows and use metric="euclidean".'
        )
    init = getattr(estimator, "init", None)
    if is_partial(estimator) and isinstance(init, str) and init in _COMPLETE_INITS:
        raise ValueError(
            f'init={init!r} needs complete rows and does not support missing="partial". Use '
            '"k-means||", "k-means++", "random", "maximin" or an array.'
        )


def data_centers(model: Any) -> Any:
    """Return the centers of a model in the space of its rows, or None (also for embeddings)."""
    if hasattr(model, "embedding_dim"):
        return None
    return getattr(model, "cluster_centers_", getattr(model, "means_", None))


def check_same_features(what: str, mine: Any, theirs: Any) -> None:
    if mine is None or theirs is None or list(mine) == list(theirs):
        return
    if len(mine) == len(theirs):
        position = next(
            i for i, pair in enumerate(zip(mine, theirs, strict=True)) if pair[0] != pair[1]
        )
        raise ValueError(
            f"{what} different features, or the same ones in another order: number {position} is "
            f"{mine[position]!r} in one and {theirs[position]!r} in the other. Fit with the same "
            "columns."
        )


def check_init_array(init: Any, n_clusters: int, n_features: int) -> Floats:
    """Return checked initial centers as float64; a fitted model is replaced by its centers."""
    if hasattr(init, "get_params"):
        kind = type(init).__name__
        init = data_centers(init)
        if init is None:
            raise ValueError(
                "init must be an array, or a fitted model with cluster_centers_, got a "
                f"{kind} without centers. Clones of models are not fitted."
            )
    centers = np.array(without_mask(fetched(init, "init"), "init"), dtype=np.float64, order="C")
    if centers.shape != (n_clusters, n_features):
        raise ValueError(
            f"The initial centers must have shape ({n_clusters}, {n_features}) for "
            f"n_clusters={n_clusters} and {n_features} features, got {centers.shape}."
        )
    if not np.isfinite(centers).all():
        row, column = np.argwhere(~np.isfinite(centers))[0]
        raise ValueError(
            f"The initial centers must be finite, got {centers[row, column]} (center {row}, "
            f"feature {column})."
        )
    return centers


def given_centers(
    init: Any, X: Any, n_clusters: int, n_features: int, seeds: tuple[int, ...]
) -> Floats:
    """Return initial centers (r, k, p); a callable is called once for each seed."""
    inits = [init]
    if callable(init):
        inits = [init(X, n_clusters, np.random.RandomState(seed % 2**32)) for seed in seeds]
    return np.stack([check_init_array(centers, n_clusters, n_features) for centers in inits])


@runtime_checkable
class Scene(Protocol):
    """An image whose valid pixels are the rows of a fit, such as :class:`daskclust.Cube`.

    The attributes `shape`, `samples` (n, p), `n_valid` and `sample_scaling` (a dataclass) are not
    listed here, because checking for them would read the image.
    """

    def described(self) -> dict[str, Any]:
        """Return the description that is saved with a model."""

    def scaled_as(self, scaling: Any) -> Any: ...

    def open_map(self, name: str, image: Any) -> Any:
        """Open a label map on the grid of the image."""

    def rows_of(self, label_map: Any) -> Any: ...

    def row_weights(self, weight: Any) -> Any:
        """Return weights of rows, given "area" or an image (y, x)."""

    def sample_pixels(self, count: int, seed: int) -> Any:
        """Draw rows, and pairs of adjacent rows; one pass."""

    def places_of_rows(self, rows: Any) -> Any:
        """Return numbers of rows that do not depend on the chunks."""

    def count_neighbors(self, connectivity: Any, weight: Any = None) -> Any:
        """Count neighbors of nodes, and nodes of adjacent pixels; one pass."""


def fetched(values: Any, name: str) -> Any:
    """Compute a lazy array with verified reads; return other values unchanged."""
    values = unwrap(values)
    return compute(name, read_again(values))[0] if is_dask(values) else values


def unmasked(y: Any) -> Any:
    """Return labels without a mask: masked and missing labels become -1, "-1" or None."""
    if hasattr(y, "isna") and not isinstance(y.dtype, np.dtype):
        # A nullable column, which NumPy would convert to floats with NaN.
        values = np.array(y, dtype=object)
        values[np.asarray(y.isna())] = None
        return values
    if not isinstance(y, np.ma.MaskedArray):
        return y
    if y.dtype.kind in "iuf":
        return np.ma.filled(y.astype(np.float64 if y.dtype.kind == "f" else np.int64), -1)
    if y.dtype.kind in "USO":
        return np.ma.filled(y.astype(object), "-1")
    return np.ma.getdata(y)  # raises an error for its type later


def labels_for(X: Any, y: Any) -> tuple[Any, Any]:
    """Return partial labels, and None or the label map; a map becomes ``(rows, labels)``.

    A label map is an array (y, x), or the path or group of one: see :meth:`daskclust.Cube.rows_of`.
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


def weights_for(X: Any, sample_weight: Any) -> Any:
    """Return weights of rows; a scene converts "area" and an image (y, x)."""
    is_of_pixels = isinstance(sample_weight, str) or getattr(sample_weight, "ndim", 1) == 2
    if is_of_pixels and isinstance(X, Scene):
        return X.row_weights(sample_weight)
    return sample_weight


def pairs_for(X: Any, pairs: Any, name: str) -> Any:
    """Return pairs of row numbers; strings, dates and other labels are looked up in X's index.

    Integers are row numbers for any index.
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
            f"{name} contains index labels, so the index of X must be unique, but it repeats "
            f"{label!r}. Use row numbers."
        )
    rows = X.index.get_indexer(pandas.Index(values.ravel())).reshape(values.shape)
    if (rows < 0).any():
        missing = values[rows < 0].tolist()
        raise ConstraintError(
            f"{name} must contain index labels of X or row numbers, got {missing[0]!r}, which is "
            "not in the index."
        )
    return rows


def as_labels(y: Any) -> Any:
    """Return partial labels as a pair (rows, labels), or a NumPy or Dask array of shape (n,)."""
    if isinstance(y, tuple) and len(y) == 2 and all(np.ndim(entries) == 1 for entries in y):
        if np.ma.is_masked(y[0]):
            first = int(np.argmax(np.ma.getmaskarray(y[0])))
            raise ConstraintError(
                "The rows of y = (rows, labels) must not be masked, got a mask at position "
                f"{first}. Remove masked entries from both arrays."
            )
        rows, labels = (fetched(entries, "y") for entries in y)
        return np.asarray(rows), np.asarray(unmasked(labels))
    if hasattr(y, "to_dask_array"):
        # Dask would also convert nullable and text columns to objects, but with a warning.
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
            "y must have one label per row, -1 for unlabeled rows, or be (rows, labels), got "
            f"shape {y.shape}."
        )
    return y


def _check_dask(X: Any) -> Any:
    if X.ndim > 2:
        # Reshaping an image of (band, y, x) would mix bands and pixels.
        raise ValueError(
            f"X must be a Dask array of 2 dimensions (rows, features), got {X.ndim} of shape "
            f"{X.shape}. For an image use daskclust.open_cube(X, dims=...).samples, which handles "
            "the order of the axes. For other data, move the features to the last axis, then use "
            "X.reshape(-1, X.shape[-1])."
        )
    if X.ndim != 2:
        raise ValueError(
            f"X must be a Dask array of 2 dimensions (rows, features), got {X.ndim} of shape "
            f"{X.shape}. Use X[:, None] for a single feature."
        )
    if X.dtype.kind not in "fiub":
        raise ValueError(
            f"X must contain real numbers, got dtype {X.dtype}. Use X.astype('float32') if "
            "its values are numbers."
        )
    n, p = X.shape
    if np.isnan(p):
        raise ValueError(
            "X must have a known number of columns, got a Dask array with an unknown number. Use "
            "X.compute_chunk_sizes(), or pass the shape of the blocks to map_blocks (chunks=)."
        )
    for size, unit in ((n, "sample(s)"), (p, "feature(s)")):
        if size == 0:
            raise ValueError(
                f"Found array with 0 {unit} (shape={X.shape}) while a minimum of 1 is required."
            )
    return X


#: Types that are not converted; other types are converted to float64.
_SUPPORTED_TYPES = [np.float64, np.float32, np.float16, np.int8, np.uint8, np.int16, np.uint16]

#: Attributes of an estimator that describe its cube: the description, and the scaling.
_SCENE = "_cube_data"
_SCALING = {
    "_cube_scale": "kind",
    "_cube_mean": "mean",
    "_cube_std": "std",
    "_cube_matrix": "matrix",
}
#: Attributes of an estimator that describe X, other than ``n_features_in_``.
ORIGIN = ("feature_names_in_", _SCENE, *_SCALING)


def scaling_of(X: Any) -> dict[str, Any]:
    """Return the attributes of an estimator that store the scaling of a scene or a table."""
    if not (isinstance(X, Scene) or hasattr(type(X), "sample_scaling")):
        return {}
    scaling = X.sample_scaling
    attributes = {name: getattr(scaling, of) for name, of in _SCALING.items()}
    return {name: value for name, value in attributes.items() if value is not None}


def scaled_as_fit(estimator: Any, X: Any) -> Any:
    """Return a scene with the same bands and units, or a table, scaled like the data of the fit."""
    if not hasattr(estimator, "_cube_scale"):
        return X
    # Counting the pixels of a scene removes bands without data.
    scaling = X.sample_scaling
    if isinstance(X, Scene):
        check_same_data(estimator, X)
    fitted = {entry: getattr(estimator, name, None) for name, entry in _SCALING.items()}
    return X.scaled_as(replace(scaling, **fitted))


def check_rows(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """Return X, or the `samples` of a scene or table, as a NumPy or Dask array.

    X is checked by its metadata; values are checked by the first pass.  ``n_features_in_`` and
    ``feature_names_in_`` are set if `reset`, and compared otherwise.
    """
    is_scaled = isinstance(X, Scene) or hasattr(type(X), "sample_scaling")
    if reset:
        # Remove the description of the data of the last fit.
        for name in (_SCENE, *_SCALING):
            vars(estimator).pop(name, None)
        vars(estimator).update(scaling_of(X))
        if isinstance(X, Scene):
            setattr(estimator, _SCENE, X.described())
    elif is_scaled:
        X = scaled_as_fit(estimator, X)
    if is_scaled:
        X = X.samples
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
    check_on_cpu(data)
    if hasattr(table, "to_numpy") and not (hasattr(table, "columns") or hasattr(table, "iloc")):
        data = table.to_numpy()  # a column of vectors, such as a polars Series of arrays
    if is_sparse(data):
        _check_takes_sparse(estimator, data)
    if np.ma.is_masked(data):
        # NumPy would ignore the mask and use the hidden values.
        if get_tags(estimator).input_tags.allow_nan and data.dtype.kind in "fiub":
            dtype = data.dtype if data.dtype.kind == "f" else np.float64
            return check_rows(estimator, np.ma.filled(data.astype(dtype), np.nan), reset=reset)
        row = int(np.flatnonzero(np.ma.getmaskarray(data).reshape(len(data), -1).any(axis=1))[0])
        raise ValueError(
            f"X must not contain masked values, got one in row {row}. Remove such rows, or use an "
            "estimator that supports missing values."
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
        # scikit-learn would convert dates to nanoseconds, and parse text.
        raise ValueError(
            f"X must contain real numbers, got dtype {data.dtype}. Use X.astype('float32') if "
            "its values are numbers."
        )
    try:
        checked = validate_data(
            estimator,
            data,
            reset=reset,
            accept_sparse="csr",
            dtype=_SUPPORTED_TYPES,
            order="C",
            ensure_all_finite=False,
        )
        return canonical(checked) if is_sparse(checked) else checked
    except (TypeError, ValueError) as error:
        fault = column_at_fault(table)
        if fault is None:
            raise
        raise ValueError(fault) from error


#: Names that take sparse rows, for messages.
_TAKE_SPARSE = "KMeans, SemiSupervisedKMeans and the scores of daskclust.metrics"
#: Values of their parameters that need dense rows, and why.
_DENSE_ONLY: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("metric", ("mahalanobis",), "whitened rows have no zeros"),
    ("missing", ("partial",), "values that are not stored are zeros, and not missing"),
    ("init", _COMPLETE_INITS, "it compares rows in memory"),
)


def check_on_cpu(X: Any) -> None:
    """Raise TypeError for an array in the memory of a GPU, or a Dask array of such blocks."""
    if hasattr(getattr(X, "_meta", X), "__cuda_array_interface__"):
        raise TypeError(
            f"X must be in the memory of the CPU, got {type(X).__name__} on a GPU. Use "
            "X.get() of CuPy, X.cpu() of PyTorch, or X.map_blocks(cupy.asnumpy) of Dask."
        )


def check_dense(X: Any) -> None:
    """Raise TypeError for sparse rows."""
    if is_sparse(X):
        raise TypeError(
            f"X must be dense, got a sparse matrix. Only {_TAKE_SPARSE} take sparse rows. Use "
            "X.toarray(), or X.map_blocks(lambda block: block.toarray()) for a Dask array, with "
            "fewer features if the rows do not fit in memory."
        )


def _check_takes_sparse(estimator: Any, X: Any) -> None:
    """Raise an error unless an estimator takes sparse rows with its parameters."""
    if not get_tags(estimator).input_tags.sparse:
        check_dense(X)
    for name, values, reason in _DENSE_ONLY:
        value = getattr(estimator, name, None)
        if isinstance(value, str) and value in values:
            raise ValueError(
                f"{name}={value!r} does not support sparse X, because {reason}. Use another "
                f"{name}, or X.toarray()."
            )
    if (getattr(estimator, "clusters_per_class", None) or 1) > 1:
        raise ValueError(
            "clusters_per_class must be 1 for sparse X, because labeled rows are clustered in "
            "memory. Use X.toarray()."
        )


def _constant(x: NDArray[Any], value: float) -> Floats:
    return np.full(x.shape[0], value)


def check_output(estimator: Any, X: Any) -> None:
    """Raise ValueError if lazy input would return a table: all rows would go to the client."""
    graph = getattr(X, "__dask_graph__", None)
    if not isinstance(X, Scene) and (graph is None or graph() is None):
        return
    # scikit-learn stores the argument of an estimator's `set_output` here; the default is global.
    own = vars(estimator).get("_sklearn_output_config", {})
    kind = own.get("transform", get_config()["transform_output"])
    if kind != "default":
        raise ValueError(
            f"set_output(transform={kind!r}) is not supported for lazy X, because it would load a "
            'table of all rows. Use set_output(transform="default"), which returns a lazy array, '
            "and "
            "dask.dataframe.from_dask_array(result, columns=model.get_feature_names_out())."
        )


def check_weight(sample_weight: Any, X: Any) -> Any:
    """Return weights for X: None, a NumPy or a Dask array; a pass checks the values."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, str):
        raise ValueError(
            "sample_weight must have one weight per row of X, got the string "
            f'{sample_weight!r}. If X is a cube, "area" is possible: pass daskclust.open_cube(...).'
        )
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
        # If the chunks of X are known, count the rows of the Series to match its chunks.
        weight = sample_weight.to_dask_array(lengths=True)
    else:
        weight = unwrap(sample_weight)
    if not is_dask(X):
        # Fetch the values without a conversion, which would drop a mask.
        weight = fetched(weight, "sample_weight")
    if np.ma.is_masked(weight):
        raise ValueError(
            "sample_weight must have a weight for each row, got a masked value in row "
            f"{int(np.argmax(np.ma.getmaskarray(weight)))}. Weight 0 excludes a row: use "
            "sample_weight.filled(0)."
        )
    if not is_dask(weight):
        weight = np.asarray(weight)
    if weight.dtype.kind not in "fiubO":
        raise ValueError(f"sample_weight must contain numbers, got dtype {weight.dtype}.")
    if not is_dask(weight) and weight.dtype.kind == "O":
        try:
            weight = weight.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"sample_weight must contain numbers, got an invalid value ({error})."
            ) from error
    lengths_known = not (np.isnan(n) or np.isnan(weight.shape[:1]).any())
    if weight.ndim != 1 or (lengths_known and weight.shape[0] != n):
        raise ValueError(
            f"sample_weight must have one weight per row of X ({n} rows), got shape "
            f"{weight.shape}. Use a 1D array."
        )
    if is_dask(X):
        return weight
    return np.asarray(weight, dtype=np.float64)


@dataclass
class Data:
    """Checked data, opened once, and the attributes of an estimator that describe X (`origin`).

    `cube` is the scene whose samples are X, if X is a scene.  `has_units` is False for features
    that an estimator has computed, because a user cannot change their units.
    """

    X: Any
    weight: Any = None
    origin: Mapping[str, Any] = field(default_factory=dict)
    opened: Rows | None = None
    cube: Any = None
    has_units: bool = True

    @property
    def rows(self) -> Rows:
        """The opened data; the first access opens them, and may run a pass to count rows."""
        if self.opened is None:
            self.opened = open_rows(self.X, self.weight)
        return self.opened

    def through(self, rows: Rows) -> Data:
        return replace(self, opened=rows)

    @property
    def names(self) -> Any:
        """Names of the features, or None."""
        return self.origin.get("feature_names_in_")

    @property
    def n_rows(self) -> float:
        """Number of rows; NaN if counting them takes a pass that has not run."""
        return self.X.shape[0] if self.opened is None else self.opened.n_rows


def check_enough_rows(data: Data, count: int, unit: str = "clusters") -> None:
    """Raise ValueError if there are fewer rows than clusters, unless rows are not counted yet."""
    if data.n_rows < count:
        raise ValueError(
            f"n_{unit}={count} must be at most n_samples={data.n_rows}. Use fewer {unit}."
        )


def check_data(X: Any, sample_weight: Any = None, estimator: BaseEstimator | None = None) -> Data:
    """Check the metadata of X and set the attributes of the estimator that describe X."""
    estimator = BaseEstimator() if estimator is None else estimator
    cube = X if isinstance(X, Scene) else None
    sample_weight = weights_for(X, sample_weight)
    X = check_rows(estimator, X, reset=True)
    attributes = vars(estimator)
    origin = {name: attributes[name] for name in ORIGIN if name in attributes}
    return Data(X, check_weight(sample_weight, X), origin, cube=cube)


#: Maximum distance of neighboring floats near the mean, as a fraction of the spread.
_COARSE = 1e-3


def check_values(survey: Survey, names: Any = None) -> None:
    """Raise ValueError for invalid or too large values, and for unusable weights.

    In a :class:`PartialSurvey`, NaN is a missing value.  `names` are the column names, if any.
    """
    if survey.first_bad is not None:
        row, name = survey.first_bad[0], column_name(survey.first_bad[1], names)
        if isinstance(survey, PartialSurvey):
            raise ValueError(infinite_message(row, name))
        raise ValueError(nonfinite_message(survey.bad_is_nan, row, name))
    # Squares must not overflow.
    size = np.maximum(np.abs(survey.low), np.abs(survey.high))
    # Without values the range is (inf, -inf).
    size[survey.low > survey.high] = 0.0
    # Rows of weight 0 are checked too: they get labels, and 0 times infinity is NaN.
    size = np.maximum(size, survey.idle)
    if (size > LARGEST_VALUE).any():
        column = int(np.argmax(size))
        raise ValueError(
            f"Column {column_name(column, names)} of X has absolute values up to "
            f"{size[column]:.3g}; squared distances overflow above {LARGEST_VALUE:g}. Mask such "
            "values if they stand for missing data, or rescale the column."
        )
    largest = float(size.max(initial=0.0))
    # The logarithm, because the product would overflow.
    if largest and survey.weight > 0 and np.log(survey.weight) + 2 * np.log(largest) > LOG_LARGEST:
        raise ValueError(
            f"Sums of squared distances overflow: the weights sum to {survey.weight:.3g}, and X "
            f"has absolute values up to {largest:.3g}. Divide the weights by their mean, or "
            "rescale X."
        )
    if survey.bad_weight_row is not None:
        raise ValueError(
            f"sample_weight must be finite and 0, or from {LIGHTEST:g} to {HEAVIEST:g}, but the "
            f"weight of row {survey.bad_weight_row} is NaN, infinite, negative, or too "
            "small or large to be summed. Divide the weights by their mean."
        )


def check_survey(
    survey: Survey,
    treatment: str | None = "they are ignored, and their label is -1",
    names: Any = None,
) -> None:
    """Raise ValueError for data that no fit can use, such as columns without values.

    Warn about rows without values.  `treatment` says in the warning how such rows are treated; None
    for no warning.
    """
    check_values(survey, names)
    if survey.weight <= 0:
        raise ValueError("At least one sample weight must be positive, got only zeros.")
    if isinstance(survey, PartialSurvey):
        if survey.informed <= 0:
            raise ValueError("X must contain values, but every entry is NaN.")
        empty = np.flatnonzero(survey.observed <= 0)
        if len(empty):
            columns = [column_name(j, names) for j in empty.tolist()]
            raise ValueError(
                f"Each column of X must contain values, but column {columns[0]} contains only NaN. "
                f"Drop the columns {', '.join(columns)}."
            )
        if survey.n_unobserved and treatment is not None:
            warn(
                f"{survey.n_unobserved} row(s) of X have no values (the first is row "
                f"{survey.first_unobserved}): {treatment}.",
                MissingValuesWarning,
            )
    # Means are rounded to multiples of a step, which may be too coarse relative to the spread.
    mean, spread = survey.mean, float(np.sqrt(survey.variance.sum()))
    if not (np.isfinite(mean).all() and np.isfinite(spread) and spread > 0):
        return
    steps = np.spacing(np.abs(mean))
    column = int(np.argmax(steps))
    if steps[column] > _COARSE * spread:
        warn(
            f"Column {column_name(column, names)} of X has mean {mean[column]:.3g}, where "
            f"neighboring float64 numbers differ by {steps[column]:.3g}, and rows spread by "
            f"{spread:.3g} in all. Centers are rounded to such steps, and so are inertia and "
            "labels. Use X - X.mean(axis=0), or drop constant columns.",
            PrecisionWarning,
        )


#: Minimum fraction of the total variance from which one feature alone decides the clusters.
_DOMINANT = 0.99


def dominant_feature(variances: Floats, varies: Bools) -> tuple[int, float] | None:
    """Return the feature with nearly all of the variance and its fraction, or None.

    `varies` is True for features with more than one value.

    >>> dominant_feature(np.array([1.0, 999.0]), np.array([True, True]))
    (1, 0.999)
    >>> dominant_feature(np.array([0.0, 999.0]), np.array([False, True])) is None
    True
    """
    total = float(variances.sum())
    if np.count_nonzero(varies) < 2 or not 0 < total < np.inf:
        return None
    feature = int(np.argmax(variances))
    share = float(variances[feature] / total)
    return (feature, share) if share >= _DOMINANT else None


def warn_of_dominance(survey: Survey, names: Any, *, is_scene: bool) -> None:
    """Warn if distances depend on one feature only, so that other units change the clusters."""
    dominant = dominant_feature(survey.variance, survey.low < survey.high)
    if dominant is None:
        return
    feature, share = dominant
    kind, page, remedy = (
        ("Band", "how-to/scenes", 'open_cube(..., scale="standard"), --scale standard')
        if is_scene
        else (
            "Column",
            "how-to/tables",
            'preprocessing.StandardScaler, open_table(..., scale="standard"), --scale standard',
        )
    )
    warn(
        f"{kind} {column_name(feature, names)} of X has {as_percent(share)} of the variance, so it "
        f"decides the clusters almost alone. Scale the {kind.lower()}s first ({remedy}), unless "
        f"all of them have the same unit. See the page {page}.",
        DaskclustWarning,
    )


def as_percent(share: float) -> str:
    """Format a large fraction as a percentage that is never rounded up to 100 %.

    >>> as_percent(0.99), as_percent(0.99996)
    ('99.0 %', 'over 99.9 %')
    """
    return "over 99.9 %" if share > 0.999 else f"{100 * share:.1f} %"


#: Attributes of an estimator with the range of its data.
_LOW, _HIGH, _ROWS = "_fit_low", "_fit_high", "_fit_rows"


def remember_range(estimator: Any, survey: Survey, n_rows: int) -> None:
    """Store the minimum and the maximum of each feature in an estimator."""
    setattr(estimator, _LOW, np.asarray(survey.low, dtype=np.float64))
    setattr(estimator, _HIGH, np.asarray(survey.high, dtype=np.float64))
    setattr(estimator, _ROWS, int(n_rows))


def forget_range(estimator: Any) -> None:
    """Remove the stored range of the data from an estimator."""
    for name in (_LOW, _HIGH, _ROWS):
        vars(estimator).pop(name, None)


def rows_outside(estimator: Any, x: Array) -> tuple[float, int] | None:
    """Return the fraction of rows outside the range of the fit, and the feature with most of them.

    Return None if at most half of the rows are outside, plus the rows that are outside by chance:
    a value is outside the range of n other values with probability 2 / (n + 1).  Missing values
    are not outside.
    """
    if not hasattr(estimator, _ROWS) or not len(x):
        return None
    outside = (x < getattr(estimator, _LOW)) | (x > getattr(estimator, _HIGH))
    by_feature = outside.mean(axis=0)
    chance = 2.0 / (getattr(estimator, _ROWS) + 1)
    share, feature = float(outside.any(axis=1).mean()), int(np.argmax(by_feature))
    many = by_feature[feature] > 0.5 + chance or share > 0.5 + chance * x.shape[1]
    return (share, feature) if many else None
