"""Save the small state of a fit to disk, atomically, and check it before use.

A file contains the identity of the fit (:class:`Fingerprint`) and its parts: the finished parts,
and the newest one.  The newest part is the state of a loop, or the complete stages of its
initialization.  The identity consists of the version, the estimator, its parameters, a digest of
the data, and labels, constraints and views.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import FunctionType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from daskclust._version import __version__
from daskclust.core.array_types import Array, named_axes
from daskclust.core.reduction import Survey
from daskclust.core.storage.atomic_write import new_path, remove_stale
from daskclust.core.storage.redact import redact
from daskclust.core.warn import warn
from daskclust.exceptions import CheckpointError, DaskclustWarning


def identify(value: Any) -> Any:
    """Return a JSON value that identifies a parameter in any process.

    A function is identified by its name.  Raise a TypeError for other objects with code or hidden
    content, such as lambdas, closures and open files.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biufU":
        return value.item()
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"array {value.shape} {value.dtype} {digest}"
    if isinstance(value, list | tuple):
        return [identify(item) for item in value]
    if isinstance(value, dict):
        return {str(key): identify(item) for key, item in value.items()}
    if isinstance(value, np.random.Generator):
        return ["Generator", identify(value.bit_generator.state)]
    if isinstance(value, np.random.RandomState):
        return ["RandomState", identify(value.get_state(legacy=False))]
    kind = type(value)
    if isinstance(value, FunctionType) and "<" not in value.__qualname__:
        return f"function {value.__module__}.{value.__qualname__}"
    if hasattr(value, "get_params") and hasattr(value, "cluster_centers_"):
        return [f"{kind.__module__}.{kind.__qualname__}", identify(value.cluster_centers_)]
    raise TypeError(f"an object of type {kind.__module__}.{kind.__qualname__} has no identity")


Arrays = dict[str, Array]
#: Part of a checkpoint as it is stored: JSON values and arrays.
Packed = tuple[dict[str, Any], Arrays]


#: NumPy types of the short names in annotations of states.
_DTYPES = {
    "f": (np.float64,),
    "f4": (np.float32,),
    "f4|f": (np.float32, np.float64),
    "i": (np.int64,),
    "b": (np.bool_,),
}


S = TypeVar("S")


@dataclass(frozen=True)
class Fitted(Generic[S]):
    """State of a loop: its newest state, its records, whether it is finished, and its passes."""

    state: S
    history: list[dict[str, Any]]
    finished: bool
    passes: int


# Raised if a part of a checkpoint is missing, or does not match its state.
class StateError(ValueError): ...


def pack_state(state: Any) -> tuple[dict[str, Array], list[str]]:
    """Return the fields of a state that are not None, as arrays, and the names of the others.

    The annotation of a field describes what is stored, such as ``centers: Annotated[Floats, "f r k
    p"]``: a key of ``_DTYPES``, then the axes of :func:`named_axes`, without axes for a number.  A
    leading ``?`` allows None.  The states of a tuple are numbered.
    """
    if isinstance(state, tuple):
        packed = [pack_state(item) for item in state]
        names = [f"{i}.{name}" for i, (_, missing) in enumerate(packed) for name in missing]
        return {f"{i}.{n}": a for i, (own, _) in enumerate(packed) for n, a in own.items()}, names
    arrays, missing = {}, []
    for item in fields(state):
        value = getattr(state, item.name)
        if value is None:
            missing.append(item.name)
        else:
            arrays[item.name] = np.asarray(value)
    return arrays, missing


