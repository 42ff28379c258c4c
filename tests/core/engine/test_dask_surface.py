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
from distributed import Client, Future, wait
from helpers import within

from daskclust.core.engine import private_api as surface
from daskclust.core.engine.blocks import Block, Group


def chain() -> da.Array:
    return (da.from_array(np.arange(12.0).reshape(6, 2), chunks=(2, 2)) + 1.0) * 2.0


def test_graphs_of_tuples_are_still_run():
    graph = {"a": 1, "b": surface.task(lambda x, y: x + y, "a", 10)}
    assert dask.get(graph, ["b"]) == (11,), "dask no longer runs (function, *arguments): task()"


def test_tuples_may_hold_lists_of_keys():
    graph = {"a": 1, "b": 2, "c": surface.task(sum, ["a", "b"])}
    assert dask.get(graph, ["c"]) == (3,), "keys in lists are no longer inputs: task()"


def test_keys_are_those_of_the_chunks_in_order():
    _, keys = surface.graph_of(chain())
    assert [key[1:] for key in keys] == [(0, 0), (1, 0), (2, 0)], "__dask_keys__: graph_of()"


def test_a_graph_computes_its_chunks():
    graph, keys = surface.graph_of(chain(), optimized=True)
    assert set(keys) <= set(graph), "graph and keys no longer agree: graph_of()"
    found = np.concatenate(dask.get(graph, keys))
    np.testing.assert_array_equal(found, chain().compute(scheduler="sync"))


def test_optimizing_fuses_a_chain_into_a_task_a_chunk():
    graph, inputs, leaves = surface.needed(*surface.graph_of(chain(), optimized=True))
    # Besides, a key may stand for another.
    tasks = [k for k in graph if k not in leaves and not inputs[k]]
    assert len(tasks) == 3, "chains are no longer fused: graph_of() or needed()"
    assert all(set(inputs[k]) <= set(tasks) for k in graph), "more than aliases: graph_of()"


def test_what_is_not_needed_is_left_out():
    graph = {"a": 1, "b": surface.task(abs, "a"), "c": 3}
    small, inputs, _ = surface.needed(graph, ["b"])
    assert set(small) == {"a", "b"}, "cull: needed()"
    assert inputs["b"] == ["a"], "cull no longer returns the inputs: needed()"
    assert surface.inputs_of(graph, "b") == ["a"], "get_dependencies: inputs_of()"


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


def test_local_schedulers_have_no_client():
    with dask.config.set(scheduler="threads"):
        get, found = surface.scheduler_of(chain())
    assert get is dask.threaded.get, "get_scheduler: scheduler_of()"
    assert found is None, "scheduler_of() takes a function for a client"


def test_a_client_is_found_behind_its_scheduler(client):
    _, found = surface.scheduler_of(chain())
    assert found is client, "Client.get is not a bound method: scheduler_of()"


def test_an_asynchronous_client_says_what_to_do(client):
    async def get():
        async with Client(client.scheduler.address, asynchronous=True):
            with pytest.raises(
                RuntimeError, match=r"call them in a thread, use await asyncio.to_thread"
            ):
                surface.scheduler_of(chain())

    asyncio.run(get())


def test_futures_are_recognised_in_graphs(client):
    held = client.persist(chain())
    graph, keys = surface.graph_of(held)
    values = [graph[key] for key in keys]
    assert all(isinstance(v, Future) for v in values), "persist: graph_of()"
    assert all(map(surface.is_future, values)), "Future has no key or client: is_future()"
    assert not surface.is_future(np.ones(2))


def test_a_layer_on_top_of_an_array_is_computed_with_it():
    below = chain()
    keys = surface.graph_of(below)[1]
    layer = {("top", i): surface.task(np.sum, key) for i, key in enumerate(keys)}
    top = surface.on_top_of(below, "top", layer, ((1,) * 3,), float)
    found = dask.get(dict(top.__dask_graph__()), list(layer))
    assert sum(found) == below.sum().compute(scheduler="sync"), "from_collections: on_top_of()"


def test_a_graph_under_other_names_computes_the_same():
    graph = {"a": 1, "b": "a", "c": surface.task(sum, ["a", "b"]), ("d", 0): surface.task(abs, "c")}
    names = {"a": ("x", 0), "b": ("x", 1), "c": ("x", 2), ("d", 0): ("x", 3)}
    moved = surface.renamed(graph, names)
    assert set(moved) == set(names.values()), "convert_legacy_graph: renamed()"
    assert dask.get(moved, [("x", 3), ("x", 1)]) == (2, 1), "substitute: renamed()"
    graph, keys = surface.graph_of(chain(), optimized=True)
    names = {key: ("moved", number) for number, key in enumerate(graph)}
    found = dask.get(surface.renamed(graph, names), [names[key] for key in keys])
    np.testing.assert_array_equal(np.concatenate(found), chain().compute(scheduler="sync"))


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


def test_a_graph_is_sent_without_waiting(client):
    graph = {"x-surface": 20, "y-surface": surface.task(abs, "x-surface")}
    futures = surface.submit_graph(client, graph, ["y-surface"])
    assert all(isinstance(f, Future) for f in futures), "Client.get(sync=False): submit_graph()"
    assert client.gather(futures) == [20]


class Unhashed:
    """A function that only tasks may look into."""

    def __call__(self):
        return 20

    def __dask_tokenize__(self):
        raise AssertionError("the graph is hashed, task by task: submit_graph()")


def test_a_graph_under_its_own_names_is_not_hashed(client):
    (future,) = surface.submit_graph(client, {"x": surface.task(Unhashed())}, ["x"])
    assert future.result() == 20


def test_collections_are_computed_with_a_wait_of_ones_own(client):
    image = da.arange(24, chunks=5).reshape(4, 6).rechunk((2, 3))
    waited = []

    def wait(futures):
        waited.extend(futures)
        return client.gather(futures)

    twice, total = surface.compute_by(wait, client, [2 * image, image.sum()])
    assert all(surface.is_future(f) for f in waited), "compute_by() takes keys for futures"
    np.testing.assert_array_equal(twice, 2 * np.arange(24).reshape(4, 6))
    assert total == 276


def test_delayed_values_of_one_graph():
    graph = {"one": 1, "two": surface.task(int.__add__, "one", "one")}
    one, two = surface.delayed_parts("surface-parts", graph, ["one", "two"])
    assert one.dask is two.dask, "Delayed copies its graph: delayed_parts()"
    assert dask.compute(one + two, two, scheduler="sync") == (3, 2)


def test_the_scheduler_knows_its_workers(client):
    infos = surface.worker_infos(client)
    assert set(infos) == set(client.nthreads()), "scheduler_info: worker_infos()"
    for info in infos.values():
        assert info.n_threads == 1
        assert info.limit > 2**20, "memory_limit: worker_infos()"
        assert 0 <= info.managed <= info.limit, "metrics.managed_bytes: worker_infos()"
        assert 2**20 < info.used < 2**40, "metrics.memory: worker_infos()"
        assert not info.paused, "status: worker_infos()"
        assert info.watched, "nanny: worker_infos()"


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
