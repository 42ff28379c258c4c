"""How sure a model is of the label of each pixel: a margin from 0 (a tie) to 1."""

from __future__ import annotations

import argparse
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

__all__ = ["add_uncertainty_argument", "check_margin", "margin_kind", "margins"]

#: Definitions of margins, for legends, by the way to find them.
_KINDS = {
    "margin": "probability of the best class less that of the second best",
    "predict_proba": "posterior of the best component less that of the second best",
    "transform": "1 less the distance to the nearest center over that to the second nearest",
}


def add_uncertainty_argument(parser: Any) -> None:
    """Add ``--uncertainty`` to a parser or a group of one."""
    parser.add_argument(
        "--uncertainty",
        metavar="STORE",
        help="map of the margin of each label, from 0 (a tie) to 1: Zarr, or a GeoTIFF (.tif); of "
        "a table a column; one more pass",
    )


def margin_kind(model: Any) -> str | None:
    """Return how the margin of a model is defined; None where it has none."""
    return _KINDS.get(_source(type(model)))


def check_margin(options: argparse.Namespace, model: Any) -> None:
    """End the program where ``--uncertainty`` asks for what a model cannot tell."""
    if options.uncertainty is not None and margin_kind(model) is None:
        options.parser.error(
            f"{type(model).__name__} has no margin, so no --uncertainty; estimators with "
            "centers or probabilities have one, such as kmeans, gaussianmixture and label-spreading"
        )


def _source(kind: type) -> str:
    if hasattr(kind, "margin"):
        return "margin"
    if hasattr(kind, "predict_proba"):
        return "predict_proba"
    # An embedding is no distance to centers.
    return "transform" if hasattr(kind, "transform") and not hasattr(kind, "kernel") else ""


def margins(model: Any, X: Any) -> Any:
    """Return the margin of each row, lazily for a cube; in one pass over the rows.

    Where clusters are classes, the gap is the one to the nearest cluster of another class.
    """
    source = _source(type(model))
    if source == "margin":
        return model.margin(X)
    if source == "predict_proba":
        shares = model.predict_proba(X)
        return da.map_blocks(_difference, shares, drop_axis=1, dtype=shares.dtype)
    distances = model.transform(X)
    owners = getattr(model, "cluster_classes_", None)
    k = distances.shape[1]
    # A cluster of no class is a class of its own.
    groups = np.arange(k) if owners is None else np.where(owners < 0, k + np.arange(k), owners)
    return da.map_blocks(_gap, distances, groups=groups, drop_axis=1, dtype=distances.dtype)


def _difference(shares: NDArray[Any]) -> NDArray[Any]:
    """Subtract the second largest of each row from the largest.

    Examples
    --------
    >>> _difference(np.array([[0.5, 0.125, 0.375], [0.0, 1.0, 0.0]])).tolist()
    [0.125, 1.0]
    """
    if shares.shape[1] == 1:
        return np.ones(len(shares), shares.dtype)
    best = np.partition(shares, -2, axis=1)[:, -2:]
    found: NDArray[Any] = best[:, 1] - best[:, 0]
    return found


def _gap(distances: NDArray[Any], *, groups: NDArray[Any]) -> NDArray[Any]:
    """Return 1 - nearest / nearest of another group; 1 where there is no other group.

    Examples
    --------
    >>> _gap(np.array([[1.0, 2.0, 4.0], [0.0, 0.0, 1.0]]), groups=np.array([0, 0, 1])).tolist()
    [0.75, 1.0]
    """
    if not len(distances):
        return np.empty(0, distances.dtype)
    nearest = distances.argmin(axis=1)
    best = distances[np.arange(len(distances)), nearest]
    other = np.where(groups == groups[nearest][:, None], np.inf, distances).min(axis=1)
    # Two centers in one place: a tie.
    ratio = np.divide(best, other, out=np.ones_like(best), where=other > 0)
    found: NDArray[Any] = 1 - ratio
    return found
