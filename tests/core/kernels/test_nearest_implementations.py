"""The emitted kernels against the plain ones, and against themselves on other processors."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from oracles import plain_kernels

import daskclust
from daskclust.core.kernels.nearest import _tiles, row_loops
from daskclust.core.kernels.nearest.assign import (
    accumulate,
    direct_distances,
    nearest,
)

ROOT = Path(daskclust.__file__).parents[1]
#: Features of every x86 processor since 2013.
HASWELL = "+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt"
_NO_WEIGHTS = np.empty(0)


def _sweep(sweeper, x, centers, row_weights, feature_weights, ends, width=None):
    n, (k, p) = len(x), centers.shape
    stats = np.zeros((2, k, p + 2 if width is None else width))
    labels, distances = np.empty(n, np.int32), np.empty(n)
    out = tuple(stats), labels, distances
    sweeper(x, row_weights, centers, feature_weights, None, ends, *out)()
    return labels, distances, *stats


def _plain_sweep(x, centers, row_weights, feature_weights, ends, width=None, *, observed=False):
    """Sweep by the plain kernel, compiled for float64 and arrays alone: rows are cast anyway."""
    weights = _NO_WEIGHTS if feature_weights is None else feature_weights
    sweeper = partial(plain_kernels.sweeper, observed=observed)
    return _sweep(sweeper, x.astype(np.float64), centers, row_weights, weights, ends, width)


def _plain_distances(x, centers, weights, gaps):
    rows, k = range(len(x)), range(len(centers))
    return [
        [plain_kernels.row_distance(x, i, centers, c, weights, 1.0, (), gaps) for c in k]
        for i in rows
    ]


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 150),
    k=st.integers(1, 45),
    p=st.integers(1, 40),
    dtype=st.sampled_from([np.float32, np.float64]),
    integers=st.booleans(),
    weighted=st.booleans(),
    feature_weighted=st.booleans(),
)
def test_scan_equals_the_plain_scan(seed, n, k, p, dtype, integers, weighted, feature_weighted):
    rng = np.random.default_rng(seed)
    draw = (lambda s: rng.integers(-3, 4, s)) if integers else rng.standard_normal
    x = np.asarray(draw((n, p)), dtype=dtype)
    centers = np.asarray(draw((k, p)), dtype=np.float64)
    weights = rng.integers(0, 4, n) / 2.0 if weighted else _NO_WEIGHTS
    features = rng.integers(0, 3, p) / 4.0 if feature_weighted else None
    ends = np.unique(np.append(rng.integers(1, n + 1, 3), n))
    found = _sweep(_tiles.sweeper, x, centers, weights, features, ends)
    plain = _plain_sweep(x, centers, weights, features, ends)
    np.testing.assert_array_equal(found[0], plain[0])
    np.testing.assert_array_equal(found[1], plain[1])
    # Weights and squared distances to the last bit; sums but for rows that changed their cluster.
    np.testing.assert_array_equal(found[2][:, p:], plain[2][:, p:])
    size = np.abs(x).max() * (n + 1)
    np.testing.assert_allclose(found[2][:, :p], plain[2][:, :p], rtol=0, atol=1e-14 * size)


@given(
    seed=st.integers(0, 2**32 - 1),
    p=st.integers(1, 70),
    dtype=st.sampled_from([np.float32, np.float64]),
)
@pytest.mark.parametrize("weighted", [False, True])
def test_distances_equal_the_plain_ones_to_the_last_bit(weighted, seed, p, dtype):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((3, p)) * 10.0 ** rng.integers(-20, 20)).astype(dtype)
    centers, weights = rng.standard_normal((2, p)), rng.random(p)
    found = direct_distances(x, centers, weights if weighted else None)
    plain = _plain_distances(x, centers, weights if weighted else (), ())
    np.testing.assert_array_equal(found, plain)


def test_a_distance_by_hand_is_summed_in_eight_parts():
    # 1e16 swallows a 1 that is added to it, but not one of another partial sum... and those
    # are added in halves: (0, 4), (2, 6) come before the rest.
    gaps = np.zeros(16)
    gaps[[0, 8, 4, 12]] = [1e8, 1.0, 1.0, 1.0]
    x, center = gaps[None], np.zeros((1, 16))
    # Part 0 is 1e16 + 1 = 1e16, part 4 is 1 + 1 = 2; their sum is exact.
    assert direct_distances(x, center)[0, 0] == 1e16 + 2.0
    assert _plain_distances(x, center, (), ())[0][0] == 1e16 + 2.0


def test_rows_that_are_no_floats_are_refused_when_compiled():
    with pytest.raises(TypeError, match="int64"):
        nearest(np.zeros((2, 3), np.int64), np.zeros((1, 3)))


def outcome() -> dict[str, list[str]]:
    """Digests of labels, distances, and sums of some problems, by problem."""

    def digest(a: np.ndarray) -> str:
        return hashlib.sha1(np.ascontiguousarray(a).tobytes()).hexdigest()

    found = {}
    for dtype in ("float32", "float64"):
        for k in (1, 5, 16, 21, 40):
            for p in (1, 8, 19, 126):
                rng = np.random.default_rng([k, p])
                centers = rng.standard_normal((k, p))
                x = (centers[rng.integers(k, size=300)] + rng.standard_normal((300, p))).astype(
                    dtype
                )
                weight, features = rng.random(300), rng.random(p)
                labels, distances = nearest(x, centers, feature_weights=features)
                stats = accumulate(x, centers, weight=weight)
                parts = (labels, distances, stats.hi, stats.lo, direct_distances(x[:9], centers))
                x[rng.random(x.shape) < 0.3] = np.nan
                stats = accumulate(x, centers, weight=weight, missing=True)
                parts = (*parts, *nearest(x, centers, missing=True), stats.hi, stats.lo)
                found[f"{dtype} k={k} p={p}"] = [digest(part) for part in parts]
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names x86 processors")
@pytest.mark.parametrize(
    "environment",
    [
        {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": HASWELL},
        {"NUMBA_CPU_NAME": "generic"},
    ],
    ids=["AVX2", "no AVX"],
)
def test_other_processors_give_the_same_bits(environment, tmp_path):
    code = (
        "import json, sys; sys.path[:0] = sys.argv[1:]\n"
        "from test_nearest_implementations import outcome\n"
        "print(json.dumps(outcome()))"
    )
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(ROOT / "tests")],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == outcome()


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 150),
    k=st.integers(1, 45),
    p=st.integers(1, 40),
    dtype=st.sampled_from([np.float32, np.float64]),
    integers=st.booleans(),
    weighted=st.booleans(),
    feature_weighted=st.booleans(),
    share=st.sampled_from([0.1, 0.5, 0.95]),
)
def test_scan_of_observed_values_equals_the_plain_one(
    seed, n, k, p, dtype, integers, weighted, feature_weighted, share
):
    rng = np.random.default_rng(seed)
    draw = (lambda s: rng.integers(-3, 4, s)) if integers else rng.standard_normal
    x = np.asarray(draw((n, p)), dtype=dtype)
    x[rng.random((n, p)) < share] = np.nan
    centers = np.asarray(draw((k, p)), dtype=np.float64)
    weights = rng.integers(0, 4, n) / 2.0 if weighted else _NO_WEIGHTS
    features = rng.integers(0, 3, p) / 4.0 if feature_weighted else None
    ends = np.unique(np.append(rng.integers(1, n + 1, 3), n))
    sweeper, width = partial(_tiles.sweeper, observed=True), 2 * p + 2
    found = _sweep(sweeper, x, centers, weights, features, ends, width)
    plain = _plain_sweep(x, centers, weights, features, ends, width, observed=True)
    np.testing.assert_array_equal(found[0], plain[0])
    np.testing.assert_array_equal(found[1], plain[1])
    # All but the values' sums to the last bit: weights are halves.
    np.testing.assert_array_equal(found[2][:, p:], plain[2][:, p:])
    np.testing.assert_allclose(found[2][:, :p], plain[2][:, :p], rtol=0, atol=1e-13 * (n + 1))
    complete = ~np.isnan(x).any(axis=1)
    if complete.any():
        some = np.ascontiguousarray(x[complete])
        ends = np.array([len(some)])
        whole = _sweep(_tiles.sweeper, some, centers, _NO_WEIGHTS, features, ends)
        np.testing.assert_array_equal(found[0][complete], whole[0])
        np.testing.assert_array_equal(found[1][complete], whole[1])


@given(
    seed=st.integers(0, 2**32 - 1),
    p=st.integers(1, 70),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_distances_over_what_is_observed_equal_the_plain_ones(seed, p, dtype):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((3, p)) * 10.0 ** rng.integers(-20, 20)).astype(dtype)
    x[rng.random((3, p)) < 0.3] = np.nan
    centers, weights = rng.standard_normal((2, p)), rng.random(p)
    centers[rng.random((2, p)) < 0.2] = np.nan
    found = direct_distances(x, centers, weights, missing=True)
    np.testing.assert_array_equal(found, _plain_distances(x, centers, weights, (True,)))


@cache
def _moments_of(add_moments):
    return njit(lambda x, order, facts: add_moments(x, order, 3, 57, facts, 1, 60))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("p", [1, 8, 21])
def test_moments_equal_the_plain_ones_to_the_last_bit(p, dtype):
    rng = np.random.default_rng(p)
    x, order = rng.normal(size=(60, p)).astype(dtype), rng.permutation(60)
    facts = np.zeros((2, 5 * 24))
    facts[:, 72:96], facts[:, 96:] = np.inf, -np.inf
    found = [facts.copy(), facts.copy()]
    for own, module in zip(found, (plain_kernels, row_loops), strict=True):
        _moments_of(module.add_moments)(x, order, own)
    parts = [own.reshape(2, 5, 24)[..., :p] for own in found]
    np.testing.assert_array_equal(*parts)
    assert np.isinf(parts[0][0, 3:]).all()


def test_the_plain_and_the_emitted_sweeps_have_the_same_names():
    for name in plain_kernels.__all__:
        assert any(hasattr(m, name) for m in (row_loops, _tiles)), name
