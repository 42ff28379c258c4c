"""Blocks are distributed evenly over workers, and none is lost."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from daskclust.core.engine.blocks import Block
from daskclust.core.engine.resilient_tasks import by_location


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=30),
    threads=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    data=st.data(),
)
def test_blocks_are_evened_out_where_their_workers_hold_too_much(sizes, threads, data):
    workers = {f"w{i}": count for i, count in enumerate(threads)}
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    blocks = [Block(start, size, None) for start, size in zip(starts, sizes, strict=True)]
    futures = [SimpleNamespace(key=start) for start in starts]
    where = {start: (data.draw(st.sampled_from([*workers])),) for start in starts}
    parts = by_location(blocks, futures, where, workers)
    assert sorted(block.start for _, part in parts for block in part) == starts
    for _, part in parts:
        assert part == sorted(part, key=lambda block: block.start)
    load = dict.fromkeys(workers, 0.0)
    for worker, part in parts:
        load[worker] += sum(block.size for block in part) / workers[worker]
    assert max(load.values()) - min(load.values()) <= max(sizes)


def test_blocks_that_lie_evenly_stay_where_they_are():
    blocks = [Block(10 * i, 10, None) for i in range(6)]
    futures = [SimpleNamespace(key=i) for i in range(6)]
    where = {i: ("ab"[i % 2],) for i in range(6)}
    parts = by_location(blocks, futures, where, {"a": 1, "b": 1})
    found = {worker: [block.start for block in part] for worker, part in parts}
    assert found == {"a": [0, 20, 40], "b": [10, 30, 50]}


def test_a_block_that_nobody_holds_any_more_goes_anywhere():
    blocks = [Block(0, 5, None), Block(5, 5, None)]
    futures = [SimpleNamespace(key=i) for i in range(2)]
    parts = by_location(blocks, futures, {0: ("a",), 1: ()}, {"a": 1})
    assert {worker for worker, _ in parts} == {"a", None}
