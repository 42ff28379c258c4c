"""Metrics as transforms of rows: in each transformed space, k-means is Euclidean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Floats
from daskclust.core.kernels.blas import one_blas_thread
from daskclust.core.kernels.compensated import sum_terms
from daskclust.core.kernels.sparse import SparseRows, of_unit_length
from daskclust.core.persistence.schema import Array, Fields
from daskclust.core.reduction import Field, Partial, Reduction, RowBlock

#: Fraction of the largest variance below which a direction contains no information.
_NEGLIGIBLE = 1e-12


class Metric:
    """A metric that is Euclidean in another space; can be called on blocks and pickled."""

    #: True if blocks are not changed.
    is_identity: ClassVar[bool] = False

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        return x

    def break_ties(self, x: NDArray[Any], labels: NDArray[Any]) -> NDArray[Any]:
        """Correct labels that rounding would decide between equal distances; x is in this space."""
        return labels  # the search gives ties to the lowest cluster

    def project(self, centers: Floats) -> Floats:
        """Project means of rows to valid centers."""
        return centers

    def restore(self, centers: Floats) -> Floats:
        return centers


@dataclass(frozen=True)
class Euclidean(Metric):
    is_identity: ClassVar[bool] = True


@dataclass(frozen=True)
class UnitSphere(Metric):
    """Rows scaled to unit length: squared distances are ``2 - 2 cos(angle)``.

    A row of zeros stays at the origin, at distance 1 from every center, and counts as absent.
    """

    def absent(self, z: Any) -> NDArray[np.bool_]:
        """Return a mask of rows without direction; they get weight 0, so none becomes a center."""
        if isinstance(z, SparseRows):
            return ~z.stored()
        is_zero: NDArray[np.bool_] = z[:, 0] == 0
        if is_zero.any():
            is_zero[is_zero] = ~z[is_zero].any(axis=1)
        return is_zero

    def __call__(self, x: Any) -> Any:
        if isinstance(x, SparseRows):
            return of_unit_length(x)
        # Two steps, so that neither tiny nor huge rows underflow or overflow.
        with np.errstate(invalid="ignore", over="ignore"):
            peak = np.abs(x).max(axis=1, keepdims=True, initial=0)
            usable = np.isfinite(peak) & (peak > 0)
            scaled = np.divide(x, peak, out=np.array(x), where=usable)
            norm = np.sqrt((scaled.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
            return np.divide(scaled, norm, out=scaled, where=usable, casting="same_kind")

    def break_ties(self, x: Any, labels: NDArray[Any]) -> NDArray[Any]:
        """Give rows without direction label 0: rounding of the center lengths would choose."""
        has_direction = x.stored() if isinstance(x, SparseRows) else x.any(axis=1)
        return np.where(has_direction, labels, labels.dtype.type(0))

    def project(self, centers: Floats) -> Floats:
        norm = np.linalg.norm(centers, axis=-1, keepdims=True)
        return np.divide(centers, norm, out=np.array(centers), where=norm > 0)


@dataclass(frozen=True)
class Whitened(Metric):
    """Mahalanobis distance: ``z = (x - mean) forward``, ``x = mean + z backward``.

    `forward` has shape (p, q), with q < p if the covariance is singular.
    """

    mean: Floats
    forward: Floats
    backward: Floats

    @classmethod
    def from_covariance(cls, mean: Floats, covariance: Floats) -> Whitened:
        variances, directions = np.linalg.eigh(covariance)
        keep = variances > _NEGLIGIBLE * max(variances[-1], 0.0)
        scale = np.sqrt(variances[keep])
        directions = directions[:, keep]
        return cls(mean, directions / scale, (directions * scale).T)

    @property
    def n_columns(self) -> int:
        return self.forward.shape[1]

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        # Several tasks may run in this process, so each uses one BLAS thread.
        with one_blas_thread():
            white = (x - self.mean) @ self.forward
        return np.ascontiguousarray(white, dtype=x.dtype)

    def restore(self, centers: Floats) -> Floats:
        return self.mean + centers @ self.backward


EUCLIDEAN = Euclidean()

#: Metrics of a saved model.
METRICS = {
    Euclidean: Fields(same=("p", "q")),
    UnitSphere: Fields(same=("p", "q")),
    Whitened: Fields({"mean": Array("p"), "forward": Array("p q"), "backward": Array("q p")}),
}


@dataclass(frozen=True)
class MeanState:
    """The point about which second moments are computed."""

    mean: Floats


def _fields(state: MeanState) -> Mapping[str, Field]:
    p = len(state.mean)
    return {"scatter": Field((2, p, p)), "weight": Field((2,))}


def _block(rows: RowBlock, state: MeanState) -> Partial:
    centered = rows.x - state.mean
    weighted = centered if rows.weight is None else centered * rows.weight[:, None]
    chunks = rows.slices()
    with one_blas_thread():
        scatter = sum_terms(weighted[s].T @ centered[s] for s in chunks)
    weight = np.ones(len(centered)) if rows.weight is None else rows.weight
    return {"scatter": scatter, "weight": sum_terms(weight[s].sum() for s in chunks)}


def _finalize(partial: Partial, state: MeanState) -> Floats:
    return partial["scatter"][0] / partial["weight"][0]


#: Pooled covariance about a known mean.
COVARIANCE = Reduction("covariance", _fields, _block, _finalize)
