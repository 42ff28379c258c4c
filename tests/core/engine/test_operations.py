"""Fits as batch software: processes that stop, start together, or may write nowhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from helpers import small_scene, within

import daskclust
from daskclust.app import cli

ROOT = Path(__file__).resolve().parents[3]
#: Seconds after which a fit counts as one that never ends.
ENDLESS = 300

X = np.random.default_rng(0).normal(size=(600, 4)) + np.arange(600)[:, None] % 3 * 3.0


def rows() -> da.Array:
    return da.from_array(X, chunks=(60, 4))


def kmeans(n_clusters: int = 3) -> daskclust.KMeans:
    return daskclust.KMeans(n_clusters, random_state=0, max_iter=5, tol=0)


@cache
def alone(n_clusters: int = 3) -> np.ndarray:
    with dask.config.set(scheduler="sync"):
        return kmeans(n_clusters).fit(rows()).cluster_centers_


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit="2GiB"
    ) as cluster:
        yield cluster


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="processes cannot be stopped there")
@pytest.mark.parametrize("persist", [False, True], ids=["streamed", "kept"])
def test_a_worker_that_stands_still_for_a_while(persist: bool, cluster: LocalCluster) -> None:
    """Stop a process by SIGSTOP, like a machine that sleeps or swaps, and continue it."""
    woken = threading.Event()
    with dask.config.set({"daskclust.persist": persist}), Client(cluster) as client:
        pid = next(iter(client.run(os.getpid).values()))

        def wake() -> None:
            time.sleep(5)
            os.kill(pid, signal.SIGCONT)
            woken.set()

        def stop(record: dict) -> None:
            if record["iteration"] == 1:
                os.kill(pid, signal.SIGSTOP)
                threading.Thread(target=wake).start()

        with daskclust.on_iteration(stop):
            model = within(ENDLESS, kmeans().fit, rows())
        assert model.n_iter_ > 1
        assert woken.wait(60)
    np.testing.assert_array_equal(model.cluster_centers_, alone())


def test_an_open_connection_where_encryption_is_required(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_scene(tmp_path)
    with dask.config.set({"distributed.comm.require-encryption": True}):
        code = cli.main(
            ["fit", str(tmp_path / "scene.zarr"), "--n-clusters", "3", "--output",
             str(tmp_path / "map.zarr"), "--scheduler", "tcp://127.0.0.1:9"]
        )  # fmt: skip
    assert code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("daskclust: error: ")
    assert "encryption" in line.lower()


@pytest.mark.slow
def test_processes_that_compile_at_once(tmp_path: Path) -> None:
    """As where a job of many processes starts on a new machine."""
    code = (
        "import numpy as np, daskclust\n"
        "x = np.random.default_rng(1).normal(size=(500, 7)).astype('float32')\n"
        "print(daskclust.KMeans(4, random_state=0).fit(x).inertia_)\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    told = [process.communicate(timeout=900) for process in processes]
    assert [process.returncode for process in processes] == [0] * 6, told
    assert len({out for out, _ in told}) == 1
    # The files that they left are complete, and another process uses them.
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.stdout == told[0][0], done.stderr


def test_kernels_are_kept_where_they_can_be() -> None:
    """Numba's cache flag fails if no folder can be written; `compiled` works without the cache."""
    for path in (ROOT / "daskclust").rglob("*.py"):
        if path.name != "compiling.py":
            assert "cache=True" not in path.read_text(), path
