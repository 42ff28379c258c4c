"""Comparing the reads of a block that is computed anew in each pass: its values must not change."""

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

#: Rounding in which values that are computed anew may differ, each by itself: on another processor,
#: or by another number of threads. In single precision, which is where most rows come from.
_ROUNDING = 64 * float(np.finfo(np.float32).eps)
#: Rounding in which all values of a block may differ alike, relative to their size.
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
    """Join totals of blocks, of whom there may be none."""
    return np.concatenate([np.empty(0, TOTALS), *records])


def _in_order(records: Array) -> Array:
    ordered: Array = records[np.argsort(records["start"], kind="stable")]
    return ordered


@dataclass
class FirstTotals:
    """The totals of each block when it was read first, in row order."""

    known: Array = field(default_factory=lambda: np.empty(0, TOTALS))

    def check(self, found: Array, dtype: np.dtype[Any]) -> None:
        """Compare totals of blocks with those known, and keep the others.

        Raises
        ------
        ChunkError
            If a block differs from its first read by more than rounding can.
        """
        found = _in_order(found)
        at = np.searchsorted(self.known["start"], found["start"])
        there = at < len(self.known)
        there[there] = self.known["start"][at[there]] == found["start"][there]
        # Of part of a block, which is in memory, nothing can be said.
        alike = there.copy()
        alike[there] = self.known["size"][at[there]] == found["size"][there]
        first, now = self.known[at[alike]], found[alike]
        changed = np.flatnonzero(_differs(first, now, _BIAS[dtype.itemsize]))
        if len(changed):
            _refuse(first[changed[0]], now[changed[0]])
        if not there.all():
            self.known = _in_order(joined([self.known, found[~there]]))

    def of_chunks(self, lengths: Sequence[int]) -> list[Array | None]:
        """Return the totals of each chunk; None for a chunk that was not read as a whole."""
        bounds = np.cumsum([0, *lengths])
        at = np.searchsorted(self.known["start"], bounds)
        found: list[Array | None] = []
        for start, size, low, high in zip(bounds, lengths, at, at[1:], strict=False):
            parts = self.known[low:high]
            if parts["size"].sum() != size or not size:
                found.append(None)
                continue
            record = parts[:1].copy()
            record["start"], record["size"] = start, size
            for name in ("n_missing", "weight", "sums", "sizes"):
                record[name] = parts[name].sum(axis=0)
            found.append(record)
        return found


def check_same(first: Array, tiles: Iterable[Array]) -> None:
    """Raise as :meth:`FirstTotals.check` if the values of one chunk are others than at first."""
    now = Tally(int(first["start"][0]), int(first["size"][0]), None)
    itemsize = 8
    for x in tiles:
        now.add(x)
        itemsize = x.dtype.itemsize
    # Weights belong to the fit alone.
    now.record["weight"] = first["weight"]
    if _differs(first, now.record, _BIAS[itemsize]).any():
        _refuse(first[0], now.record[0])


def _differs(first: Array, now: Array, bias: float) -> Any:
    part = bias + _ROUNDING / np.sqrt(np.maximum(first["size"], 1))
    # NaN and infinity are refused by the first pass, which names their row.
    with np.errstate(over="ignore", invalid="ignore"):
        moved = np.abs(now["sums"] - first["sums"]) > part[:, None] * first["sizes"]
        resized = np.abs(now["sizes"] - first["sizes"]) > part[:, None] * first["sizes"]
        weighed = np.abs(now["weight"] - first["weight"]) > part * first["weight"]
    changed = moved.any(axis=1) | resized.any(axis=1) | weighed
    return changed | (now["n_missing"] != first["n_missing"])


def _refuse(first: Any, now: Any) -> None:
    last = first["start"] + first["size"] - 1
    if first["n_missing"] != now["n_missing"]:
        what = f"it had {first['n_missing']} missing values, then {now['n_missing']}"
    elif not np.isclose(first["weight"], now["weight"], rtol=1e-9):
        what = f"the sum of its weights was {first['weight']:.9g}, then {now['weight']:.9g}"
    else:
        what = "the sums of its values differ"
    raise ChunkError(
        f"X changed between two passes over the data. The first block that changed has the rows "
        f"{first['start']} to {last}: {what}. A fit reads a lazy array several times, and each "
        "read must return the same values. Use X = X.persist() before the fit, seed the random "
        "numbers, or store X and read that."
    )
