"""The hash of rows: hand-computed, by brute force, and for different data."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from daskclust.core.kernels.missing_values import column_keys, row_hash
from daskclust.testing.strategies import row_chunks

ALL = 2**64 - 1
#: Of [[1, 2], [3, 4]].
FROZEN = 4337480223913207196


def mixed(word: int) -> int:
    for _ in range(2):
        word = (word ^ (word >> 32)) * 0xD6E8FEB86659FD93 & ALL
    return word ^ (word >> 32)


def key(column: int) -> tuple[int, int]:
    word = mixed((column + 1) * 0x9E3779B97F4A7C15 & ALL)
    return word & 0xFFFFFFFF, word >> 32


def term(value: float, column: int) -> int:
    if value == 0:
        word = 0
    elif value != value:
        word = 0x7FF8000000000000
    else:
        (word,) = struct.unpack("<Q", struct.pack("<d", value))
    low, high = key(column)
    return ((word & 0xFFFFFFFF) + low) % 2**32 * (((word >> 32) + high) % 2**32)


def by_brute_force(x: np.ndarray, weight: np.ndarray | None, first: int = 0) -> int:
    total = 0
    p = x.shape[1]
    for i, row in enumerate(x.astype(float).tolist()):
        h = term(1.0 if weight is None else float(weight[i]), p)
        h = sum((term(value, j) for j, value in enumerate(row)), h) & ALL
        number = (first + i) * 0x9E3779B97F4A7C15 + x.dtype.itemsize & ALL
        total += mixed(mixed(number) ^ h)
    return total & ALL


def test_a_hash_worked_out_by_hand():
    # Row 0 of zeros without columns: the weight 1.0 alone, 0x3FF0000000000000, in column 0.
    low, high = key(0)
    h = low * ((0x3FF00000 + high) % 2**32)
    assert row_hash(np.empty((1, 0))) == mixed(mixed(8) ^ h)
    # So that a change of the hash does not go unnoticed: checkpoints would be refused.
    assert int(row_hash(np.array([[1.0, 2.0], [3.0, 4.0]]))) == FROZEN


def test_keys_do_not_depend_on_the_number_of_columns():
    np.testing.assert_array_equal(column_keys(3), column_keys(7)[:, :3])
    assert column_keys(4).T.tolist() == [list(key(j)) for j in range(4)]
    assert len(np.unique(column_keys(1000))) == 2000


values = st.one_of(
    st.floats(), st.sampled_from([0.0, -0.0, np.nan, np.inf, 5e-324]), st.integers(-3, 3).map(float)
)
matrices = hnp.arrays(
    np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=values
)


@given(x=matrices, weighted=st.booleans(), first=st.integers(0, 2**40), data=st.data())
def test_it_is_that_of_brute_force_for_any_chunks(x, weighted, first, data):
    weight = np.arange(len(x)) / 4.0 if weighted else None
    lengths = data.draw(row_chunks(len(x)))
    total, at = 0, 0
    for size in lengths:
        part = slice(at, at + size)
        some = None if weight is None else weight[part]
        total += int(row_hash(x[part], some, ((first + at, size),)))
        at += size
    want = by_brute_force(x, weight, first)
    assert total & ALL == want
    runs = tuple(
        (first + int(s), n) for s, n in zip(np.cumsum((0, *lengths)), lengths, strict=False)
    )
    assert row_hash(x, weight, runs) == want


@given(x=matrices)
def test_float32_values_count_as_they_are(x):
    with np.errstate(over="ignore"):
        x = x.astype(np.float32)
    assert row_hash(x) == by_brute_force(x, None)


def test_signs_of_zero_bits_of_nan_and_weights_of_one_do_not_count():
    x = np.array([[0.0, np.nan], [1.0, -0.0]])
    (odd,) = np.array([0xFFF8000000000123], np.uint64).view(np.float64)
    other = np.array([[-0.0, odd], [1.0, 0.0]])
    assert row_hash(x) == row_hash(other) == row_hash(x, np.ones(2))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[::-1],
        lambda x: x[:, ::-1],
        lambda x: np.column_stack([x[::-1, 0], x[:, 1:]]),
        lambda x: -x,
        lambda x: x * np.where(np.arange(x.shape[1]) < 2, -1.0, 1.0),
        lambda x: np.concatenate([x[1:], x[:1]]),
        lambda x: np.where(x == x[7, 1], np.nextafter(x[7, 1], 9), x),
        lambda x: np.where(x == x[7, 1], np.nan, x),
    ],
    ids=["reversed", "columns", "one column", "signs", "two signs", "rolled", "one bit", "nan"],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_other_data_have_another_hash(change, dtype):
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32).astype(np.float64)
    one, other = x.astype(dtype), np.ascontiguousarray(change(x), dtype=dtype)
    if not np.array_equal(one, other, equal_nan=True):
        assert row_hash(one) != row_hash(other)


@given(data=st.data())
def test_swapping_any_two_unequal_values_changes_it(data):
    x = data.draw(hnp.arrays(np.int8, (4, 3), elements=st.integers(0, 2))).astype(float)
    i, j = (data.draw(st.integers(0, 11)) for _ in range(2))
    y = x.copy().ravel()
    y[[i, j]] = y[[j, i]]
    same = np.array_equal(x.ravel(), y)
    assert (row_hash(x) == row_hash(y.reshape(4, 3))) == same


def test_no_two_of_many_small_changes_collide():
    x = np.zeros((50, 20))
    seen = {int(row_hash(x))}
    for i in range(50):
        for j in range(20):
            for value in (1.0, -1.0, 2.0, np.nan):
                y = x.copy()
                y[i, j] = value
                seen.add(int(row_hash(y)))
    assert len(seen) == 1 + 50 * 20 * 4
