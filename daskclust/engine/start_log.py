"""The results of the passes of a start, so that a start that is killed goes on.

A start is a function of the answers to its passes: given the same answers, it asks
the same questions.  So a start is continued by beginning it again and answering, as
far as the record goes, from the record.  Caches of rows between passes are not in it;
it is worked out again in the first pass that is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskclust._types import Array
from daskclust.engine.identity import content_hash
from daskclust.engine.states import Fitted, StateError
from daskclust.reduction import Partial, Reduction

__all__ = ["LoopKeeper", "LoopRecord", "PassRecord", "StartLog"]


@dataclass(frozen=True)
class PassRecord:
    """A pass, or a stage without one: what was asked (as a hash), and what was found."""

    question: str
    partial: Partial


@dataclass(frozen=True)
class LoopRecord:
    """A loop inside a start after its newest iteration: its name and its state as kept."""

    name: str
    loop: Any


@dataclass
class StartLog:
    """The record of a start, and the place that the start has reached in it.

    `records` are of an earlier process; more are added, and kept by `write`. ``pack(Fitted)`` and
    ``unpack(kind, packed, sizes)`` keep the state of a loop. `damaged` makes errors that name the
    file of the records.
    """

    records: list[PassRecord | LoopRecord]
    write: Callable[[list[PassRecord | LoopRecord]], None]
    pack: Callable[[Fitted], Any]
    unpack: Callable[[type, Any, Mapping[str, int]], Fitted]
    damaged: Callable[[Exception], Exception]
    _at: int = field(default=0, init=False)

    def recall(self, reduction: Reduction, state: Any) -> Partial | None:
        """Return the answer to the next pass, or None where the record ends.

        A record of another question, such as one of a start drawn again without a seed, ends
        there: the rest is forgotten.
        """
        found = self._next(_question(reduction, state))
        if found is not None:
            for name, blank in reduction.identity(state).items():
                wanted = np.asarray(blank)
                shape = _shape(reduction, state, name, found.get(name))
                self._check(found, name, wanted.dtype, shape)
        return found

    def recall_stage(
        self, question: str, shapes: Mapping[str, tuple[int | None, ...]]
    ) -> Partial | None:
        """Return the float64 arrays that a stage came to, or None where the record ends.

        A length that the data decide is None.
        """
        found = self._next(question)
        if found is not None:
            for name, shape in shapes.items():
                own = _lengths(shape, found.get(name))
                self._check(found, name, np.dtype(np.float64), own)
        return found

    def _next(self, question: str) -> Partial | None:
        if self._at == len(self.records):
            return None
        record = self.records[self._at]
        if not isinstance(record, PassRecord) or record.question != question:
            del self.records[self._at :]
            return None
        self._at += 1
        return dict(record.partial)

    def _check(
        self, found: Partial, name: str, dtype: np.dtype[Any], shape: tuple[int | None, ...]
    ) -> None:
        part = found.get(name)
        if part is None or part.dtype != dtype or part.shape != shape:
            raise self.damaged(StateError(f"{name}, which a pass of the start found"))

    def note(self, reduction: Reduction, state: Any, partial: Partial) -> None:
        """Keep the answer to a pass that was made."""
        self.note_stage(_question(reduction, state), partial)

    def note_stage(self, question: str, found: Partial) -> None:
        """Keep the arrays that a stage came to."""
        self._put(PassRecord(question, {name: np.asarray(a) for name, a in found.items()}))

    def _put(self, record: PassRecord | LoopRecord) -> None:
        self.records[self._at :] = [record]
        self._at += 1
        self.write(self.records)

    def keeper(self, name: str) -> LoopKeeper:
        """Return what keeps a loop that begins here."""
        return LoopKeeper(self, name)


class LoopKeeper:
    """Keeps the newest state of a loop inside a start, as one record of it."""

    def __init__(self, log: StartLog, name: str) -> None:
        self._log, self._name = log, name
        self._place = log._at

    def load(self, kind: type, sizes: Mapping[str, int]) -> Fitted | None:
        """Return the loop as it was kept, or None."""
        if self._place == len(self._log.records):
            return None
        record = self._log.records[self._place]
        if not isinstance(record, LoopRecord) or record.name != self._name:
            return None
        self._log._at = self._place + 1
        return self._log.unpack(kind, record.loop, sizes)

    def save(self, state: Any, history: list[Any], *, finished: bool, passes: int) -> None:
        """Keep the loop as it stands."""
        self._log._at = self._place
        self._log._put(
            LoopRecord(self._name, self._log.pack(Fitted(state, history, finished, passes)))
        )


def _question(reduction: Reduction, state: Any) -> str:
    return content_hash([reduction.name, state])


def _shape(
    reduction: Reduction, state: Any, name: str, found: Array | None
) -> tuple[int | None, ...]:
    """Return the shape of a field; where the data decide a length, that which was found."""
    return _lengths(reduction.fields(state)[name].shape, found)


def _lengths(declared: tuple[int | None, ...], found: Array | None) -> tuple[int | None, ...]:
    if found is None or len(declared) != found.ndim:
        return declared
    return tuple(m if n is None else n for n, m in zip(declared, found.shape, strict=True))
