"""If workers fail, a fit leads to the same bits or raises a clear error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import dask
import dask.array as da
import numpy as np
import pytest
from disasters import (
    DEEDS,
    ENDLESS,
    Clusters,
    Disaster,
    P,
    X,
    alone,
    assert_same,
    finished,
    many_clusters,
    patiently,
    retire_all,
    sigkill_all,
    sigkill_one,
    slow,
    started,
    state_of,
    struck,
)
from distributed import Client, wait

import daskclust
from daskclust.core.engine import on_notice, open_rows
from daskclust.exceptions import ClusterError

#: Fits are cut short, so that there are many of them.
pytestmark = [
    pytest.mark.filterwarnings("ignore:EM did not converge"),
    pytest.mark.filterwarnings("ignore:The feature weights had not converged"),
]


def fit_kmeans(data):
    return daskclust.KMeans(3, random_state=0, max_iter=4, tol=0).fit(data)


def fit_iterations(data):
    return daskclust.KMeans(3, init=X[:3], max_iter=5, tol=0).fit(data)


def fit_pckid(data):
    return daskclust.PCKID(
        2, n_initializations=2, max_components=4, n_init=3, max_iter=5, random_state=0
    ).fit(data)


@pytest.fixture(autouse=True)
def _patiently():
    with patiently():
        yield


SEEDING, ITERATING = 3, 6


@pytest.mark.parametrize(
    ("fit", "n_workers", "deed", "at", "persist"),
    [
        pytest.param(fit_kmeans, 1, sigkill_all, SEEDING, False, marks=pytest.mark.slow),
        (fit_iterations, 2, sigkill_all, ITERATING, True),
        pytest.param(fit_iterations, 1, retire_all, ITERATING, False, marks=pytest.mark.slow),
    ],
    ids=["one worker, seeding, streamed", "both, iterating, kept", "retired, iterating"],
)
def test_a_fit_outlives_all_workers(fit, n_workers, deed, at, persist, monkeypatch, tmp_path):
    now = tmp_path / "now"
    with (
        started(n_workers) as cluster,
        Client(cluster) as client,
        dask.config.set({"daskclust.persist": persist}),
    ):
        disaster = Disaster(monkeypatch, client, cluster, deed, at, now)
        found = finished(fit, slow(now))
        assert disaster.struck_in_time()
    assert_same(found, alone(fit))


def fit_levels(data):
    # Rows by parents in files, parts, a refinement and the division of leaves that are too large.
    model = daskclust.HierarchicalKMeans(
        (4, 5), max_iter=2, refine=2, max_cluster_size=60, random_state=0
    )
    return model.fit(data)


#: One fit of iterations, one of an ensemble of tasks and one that groups rows in files.
THREE = [fit_kmeans, fit_pckid, fit_levels]


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    with many_clusters() as kept:
        yield kept


def check(fit, deed, share, persist, clusters, monkeypatch, now):
    found = struck(fit, persist, 1 + (share > 0.5), share, deed, clusters, monkeypatch, now)
    expected = alone(fit)
    if fit is fit_pckid:
        # Up to rounding: the sizes of the blocks change the products of matrices.
        np.testing.assert_allclose(found["cluster_centers_"], expected["cluster_centers_"])
    else:
        assert_same(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize(("share", "persist"), [(0.2, True), (0.8, False)])
@pytest.mark.parametrize("fit", THREE)
def test_three_fits_outlive_five_failures(
    fit, share, persist, deed, clusters, monkeypatch, tmp_path
):
    check(fit, deed, share, persist, clusters, monkeypatch, tmp_path / "now")


@pytest.mark.slow
def test_workers_that_come_later_are_waited_for():
    with started(0) as cluster, Client(cluster):
        cluster.adapt(minimum=0, maximum=1, interval="200ms")
        found = finished(fit_kmeans, slow())
    assert_same(found, alone(fit_kmeans))


def test_without_workers_a_fit_says_so_and_names_its_checkpoint(tmp_path):
    said = []
    path = tmp_path / "fit.npz"
    model = daskclust.KMeans(3, random_state=0, max_iter=20, tol=0, checkpoint=path)
    with (
        started(1) as cluster,
        Client(cluster),
        dask.config.set({"daskclust.persist": False, "daskclust.worker-timeout": "6s"}),
        on_notice(said.append),
    ):

        def close_workers(record) -> None:
            if record["iteration"] == 1:
                cluster.scale(0)

        with (
            daskclust.on_iteration(close_workers),
            pytest.raises(ClusterError, match=r"no workers for \d.*worker-timeout.*fit\.npz") as no,
        ):
            model.fit(slow())
        assert "\n" not in str(no.value)
    assert "has had no workers for" in said[0]
    assert "waits for workers" in said[0]
    assert_same(
        state_of(model.fit(da.from_array(X, chunks=(60, P)))),
        alone(lambda data: daskclust.KMeans(3, random_state=0, max_iter=20, tol=0).fit(data)),
    )


@pytest.mark.parametrize(("at", "persist"), [(1, True), (SEEDING, False)])
def test_a_scheduler_that_allows_no_failures_does_not_end_a_fit(persist, at, monkeypatch, tmp_path):
    now = tmp_path / "now"
    with (
        dask.config.set(
            {"distributed.scheduler.allowed-failures": 0, "daskclust.persist": persist}
        ),
        started(2) as cluster,
        Client(cluster) as client,
    ):
        disaster = Disaster(monkeypatch, client, cluster, sigkill_one, at, now)
        found = finished(fit_kmeans, slow(now))
        assert disaster.struck_in_time()
    assert_same(found, alone(fit_kmeans))


def die(block: np.ndarray) -> np.ndarray:
    if block[0, 0] == X[300, 0] and not block.flags.writeable:
        return block
    os.kill(os.getpid(), signal.SIGKILL)
    return block


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_workers", "persist", "allowed"), [(1, False, 3), (2, True, 0), (2, False, 0)]
)
def test_blocks_that_kill_their_worker_again_and_again_end_the_fit(n_workers, persist, allowed):
    data = da.from_array(X, chunks=(60, P)).map_blocks(die, dtype=X.dtype, meta=np.empty((0, 0)))
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": allowed}),
        started(n_workers) as cluster,
        Client(cluster),
        dask.config.set({"daskclust.persist": persist}),
        pytest.raises(ClusterError, match=r"Workers died while.*memory_limit"),
    ):
        finished(fit_kmeans, data)


def test_a_lost_scheduler_ends_the_fit_at_once(tmp_path):
    file = tmp_path / "scheduler.json"
    commands = [
        ["scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)],
        ["worker", "--scheduler-file", str(file), "--no-dashboard", "--no-nanny"],
    ]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "dask", *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # They have to find this module.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for command in commands
    ]
    try:
        while not file.exists():
            time.sleep(0.1)
        with (
            Client(scheduler_file=str(file), timeout=60) as client,
            dask.config.set({"daskclust.persist": False}),
        ):
            client.wait_for_workers(1, timeout=60)

            def kill(record) -> None:
                processes[0].kill()

            with (
                daskclust.on_iteration(kill),
                pytest.raises(ClusterError, match=r"connection to the Dask scheduler.*lost"),
            ):
                finished(fit_kmeans, slow())
    finally:
        for process in processes:
            process.kill()
            process.wait()


def busy(client: Client, seconds: float) -> None:
    """Block the scheduler for some time."""
    threading.Thread(
        target=client.run_on_scheduler, args=(time.sleep, seconds), daemon=True
    ).start()


@pytest.mark.slow
def test_a_scheduler_that_is_busy_is_waited_for():
    said = []
    with (
        started(1) as cluster,
        Client(cluster) as client,
        dask.config.set({"daskclust.persist": False, "distributed.comm.timeouts.connect": "1s"}),
        on_notice(said.append),
        daskclust.on_iteration(lambda record: record["iteration"] == 1 and busy(client, 5)),
    ):
        found = state_of(fit_kmeans(slow()))
    assert_same(found, alone(fit_kmeans))
    assert any("has not answered for" in words for words in said), said


def test_a_scheduler_that_does_not_answer_is_given_up():
    patience = {"daskclust.worker-timeout": "2s", "distributed.comm.timeouts.connect": "1s"}
    with (
        started(1) as cluster,
        # Closed while the scheduler sleeps on.
        Client(cluster, timeout=30) as client,
        dask.config.set({"daskclust.persist": False, **patience}),
        daskclust.on_iteration(lambda record: record["iteration"] == 1 and busy(client, 12)),
        pytest.raises(ClusterError, match=r"has not answered for \d+.*worker-timeout"),
    ):
        fit_kmeans(slow())


@pytest.mark.slow
def test_lazy_labels_need_no_worker_of_the_fit():
    with started(1) as cluster, Client(cluster) as client:
        model = fit_kmeans(slow())
        sigkill_all(client, cluster)
        time.sleep(1)
        assert not any("restrict" in str(a) for a in model.labels_.__dask_graph__().values())
        future = client.compute(model.labels_)
        wait(future, timeout=ENDLESS)
        labels = future.result()
    np.testing.assert_array_equal(labels, alone(fit_kmeans)["labels"])


def test_groups_move_to_workers_that_come_later():
    with (
        started(1) as cluster,
        Client(cluster) as client,
        dask.config.set({"daskclust.persist": False}),
    ):
        rows = open_rows(slow())
        assert len(set(rows._executor.workers)) == 1
        cluster.scale(2)
        client.wait_for_workers(2)
        rows._executor.worker_slots._last_check = -1e9
        before = rows.take(np.array([0, 599]))[0]
        assert set(rows._executor.workers) == set(client.nthreads())
    np.testing.assert_array_equal(before, X[[0, 599]])
