"""Input that is computed in each pass must not change, except by rounding."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask import delayed
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st

import daskclust
from daskclust.core.engine import open_rows
from daskclust.core.engine.unchanged import FirstTotals, Tally, joined
from daskclust.core.kernels.totals import block_totals
from daskclust.core.reduction import SURVEY, SurveyRequest
from daskclust.exceptions import ChunkError

pytestmark = pytest.mark.filterwarnings("ignore")

N, P, SIZE = 600, 3, 100
X = np.random.default_rng(0).normal(size=(N, P)) + np.repeat([[0.0], [4.0]], N // 2, axis=0)
Y = ([0, 1, N - 2, N - 1], [0, 0, 1, 1])


def rows_from(read: Callable[[int], np.ndarray], shape: tuple[int, ...] = (P,)) -> da.Array:
    """Return a lazy array whose blocks are read again in each pass."""
    blocks = [
        da.from_delayed(delayed(read, pure=False)(at), (SIZE, *shape), dtype=float)
        for at in range(0, N, SIZE)
    ]
    return da.concatenate(blocks)


class Reads:
    """Reads a block; from the `first` read of block 300 on, its values are others."""

    def __init__(self, change: Callable[[np.ndarray], np.ndarray], first: int = 2) -> None:
        self._change, self._first, self._count = change, first, itertools.count(1)

    def __call__(self, at: int) -> np.ndarray:
        block = X[at : at + SIZE].copy()
        if at == 300 and next(self._count) >= self._first:
            return self._change(block)
        return block


def one_value(block: np.ndarray) -> np.ndarray:
    block[7, 1] += 0.01
    return block


FITS: dict[str, Callable[[Any], Any]] = {
    "KMeans": lambda x: daskclust.KMeans(3, random_state=0).fit(x),
    "partial": lambda x: daskclust.KMeans(3, missing="partial", random_state=0).fit(x),
    "maximin": lambda x: daskclust.KMeans(3, init="maximin", random_state=0).fit(x),
    "PCKMeans": lambda x: daskclust.PCKMeans(2, random_state=0).fit(x, Y),
    "DPMeans": lambda x: daskclust.DPMeans(delta=9.0).fit(x),
    "GaussianMixture": lambda x: daskclust.GaussianMixture(2, random_state=0).fit(x),
    "HierarchicalKMeans": lambda x: daskclust.HierarchicalKMeans((3, 3), random_state=0).fit(x),
    "DBSCAN": lambda x: daskclust.DBSCAN(0.5).fit(x),
    "LabelSpreading": lambda x: daskclust.LabelSpreading(20, classifier=None, random_state=0).fit(
        x, Y
    ),
    "choose_n_clusters": lambda x: daskclust.selection.choose_n_clusters(
        daskclust.KMeans(random_state=0), x, [2, 3], random_state=0
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_a_fit_of_rows_that_change_is_refused(name):
    data = rows_from(Reads(one_value))
    with (
        dask.config.set({"scheduler": "sync", "daskclust.persist": False}),
        pytest.raises(ChunkError, match=r"X changed .*rows 300 to 399: .*X\.persist\(\)"),
    ):
        FITS[name](data)


@pytest.mark.parametrize(
    ("scheduler", "shared"),
    [("sync", True), ("threads", False), ("cluster", True)],
)
def test_random_rows_are_refused_wherever_they_are_computed(scheduler, shared):
    data = rows_from(lambda at: np.random.default_rng().normal(size=(SIZE, P)))
    if shared:
        # Each block needs all others: the graph stays whole.
        data = data + da.stack([data.sum(axis=0)] * N).rechunk((SIZE, P)) * 0
    with dask.config.set({"daskclust.persist": False}):
        if scheduler == "cluster":
            with (
                Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None),
                pytest.raises(ChunkError, match="X changed"),
            ):
                daskclust.KMeans(3, random_state=0).fit(data)
        else:
            with (
                dask.config.set(scheduler=scheduler),
                pytest.raises(ChunkError, match=r"X changed .*rows 0 to 99"),
            ):
                daskclust.KMeans(3, random_state=0).fit(data)


def test_weights_and_missing_values_that_change_are_named():
    with dask.config.set({"scheduler": "sync", "daskclust.persist": False}):
        weight = rows_from(lambda at: np.random.default_rng().random(SIZE), ())
        data = da.from_array(X, chunks=(SIZE, P))
        with pytest.raises(ChunkError, match=r"rows 0 to 99: the sum of its weights was \d"):
            daskclust.KMeans(3, random_state=0).fit(data, sample_weight=weight)

        def lose(block):
            block[3, 0] = np.nan
            return block

        model = daskclust.KMeans(3, missing="partial", random_state=0)
        with pytest.raises(ChunkError, match="it had 0 missing values, then 1"):
            model.fit(rows_from(Reads(lose)))


@pytest.mark.parametrize("name", ["KMeans", "GaussianMixture", "DBSCAN"])
def test_rounding_is_no_change(name):
    """Single precision, computed with other rounding in each pass, as by other processors."""
    rng = np.random.default_rng(1)

    def read(at: int) -> np.ndarray:
        block = X[at : at + SIZE] + 1000.0
        return block * (1 + rng.uniform(-1, 1, block.shape) * 2**-23)

    with dask.config.set({"scheduler": "sync", "daskclust.persist": False}):
        FITS[name](rows_from(read).astype(np.float32))


def test_views_of_the_rows_are_compared_with_the_first_pass():
    read = Reads(one_value, first=3)
    with dask.config.set({"scheduler": "sync", "daskclust.persist": False}):
        rows = open_rows(rows_from(read), np.arange(N) % 3.0)
        request = SurveyRequest(P)
        rows.reduce(SURVEY, request)
        # Other rows excluded, and other values: the same data.
        view = rows.excluding(np.array([5, 301])).transformed(np.tanh)
        view.reduce(SURVEY, request)
        rows.only([1]).reduce(SURVEY, request)
        with pytest.raises(ChunkError, match="rows 300 to 399"):
            view.take(np.array([302]))
        rows.take(np.array([2]))


@pytest.mark.parametrize("name", ["KMeans", "GaussianMixture", "LabelSpreading"])
def test_labels_of_other_rows_than_those_of_the_fit_are_refused(name):
    """Rows that a fit keeps are read once; what is computed from X afterwards reads them again."""
    read = Reads(one_value)
    data = rows_from(read).rechunk((2 * SIZE, P))
    with dask.config.set({"daskclust.persist": True}):
        with dask.config.set(scheduler="threads"):
            model = FITS[name](data)
        labels = model.labels_
        assert np.asarray(labels[:200]).shape == (200,)
        with pytest.raises(ChunkError, match="rows 200 to 399"):
            labels.compute(scheduler="sync")


def test_labels_of_the_same_rows_are_computed():
    def read(at):
        return X[at : at + SIZE]

    for persist, chunk in itertools.product((True, False), (SIZE, N)):
        with dask.config.set({"daskclust.persist": persist, "scheduler": "threads"}):
            model = daskclust.KMeans(3, random_state=0).fit(rows_from(read).rechunk((chunk, P)))
            expected = model.predict(X)
            np.testing.assert_array_equal(np.asarray(model.labels_), expected)


@given(
    cuts=st.lists(st.integers(0, 500), max_size=4),
    p=st.integers(1, 9),
    dtype=st.sampled_from([np.float32, np.float64]),
    gaps=st.booleans(),
)
def test_totals_are_the_same_wherever_rows_are_cut(cuts, p, dtype, gaps):
    rng = np.random.default_rng(len(cuts))
    x = (rng.normal(size=(500, p)) + 50).astype(dtype)
    if gaps:
        x[rng.random(x.shape) < 0.1] = np.nan
    whole, n_missing = block_totals(x)
    parts = [block_totals(part) for part in np.split(x, sorted(cuts))]
    np.testing.assert_allclose(sum(total for total, _ in parts), whole, rtol=1e-12)
    assert n_missing == sum(count for _, count in parts) == np.isnan(x).sum()
    sizes = np.nansum(np.abs(x.astype(float)), axis=0)
    assert sizes.sum() * (1 - 1e-12) <= whole[1].sum() <= 2 * sizes.sum()


def test_the_first_block_that_changed_is_named():
    def totals(*blocks):
        found = []
        for start, x in blocks:
            tally = Tally(start, len(x), None)
            tally.add(x)
            found.append(tally.record)
        return joined(found)

    first = FirstTotals()
    first.check(totals((200, X[200:300]), (0, X[:100])), np.dtype(float))
    first.check(totals((100, X[100:200])), np.dtype(float))
    first.check(totals((0, X[:100]), (100, X[100:200]), (200, X[200:300])), np.dtype(float))
    with pytest.raises(ChunkError, match="rows 100 to 199"):
        first.check(totals((200, -X[200:300]), (100, X[100:200] + 1.0)), np.dtype(float))
