"""Class probabilities of rows from the nodes of graphs and a classifier, and how they are saved."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from daskclust.core.array_types import Array, Bools, Floats
from daskclust.core.kernels.blas import one_blas_thread
from daskclust.core.kernels.nearest.k_nearest import nearest_several
from daskclust.core.persistence.schema import Array as Stored
from daskclust.core.persistence.schema import Entry, Fields, Number, OneOf, Several
from daskclust.core.reduction.connectivity import nearest_in_sets
from daskclust.semisupervised.classifiers import CLASSIFIER, mixed, shares
from daskclust.semisupervised.feature_views import SPACE, Space
from daskclust.semisupervised.near_nodes import weighted_values

#: Number of rows that are evaluated at a time.
_SLICE = 2048
#: Number of decimals of a probability, because the last digits of BLAS products depend on blocks.
_DECIMALS = 12


@dataclass(frozen=True)
class Nearness:
    """Negative distances of rows to their nearest nodes, averaged over the views."""

    views: Sequence[tuple[Callable[[Array], Floats], Floats]]

    def __call__(self, x: Array) -> Floats:
        """Return scores, (n,); NaN for rows without any value."""
        total = np.zeros(len(x))
        with one_blas_thread():
            for start in range(0, len(x), _SLICE):
                part = slice(start, start + _SLICE)
                for space, nodes in self.views:
                    squares = nearest_several(space(x[part]), nodes, 1)[1][:, 0]
                    total[part] -= np.sqrt(squares)
        return np.where(np.isnan(x).all(axis=1), np.nan, total / len(self.views))


def near_values(z: Floats, nodes: Floats, values: Floats, n_neighbors: int) -> Floats:
    """Return weighted means (n, c) of the values of the nearest nodes; nearer nodes weigh more."""
    indices, distances = nearest_several(z, nodes, min(n_neighbors + 1, len(nodes)))
    return weighted_values(distances, indices, values)


def sharpened(probabilities: Floats, power: float) -> Floats:
    """Return powers of probabilities, scaled to a sum of 1."""
    return shares(probabilities**power)


@dataclass(frozen=True)
class LabelGraph:
    """Nodes of one graph (k, q), the prototypes first, with their class probabilities (k, c).

    ``unreached`` (k,) is True for nodes that are not connected with any labeled node.
    """

    nodes: Floats
    n_prototypes: int
    probabilities: Floats
    unreached: Bools


@dataclass(frozen=True)
class ViewPosterior:
    """Graphs of one view, which have equal weights and the same labeled nodes."""

    space: Space
    graphs: tuple[LabelGraph, ...]

    def __call__(self, x: Array, n_neighbors: int) -> tuple[Floats, Bools]:
        """Return class probabilities (n, c), and a mask of rows that no label reaches."""
        prototypes = [graph.nodes[: graph.n_prototypes] for graph in self.graphs]
        labeled = self.graphs[0].nodes[self.graphs[0].n_prototypes :]
        neighbors = nearest_in_sets(self.space(x), prototypes, labeled, n_neighbors + 1)
        probabilities = np.zeros((len(x), self.graphs[0].probabilities.shape[1]))
        unreached = np.ones(len(x), bool)
        for graph, (indices, distances) in zip(self.graphs, neighbors, strict=True):
            probabilities += weighted_values(distances, indices, graph.probabilities)
            # The fit connects the two nearest nodes of each counted row, so labels reach both or
            # neither.  For other rows the nearest node decides.
            unreached &= graph.unreached[indices[:, 0]]
        return probabilities / len(self.graphs), unreached


@dataclass(frozen=True)
class Posterior:
    """Function that returns the class probabilities of rows; it is sent to the workers.

    The views have equal weights.  ``weights`` (2,) are the exponents of the spread labels and of
    the ``classifier``, which may be None.  ``has_other_labels`` is True if some labels belong to
    rows that are not nodes.
    """

    n_classes: int
    n_neighbors: int
    views: tuple[ViewPosterior, ...]
    classifier: Any
    weights: Floats
    has_other_labels: bool = False

    @property
    def space(self) -> Space:
        """All views side by side."""
        return Space(tuple(view for own in self.views for view in own.space.views))

    def by_graph(self, x: Array) -> Floats:
        """Return the probabilities of the spread labels, (n, c).

        All classes have equal probabilities in two cases: for rows without any value, and for rows
        that no label reaches in any view.
        """
        total = np.zeros((len(x), self.n_classes))
        with one_blas_thread():
            for start in range(0, len(x), _SLICE):
                part = slice(start, start + _SLICE)
                by_view = [view(x[part], self.n_neighbors) for view in self.views]
                total[part] = sum(probabilities for probabilities, _ in by_view)
                total[part][np.all([unreached for _, unreached in by_view], axis=0)] = 0.0
        total[np.isnan(x).all(axis=1)] = 0.0
        return shares(np.round(total / len(self.views), _DECIMALS))

    def __call__(self, x: Array) -> Floats:
        """Return the class probabilities, (n, c)."""
        weight_of_spread, weight_of_classifier = self.weights.tolist()
        if weight_of_spread == 0.0 and self.classifier is not None:
            # The graph takes most of the time, and only the classifier has a weight.
            spread = np.full((len(x), self.n_classes), 1.0 / self.n_classes)
        else:
            spread = self.by_graph(x)
        if (weight_of_spread, weight_of_classifier) == (1.0, 0.0):
            return spread
        if self.classifier is None:
            return sharpened(spread, weight_of_spread)
        by_classifier = self.classifier.predict_proba(x)
        probabilities = mixed((weight_of_spread, weight_of_classifier), spread, by_classifier)
        empty = np.isnan(x).all(axis=1)
        probabilities[empty] = spread[empty]
        return shares(np.round(probabilities, _DECIMALS))

    @cached_property
    def _size_and_token(self) -> tuple[int, str]:
        pickled = pickle.dumps(self, pickle.HIGHEST_PROTOCOL)
        return len(pickled), hashlib.sha256(pickled).hexdigest()

    @property
    def nbytes(self) -> int:
        """Size of the pickled posterior in bytes."""
        return self._size_and_token[0]

    @property
    def token(self) -> str:
        """Identity of the values: equal posteriors have equal tokens."""
        return self._size_and_token[1]

    def check(self, n_features: int, n_classes: int) -> None:
        """Raise ValueError if parts from a model file contradict each other."""
        if self.n_classes != n_classes:
            raise ValueError(f"the posterior must have {n_classes} classes, got {self.n_classes}")
        for view in self.views:
            view.space.check(n_features, *(graph.nodes for graph in view.graphs))
            n_labeled = {len(graph.nodes) - graph.n_prototypes for graph in view.graphs}
            if len(n_labeled) > 1 or min(n_labeled) < 0:
                raise ValueError(
                    "the graphs of a view must have the same number of labeled nodes, got "
                    f"{sorted(n_labeled)}"
                )
        if len(self.weights) != 2:
            raise ValueError(f"there must be 2 mixing weights, got {len(self.weights)}")
        if self.classifier is not None:
            self.classifier.check()
        elif self.weights[1] > 0:
            raise ValueError("the weight of the classifier must be 0 without a classifier")


_GRAPH = OneOf(
    {
        LabelGraph: Fields(
            {
                "nodes": Stored("k q"),
                "n_prototypes": Number(int, low=1),
                "probabilities": Stored("k c", low=0),
                "unreached": Stored("k", kind="b"),
            }
        )
    }
)
_VIEW_POSTERIOR = OneOf({ViewPosterior: Fields({"space": SPACE, "graphs": Several(_GRAPH)})})
#: Entry of a :class:`Posterior`.
POSTERIOR: Entry = OneOf(
    {
        Posterior: Fields(
            {
                "n_classes": Number(int, low=1, dim="c"),
                "n_neighbors": Number(int, low=1),
                "views": Several(_VIEW_POSTERIOR),
                "classifier": CLASSIFIER,
                "weights": Stored("parts", low=0),
                "has_other_labels": Number(bool),
            }
        )
    }
)


@dataclass(frozen=True)
class ClassOf:
    """The most probable of the classes (c,) of each row; the first one in case of ties."""

    classes: Array

    def __call__(self, probabilities: Floats) -> Array:
        return self.classes[probabilities.argmax(axis=1)]


def margins(probabilities: Floats) -> Floats:
    """Return differences of the two largest values of the last axis; 1 for a single class."""
    if probabilities.shape[-1] == 1:
        return np.ones(probabilities.shape[:-1], probabilities.dtype)
    best = np.partition(probabilities, -2)[..., -2:]
    margin: Floats = best[..., 1] - best[..., 0]
    return margin