def unpack_state(
    kind: type, arrays: Mapping[str, Array], missing: list[str], sizes: Mapping[str, int]
) -> Any:
    """Create a state from the output of :func:`pack_state`; `sizes` are lengths of named axes.

    `kind` is the class of the state, or ``tuple[C, ...]`` for a tuple of states of class C.
    """
    if not all(isinstance(name, str) for name in missing):
        raise StateError("the names of fields without values are not text")
    if get_origin(kind) is tuple:
        numbers = {name.partition(".")[0] for name in arrays}
        count = len(numbers)
        if not count or numbers != {str(i) for i in range(count)}:
            raise StateError("the states of the restarts are not numbered from 0")
        return tuple(
            unpack_state(
                get_args(kind)[0],
                _under(arrays, f"{i}."),
                [name.removeprefix(f"{i}.") for name in missing if name.startswith(f"{i}.")],
                sizes,
            )
            for i in range(count)
        )
    named = dict(sizes)
    values: dict[str, Any] = {}
    hints = get_type_hints(kind, include_extras=True)
    for state_field in fields(kind):
        name = state_field.name
        shape = getattr(hints[name], "__metadata__", ("",))[0]
        if name in missing and (not shape or shape.startswith("?")):
            values[name] = None
            continue
        if name not in arrays:
            raise StateError(f"{name} is missing")
        value = arrays[name]
        if shape:
            kind_name, _, axes = shape.removeprefix("? ").partition(" ")
            lengths = (
                named_axes(axes, value.shape, named) if value.dtype in _DTYPES[kind_name] else None
            )
            if lengths is None:
                raise StateError(
                    f"{name} must be {shape!r} with {named}, got dtype {value.dtype} and shape "
                    f"{value.shape}"
                )
            named = lengths
        values[name] = value.item() if value.ndim == 0 else value
    return kind(**values)


#: Version of the file format.
_FORMAT = 3
_FILE = "daskclust-checkpoint.npz"
_REMEDY = "Delete the file to start again, or use another checkpoint path."
#: Parameters that contain the number of centers.
_COUNTS = ("n_clusters", "n_components")


