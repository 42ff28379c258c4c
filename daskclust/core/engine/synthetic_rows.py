"""Rows that workers make for themselves, to measure what passes over them cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from daskclust.core.engine.blocks import Block, Group, Prepare, fold
from daskclust.core.engine.resilient_tasks import Slot, Task, WorkerSlots
from daskclust.core.engine.rows import ClusterExecutor, OpenRows
from daskclust.core.engine.wait_for_workers import workers_of
from daskclust.core.reduction import Reduction


def _make(start: int, size: int, n_features: int) -> Group:
    rng = np.random.default_rng(start)
    return Group([Block(start, size, rng.random((size, n_features), dtype=np.float32))])


def _fold_again(
    group: Group, prepare: Prepare, reduction: Reduction, state: Any, repeats: int
) -> list[float]:
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        fold(group, prepare, reduction, state)
        seconds.append(time.perf_counter() - began)
    return seconds


class MadeRows(OpenRows):
    """Noise in float32: at each of `places`, addresses of workers, a group of one block."""

    def __init__(self, client: Any, places: Sequence[str], size: int, n_features: int) -> None:
        slots = [Slot(size, place) for place in places]
        groups, ranges = [], []
        for i, slot in enumerate(slots):
            arguments = (i * size, size, n_features)
            groups.append(Task("make", _make, arguments, slot).submit(client))
            ranges.append([(i * size, (i + 1) * size)])
        executor = ClusterExecutor(WorkerSlots(client, slots, workers_of(client)), groups, ranges)
        super().__init__(executor, np.dtype(np.float32), (size,) * len(slots), n_features)

    def alone(self, reduction: Reduction, state: Any, repeats: int) -> list[list[float]]:
        """Return seconds of passes over each group by one task: without scheduler and client."""
        return self._executor.map(
            "alone", _fold_again, self._prepare, reduction, state, int(repeats)
        )
