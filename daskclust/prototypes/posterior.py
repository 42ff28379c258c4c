"""From nodes back to rows: what the classes of a row are, in every view."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskclust._types import Array, Floats, Ints
from daskclust.kernels.blas import one_blas_thread
from daskclust.prototypes.references import References
from daskclust.prototypes.ridge import KernelRidge
from daskclust.prototypes.row_function import near_values
from daskclust.prototypes.views import Space

__all__ = [
    "LEAST",
    "MOST",
    "Balance",
    "Margin",
    "MostProbable",
    "NodeShares",
    "Posterior",
    "SpacePosterior",
    "shares",
    "sharpened",
]


#: Bounds of the weight of the ridge beside the spreading: few labels do not suffice to choose
#: one of the two (tried, and worse), only to lean to it.
LEAST, MOST = 0.35, 1.2
#: Digits of a posterior: products by BLAS differ in the last ones from block to block.
_DIGITS = 12
#: Rows that are worked out at a time.
_SLICE = 2048


def shares(scores: Floats) -> Floats:
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


def sharpened(found: Floats, power: float) -> Floats:
    """Return shares raised to a power, and scaled to a sum of 1 again.

    Examples
    --------
    >>> sharpened(np.array([[0.75, 0.25]]), 2.0)
    array([[0.9, 0.1]])
    """
    return shares(found**power)


@dataclass(frozen=True)
class Balance:
    """How spreading and kernel ridge are joined.

    Parameters
    ----------
    ridge_share : float
        Weight of the ridge beside the spreading, whose weight is 1.
    spread_power, ridge_power : float
        To which the shares of either are raised first.
    """

    ridge_share: float = 0.7
    spread_power: float = 1.0
    ridge_power: float = 1.0

    @property
    def lean(self) -> float:
        """How far rows are judged by themselves and not by settled nodes, in [0, 1].

        Where the ridge foretells labels better than the graph, nodes are too coarse.
        """
        return float(np.clip((self.ridge_share - LEAST) / (MOST - LEAST), 0.0, 1.0))

    def __call__(self, spread: Floats, ridge: Floats) -> Floats:
        """Return the shares of both joined."""
        sure = self.ridge_share * sharpened(shares(ridge), self.ridge_power)
        return shares(sharpened(spread, self.spread_power) + sure)


@dataclass(frozen=True)
class NodeShares:
    """Classes of the nodes of one graph.

    Parameters
    ----------
    nodes : ndarray of shape (k, q), float64
        The prototypes, then the labeled nodes.
    n_prototypes : int
    shares : ndarray of shape (k, c), float64
        By the labels that have travelled.
    settled : ndarray of shape (k, c), float64
        By these and the ridge, after both have settled on the graph.
    """

    nodes: Floats
    n_prototypes: int
    shares: Floats
    settled: Floats


@dataclass(frozen=True)
class SpacePosterior:
    """Classes of rows in one space.

    Parameters
    ----------
    space : Space
    graphs : tuple of NodeShares
        One for each set of prototypes; they count alike.
    ridge : KernelRidge
    balance : Balance
    references : References or None
        Where there are more labels than nodes.
    """

    space: Space
    graphs: tuple[NodeShares, ...]
    ridge: KernelRidge
    balance: Balance
    references: References | None = None

    @property
    def nodes(self) -> Floats:
        """The prototypes of the first set, then the labeled nodes."""
        return self.graphs[0].nodes

    @property
    def n_prototypes(self) -> int:
        """Of the first set."""
        return self.graphs[0].n_prototypes

    def graph(self, z: Floats, n_neighbors: int) -> Floats:
        """Shares by settled nodes, and by the graphs and the ridge as far as that is better."""
        found = [
            near_values(z, one.nodes, np.hstack([one.settled, one.shares]), n_neighbors)
            for one in self.graphs
        ]
        settled, spread = np.hsplit(sum(found[1:], found[0]) / len(found), 2)
        lean = self.balance.lean
        if lean == 0:
            return np.ascontiguousarray(settled)
        both: Floats = (1 - lean) * settled + lean * self.balance(spread, self.ridge(z))
        return both

    def neighbors(self, z: Floats, own: Ints | None = None) -> Floats:
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

    @property
    def balance(self) -> Balance:
        """How spreading and ridge are joined, the same in all spaces."""
        return self.spaces[0].balance

    def __call__(self, x: Array) -> Floats:
        """Return the probabilities of the classes, (n, c)."""
        n_classes = self.spaces[0].graphs[0].shares.shape[1]
        out = np.empty((len(x), n_classes))
        with one_blas_thread():
            for start in range(0, len(x), _SLICE):
                part = slice(start, start + _SLICE)
                out[part] = self._slice(x[part])
        return out

    def _slice(self, x: Array) -> Floats:
        total = np.zeros((len(x), self.spaces[0].graphs[0].shares.shape[1]))
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


@dataclass(frozen=True)
class MostProbable:
    """Names of the most probable classes of rows; ties go to the first."""

    posterior: Posterior
    classes: Array

    def __call__(self, x: Array) -> Array:
        """Return classes, (n,)."""
        return np.asarray(self.classes[self.posterior(x).argmax(axis=1)])


@dataclass(frozen=True)
class Margin:
    """Probabilities of the best classes of rows less those of the second best."""

    posterior: Posterior

    def __call__(self, x: Array) -> Floats:
        """Return margins, (n,); 1 where there is one class."""
        found = self.posterior(x)
        if found.shape[1] == 1:
            return np.ones(len(found))
        best = np.partition(found, found.shape[1] - 2, axis=1)[:, -2:]
        margin: Floats = best[:, 1] - best[:, 0]
        return margin
