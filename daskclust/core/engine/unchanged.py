"""Check that the values of a block that is computed again in each pass do not change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskclust.core.array_types import Array, Floats
from daskclust.core.kernels.totals import N_SUMS, block_totals
from daskclust.exceptions import ChunkError

#: Totals of one block: its first row, its length, its non-finite values, the sum of its weights,
#: and sums of its values and of their sizes (absolute values).
TOTALS = np.dtype(
    [
        ("start", "i8"),
        ("size", "i8"),
        ("n_missing", "i8"),
        ("weight", "f8"),
        ("sums", "f8", (N_SUMS,)),
        ("sizes", "f8", (N_SUMS,)),
    ]
)

#: Relative rounding error of a value that is computed again, for example on another processor or
#: with another number of threads.  Most data have single precision, so this is its rounding error.
_ROUNDING = 64 * float(np.finfo(np.float32).eps)
#: Relative rounding error that all values of a block may have in common, by bytes per value.
_BIAS = {4: 4 * float(np.finfo(np.float32).eps), 8: 1e-9}


class Tally:
    """The totals of one block, added up while its rows are read."""

    def __init__(self, start: int, size: int, weight: Floats | None) -> None:
        self._record = np.zeros(1, TOTALS)
        self._record["start"], self._record["size"] = start, size
        with np.errstate(over="ignore", invalid="ignore"):
            self._record["weight"] = size if weight is None else weight.sum()

    def add(self, x: Array) -> None:
        (sums, sizes), n_missing = block_totals(x)
        with np.errstate(over="ignore", invalid="ignore"):
            self._record["sums"] += sums
            self._record["sizes"] += sizes
        self._record["n_missing"] += n_missing

    @property
    def record(self) -> Array:
        return self._record


def joined(records: Sequence[Array]) -> Array:
    """Join totals of blocks; the list may be empty."""
    return np.concatenate([np.empty(0, TOTALS), *records])


def _in_order(records: Array) -> Array:
    ordered: Array = records[np.argsort(records["start"], kind="stable")]
    return ordered


@dataclass
class FirstTotals:
    """The totals of each block at its first read, in row order."""

    stored: Array = field(default_factory=lambda: np.empty(0, TOTALS))

    def check(self, records: Array, dtype: np.dtype[Any]) -> None:
        """Compare totals of blocks with their stored totals, and store the totals of new blocks.

        Raises
        ------
        ChunkError
            If a block differs from its first read by more than rounding.
        """
        records = _in_order(records)
        positions = np.searchsorted(self.stored["start"], records["start"])
        is_stored = positions < len(self.stored)
        is_stored[is_stored] = (
            self.stored["start"][positions[is_stored]] == records["start"][is_stored]
        )
        # Parts of a block, which are in memory, cannot be compared.
        comparable = is_stored.copy()
        comparable[is_stored] = (
            self.stored["size"][positions[is_stored]] == records["size"][is_stored]
        )
        first, current = self.stored[positions[comparable]], records[comparable]
        changed = np.flatnonzero(_differs(first, current, _BIAS[dtype.itemsize]))
        if len(changed):
            _refuse(first[changed[0]], current[changed[0]])
        if not is_stored.all():
            self.stored = _in_order(joined([self.stored, records[~is_stored]]))

    def of_chunks(self, lengths: Sequence[int]) -> list[Array | None]:
        """Return the totals of each chunk, or None if it was not read completely."""
        bounds = np.cumsum([0, *lengths])
        positions = np.searchsorted(self.stored["start"], bounds)
        totals: list[Array | None] = []
        for start, size, low, high in zip(bounds, lengths, positions, positions[1:], strict=False):
            records = self.stored[low:high]
            if records["size"].sum() != size or not size:
                totals.append(None)
                continue
            record = records[:1].copy()
            record["start"], record["size"] = start, size
            for name in ("n_missing", "weight", "sums", "sizes"):
                record[name] = records[name].sum(axis=0)
            totals.append(record)
        return totals


def check_same(first: Array, tiles: Iterable[Array]) -> None:
    """Raise ChunkError if the values of one chunk differ from its first read."""
    current = Tally(int(first["start"][0]), int(first["size"][0]), None)
    itemsize = 8
    for x in tiles:
        current.add(x)
        itemsize = x.dtype.itemsize
    # The weights belong to the fit only.
    current.record["weight"] = first["weight"]
    if _differs(first, current.record, _BIAS[itemsize]).any():
        _refuse(first[0], current.record[0])


def _differs(first: Array, current: Array, bias: float) -> Any:
    tolerance = bias + _ROUNDING / np.sqrt(np.maximum(first["size"], 1))
    # The first pass raises an error for NaN and infinity, with their row.
    with np.errstate(over="ignore", invalid="ignore"):
        moved = np.abs(current["sums"] - first["sums"]) > tolerance[:, None] * first["sizes"]
        resized = np.abs(current["sizes"] - first["sizes"]) > tolerance[:, None] * first["sizes"]
        weighed = np.abs(current["weight"] - first["weight"]) > tolerance * first["weight"]
    changed = moved.any(axis=1) | resized.any(axis=1) | weighed
    return changed | (current["n_missing"] != first["n_missing"])


def _refuse(first: Any, current: Any) -> None:
    last = first["start"] + first["size"] - 1
    if first["n_missing"] != current["n_missing"]:
        change = f"it had {first['n_missing']} missing values, then {current['n_missing']}"
    elif not np.isclose(first["weight"], current["weight"], rtol=1e-9):
        change = f"the sum of its weights was {first['weight']:.9g}, then {current['weight']:.9g}"
    else:
        change = "the sums of its values differ"
    raise ChunkError(
        f"X changed between two passes over the data. The first block that changed has the rows "
        f"{first['start']} to {last}: {change}. A fit reads a lazy array several times, and each "
        "read must return the same values. Use X = X.persist() before the fit, seed the random "
        "numbers, or store X and read the stored array."
    )
