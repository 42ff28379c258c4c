"""Many fits over the same data that share every pass, each in a thread of its own.

A thread waits until every other one has requested a pass or has ended.  One pass serves all
requests, equal ones once.  One thread runs at a time, in a fixed order, so results equal those of
separate fits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.engine.rows import Carry, PassRecord, Rows
from daskclust.core.reduction import Reduction, RowBlock
from daskclust.core.reduction.row_views import (
    BATCH,
    Request,
    Transformed,
    View,
    WithoutRows,
    digest,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """A fit that shares passes: `run` gets a handle to the data, seen through `views`."""

    run: Callable[[Rows], Any]
    views: tuple[View, ...] = ()


@dataclass(frozen=True)
class _Take:
    rows: Ints
    views: tuple[View, ...]


@dataclass(frozen=True)
class _Map:
    name: str
    views: tuple[View, ...]
    function: Callable[[RowBlock], Array]

    def __call__(self, rows: RowBlock) -> Array:
        for view in self.views:
            rows = view(rows)
        return self.function(rows)


class _Ended(BaseException):
    """Ends the thread of a fit whose companions have failed."""


class _SharedRows(Rows):
    """The shared data as one fit sees them: its passes wait for those of the others."""

    def __init__(
        self,
        base: Rows,
        ask: Callable[[Any], Any],
        views: tuple[View, ...],
        pass_record: PassRecord | None = None,
    ) -> None:
        self._base = base
        self._ask = ask
        self._views = views
        self.lengths = base.lengths
        self.n_rows = base.n_rows
        self.n_features = base.n_features
        self.dtype = base.dtype
        self.pass_record = PassRecord() if pass_record is None else pass_record

    def can_keep(self, bytes_a_row: int) -> bool:
        """Nothing: what rows kept would have to be kept for each fit."""
        return False

    def reduce(self, reduction: Reduction, state: Any, carry: Carry | None = None) -> Any:
        self.pass_record.passes += 1
        if reduction.carries:
            reduction = reduction.without_carry()
        return self._ask(Request(reduction, state, self._views))

    def map(self, name: str, function: Callable[[RowBlock], Array]) -> Array:
        self.pass_record.passes += 1
        found: Array = self._ask(_Map(name, self._views, function))
        return found

    def only(self, blocks: Sequence[int]) -> Rows:
        raise NotImplementedError(
            "Fits that share their passes see all blocks in each of them; partial passes are for "
            "a fit on its own."
        )

    def take(self, rows: Ints) -> tuple[Array, Floats]:
        self.pass_record.passes += 1
        values, weight = self._ask(_Take(np.asarray(rows, dtype=np.int64), self._views))
        return values, weight

    def excluding(self, rows: Ints) -> Rows:
        return self if not len(rows) else self._seen_through(WithoutRows(np.asarray(rows)))

    def transformed(self, transform: Any) -> Rows:
        return self if transform is None else self._seen_through(Transformed(transform))

    def _seen_through(self, view: View) -> Rows:
        rows = _SharedRows(self._base, self._ask, (*self._views, view), self.pass_record)
        rows.n_features = getattr(getattr(view, "function", None), "n_columns", self.n_features)
        return rows


class _Fit:
    def __init__(self, job: Job, base: Rows) -> None:
        self._answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._questions: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self.result: Any = None
        self.question: Any = None
        self.done = False

        def run() -> None:
            try:
                self._wait()
                self._questions.put(("done", job.run(_SharedRows(base, self._ask, job.views))))
            except _Ended:
                self._questions.put(("ended", None))
            except BaseException as error:
                self._questions.put(("failed", error))

        # The context of the caller: listeners, and what else is set there.
        context = copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(run,), name="daskclust-fit", daemon=True
        )
        self._thread.start()

    def _wait(self) -> Any:
        answer, error = self._answers.get()
        if error is not None:
            raise error
        return answer

    def _ask(self, question: Any) -> Any:
        self._questions.put(("asks", question))
        return self._wait()

    def go_on(self, answer: Any = None, error: BaseException | None = None) -> None:
        """Hand over an answer and let the fit run until it asks again, or ends."""
        self._answers.put((answer, error))
        kind, value = self._questions.get()
        if kind == "asks":
            self.question = value
            return
        self.done, self.question = True, None
        self._thread.join()
        if kind == "failed":
            raise value
        self.result = value

    def end(self) -> None:
        if not self.done:
            try:
                self.go_on(error=_Ended())
            except BaseException:  # its cleaning up failed; the first error is what counts
                self.done = True


def _identity(question: Any) -> Any:
    """Equal for questions of the same answer."""
    if isinstance(question, Request):
        return question.seen, digest((question.reduction, question.state))
    if isinstance(question, _Take):
        return tuple(view.key for view in question.views), digest(question.rows)
    return digest(question)


def _answer(base: Rows, questions: dict[Any, Any]) -> dict[Any, Any]:
    """Answer different questions: all reductions by one pass, all rows by number by another."""
    requests = {key: q for key, q in questions.items() if isinstance(q, Request)}
    answers: dict[Any, Any] = {}
    if requests:
        results = base.reduce(BATCH, tuple(requests.values()))
        answers.update(zip(requests, results, strict=True))
    takes = {key: q for key, q in questions.items() if isinstance(q, _Take)}
    if takes:
        fetched = np.unique(np.concatenate([q.rows for q in takes.values()]))
        values, weight = base.take(fetched)
        for key, question in takes.items():
            at = np.searchsorted(fetched, question.rows)
            answers[key] = _seen_through(question, values[at], weight[at])
    for key, question in questions.items():
        if isinstance(question, _Map):
            answers[key] = base.map(question.name, question)
    return answers


def _seen_through(question: _Take, values: Array, weight: Floats) -> tuple[Array, Floats]:
    # Row by row a run of its own: views go by global numbers.
    runs = tuple((int(row), 1) for row in question.rows)
    rows = RowBlock(np.ascontiguousarray(values), weight, runs)
    for view in question.views:
        if not isinstance(view, WithoutRows):
            rows = view(rows)
    return rows.x, weight if rows.weight is None else rows.weight


def run_together(rows: Rows, jobs: Sequence[Job]) -> list[Any]:
    """Run all jobs, sharing passes over the rows; an exception in one ends the others.

    Cost: as many passes as the longest job makes, and one more where some jobs fetch rows by number
    while others reduce.  A pass sends and receives the sum of what the jobs need.
    """
    fits = [_Fit(job, rows) for job in jobs]
    try:
        for fit in fits:
            fit.go_on()
        while waiting := [fit for fit in fits if not fit.done]:
            keys = [_identity(fit.question) for fit in waiting]
            asked = {key: fit.question for key, fit in zip(keys, waiting, strict=True)}
            answers = _answer(rows, asked)
            for key, fit in zip(keys, waiting, strict=True):
                fit.go_on(answers[key])
    finally:
        for fit in fits:
            fit.end()
    return [fit.result for fit in fits]
