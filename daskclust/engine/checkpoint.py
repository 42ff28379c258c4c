"""The small state of a fit on disk: written atomically, checked before it is used."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.exceptions import CheckpointError
from daskclust.reduction import Survey
from daskclust.storage.atomic import new_file, remove_stale

__all__ = ["Checkpoint", "Fingerprint"]

_FORMAT = 1
_FILE = "daskclust-checkpoint.npz"
#: Moments of the same data may differ so much between chunkings, relatively.
_MOMENT_TOLERANCE = 1e-9


def _plain(value: Any) -> Any:
    """Return a JSON value that tells a parameter apart from others of its kind."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        data = np.ascontiguousarray(value)
        digest = hashlib.sha256(data.tobytes()).hexdigest()
        return f"array {data.shape} {data.dtype} {digest}"
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, functools.partial):
        keywords = [[key, _plain(item)] for key, item in sorted(value.keywords.items())]
        return ["partial", _plain(value.func), _plain(value.args), keywords]
    if callable(value):
        name = f"{value.__module__}.{getattr(value, '__qualname__', type(value).__name__)}"
        if not isinstance(value, FunctionType):
            return name
        enclosed = [_plain(cell.cell_contents) for cell in value.__closure__ or ()]
        return [name, _code(value.__code__), *enclosed]
    return type(value).__name__


