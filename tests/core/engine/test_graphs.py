"""Graphs that daskclust makes of the user's arrays."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

import daskclust
from daskclust.core.engine import read_again
from daskclust.core.engine.parallel import map_rows
from daskclust.core.engine.private_api import graph_of, needed

BANDS = [np.arange(12.0) + 100 * band for band in range(3)]


def scene() -> da.Array:
    """Rows of three bands, each read by a task of its own, as from a list of files."""
    bands = [
        da.from_array(band, chunks=4).map_blocks(np.copy, dtype=float, meta=np.empty(0))[:, None]
        for band in BANDS
    ]
    return da.concatenate(bands, axis=1).rechunk({1: -1})[:, :2]


ROWS = np.stack(BANDS, axis=1)[:, :2]


def first(x: np.ndarray, start: int) -> np.ndarray:
    return x[:, 0].copy()


def inputs_of_keys(arrays: Sequence[da.Array]) -> dict[object, set[frozenset]]:
    """Return what each key refers to, in all graphs that Dask would send for these arrays."""
    found: dict[object, set[frozenset]] = {}
    for array in arrays:
        _, inputs, _ = needed(*graph_of(array, optimized=True))
        for key, refers_to in inputs.items():
            found.setdefault(key, set()).add(frozenset(refers_to))
    return found


def test_no_key_means_two_things():
    """A cluster that knows a key from one graph keeps its inputs when another has others."""
    x = scene()
    again = read_again(x)
    arrays = [
        x,
        again,
        read_again(scene()),
        read_again(again + 1.0),
        read_again(read_again(x[:8]) + 1.0),
        map_rows(x, first, dtype=float),
        map_rows(again, first, dtype=float),
        map_rows(again + 1.0, first, dtype=float),
        again + map_rows(x, first, dtype=float)[:, None],
    ]
    meanings = inputs_of_keys(arrays)
    assert {key: many for key, many in meanings.items() if len(many) > 1} == {}
    for array in arrays[:3]:
        np.testing.assert_array_equal(array.compute(scheduler="sync"), ROWS)
    np.testing.assert_array_equal(arrays[-1].compute(scheduler="sync"), ROWS + ROWS[:, :1])


def test_what_is_read_again_already_is_returned_unchanged():
    again = read_again(scene())
    assert again.name != scene().name
    assert again.name == read_again(scene()).name
    for made in (again, again + 1.0, again[:8]):
        assert read_again(made) is made
    # A further read has to be tried again, too.
    more = again + scene()
    assert read_again(more) is not more
    np.testing.assert_array_equal(read_again(more).compute(scheduler="sync"), 2 * ROWS)


def test_chunks_may_be_one_task():
    x = scene()
    twice = read_again(da.concatenate([x, x]))
    np.testing.assert_array_equal(twice.compute(scheduler="sync"), np.vstack([ROWS, ROWS]))


def test_reads_are_shared_by_what_is_made_of_them():
    n_reads = []

    def count(block: np.ndarray) -> np.ndarray:
        n_reads.append(len(block))
        return block

    x = da.from_array(ROWS, chunks=(4, 2)).map_blocks(count, dtype=float, meta=np.empty((0, 0)))
    again = read_again(x)
    n_reads.clear()
    dask.compute(again, map_rows(again * 2.0, first, dtype=float), scheduler="sync")
    assert n_reads == [4, 4, 4]


@pytest.mark.parametrize("persist", ["auto", True, False])
def test_a_scheduler_sees_no_key_twice(persist, caplog):
    """Not even where the user keeps rows and labels on the cluster."""
    x = scene()
    with (
        LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
        caplog.at_level(logging.WARNING, "distributed.scheduler"),
        dask.config.set({"daskclust.persist": persist}),
    ):
        kept = [x.persist(), (x + 1.0).persist()]
        model = daskclust.KMeans(2, random_state=0, max_iter=2).fit(x)
        kept.append(model.labels_.persist())
        labels = model.labels_.compute()
        assert model.score(x) == pytest.approx(-model.inertia_)
        del kept
    assert len(set(labels)) == 2
    assert [record.getMessage() for record in caplog.records if "run_spec" in record.msg] == []
