"""Workers that are killed at the beginning of each phase of a fit, its opening included."""

from __future__ import annotations

import ast
import os
import signal
import time
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from disasters import ENDLESS, N, P, X, assert_same, patiently, slow, started, state_of
from distributed import Client
from helpers import spawned, within
from scipy.sparse import csr_matrix

import daskclust
from daskclust.core.engine import resilient_tasks

pytestmark = [
    pytest.mark.filterwarnings("ignore:X has chunks of unknown length"),
    pytest.mark.filterwarnings("ignore:EM did not converge"),
    pytest.mark.filterwarnings("ignore:The clusters had not converged"),
]
ENGINE = Path(daskclust.__file__).parent / "core" / "engine"
#: Workers take long to come back, and to import the package, as from a busy shared file system.
SLOW_START = """
import importlib.abc, pathlib, sys, time

class Slowly(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "daskclust" and pathlib.Path({flag!r}).exists():
            time.sleep({imports})

if pathlib.Path({flag!r}).exists():
    time.sleep({starts})
sys.meta_path.insert(0, Slowly())
"""
Y = np.where(np.arange(N) % 20 == 0, (X[:, 0] > 3).astype(int), -1)


def kmeans(data):
    return daskclust.KMeans(3, random_state=0, max_iter=2, tol=0).fit(data)


def constrained(data):
    pairs = {"must_link": [(0, 1), (5, 9)], "cannot_link": [(0, 2)]}
    return daskclust.COPKMeans(3, random_state=0, max_iter=2).fit(data, **pairs)


def partly_observed(data):
    return daskclust.PCKID(
        2, n_initializations=2, max_components=2, n_init=1, max_iter=2, random_state=0
    ).fit(data)


def spreading(data):
    model = daskclust.LabelSpreading(20, random_state=0).fit(data, Y)
    assert model.score(data, Y) > 0.5
    return model


def labeled(data):
    y = da.from_array(Y, chunks=data.chunks[0])
    return daskclust.SemiSupervisedKMeans(3, random_state=0, max_iter=2).fit(data, y)


def given(data):
    return data


def of_unknown_length(data):
    return data[data[:, 0] > -np.inf]


def of_one_source(data):
    """Rows less their mean, which every block refers to: it is computed once."""
    return data - data.mean(axis=0)


def in_small_chunks(data):
    """Chunks of which a task reads several, where they are kept."""
    return da.from_array(X, chunks=(6, P)).map_blocks(np.asarray, dtype=X.dtype)


def of_one_graph(data):
    """Blocks that all need all of the source: the graph is not cut."""
    return data.rechunk((37, P)).rechunk((600, 1)).rechunk((60, P))


def of_sparse_blocks(data):
    """Blocks whose bytes are unknown before one is read."""
    return data.map_blocks(csr_matrix, dtype=X.dtype)


#: Names of the waits in the engine, as in its source, with a fit that has this wait.
PHASES = {
    "the measuring of memory": [(kmeans, given, False, None)],
    "the reading of the data": [(kmeans, given, True, None), (kmeans, in_small_chunks, True, None)],
    "the measuring of a block": [(kmeans, of_sparse_blocks, False, None)],
    "the count of rows": [(kmeans, of_unknown_length, False, None)],
    "the reading of y": [(labeled, given, False, None)],
    "the binding of the data": [(kmeans, of_one_source, False, None)],
    # Bound groups of blocks, and a graph that stays whole.
    "the pass {name!r}": [(constrained, given, False, "the pass 'take'")],
    "the pass {reduction.name!r}": [(kmeans, of_one_graph, False, "the pass 'survey'")],
    "the pass": [
        (kmeans, given, persist, f"the pass {name!r}")
        for persist in (False, True)
        for name in ("survey", "candidates", "attracted", "assign")
    ],
    "the tasks {name!r}": [(partly_observed, given, False, "the tasks 'member'")],
    "the labels of rows": [(spreading, given, False, None)],
}
CASES = [
    (fit, of, kept, name or what) for what, all_ in PHASES.items() for fit, of, kept, name in all_
]


