"""From nodes back to rows: what the classes of a row are, in every view, and how that is kept."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.kernels.blas import one_blas_thread
from daskclust.core.kernels.nearest.k_nearest import nearest_several
from daskclust.core.persistence.schema import Array as Stored
from daskclust.core.persistence.schema import Entry, Number
from daskclust.core.reduction.connectivity import nearest_in_sets
from daskclust.semisupervised.classifiers import (
    CLASSIFIER,
    KernelRidge,
    Learned,
    References,
    mixed,
    shares,
)
from daskclust.semisupervised.feature_views import Space
from daskclust.semisupervised.near_nodes import weighted_values
from daskclust.semisupervised.problem import split

#: Rows that are worked out at a time.
_SLICE = 2048


@dataclass(frozen=True)
class Nearness:
    """Minus the distances of rows to their nearest nodes, on average over the views."""

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


def near_values(
    z: Floats, nodes: Floats, values: Floats, n_neighbors: int
) -> tuple[Floats, NDArray[np.int32]]:
    """Return what rows are given by their nearest nodes, the nearer ones weighing more: (n, c).

    Also return the nearest node of each row.
    """
    count = min(n_neighbors + 1, len(nodes))
    indices, distances = nearest_several(z, nodes, count)
    return weighted_values(distances, indices, values), indices[:, 0]


#: Bounds of the weight of the ridge beside the spreading: few labels do not suffice to choose
#: one of the two (tried, and worse), only to lean to it.
LEAST, MOST = 0.35, 1.2
#: Digits of a posterior: products by BLAS differ in the last ones from block to block.
_DIGITS = 12


def sharpened(found: Floats, power: float) -> Floats:
    """Return shares raised to a power, and scaled to a sum of 1 again."""
    return shares(found**power)


@dataclass(frozen=True)
class Balance:
    """How spreading and kernel ridge, whose shares are raised to powers first, are joined.

    ``ridge_share`` is the weight of the ridge beside the spreading, whose weight is 1.
    """

    ridge_share: float = 0.7
    spread_power: float = 1.0
    ridge_power: float = 1.0

    def __call__(self, spread: Floats, ridge: Floats) -> Floats:
        sure = self.ridge_share * sharpened(shares(ridge), self.ridge_power)
        return shares(sharpened(spread, self.spread_power) + sure)


@dataclass(frozen=True)
class NodeShares:
    """Nodes of one graph, the prototypes first, and their classes (k, c).

    ``shares`` are by the labels that have travelled; ``settled`` by these and the ridge, after both
    have settled on the graph; ``unreached`` (k,) are nodes without a path to any label.
    """

    nodes: Floats
    n_prototypes: int
    shares: Floats
    settled: Floats
    unreached: Bools


@dataclass(frozen=True)
class SpacePosterior:
    """Classes of rows in one space; the graphs of its sets of prototypes count alike.

    ``references`` are there where there are more labels than nodes.
    """

    space: Space
    graphs: tuple[NodeShares, ...]
    ridge: KernelRidge
    balance: Balance
    references: References | None = None

    def graph(self, z: Floats, n_neighbors: int) -> tuple[Floats, Bools]:
        """Shares by settled nodes, and by the graphs and the ridge as far as that is better.

        Also return which rows no label reaches in any of the graphs.
        """
        # How far rows are judged by themselves and not by settled nodes: where the ridge foretells
        # labels better than the graph, nodes are too coarse.
        lean = float(np.clip((self.balance.ridge_share - LEAST) / (MOST - LEAST), 0.0, 1.0))
        parts, unreached = [], np.ones(len(z), bool)
        first = self.graphs[0]
        prototypes = [one.nodes[: one.n_prototypes] for one in self.graphs]
        # The labeled nodes are equal in all graphs.
        labeled = first.nodes[first.n_prototypes :]
        neighbors = nearest_in_sets(z, prototypes, labeled, n_neighbors + 1)
        for one, (_, (indices, distances)) in zip(self.graphs, neighbors, strict=True):
            values = np.hstack([one.settled, one.shares]) if lean else one.settled
            parts.append(weighted_values(distances, indices, values))
            # Each row of the fit connects its two nearest nodes, so one of them is enough.
            unreached &= one.unreached[indices[:, 0]]
        found: Floats = sum(parts[1:], parts[0]) / len(parts)
        if lean == 0:
            return found, unreached
        settled, spread = np.hsplit(found, 2)
        return (1 - lean) * settled + lean * self.balance(spread, self.ridge(z)), unreached

    def neighbors(self, z: Floats, own: Ints | None = None) -> Floats:
        """Shares by the nearest labeled rows; those with the numbers `own` do not vote for z."""
        assert self.references is not None
        if own is not None:
            own = np.argsort(self.references.order)[own]
        first = self.graphs[0]
        return self.references.posterior(z, first.nodes[: first.n_prototypes], own)


@dataclass(frozen=True)
class Posterior:
    """Classes of rows in all spaces, which count alike; travels to the workers.

    ``neighbor_share`` is that of the nearest labeled rows, where there are more labels than nodes;
    ``weights`` are those of the spread labels and of the classifier.
    """

    spaces: tuple[SpacePosterior, ...]
    n_neighbors: int
    neighbor_share: float = 0.0
    classifier: Learned | None = None
    weights: tuple[float, float] = (1.0, 0.0)

    def __call__(self, x: Array, own: Ints | None = None) -> Floats:
        """Return the probabilities of the classes, (n, c).

        Rows that are labeled themselves, with the numbers `own`, do not vote for themselves.  Of
        rows that no label reaches in any graph, the classifier alone knows a class.
        """
        out = np.zeros((len(x), self.spaces[0].graphs[0].shares.shape[1]))
        # Of a row without any value nothing is known: all classes alike.
        unknown = np.isnan(x).all(axis=1)
        with one_blas_thread():
            for start in range(0, len(x), _SLICE):
                part = slice(start, start + _SLICE)
                unreached = np.ones(len(x[part]), bool)
                for one in self.spaces:
                    z = one.space(x[part])
                    found, missed = one.graph(z, self.n_neighbors)
                    unreached &= missed
                    if self.neighbor_share > 0:
                        voted = one.neighbors(z, None if own is None else own[part])
                        known = voted.sum(axis=1, keepdims=True) > 0
                        share = np.where(known, self.neighbor_share, 0.0)
                        found = (1 - share) * found + share * voted
                    out[part] += found
                out[part][unreached] = 0.0
        out[unknown] = 0.0
        out = shares(np.round(out / len(self.spaces), _DIGITS))
        if self.classifier is None or self.weights == (1.0, 0.0):
            return out
        found = mixed(self.weights, out, self.classifier.predict_proba(x))
        found[unknown] = out[unknown]
        return shares(np.round(found, _DIGITS))

    @cached_property
    def nbytes(self) -> int:
        """Size of what travels to the workers."""
        return len(pickle.dumps(self, pickle.HIGHEST_PROTOCOL))


@dataclass(frozen=True)
class Evaluation:
    """Outputs of rows from one evaluation of the posterior; travels to the workers.

    ``names`` are some of :data:`OUTPUTS`.  The result of several is an array of records.
    """

    posterior: Posterior
    classes: Array
    names: tuple[str, ...]
    nearness: Nearness | None = None

    @property
    def nbytes(self) -> int:
        return self.posterior.nbytes

    @property
    def dtype(self) -> np.dtype[Any]:
        shape = {"probabilities": (len(self.classes),)}
        kinds = {"labels": self.classes.dtype}
        return np.dtype(
            [(name, kinds.get(name, float), shape.get(name, ())) for name in self.names]
        )

    def __call__(self, x: Array) -> Array:
        """Return one record a row; ties of probabilities go to the first class."""
        out = np.empty(len(x), self.dtype)
        if set(self.names) != {"scores"}:
            found = self.posterior(x)
            if "labels" in self.names:
                out["labels"] = self.classes[found.argmax(axis=1)]
            if "margin" in self.names:
                out["margin"] = margins(found)
            if "probabilities" in self.names:
                out["probabilities"] = found
        if self.nearness is not None:
            out["scores"] = self.nearness(x)
        return out


@dataclass(frozen=True)
class OneOutput:
    """A single output of an evaluation, as an array."""

    evaluation: Evaluation

    @property
    def nbytes(self) -> int:
        return self.evaluation.nbytes

    def __call__(self, x: Array) -> Array:
        (name,) = self.evaluation.names
        return np.ascontiguousarray(self.evaluation(x)[name])


#: Outputs of one evaluation.
OUTPUTS = ("labels", "margin", "probabilities", "scores")


def margins(found: Floats) -> Floats:
    """Best probabilities less the second best, along the last axis; 1 where there is one class."""
    if found.shape[-1] == 1:
        return np.ones(found.shape[:-1], found.dtype)
    best = np.partition(found, -2)[..., -2:]
    margin: Floats = best[..., 1] - best[..., 0]
    return margin


#: The attributes: arrays of several graphs are stored one after another, view by view.
STORED_POSTERIOR: Mapping[str, Entry] = {
    "_nodes": Stored("t q"),
    "_node_shares": Stored("t c", low=0),
    "_settled_shares": Stored("t c", low=0),
    # Models of earlier versions do not tell nodes that no label reaches.
    "_unreached_nodes": Stored("t", kind="b"),
    "_n_prototypes": Stored("g", kind="i", low=1),
    "_n_labeled": Number(int, low=0),
    "_ridge_widths": Stored("kernels", low=0),
    "_ridge_weights": Stored("kernels l c"),
    "_ridge_points": Stored("v l q"),
    "_ridge_level": Number(low=0),
    "_ridge_axes": Stored("kernels q", low=0),
    "_ridge_kernels": Stored("v", kind="i", low=1),
    "_reference_points": Stored("v r q", optional=True),
    "_reference_shares": Stored("r c", low=0, optional=True),
    "_ridge_share": Number(low=0),
    "_spread_power": Number(low=0),
    "_ridge_power": Number(low=0),
    "_neighbor_share": Number(low=0),
    "_classifier": CLASSIFIER,
    "mixing_weights_": Stored("parts", low=0),
}


def store_posterior(posterior: Posterior) -> dict[str, Any]:
    """Return the attributes of a posterior; those that it does not have are left out."""
    spaces, balance = posterior.spaces, posterior.spaces[0].balance
    graphs = [graph for one in spaces for graph in one.graphs]
    stored: dict[str, Any] = {
        "_nodes": np.concatenate([graph.nodes for graph in graphs]),
        "_node_shares": np.concatenate([graph.shares for graph in graphs]),
        "_settled_shares": np.concatenate([graph.settled for graph in graphs]),
        "_unreached_nodes": np.concatenate([graph.unreached for graph in graphs]),
        "_n_prototypes": np.array([graph.n_prototypes for graph in graphs]),
        "_n_labeled": len(graphs[0].nodes) - graphs[0].n_prototypes,
        "_ridge_widths": np.concatenate([one.ridge.widths for one in spaces]),
        "_ridge_weights": np.concatenate([one.ridge.weights for one in spaces]),
        "_ridge_points": np.stack([one.ridge.points for one in spaces]),
        "_ridge_level": spaces[0].ridge.level,
        "_ridge_axes": np.concatenate([one.ridge.axes for one in spaces]),
        "_ridge_kernels": np.array([len(one.ridge.widths) for one in spaces]),
        "_ridge_share": balance.ridge_share,
        "_spread_power": balance.spread_power,
        "_ridge_power": balance.ridge_power,
        "_neighbor_share": posterior.neighbor_share,
    }
    if posterior.classifier is not None:
        stored["_classifier"] = posterior.classifier
    stored["mixing_weights_"] = np.array(posterior.weights)
    references = [one.references.unsorted() for one in spaces if one.references is not None]
    if references:
        stored["_reference_points"] = np.stack([points for points, _ in references])
        stored["_reference_shares"] = references[0][1]
    return stored


def check_stored(stored: Mapping[str, Any], n_views: int, n_classes: int) -> None:
    """Raise ValueError where the attributes of a loaded model contradict each other."""
    sizes, n_labeled = stored["_n_prototypes"].tolist(), stored["_n_labeled"]
    n_kernels = sum(stored["_ridge_kernels"].tolist())
    # Python integers: those of NumPy wrap around.
    n_nodes, found = sum(sizes) + len(sizes) * n_labeled, len(stored["_nodes"])
    for name, value, wanted in (
        ("nodes", found, n_nodes),
        ("graphs beyond those of whole views", len(sizes) % n_views, 0),
        ("kernels of its ridges", len(stored["_ridge_widths"]), n_kernels),
        ("classes with shares", stored["_node_shares"].shape[1], n_classes),
        ("weights of spread labels and a classifier", len(stored["mixing_weights_"]), 2),
    ):
        if value != wanted:
            raise ValueError(f"it has {value} {name}, and should have {wanted}")
    if "_classifier" in stored:
        stored["_classifier"].check()
    elif stored["mixing_weights_"][1] > 0:
        raise ValueError("it has a weight of its classifier, but no classifier")


def restore_posterior(stored: Mapping[str, Any], space: Space, n_neighbors: int) -> Posterior:
    """Make a posterior of the attributes of a model, in the space of all views."""
    sizes = stored["_n_prototypes"] + stored["_n_labeled"]
    parts = zip(
        split(stored["_nodes"], sizes),
        stored["_n_prototypes"].tolist(),
        split(stored["_node_shares"], sizes),
        split(stored["_settled_shares"], sizes),
        split(stored["_unreached_nodes"], sizes),
        strict=True,
    )
    graphs = [NodeShares(*part) for part in parts]
    own = space.alone()
    n_sets = len(graphs) // len(own)
    balance = Balance(stored["_ridge_share"], stored["_spread_power"], stored["_ridge_power"])
    points, known = stored.get("_reference_points"), stored.get("_reference_shares")
    every = stored["_ridge_widths"], stored["_ridge_weights"], stored["_ridge_axes"]
    widths, weights, axes = (split(one, stored["_ridge_kernels"]) for one in every)
    spaces = []
    for v, one in enumerate(own):
        sets = tuple(graphs[v * n_sets : (v + 1) * n_sets])
        nodes, size = sets[0].nodes, sets[0].n_prototypes
        ridge = KernelRidge(
            stored["_ridge_points"][v], widths[v], weights[v], axes[v], stored["_ridge_level"]
        )
        references = None
        if points is not None and known is not None:
            references = References.build(points[v], known, nodes[:size])
        spaces.append(SpacePosterior(one, sets, ridge, balance, references))
    spread, other = stored["mixing_weights_"].tolist()
    return Posterior(
        tuple(spaces),
        n_neighbors,
        stored["_neighbor_share"],
        stored.get("_classifier"),
        (spread, other),
    )
