"""Farthest-first traversal: a pass for each row that is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from daskclust._types import Array, Floats
from daskclust.kernels.nearest.assign import nearest
from daskclust.kernels.nearest.observed import nearest_observed
from daskclust.reduction.contract import Field, Partial, Reduction, RowBlock, top_dtype
from daskclust.reduction.survey import pick_rows

__all__ = ["FARTHEST_FIRST", "FARTHEST_FIRST_BYTES", "FarthestFirst"]


#: Bytes that a row keeps between the passes.
FARTHEST_FIRST_BYTES = 8


@dataclass(frozen=True)
class FarthestFirst:
    """Ask for the row farthest from all points so far.

    Parameters
    ----------
    points : ndarray of shape (m, p), float64
        In the order of their choice: rows are measured against the newest, as far as
        they know the distance to the others.
    shift : ndarray of shape (p,), float64, optional
        A point amid the data.
    missing : bool, default=False
        Whether NaN is a missing value: distances are over what is observed.
    """

    points: Floats
    shift: Floats | None = None
    missing: bool = False


def _fields(state: FarthestFirst) -> Mapping[str, Field]:
    return {"row": Field((1,), "top", top_dtype(state.points.shape[1]))}


class _Carry(NamedTuple):
    """Squared distance of each row to the nearest of the first ``seen`` points."""

    distance: Floats
    seen: int


def _block(rows: RowBlock, state: FarthestFirst, carry: _Carry | None) -> tuple[Partial, _Carry]:
    seen = 0 if carry is None else carry.seen
    distances = np.full(len(rows.x), np.inf) if carry is None else carry.distance
    if seen < len(state.points):
        measure = nearest_observed if state.missing else nearest
        found = measure(rows.x, state.points[seen:], shift=state.shift)[1]
        distances = np.minimum(distances, found)
    # A row on a chosen point cannot be chosen; a row of weight 0 is absent.
    usable = distances > 0
    if rows.weight is not None:
        usable &= rows.weight > 0
    keys = np.where(usable, -distances, np.inf)
    return {"row": pick_rows(rows, keys, 1)}, _Carry(distances, len(state.points))


def _finalize(partial: Partial, state: FarthestFirst) -> Array:
    found = partial["row"]
    return found[found["row"] >= 0]


#: The row farthest from its nearest point, as one record (ties by row number), or none.
FARTHEST_FIRST = Reduction("farthest-first", _fields, _block, _finalize, carries=True)
