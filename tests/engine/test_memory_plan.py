"""Blocks that do not fit the workers are refused before the first of them is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster

import daskclust
from daskclust.engine.graphs import graph_behind
from daskclust.engine.memory import (
    MemoryPlan,
    Room,
    check_blocks,
    free_memory,
    largest_read,
    measure,
)
from daskclust.exceptions import MemoryPlanError

MIB = 2**20


def room(limit: int, used: int, n_threads: int = 1, strict: bool = True) -> Room:
    return Room("worker", n_threads, limit * MIB, used * MIB, strict=strict)


@contextmanager
def small_worker(memory: str) -> Iterator[Client]:
    """Start one worker of one thread; data are read again in every pass."""
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit=memory, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
        dask.config.set({"daskclust.persist": False}),
    ):
        yield client


def test_what_fits_is_not_refused():
    check_blocks([room(600, 300)], MIB, 16, 8, 8, 4)  # 2 blocks of 128 of 270 MiB


@pytest.mark.parametrize(
    ("case", "free"), [(room(600, 400), False), (room(600, 400, strict=False), True)]
)
def test_what_a_nanny_would_end_is_refused_with_what_fits(case, free):
    if free:
        check_blocks([case], MIB, 16, 8, 8, 4)
        return
    with pytest.raises(MemoryPlanError, match=r"rechunk\(\{0: \d+\}\).*at least 704 MiB") as error:
        check_blocks([case], MIB, 16, 8, 8, 4)
    rows = int(str(error.value).split("{0: ")[1].split("}")[0])
    check_blocks([case], rows, 16, 8, 8, 4)
    with pytest.raises(MemoryPlanError):
        check_blocks([case], rows + 1, 16, 8, 8, 4)
    check_blocks([room(704, 400)], MIB, 16, 8, 8, 4)


def test_a_second_precision_takes_a_block_more():
    # Stored as int32 of 4 bytes, worked on in 8: 4 + 2 x 8 bytes a value.
    with pytest.raises(MemoryPlanError):
        check_blocks([room(600, 300)], MIB, 16, 4, 8, 4)
    check_blocks([room(700, 300)], MIB, 16, 4, 8, 4)


def test_threads_share_a_worker():
    with pytest.raises(MemoryPlanError, match="fewer threads a worker"):
        check_blocks([room(600, 300, n_threads=4)], MIB // 2, 16, 8, 8, 8)
    # Two tasks keep two threads busy, not four.
    check_blocks([room(600, 300, n_threads=4)], MIB // 2, 16, 8, 8, 2)


def test_a_worker_with_too_little_memory_refuses_the_first_pass():
    data = da.random.default_rng(0).random((2_000_000, 16), chunks=(1_000_000, 16))
    with small_worker("500MiB") as client:
        before = list(client.nthreads())
        with pytest.raises(MemoryPlanError, match=r"rechunk.*memory_limit of at least \d+ MiB"):
            daskclust.KMeans(3, random_state=0).fit(data)
        assert list(client.nthreads()) == before
        fits = da.random.default_rng(0).random((400_000, 16), chunks=(50_000, 16))
        model = daskclust.KMeans(3, init="random", random_state=0, max_iter=1, tol=1e9).fit(fits)
        assert model.cluster_centers_.shape == (3, 16)


def test_a_worker_without_a_limit_has_what_the_machine_has():
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit=0, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        rooms = measure(client, client.nthreads())
    assert free_memory(rooms) > 100 * MIB
    assert rooms[0].used > 50 * MIB
    assert np.isfinite(rooms[0].limit)


def test_what_passes_carry_along_is_counted():
    plan = MemoryPlan([room(1000, 300)], n_groups=2, block=50 * MIB)
    plan.check("lloyd", 190 * MIB, 8 * MIB)  # 50 + 3 x 190 + 8 of 650 MiB
    with pytest.raises(MemoryPlanError, match=r"pass 'lloyd' does not fit.*at least \d+ MiB"):
        plan.check("lloyd", 200 * MIB, 8 * MIB)
    # Many groups are merged in a tree, so many at a time.
    many = MemoryPlan([room(1000, 300)], n_groups=20)
    many.check("lloyd", 70 * MIB, 8 * MIB)
    with pytest.raises(MemoryPlanError):
        many.check("lloyd", 75 * MIB, 8 * MIB)
    MemoryPlan([room(1000, 300, strict=False)], 20).check("lloyd", 900 * MIB, 0)


def test_a_read_larger_than_its_blocks_is_counted():
    # Blocks of 4 MiB that are cut out of an array of 400.
    check_blocks([room(1000, 300)], MIB // 16, 8, 8, 8, 2, read=400 * MIB)
    with pytest.raises(MemoryPlanError, match=r"read arrays of 800.00 MiB.*chunks in the store"):
        check_blocks([room(1000, 300)], MIB // 16, 8, 8, 8, 2, read=800 * MIB)


@pytest.mark.parametrize("rechunked", [False, True])
def test_the_chunks_of_a_store_are_seen_behind_smaller_blocks(rechunked, tmp_path):
    array = zarr.create_array(tmp_path / "x.zarr", shape=(5000, 4), chunks=(1000, 4), dtype="f8")
    if rechunked:
        data = da.from_array(array, chunks=(1000, 4)).rechunk({0: 100})
    else:
        data = da.from_array(array, chunks=(100, 4))
    assert largest_read([graph_behind(data + 1.0).graph]) == 1000 * 4 * 8
    cube = daskclust.open_cube(
        zarr.create_array(tmp_path / "c.zarr", shape=(20, 20, 3), chunks=(10, 20, 3), dtype="i2"),
        dims=("y", "x", "band"),
    )
    assert largest_read([graph_behind(cube.samples).graph]) == 10 * 20 * 3 * 2


def test_a_pass_of_large_partials_is_refused_before_it_kills():
    """12 000 clusters in 1500 dimensions: sums of 290 MB in pairs, of blocks of 2 MB."""
    data = da.random.default_rng(0).random((12_000, 1500), chunks=(200, 1500), dtype="float32")
    centers = np.random.default_rng(1).random((12_000, 1500))
    with small_worker("900MiB") as client:
        before = list(client.nthreads())
        with pytest.raises(MemoryPlanError, match=r"pass .* does not fit worker"):
            daskclust.KMeans(12_000, init=centers, max_iter=1).fit(data)
        assert list(client.nthreads()) == before
