"""Random numbers and random rows that depend on row numbers, and not on chunks.

The draw of global row i in round r comes from a Philox stream with the key (seed, r), advanced to
row i.  Rows without clusters (permuted columns, uniform boxes) are functions of (seed, i), too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator, Philox, SeedSequence
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.kernels.compiling import compiled

# A counter step of Philox yields four 64-bit numbers, each of which makes one double.
_STEP = 4


def row_uniforms(seed: int, round_: int, start: int, count: int) -> Floats:
    """Return uniform draws in (0, 1] of rows ``start .. start + count - 1``."""
    key = SeedSequence([seed, round_]).generate_state(2, np.uint64)
    bits = Philox(key=key)
    bits.advance(start // _STEP)
    skipped = start % _STEP
    drawn = Generator(bits).random(count + skipped)[skipped:]
    return np.subtract(1.0, drawn, out=drawn)


def draw_numbers(total: int, count: int, seed: int) -> Ints:
    """Draw distinct ascending numbers from [0, total); all of them if there are at most `count`."""
    if count >= total:
        return np.arange(total, dtype=np.int64)
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(total, count, replace=False, shuffle=False)).astype(np.int64)


@compiled()
def _race(uniforms: Floats, mass: Floats, keys: Floats) -> None:
    for i in range(keys.size):
        if mass[i] > 0.0:
            keys[i] = -np.log(uniforms[i]) / mass[i]
        else:
            keys[i] = np.inf


def race_keys(uniforms: Floats, mass: Floats) -> Floats:
    """Return arrival times of rows in an exponential race (Efraimidis & Spirakis).

    The m smallest keys are a sample of m rows without replacement, with probability proportional to
    ``mass``.  No total is needed in advance.  Keys of mass 0 are infinite.
    """
    keys = np.empty(len(mass))
    _race(uniforms, mass, keys)
    return keys


#: Number of keys of a group, whose minimum is compared first if few keys are wanted.
_GROUP = 16


def smallest(keys: Floats, count: int) -> NDArray[np.intp]:
    """Return positions of at most ``count`` smallest finite keys, in order, ties by position."""
    if count <= 0:
        return np.empty(0, np.intp)
    if count < len(keys):
        least = keys
        if _GROUP * count < len(keys):
            # At least ``count`` groups, and so as many keys, are at or below the bound.
            groups = keys[: len(keys) // _GROUP * _GROUP].reshape(_GROUP, -1).min(axis=0)
            least = keys[~(keys > np.partition(groups, count - 1)[count - 1])]
        # All keys up to the limit are candidates, so that ties at the limit are decided below.
        limit = np.partition(least, count - 1)[count - 1]
        candidates = np.flatnonzero((keys <= limit) & (keys < np.inf))
    else:
        candidates = np.flatnonzero(keys < np.inf)
    order = np.argsort(keys[candidates], kind="stable")
    return candidates[order[:count]]


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)


def mixed(z):
    """Scramble 64 bits (the finalizer of SplitMix64); also of each number of an array."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


_mix = compiled()(mixed)


@compiled()
def _below(bits, bound):
    """Return a number in [0, bound), bound < 2**32, from 64 random bits."""
    return ((bits >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32)


@compiled()
def _shuffle_columns(pool, key, out):
    """Permute each row of ``pool``, a column of the data, independently (Fisher & Yates)."""
    p, m = pool.shape
    for j in range(p):
        state = _mix(key + np.uint64(j) * _GOLDEN)
        for i in range(m):
            out[j, i] = pool[j, i]
        for i in range(m - 1, 0, -1):
            state += _GOLDEN
            other = np.intp(_below(_mix(state), i + 1))
            kept = out[j, i]
            out[j, i] = out[j, other]
            out[j, other] = kept


@compiled()
def _deal(shuffled, key, start, out):
    """Fill rows from ``start`` on: every m rows contain all values of each column once."""
    p, m = shuffled.shape
    n = out.shape[0]
    done = 0
    while done < n:
        turn = (start + done) // m
        first = (start + done) - turn * m
        size = min(m - first, n - done)
        for low in range(0, size, 64):
            high = min(low + 64, size)
            for j in range(p):
                at = first + low
                if turn:
                    # In each turn, columns are shifted relative to each other.
                    word = _mix(key ^ _mix(np.uint64(turn) * np.uint64(p) + np.uint64(j)))
                    at += np.intp(_below(word, m))
                if at >= m:
                    at -= m
                for t in range(low, high):
                    out[done + t, j] = shuffled[j, at]
                    at += 1
                    if at == m:
                        at = 0
        done += size


def _key(seed: int, number: int) -> np.uint64:
    return np.uint64(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0])


def permuted_rows(pool: Array, seed: int, number: int, start: int, count: int) -> Array:
    """Return rows ``start .. start + count - 1`` of data with independently permuted columns.

    ``pool`` (p, m) contains m rows of the data, transposed.  Each run of m rows contains a random
    permutation of each column, shifted relative to the others.  Cost O(p (m + count)).
    """
    out = np.empty((count, len(pool)), pool.dtype)
    shuffled = np.empty_like(pool)
    key = _key(seed, number)
    _shuffle_columns(pool, key, shuffled)
    _deal(shuffled, key, start, out)
    return out


@compiled()
def _fill_uniform(low, width, key, start, out):
    n, p = out.shape
    for i in range(n):
        counter = np.uint64(start + i) * np.uint64(p)
        for j in range(p):
            word = _mix(key + (counter + np.uint64(j) + _ONE) * _GOLDEN)
            share = np.float64(word >> np.uint64(11)) * (1.0 / 9007199254740992.0)
            out[i, j] = low[j] + width[j] * share


@compiled()
def _draw(starts, sizes, index, limits, key, places, draws):
    count = at = 0
    for run in range(starts.size):
        state = key + np.uint64(starts[run]) * _GOLDEN
        for _ in range(sizes[run]):
            state += _GOLDEN
            share = np.float64(_mix(state) >> np.uint64(11)) * (1.0 / 9007199254740992.0)
            if share <= limits[index[at]]:
                places[count], draws[count] = at, share
                count += 1
            at += 1
    return count


def low_draws(
    seed: int, runs: Sequence[tuple[int, int]], index: Ints, limits: Floats
) -> tuple[Ints, Floats]:
    """Return positions and draws of the rows whose uniform draw is at most ``limits[index]``.

    Faster than :func:`row_uniforms` if there are few, because other draws are not stored.
    """
    starts, sizes = np.array(runs, np.int64).reshape(-1, 2).T
    places, draws = np.empty(len(index), np.int64), np.empty(len(index))
    count = _draw(starts, sizes, index, limits, _key(seed, 0), places, draws)
    return places[:count].copy(), draws[:count].copy()


def uniform_rows(
    low: Floats, high: Floats, dtype: Any, seed: int, number: int, start: int, count: int
) -> Array:
    out = np.empty((count, len(low)), dtype)
    _fill_uniform(low, high - low, _key(seed, number), start, out)
    return out
