"""Constraints of parameters: each estimator has a table of them, as in scikit-learn.

The table ``_parameter_constraints`` checks the parameters, and the command line describes them with
it.  A parameter is valid if one of its constraints is satisfied.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import _param_validation as constraints
from sklearn.utils._param_validation import Hidden, InvalidParameterError, Options, make_constraint

from daskclust.core.engine import Checkpoint

#: Constraints of the parameters of an estimator.
Constraints = Mapping[str, Sequence[Any]]


class Interval(constraints.Interval):
    """Finite numbers, without bool.

    >>> str(Interval(Integral, 1)), str(Interval(Real, 0, 1, closed="right"))
    ('an integer >= 1', 'a number > 0 and <= 1')
    """

    def __init__(
        self, kind: type, low: float | None, high: float | None = None, *, closed: str = "left"
    ) -> None:
        super().__init__(kind, low, high, closed=closed)

    def is_satisfied_by(self, val: Any) -> bool:
        return not isinstance(val, bool) and super().is_satisfied_by(val)

    def __str__(self) -> str:
        low = f" >{'=' * (self.closed in ('left', 'both'))} {self.left}"
        high = f" <{'=' * (self.closed in ('right', 'both'))} {self.right}"
        bounds = [
            text for text, bound in ((low, self.left), (high, self.right)) if bound is not None
        ]
        return ("an integer" if self.type is Integral else "a number") + " and".join(bounds)


class StrOptions(constraints.StrOptions):
    """Strings, in the order of messages.

    >>> str(StrOptions("auto", "lloyd")), str(StrOptions("auto"))
    ("one of 'auto', 'lloyd'", "'auto'")
    """

    def __init__(self, *words: str) -> None:
        super().__init__(set(words))
        self.words = words

    def __str__(self) -> str:
        listed = ", ".join(map(repr, self.words))
        return listed if len(self.words) == 1 else f"one of {listed}"


class _Flag(Options):
    def __str__(self) -> str:
        return "True or False"


class Like(constraints.HasMethods):
    """Objects with some methods, described by a noun."""

    def __init__(self, noun: str, *methods: str) -> None:
        super().__init__(list(methods))
        self.noun = noun

    def __str__(self) -> str:
        return self.noun


FLAG = _Flag((bool, np.bool_), {True, False})
COUNT = Interval(Integral, 1)
NOT_NEGATIVE = Interval(Real, 0)
POSITIVE = Interval(Real, 0, closed="neither")
#: Initial centers, other than the names of methods.
CENTERS = ("array-like", callable, Like("a fitted model", "get_params"))
MISSING = StrOptions("error", "partial")
CHECKPOINT: Constraints = {"checkpoint": [str, os.PathLike, None, Hidden(Checkpoint)]}
COMMON: Constraints = {
    "random_state": [Interval(Integral, 0), np.random.Generator, np.random.RandomState, None],
    **CHECKPOINT,
}
#: Parameters of the estimators that move centers, and make restarts.
RESTARTS: Constraints = {
    "n_clusters": [COUNT],
    "n_init": [COUNT, StrOptions("auto")],
    "max_iter": [COUNT],
    "tol": [NOT_NEGATIVE],
    **COMMON,
}


def describe(options: Sequence[Any], *, typed: bool = False) -> str:
    """Return the values that satisfy any of the constraints; `typed`: if they can be typed.

    >>> describe([COUNT, None, callable]), describe([COUNT, None, callable], typed=True)
    ('an integer >= 1, None or a callable', 'an integer >= 1 or None')
    """
    texts = [
        f"a {option.__name__}" if isinstance(option, type) else str(make_constraint(option))
        for option in options
        if not isinstance(option, Hidden)
        and (not typed or option in (None, str, tuple) or isinstance(option, Interval | Options))
    ]
    return " or ".join(filter(None, [", ".join(texts[:-1]), *texts[-1:]]))


def check_value(value: Any, name: str, *options: Any) -> None:
    """Raise an error, both a ValueError and a TypeError, if no constraint is satisfied.

    >>> check_value(0, "n_clusters", COUNT, StrOptions("auto"))
    Traceback (most recent call last):
        ...
    sklearn.utils._param_validation.InvalidParameterError: n_clusters must be an integer >= 1 or ...
    """
    if not any(make_constraint(option).is_satisfied_by(value) for option in options):
        raise InvalidParameterError(f"{name} must be {describe(options)}, got {value!r}.")


class Checked:
    """Base class of estimators whose parameters are checked by their constraints."""

    _parameter_constraints: ClassVar[Constraints]

    def _check_parameters(self) -> None:
        """Check each parameter.  Subclasses also check combinations of parameters."""
        params: dict[str, Any] = self.get_params(deep=False)  # type: ignore[attr-defined]
        for name, value in params.items():
            # Subclasses may have further parameters.
            if name in self._parameter_constraints:
                check_value(value, name, *self._parameter_constraints[name])
