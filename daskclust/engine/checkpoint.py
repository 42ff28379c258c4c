"""The small state of a fit on disk: written atomically, checked before it is used.

A file holds what it belongs to (:class:`Fingerprint`) and the parts of a fit, one
after another: those that have ended, and the newest, which is the state of a loop or
the record of a start that is not done yet.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from daskclust._types import Array
from daskclust._version import __version__
from daskclust.engine.identity import UnidentifiableError, identify
from daskclust.engine.start_log import LoopRecord, PassRecord, StartLog
from daskclust.engine.states import Fitted, StateError, pack_state, unpack_state
from daskclust.exceptions import CheckpointError
from daskclust.reduction import Survey
from daskclust.storage.atomic import new_place, remove_stale
from daskclust.storage.urls import redact

__all__ = ["Checkpoint", "Fingerprint"]

#: 2: rows are hashed, starts are recorded, the version is part of the identity.
_FORMAT = 2
_FILE = "daskclust-checkpoint.npz"
_REMEDY = "Delete the file to start afresh, or give another checkpoint path."
#: Parameters that say how many centers there are.
_COUNTS = ("n_clusters", "n_components")

Arrays = dict[str, Array]


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """Identity of a fit in its checkpoint: the estimator, its parameters and the data.

    `params` are those that change the result. A random generator is compared by its state after the
    fit has drawn its seed; this state determines the one before. `survey` holds the hash of the
    rows.
    """

    estimator: str
    params: Mapping[str, Any]
    n_rows: int
    survey: Survey

    def as_meta(self) -> dict[str, Any]:
        """Return the values to compare."""
        if self.survey.hash is None:
            raise ValueError("The first pass did not hash the rows (SurveyRequest.hashed).")
        params = {}
        for name, value in sorted(self.params.items()):
            try:
                params[name] = identify(value)
            except UnidentifiableError as error:
                raise CheckpointError(
                    f"A fit with {name}={value!r} cannot have a checkpoint: {error}, so that no "
                    "later fit can be known to be the same. Use a plain function with plain "
                    "arguments (what it encloses counts, too), or checkpoint=None."
                ) from error
        return {
            "version": __version__,
            "estimator": self.estimator,
            "params": params,
            "n_rows": self.n_rows,
            "n_features": len(self.survey.mean),
            "data": f"{self.survey.hash:016x}",
        }

    def differences(self, meta: Mapping[str, Any]) -> list[str]:
        """Say in which respects a stored fingerprint is another."""
        mine = json.loads(json.dumps(self.as_meta()))
        found = [
            f"{key} was {meta.get(key)!r}, is {mine[key]!r}"
            for key in ("estimator", "n_rows", "n_features")
            if meta.get(key) != mine[key]
        ]
        theirs = meta["params"]
        for key in sorted(set(theirs) | set(mine["params"])):
            if theirs.get(key) != mine["params"].get(key):
                found.append(f"{key} was {theirs.get(key)!r}, is {mine['params'].get(key)!r}")
        if not found and meta.get("data") != mine["data"]:
            found.append("the data differ (a value, a weight, or the order of rows or columns)")
        return found

    def sizes(self) -> dict[str, int]:
        """Return the lengths of axes that follow from parameters."""
        counts = [self.params[name] for name in _COUNTS if name in self.params]
        # Those of several levels are no length of an axis.
        return {"k": int(counts[0])} if counts and not isinstance(counts[0], tuple | list) else {}


class Checkpoint:
    """A file that holds the newest state of one fit; `path` may be a directory to put it in."""

    def __init__(self, path: str | os.PathLike[str], fingerprint: Fingerprint) -> None:
        if not os.fspath(path):
            raise CheckpointError("checkpoint is an empty path; give a file or folder, or None.")
        # Of a link, what it points to: a rename would put a file in its place.
        target = Path(os.path.realpath(path)) if Path(path).is_symlink() else Path(path)
        _refuse_url(path)
        self.path = target / _FILE if target.is_dir() else target
        self.fingerprint = fingerprint
        #: Whether the file is of this fit.
        self.written = False
        #: Parts before this one, as stored.
        self._before: list[tuple[dict[str, Any], Arrays]] = []
        self._started: list[PassRecord | LoopRecord] = []
        self._meta = fingerprint.as_meta()
        if not self.path.parent.is_dir():
            raise CheckpointError(
                f"checkpoint={redact(path)!r}: the directory {str(self.path.parent)!r} does not "
                "exist. Create it, or give a path in a directory that exists."
            )

    def following(self, ended: Fitted) -> Checkpoint:
        """Return the same file for the next part of a fit, after one that ended like this."""
        after = Checkpoint(self.path, self.fingerprint)
        after._before = [*self._before, _pack_loop(ended)]
        return after

    def load(self, kind: type, sizes: Mapping[str, int] | None = None) -> Fitted | None:
        """Return the stored loop of this part, or None where it has not begun.

        Where the next part has begun, that of its end.  Scratch files that killed
        processes left are removed.

        `sizes` are the lengths of axes that the fit knows, by their names in ``kind.shapes``.
        """
        remove_stale(self.path)
        if not self.path.exists():
            return None
        meta, arrays = _read_checked(self.path)
        self._check_kin(meta)
        try:
            return self._take(
                meta["parts"], arrays, kind, {**self.fingerprint.sizes(), **(sizes or {})}
            )
        except (StateError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise self._damaged(error) from error

    def _check_kin(self, meta: Mapping[str, Any]) -> None:
        if meta["version"] != self._meta["version"]:
            raise CheckpointError(
                f"{str(self.path)!r} was written by daskclust {meta['version']}; this is "
                f"{self._meta['version']}, whose iterations may differ. Finish the fit with the "
                f"version that began it. {_REMEDY}"
            )
        try:
            differences = self.fingerprint.differences(meta)
        except (KeyError, TypeError, AttributeError) as error:
            raise self._damaged(error) from error
        if differences:
            raise CheckpointError(
                f"{str(self.path)!r} belongs to another fit: {'; '.join(differences)}. {_REMEDY}"
            )

    def _damaged(self, error: Exception) -> CheckpointError:
        return CheckpointError(
            f"{str(self.path)!r} is damaged: it lacks part of the state, or part of it is not what "
            f"a state has there ({error}). {_REMEDY}"
        )

    def _take(
        self, parts: list[Any], arrays: Arrays, kind: type, sizes: Mapping[str, int]
    ) -> Fitted | None:
        at = len(self._before)
        self.written = True
        if len(parts) <= at:
            return None
        part, own = parts[at], _under(arrays, f"{at}.")
        if "start" in part:
            self._started = [_unpack_record(r, own, i) for i, r in enumerate(part["start"])]
            return None
        return _unpack_loop(kind, (part, own), sizes)

    def start_log(self) -> StartLog:
        """Return the record of the start, up to the point that an earlier process reached."""

        def write(records: list[PassRecord | LoopRecord]) -> None:
            metas: list[Any] = []
            arrays: Arrays = {}
            for i, record in enumerate(records):
                meta, own = _pack_record(record)
                metas.append(meta)
                arrays.update({f"{i}.{name}": a for name, a in own.items()})
            self._write(({"start": metas}, arrays))

        def unpack(kind: type, packed: Any, sizes: Mapping[str, int]) -> Fitted:
            try:
                return _unpack_loop(kind, packed, {**self.fingerprint.sizes(), **sizes})
            except (StateError, KeyError, TypeError, ValueError) as error:
                raise self._damaged(error) from error

        return StartLog(self._started, write, _pack_loop, unpack, self._damaged)

    def save(self, state: Any, history: list[Any], *, finished: bool, passes: int) -> None:
        """Replace the file by the newest state; a crash leaves the old one or the new one."""
        self._started = []
        self._write(_pack_loop(Fitted(state, history, finished, passes)))

    def _write(self, newest: tuple[dict[str, Any], Arrays]) -> None:
        arrays: Arrays = {}
        metas = []
        for i, (meta, own) in enumerate([*self._before, newest]):
            metas.append(meta)
            arrays.update({f"{i}.{name}": a for name, a in own.items()})
        _write(self.path, {"format": _FORMAT, **self._meta, "parts": metas}, arrays)
        self.written = True

    def close(self) -> None:
        """Remove scratch files that killed processes left."""
        remove_stale(self.path)


# --- the file --------------------------------------------------------------------------------


def _seal(meta: Mapping[str, Any], arrays: Arrays) -> str:
    sha = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        sha.update(f"{name} {array.dtype.descr} {array.shape}".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def _write(path: Path, meta: dict[str, Any], arrays: Arrays) -> None:
    # As it will be read: tuples are lists then.
    meta = json.loads(json.dumps(meta))
    meta["seal"] = _seal(meta, arrays)
    text = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    with new_place(path) as scratch, scratch.open("wb") as file:
        np.savez(file, meta=text, **arrays)  # type: ignore[arg-type]


def _read(path: Path) -> tuple[dict[str, Any], Arrays]:
    # Opened here, because NumPy leaves a broken file open.
    with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    meta = json.loads(arrays.pop("meta").tobytes().decode())
    if meta["format"] != _FORMAT:
        raise ValueError(f"it has format {meta['format']!r}, this version reads {_FORMAT}")
    if meta.pop("seal") != _seal(meta, arrays):
        raise ValueError("its content is not what was written")
    if not isinstance(meta["parts"], list) or not isinstance(meta["version"], str):
        raise ValueError("its header is none")
    return meta, arrays


def _read_checked(path: Path) -> tuple[dict[str, Any], Arrays]:
    try:
        return _read(path)
    except Exception as error:  # whatever a reader of damaged archives may come upon
        # The first sentence only: NumPy goes on to recommend pickle.
        why = str(error).split(". ")[0].rstrip(".")
        raise CheckpointError(
            f"{str(path)!r} is not a readable daskclust checkpoint ({why}). {_REMEDY}"
        ) from error


def _refuse_url(path: str | os.PathLike[str]) -> None:
    if "://" in str(path):
        raise CheckpointError(
            f"checkpoint={redact(path)!r} is a URL; expected a path on this machine."
        )


def check_checkpoint(path: str | os.PathLike[str]) -> None:
    """Refuse what cannot be the file of a checkpoint, before there is a fit to compare it with."""
    _refuse_url(path)
    if Path(path).exists():
        _read_checked(Path(path))


def _under(arrays: Arrays, prefix: str) -> Arrays:
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}


def _pack_loop(loop: Fitted) -> tuple[dict[str, Any], Arrays]:
    arrays, missing = pack_state(loop.state)
    meta = {
        "missing": missing,
        "history": loop.history,
        "finished": bool(loop.finished),
        "passes": int(loop.passes),
    }
    return meta, arrays


def _unpack_loop(
    kind: type, packed: tuple[dict[str, Any], Arrays], sizes: Mapping[str, int]
) -> Fitted:
    meta, arrays = packed
    history, passes = meta["history"], meta["passes"]
    if not isinstance(history, list):
        raise StateError("the records of iterations are no list")
    numbers = [record["iteration"] for record in history]
    if numbers != list(range(1, len(history) + 1)):
        raise StateError("the records of iterations are not in order")
    if not isinstance(passes, int) or not isinstance(meta["finished"], bool):
        raise StateError("the number of passes is invalid")
    if meta["finished"] and not history:
        raise StateError("the loop is finished without an iteration")
    return Fitted(
        unpack_state(kind, arrays, meta["missing"], sizes), history, meta["finished"], passes
    )


def _pack_record(record: PassRecord | LoopRecord) -> tuple[dict[str, Any], Arrays]:
    if isinstance(record, PassRecord):
        return {"question": record.question}, record.partial
    meta, arrays = record.loop
    return {"loop": record.name, **meta}, arrays


def _unpack_record(meta: dict[str, Any], arrays: Arrays, number: int) -> PassRecord | LoopRecord:
    own = _under(arrays, f"{number}.")
    if "question" in meta:
        return PassRecord(meta["question"], own)
    return LoopRecord(meta["loop"], (meta, own))
