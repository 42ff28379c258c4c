"""What tells parameters apart, in this process and in the next."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import dask.array as da
import numpy as np
import pytest

from daskclust.engine.checkpoint import UnidentifiableError, content_hash, identify

ROOT = Path(__file__).resolve().parents[2]

#: A module of somebody, in which the pieces that differ are put.
MODULE = """
import numpy as np
from functools import partial

SHIFT = {shift}

def helper(x):
    return x + {added}

def start(X, k, r, first={default}, *, last={last}):
    return helper(X[first + SHIFT : first + k])

def enclosing(n):
    return lambda X, k, r: X[n : n + k]

class Start:
    def __init__(self, n):
        self.n = n
    def __call__(self, X, k, r):
        return X[self.n : self.n + k + {method}]

class Slotted:
    __slots__ = ("n",)
    def __init__(self, n):
        self.n = n
    def __call__(self, X, k, r):
        return X[self.n :]

values = dict(
    function=start,
    closure=enclosing({enclosed}),
    partial=partial(start, first={bound}),
    instance=Start({attribute}),
    slotted=Slotted({attribute}),
    method=Start({attribute}).__call__,
    holder=[Start({attribute}), dict(a=Slotted(1))],
)
"""
PIECES = {
    "shift": 0,
    "added": 0,
    "default": 1,
    "last": 1,
    "method": 0,
    "enclosed": 2,
    "bound": 3,
    "attribute": 4,
}


def values_of(**changed):
    found: dict = {"__name__": "somebody"}
    exec(compile(MODULE.format(**{**PIECES, **changed}), "somebody.py", "exec"), found)
    return found["values"]


SAME = {name: content_hash(value) for name, value in values_of().items()}
OBJECTS = {"instance", "slotted", "method", "holder"}


@pytest.mark.parametrize(
    ("piece", "others"),
    [
        ("shift", {"function", "partial"}),
        ("added", {"function", "partial"}),
        ("default", {"function", "partial"}),
        ("last", {"function", "partial"}),
        ("enclosed", {"closure"}),
        ("bound", {"partial"}),
        ("attribute", OBJECTS),
        ("method", OBJECTS - {"slotted"}),
    ],
)
def test_each_piece_of_a_callable_counts(piece, others):
    found = {name: content_hash(value) for name, value in values_of(**{piece: 9}).items()}
    assert {name for name in found if found[name] != SAME[name]} == others


def test_it_is_the_same_in_another_process_of_the_main_script(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(
        MODULE.format(**PIECES)
        + "import json\nfrom daskclust.engine.checkpoint import identify\n"
        + "values['set'] = {'oak', 'elm', 'ash', 'fir'}\n"
        + "values['generator'] = np.random.default_rng(3)\n"
        + "print(json.dumps({n: identify(v) for n, v in values.items()}))\n"
    )
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, str(script)],
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
                capture_output=True,
                check=True,
                timeout=120,
            ).stdout
        )
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]
    assert len({json.dumps(value) for value in found[0].values()}) == len(found[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda n: np.random.default_rng(n),
        lambda n: np.random.RandomState(n),
        lambda n: np.random.Generator(np.random.MT19937(n)),
        lambda n: np.arange(5) == n,
        lambda n: np.array(["a", None, n], dtype=object),
        lambda n: da.arange(9, chunks=n + 2),
        lambda n: (1, [2, {"a": n}]),
        lambda n: {n, "b"},
        lambda n: np.float32(n),
        lambda n: b"a" * n,
        lambda n: [np.mean, np.median, np.sin][n],
        lambda n: functools.partial(np.mean, axis=n),
        lambda n: [int, float, str][n],
    ],
)
def test_equal_values_are_equal_and_others_are_not(make):
    assert identify(make(1)) == identify(make(1))
    assert identify(make(1)) != identify(make(2))
    json.dumps(identify(make(1)))


def test_a_generator_that_was_used_is_another():
    rng = np.random.default_rng(0)
    before = identify(rng)
    rng.random()
    assert identify(rng) != before


def test_types_are_told_apart():
    found = [identify(v) for v in (None, "None", 1, 1.5, "1", [1], np.array([1]), np.array([1.0]))]
    assert len({json.dumps(value) for value in found}) == len(found)


def test_what_holds_itself_comes_to_an_end():
    a: list = [1]
    a.append(a)
    b: list = [1]
    b.append(b)
    assert identify(a) == identify(b)

    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    assert identify(even) != identify(odd)


@pytest.mark.parametrize(
    "value",
    [threading.Lock(), (n for n in range(3)), functools.partial(print, threading.Lock())],
    ids=["lock", "generator", "partial"],
)
def test_what_hides_its_content_is_refused(value):
    with pytest.raises(UnidentifiableError, match="cannot be told"):
        identify(value)


def test_an_open_file_is_refused(tmp_path):
    with (tmp_path / "a").open("w") as file, pytest.raises(UnidentifiableError):
        identify({"file": file})
