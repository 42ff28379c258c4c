"""Blocks that do not fit the workers are refused before the first of them is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster, wait
from helpers import spawned
from scipy import sparse

import daskclust
from daskclust.core.engine.graph_partition import graph_behind
from daskclust.core.engine.memory import (
    MemoryPlan,
    WorkerMemory,
    check_blocks,
    free_memory,
    largest_read,
    measure,
)
from daskclust.core.engine.opening import _row_bytes
from daskclust.core.engine.private_api import worker_infos
from daskclust.exceptions import MemoryPlanError

MIB = 2**20


def memory(limit: int, used: int, n_threads: int = 1, strict: bool = True) -> WorkerMemory:
    return WorkerMemory("worker", n_threads, limit * MIB, used * MIB, strict=strict)


def test_what_fits_is_not_refused():
    check_blocks([memory(600, 300)], MIB, 128, 0, 4)  # 2 blocks of 128 of 270 MiB


@pytest.mark.parametrize(
    ("case", "free"), [(memory(600, 400), False), (memory(600, 400, strict=False), True)]
)
def test_what_a_nanny_would_end_is_refused_with_what_fits(case, free):
    if free:
        check_blocks([case], MIB, 128, 0, 4)
        return
    with pytest.raises(MemoryPlanError, match=r"rechunk\(\{0: \d+\}\).*at least 704 MiB") as error:
        check_blocks([case], MIB, 128, 0, 4)
    rows = int(str(error.value).split("{0: ")[1].split("}")[0])
    check_blocks([case], rows, 128, 0, 4)
    with pytest.raises(MemoryPlanError):
        check_blocks([case], rows + 1, 128, 0, 4)
    check_blocks([memory(704, 400)], MIB, 128, 0, 4)


def test_a_second_precision_takes_a_tile_more():
    # Stored in 4 bytes, worked on in 8 a tile at a time: 2 x 4 bytes a value, and the tile.
    check_blocks([memory(460, 300)], MIB, 64, 0, 4)  # 128 of 137 MiB
    with pytest.raises(MemoryPlanError):
        check_blocks([memory(460, 300)], MIB, 64, 16 * MIB, 4)
    check_blocks([memory(480, 300)], MIB, 64, 16 * MIB, 4)


def test_an_advised_limit_is_above_the_pause():
    with pytest.raises(MemoryPlanError, match=r"at least 608 MiB"):
        check_blocks([memory(500, 482)], MIB // 16, 64, 0, 4)


def test_the_end_of_a_worker_is_where_its_configuration_says():
    later = WorkerMemory("worker", 1, 600 * MIB, 330 * MIB, terminate=0.98)
    check_blocks([later], MIB, 128, 0, 4)  # 256 of 258 MiB
    with pytest.raises(MemoryPlanError, match="it is killed at 95%"):
        check_blocks([memory(600, 330)], MIB, 128, 0, 4)


def test_threads_share_a_worker():
    with pytest.raises(MemoryPlanError, match="fewer threads per worker"):
        check_blocks([memory(600, 300, n_threads=4)], MIB // 2, 128, 0, 8)
    # Two tasks keep two threads busy, not four.
    check_blocks([memory(600, 300, n_threads=4)], MIB // 2, 128, 0, 2)


@contextmanager
def one_worker(limit: str | int, **shares: float | bool) -> Iterator[Client]:
    """Start a worker under a nanny, with a configuration of its own."""
    settings = {f"distributed.worker.memory.{name}": share for name, share in shares.items()}
    settings |= {"daskclust.persist": False, "daskclust.worker-timeout": "90s"}
    with (
        spawned(),  # imports of a worker are counted
        dask.config.set(settings),
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit=limit, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def rows(n: int, chunk: int) -> da.Array:
    return da.random.default_rng(0).random((n, 16), chunks=(chunk, 16))


def quick() -> daskclust.KMeans:
    return daskclust.KMeans(3, init="random", random_state=0, max_iter=1, tol=1e9)


@pytest.mark.system
def test_a_worker_with_too_little_memory_refuses_the_first_pass():
    with one_worker("600MiB") as client:
        before = list(client.nthreads())
        _, (first,) = measure(client)
        with pytest.raises(MemoryPlanError, match=r"rechunk.*memory_limit of at least \d+ MiB"):
            quick().fit(rows(2_000_000, 1_000_000))
        assert list(client.nthreads()) == before
        assert quick().fit(rows(400_000, 50_000)).cluster_centers_.shape == (3, 16)
        # Kernels are counted before they are loaded, and not once more after that.
        _, (later,) = measure(client)
        assert worker_infos(client)[before[0]].used < 1.05 * first.used
        assert later.used < 1.1 * first.used


def sparse_rows(n: int, chunk: int, n_columns: int = 50_000, stored: int = 100) -> da.Array:
    """Rows that store 1200 bytes each; they would take 400 000 bytes if they were dense."""

    def block(numbers: np.ndarray) -> sparse.csr_array:
        rng = np.random.default_rng(int(numbers[0]))
        step = n_columns // stored
        columns = np.arange(stored, dtype=np.int32) * np.int32(step)
        columns = columns + (numbers % step).astype(np.int32)[:, None]
        ends = np.arange(0, len(numbers) * stored + 1, stored, np.int32)
        values = rng.random(len(numbers) * stored)
        return sparse.csr_array((values, columns.ravel(), ends), shape=(len(numbers), n_columns))

    blocks = da.arange(n, chunks=chunk).map_blocks(
        block,
        new_axis=1,
        chunks=((chunk,) * (n // chunk), (n_columns,)),
        meta=sparse.csr_array((0, 0)),
    )
    assert len(blocks.chunks[0]) == n // chunk
    return blocks


def test_the_stored_values_of_sparse_rows_are_measured():
    blocks = sparse_rows(1000, 100)
    lengths = blocks.chunks[0]
    measured = _row_bytes(blocks, lengths, graph_behind(blocks))
    assert measured == 1204.04  # a block has 101 ends of rows
    kept = blocks.persist(scheduler="sync")
    behind = graph_behind(kept)
    assert len(behind.values) == 10
    assert _row_bytes(kept, lengths, behind) == measured
    dense = da.zeros((1000, 7), chunks=(100, 7))
    assert _row_bytes(dense, (100,) * 10, graph_behind(dense)) == 56


@pytest.mark.system
def test_sparse_blocks_and_wide_centers_are_refused_if_they_do_not_fit():
    with one_worker("650MiB") as client:
        before = list(client.nthreads())
        with pytest.raises(MemoryPlanError, match=r"100000 rows of 1204 bytes.*at least \d+ MiB"):
            quick().fit(sparse_rows(200_000, 100_000))
        with pytest.raises(MemoryPlanError, match=r"pass .* does not fit worker"):
            daskclust.KMeans(200, init=np.eye(200, 50_000), max_iter=1).fit(sparse_rows(4000, 500))
        assert list(client.nthreads()) == before
        assert quick().fit(sparse_rows(4000, 500)).cluster_centers_.shape == (3, 50_000)


@pytest.mark.slow  # starts two workers
def test_a_limit_that_the_process_alone_fills_is_refused_and_the_advice_fits():
    with (
        one_worker("400MiB") as client,
        pytest.raises(MemoryPlanError, match=r"at least \d+ MiB") as error,
    ):
        quick().fit(rows(8_000, 1_000))
    advised = int(re.search(r"at least (\d+) MiB", str(error.value))[1])
    # Processes do not all take the same.
    with one_worker((advised + 16) * MIB) as client:
        quick().fit(rows(8_000, 1_000))
        assert not any(info.paused for info in worker_infos(client).values())


@pytest.mark.system
def test_the_configuration_of_the_workers_is_read():
    with one_worker("900MiB", pause=False, terminate=0.9, target=False, spill=False) as client:
        kept = client.persist(da.ones(10 * MIB, chunks=MIB))  # 80 MiB
        wait(kept)
        _, (found,) = measure(client)
        assert found.strict
        assert (found.pause, found.terminate) == (0.0, 0.9)
        assert found.results == 0
        assert found.used > 80 * MIB + 2**27
        del kept


@pytest.mark.slow
def test_a_worker_without_a_limit_has_what_the_machine_has():
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit=0, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        _, workers = measure(client)
    assert free_memory(workers) > 100 * MIB
    assert workers[0].used > 50 * MIB
    assert np.isfinite(workers[0].limit)


def test_what_passes_carry_along_is_counted():
    plan = MemoryPlan([memory(1000, 300)], n_groups=2, block=50 * MIB)
    plan.check("lloyd", 190 * MIB, 8 * MIB)  # 50 + 3 x 190 + 8 of 650 MiB
    with pytest.raises(MemoryPlanError, match=r"pass 'lloyd' does not fit.*at least \d+ MiB"):
        plan.check("lloyd", 200 * MIB, 8 * MIB)
    # Many groups are merged in a tree, a few at a time.
    many = MemoryPlan([memory(1000, 300)], n_groups=20)
    many.check("lloyd", 70 * MIB, 8 * MIB)
    with pytest.raises(MemoryPlanError):
        many.check("lloyd", 75 * MIB, 8 * MIB)
    MemoryPlan([memory(1000, 300, strict=False)], 20).check("lloyd", 900 * MIB, 0)


def test_a_read_larger_than_its_blocks_is_counted():
    # Blocks of 4 MiB that are cut out of an array of 400.
    check_blocks([memory(1000, 300)], MIB // 16, 64, 8, 2, read=400 * MIB)
    with pytest.raises(MemoryPlanError, match=r"read arrays of 800.00 MiB.*chunks in the store"):
        check_blocks([memory(1000, 300)], MIB // 16, 64, 8, 2, read=800 * MIB)


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


@pytest.mark.slow  # without a cluster, the test before
def test_a_pass_of_large_partials_is_refused_before_it_kills():
    """12 000 clusters in 1500 dimensions: sums of 290 MB in pairs, of blocks of 2 MB."""
    data = da.random.default_rng(0).random((12_000, 1500), chunks=(200, 1500), dtype="float32")
    centers = np.random.default_rng(1).random((12_000, 1500))
    with one_worker("900MiB") as client:
        before = list(client.nthreads())
        with pytest.raises(MemoryPlanError, match=r"pass .* does not fit worker"):
            daskclust.KMeans(12_000, init=centers, max_iter=1).fit(data)
        assert list(client.nthreads()) == before
