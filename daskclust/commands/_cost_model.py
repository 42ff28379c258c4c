"""What a pass costs beside the work on rows, and how far one scheduler carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from scipy.optimize import nnls

from daskclust._types import Floats

__all__ = ["CostModel", "Forecast", "Sample", "n_tasks"]

#: Partials that a task merges.
_SPLIT_EVERY = 8


@dataclass(frozen=True)
class Sample:
    """A measured pass over groups that hold next to nothing.

    Attributes
    ----------
    groups : int
        A group is what one task goes over: usually one or two for each worker thread.
    state_bytes : int
        Of what each task is sent: centers, weights.
    seconds : float
        Of the clock.
    client_seconds, scheduler_seconds, worker_seconds : float
        Of the processors of client, scheduler, and all workers together.
    """

    groups: int
    state_bytes: int
    seconds: float
    client_seconds: float
    scheduler_seconds: float
    worker_seconds: float


def n_tasks(groups: int) -> int:
    """Return how many tasks a pass submits: one a group, and a tree of merges.

    Examples
    --------
    >>> n_tasks(8), n_tasks(64), n_tasks(512)
    (8, 72, 584)
    """
    total = level = groups
    while level > _SPLIT_EVERY:
        level = -(-level // _SPLIT_EVERY)
        total += level
    return total


def _features(groups: int, state_bytes: int) -> Floats:
    tasks = n_tasks(groups)
    return np.array([1.0, tasks, tasks * float(state_bytes)])


@dataclass(frozen=True)
class Cost:
    """Seconds: a constant, for each task, and for each byte of the state in each task."""

    constant: float
    task: float
    byte: float

    @classmethod
    def fit(cls, samples: Sequence[Sample], values: Sequence[float]) -> Cost:
        """Fit to measured seconds by least squares of relative errors; nothing is negative."""
        scale = 1.0 / np.maximum(np.asarray(values, dtype=float), 1e-6)
        features = np.array([_features(s.groups, s.state_bytes) for s in samples])
        # Bytes are many: columns of one size keep the solver's tolerances meaningful.
        size = np.maximum(np.abs(features * scale[:, None]).max(axis=0), 1e-300)
        found, _ = nnls(features * scale[:, None] / size, np.asarray(values) * scale)
        return cls(*(found / size).tolist())

    def of(self, groups: int, state_bytes: int) -> float:
        """Return the seconds of a pass."""
        return float(
            _features(groups, state_bytes) @ np.array([self.constant, self.task, self.byte])
        )


@dataclass(frozen=True)
class Forecast:
    """What a pass is expected to take.

    Attributes
    ----------
    work_seconds : float
        On the rows, on the slowest core.
    overhead_seconds : float
        Of the clock, beside that.
    efficiency : float
        Work in the whole.
    scheduler_share : float
        Of the time, that the scheduler is busy.
    """

    cores: int
    groups: int
    tasks: int
    work_seconds: float
    overhead_seconds: float
    efficiency: float
    scheduler_share: float


@dataclass(frozen=True)
class CostModel:
    """Costs of passes on a cluster, fitted to samples.

    Attributes
    ----------
    seconds, client, scheduler, workers : Cost
        Of the clock; of the processors of client, scheduler, and all workers together.
    """

    seconds: Cost
    client: Cost
    scheduler: Cost
    workers: Cost

    @classmethod
    def fit(cls, samples: Sequence[Sample]) -> CostModel:
        """Fit to samples of at least two numbers of groups."""
        return cls(
            Cost.fit(samples, [s.seconds for s in samples]),
            Cost.fit(samples, [s.client_seconds for s in samples]),
            Cost.fit(samples, [s.scheduler_seconds for s in samples]),
            Cost.fit(samples, [s.worker_seconds for s in samples]),
        )

    def forecast(
        self,
        *,
        rows: float,
        cores: int,
        rows_a_second: float,
        state_bytes: int,
        groups_a_core: int = 1,
    ) -> Forecast:
        """Say what a pass would take.

        Parameters
        ----------
        cores : int
            Worker threads.
        rows_a_second : float
            Of one core, by itself.
        groups_a_core : int, default=1
            1 for rows kept in memory, 2 for rows that are read in each pass.
        """
        groups = cores * groups_a_core
        work = rows / cores / rows_a_second
        overhead = self.seconds.of(groups, state_bytes)
        whole = work + overhead
        return Forecast(
            cores,
            groups,
            n_tasks(groups),
            work,
            overhead,
            work / whole,
            min(1.0, self.scheduler.of(groups, state_bytes) / whole),
        )

    def most_cores(
        self, *, rows: float, rows_a_second: float, state_bytes: int, efficiency: float = 0.9
    ) -> int:
        """Return up to how many cores a pass keeps an efficiency; 0 where one has less."""
        low, high = 0, 1
        given: dict[str, Any] = {
            "rows": rows,
            "rows_a_second": rows_a_second,
            "state_bytes": state_bytes,
        }
        while high < 2**24 and self.forecast(cores=high, **given).efficiency >= efficiency:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            good = self.forecast(cores=middle, **given).efficiency >= efficiency
            low, high = (middle, high) if good else (low, middle)
        return low

    def as_json(self) -> dict[str, dict[str, float]]:
        """Return the coefficients."""
        return {field.name: asdict(getattr(self, field.name)) for field in fields(self)}
