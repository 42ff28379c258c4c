"""Masks of rows, computed block by block."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Bools, Ints


def mask_without(rows: Ints, lengths: Sequence[int] | None, n_rows: int) -> Any:
    """Return a mask of `n_rows` rows that is False at `rows` (ascending).

    The mask is lazy, with blocks of `lengths`; without `lengths` it is a NumPy array.

    >>> mask_without(np.array([1, 4]), (2, 3), 5).compute().tolist()
    [True, False, True, True, False]
    """
    if lengths is None:
        return _without(rows, n_rows)
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    cuts = np.searchsorted(rows, ends)
    table = np.empty(len(lengths), dtype=object)
    for i, ((first, last), (start, stop)) in enumerate(
        zip(pairwise(cuts), pairwise(ends), strict=True)
    ):
        table[i] = rows[first:last] - start, int(stop - start)
    return da.from_array(table, chunks=1).map_blocks(
        _of_block, dtype=bool, chunks=(tuple(lengths),), meta=np.empty(0, bool)
    )


def _of_block(table: NDArray[np.object_]) -> Bools:
    return _without(*table[0])


def _without(rows: Ints, n_rows: int) -> Bools:
    mask: Bools = np.ones(n_rows, bool)
    mask[rows] = False
    return mask
