"""Agreement of several labelings with one: a table of counts for each, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from daskclust._types import Array, Floats
from daskclust.kernels.compensated import sum_terms
from daskclust.reduction.contract import Field, Partial, Reduction, RowBlock

__all__ = ["AGREEMENT", "AgreementRequest"]

Labeler = Callable[[Array], Array]


@dataclass(frozen=True)
class AgreementRequest:
    """Ask for the tables of labelings.

    Parameters
    ----------
    reference : callable(x) -> ndarray of shape (n,), int
    others : tuple of callable(x) -> ndarray of shape (n,), int
    n_labels : int
        All labels lie in [0, n_labels).
    """

    reference: Labeler
    others: tuple[Labeler, ...]
    n_labels: int


def _fields(state: AgreementRequest) -> Mapping[str, Field]:
    return {"tables": Field((2, len(state.others), state.n_labels, state.n_labels))}


def _tables(own: Array, others: list[Array], weight: Floats, k: int) -> Floats:
    shape = len(others), k, k
    flat = [np.bincount(own * k + other, weight, k * k) for other in others]
    return np.array(flat, dtype=np.float64).reshape(shape)


def _block(rows: RowBlock, state: AgreementRequest) -> Partial:
    k = state.n_labels
    if not len(rows.x):
        return {"tables": np.zeros((2, len(state.others), k, k))}
    own = state.reference(rows.x).astype(np.int64)
    others = [other(rows.x) for other in state.others]
    weight = np.ones(len(rows.x)) if rows.weight is None else rows.weight
    # Chunk by chunk, so that sums of uneven weights do not show which chunks were joined.
    parts = rows.slices()
    return {
        "tables": sum_terms(
            [_tables(own[at], [other[at] for other in others], weight[at], k) for at in parts]
        )
    }


def _finalize(partial: Partial, state: AgreementRequest) -> Floats:
    found: Floats = partial["tables"].sum(axis=0)
    return found


#: Weight of the rows by their label in the reference (rows) and in each other labeling.
AGREEMENT = Reduction("agreement", _fields, _block, _finalize)
