"""The loop that every iterative fit shares."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from daskclust.engine.checkpoint import Checkpoint
from daskclust.engine.progress import announce
from daskclust.engine.rows import Rows
from daskclust.exceptions import ClusterError, ReadError

__all__ = ["Fitted", "Step", "iterate"]

S = TypeVar("S")


@dataclass(frozen=True)
class Step(Generic[S]):
    """What one iteration did.

    Parameters
    ----------
    state : dataclass
        Where the next iteration goes on.
    objective : float
        Of the assignment just made, before centers moved.
    center_shift : float
        How far the centers moved, by the estimator's measure.
    finished : bool
        Whether there is nothing more to do.
    moved : int, optional
        Rows that changed their cluster, where that is known.
    extra : mapping, optional
        More for the record; JSON values.
    """

    state: S
    objective: float
    center_shift: float
    finished: bool
    moved: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fitted(Generic[S]):
    """The end of a loop: last state, the records, and whether it finished by itself."""

    state: S
    history: list[dict[str, Any]]
    finished: bool


def iterate(
    rows: Rows,
    start: Callable[[], S],
    step: Callable[[S], Step[S]],
    *,
    kind: type[S],
    max_iter: int,
    name: str,
    checkpoint: Checkpoint | None = None,
) -> Fitted[S]:
    """Iterate ``step`` from ``start`` until it is finished or ``max_iter`` is reached.

    Owns what every fit shares: the state, the records of ``history_``, the count
    of passes, progress, and the checkpoint (written after the start and after
    every iteration, and read before anything is computed).

    Parameters
    ----------
    rows : Rows
        The data, for its count of passes.
    start : callable() -> state
        Makes the first state; not called when a checkpoint is continued.
    step : callable(state) -> Step
        One iteration: any number of passes.
    kind : type
        The dataclass of the state.
    max_iter : int
    name : str
        The estimator, for the log.
    checkpoint : Checkpoint, optional

    Returns
    -------
    Fitted
    """
    with _naming(checkpoint):
        return _iterate(rows, start, step, kind, max_iter, name, checkpoint)


@contextmanager
def _naming(checkpoint: Checkpoint | None) -> Iterator[None]:
    """Say in errors that are nobody's fault where the state of the fit is."""
    try:
        yield
    except (ClusterError, ReadError) as error:
        if checkpoint is None or not checkpoint.path.exists():
            raise
        raise type(error)(
            f"{error} The checkpoint {str(checkpoint.path)!r} holds what was reached; the same "
            "fit goes on from there."
        ) from error


def _iterate(
    rows: Rows,
    start: Callable[[], S],
    step: Callable[[S], Step[S]],
    kind: type[S],
    max_iter: int,
    name: str,
    checkpoint: Checkpoint | None,
) -> Fitted[S]:
    stored = None if checkpoint is None else checkpoint.load(kind)
    history: list[dict[str, Any]] = []
    finished = False
    passes_before = 0
    if stored is None:
        state = start()
        if checkpoint is not None:
            checkpoint.save(state, history, finished=False)
    else:
        state, history, finished = stored
        # The passes of this process so far only looked at the data again.
        passes_before = (history[-1]["passes"] if history else 0) - rows.passes
        passes_before = max(passes_before, 0)
    while not finished and len(history) < max_iter:
        began = time.perf_counter()
        done = step(state)
        state, finished = done.state, done.finished
        record = {
            "iteration": len(history) + 1,
            "objective": float(done.objective),
            "center_shift": float(done.center_shift),
            "moved": done.moved,
            "seconds": time.perf_counter() - began,
            "passes": rows.passes + passes_before,
            **done.extra,
        }
        history.append(record)
        if checkpoint is not None:
            checkpoint.save(state, history, finished=finished)
        announce(name, record)
    return Fitted(state, history, finished)
