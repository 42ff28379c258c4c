"""The small state of a fit on disk: written atomically, checked before it is used.

A file holds what it belongs to (:class:`Fingerprint`) and the parts of a fit: those that have
ended, and the newest, the state of a loop or the record of a start.  A start asks the same
questions where its passes have the same answers: it is begun again, and answered from the record.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Generic, TypeVar, get_type_hints

import dask
import numpy as np
from dask.base import tokenize

from daskclust._types import Array, named_axes
from daskclust._version import __version__
from daskclust._warnings import warn
from daskclust.exceptions import CheckpointError, DaskclustWarning
from daskclust.reduction import Partial, Survey
from daskclust.storage.atomic import new_place, remove_stale
from daskclust.storage.urls import redact


class UnidentifiableError(TypeError): ...


def identify(value: Any) -> Any:
    """Return a JSON value that is equal for equal values only, in any process.

    Dask's tokens alone would not do: they name an object of the main script's classes anew in every
    process, and a function of an importable module by its name only.  Objects that hide their
    content, such as locks and open files, are an UnidentifiableError.
    """
    return _Identifier().of(value)


def content_hash(value: Any) -> str:
    return _hash(identify(value))


def _hash(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:32]


class _Identifier:
    def __init__(self) -> None:
        #: Objects on the way from the first to the one at hand.
        self._path: list[Any] = []
        #: Those that are done, by id, and kept alive, so that ids stay theirs.
        self._done: dict[int, tuple[Any, str]] = {}

    def of(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, np.generic):
            return self.of(value.item()) if value.dtype.kind in "biufU" else repr(value)
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            data = np.ascontiguousarray(value)
            digest = hashlib.sha256(data.tobytes()).hexdigest()
            return f"array {data.shape} {data.dtype} {digest}"
        for depth, other in enumerate(self._path):
            if other is value:
                return ["within", depth]
        self._path.append(value)
        try:
            return self._holder(value)
        finally:
            self._path.pop()

    def _holder(self, value: Any) -> Any:
        if isinstance(value, list | tuple) and type(value) in (list, tuple):
            return [self.of(item) for item in value]
        if isinstance(value, set | frozenset):
            return ["set", sorted(json.dumps(self.of(item)) for item in value)]
        if type(value) is dict:
            return ["mapping", *([self.of(key), self.of(item)] for key, item in value.items())]
        if isinstance(value, bytes | complex | slice | range | ModuleType):
            return f"{type(value).__name__} {getattr(value, '__name__', value)!r}"
        if id(value) not in self._done:
            self._done[id(value)] = value, self._object(value)
        return self._done[id(value)][1]

    def _object(self, value: Any) -> str:
        if isinstance(value, np.random.Generator):
            return f"Generator {_hash(self.of(value.bit_generator.state))}"
        if isinstance(value, np.random.RandomState):
            return f"RandomState {_hash(self.of(value.get_state(legacy=False)))}"
        if isinstance(value, MethodType):
            content = [value.__func__.__qualname__, self.of(value.__self__)]
            return f"method {value.__func__.__qualname__} {_hash(content)}"
        if isinstance(value, FunctionType):
            name = f"{value.__module__}.{value.__qualname__}"
            return f"function {name} {_hash(self._function(value))}"
        if isinstance(value, type):
            return f"class {value.__module__}.{value.__qualname__} {_hash(self._class(value))}"
        if hasattr(value, "__dask_tokenize__") or isinstance(value, BuiltinFunctionType | np.ufunc):
            return self._token(value)
        return f"{type(value).__name__} {_hash(self._parts(value))}"

    def _parts(self, value: Any) -> list[Any]:
        """Return what an object could be made of again."""
        try:
            made = value.__reduce_ex__(2)
        except Exception as error:  # whatever an object raises that has no copy
            raise _unidentifiable(value) from error
        if isinstance(made, str):
            return [type(value).__module__, made]
        function, arguments, state, items, entries = (*made, None, None, None)[:5]
        name = getattr(function, "__qualname__", repr(type(function)))
        return [
            name,
            self.of(tuple(arguments)),
            self.of(state),
            [self.of(item) for item in items or ()],
            [self.of(tuple(entry)) for entry in entries or ()],
            self._class(type(value)),
        ]

    def _function(self, function: FunctionType) -> list[Any]:
        enclosed = [cell.cell_contents for cell in function.__closure__ or ()]
        names = _names(function.__code__)
        module = function.__globals__
        used = {n: module[n] for n in sorted(names) if n in module}
        return [
            self._code(function.__code__),
            self.of(function.__defaults__),
            self.of(function.__kwdefaults__),
            self.of(enclosed),
            [[n, self._used(item, function.__module__)] for n, item in used.items()],
        ]

    def _used(self, value: Any, module: str) -> Any:
        """Identify a global name; what other modules define goes by its own name."""
        if isinstance(value, FunctionType | type) and value.__module__ != module:
            return f"{value.__module__}.{value.__qualname__}"
        return self.of(value)

    def _class(self, kind: type) -> list[Any]:
        return [
            [attribute, self._code(item.__code__)]
            for base in kind.__mro__
            for attribute, item in sorted(vars(base).items())
            if isinstance(item, FunctionType)
        ]

    def _code(self, code: CodeType) -> str:
        """Hash what a function does: two lambdas have the same name."""
        sha = hashlib.sha256(code.co_code)
        sha.update(repr(code.co_names).encode())
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                sha.update(self._code(constant).encode())
            else:
                # A set has no order of its own.
                plain = sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant
                sha.update(repr(plain).encode())
        return sha.hexdigest()[:16]

    @staticmethod
    def _token(value: Any) -> str:
        try:
            with dask.config.set({"tokenize.ensure-deterministic": True}):
                return f"{type(value).__name__} {tokenize(value)}"
        except Exception as error:  # whatever an object raises when it is to be pickled
            raise _unidentifiable(value) from error


def _unidentifiable(value: Any) -> UnidentifiableError:
    kind = type(value)
    return UnidentifiableError(
        f"the content of an object of type {kind.__module__}.{kind.__qualname__} cannot be told"
    )


def _names(code: CodeType) -> set[str]:
    """Names that a function and those inside it look up, attributes among them."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found


