"""Many fits over the same data that share every pass, each fit in its own thread.

A thread waits until each other thread has requested a pass or has ended.  One pass serves all
requests, and equal requests once.  Only one thread runs at a time, in a fixed order, so results
equal those of separate fits.
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
    """A fit that shares passes: `run` gets access to the data, transformed by `views`."""

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
    """Ends the thread of a fit after another fit has failed."""


class _SharedRows(Rows):
    """The shared data from the view of one fit: its passes wait for those of the other fits."""

    def __init__(
        self,
        base: Rows,
        request: Callable[[Any], Any],
        views: tuple[View, ...],
        pass_record: PassRecord | None = None,
    ) -> None:
        self._base = base
        self._request = request
        self._views = views
        self.lengths = base.lengths
        self.n_rows = base.n_rows
        self.n_features = base.n_features
        self.dtype = base.dtype
        self.pass_record = PassRecord() if pass_record is None else pass_record

    def can_keep(self, bytes_a_row: int) -> bool:
        """Return False: caches of rows would be needed for each fit."""
        return False

    def reduce(self, reduction: Reduction, state: Any, carry: Carry | None = None) -> Any:
        self.pass_record.passes += 1
        if reduction.carries:
            reduction = reduction.without_carry()
        return self._request(Request(reduction, state, self._views))

    def map(self, name: str, function: Callable[[RowBlock], Array]) -> Array:
        self.pass_record.passes += 1
        results: Array = self._request(_Map(name, self._views, function))
        return results

    def only(self, blocks: Sequence[int]) -> Rows:
        raise NotImplementedError(
            "Partial passes are not supported for fits that share passes, because these see all "
            "blocks in each pass. Run the fit separately."
        )

    def take(self, rows: Ints) -> tuple[Array, Floats]:
        self.pass_record.passes += 1
        values, weight = self._request(_Take(np.asarray(rows, dtype=np.int64), self._views))
        return values, weight

    def excluding(self, rows: Ints) -> Rows:
        return self if not len(rows) else self._with_views(WithoutRows(np.asarray(rows)))

    def transformed(self, transform: Any) -> Rows:
        return self if transform is None else self._with_views(Transformed(transform))

    def _with_views(self, view: View) -> Rows:
        rows = _SharedRows(self._base, self._request, (*self._views, view), self.pass_record)
        rows.n_features = getattr(getattr(view, "function", None), "n_columns", self.n_features)
        return rows


class _Fit:
    def __init__(self, job: Job, base: Rows) -> None:
        self._responses: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._requests: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self.result: Any = None
        self.request: Any = None
        self.done = False

        def run() -> None:
            try:
                self._wait()
                self._requests.put(("done", job.run(_SharedRows(base, self._request, job.views))))
            except _Ended:
                self._requests.put(("ended", None))
            except BaseException as error:
                self._requests.put(("failed", error))

        # The context of the caller, with its listeners and other context variables.
        context = copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(run,), name="daskclust-fit", daemon=True
        )
        self._thread.start()

    def _wait(self) -> Any:
        response, error = self._responses.get()
        if error is not None:
            raise error
        return response

    def _request(self, request: Any) -> Any:
        self._requests.put(("asks", request))
        return self._wait()

    def resume(self, response: Any = None, error: BaseException | None = None) -> None:
        """Pass the result of a request to the fit, and run it until its next request or its end."""
        self._responses.put((response, error))
        kind, value = self._requests.get()
        if kind == "asks":
            self.request = value
            return
        self.done, self.request = True, None
        self._thread.join()
        if kind == "failed":
            raise value
        self.result = value

    def end(self) -> None:
        if not self.done:
            try:
                self.resume(error=_Ended())
            except BaseException:  # cleaning up failed; the first error is the relevant one
                self.done = True


def _identity(request: Any) -> Any:
    """Return a key that is equal for requests with the same result."""
    if isinstance(request, Request):
        return request.seen, digest((request.reduction, request.state))
    if isinstance(request, _Take):
        return tuple(view.key for view in request.views), digest(request.rows)
    return digest(request)


def _answer(base: Rows, requests_of: dict[Any, Any]) -> dict[Any, Any]:
    """Serve different requests: all reductions in one pass, all rows by number in another one."""
    requests = {key: q for key, q in requests_of.items() if isinstance(q, Request)}
    results_of: dict[Any, Any] = {}
    if requests:
        results = base.reduce(BATCH, tuple(requests.values()))
        results_of.update(zip(requests, results, strict=True))
    takes = {key: q for key, q in requests_of.items() if isinstance(q, _Take)}
    if takes:
        fetched = np.unique(np.concatenate([q.rows for q in takes.values()]))
        values, weight = base.take(fetched)
        for key, request in takes.items():
            positions = np.searchsorted(fetched, request.rows)
            results_of[key] = _with_views(request, values[positions], weight[positions])
    for key, request in requests_of.items():
        if isinstance(request, _Map):
            results_of[key] = base.map(request.name, request)
    return results_of


def _with_views(request: _Take, values: Array, weight: Floats) -> tuple[Array, Floats]:
    # A run per row: views need global row numbers.
    runs = tuple((int(row), 1) for row in request.rows)
    rows = RowBlock(values, weight, runs)
    for view in request.views:
        if not isinstance(view, WithoutRows):
            rows = view(rows)
    return rows.x, weight if rows.weight is None else rows.weight


def run_together(rows: Rows, jobs: Sequence[Job]) -> list[Any]:
    """Run all jobs with shared passes over the rows; an exception in one job ends the others.

    Cost: as many passes as the longest job, and one more if some jobs fetch rows by number while
    others reduce.  A pass sends and receives the sum of what the jobs need.
    """
    fits = [_Fit(job, rows) for job in jobs]
    try:
        for fit in fits:
            fit.resume()
        while waiting := [fit for fit in fits if not fit.done]:
            keys = [_identity(fit.request) for fit in waiting]
            requests_of = {key: fit.request for key, fit in zip(keys, waiting, strict=True)}
            answers = _answer(rows, requests_of)
            for key, fit in zip(keys, waiting, strict=True):
                fit.resume(answers[key])
    finally:
        for fit in fits:
            fit.end()
    return [fit.result for fit in fits]
