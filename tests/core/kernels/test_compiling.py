"""Options of the compiler, checked in the code that it generates."""

import numba
import numpy as np
import pytest

from daskclust.core.kernels import compiling, moments
from daskclust.core.kernels.moments import block_moments
from daskclust.core.kernels.nearest import _tiles
from daskclust.core.kernels.nearest.assign import accumulate, nearest


@pytest.mark.parametrize("writable", [False, True])
def test_kernels_are_compiled_once_whatever_may_be_written_to(writable):
    """Rows of other processes and of memory maps are read-only: Numba takes them for a type."""
    x, weight, features = np.ones((9, 2)), np.ones(9), np.ones(2)
    centers = np.arange(4.0).reshape(2, 2)
    for array in (x, weight, features, centers):
        array.flags.writeable = writable
    nearest(x, centers, feature_weights=features)
    accumulate(x, centers, weight=weight)
    block_moments(x, weight)
    assert x.flags.writeable == writable
    for kernel, places in ((_tiles._scan, (0, 1, 2)), (moments._segment, (0, 3))):
        assert kernel.signatures
        for signature in kernel.signatures:
            for place in places:
                given = signature[place]
                arrays = given.types[:2] if place == 2 else [given]
                assert not any(array.mutable for array in arrays), signature


@pytest.mark.parametrize(("delay", "expected"), [(-1.0, 1), (3600.0, 0)])
def test_long_compilation_is_reported_once(monkeypatch, delay, expected):
    monkeypatch.setattr(compiling, "_DELAY", delay)
    notices = []
    with compiling.noticing(lambda: notices.append(1)):
        for shift in (1, 2):
            numba.njit(lambda a, shift=shift: a + shift)(1.0)
    numba.njit(lambda a: a - 1)(1.0)
    assert len(notices) == expected