Arrays = dict[str, Array]
#: Part of a checkpoint as it is stored: values that JSON has, and arrays.
Packed = tuple[dict[str, Any], Arrays]


@dataclass
class StartLog:
    """The record of a start, of an earlier process first, and the place reached in it.

    A record is the answer to a question (a pass, or a stage without one), or a loop inside the
    start after its newest iteration.
    """

    checkpoint: Checkpoint
    records: list[Packed]
    _at: int = field(default=0, init=False)

    def answer(
        self,
        question: Any,
        shapes: Mapping[str, tuple[tuple[int | None, ...], Any]],
        make: Callable[[], Partial],
    ) -> Partial:
        """Return the answer to the next question, made where the record ends or asked another."""
        name = content_hash(question)
        meta, arrays = self.records[self._at] if self._at < len(self.records) else ({}, {})
        if meta.get("question") != name:
            found = make()
            self.put({"question": name}, {key: np.asarray(a) for key, a in found.items()})
            return found
        for key, (shape, dtype) in shapes.items():
            part = arrays.get(key)
            if (
                part is None
                or (part.dtype, part.ndim) != (dtype, len(shape))
                or any(n not in (None, m) for m, n in zip(part.shape, shape, strict=True))
            ):
                raise self.checkpoint.damaged(StateError(f"{key}, which a pass of the start found"))
        self._at += 1
        return dict(arrays)

    def put(self, meta: dict[str, Any], arrays: Arrays) -> None:
        self.records[self._at :] = [(meta, arrays)]
        self._at += 1
        metas, own = _numbered(self.records)
        self.checkpoint._write(({"start": metas}, own))


class LoopKeeper:
    """Keeps the newest state of a loop inside a start, as one record of it."""

    def __init__(self, log: StartLog, name: str) -> None:
        self._log, self._name = log, name
        self._place = log._at

    def load(self, kind: type, sizes: Mapping[str, int]) -> Fitted | None:
        if self._place == len(self._log.records):
            return None
        record = self._log.records[self._place]
        if record[0].get("loop") != self._name:
            return None
        self._log._at = self._place + 1
        return self._log.checkpoint.unpack(kind, record, sizes)

    def save(self, state: Any, history: list[Any], *, finished: bool, passes: int) -> None:
        self._log._at = self._place
        meta, arrays = _pack_loop(Fitted(state, history, finished, passes))
        self._log.put({"loop": self._name, **meta}, arrays)


#: What annotations of states call a dtype.
_DTYPES = {"f": np.float64, "f4": np.float32, "i": np.int64, "b": np.bool_}


S = TypeVar("S")


@dataclass(frozen=True)
class Fitted(Generic[S]):
    """Where a loop stands: its newest state, its records, whether it is done, passes so far."""

    state: S
    history: list[dict[str, Any]]
    finished: bool
    passes: int


class StateError(ValueError): ...


def pack_state(state: Any) -> tuple[dict[str, Array], list[str]]:
    """Return the fields of a state that are there, as arrays, and the names of the others.

    A field may be annotated by what is kept, ``centers: Annotated[Floats, "f r k p"]``: a key of
    ``_DTYPES``, then the axes of :func:`named_axes`, none for a number; ``?`` before allows None.
    """
    arrays, missing = {}, []
    for each in fields(state):
        value = getattr(state, each.name)
        if value is None:
            missing.append(each.name)
        else:
            arrays[each.name] = np.asarray(value)
    return arrays, missing


