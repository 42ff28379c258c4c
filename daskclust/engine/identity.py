"""Identities of values, the same in this process and in the next."""

from __future__ import annotations

import hashlib
import json
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import dask
import numpy as np
from dask.base import tokenize

__all__ = ["UnidentifiableError", "content_hash", "identify"]


class UnidentifiableError(TypeError):
    """A value whose content cannot be told."""


def identify(value: Any) -> Any:
    """Return a JSON value that is equal for equal values only.

    Plain values stand for themselves, arrays for a hash of their bytes, random
    generators for their state.  A function is its code, its default arguments,
    what it encloses, and what it uses of its own module; any other object its class
    and its attributes.  Dask's tokens name what is left.

    Tokens alone would not do: they name an object of the main script's classes anew
    in every process, and a function of an importable module by its name only.

    Objects that hide their content, such as locks and open files, are an UnidentifiableError.

    >>> identify([1, 2.5, "a"])
    [1, 2.5, 'a']
    >>> identify(lambda x, n=3: x[:n]) == identify(lambda x, n=4: x[:n])
    False
    """
    return _Identifier().of(value)


def content_hash(value: Any) -> str:
    """Hash of what :func:`identify` returns."""
    return _hash(identify(value))


def _hash(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:32]


class _Identifier:
    """One walk through a value and all it holds."""

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
