"""Whatever becomes of workers, a fit goes on to the same bits, or says why not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, wait
from distributed.utils import get_mp_context
from helpers import within

import daskclust
from daskclust.engine import on_notice, open_rows, tasks
from daskclust.exceptions import ClusterError

#: Fits are cut short, so that there are many of them.
pytestmark = [
    pytest.mark.filterwarnings("ignore:EM did not converge"),
    pytest.mark.filterwarnings("ignore:The feature weights had not converged"),
]

N, P = 600, 4
#: Seconds that a block takes to read: long enough to be killed in between.
SLOW = 0.08
#: Seconds after which a fit counts as one that never ends.
ENDLESS = 300


def make_rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, P)) + rng.integers(0, 3, (N, 1)) * 3.0


X = make_rows()
Y = np.where(np.arange(N) % 20 == 0, (X[:, 0] > 3).astype(int), -1)


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


def fit_kmeans(data):
    return daskclust.KMeans(3, random_state=0, max_iter=4, tol=0).fit(data)


def fit_constrained(data):
    pairs = {"must_link": [(0, 1), (5, 9)], "cannot_link": [(0, 2)]}
    return daskclust.PCSKMeans(3, random_state=0, max_iter=2, max_outer_iter=2).fit(data, **pairs)


def fit_semi_supervised(data):
    return daskclust.SemiSupervisedKMeans(3, random_state=0, max_iter=3).fit(data, Y)


def fit_maximin(data):
    return daskclust.KMeans(4, init="maximin", random_state=0, max_iter=2).fit(data)


def fit_dpmeans(data):
    return daskclust.DPMeans(delta=60.0, max_iter=3).fit(data)


def fit_mixture(data):
    return daskclust.GaussianMixture(2, random_state=0, max_iter=3, tol=0).fit(data)


def fit_pckid(data):
    return daskclust.PCKID(
        2, n_initializations=2, max_components=4, n_init=3, max_iter=5, random_state=0
    ).fit(data)


def fit_spreading(data):
    return daskclust.LabelSpreading(20, random_state=0).fit(data, Y)


def fit_spectral(data):
    return daskclust.SpectralClustering(3, n_prototypes=20, random_state=0).fit(data)


def state_of(model) -> dict:
    names = ("cluster_centers_", "means_", "covariances_", "feature_weights_", "inertia_")
    names += ("prototypes_", "classes_")
    found = {name: np.asarray(getattr(model, name)) for name in names if hasattr(model, name)}
    labels = getattr(model, "labels_", None)
    if labels is not None:
        found["labels"] = np.asarray(labels)
    return found


@cache
def alone(fit) -> dict:
    """What the same fit of the same chunks finds in one thread."""
    with dask.config.set(scheduler="sync"):
        return state_of(fit(da.from_array(X, chunks=(60, P))))


def started(n_workers: int, **options) -> LocalCluster:
    return LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",
        silence_logs=50,
        **options,
    )


@pytest.fixture(autouse=True)
def _impatient():
    given = {
        "distributed.comm.timeouts.connect": "5s",
        # A local cluster gives up workers that its nannies do not start anew within 15 s, for good.
        "distributed.deploy.lost-worker-timeout": f"{ENDLESS}s",
    }
    with dask.config.set(given):
        yield


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
    """What befalls the workers a moment after the client begins to wait for the n-th time.

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

        before = tasks._wait

        def waited(*arguments, **options):
            self.calls += 1
            if self.calls == at:
                file.touch()
                threading.Thread(target=strike, daemon=True).start()
            return before(*arguments, **options)

        # All that the client asks of a cluster is waited for there: passes, fetched rows,
        # members of an ensemble.
        monkeypatch.setattr(tasks, "_wait", waited)

    def struck_in_time(self) -> bool:
        """Whether there were so many waits at all, and the workers are gone."""
        return self.calls >= self._at and self.struck.wait(30)


def finished(fit, data) -> dict:
    """Fit and compute the labels, which may take long but not for ever."""
    return within(ENDLESS, lambda: state_of(fit(data)))


def assert_same(found: dict, expected: dict) -> None:
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


SEEDING, ITERATING = 3, 9


@pytest.mark.parametrize(
    ("n_workers", "deed", "at", "persist"),
    [
        (1, sigkill_all, SEEDING, False),
        (2, sigkill_all, ITERATING, True),
        (1, retire_all, ITERATING, False),
    ],
    ids=["one worker, seeding, streamed", "both, iterating, kept", "retired, iterating"],
)
def test_a_fit_outlives_all_workers(n_workers, deed, at, persist, monkeypatch, tmp_path):
    now = tmp_path / "now"
    with (
        started(n_workers) as cluster,
        Client(cluster) as client,
        dask.config.set({"daskclust.persist": persist}),
    ):
        disaster = Disaster(monkeypatch, client, cluster, deed, at, now)
        found = finished(fit_kmeans, slow(now))
        assert disaster.struck_in_time()
    assert_same(found, alone(fit_kmeans))