def _code(code: CodeType) -> str:
    """Hash what a function does: two lambdas have the same name."""
    sha = hashlib.sha256(code.co_code)
    sha.update(repr(code.co_names).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            sha.update(_code(constant).encode())
        else:
            # A set has no order of its own.
            plain = sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant
            sha.update(repr(plain).encode())
    return sha.hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """What a checkpoint belongs to: the estimator, its parameters and the data.

    Parameters
    ----------
    estimator : str
    params : mapping
        Parameters that steer the trajectory.
    n_rows : int
    survey : Survey
        Ranges and moments of the data, from the first pass.
    """

    estimator: str
    params: Mapping[str, Any]
    n_rows: int
    survey: Survey

    def as_meta(self) -> dict[str, Any]:
        """Return what is compared literally."""
        return {
            "estimator": self.estimator,
            "params": {key: _plain(value) for key, value in sorted(self.params.items())},
            "n_rows": self.n_rows,
            "n_features": len(self.survey.mean),
        }

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what is compared numerically."""
        survey = self.survey
        return {
            "low": survey.low,
            "high": survey.high,
            "mean": survey.mean,
            "variance": survey.variance,
            "weight": np.asarray(survey.weight),
        }

    def differences(self, meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> list[str]:
        """Say in which respects a stored fingerprint is another."""
        found = []
        mine = self.as_meta()
        for key in ("estimator", "n_rows", "n_features"):
            if meta.get(key) != mine[key]:
                found.append(f"{key} was {meta.get(key)!r}, is {mine[key]!r}")
        theirs = meta.get("params") or {}
        for key in sorted(set(theirs) | set(mine["params"])):
            if theirs.get(key) != mine["params"].get(key):
                found.append(f"{key} was {theirs.get(key)!r}, is {mine['params'].get(key)!r}")
        if found:
            return found
        scale = np.maximum(np.abs(self.survey.low), np.abs(self.survey.high))
        for key, value in self.as_arrays().items():
            exact = key in ("low", "high")
            unit = {"mean": scale, "variance": scale**2}.get(key, np.abs(value))
            tolerance = 0.0 if exact else _MOMENT_TOLERANCE * unit
            other = arrays.get(key, np.empty((0, 0)))
            if other.shape != value.shape or not (np.abs(other - value) <= tolerance).all():
                found.append(f"the {key} of the data is another")
        return found


def _pack(state: Any, prefix: str = "state") -> tuple[dict[str, NDArray[Any]], list[str]]:
    arrays, missing = {}, []
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if value is None:
            missing.append(field.name)
        else:
            arrays[f"{prefix}.{field.name}"] = np.asarray(value)
    return arrays, missing


def _unpack(
    kind: type, arrays: Mapping[str, NDArray[Any]], missing: list[str], prefix: str = "state"
) -> Any:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.name in missing:
            values[field.name] = None
            continue
        value = arrays[f"{prefix}.{field.name}"]
        values[field.name] = value.item() if value.ndim == 0 else value
    return kind(**values)


class Checkpoint:
    """A file that holds the newest state of one fit.

    Parameters
    ----------
    path : path-like
        The file, or an existing directory to put it in.
    fingerprint : Fingerprint
    """

    def __init__(self, path: str | os.PathLike[str], fingerprint: Fingerprint) -> None:
        target = Path(path)
        self.path = target / _FILE if target.is_dir() else target
        self.fingerprint = fingerprint
        self._before: tuple[Any, list[dict[str, Any]]] | None = None
        if not self.path.parent.is_dir():
            raise CheckpointError(
                f"checkpoint={str(path)!r}: the directory {str(self.path.parent)!r} does not "
                "exist. Create it, or give a path in a directory that exists."
            )

    def following(self, state: Any, history: list[dict[str, Any]]) -> Checkpoint:
        """Return the same file for the next part of a fit, after one that ended like this."""
        after = Checkpoint(self.path, self.fingerprint)
        after._before = state, history
        return after

    def load(self, kind: type) -> tuple[Any, list[dict[str, Any]], bool] | None:
        """Return (state, history, finished) of the stored fit, or None without a file.

        Of a fit in parts, those of this part: None if it has not begun, and those of
        its end if the next one has.

        Raises
        ------
        CheckpointError
            If the file is broken, or belongs to other data or parameters.
        """
        if not self.path.exists():
            return None
        remedy = "Delete the file to start afresh, or give another checkpoint path."
        try:
            # Opened here, because NumPy leaves a broken file open.
            with self.path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            meta = json.loads(arrays.pop("meta").tobytes().decode())
        except Exception as error:  # whatever a reader of broken archives may come upon
            # The first sentence only: NumPy goes on to recommend pickle.
            why = str(error).split(". ")[0].rstrip(".")
            raise CheckpointError(
                f"{str(self.path)!r} is not a readable daskclust checkpoint ({why}). {remedy}"
            ) from error
        if meta.get("format") != _FORMAT:
            raise CheckpointError(
                f"{str(self.path)!r} has checkpoint format {meta.get('format')!r}; this version "
                f"reads {_FORMAT}. {remedy}"
            )
        stored = {name[5:]: value for name, value in arrays.items() if name.startswith("data.")}
        differences = self.fingerprint.differences(meta, stored)
        if differences:
            raise CheckpointError(
                f"{str(self.path)!r} belongs to another fit: {'; '.join(differences)}. {remedy}"
            )
        try:
            before = meta.get("before")
            if before is None and self._before is not None:
                return None
            if before is not None and self._before is None:
                return _unpack(kind, arrays, before["missing"], "before"), before["history"], True
            state = _unpack(kind, arrays, meta["missing"])
            history, finished = meta["history"], bool(meta["finished"])
        except (KeyError, TypeError) as error:
            raise CheckpointError(
                f"{str(self.path)!r} lacks part of the state ({error}). {remedy}"
            ) from error
        return state, history, finished

    def save(self, state: Any, history: list[dict[str, Any]], *, finished: bool) -> None:
        """Replace the file by the newest state; a crash leaves the old one or the new one."""
        arrays, missing = _pack(state)
        meta = {
            "format": _FORMAT,
            **self.fingerprint.as_meta(),
            "missing": missing,
            "history": history,
            "finished": finished,
        }
        if self._before is not None:
            ended, records = self._before
            more, missing = _pack(ended, "before")
            arrays.update(more)
            meta["before"] = {"missing": missing, "history": records}
        arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
        arrays.update({f"data.{key}": v for key, v in self.fingerprint.as_arrays().items()})
        with new_file(self.path) as scratch, scratch.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        if finished:
            # What killed runs of this fit left behind.
            remove_stale(self.path)
