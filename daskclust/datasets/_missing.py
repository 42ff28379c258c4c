"""Remove values from data by standard missing-data mechanisms."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Bools, Floats
from daskclust.core.engine import check_shape, compute, is_dask
from daskclust.datasets._random import seed_of, stream
from daskclust.exceptions import ChunkError

_MECHANISMS = ("mcar", "mar", "nmar", "quadrants")


def remove_values(
    X: Any,
    mechanism: Literal["mcar", "mar", "nmar", "quadrants"] = "mcar",
    *,
    fraction: float = 0.2,
    random_state: Any = None,
) -> Any:
    """Return a copy of `X` with some values replaced by NaN.

    Use it to test methods for missing values on complete data.

    Parameters
    ----------
    X : array-like or dask.array.Array of shape (n_samples, n_features)
        Complete or incomplete data; they are not modified.
    mechanism : {"mcar", "mar", "nmar", "quadrants"}, default="mcar"
        Mechanism by which values are missing:

        - ``"mcar"``: completely at random, independently for each value.
        - ``"mar"``: at random; with a larger first feature, the other values of a row are more
          likely to be missing.  The first feature is never removed.
        - ``"nmar"``: not at random; larger values of a feature are more likely to be missing, as
          with a sensor that saturates.
        - ``"quadrants"``: rows of `X` are square images, and a random quarter of some images is
          missing (MNIST experiment of the PCKID paper).
    fraction : float, default=0.2
        Expected fraction of removed values, in [0, 1].  With ``"mar"``, it is the fraction for all
        features except the first.  With ``"quadrants"``, it is the fraction of images with a
        missing quadrant.
    random_state : None, int, Generator or RandomState, default=None
        An integer gives the same result every time.

    Returns
    -------
    ndarray or dask.array.Array of shape (n_samples, n_features)
        float32 for float32 input, else float64.  For a Dask array and ``"mcar"``, lazy with the
        chunks of `X`.  The missing values do not depend on the chunks.

    Raises
    ------
    ValueError
        For an unknown mechanism, a fraction outside [0, 1], a first feature with NaN
        (``"mar"``), and rows that are not square images (``"quadrants"``).
    ChunkError
        For chunks of unknown length.

    Notes
    -----
    With ``"mar"`` and ``"nmar"`` a value is removed with probability ``r ** (1 / fraction - 1)``,
    where ``r`` in (0, 1) is its rank.  The mean probability is `fraction`.  *Memory*: about three
    copies of `X`, or of its blocks.  All mechanisms except ``"mcar"`` load a Dask array into the
    client's memory.

    Examples
    --------
    >>> X = np.arange(12.0).reshape(3, 4)  # three images of 2 x 2
    >>> int(np.isnan(remove_values(X, "quadrants", fraction=1.0, random_state=0)).sum())
    3
    """
    if mechanism not in _MECHANISMS:
        raise ValueError(f"mechanism must be {' or '.join(_MECHANISMS)}, got {mechanism!r}.")
    if not 0.0 <= fraction <= 1.0:
        raise ValueError(f"fraction must be between 0 and 1, got {fraction!r}.")
    if is_dask(X) and mechanism == "mcar":
        return _lazy_mcar(X, fraction, seed_of(random_state))
    source = compute("the values of X", X)[0] if is_dask(X) else np.asanyarray(X)
    if source.ndim != 2:
        raise ValueError(f"X must have 2 dimensions, (n_samples, n_features), got {source.ndim}.")
    if is_dask(X):
        n_rows = None if np.isnan(X.shape[0]) else X.shape[0]
        check_shape(source, 0, X.shape[1], n_rows)
    out = _floats(source, np.dtype(np.float32 if source.dtype == np.float32 else np.float64))
    rng = stream(seed_of(random_state), 0)
    if mechanism == "quadrants":
        removed = _quadrants(out.shape, fraction, rng)
    else:
        removed = rng.random(out.shape) < _removal_probabilities(out, mechanism, fraction)
    out[removed] = np.nan
    return out


def _lazy_mcar(X: Any, fraction: float, seed: int) -> Any:
    if X.ndim != 2:
        raise ValueError(f"X must have 2 dimensions, (n_samples, n_features), got {X.ndim}.")
    if np.isnan(X.shape[0]):
        raise ChunkError(
            f"X must have chunks of known length, got shape {X.shape}. Use X.compute_chunk_sizes()."
        )
    dtype = np.dtype(np.float32 if X.dtype == np.float32 else np.float64)
    return X.rechunk({1: -1}).map_blocks(
        _mcar_block,
        fraction=fraction,
        seed=seed,
        width=X.shape[1],
        dtype=dtype,
        meta=np.empty((0, 0), dtype),
    )


def _floats(x: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if x.dtype.kind not in "fiubO":
        raise ValueError(f"X must have real numbers, got dtype {x.dtype}.")
    return np.ma.filled(x.astype(dtype), np.nan)


def _mcar_block(
    x: NDArray[Any], fraction: float, seed: int, width: int, block_info: Any = None
) -> NDArray[np.floating[Any]]:
    info = block_info[None]
    start, stop = info["array-location"][0]
    check_shape(x, start, width, stop - start)
    n_before = start * width
    rng = stream(seed, 0)
    # A step of the counter is four draws.  Skip complete steps, then single draws.
    rng.bit_generator.advance(n_before // 4)  # type: ignore[attr-defined]
    rng.random(n_before % 4)
    out = _floats(x, info["dtype"])
    out[rng.random(x.shape) < fraction] = np.nan
    return out


def _removal_probabilities(
    X: NDArray[np.floating[Any]], mechanism: str, fraction: float
) -> Floats | float:
    if mechanism == "mcar" or fraction == 0.0:
        return fraction
    n, p = X.shape
    if n == 0 or p == 0:
        return fraction
    # Imported here, because it would double the import time of workers that generate a scene.
    from scipy.stats import rankdata

    power = 1.0 / fraction - 1.0
    if mechanism == "nmar":
        # The rank of NaN is NaN, and no draw is below NaN, so missing values remain missing.
        ranks = rankdata(X, axis=0, nan_policy="omit")
        observed = np.sum(~np.isnan(X), axis=0)
        return np.asarray(((ranks - 0.5) / np.maximum(observed, 1)) ** power)
    first_feature = X[:, 0]
    if np.isnan(first_feature).any():
        raise ValueError(
            "The first feature must be complete for mechanism 'mar', got "
            f"{int(np.isnan(first_feature).sum())} NaN. Put a complete feature first."
        )
    probabilities = np.zeros((n, p))
    probabilities[:, 1:] = (((rankdata(first_feature) - 0.5) / n) ** power)[:, None]
    return probabilities


def _quadrants(shape: tuple[int, ...], fraction: float, rng: np.random.Generator) -> Bools:
    n, p = shape
    side = math.isqrt(p)
    if side * side != p or side < 2:
        raise ValueError(
            "X must contain square images of at least 2 x 2 (4, 9, 16, ... features) for mechanism "
            f"'quadrants', got {p} features."
        )
    half = side // 2
    far = np.arange(side) >= half  # the middle line of an odd side belongs to the far half
    quadrant = far[:, None] * 2 + far[None, :]
    images = rng.permutation(n)[: round(fraction * n)]
    removed = np.zeros(shape, dtype=bool)
    removed[images] = quadrant.ravel()[None, :] == rng.integers(0, 4, len(images))[:, None]
    return removed
