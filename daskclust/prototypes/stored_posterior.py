"""A posterior as the attributes of a fitted model, which are what is saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from daskclust.persistence.schema import Array, Entry, Number
from daskclust.prototypes.posterior import Balance, NodeShares, Posterior, SpacePosterior
from daskclust.prototypes.references import References
from daskclust.prototypes.ridge import KernelRidge
from daskclust.prototypes.state import split
from daskclust.prototypes.views import Space

__all__ = ["STORED_POSTERIOR", "check_posterior", "restore_posterior", "store_posterior"]

#: The attributes: arrays of several graphs are stored one after another, view by view.
STORED_POSTERIOR: Mapping[str, Entry] = {
    "_nodes": Array("t", "q"),
    "_node_shares": Array("t", "c", low=0),
    "_settled_shares": Array("t", "c", low=0),
    "_n_prototypes": Array("g", kind="i", low=1),
    "_n_labeled": Number(int, low=0),
    "_ridge_widths": Array("v", low=0),
    "_ridge_weights": Array("v", "l", "c"),
    "_reference_points": Array("v", "r", "q", optional=True),
    "_reference_shares": Array("r", "c", low=0, optional=True),
    "_ridge_share": Number(low=0),
    "_spread_power": Number(low=0),
    "_ridge_power": Number(low=0),
    "_neighbor_share": Number(low=0),
}


def store_posterior(posterior: Posterior) -> dict[str, Any]:
    """Return the attributes of a posterior; those that it does not have are left out."""
    spaces, balance = posterior.spaces, posterior.balance
    graphs = [graph for one in spaces for graph in one.graphs]
    stored: dict[str, Any] = {
        "_nodes": np.concatenate([graph.nodes for graph in graphs]),
        "_node_shares": np.concatenate([graph.shares for graph in graphs]),
        "_settled_shares": np.concatenate([graph.settled for graph in graphs]),
        "_n_prototypes": np.array([graph.n_prototypes for graph in graphs]),
        "_n_labeled": len(spaces[0].nodes) - spaces[0].n_prototypes,
        "_ridge_widths": np.array([one.ridge.width for one in spaces]),
        "_ridge_weights": np.stack([one.ridge.weights for one in spaces]),
        "_ridge_share": balance.ridge_share,
        "_spread_power": balance.spread_power,
        "_ridge_power": balance.ridge_power,
        "_neighbor_share": posterior.neighbor_share,
    }
    references = [one.references.unsorted() for one in spaces if one.references is not None]
    if references:
        stored["_reference_points"] = np.stack([points for points, _ in references])
        stored["_reference_shares"] = references[0][1]
    return stored


def check_posterior(stored: Mapping[str, Any]) -> None:
    """Raise ValueError where the sizes of a stored posterior contradict its arrays."""
    labeled, graphs = int(stored["_n_labeled"]), stored["_n_prototypes"].tolist()
    n_nodes, n_views = len(stored["_nodes"]), len(stored["_units"])
    # Python integers: those of NumPy wrap around.
    if sum(graphs) + len(graphs) * labeled != n_nodes:
        raise ValueError(
            f"graphs of {graphs[:9]} prototypes and {labeled} labeled rows each do not make "
            f"{n_nodes} nodes"
        )
    if len(graphs) % n_views or labeled != stored["_ridge_weights"].shape[1]:
        raise ValueError(
            f"{len(graphs)} graphs and {labeled} labeled rows do not belong to {n_views} views and "
            f"ridge weights of shape {stored['_ridge_weights'].shape}"
        )


def restore_posterior(stored: Mapping[str, Any], space: Space, n_neighbors: int) -> Posterior:
    """Make a posterior of the attributes of a model.

    Parameters
    ----------
    stored : mapping
        As of :func:`store_posterior`, among others.
    space : Space
        All views.
    n_neighbors : int
    """
    sizes = stored["_n_prototypes"] + stored["_n_labeled"]
    parts = zip(
        split(stored["_nodes"], sizes),
        stored["_n_prototypes"].tolist(),
        split(stored["_node_shares"], sizes),
        split(stored["_settled_shares"], sizes),
        strict=True,
    )
    graphs = [NodeShares(*part) for part in parts]
    own = space.alone()
    n_sets = len(graphs) // len(own)
    balance = Balance(stored["_ridge_share"], stored["_spread_power"], stored["_ridge_power"])
    points, known = stored.get("_reference_points"), stored.get("_reference_shares")
    spaces = []
    for v, one in enumerate(own):
        sets = tuple(graphs[v * n_sets : (v + 1) * n_sets])
        nodes, size = sets[0].nodes, sets[0].n_prototypes
        ridge = KernelRidge(
            nodes[size:], float(stored["_ridge_widths"][v]), stored["_ridge_weights"][v]
        )
        references = None
        if points is not None and known is not None:
            references = References.build(points[v], known, nodes[:size])
        spaces.append(SpacePosterior(one, sets, ridge, balance, references))
    return Posterior(tuple(spaces), n_neighbors, stored["_neighbor_share"])