FITS = [
    fit_kmeans,
    fit_maximin,
    fit_semi_supervised,
    fit_constrained,
    fit_dpmeans,
    fit_mixture,
    fit_pckid,
    fit_spreading,
    fit_spectral,
]


DEEDS = [sigkill_all, sigkill_one, retire_all, restart, shrink_and_grow]
#: Where in a fit it happens, as shares of the times that the client waits for the cluster.
SHARES = [0.15, 0.5, 0.9]


#: What workers of these fits import.
IMPORTED = [
    "distributed",
    "daskclust.cluster.kmeans",
    "daskclust.mixture.pckid",
    "daskclust.prototypes.spectral_clustering",
]


class Clusters:
    """Clusters that many fits use one after the other; one that was in a failure is replaced."""

    def __init__(self) -> None:
        self._kept: dict[int, LocalCluster] = {}
        self._waits: dict[tuple, int] = {}

    @contextmanager
    def use(self, n_workers: int) -> Iterator[tuple[LocalCluster, Client]]:
        cluster = self._kept.pop(n_workers, None) or started(n_workers)
        try:
            with Client(cluster) as client:
                # Whatever scaled it before must not do so now.
                cluster.adapt(minimum=n_workers, maximum=n_workers).stop()
                cluster.scale(n_workers)
                client.wait_for_workers(n_workers, timeout=ENDLESS)
                yield cluster, client
        except BaseException:
            cluster.close()
            raise
        self._kept[n_workers] = cluster

    def waits(self, fit, persist: bool, n_workers: int, monkeypatch, now: Path) -> int:
        """How often the client waits in this fit where nothing happens."""
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


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    # Workers start again hundreds of times: from a process that has imported what they need.
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context().set_forkserver_preload(IMPORTED)
        kept = Clusters()
        yield kept
        kept.close()


@pytest.mark.slow
@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("n_workers", [1, 2])
@pytest.mark.parametrize("persist", [False, True], ids=["streamed", "kept"])
@pytest.mark.parametrize("fit", FITS)
def test_every_fit_outlives_every_disaster(
    fit, persist, n_workers, share, deed, clusters, monkeypatch, tmp_path
):
    now = tmp_path / "now"
    with dask.config.set({"daskclust.persist": persist}):
        at = max(1, round(share * clusters.waits(fit, persist, n_workers, monkeypatch, now)))
        with clusters.use(n_workers) as (cluster, client):
            disaster = Disaster(monkeypatch, client, cluster, deed, at, now)
            found = finished(fit, slow(now))
            assert disaster.struck_in_time()
    expected = alone(fit)
    if fit is fit_pckid:
        # To rounding: matrix products of other block sizes.
        np.testing.assert_allclose(found["cluster_centers_"], expected["cluster_centers_"])
        return
    assert_same(found, expected)


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


def die(block: np.ndarray) -> np.ndarray:
    if block[0, 0] == X[300, 0] and not block.flags.writeable:
        return block
    os.kill(os.getpid(), signal.SIGKILL)
    return block


@pytest.mark.slow
@pytest.mark.parametrize("persist", [False, True])
@pytest.mark.parametrize("n_workers", [1, 2])
def test_blocks_that_kill_their_worker_again_and_again_end_the_fit(n_workers, persist):
    data = da.from_array(X, chunks=(60, P)).map_blocks(die, dtype=X.dtype, meta=np.empty((0, 0)))
    with (
        started(n_workers) as cluster,
        Client(cluster),
        dask.config.set({"daskclust.persist": persist}),
        pytest.raises(ClusterError, match=r"do not survive.*memory_limit"),
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
    """Let the scheduler do nothing else for some time."""
    threading.Thread(
        target=client.run_on_scheduler, args=(time.sleep, seconds), daemon=True
    ).start()


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
        Client(cluster) as client,
        dask.config.set({"daskclust.persist": False, **patience}),
        daskclust.on_iteration(lambda record: record["iteration"] == 1 and busy(client, 12)),
        pytest.raises(ClusterError, match=r"has not answered for [2-9].*worker-timeout"),
    ):
        fit_kmeans(slow())


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
        rows._executor.crew._looked = -1e9
        before = rows.take(np.array([0, 599]))[0]
        assert set(rows._executor.workers) == set(client.nthreads())
    np.testing.assert_array_equal(before, X[[0, 599]])