def unpack_state(
    kind: type, arrays: Mapping[str, Array], missing: list[str], sizes: Mapping[str, int]
) -> Any:
    """Make a state of what :func:`pack_state` returned; `sizes`: known lengths of named axes."""
    known = dict(sizes)
    values: dict[str, Any] = {}
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        name = each.name
        shape = getattr(hints[name], "__metadata__", ("",))[0]
        if name in missing and (not shape or shape.startswith("?")):
            values[name] = None
            continue
        if name not in arrays:
            raise StateError(f"{name} is missing")
        value = arrays[name]
        if shape:
            kept, _, axes = shape.removeprefix("? ").partition(" ")
            found = named_axes(axes, value.shape, known) if value.dtype == _DTYPES[kept] else None
            if found is None:
                raise StateError(
                    f"{name} is of dtype {value.dtype} and shape {value.shape}; expected {shape!r} "
                    f"with {known}"
                )
            known = found
        values[name] = value.item() if value.ndim == 0 else value
    return kind(**values)


#: 2: rows are hashed, starts are recorded, the version is part of the identity.
_FORMAT = 2
_FILE = "daskclust-checkpoint.npz"
_REMEDY = "Delete the file to start afresh, or give another checkpoint path."
#: Parameters that say how many centers there are.
_COUNTS = ("n_clusters", "n_components")


@dataclass(frozen=True)
class Fingerprint:
    """Identity of a fit: its estimator, the `params` that change the result, and the data's hash.

    A random generator is compared by its state after the fit has drawn its seed, which determines
    the one before.
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
        self._before: list[Packed] = []
        self._started: list[Packed] = []
        #: The file as this fit has left it, and whether another one has taken its place.
        self._stamp: tuple[int, int] | None = None
        self._taken = False
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
        after._stamp, after._taken = self._stamp, self._taken
        return after

    def load(self, kind: type, sizes: Mapping[str, int] | None = None) -> Fitted | None:
        """Return the stored loop of this part, at its end where the next has begun, or None."""
        remove_stale(self.path)
        if self._taken or not self.path.exists():
            return None
        meta, arrays = _read_checked(self.path)
        self._check_kin(meta)
        try:
            return self._take(
                meta["parts"], arrays, kind, {**self.fingerprint.sizes(), **(sizes or {})}
            )
        except (StateError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise self.damaged(error) from error

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
            raise self.damaged(error) from error
        if differences:
            raise CheckpointError(
                f"{str(self.path)!r} belongs to another fit: {'; '.join(differences)}. {_REMEDY}"
            )

    def damaged(self, error: Exception) -> CheckpointError:
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
            for i, record in enumerate(part["start"]):
                if not record.keys() & {"question", "loop"}:
                    raise StateError("a record of the start is neither an answer nor a loop")
                self._started.append((record, _under(own, f"{i}.")))
            return None
        return _unpack_loop(kind, (part, own), sizes)

    def start_log(self) -> StartLog:
        return StartLog(self, self._started)

    def unpack(self, kind: type, packed: Packed, sizes: Mapping[str, int]) -> Fitted:
        try:
            return _unpack_loop(kind, packed, {**self.fingerprint.sizes(), **sizes})
        except (StateError, KeyError, TypeError, ValueError) as error:
            raise self.damaged(error) from error

    def save(self, state: Any, history: list[Any], *, finished: bool, passes: int) -> None:
        """Replace the file by the newest state; a crash leaves the old one or the new one."""
        self._started = []
        self._write(_pack_loop(Fitted(state, history, finished, passes)))

    def _write(self, newest: Packed) -> None:
        self._look_who_wrote()
        if self._taken:
            return
        metas, arrays = _numbered([*self._before, newest])
        _write(self.path, {"format": _FORMAT, **self._meta, "parts": metas}, arrays)
        self.written, self._stamp = True, _stamp_of(self.path)

    def _look_who_wrote(self) -> None:
        """Leave the file to another fit that has written it since: who came later is refused."""
        if self._taken or _stamp_of(self.path) in (None, self._stamp):
            return
        try:
            self._check_kin(_read_checked(self.path)[0])
        except CheckpointError as error:
            if not self.written:
                raise
            self._taken = True
            self.written = False
            warn(f"{error} This fit goes on, and keeps nothing from here.", DaskclustWarning)

    def close(self) -> None:
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


def _stamp_of(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _read(path: Path) -> Packed:
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
    # A machine of another byte order may have written it; kernels take numbers of this one.
    return meta, {
        name: a.astype(a.dtype.newbyteorder("="), copy=False) for name, a in arrays.items()
    }


def _read_checked(path: Path) -> Packed:
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


def _numbered(parts: Sequence[Packed]) -> tuple[list[dict[str, Any]], Arrays]:
    arrays = {f"{i}.{name}": a for i, (_, own) in enumerate(parts) for name, a in own.items()}
    return [meta for meta, _ in parts], arrays


def _under(arrays: Arrays, prefix: str) -> Arrays:
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
