"""What a graph needs of an image does not depend on its blocks."""

from __future__ import annotations

import dask
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from daskclust import Cube, open_cube
from daskclust.core.reduction.connectivity import Connectivity
from daskclust.scenes.pixels import TILE
from daskclust.testing import CountingScheduler

HEIGHT, WIDTH = 7, 9


def _same(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


def image(seed: int) -> np.ndarray:
    found: np.ndarray = np.random.default_rng(seed).integers(
        0, 4, (HEIGHT, WIDTH, 2), dtype=np.int16
    )
    return found


def opened(values: np.ndarray, chunks: tuple[int, int], mask: np.ndarray | None = None) -> Cube:
    return open_cube(values, dims=("y", "x", "band"), chunks=chunks, nodata=0, mask=mask)


def nearest_map(values: np.ndarray, nodes: np.ndarray, valid: np.ndarray) -> np.ndarray:
    gaps = ((values[:, :, None].astype(float) - nodes) ** 2).sum(axis=3)
    return np.where(valid, gaps.argmin(axis=2), -1)


def dense_counts(nodes: np.ndarray, k: int) -> np.ndarray:
    """Count adjacent pixels through an n x n matrix of who is beside whom."""
    places = np.argwhere(nodes >= 0)
    beside = np.abs(places[:, None] - places).sum(axis=2) == 1
    one_hot = np.eye(k)[nodes[nodes >= 0]]
    found: np.ndarray = one_hot.T @ beside @ one_hot
    return found


@given(st.integers(0, 10**6), st.integers(1, HEIGHT), st.integers(1, WIDTH), st.booleans())
def test_adjacent_pixels_are_counted_across_blocks_and_around_masks(
    seed: int, height: int, width: int, masked: bool
) -> None:
    values, rng = image(seed), np.random.default_rng(seed)
    mask = rng.random((HEIGHT, WIDTH)) < 0.3 if masked else None
    valid = (values != 0).all(axis=2) & (True if mask is None else ~mask)
    nodes = rng.normal(size=(5, 2)) + 2
    connectivity = Connectivity((_same, _same), (nodes, nodes[:3]), 2)
    with dask.config.set(scheduler="synchronous"):
        cube = opened(values, (height, width), mask)
        counts, adjacent = cube.count_neighbors(connectivity)
    for own, part in ((nodes, 0), (nodes[:3], 1)):
        expected = dense_counts(nearest_map(values, own, valid), len(own))
        # Pairs in both orders: a pair of the same node counts twice in either.
        assert_array_equal(adjacent[part].matrix(len(own)), expected)
        assert counts[part].counts.sum() == valid.sum()


@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(1, 30))
def test_drawn_tiles_are_counted_for_any_blocks(seed: int, height: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 4, (20, 30, 1), dtype=np.int16)
    weight = rng.integers(0, 2, values.size).astype(np.float64)
    nodes = np.array([[1.0], [2.0], [3.0]])
    connectivity = Connectivity((_same,), (nodes,), 2, fraction=0.5, seed=seed)
    # Three lines of four tiles, the last ones incomplete.
    tiles = connectivity.drawn(0, 12).reshape(3, 4)
    drawn = np.kron(tiles, np.ones((TILE, TILE), bool))[:20, :30]
    with dask.config.set(scheduler="synchronous"):
        cube = opened(values, (height, width))
        ((near,), (adjacent,)) = cube.count_neighbors(
            connectivity, cube.row_weights(weight.reshape(20, 30))
        )
    counted = drawn & (weight.reshape(20, 30) > 0)
    expected = dense_counts(nearest_map(values, nodes, counted), 3)
    assert_array_equal(adjacent.matrix(3), expected)
    assert near.counts.sum() == counted.sum()


@given(st.integers(0, 10**6), st.integers(1, HEIGHT), st.integers(1, WIDTH))
def test_pixels_come_by_their_place(seed: int, height: int, width: int) -> None:
    values, rng = image(seed), np.random.default_rng(seed)
    places = rng.permutation(HEIGHT * WIDTH)[:20]
    with dask.config.set(scheduler="synchronous"):
        kept, found = opened(values, (height, width)).take_pixels(places)
    flat = values.reshape(-1, 2)[places]
    assert_array_equal(kept, np.flatnonzero((flat != 0).all(axis=1)))
    assert_array_equal(found, flat[kept])


def test_pixels_of_no_weight_are_absent() -> None:
    values = np.ones((1, 3, 1), dtype=np.int16)
    cube = opened(values, (1, 2))
    connectivity = Connectivity((_same,), (np.array([[1.0], [5.0]]),), 2)
    with dask.config.set(scheduler="synchronous"):
        counts, adjacent = cube.count_neighbors(connectivity, np.array([1.0, 0.0, 1.0]))
    assert counts[0].counts.sum() == 2
    assert not len(adjacent[0].keys)


def test_counting_is_one_pass() -> None:
    values = 1 + image(0)
    connectivity = Connectivity((_same,), (np.array([[1.0, 1], [3, 3]]),), 2)
    cube = open_cube(values, dims=("y", "x", "band"), chunks=(2, 2), nodata=None)
    scheduler = CountingScheduler()
    with dask.config.set(scheduler=scheduler):
        cube.count_neighbors(connectivity)
    assert scheduler.calls == 1


@pytest.mark.slow
def test_on_a_cluster_of_processes(client: object) -> None:
    values = image(3)
    connectivity = Connectivity((_same,), (np.array([[1.0, 1], [3, 3]]),), 2)
    one, beside = opened(values, (3, 4)).count_neighbors(connectivity)
    with dask.config.set(scheduler="synchronous"):
        other, expected = opened(values, (7, 9)).count_neighbors(connectivity)
    assert_array_equal(beside[0].matrix(2), expected[0].matrix(2))
    assert_array_equal(one[0].matrix(2), other[0].matrix(2))
