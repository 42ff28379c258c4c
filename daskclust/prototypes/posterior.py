"""From nodes back to rows: what the classes of a row are, in every view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.kernels.blas import one_blas_thread
from daskclust.kernels.nearest.several import nearest_several
from daskclust.prototypes.references import References, near_weights
from daskclust.prototypes.ridge import KernelRidge
from daskclust.prototypes.views import Space

__all__ = ["Posterior", "SpacePosterior", "shares"]

Float = NDArray[np.float64]

#: Digits of a posterior: products by BLAS differ in the last ones from block to block.
_DIGITS = 12
#: Rows that are worked out at a time.
_SLICE = 2048


def shares(scores: Float) -> Float:
    """Return rows scaled to a sum of 1; even shares where all scores are 0.

    Examples
    --------
    >>> shares(np.array([[1.0, 3.0], [0.0, 0.0]]))
    array([[0.25, 0.75],
           [0.5 , 0.5 ]])
    """
    total = scores.sum(axis=1, keepdims=True)
    even = np.full_like(scores, 1.0 / max(scores.shape[1], 1))
    return np.divide(scores, total, out=even, where=total > 0)


@dataclass(frozen=True)
class SpacePosterior:
    """Classes of rows in one space.

    Parameters
    ----------
    space : Space
    nodes : ndarray of shape (k, q), float64
        The prototypes, then the labeled nodes.
    n_prototypes : int
    node_shares : ndarray of shape (k, c), float64
    ridge : KernelRidge
    ridge_share : float
        Weight of the ridge beside the spreading.
    references : References or None
        Where there are more labels than nodes.
    """

    space: Space
    nodes: Float
    n_prototypes: int
    node_shares: Float
    ridge: KernelRidge
    ridge_share: float
    references: References | None = None

    def graph(self, z: Float, n_neighbors: int) -> Float:
        """Shares by the graph and the ridge."""
        count = min(n_neighbors + 1, len(self.nodes))
        indices, distances = nearest_several(z, self.nodes, count)
        if count == 1:
            weights = np.ones_like(distances)
        else:
            weights, indices = near_weights(distances), indices[:, :-1]
        spread = np.einsum("im,imc->ic", weights, self.node_shares[indices])
        return shares(spread + self.ridge_share * self.ridge(z))

    def neighbors(self, z: Float, own: NDArray[np.int64] | None = None) -> Float:
        """Shares by the nearest labeled rows."""
        assert self.references is not None
        return self.references.posterior(z, self.nodes[: self.n_prototypes], own)


@dataclass(frozen=True)
class Posterior:
    """Classes of rows in all spaces, which count alike; travels to the workers.

    Parameters
    ----------
    spaces : tuple of SpacePosterior
    n_neighbors : int
    neighbor_share : float in [0, 1]
        Of the nearest labeled rows, where there are more labels than nodes.
    """

    spaces: tuple[SpacePosterior, ...]
    n_neighbors: int
    neighbor_share: float = 0.0

    def __call__(self, x: NDArray[Any]) -> Float:
        """Return the probabilities of the classes, (n, c)."""
        n_classes = self.spaces[0].node_shares.shape[1]
        out = np.empty((len(x), n_classes))
        with one_blas_thread():
            for start in range(0, len(x), _SLICE):
                part = slice(start, start + _SLICE)
                out[part] = self._slice(x[part])
        return out

    def _slice(self, x: NDArray[Any]) -> Float:
        total = np.zeros((len(x), self.spaces[0].node_shares.shape[1]))
        for one in self.spaces:
            z = one.space(x)
            found = one.graph(z, self.n_neighbors)
            if self.neighbor_share > 0:
                voted = one.neighbors(z)
                share = np.where(voted.sum(axis=1, keepdims=True) > 0, self.neighbor_share, 0.0)
                found = (1 - share) * found + share * voted
            total += found
        # Of a row without any value nothing is known: all classes alike.
        total[np.isnan(x).all(axis=1)] = 0.0
        return shares(np.round(total / len(self.spaces), _DIGITS))
