"""A metric of eigenvectors that is fitted to pairs and labels (Li, Liu & Tang 2009)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, cg

from daskclust.core.array_types import Bools, Floats, Ints
from daskclust.core.constraints import PairwiseConstraints
from daskclust.core.kernels.blas import one_blas_thread
from daskclust.semisupervised.graph import unit_rows

#: Number of folds of the cross-validation of constraints.
_FOLDS = 2
#: Relative residual, and number of iterations, after which the system of a metric is solved.
_RESIDUAL, _ITERATIONS = 1e-6, 200
#: Number of labels per class from which the pairs that labels imply weigh less.
_FULL_LABELS = 4


@dataclass(frozen=True)
class NodeLinks:
    """Pairs of nodes, and labels of nodes that imply pairs.

    ``left`` and ``right`` (n_pairs,) are the nodes of the explicit pairs.  ``labeled`` (m,) are the
    nodes of labeled rows, and ``codes`` (m,) the classes of these rows.
    """

    constraints: PairwiseConstraints
    left: Ints
    right: Ints
    labeled: Ints
    codes: Ints

    def _scales(self) -> tuple[float, float]:
        """Return factors of the weights of explicit and implied pairs; only proportions matter.

        A label is a single piece of evidence, so the pairs of a row have a bounded weight.
        """
        c = self.constraints
        implied = (c.implied_must_link_weight + c.implied_cannot_link_weight) / 2
        mean = float(c.pair_weight.mean()) if len(c.pair_weight) else implied
        n_labels = len(self.codes)
        n_classes = len(np.unique(self.codes))
        share = min(1.0, _FULL_LABELS * n_classes / n_labels) if n_labels else 0.0
        return (1.0 / mean, share / mean) if mean > 0 else (0.0, 0.0)

    def fit_metric(
        self, vectors: Floats, free: Floats, strength: float, pairs: Bools, labels: Bools
    ) -> Floats:
        """Fit a symmetric matrix M (d, d) to the selected pairs and labeled rows.

        M minimizes ``|M - free|^2 + strength sum w (u' M v - t)^2``.  The sum is over pairs (u, v)
        of rows of ``vectors`` (k, d); the target t is 1 for a must-link and 0 for a cannot-link.
        Each iteration of conjugate gradients costs O(m d^2) for m pairs and labeled rows.
        """
        c, (explicit_scale, implied_scale) = self.constraints, self._scales()
        u, v = vectors[self.left[pairs]], vectors[self.right[pairs]]
        weight = strength * explicit_scale * c.pair_weight[pairs]
        target = c.pair_is_must_link[pairs].astype(np.float64)
        x, codes = vectors[self.labeled[labels]], self.codes[labels]
        must = strength * implied_scale * c.implied_must_link_weight
        cannot = strength * implied_scale * c.implied_cannot_link_weight
        groups = [x[codes == code] for code in np.unique(codes)]
        # Products with the rows of a small group are faster than with its scatter matrix.
        scatters = [group.T @ group for group in groups if len(group) > x.shape[1]]
        small = [group for group in groups if len(group) <= x.shape[1]]
        total = x.T @ x

        def products(m: Floats) -> Floats:
            """Sum ``w (u' M v) u v'`` over the pairs, each implied pair in both orders."""
            total_products = u.T @ ((weight * ((u @ m) * v).sum(axis=1))[:, None] * v)
            if len(x):
                within_groups = sum(s @ m @ s for s in scatters)
                within_groups += sum(g.T @ ((g @ m @ g.T) @ g) for g in small)
                self_products = x.T @ (((x @ m) * x).sum(axis=1)[:, None] * x)
                total_products += (
                    cannot * (total @ m @ total - within_groups)
                    + must * (within_groups - self_products)
                ) / 2
            return (total_products + total_products.T) / 2

        targets = u.T @ ((weight * target)[:, None] * v)
        if len(x):
            sums = [group.sum(axis=0) for group in groups]
            targets += must * (sum(np.outer(s, s) for s in sums) - total) / 2
        d = vectors.shape[1]

        def apply(m: Floats) -> Floats:
            square = m.reshape(d, d)
            return (square + products(square)).ravel()

        system = LinearOperator((d * d, d * d), apply, dtype=np.float64)
        right = free + (targets + targets.T) / 2
        solution, _ = cg(system, right.ravel(), free.ravel(), rtol=_RESIDUAL, maxiter=_ITERATIONS)
        square = solution.reshape(d, d)
        return (square + square.T) / 2

    def _distinct(self) -> tuple[Ints, Ints]:
        """Return the first of the labeled rows of each node and class, and the number of each."""
        keys = np.column_stack([self.labeled, self.codes])
        _, first, number = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        return first, number.reshape(-1)

    def folds(self, seed: int) -> tuple[Ints, Ints]:
        """Return the fold of each pair and of each labeled row; classes are dealt out evenly.

        Labeled rows of one node and class are in one fold.
        """
        first, number = self._distinct()
        order = np.lexsort((np.random.default_rng(seed).random(len(first)), self.codes[first]))
        fold = np.empty(len(first), np.int64)
        fold[order] = np.arange(len(first)) % _FOLDS
        return self.constraints.folds(_FOLDS, seed), fold[number]

    def satisfied(self, clusters: Ints, pairs: Bools, labels: Bools) -> Floats:
        """Return the weight of each selected constraint that the clusters of the nodes satisfy.

        The selected pairs come first, then the selected labeled rows.  A labeled row represents its
        implied pairs with all labeled rows that are not selected.  Rows of one node and class count
        once.
        """
        c, (explicit_scale, implied_scale) = self.constraints, self._scales()
        same = clusters[self.left] == clusters[self.right]
        explicit = explicit_scale * np.where(same == c.pair_is_must_link, c.pair_weight, 0.0)[pairs]
        if not labels.any():
            return explicit
        first, _ = self._distinct()
        codes, cluster, out = self.codes[first], clusters[self.labeled[first]], labels[first]
        table = np.zeros((int(codes.max()) + 1, int(clusters.max()) + 1))
        np.add.at(table, (codes[~out], cluster[~out]), 1.0)
        together = table[codes[out], cluster[out]]
        apart = table.sum() - table.sum(axis=1)[codes[out]] - table.sum(axis=0)[cluster[out]]
        apart += together
        of_rows = c.implied_must_link_weight * together + c.implied_cannot_link_weight * apart
        return np.concatenate([explicit, implied_scale * of_rows])


@dataclass(frozen=True)
class LinkedNodes:
    """Nodes in the space of the leading eigenvectors, with constraints.

    The first ``d`` of the ``vectors`` (k, d + further) have length 1 in each row, as without
    constraints, and the further ones have at most length 1.  The metric ``free`` without
    constraints has weight 1 for the first and 0 for the further eigenvectors.
    """

    links: NodeLinks
    vectors: Floats
    d: int
    seed: int

    @classmethod
    def of(cls, links: NodeLinks, eigenvectors: Floats, d: int, seed: int) -> LinkedNodes:
        """Scale the eigenvectors (k, d + further)."""
        first, further = eigenvectors[:, :d], eigenvectors[:, d:]
        length = np.linalg.norm(first, axis=1, keepdims=True)
        rest = np.divide(further, length, out=np.zeros_like(further), where=length > 0)
        rest /= np.maximum(np.linalg.norm(rest, axis=1, keepdims=True), 1.0)
        return cls(links, np.hstack([unit_rows(first), rest]), d, seed)

    @property
    def free(self) -> Floats:
        return np.diag((np.arange(self.vectors.shape[1]) < self.d).astype(np.float64))

    def embed(
        self, strength: float, pairs: Bools | None = None, labels: Bools | None = None
    ) -> Floats:
        """Embed the nodes (k, d) by the d leading directions of the metric, scaled to length 1.

        ``pairs`` and ``labels`` select the constraints; the default is all.
        """
        pairs = np.ones(len(self.links.left), bool) if pairs is None else pairs
        labels = np.ones(len(self.links.labeled), bool) if labels is None else labels
        with one_blas_thread():
            metric = self.links.fit_metric(self.vectors, self.free, strength, pairs, labels)
            values, directions = eigh(metric)
            leading = directions[:, ::-1][:, : self.d]
            leading *= np.sqrt(np.maximum(values[::-1][: self.d], 0.0))
            return unit_rows(self.vectors @ leading)

    def gain(self, cluster: Callable[[Floats], Ints]) -> float:
        """Return the gain in satisfied left-out constraints, in standard errors.

        Two-fold cross-validation compares clusters with and without constraints.  ``cluster``
        clusters embedded nodes.
        """
        pairs, labels = self.links.folds(self.seed)
        alone = cluster(self.vectors[:, : self.d])
        changes = []
        for fold in range(_FOLDS):
            out = pairs == fold, labels == fold
            if out[0].any() or out[1].any():
                clusters = cluster(self.embed(1.0, ~out[0], ~out[1]))
                changes.append(
                    self.links.satisfied(clusters, *out) - self.links.satisfied(alone, *out)
                )
        change = np.concatenate(changes)
        error = np.sqrt((change**2).sum())
        return float(change.sum() / error) if error > 0 else 0.0
