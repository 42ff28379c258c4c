"""What the passes of a start brought home, so that a start that is killed goes on.

A start is a function of the answers to its passes: given the same answers, it asks
the same questions.  So a start is continued by beginning it again and answering, as
far as the record goes, from the record.  What rows kept between passes is not in it;
it is worked out again in the first pass that is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daskclust.engine.identity import content_hash
from daskclust.engine.states import StateError
from daskclust.reduction import Partial, Reduction

__all__ = ["Loaded", "LoopKeeper", "LoopRecord", "PassRecord", "StartLog"]


class Loaded(NamedTuple):
    """A loop as it was kept: where it goes on, its records, and what it has cost."""

    state: Any
    history: list[dict[str, Any]]
    finished: bool
    passes: int


@dataclass(frozen=True)
class PassRecord:
    """A pass: what was asked (as a hash), and the merged partial."""

    question: str
    partial: Partial


@dataclass(frozen=True)
class LoopRecord:
    """A loop inside a start, as of its newest iteration: its name and its state as kept."""

    name: str
    loop: Any


@dataclass
class StartLog:
    """The record of a start, and where the start has come to in it.

    Parameters
    ----------
    records : list of PassRecord or LoopRecord
        Of an earlier process; more are added.
    write : callable(records)
        Keeps the records.
    pack, unpack : callable
        How the state of a loop is kept: ``pack(Loaded)``, and
        ``unpack(kind, packed, sizes) -> Loaded``.
    damaged : callable(error) -> error
        Names the file that the records are from.
    """

    records: list[PassRecord | LoopRecord]
    write: Callable[[list[PassRecord | LoopRecord]], None]
    pack: Callable[[Loaded], Any]
    unpack: Callable[[type, Any, Mapping[str, int]], Loaded]
    damaged: Callable[[Exception], Exception]
    _at: int = field(default=0, init=False)

    def recall(self, reduction: Reduction, state: Any) -> Partial | None:
        """Return the answer to the next pass, or None where the record ends.

        A record of another question, as of a start drawn anew without a seed, ends
        there: the rest is forgotten.

        Raises
        ------
        CheckpointError
            If what is recorded cannot be the answer.
        """
        if self._at == len(self.records):
            return None
        record = self.records[self._at]
        if not isinstance(record, PassRecord) or record.question != _question(reduction, state):
            del self.records[self._at :]
            return None
        for name, blank in reduction.identity(state).items():
            found = record.partial.get(name)
            if (
                found is None
                or found.dtype != np.asarray(blank).dtype
                or found.shape != _shape(reduction, state, name, found)
            ):
                why = StateError(f"{name}, which the pass {reduction.name!r} of the start found")
                raise self.damaged(why)
        self._at += 1
        return dict(record.partial)

    def note(self, reduction: Reduction, state: Any, partial: Partial) -> None:
        """Keep the answer to a pass that was made."""
        kept = {name: np.asarray(value) for name, value in partial.items()}
        self._put(PassRecord(_question(reduction, state), kept))

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

    def load(self, kind: type, sizes: Mapping[str, int]) -> Loaded | None:
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
            LoopRecord(self._name, self._log.pack(Loaded(state, history, finished, passes)))
        )


def _question(reduction: Reduction, state: Any) -> str:
    return content_hash([reduction.name, state])


def _shape(
    reduction: Reduction, state: Any, name: str, found: NDArray[Any]
) -> tuple[int | None, ...]:
    """Return the shape of a field; where the data decide a length, that which was found."""
    declared: tuple[int | None, ...] = reduction.fields(state)[name].shape
    if len(declared) != found.ndim:
        return declared
    return tuple(m if n is None else n for n, m in zip(declared, found.shape, strict=True))
