"""Failures of workers during a fit, and clusters to test them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from helpers import within

from daskclust.core.engine import resilient_tasks

N, P = 600, 4
#: Seconds that a block takes to read: long enough to be killed in between.
SLOW = 0.08
#: Seconds after which a fit counts as one that never ends.
ENDLESS = 300


def make_rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, P)) + rng.integers(0, 3, (N, 1)) * 3.0


X = make_rows()


def read_slowly(block: np.ndarray, while_there: Path | None = None) -> np.ndarray:
    if while_there is None or while_there.exists():
        time.sleep(SLOW)
    return block.copy()


def slow(while_there: Path | None = None) -> da.Array:
    """Return the rows, in blocks that are slow to read: always, or while a file is there."""
    data = da.from_array(X, chunks=(60, P))
    return data.map_blocks(
        read_slowly, while_there=while_there, dtype=X.dtype, meta=np.empty((0, 0))
    )


def state_of(model) -> dict:
    names = ("cluster_centers_", "means_", "covariances_", "feature_weights_", "inertia_")
    names += ("prototypes_", "classes_", "linkage_", "parents_", "counts_")
    found = {name: np.asarray(getattr(model, name)) for name in names if hasattr(model, name)}
    labels = getattr(model, "labels_", None)
    if labels is not None:
        found["labels"] = np.asarray(labels)
    return found


@cache
def alone(fit) -> dict:
    """Return the result of the same fit of the same chunks in one thread."""
    with dask.config.set(scheduler="sync"):
        return state_of(fit(da.from_array(X, chunks=(60, P))))


def patiently() -> AbstractContextManager:
    """Workers that are gone are noticed soon, and those that come are waited for."""
    given = {
        "distributed.comm.timeouts.connect": "5s",
        # A local cluster drops workers that its nannies do not restart within 15 s.
        "distributed.deploy.lost-worker-timeout": f"{ENDLESS}s",
    }
    return dask.config.set(given)


def started(n_workers: int, **options) -> LocalCluster:
    return LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",
        silence_logs=50,
        **options,
    )


def sigkill_all(client: Client, cluster: LocalCluster) -> None:
    """End all workers' processes as an operating system would; nannies start others."""
    for pid in client.run(os.getpid).values():
        os.kill(pid, signal.SIGKILL)


def sigkill_one(client: Client, cluster: LocalCluster) -> None:
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


def retire_all(client: Client, cluster: LocalCluster) -> None:
    """Let all workers go in good order, and start others."""
    client.retire_workers(list(client.nthreads()))
    cluster.scale(0)
    # Asked for at once, others would take the names of those that go, and none would start.
    began = time.monotonic()
    while cluster.workers and time.monotonic() - began < ENDLESS:
        time.sleep(0.02)
    cluster.scale(1)


def restart(client: Client, cluster: LocalCluster) -> None:
    """Restart each worker by its nanny, as one that exceeds its memory is."""
    client.restart_workers(list(client.nthreads()), timeout=ENDLESS, raise_for_error=False)


def shrink_and_grow(client: Client, cluster: LocalCluster) -> None:
    """Let all workers go, and others come as they are needed."""
    cluster.scale(0)
    # Those that came stay a while: processes take long to start.
    cluster.adapt(minimum=0, maximum=2, interval="200ms", wait_count=100)


class Disaster:
    """A failure of the workers shortly after the client starts to wait for the n-th time.

    A file is there from then on until it has happened: blocks are slow to read, so that it
    happens in between.
    """

    def __init__(self, monkeypatch, client, cluster, deed, at: float, file: Path) -> None:
        self.struck = threading.Event()
        self.calls, self._at = 0, at

        def strike() -> None:
            time.sleep(2.5 * SLOW)
            deed(client, cluster)
            file.unlink()
            self.struck.set()

        before = resilient_tasks._wait

        def waited(*arguments, **options):
            self.calls += 1
            if self.calls == at:
                file.touch()
                threading.Thread(target=strike, daemon=True).start()
            return before(*arguments, **options)

        # All that the client asks of a cluster is waited for there: passes, fetched rows,
        # members of an ensemble.
        monkeypatch.setattr(resilient_tasks, "_wait", waited)

    def struck_in_time(self) -> bool:
        """Return True if there were that many waits, and the workers are lost."""
        return self.calls >= self._at and self.struck.wait(300)


def finished(fit, data) -> dict:
    """Fit and compute the labels, which may take long but not for ever."""
    return within(ENDLESS, lambda: state_of(fit(data)))


def assert_same(found: dict, expected: dict) -> None:
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


DEEDS = [sigkill_all, sigkill_one, retire_all, restart, shrink_and_grow]


class Clusters:
    """Clusters that many fits use one after the other; one that was in a failure is replaced."""

    def __init__(self) -> None:
        self._kept: dict[int, LocalCluster] = {}
        self._waits: dict[tuple, int] = {}

    @contextmanager
    def use(self, n_workers: int, deed: Any = None) -> Iterator[tuple[LocalCluster, Client]]:
        cluster = self._kept.pop(n_workers, None) or started(n_workers)
        try:
            with Client(cluster) as client:
                cluster.scale(n_workers)
                client.wait_for_workers(n_workers, timeout=ENDLESS)
                yield cluster, client
        except BaseException:
            cluster.close()
            raise
        if deed is shrink_and_grow:
            # Otherwise the cluster may restart workers during the next fit.
            cluster.close()
        else:
            self._kept[n_workers] = cluster

    def waits(self, fit, persist: bool, n_workers: int, monkeypatch, now: Path) -> int:
        """Return the number of waits of the client in this fit without failures."""
        key = (fit, persist, n_workers)
        if key not in self._waits:
            with self.use(n_workers) as (cluster, client), monkeypatch.context() as patch:
                calm = Disaster(patch, client, cluster, None, np.inf, now)
                finished(fit, slow(now))
            self._waits[key] = calm.calls
        return self._waits[key]

    def close(self) -> None:
        for cluster in self._kept.values():
            cluster.close()


@contextmanager
def many_clusters() -> Iterator[Clusters]:
    kept = Clusters()
    yield kept
    kept.close()


def struck(fit, persist, n_workers, share, deed, clusters, monkeypatch, now: Path) -> dict:
    """Return the result of a fit whose workers fail at this fraction of its waits."""
    with dask.config.set({"daskclust.persist": persist}):
        at = max(1, round(share * clusters.waits(fit, persist, n_workers, monkeypatch, now)))
        with clusters.use(n_workers, deed) as (cluster, client):
            disaster = Disaster(monkeypatch, client, cluster, deed, at, now)
            found = finished(fit, slow(now))
            assert disaster.struck_in_time()
    return found
