"""Tables of constraints check and describe the parameters of all estimators."""

import inspect
import re
from numbers import Integral

import numpy as np
import pytest
from sklearn.utils._param_validation import Options

from daskclust.core.estimator.parameters import FLAG, Interval, StrOptions, check_value, describe
from daskclust.core.persistence.models import registry
from daskclust.preprocessing import StandardScaler

KINDS = [*registry().values(), StandardScaler]
PARAMETERS = [
    pytest.param(kind, name, id=f"{kind.__name__}-{name}")
    for kind in KINDS
    for name in inspect.signature(kind).parameters
]


@pytest.mark.parametrize("kind", KINDS)
def test_each_parameter_has_constraints_that_its_default_satisfies(kind):
    assert set(kind._parameter_constraints) == set(inspect.signature(kind).parameters)
    kind()._check_parameters()


@pytest.mark.parametrize("kind", KINDS)
def test_no_parameter_mixes_flags_and_strings(kind):
    for options in kind._parameter_constraints.values():
        assert FLAG not in options or list(options) == [FLAG]


def is_met_by(value):
    return lambda option: isinstance(option, Interval) and option.is_satisfied_by(value)


def near_bounds(interval):
    """Return numbers at the bounds of an interval that it contains, and numbers next to them."""
    step = 1 if interval.type is Integral else 1e-9
    inside, outside = [], [True, np.nan, np.inf, -1]
    for bound, side, inward in ((interval.left, "left", step), (interval.right, "right", -step)):
        if bound is not None:
            is_closed = interval.closed in (side, "both")
            inside.append(bound if is_closed else bound + inward)
            outside.append(bound - inward if is_closed else bound)
    return inside, outside


@pytest.mark.parametrize(("kind", "name"), PARAMETERS)
def test_other_values_are_refused_by_name(kind, name):
    options = kind._parameter_constraints[name]
    right, wrong = [], [object()]
    if str not in options:
        wrong.append("neither a word nor a path")
    for option in options:
        if isinstance(option, Interval):
            inside, outside = near_bounds(option)
            right += inside
            # A number of rows may also be a fraction.
            wrong += [value for value in outside if not any(map(is_met_by(value), options))]
        elif isinstance(option, Options):
            right += option.options
    for value in right:
        check_value(value, name, *options)
    for value in wrong:
        with pytest.raises(ValueError, match=f"^{name} must be .*, got ") as raised:
            kind(**{name: value})._check_parameters()
        assert isinstance(raised.value, TypeError)


@pytest.mark.parametrize(("kind", "name"), PARAMETERS)
def test_docstrings_name_the_strings_that_are_accepted(kind, name):
    pattern = rf"^(\w+, )*{name}(, \w+)* :.*\n(    .*\n|\n)*"
    entry = re.search(pattern, inspect.getdoc(kind), re.MULTILINE)[0]
    for option in kind._parameter_constraints[name]:
        words = option.words if isinstance(option, StrOptions) else ()
        assert all(f'"{word}"' in entry for word in words)


def test_messages_describe_all_constraints():
    options = [Interval(Integral, 1), None, callable, StrOptions("auto", "lloyd")]
    assert describe(options) == "an integer >= 1, None, a callable or one of 'auto', 'lloyd'"
    assert describe(options, typed=True) == "an integer >= 1, None or one of 'auto', 'lloyd'"
    with pytest.raises(TypeError, match=r"^x must be True or False, got 1\.$"):
        check_value(1, "x", FLAG)
    check_value(np.True_, "x", FLAG)
