"""Fixtures and Hypothesis profiles shared by all tests."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster, default_client
from distributed.utils import get_mp_context
from helpers import spread_by_less
from hypothesis import settings

import daskclust
from daskclust.app import cli
from daskclust.testing import CountingScheduler

ROOT = Path(__file__).resolve().parents[1]
DATA_VARIABLE = "DASKCLUST_TEST_DATA"

# Doctests of files of one name stop the collection ("import file mismatch"), and here are none.
collect_ignore_glob = ["*conftest.py"]
collect_ignore = ["core/storage/_s3.py"]

# No deadline anywhere: a first call may compile a Numba function or open a store.
settings.register_profile("default", max_examples=8, deadline=None)
# The same examples each time: more of them find what they found the first time.
settings.register_profile("ci", max_examples=8, deadline=None, derandomize=True)
settings.register_profile("thorough", max_examples=300, deadline=None)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default")
)

# Programs and workers that tests start run this checkout, not an installed copy, which would be
# compiled once more; and they keep its byte code, which each would make anew.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(daskclust.__file__).parents[1]), os.environ.get("PYTHONPATH")])
)
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Products of small matrices take a third longer by threads that wait for each other, where other
# tests run beside them.  Processes that xdist and tests start load NumPy after this.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Idle clusters of tests are to cost little: they do not sample their threads each 10 ms, nor look
# each 20 ms whether their event loops answer.  Programs that tests start read the environment.
_QUIET = {"worker.profile.enabled": "False", "admin.tick.interval": "1s"}
for _name, _value in _QUIET.items():
    os.environ[f"DASK_DISTRIBUTED__{_name.replace('.', '__').upper()}"] = _value
dask.config.refresh()

#: What workers of most tests import.
_IMPORTED = [
    "distributed",
    "daskclust.cluster.kmeans",
    "daskclust.mixture.pckid",
    "daskclust.semisupervised.spectral_clustering",
]

# A shell's background job ignores Ctrl-C, and hands that on to the commands that tests interrupt.
if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):
    signal.signal(signal.SIGINT, signal.default_int_handler)
# So does nohup with hang-ups.
if (
    threading.current_thread() is threading.main_thread()
    and hasattr(signal, "SIGHUP")
    and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


#: Folders and files of tests that make whole fits, start programs or servers, or build something.
_SYSTEM = {
    *("app", "benchmarks", "cluster", "datasets", "deploy", "docs", "examples", "fuzz", "mixture"),
    *("papers", "scenes", "selection", "semisupervised"),
    *("test_foreign_tables.py", "test_notebooks.py"),
    *("test_killed_fits.py", "test_lost_workers.py", "test_lost_workers_of_maps.py"),
    *("test_lost_workers_of_phases.py", "test_peers.py"),
    *("test_readme.py", "test_release.py", "test_sklearn_contract.py", "test_static.py"),
    *("test_operations.py", "test_s3.py", "test_tables.py", "test_xarray.py"),
}
#: Fixtures that start some.
_STARTS = {"address", "client", "cluster", "clusters", "mortal_client", "run", "scene", "server"}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Look for no garbage among what is collected: a quarter of the time, and nearly all stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by its cost: `release` if it is slow, `system` if it is more than a part."""
    for item in items:
        cost = pytest.mark.unit
        if item.get_closest_marker("slow") or item.get_closest_marker("benchmark"):
            cost = pytest.mark.release
        elif item.get_closest_marker("system"):  # one test of a file of parts
            continue
        elif (
            _is_for_the_cluster(item)
            or _SYSTEM & set(item.path.parts)
            or _STARTS & set(getattr(item, "fixturenames", ()))
        ):
            cost = pytest.mark.system
        item.add_marker(cost)
    # Those that share the cluster of two processes come last: it starts once, and idles for none.
    items.sort(key=_is_for_the_cluster)


def _is_for_the_cluster(item: pytest.Item) -> bool:
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    asked = any(
        value in ("cluster", "lazy cluster") for value in parameters if isinstance(value, str)
    )
    return asked or "client" in getattr(item, "fixturenames", ())


def find_data_dir() -> Path:
    """Folder of the test data: the environment's, else `shared` beside the repository."""
    return Path(os.environ.get(DATA_VARIABLE) or ROOT.parent / "shared").resolve()


def load_golden(name: str) -> dict[str, np.ndarray]:
    """Arrays of golden case `name` (with or without `.npz`); skips where it is absent."""
    path = find_data_dir() / "golden" / f"{name.removesuffix('.npz')}.npz"
    if not path.is_file():
        pytest.skip(f"no golden case {path.name}: set {DATA_VARIABLE} to the test data's folder")
    with np.load(path, allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}


def _default_client() -> Client | None:
    try:
        return default_client()
    except ValueError:
        return None


@pytest.fixture(autouse=True)
def _no_dead_default_client() -> Iterator[None]:
    """Fail the test that leaves a client without a cluster, for which later tests would wait."""
    yield
    left = _default_client()
    if left is not None and left.status != "running":
        left.close()  # one test fails, not all that follow
        pytest.fail(f"a default client is left behind that is {left.status}: {left}")


@pytest.fixture(autouse=True, scope="module")
def _no_default_client_after_a_module() -> Iterator[None]:
    """Fail where a client, or a choice of the scheduler, outlives the tests of its file."""
    yield
    left, chosen = _default_client(), dask.config.get("scheduler", None)
    if left is not None:
        left.close()
    dask.config.set(scheduler=None)
    assert left is None, f"a client is left behind: {left}"
    assert chosen is None, f"scheduler={chosen!r} is left in Dask's configuration"


@pytest.fixture(autouse=True, scope="session")
def _forked_workers() -> Iterator[None]:
    """Let workers start from a process that has imported what they need, for half of the time.

    Those that programs start are spawned, as for users; see `spawned` for others.
    """
    # The second is of Dask's scheduler of processes, which starts some for each computation.
    methods = ("distributed.worker.multiprocessing-method", "multiprocessing.context")
    with dask.config.set(dict.fromkeys(methods, "forkserver")):
        get_mp_context().set_forkserver_preload(_IMPORTED)
        yield


@pytest.fixture
def synchronous() -> Iterator[None]:
    """Run whatever Dask computes in the test's own thread."""
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """Start two processes, which take as long to start as twenty small tests."""
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as started:
        yield started


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[Client]:
    """Connect to the cluster of two processes."""
    with Client(cluster) as connected:
        yield connected
    # A client that closes brings back the scheduler that was chosen when it began, and that may
    # have been the choice of one test.
    dask.config.set(scheduler=None)


@pytest.fixture(scope="module")
def few_trees() -> Iterator[None]:
    """Spread labels by less, where it does not matter how well that foretells."""
    with pytest.MonkeyPatch.context() as patch:
        spread_by_less(patch)
        yield


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder that holds `data/` and `golden/`."""
    folder = find_data_dir()
    if not (folder / "data").is_dir():
        pytest.skip(f"no test data in {folder}: set {DATA_VARIABLE} to the folder that holds data/")
    return folder


@pytest.fixture(name="load_golden", scope="session")
def load_golden_fixture():
    """Return `load_golden`, for tests that cannot import conftest."""
    return load_golden


@pytest.fixture
def scheduler() -> Iterator[CountingScheduler]:
    """Count computations; lazy arrays are read anew in each."""
    counting = CountingScheduler()
    with dask.config.set({"scheduler": counting, "daskclust.persist": False}):
        yield counting


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Return the address of one cluster for all commands, which is faster than one for each."""
    with LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in the folder; returns its code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def call(*words: Any) -> tuple[int, str, str]:
        code = cli.main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