def test_no_phase_is_forgotten():
    """The tests below cover all named waits of the engine."""
    found = set()
    for path in ENGINE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id in ("gather", "gather_futures", "arrive", "fetch_chunks"):
                    found.add(ast.unparse(node.args[1]).removeprefix("f").strip("'\""))
    # A cluster that has no worker yet: tests/app/commands/test_console.py.
    assert found - {"what", "the start of workers"} == set(PHASES) - {
        "the pass",
        "the labels of rows",
    }
    # All waits for a cluster share one loop.
    assert not [
        path.name
        for path in ENGINE.glob("*.py")
        if ".gather(list" in path.read_text() and path.name != "resilient_tasks.py"
    ]


def struck(fit, of, kept, phase, n_struck, monkeypatch, tmp_path, *, starts, imports) -> tuple:
    """Return what a fit finds whose workers are killed when a phase begins, and how many were."""
    flag, preload = tmp_path / "slow", tmp_path / "preload.py"
    preload.write_text(SLOW_START.format(flag=str(flag), starts=starts, imports=imports))
    killed = []
    before = resilient_tasks._wait
    with (
        patiently(),
        spawned(),
        dask.config.set({"daskclust.persist": kept, "distributed.worker.preload": [str(preload)]}),
        started(2) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(2, timeout=ENDLESS)
        pids = list(client.run(os.getpid).values())

        def waited(client, what, *arguments, **options):
            if what == phase and not killed:
                flag.touch()
                killed.extend(pids[:n_struck])
                for pid in killed:
                    os.kill(pid, signal.SIGKILL)
            return before(client, what, *arguments, **options)

        monkeypatch.setattr(resilient_tasks, "_wait", waited)
        found = within(ENDLESS, lambda: state_of(fit(of(slow()))))
    return found, killed


def alone(fit, of) -> dict:
    with dask.config.set(scheduler="sync"):
        return state_of(fit(of(da.from_array(X, chunks=(60, P)))))


def check(fit, of, kept, phase, n_struck, monkeypatch, tmp_path, **delays):
    found, killed = struck(fit, of, kept, phase, n_struck, monkeypatch, tmp_path, **delays)
    assert len(killed) == n_struck, f"nothing waits for {phase!r}"
    assert_same(found, alone(fit, of))


@pytest.mark.slow
def test_the_measuring_of_memory_outlives_its_workers(monkeypatch, tmp_path):
    """Four looks at one address that was gone counted as four losses, and ended the fit.

    All are struck; of one that is struck, the slow test is.
    """
    what = "the measuring of memory"
    check(kmeans, given, False, what, 2, monkeypatch, tmp_path, starts=1, imports=6)


@pytest.mark.slow
@pytest.mark.parametrize(("fit", "of", "kept", "phase"), CASES)
def test_every_phase_outlives_a_worker(fit, of, kept, phase, monkeypatch, tmp_path):
    check(fit, of, kept, phase, 1, monkeypatch, tmp_path, starts=10, imports=8)


def test_a_worker_that_is_gone_is_one_loss(monkeypatch):
    """Other waits check the same address repeatedly."""
    looks, losses = [], []

    class Waiting:
        def __init__(self, client, futures):
            pass

        def result(self, timeout):
            looks.append(time.monotonic())
            if len(looks) > 8:
                return ["done"]
            raise TimeoutError

        def done(self):
            return False

    class Watch:
        def __init__(self, client, what):
            pass

        def register_workers(self, present):
            pass

        def register_progress(self, done):
            pass

        def check(self, present):
            pass

        def lost(self, gone):
            losses.append(sorted(gone))

    # One worker is lost, returns under its address, and is lost again; another is lost in between.
    there = [{"b": 1}, {"b": 1}, {"a": 1, "b": 1}, {"b": 1}, {"b": 1}, {"c": 1}, {"c": 1}, {"c": 1}]
    monkeypatch.setattr(resilient_tasks, "ClusterWait", Watch)
    monkeypatch.setattr(resilient_tasks, "workers_of", lambda client: there[len(looks) - 1])
    found = resilient_tasks._wait(
        None,
        "the test",
        list,
        lambda: 0,
        1,
        lambda present: {"a", "b"} - set(present),
        lambda present: None,
        Waiting,
    )
    assert found == ["done"]
    assert losses == [["a"], ["a"], ["b"]]
