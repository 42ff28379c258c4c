"""Remove values by the mechanisms of missing-data theory."""

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

    Parameters
    ----------
    X : array-like or dask.array.Array of shape (n_samples, n_features)
        Complete or already incomplete data; not modified.
    mechanism : {"mcar", "mar", "nmar", "quadrants"}, default="mcar"
        Why values are missing:

        - ``"mcar"``: completely at random, each value by itself.
        - ``"mar"``: at random; the larger a row's first feature, the likelier its
          other values are missing.  The first feature is never removed.
        - ``"nmar"``: not at random; the larger a value within its feature, the
          likelier it is missing, as with a sensor that saturates.
        - ``"quadrants"``: `X` holds square images row by row, and a random
          quarter of a chosen image is missing (the PCKID paper's MNIST experiment).
    fraction : float, default=0.2
        Expected share of values removed, in [0, 1]; for ``"mar"`` of the
        features after the first; for ``"quadrants"`` the exact share of images
        (rounded) that lose a quadrant.
    random_state : None, int, Generator or RandomState, default=None
        An integer gives the same answer every time.

    Returns
    -------
    ndarray or dask.array.Array of shape (n_samples, n_features)
        float32 for float32 input, else float64.  For a Dask array and ``"mcar"``, lazy
        and chunked like `X`; which values are missing does not depend on the chunks.

    Raises
    ------
    ValueError
        An unknown mechanism, a fraction outside [0, 1], a first feature with NaN
        (``"mar"``), or rows that are not square images (``"quadrants"``).
    ChunkError
        Chunks of unknown length.

    Notes
    -----
    With ``"mar"`` and ``"nmar"`` a value is removed with probability ``r ** (1 / fraction - 1)``
    for rank ``r`` in (0, 1), whose mean is `fraction`.  Cost: memory of about three copies of `X`,
    or of its blocks.  All mechanisms except ``"mcar"`` load a Dask array into the client's memory.

    Examples
    --------
    >>> X = np.arange(12.0).reshape(3, 4)  # three images of 2 x 2
    >>> int(np.isnan(remove_values(X, "quadrants", fraction=1.0, random_state=0)).sum())
    3
    """
    if mechanism not in _MECHANISMS:
        raise ValueError(f"mechanism={mechanism!r}; expected one of {', '.join(_MECHANISMS)}.")
    if not 0.0 <= fraction <= 1.0:
        raise ValueError(f"fraction={fraction!r}; expected a number from 0 to 1.")
    if is_dask(X) and mechanism == "mcar":
        return _lazy_mcar(X, fraction, seed_of(random_state))
    source = compute("the values of X", X)[0] if is_dask(X) else np.asanyarray(X)
    if source.ndim != 2:
        raise ValueError(f"X has {source.ndim} dimensions; expected 2, (n_samples, n_features).")
    if is_dask(X):
        n_rows = None if np.isnan(X.shape[0]) else X.shape[0]
        check_shape(source, 0, X.shape[1], n_rows)
    out = _floats(source, np.dtype(np.float32 if source.dtype == np.float32 else np.float64))
    rng = stream(seed_of(random_state), 0)
    if mechanism == "quadrants":
        gone = _quadrants(out.shape, fraction, rng)
    else:
        gone = rng.random(out.shape) < _chances(out, mechanism, fraction)
    out[gone] = np.nan
    return out


def _lazy_mcar(X: Any, fraction: float, seed: int) -> Any:
    """Remove values from each block, by the draws that the whole array would see."""
    if X.ndim != 2:
        raise ValueError(f"X has {X.ndim} dimensions; expected 2, (n_samples, n_features).")
    if np.isnan(X.shape[0]):
        raise ChunkError(
            f"X has chunks of unknown length (shape {X.shape}), so its rows have no numbers to "
            "draw by. Use X.compute_chunk_sizes()."
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
    """Return a copy as floats, in which masked values are missing."""
    if x.dtype.kind not in "fiubO":
        raise ValueError(f"X has dtype {x.dtype}; expected real numbers.")
    return np.ma.filled(x.astype(dtype), np.nan)


def _mcar_block(
    x: NDArray[Any], fraction: float, seed: int, width: int, block_info: Any = None
) -> NDArray[np.floating[Any]]:
    info = block_info[None]
    start, stop = info["array-location"][0]
    check_shape(x, start, width, stop - start)
    drawn = start * width
    rng = stream(seed, 0)
    # A step of the counter is four draws; the last, unfinished step is drawn anew.
    rng.bit_generator.advance(drawn // 4)  # type: ignore[attr-defined]
    rng.random(drawn % 4)
    out = _floats(x, info["dtype"])
    out[rng.random(x.shape) < fraction] = np.nan
    return out


def _chances(X: NDArray[np.floating[Any]], mechanism: str, fraction: float) -> Floats | float:
    """Chance of removal, broadcastable to `X`."""
    if mechanism == "mcar" or fraction == 0.0:
        return fraction
    n, p = X.shape
    if n == 0 or p == 0:
        return fraction
    # Workers that make a scene import this module, and half of what they load would be for this.
    from scipy.stats import rankdata

    power = 1.0 / fraction - 1.0
    if mechanism == "nmar":
        # NaN ranks as NaN, and no draw is below NaN: what is missing stays missing.
        ranks = rankdata(X, axis=0, nan_policy="omit")
        observed = np.sum(~np.isnan(X), axis=0)
        return np.asarray(((ranks - 0.5) / np.maximum(observed, 1)) ** power)
    driver = X[:, 0]
    if np.isnan(driver).any():
        raise ValueError(
            f"The first feature has {int(np.isnan(driver).sum())} NaN; mechanism 'mar' needs it "
            "complete. Put a complete feature first."
        )
    chances = np.zeros((n, p))
    chances[:, 1:] = (((rankdata(driver) - 0.5) / n) ** power)[:, None]
    return chances


def _quadrants(shape: tuple[int, ...], fraction: float, rng: np.random.Generator) -> Bools:
    n, p = shape
    side = math.isqrt(p)
    if side * side != p or side < 2:
        raise ValueError(
            f"X has {p} features; mechanism 'quadrants' needs square images of at least 2 x 2 "
            "(4, 9, 16, ... features)."
        )
    half = side // 2
    far = np.arange(side) >= half  # an odd side gives its middle line to the far half
    which = far[:, None] * 2 + far[None, :]
    images = rng.permutation(n)[: round(fraction * n)]
    gone = np.zeros(shape, dtype=bool)
    gone[images] = which.ravel()[None, :] == rng.integers(0, 4, len(images))[:, None]
    return gone
