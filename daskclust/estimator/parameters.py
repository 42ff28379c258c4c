"""Checks of estimator parameters, with one wording for all; starting centers that are given."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_scalar

from daskclust._choices import check_choice as check_choice
from daskclust._choices import without_mask as without_mask
from daskclust._types import Floats

_Drawn = Literal["k-means||", "k-means++", "random", "maximin", "dkm++", "robin"]
_Paired = Literal["auto", "ss-k-means||", "ss-k-means++", "neighborhoods"]
_View = Literal["raw", "standard", "angle", "whitened", "mean", "mixture", "pckid"]

#: First centers of estimators that know nothing but rows.
Init = _Drawn | ArrayLike | Callable[..., Any]
#: Of estimators that know pairs of rows.
InitWithPairs = _Paired | _Drawn | ArrayLike | Callable[..., Any]
#: Of estimators that know some labels.
InitWithLabels = (
    Literal["ss-k-means||", "ss-k-means++", "seeded-random"] | ArrayLike | Callable[..., Any]
)
#: Whether NaN is an error or a value that is not known.
Missing = Literal["error", "partial"]
#: Spaces in which prototypes are compared.
Views = Literal["auto"] | _View | tuple[_View, ...]


#: Starts that look at rows as they are.
_COMPLETE_STARTS = ("dkm++", "robin")


def check_integer(value: Any, name: str, minimum: int) -> None:
    """Raise unless ``value`` is an integer of at least ``minimum``."""
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}={value!r}; expected a whole number of {minimum} or more.")
    check_scalar(value, name, numbers.Integral, min_val=minimum)


def check_real(
    value: Any, name: str, minimum: float, *, boundaries: str = "left", maximum: float | None = None
) -> None:
    """Raise unless ``value`` is a finite real number in the interval."""
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


def check_penalty(value: Any) -> None:
    """Raise unless ``value`` names a price of violated constraints."""
    check_choice(value, "penalty", ("distance", "constant"))


def is_partial(estimator: Any) -> bool:
    """Whether NaN means missing to an estimator of the family."""
    return getattr(estimator, "missing", "error") == "partial"


def check_missing(estimator: Any) -> None:
    """Check the parameter ``missing``, where there is one, and what cannot go with it.

    Raises ValueError for other values, and starts and metrics that need complete rows.
    """
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
    """Return the centers that a fitted model has in the space of its rows, else None.

    Those of an embedding lie in another, which may be of as many dimensions.
    """
    if hasattr(model, "embedding_dim"):
        return None
    return getattr(model, "cluster_centers_", getattr(model, "means_", None))


def check_same_features(what: str, mine: Any, theirs: Any) -> None:
    """Raise ValueError where two models or tables name their features, and not alike.

    `mine`, `theirs` (p,): names, None where there are none.
    """
    if mine is None or theirs is None or list(mine) == list(theirs):
        return
    if len(mine) == len(theirs):
        at = next(i for i, pair in enumerate(zip(mine, theirs, strict=True)) if pair[0] != pair[1])
        raise ValueError(
            f"{what} other features, or in another order: number {at} is {mine[at]!r} in one and "
            f"{theirs[at]!r} in the other. Fit with the same columns."
        )


def check_init_array(init: Any, n_clusters: int, n_features: int) -> Floats:
    """Return starting centers as float64 after checking their shape and values.

    A fitted model stands for its centers.
    """
    if hasattr(init, "get_params"):
        kind = type(init).__name__
        init = data_centers(init)
        if init is None:
            raise ValueError(
                f"init is a {kind} without centers among the data; expected a fitted model that "
                "has cluster_centers_ (clones of models are not fitted), or an array."
            )
    centers = np.array(without_mask(init, "init"), dtype=np.float64, order="C")
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
    """Return the starting centers of all restarts.

    `init` (k, p): a callable is called for each seed; an array is the start of the only restart.
    `X` (n, p): what a callable is given.

    Returns (r, k, p).
    """
    found = [init]
    if callable(init):
        found = [init(X, n_clusters, np.random.RandomState(seed % 2**32)) for seed in seeds]
    return np.stack([check_init_array(centers, n_clusters, n_features) for centers in found])
