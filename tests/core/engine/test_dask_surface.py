"""Undocumented features of Dask that the engine uses, with a test for each.

If a release of Dask or distributed changes one of them, the message of the test says
which function of ``daskclust.core.engine.private_api`` has to follow.
"""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from functools import partial
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from dask.sizeof import sizeof
from distributed import Client, wait
from helpers import within

from daskclust.core.engine import private_api as surface
from daskclust.core.engine.blocks import Block, Group


def chain() -> da.Array:
    return (da.from_array(np.arange(12.0).reshape(6, 2), chunks=(2, 2)) + 1.0) * 2.0


def test_leaves_are_values_and_aliases_are_not():
    graph = {"a": np.ones(2), "b": "a", "c": surface.task(abs, "a")}
    leaves = surface.needed(graph, list(graph))[2]
    assert leaves == {"a"}, "istask: needed()"
    np.testing.assert_array_equal(surface.value_of(graph, "a"), np.ones(2))


def test_values_in_memory_stand_in_graphs_as_arrays():
    held = chain().persist(scheduler="sync")
    graph, keys = surface.graph_of(held)
    assert all(isinstance(graph[k], np.ndarray) for k in keys), "persist"
    np.testing.assert_array_equal(dask.get({"a": np.array(["b"]), "b": 1}, "a"), np.array(["b"]))


def test_an_asynchronous_client_says_what_to_do(client):
    async def get():
        async with Client(client.scheduler.address, asynchronous=True):
            with pytest.raises(
                RuntimeError, match=r"call them in a thread, use await asyncio.to_thread"
            ):
                surface.scheduler_of(chain())

    asyncio.run(get())


def test_futures_keep_their_names(client):
    graph, keys = surface.graph_of(client.persist(chain()))
    graph["sum"] = surface.task(np.sum, keys[0])
    moved = surface.renamed(graph, {key: ("moved", str(key)) for key in graph})
    assert set(keys) <= set(moved)
    (future,) = surface.submit_graph(client, graph, ["sum"])
    plain, keys = surface.graph_of(chain())
    assert future.result() == np.sum(dask.get(plain, keys[0]))


def fail_once(file: str, value: int) -> int:
    """Fail until a file is there."""
    if not Path(file).exists():
        raise OSError("not yet")
    return value


def test_failed_tasks_run_again_with_inputs_that_the_client_does_not_hold(client, tmp_path):
    file = tmp_path / "ready"
    graph = {
        "input-surface": surface.task(partial(fail_once, str(file)), 20),
        "output-surface": surface.task(abs, "input-surface"),
    }
    futures = surface.submit_graph(client, graph, ["output-surface"])
    wait(futures)
    assert futures[0].status == "error"
    file.touch()
    assert surface.retry(client, futures) == 1, "Scheduler.retry, FutureState.retry: retry()"
    assert client.gather(futures) == [20]
    assert surface.retry(client, []) == 0


class Unhashed:
    """A function that only tasks may look into."""

    def __call__(self):
        return 20

    def __dask_tokenize__(self):
        raise AssertionError("the graph is hashed, task by task: submit_graph()")


def test_a_graph_under_its_own_names_is_not_hashed(client):
    (future,) = surface.submit_graph(client, {"x": surface.task(Unhashed())}, ["x"])
    assert future.result() == 20


def test_what_travels_once_is_no_large_graph(client):
    # Warnings are errors.
    with surface.sending_once():
        future = client.submit(len, bytes(30_000_000), key="surface-large")
    wait(future)


def test_a_group_is_small_whatever_it_refers_to():
    group = Group([Block(0, 1000, np.zeros((1000, 100)))])
    assert sizeof(group) < 10_000, "sizeof.register no longer counts: Group in blocks.py"


@pytest.mark.parametrize("name", surface.__all__)
def test_every_reach_is_documented(name):
    assert getattr(surface, name).__doc__


def test_what_is_sent_is_held_until_its_futures_are_released(client: Client) -> None:
    class Sent:
        def __reduce__(self):
            surface.hold_for_futures(self)
            return int, (1,)

    sent = Sent()
    gone = weakref.ref(sent)
    future = client.get({"sent": (str, sent)}, "sent", sync=False)
    del sent
    gc.collect()
    time.sleep(1.5)
    assert gone() is not None, (
        "Client.futures, FutureState.status or _instances: hold_for_futures()"
    )
    assert future.result() == "1"
    del future
    within(60, _until_gone, gone)


def _until_gone(reference: weakref.ref[object]) -> None:
    while reference() is not None:
        time.sleep(0.05)
