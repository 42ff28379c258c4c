"""First parameters that the user hands in, or that the last fit has left."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskclust._types import Floats
from daskclust.estimator.parameters import without_mask

__all__ = ["given_parameters", "last_parameters"]


def _array(value: Any, name: str, shape: tuple[int, ...]) -> Floats:
    array = np.array(without_mask(value, name), dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; expected {shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} contains NaN or infinity; its values must be finite.")
    return array


def _covariances(precisions: Floats, full: bool) -> Floats:
    name = "precisions_init"
    if not full:
        if (precisions <= 0).any():
            raise ValueError(f"{name} has values that are not positive: {precisions.min()}.")
        return 1.0 / precisions
    if not np.allclose(precisions, precisions.transpose(0, 2, 1)):
        raise ValueError(f"{name} has matrices that are not symmetric.")
    least = np.linalg.eigvalsh(precisions).min()
    if least <= 0:
        raise ValueError(
            f"{name} has matrices that are not positive definite (eigenvalue {least})."
        )
    return np.asarray(np.linalg.inv(precisions))


def given_parameters(estimator: Any, n_features: int) -> dict[str, Floats]:
    """Return the first parameters that are given, checked.

    Parameters
    ----------
    estimator : GaussianMixture
    n_features : int

    Returns
    -------
    dict
        Some of ``weights`` (K,), ``means`` (K, p) and ``covariances``.
    """
    k, p = estimator.n_components, n_features
    full = estimator.covariance_type == "full"
    given = {}
    if estimator.weights_init is not None:
        weights = _array(estimator.weights_init, "weights_init", (k,))
        if (weights < 0).any() or not np.isclose(weights.sum(), 1.0):
            raise ValueError(
                f"weights_init={weights.tolist()}; weights must not be negative, and sum to 1."
            )
        given["weights"] = weights
    if estimator.means_init is not None:
        given["means"] = _array(estimator.means_init, "means_init", (k, p))
    if estimator.precisions_init is not None:
        shape = (k, p, p) if full else (k, p)
        precisions = _array(estimator.precisions_init, "precisions_init", shape)
        given["covariances"] = _covariances(precisions, full)
    return given


def last_parameters(estimator: Any, n_features: int) -> dict[str, Floats]:
    """Return the parameters of the last fit, if a fit like the present one may start from them.

    Parameters
    ----------
    estimator : GaussianMixture
        Fitted.
    n_features : int

    Returns
    -------
    dict
        ``weights``, ``means`` and ``covariances``.
    """
    shape = (estimator.n_components, n_features)
    wanted = (*shape, n_features) if estimator.covariance_type == "full" else shape
    if estimator.covariances_.shape != wanted:
        raise ValueError(
            f"warm_start=True, but the covariances of the last fit have shape "
            f"{estimator.covariances_.shape}; n_components={shape[0]} and covariance_type="
            f"{estimator.covariance_type!r} on {n_features} features ask for {wanted}. Use "
            "warm_start=False, or fit as before."
        )
    return dict(estimator._mixtures().arrays)
