"""Blocks that do not fit the workers are refused before the first of them is read."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

import daskclust
from daskclust.engine.memory import Room, check_blocks, free_memory, measure
from daskclust.exceptions import MemoryPlanError

MIB = 2**20


def room(limit: int, used: int, n_threads: int = 1, strict: bool = True) -> Room:
    return Room("worker", n_threads, limit * MIB, used * MIB, strict=strict)


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
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="500MiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
        dask.config.set({"daskclust.persist": False}),
    ):
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