@dataclass(frozen=True)
class Fingerprint:
    """Identity of a fit: its estimator, the `params` that change the result, and the data's hash.

    A random generator is compared by its state after the fit has drawn its seed; that state
    determines the state before.  The code of functions is not compared.
    """

    estimator: str
    params: Mapping[str, Any]
    n_rows: int
    survey: Survey

    def as_meta(self) -> dict[str, Any]:
        if self.survey.hash is None:
            raise ValueError("The first pass did not hash the rows (SurveyRequest.hashed).")
        params = {}
        for name, value in sorted(self.params.items()):
            try:
                params[name] = identify(value)
            except TypeError as error:
                raise CheckpointError(
                    f"A fit with {name}={value!r} cannot have a checkpoint: {error}. Pass an array "
                    "or a function that is defined in a module, or use checkpoint=None."
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
        mine = json.loads(json.dumps(self.as_meta()))
        changes = [
            f"{key} was {meta.get(key)!r}, is {mine[key]!r}"
            for key in ("estimator", "n_rows", "n_features")
            if meta.get(key) != mine[key]
        ]
        theirs = meta["params"]
        for key in sorted(set(theirs) | set(mine["params"])):
            if theirs.get(key) != mine["params"].get(key):
                changes.append(f"{key} was {theirs.get(key)!r}, is {mine['params'].get(key)!r}")
        if not changes and meta.get("data") != mine["data"]:
            changes.append("the data differ (a value, a weight, or the order of rows or columns)")
        return changes

    def sizes(self) -> dict[str, int]:
        counts = [self.params[name] for name in _COUNTS if name in self.params]
        # The counts of several levels are not the length of an axis.
        return {"k": int(counts[0])} if counts and not isinstance(counts[0], tuple | list) else {}


class Checkpoint:
    """A file with the newest state of one fit; `path` is the file or its directory."""

    def __init__(self, path: str | os.PathLike[str], fingerprint: Fingerprint) -> None:
        if not os.fspath(path):
            raise CheckpointError("checkpoint must be a path or None, got an empty path.")
        # Resolve links: the rename at the end of a write would replace the link.
        target = Path(os.path.realpath(path)) if Path(path).is_symlink() else Path(path)
        _refuse_url(path)
        self.path = target / _FILE if target.is_dir() else target
        self.fingerprint = fingerprint
        #: True if the file belongs to this fit.
        self.written = False
        #: Parts before this one, as stored.
        self._before: list[Packed] = []
        #: Complete stages of the initialization of this part, by name.
        self._stages: dict[str, Packed] = {}
        #: Inode and time of the file after the last write; True if another fit has replaced it.
        self._stamp: tuple[int, int] | None = None
        self._is_replaced = False
        self._meta = fingerprint.as_meta()
        if not self.path.parent.is_dir():
            raise CheckpointError(
                f"checkpoint must be in an existing directory, got {redact(path)!r}. Create "
                f"{str(self.path.parent)!r}, or use another path."
            )

    def following(self, ended: Fitted) -> Checkpoint:
        """Return a checkpoint in the same file for the next part of a fit, after `ended`."""
        after = Checkpoint(self.path, self.fingerprint)
        after._before = [*self._before, _pack_loop(ended)]
        after._stamp, after._is_replaced = self._stamp, self._is_replaced
        return after

    def load(self, kind: type, sizes: Mapping[str, int] | None = None) -> Fitted | None:
        """Return the stored loop of this part (finished if a next part exists), or None."""
        remove_stale(self.path)
        if self._is_replaced or not self.path.exists():
            return None
        meta, arrays = _read_checked(self.path)
        self._check_identity(meta)
        try:
            return self._unpack_part(
                meta["parts"], arrays, kind, {**self.fingerprint.sizes(), **(sizes or {})}
            )
        except (StateError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise self.damaged(error) from error

    def _check_identity(self, meta: Mapping[str, Any]) -> None:
        if meta["version"] != self._meta["version"]:
            raise CheckpointError(
                f"{str(self.path)!r} was written by daskclust {meta['version']}, and this is "
                f"{self._meta['version']}, whose iterations may differ. Finish the fit with the "
                f"first version. {_REMEDY}"
            )
        try:
            differences = self.fingerprint.differences(meta)
        except (KeyError, TypeError, AttributeError) as error:
            raise self.damaged(error) from error
        if differences:
            raise CheckpointError(
                f"{str(self.path)!r} belongs to another fit: {'; '.join(differences)}. {_REMEDY}"
            )

    def damaged(self, error: Exception) -> CheckpointError:
        return CheckpointError(
            f"{str(self.path)!r} is damaged: part of the state is missing or invalid ({error}). "
            f"{_REMEDY}"
        )

    def _unpack_part(
        self, parts: list[Any], arrays: Arrays, kind: type, sizes: Mapping[str, int]
    ) -> Fitted | None:
        index = len(self._before)
        self.written = True
        if len(parts) <= index:
            return None
        part_meta, part_arrays = parts[index], _under(arrays, f"{index}.")
        if "stages" in part_meta:
            numbers = {name.partition(".")[0] for name in part_arrays}
            if not numbers <= {str(i) for i in range(len(part_meta["stages"]))}:
                raise StateError("some arrays do not belong to a stage")
            # With random_state=None, a later process draws other numbers: do not mix its stages.
            if self._meta["params"].get("random_state", 0) is not None:
                self._stages = {
                    str(stage["name"]): (stage, _under(part_arrays, f"{i}."))
                    for i, stage in enumerate(part_meta["stages"])
                }
            return None
        return _unpack_loop(kind, (part_meta, part_arrays), sizes)

    def unpack(self, kind: type, packed: Packed, sizes: Mapping[str, int]) -> Fitted:
        try:
            return _unpack_loop(kind, packed, {**self.fingerprint.sizes(), **sizes})
        except (StateError, KeyError, TypeError, ValueError) as error:
            raise self.damaged(error) from error

    @contextmanager
    def saving_stages(self, rows: Any) -> Iterator[None]:
        """Save the stages of :func:`saved_stage` in this file; `rows` counts the passes."""
        token = _STAGES.set(_Stages(self, rows))
        try:
            yield
        finally:
            _STAGES.reset(token)

    def save(self, state: Any, history: list[Any], *, finished: bool, passes: int) -> None:
        """Replace the file by the newest state; after a crash, the old or the new state remains."""
        self._stages = {}
        self._write(_pack_loop(Fitted(state, history, finished, passes)))

    def _write(self, newest: Packed) -> None:
        self._check_writer()
        if self._is_replaced:
            return
        metas, arrays = _numbered([*self._before, newest])
        _write(self.path, {"format": _FORMAT, **self._meta, "parts": metas}, arrays)
        self.written, self._stamp = True, _stamp_of(self.path)

    def _check_writer(self) -> None:
        """Stop writing if another fit wrote the file; raise CheckpointError on the first write."""
        if self._is_replaced or _stamp_of(self.path) in (None, self._stamp):
            return
        try:
            self._check_identity(_read_checked(self.path)[0])
        except CheckpointError as error:
            if not self.written:
                raise
            self._is_replaced = True
            self.written = False
            warn(f"{error} This fit continues without a checkpoint.", DaskclustWarning)

    def close(self) -> None:
        remove_stale(self.path)


@dataclass
class _Stages:
    """The stages of a running initialization, which a checkpoint saves."""

    checkpoint: Checkpoint
    rows: Any
    used: set[str] = field(default_factory=set)

    def load(self, name: str) -> Packed | None:
        if name in self.used:
            raise RuntimeError(f"The initialization has two stages named {name!r}.")
        self.used.add(name)
        return self.checkpoint._stages.get(name)

    def save(self, name: str, meta: dict[str, Any], arrays: Arrays) -> None:
        stages = self.checkpoint._stages
        stages[name] = {"name": name, **meta}, arrays
        metas, stored = _numbered(list(stages.values()))
        self.checkpoint._write(({"stages": metas}, stored))


@dataclass
class LoopStage:
    """Checkpoint of a loop that is one stage of an initialization."""

    name: str
    stages: _Stages

    def load(self, kind: type, sizes: Mapping[str, int]) -> Fitted | None:
        packed = self.stages.load(self.name)
        return None if packed is None else self.stages.checkpoint.unpack(kind, packed, sizes)

    def save(self, state: Any, history: list[Any], *, finished: bool, passes: int) -> None:
        self.stages.save(self.name, *_pack_loop(Fitted(state, history, finished, passes)))


_STAGES: ContextVar[_Stages | None] = ContextVar("daskclust-stages", default=None)


def saves_stages() -> bool:
    """Return True if a checkpoint saves the stages of the running initialization."""
    return _STAGES.get() is not None


@contextmanager
def without_stages() -> Iterator[None]:
    """Save no stages of a fit inside an initialization, because their names would repeat."""
    token = _STAGES.set(None)
    try:
        yield
    finally:
        _STAGES.reset(token)


def saved_stage(name: str, kind: type[S], make: Callable[[], S], **sizes: int) -> S:
    """Return ``make()``, or its result from an interrupted fit with the same checkpoint.

    `name` is unique in an initialization; the result depends only on `name`, the data and the
    parameters.  `kind` is the class of the result, annotated as in :func:`pack_state`.  `sizes`
    are known lengths of named axes.
    """
    stages = _STAGES.get()
    if stages is None:
        return make()
    keeper, packed = stages.checkpoint, stages.load(name)
    if packed is not None:
        meta, arrays = packed
        try:
            lengths = {**keeper.fingerprint.sizes(), **sizes}
            state: S = unpack_state(kind, arrays, meta["missing"], lengths)
            stages.rows.passes = max(stages.rows.passes, int(meta["passes"]))
        except (StateError, KeyError, TypeError, ValueError) as error:
            raise keeper.damaged(error) from error
        return state
    before = set(stages.used)
    state = make()
    # A complete stage makes the stages inside it unnecessary.
    for inner in stages.used - before:
        keeper._stages.pop(inner, None)
    arrays, missing = pack_state(state)
    stages.save(name, {"missing": missing, "passes": int(stages.rows.passes)}, arrays)
    return state


def loop_stage(name: str) -> LoopStage | None:
    """Return the checkpoint of a loop inside the running initialization, or None without one."""
    stages = _STAGES.get()
    return None if stages is None else LoopStage(name, stages)


# --- the file --------------------------------------------------------------------------------


def _seal(meta: Mapping[str, Any], arrays: Arrays) -> str:
    sha = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        sha.update(f"{name} {array.dtype.descr} {array.shape}".encode())
        sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()


def _write(path: Path, meta: dict[str, Any], arrays: Arrays) -> None:
    # Convert to the values that JSON returns: tuples become lists.
    meta = json.loads(json.dumps(meta))
    meta["seal"] = _seal(meta, arrays)
    text = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    with new_path(path) as scratch, scratch.open("wb") as file:
        np.savez(file, meta=text, **arrays)  # type: ignore[arg-type]


def _stamp_of(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def _read(path: Path) -> Packed:
    # Opened here, because NumPy leaves a broken file open.
    with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    meta = json.loads(arrays.pop("meta").tobytes().decode())
    if meta["format"] != _FORMAT:
        raise ValueError(f"it has format {meta['format']!r}, and this version reads {_FORMAT}")
    if meta.pop("seal") != _seal(meta, arrays):
        raise ValueError("its content has changed since it was written")
    if not isinstance(meta["parts"], list) or not isinstance(meta["version"], str):
        raise ValueError("its header is invalid")
    # A machine with another byte order may have written the file; kernels need the native order.
    return meta, {
        name: a.astype(a.dtype.newbyteorder("="), copy=False) for name, a in arrays.items()
    }


def _read_checked(path: Path) -> Packed:
    try:
        return _read(path)
    except Exception as error:  # damaged archives can raise any error
        # The first sentence only: the next sentence of NumPy recommends pickle.
        why = str(error).split(". ")[0].rstrip(".")
        raise CheckpointError(
            f"{str(path)!r} is not a readable daskclust checkpoint ({why}). {_REMEDY}"
        ) from error


def _refuse_url(path: str | os.PathLike[str]) -> None:
    if "://" in str(path):
        raise CheckpointError(f"checkpoint must be a path on this machine, got {redact(path)!r}.")


def check_checkpoint(path: str | os.PathLike[str]) -> None:
    """Raise CheckpointError if a file cannot be a checkpoint, before a fit exists."""
    _refuse_url(path)
    if Path(path).exists():
        _read_checked(Path(path))


def _numbered(parts: Sequence[Packed]) -> tuple[list[dict[str, Any]], Arrays]:
    arrays = {f"{i}.{name}": a for i, (_, own) in enumerate(parts) for name, a in own.items()}
    return [meta for meta, _ in parts], arrays


def _under(arrays: Mapping[str, Array], prefix: str) -> Arrays:
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}


def _pack_loop(loop: Fitted) -> Packed:
    arrays, missing = pack_state(loop.state)
    meta = {
        "missing": missing,
        "history": loop.history,
        "finished": bool(loop.finished),
        "passes": int(loop.passes),
    }
    return meta, arrays


def _unpack_loop(kind: type, packed: Packed, sizes: Mapping[str, int]) -> Fitted:
    meta, arrays = packed
    history, passes = meta["history"], meta["passes"]
    if not isinstance(history, list):
        raise StateError("the records of the iterations are not a list")
    numbers = [record["iteration"] for record in history]
    if numbers != list(range(1, len(history) + 1)):
        raise StateError("the records of the iterations are not in order")
    if not isinstance(passes, int) or not isinstance(meta["finished"], bool):
        raise StateError("the number of passes is invalid")
    if meta["finished"] and not history:
        raise StateError("the loop is finished without an iteration")
    return Fitted(
        unpack_state(kind, arrays, meta["missing"], sizes), history, meta["finished"], passes
    )
