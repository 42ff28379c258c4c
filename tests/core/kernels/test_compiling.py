"""Options of the compiler, checked in the code that it generates."""

import re
import subprocess
import sys

import numpy as np
import pytest
from numba import njit

from daskclust.core.kernels import moments
from daskclust.core.kernels.compiling import inner
from daskclust.core.kernels.moments import block_moments
from daskclust.core.kernels.nearest import _tiles
from daskclust.core.kernels.nearest.assign import accumulate, nearest


def _calls_of_counts(*, counted: bool) -> int:
    @inner(counted=counted)
    def longest(a, b):
        found = a
        for i in range(len(b)):
            # Which array it is in the end is not known to the compiler, which cannot drop counts.
            if b[i] > found[0]:
                found = b[i:]
        return found[0] + len(found)

    @njit
    def caller(a, b):
        return longest(a, b)

    assert caller(np.array([2.0]), np.array([1.0, 3.0, 2.0])) == 5
    (signature,) = longest.signatures
    code = longest.inspect_llvm(signature)
    (body,) = re.findall(r"^define [^\n]*longest.*?^}", code, re.MULTILINE | re.DOTALL)
    return len(re.findall(r"call void @NRT_(?:inc|dec)ref", body))


def test_functions_that_borrow_their_arrays_count_no_references():
    """A hidden option of Numba, on which the time of a tile depends."""
    assert _calls_of_counts(counted=True) > 0
    assert _calls_of_counts(counted=False) == 0


def test_compiling_registers_no_types():
    """Threads that compile at once would meet a registry that changes under them."""
    script = (
        "from numba.core.typing.typeof import typeof_impl\n"
        "from daskclust.core.kernels.moments import block_moments\n"
        "import numba, numpy as np\n"
        "before = set(typeof_impl.registry)\n"
        "numba.njit('int64()')(lambda: 0)()\n"
        "block_moments(np.ones((9, 2)))\n"
        "assert set(typeof_impl.registry) == before, set(typeof_impl.registry) - before\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


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
