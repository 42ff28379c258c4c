"""The number of clusters from one tree: gaps of its heights, and cuts that other trees repeat."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.base import clone

from daskclust._types import Array, Floats, Ints
from daskclust.estimator.fitting import draw_seeds
from daskclust.estimator.parameters import check_choice
from daskclust.kernels.linkage import cut_tree, link
from daskclust.metrics import ari_of_table
from daskclust.selection._result import Selection, one_standard_error
from daskclust.trees.agglomerative import AgglomerativeClustering

__all__ = ["TreeCriterion", "choose_cut"]

TreeCriterion = Literal["height", "stability"]


def _gaps(heights: Floats, ks: Ints) -> Floats:
    """Return for each k how much higher the merge to k - 1 clusters is than that to k, as a log.

    NaN for one cluster, and for as many as there are leaves.
    """
    m = len(heights) + 1
    out = np.full(len(ks), np.nan)
    there = (ks > 1) & (ks < m)
    above, below = heights[m - ks[there]], heights[m - ks[there] - 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.log(above) - np.log(below)
    out[there] = np.where(np.isfinite(gap), gap, np.nan)
    return out


def _agreement(a: Ints, b: Ints, weights: Floats) -> float:
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), weights)
    return ari_of_table(table)


def choose_cut(
    estimator: Any, X: Any, ks: Array, criterion: TreeCriterion, n_halves: int, random_state: Any
) -> Selection:
    """Choose where to cut one tree; arguments of ``choose_n_clusters``."""
    if not isinstance(estimator, AgglomerativeClustering):
        raise ValueError(
            f"method='tree' needs a tree: an AgglomerativeClustering; got {estimator!r}."
        )
    check_choice(criterion, "criterion", ("height", "stability"))
    (seed,) = draw_seeds(random_state, 1)
    model = clone(estimator).set_params(n_clusters=2, distance_threshold=None)
    if model.random_state is None:
        model.set_params(random_state=seed % 2**32)
    model.fit(X)
    m = model.n_leaves_
    if ks[-1] > m:
        raise ValueError(
            f"ks go up to {ks[-1]}, the tree has {m} leaves; expected no more. Raise n_prototypes."
        )
    weights, leaves = model.leaf_weights_, model._leaves
    rng = np.random.default_rng(seed)
    cuts = [cut_tree(model.linkage_, weights, int(k)) for k in ks]
    gaps, stable = np.full((n_halves, len(ks)), np.nan), np.full((n_halves, len(ks)), np.nan)
    for b in range(n_halves):
        half = np.sort(rng.choice(m, max(m // 2, 2), replace=False)) if m > 3 else np.arange(m)
        tree = link(leaves[half], weights[half], model.linkage)
        gaps[b] = _gaps(tree[:, 2], ks)
        for i, k in enumerate(ks.tolist()):
            if 1 < k <= len(half):
                of_half = cut_tree(tree, weights[half], k)
                stable[b, i] = _agreement(cuts[i][half], of_half, weights[half])
    if criterion == "height":
        scores, spread = _gaps(model.linkage_[:, 2], ks), gaps
    else:
        scores, spread = stable.mean(axis=0), stable
    if np.isnan(scores).all():
        raise ValueError(
            f"ks={ks.tolist()}: the {criterion} of a cut is defined for more than one cluster and "
            f"fewer than the {m} leaves; expected such a number."
        )
    errors = spread.std(axis=0, ddof=1) / (1.0 if criterion == "height" else np.sqrt(n_halves))
    best = int(np.nanargmax(scores))
    return Selection(
        parameter="n_clusters",
        criterion=criterion,
        grid=ks,
        scores=scores,
        standard_errors=errors,
        greater_is_better=True,
        best_index=best,
        one_se_index=one_standard_error(scores, errors, best),
        estimators=tuple(model.cut(int(k)) for k in ks),
        passes=int(model.history_[-1]["passes"]) if model.history_ else 1,
        details={
            "heights": model.linkage_[:, 2][::-1][: int(ks[-1])],
            "gaps": gaps,
            "agreement": stable,
        },
    )
