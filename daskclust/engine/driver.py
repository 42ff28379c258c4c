"""The loop that every iterative fit shares."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from daskclust._progress import announce
from daskclust.engine.checkpoint import Checkpoint, Fitted
from daskclust.engine.rows import Rows
from daskclust.exceptions import CheckpointError, ClusterError, ReadError

S = TypeVar("S")


@dataclass(frozen=True)
class Step(Generic[S]):
    """The result of one iteration.

    The next iteration starts from `state`. `objective` is that of the assignment just made, before
    centers moved; `center_shift` is by the estimator's measure. `moved` is the number of rows that
    changed their cluster, if known; `extra` are more entries of the record, JSON values.
    """

    state: S
    objective: float
    center_shift: float
    finished: bool
    moved: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


class Problem(Protocol):
    """The iterated problem: everything about a fit that does not change."""

    @property
    def kind(self) -> type:
        """The dataclass of the state."""

    @property
    def rows(self) -> Rows:
        """The rows that are compared, in the space in which they are."""

    @property
    def max_iter(self) -> int:
        """Maximum number of iterations."""

    def begin(self) -> Any:
        """Find the start; not called where a checkpoint is continued."""

    def step(self, state: Any) -> Step[Any]:
        """Make one iteration: any number of passes."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Lengths of axes that a stored state must have, by their names in its annotations.

        Beside n and p, those of the rows.
        """

    def identity(self) -> Mapping[str, Any]:
        """Return what a checkpoint belongs to, besides the data and the parameters."""


def iterate(problem: Problem, name: str, checkpoint: Checkpoint | None = None) -> Fitted[Any]:
    """Iterate a problem until it is finished or ``max_iter`` is reached.

    Manages what every fit shares: the state, the records of ``history_``, the count of
    passes, progress, and the checkpoint (written after every pass of the start and after
    every iteration, and read before anything is computed).  An error that ends a fit
    names the checkpoint that holds it.
    """
    rows = problem.rows
    # A loop inside a start is kept in the record of the start, as a whole.
    made = rows.pass_record
    log = made.log
    keeper = checkpoint if checkpoint is not None or log is None else log.keeper(name)
    history: list[dict[str, Any]] = []
    finished = False
    try:
        with rows.logged(None):
            stored = None
            if keeper is not None:
                known = {"n": rows.n_rows, "p": rows.n_features, **problem.sizes}
                stored = keeper.load(problem.kind, known)
            if stored is None:
                with rows.logged(keeper.start_log() if isinstance(keeper, Checkpoint) else None):
                    state = problem.begin()
                if keeper is not None:
                    keeper.save(state, history, finished=False, passes=made.passes)
            else:
                state, history, finished = stored.state, stored.history, stored.finished
                # The passes of this process so far only looked at the data again.
                made.passes = max(made.passes, stored.passes)
            while not finished and len(history) < problem.max_iter:
                began = time.perf_counter()
                done = problem.step(state)
                state, finished = done.state, done.finished
                record = {
                    "iteration": len(history) + 1,
                    "objective": float(done.objective),
                    "center_shift": float(done.center_shift),
                    "moved": done.moved,
                    "seconds": time.perf_counter() - began,
                    "passes": made.passes,
                    **done.extra,
                }
                history.append(record)
                if keeper is not None:
                    keeper.save(state, history, finished=finished, passes=made.passes)
                announce(name, record)
    except CheckpointError:
        raise
    except BaseException as error:
        if checkpoint is None or not checkpoint.written:
            raise
        kept = (
            f"The fit is kept in {str(checkpoint.path)!r}: the same fit with the same data and "
            "checkpoint goes on from there."
        )
        if isinstance(error, ClusterError | ReadError):
            # Nobody's fault, and the way to go on: part of the message.
            raise type(error)(f"{error} {kept}") from error
        error.add_note(kept)
        raise
    if checkpoint is not None:
        checkpoint.close()
    return Fitted(state, history, finished, made.passes)
