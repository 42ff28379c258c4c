"""Results do not depend on chunks, workers or the scheduler."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from dask.sizeof import sizeof
from dask.utils import key_split
from distributed import Client, get_task_stream, wait
from helpers import within
from hypothesis import given
from hypothesis import strategies as st

import daskclust
from daskclust import KMeans, SemiSupervisedKMeans
from daskclust.core.engine import open_rows
from daskclust.core.engine.blocks import Block, LazyChunk
from daskclust.core.engine.rows import (
    GraphExecutor,
    LocalExecutor,
    OpenRows,
    ThreadExecutor,
)
from daskclust.core.reduction import ASSIGN, SURVEY, CenterSets, SurveyRequest
from daskclust.exceptions import PerformanceWarning
from daskclust.testing import CountingScheduler
from daskclust.testing.strategies import row_chunks

ROOT = Path(__file__).resolve().parents[3]
N, P, K = 3000, 5, 4
EVEN = (500,) * 6
#: With a chunk of no rows, one of a single row, and one longer than the summing segments' rest.
UNEVEN = (500, 0, 1, 1200, 299, 1000)


def make_rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, P)) + rng.integers(0, 3, (N, 1)) * 2.0


X = make_rows()
WEIGHT = np.random.default_rng(1).random(N)
READS: Counter[int] = Counter()
_LOCK = threading.Lock()


def read(block: np.ndarray, block_info=None) -> np.ndarray:
    """Stand-in for a slow read, counted in this process."""
    with _LOCK:
        READS[block_info[0]["array-location"][0][0] if block_info else -1] += 1
    return block.copy()


def copy(block: np.ndarray) -> np.ndarray:
    return block.copy()


def counted(array: np.ndarray, lengths: tuple[int, ...]) -> da.Array:
    """A lazy array whose reads of source blocks are counted, by first row."""
    source = da.from_array(array, chunks=(lengths, (array.shape[1],)))
    return source.map_blocks(read, dtype=array.dtype, meta=np.empty((0, 0), array.dtype))


def held(lengths: tuple[int, ...] = EVEN) -> da.Array:
    return da.from_array(X, chunks=(lengths, (P,)))


def lazy(lengths: tuple[int, ...] = EVEN) -> da.Array:
    return held(lengths).map_blocks(copy, dtype=X.dtype, meta=np.empty((0, 0)))


def digest(model: KMeans) -> tuple:
    """Return the values that must have equal bits."""
    labels = model.labels_
    return (
        (labels if isinstance(labels, np.ndarray) else labels.compute()).tolist(),
        model.cluster_centers_.tolist(),
        model.inertia_,
        model.n_iter_,
        model.history_[-1]["passes"],
    )


def fit(data, **options) -> KMeans:
    return KMeans(K, random_state=3, **options).fit(data)


@pytest.fixture(autouse=True)
def _no_reads():
    READS.clear()


@pytest.fixture(scope="module")
def pool():
    """Two processes that stay, for the processes scheduler."""
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("forkserver")) as executor:
        yield executor


@pytest.fixture
def client(cluster):
    with Client(cluster) as connected:
        yield connected


@pytest.fixture
def store(tmp_path):
    target = zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(500, P), dtype=X.dtype)
    target[:] = X
    return da.from_zarr(str(tmp_path / "x.zarr"))


@pytest.fixture(scope="module")
def reference():
    """The fit of the same chunks in one thread."""
    with dask.config.set(scheduler="sync"):
        return {lengths: digest(fit(held(lengths))) for lengths in (EVEN, UNEVEN)}


def scheduler_options(name: str, request) -> dict:
    if name == "processes":
        return {"scheduler": name, "pool": request.getfixturevalue("pool")}
    return {"scheduler": name}


# The same answer.


@pytest.mark.parametrize(
    ("container", "lengths", "scheduler"),
    [
        (held, EVEN, "threads"),
        (held, UNEVEN, "sync"),
        (held, UNEVEN, "processes"),
        (lazy, EVEN, "processes"),
        (lazy, UNEVEN, "threads"),
        (lazy, UNEVEN, "sync"),
    ],
)
def test_local_schedulers_give_the_same_bits(scheduler, lengths, container, request, reference):
    with dask.config.set(**scheduler_options(scheduler, request)):
        assert digest(fit(container(lengths))) == reference[lengths]


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_zarr_gives_the_same_bits(scheduler, request, reference, store):
    with dask.config.set(**scheduler_options(scheduler, request)):
        assert digest(fit(store)) == reference[EVEN]


@pytest.mark.parametrize("container", ["held", "streamed", "uneven", "zarr"])
def test_a_cluster_gives_the_same_bits(container, client, reference, store):
    arrays = {
        "held": held,
        "streamed": lazy,
        "uneven": lambda: lazy(UNEVEN).persist(),
        "zarr": lambda: store,
    }
    with dask.config.set({"daskclust.persist": False if container == "streamed" else "auto"}):
        model = fit(arrays[container]())
    assert digest(model) == reference[UNEVEN if container == "uneven" else EVEN]


def test_numpy_gives_the_same_labels_and_nearly_the_same_sums(reference):
    model = fit(X)
    assert isinstance(model.labels_, np.ndarray)
    for lengths in (EVEN, UNEVEN):
        labels, centers, inertia, n_iter, passes = reference[lengths]
        assert model.labels_.tolist() == labels
        assert (model.n_iter_, model.history_[-1]["passes"]) == (n_iter, passes)
        np.testing.assert_allclose(model.cluster_centers_, centers, rtol=1e-12, atol=1e-12)
        assert model.inertia_ == pytest.approx(inertia, rel=1e-12)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_the_number_of_threads_does_not_change_a_bit_for_numpy(n_threads):
    big = np.random.default_rng(5).normal(size=(60_000, 5)).astype(np.float32)
    weight = np.random.default_rng(6).random(60_000)
    with dask.config.set({"daskclust.num-threads": 1}):
        one = KMeans(5, random_state=0, max_iter=4).fit(big, sample_weight=weight)
    with dask.config.set({"daskclust.num-threads": n_threads}):
        rows = open_rows(big)
        assert isinstance(rows._executor, ThreadExecutor)
        many = KMeans(5, random_state=0, max_iter=4).fit(big, sample_weight=weight)
    np.testing.assert_array_equal(many.cluster_centers_, one.cluster_centers_)
    assert many.inertia_ == one.inertia_


@pytest.mark.parametrize("lengths", [(1000, 14_000), (5000, 3, 9997)])
def test_the_number_of_groups_does_not_change_a_bit_for_chunks_in_memory(lengths):
    # Long chunks are cut between groups, inside: only where sums are cut anyway.
    data = da.from_array(np.random.default_rng(7).normal(size=(15_000, 3)), chunks=(lengths, 3))
    found = []
    for n_workers in (1, 2, 3):
        with dask.config.set(scheduler="sync", num_workers=n_workers):
            assert len(open_rows(data)._executor.groups) == n_workers
            found.append(digest(KMeans(4, random_state=0, max_iter=3).fit(data)))
    assert found[0] == found[1] == found[2]


@given(lengths=row_chunks(400), weighted=st.booleans(), groups=st.integers(1, 5))
def test_any_chunks_give_the_same_labels(lengths, weighted, groups):
    rows, weight = X[:400], WEIGHT[:400] if weighted else None
    plain = KMeans(K, random_state=1).fit(rows, sample_weight=weight)
    chunked = da.from_array(rows, chunks=(lengths, (P,)))
    with dask.config.set(scheduler="sync", num_workers=groups):
        model = KMeans(K, random_state=1).fit(chunked, sample_weight=weight)
        np.testing.assert_array_equal(model.labels_.compute(), plain.labels_)
    np.testing.assert_allclose(
        model.cluster_centers_, plain.cluster_centers_, rtol=1e-12, atol=1e-12
    )
    assert model.inertia_ == pytest.approx(plain.inertia_, rel=1e-12)
    assert model.n_iter_ == plain.n_iter_


@pytest.mark.parametrize("metric", ["euclidean", "mahalanobis"])
def test_tiny_chunks_grouped_in_any_number_of_tasks_give_the_same_bits(metric):
    chunked = da.from_array(X[:300], chunks=((7,) * 42 + (6,), (P,)))
    found = []
    for n_workers in (1, 2, 5):
        with dask.config.set(scheduler="sync", num_workers=n_workers):
            model = KMeans(K, random_state=1, metric=metric)
            found.append(digest(model.fit(chunked.map_blocks(copy), sample_weight=WEIGHT[:300])))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("kind", ["other chunks", "unknown chunks"])
def test_weights_may_come_in_any_container(kind, client):
    weight = {
        "unknown chunks": da.from_array(WEIGHT, chunks=500).map_blocks(copy, chunks=(np.nan,)),
        "other chunks": da.from_array(WEIGHT, chunks=777),
    }[kind]
    expected = KMeans(K, random_state=3).fit(X, sample_weight=WEIGHT)
    for data in (lazy(), lazy().persist()):
        model = KMeans(K, random_state=3).fit(data, sample_weight=weight)
        np.testing.assert_array_equal(model.labels_.compute(), expected.labels_)
        np.testing.assert_allclose(
            model.cluster_centers_, expected.cluster_centers_, rtol=1e-12, atol=1e-12
        )


@pytest.mark.slow
@pytest.mark.parametrize("on_cluster", [False, True])
def test_query_planning_gives_the_same_answers(on_cluster, tmp_path, reference):
    script = f"""
import json, warnings
import dask, dask.array as da, numpy as np
warnings.simplefilter("error", category=UserWarning)

def main():
    from distributed import Client, LocalCluster
    import daskclust, sys
    assert da.Array.__module__.startswith("dask.array._array_expr"), da.Array.__module__
    sys.path[:0] = [{str(ROOT / "tests" / "core" / "engine")!r}, {str(ROOT / "tests")!r}]
    import test_engine as t
    import zarr
    out = {{}}
    def fit(name, data):
        out[name] = t.digest(t.fit(data))
    with dask.config.set(scheduler="sync"):
        fit("held", t.held())
        fit("lazy", t.lazy())
        fit("uneven", t.lazy(t.UNEVEN))
        z = zarr.create_array({str(tmp_path / "q.zarr")!r}, shape=t.X.shape,
                              chunks=(500, t.P), dtype=t.X.dtype)
        z[:] = t.X
        # `da.from_zarr` does not exist in this mode.
        stored = da.from_array(z, chunks=z.chunks)
        fit("zarr", stored)
        fit("rechunked", t.lazy((100,) * 30).rechunk((t.EVEN, (t.P,))))
        warnings.simplefilter("ignore", daskclust.exceptions.PerformanceWarning)
        fit("cut features", t.lazy().rechunk((500, 2)))
        with dask.config.set({{"daskclust.persist": False}}):
            out["weighted"] = [
                t.digest(t.KMeans(t.K, random_state=3).fit(t.lazy(), sample_weight=weight))
                for weight in (t.WEIGHT, da.from_array(t.WEIGHT, chunks=500))
            ]
            out["shared"] = t.digest(t.fit(t.big_pieces()))
        s = t.lazy()
        model = t.fit((s - s.mean(axis=0)) / s.max(axis=0))
        out["scaled"] = model.labels_.compute().tolist()
    if {on_cluster}:
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
            with Client(cluster):
                fit("cluster lazy", t.lazy())
                fit("cluster persisted", t.lazy().persist())
                fit("cluster zarr", stored)
    print("RESULT" + json.dumps(out))

if __name__ == "__main__":
    main()
"""
    path = tmp_path / "fits.py"
    path.write_text(script)
    environment = {
        **os.environ,
        "DASK_ARRAY__QUERY_PLANNING": "True",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, str(path)], env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.split("RESULT")[1])
    scaled = found.pop("scaled")
    assert scaled == fit((X - X.mean(axis=0)) / X.max(axis=0)).labels_.tolist()
    with dask.config.set(scheduler="sync"):
        weighted = KMeans(K, random_state=3).fit(held(), sample_weight=WEIGHT)
        assert [tuple(result) for result in found.pop("weighted")] == [digest(weighted)] * 2
        assert tuple(found.pop("shared")) == digest(fit(held((100,) * 30)))
    uneven = found.pop("uneven")
    assert tuple(uneven) == reference[UNEVEN]
    for name, result in found.items():
        assert tuple(result) == reference[EVEN], name


# Chunks that are not as they should be.


def test_chunks_along_features_are_joined_with_one_warning():
    data = held().rechunk((500, 2))
    with (
        dask.config.set(scheduler="sync"),
        pytest.warns(
            PerformanceWarning, match=r"3 chunks along the features.*rechunk\(\{1: -1\}"
        ) as caught,
    ):
        model = fit(data)
    assert len(caught) == 1
    with dask.config.set(scheduler="sync"):
        assert digest(model) == digest(fit(held()))
        np.testing.assert_array_equal(model.predict(data), model.labels_)


def test_chunks_of_unknown_length_are_counted_with_a_warning():
    keep = X[:, 0] < 3
    data = held(EVEN)[da.from_array(keep, chunks=500)]
    assert np.isnan(data.shape[0])
    with (
        dask.config.set(scheduler="sync"),
        pytest.warns(PerformanceWarning, match="compute_chunk_sizes") as caught,
    ):
        model = fit(data)
    assert len(caught) == 1
    with dask.config.set(scheduler="sync"):
        np.testing.assert_array_equal(model.labels_.compute(), fit(X[keep]).labels_)


def test_warnings_point_at_the_line_of_the_user():
    with (
        dask.config.set(scheduler="sync"),
        pytest.warns(PerformanceWarning) as caught,
    ):
        KMeans(2, random_state=0).fit(held().rechunk((500, 2)))
    assert caught[0].filename == __file__


# Number of reads.


def test_a_streamed_array_is_read_once_a_pass():
    data = counted(X, EVEN)
    with dask.config.set(scheduler="sync"):
        model = fit(data)
    passes = set(READS.values())
    assert set(READS) == {0, 500, 1000, 1500, 2000, 2500}
    # The last pass settles the inertia, after the last record.
    assert passes <= {model.history_[-1]["passes"], model.history_[-1]["passes"] + 1}
    assert len(passes) == 1


def test_a_lazy_array_that_fits_is_kept_for_the_fit_and_read_once():
    with dask.config.set({"scheduler": "threads", "daskclust.persist": "auto"}):
        fit(counted(X, EVEN))
    assert set(READS.values()) == {1}


@pytest.mark.parametrize(
    "option", [{"daskclust.persist": False}, {"daskclust.persist-fraction": 0.0}]
)
def test_a_lazy_array_is_not_kept_when_told_or_too_large(option):
    with dask.config.set({"scheduler": "threads", **option}):
        model = fit(counted(X, EVEN))
    assert min(READS.values()) >= model.history_[-1]["passes"] > 1


def test_statistics_shared_by_all_blocks_are_computed_once():
    data = counted(X, EVEN)
    scaled = (data - data.mean(axis=0)) / data.std(axis=0)
    with dask.config.set(scheduler="sync"):
        rows = open_rows(scaled)
        assert isinstance(rows._executor, LocalExecutor)
        assert set(READS.values()) == {1}
        READS.clear()
        survey = rows.reduce(SURVEY, SurveyRequest(P))
        assert set(READS.values()) == {1}
        READS.clear()
        rows.reduce(ASSIGN, CenterSets(np.zeros((1, 2, P))))
        assert set(READS.values()) == {1}
    np.testing.assert_allclose(survey.mean, 0.0, atol=1e-12)
    np.testing.assert_allclose(survey.variance, 1.0, rtol=1e-12)


def big_pieces() -> da.Array:
    """Three costly reads, each cut into chunks afterwards."""
    return counted(X, (1000, 1000, 1000)).rechunk(((100,) * 30, (P,)))


def test_costly_tasks_shared_by_blocks_are_computed_once_a_pass():
    with dask.config.set(scheduler="sync"):
        expected = digest(fit(held((100,) * 30)))
        rows = open_rows(big_pieces())
        assert isinstance(rows._executor, GraphExecutor)
        assert not READS
        rows.reduce(SURVEY, SurveyRequest(P))
        assert READS == {0: 1, 1000: 1, 2000: 1}
        assert digest(fit(big_pieces())) == expected
        np.testing.assert_array_equal(rows.take(np.array([1, 999, 2500]))[0], X[[1, 999, 2500]])


def test_costly_tasks_shared_by_blocks_work_on_a_cluster(client):
    with dask.config.set({"daskclust.persist": False}):
        rows = open_rows(big_pieces())
        assert isinstance(rows._executor, GraphExecutor)
        found = digest(fit(big_pieces(), max_iter=4))
    with dask.config.set(scheduler="sync"):
        assert found == digest(fit(held((100,) * 30), max_iter=4))


def test_taking_rows_reads_only_their_chunks():
    wanted = np.array([3, 499, 500, 2999])
    with dask.config.set(scheduler="sync"):
        rows = open_rows(counted(X, EVEN), WEIGHT)
        values, weights = rows.take(wanted)
    assert READS == {0: 1, 500: 1, 2500: 1}
    assert rows.passes == 1
    np.testing.assert_array_equal(values, X[wanted])
    np.testing.assert_array_equal(weights, WEIGHT[wanted])


def test_taking_no_rows_gives_none():
    values, weights = open_rows(X).take(np.empty(0, np.int64))
    assert values.shape == (0, P)
    assert weights.shape == (0,)


@pytest.mark.parametrize("container", [held, lazy, "numpy", "graph", "cluster"])
def test_rows_can_be_left_out_of_sums(container, request):
    out = np.array([0, 1, 499, 500, 2998])
    options = {"scheduler": "sync"}
    if container == "cluster":
        request.getfixturevalue("client")
        data, options = lazy().persist(), {}
    elif container == "numpy":
        data = X
    else:
        data = big_pieces() if container == "graph" else container(UNEVEN)
    with dask.config.set(**options):
        rows = open_rows(data, WEIGHT)
        state = CenterSets(X[None, :3])
        part = rows.excluding(out).reduce(ASSIGN, state)
        whole = rows.reduce(ASSIGN, state)
        _, weights = rows.excluding(out).take(out)
    expected = open_rows(np.delete(X, out, axis=0), np.delete(WEIGHT, out)).reduce(ASSIGN, state)
    np.testing.assert_allclose(part.sums, expected.sums, rtol=1e-12)
    np.testing.assert_allclose(part.counts, expected.counts, rtol=1e-12)
    assert whole.counts.sum() == pytest.approx(WEIGHT.sum(), rel=1e-12)
    # They are still there to be fetched, with their weights.
    np.testing.assert_array_equal(weights, WEIGHT[out])
    # Passes are counted for the data, not for a view.
    assert rows.passes == 3


def of_container(container, request):
    """Data of a kind, and the options under which their passes run."""
    if container == "cluster":
        request.getfixturevalue("client")
        return lazy(UNEVEN).persist(), {}
    if container == "lazy cluster":
        request.getfixturevalue("client")
        return lazy(UNEVEN), {"daskclust.persist": False}
    data = {"numpy": X, "graph": big_pieces, "held": held, "lazy": lazy}[container]
    if callable(data):
        data = data() if container == "graph" else data(UNEVEN)
    return data, {"scheduler": "sync"}


@pytest.mark.parametrize("container", ["held", "lazy", "numpy", "graph", "cluster", "lazy cluster"])
def test_a_partial_pass_sees_some_blocks_only(container, request, monkeypatch):
    groups = 3
    monkeypatch.setattr("daskclust.core.engine.opening.CPU_COUNT", groups)
    monkeypatch.setattr("daskclust.core.engine.rows.SEGMENT", 700)
    monkeypatch.setattr("daskclust.core.engine.threads._SIZE", 1)
    data, options = of_container(container, request)
    with dask.config.set({"daskclust.num-threads": groups, **options}):
        rows = open_rows(data, WEIGHT)
        blocks = rows.blocks
        assert blocks[0][0] == 0
        assert blocks[-1][1] == N
        state = CenterSets(X[None, :3])
        for wanted in ([2], [0, 2], [len(blocks) - 1, 0, 0], range(len(blocks))):
            before = rows.passes
            some = rows.only(wanted)
            found = some.reduce(ASSIGN, state)
            at = np.concatenate([np.arange(*blocks[i]) for i in sorted(set(wanted))])
            expected = open_rows(X[at], WEIGHT[at]).reduce(ASSIGN, state)
            assert some.n_rows == len(at)
            np.testing.assert_allclose(found.sums, expected.sums, rtol=1e-12)
            np.testing.assert_allclose(found.counts, expected.counts, rtol=1e-12)
            np.testing.assert_allclose(found.inertia, expected.inertia, rtol=1e-12)
            # Passes are counted for the data, not for a view.
            assert rows.passes == before + 1
        # Rows keep their numbers, so draws and fetches are those of the whole.
        values, _ = rows.only([2]).take(np.array([blocks[2][0]]))
        np.testing.assert_array_equal(values, X[[blocks[2][0]]])
        left_out = np.arange(blocks[2][0], blocks[2][1])
        counts = rows.excluding(left_out).only([0, 2]).reduce(ASSIGN, state).counts
        assert counts.sum() == pytest.approx(WEIGHT[: blocks[0][1]].sum())


@pytest.mark.parametrize("container", ["held", "graph", "cluster"])
def test_a_partial_pass_of_a_block_of_no_rows_is_a_pass_of_nothing(container, request):
    data, options = of_container(container, request)
    if container == "graph":
        data = counted(X, (1000, 1000, 1000)).rechunk(((100, 0) * 30, (P,)))
    with dask.config.set(**options):
        rows = open_rows(data)
        assert isinstance(rows._executor, GraphExecutor) == (container == "graph")
        rows = rows.only([1])
        assert rows.reduce(ASSIGN, CenterSets(X[None, :3])).counts.sum() == 0
        assert rows.n_rows == 0


def test_a_partial_pass_reads_no_other_block():
    with dask.config.set({"scheduler": "sync", "daskclust.persist": False}):
        rows = open_rows(counted(X, EVEN))
        rows.only([1, 4]).reduce(ASSIGN, CenterSets(X[None, :3]))
        assert READS == {500: 1, 2000: 1}
        READS.clear()
        shared = open_rows(big_pieces())
        assert isinstance(shared._executor, GraphExecutor)
        shared.only([0, 7, 29]).reduce(ASSIGN, CenterSets(X[None, :3]))
        assert READS == {0: 1, 2000: 1}


def test_a_partial_pass_asks_only_the_groups_that_hold_its_blocks(client):
    rows = open_rows(lazy(EVEN).persist())
    assert len(rows._executor.groups) == 2
    assert len(rows.only([0])._executor.groups) == 1


@pytest.mark.parametrize("blocks", [[], [-1], [6], [0, 99]])
def test_blocks_that_are_not_there_are_refused(blocks):
    with dask.config.set(scheduler="sync"), pytest.raises(ValueError, match=r"in \[0, 6\)"):
        open_rows(held(EVEN)).only(blocks)


@pytest.mark.parametrize("container", ["lazy", "numpy", "graph", "cluster"])
def test_a_row_map_gives_one_result_a_row_in_row_order(container, request):
    data, options = of_container(container, request)
    with dask.config.set(**options):
        rows = open_rows(data)
        found = rows.map("sums", _row_sums)
    np.testing.assert_array_equal(found, X.sum(axis=1))
    assert rows.passes == 1


def _row_sums(rows):
    return rows.x.sum(axis=1)


def test_data_that_changed_while_they_were_read_are_noticed():
    data = da.from_array(X, chunks=(EVEN, (P,))).map_blocks(
        lambda block: block[1:], dtype=X.dtype, meta=np.empty((0, 0))
    )
    with dask.config.set(scheduler="sync"), pytest.raises(ValueError, match="must have 500 rows"):
        fit(data)


def rows_only(block: np.ndarray) -> np.ndarray:
    if not len(block):
        raise AssertionError("a chunk without rows is computed")
    return block.copy()


@pytest.mark.parametrize("persist", [True, False])
def test_chunks_without_rows_are_not_computed(persist):
    data = held((1500, 0, 1500)).map_blocks(rows_only, dtype=X.dtype, meta=np.empty((0, 0)))
    with dask.config.set({"daskclust.persist": persist, "scheduler": "sync"}):
        found = open_rows(data).reduce(SURVEY, SurveyRequest(P))
    np.testing.assert_allclose(found.mean, X.mean(axis=0))


def test_in_memory_blocks_are_not_copied_into_tasks():
    with dask.config.set(scheduler="sync"):
        data = held()
        rows = open_rows(data)
        assert not any(
            isinstance(b.x, LazyChunk) for group in rows._executor.groups for b in group.blocks
        )
        again = open_rows(data)
    for group, other in zip(rows._executor.groups, again._executor.groups, strict=True):
        for one, two in zip(group.blocks, other.blocks, strict=True):
            assert np.shares_memory(one.x, two.x)


# Passes.


@pytest.mark.parametrize("container", [held, lazy, "graph"])
@pytest.mark.parametrize(
    "options",
    [
        {"init": "maximin"},
        {"init": "random", "n_init": 3},
        {"init": "random", "n_init": 1, "metric": "cosine"},
    ],
)
def test_each_pass_is_one_call_of_the_scheduler(container, options):
    data = big_pieces() if container == "graph" else container()
    scheduler = CountingScheduler()
    with dask.config.set({"scheduler": scheduler, "daskclust.persist": False}):
        model = fit(data, max_iter=3, tol=0, **options)
    assert len(model.history_) == 3
    # The centers still moved: one more pass makes labels, centers and inertia agree.
    assert scheduler.calls == model.history_[-1]["passes"] + 1
    start = {"random": 0, "maximin": model.n_clusters}[options["init"]]
    assert scheduler.calls == 1 + start + 3 + 1


def test_numpy_input_never_calls_dask():
    scheduler = CountingScheduler()
    with dask.config.set(scheduler=scheduler):
        model = fit(X)
        model.predict(X)
        model.transform(X)
        model.score(X)
    assert scheduler.calls == 0


def test_labels_of_a_dask_fit_are_not_computed_by_the_fit():
    data = counted(X, EVEN)
    scheduler = CountingScheduler()
    with dask.config.set(scheduler=scheduler):
        model = fit(data)
        before = scheduler.calls
        labels = model.labels_.compute()
        assert scheduler.calls == before + 1
    assert labels.shape == (N,)
    assert model.labels_.chunks == (EVEN,)


def test_a_listener_sees_each_iteration_and_only_within_its_context():
    seen = []
    with daskclust.on_iteration(seen.append):
        model = fit(X)
    fit(X)
    assert seen == model.history_
    assert [record["iteration"] for record in seen] == list(range(1, len(seen) + 1))


def test_keys_on_a_cluster_are_readable(client):
    data = lazy().persist()
    wait(data)
    with get_task_stream(client, plot=False) as stream:
        fit(data)
    keys = [task["key"] for task in stream.data if "daskclust" in str(task["key"])]
    others = [task["key"] for task in stream.data if "daskclust" not in str(task["key"])]
    persisted = {str(key) for key in data.__dask_graph__()}
    assert {key for key in others if str(key) not in persisted} == set()
    names = {key_split(key) for key in keys}
    assert {"daskclust-survey", "daskclust-take", "daskclust-assign"} <= names
    assert all(name.replace("-", "").isalpha() for name in names), names


# On a cluster.


def test_no_large_graph_is_sent_whatever_the_length(client):
    # Warnings are errors; the threshold is 10 MB, and each argument is larger than that.
    n = 1_500_000
    data = da.random.default_rng(0).random((n, 2), chunks=(150_000, 2)).persist()
    weight = np.ones(n)
    model = KMeans(2, random_state=0, max_iter=2, tol=0.5).fit(data, sample_weight=weight)
    assert model.labels_.shape == (n,)


def test_labels_of_most_rows_travel_once(client):
    n = 1_000_000
    data = da.random.default_rng(0).random((n, 2), chunks=(50_000, 2)).persist()
    y = np.where(np.arange(n) % 10, np.arange(n) % 3, -1)
    # As above: the labels have more than 10 MB, and do not depend on the position of rows.
    model = SemiSupervisedKMeans(3, random_state=0).fit(data, y)
    np.testing.assert_allclose(model.cluster_centers_, 0.5, atol=0.1)


def test_a_state_that_travels_once_changes_nothing(client, reference, monkeypatch):
    monkeypatch.setattr("daskclust.core.engine.rows._SENT_ONCE", 0)
    with get_task_stream(client, plot=False) as stream:
        found = fit(lazy())
    names = {key_split(task["key"]) for task in stream.data}
    assert "daskclust-state" in names
    assert digest(found) == reference[EVEN]


def test_what_reaches_the_client_is_bounded_by_the_partials(client, monkeypatch):
    n = 40_000
    data = da.random.default_rng(0).random((n, 4), chunks=(2000, 4)).persist()
    gathered, allowed = [], []
    gather, reduce = Client.gather, OpenRows.reduce

    def counting_gather(self, futures, *args, **kwargs):
        results = gather(self, futures, *args, **kwargs)
        gathered.append(sum(sizeof(result) for result in results))
        return results

    def noting_reduce(self, reduction, state, carry=None):
        n_groups = len(self._executor.groups)
        # Records of arrays: some hundred bytes of Python objects each, also for the totals by which
        # a block is known again.
        n_blocks = n // 2000
        allowed.append(n_groups * (reduction.nbytes(state) + 2000) + 1000 * n_blocks)
        return reduce(self, reduction, state, carry)

    monkeypatch.setattr(Client, "gather", counting_gather)
    monkeypatch.setattr(OpenRows, "reduce", noting_reduce)
    model = KMeans(3, init="random", n_init=1, random_state=0, max_iter=3).fit(data)
    # Before the passes, each worker reports its free memory.
    measured, *gathered = gathered
    assert measured < 1000
    assert len(gathered) == len(allowed) == model.history_[-1]["passes"] + 1
    assert all(size <= most for size, most in zip(gathered, allowed, strict=True))
    # Nothing as long as the data: not even a byte a row.
    assert max(gathered) < n


def test_blocks_that_one_worker_holds_are_shared_out(client, reference):
    workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
    data = client.persist(lazy(), workers=workers[:1])
    assert set(open_rows(data)._executor.workers) == set(workers)
    assert digest(fit(data)) == reference[EVEN]


def fit_in_a_task(seed: int) -> np.ndarray:
    rows = np.random.default_rng(0).normal(size=(120, 3))
    X = da.from_array(rows, chunks=(40, 3))
    model = daskclust.KMeans(3, random_state=seed, max_iter=4, tol=0).fit(X)
    return model.cluster_centers_


def test_fits_in_tasks_leave_their_threads_to_their_passes(client):
    """As many fits as threads: each waits for tasks that need one."""
    futures = [client.submit(fit_in_a_task, seed, pure=False) for seed in range(4)]
    found = within(300, client.gather, futures)
    with dask.config.set(scheduler="sync"):
        for seed, centers in enumerate(found):
            np.testing.assert_array_equal(centers, fit_in_a_task(seed))


def test_small_chunks_that_are_kept_are_read_several_by_a_task(client, monkeypatch):
    """A thousand of them cost the client twenty times what they cost where they are streamed."""
    from daskclust.core.engine import opening

    sent = []
    before = opening.submit_graph

    def counted(client, graph, keys):
        sent.append(len(keys))
        return before(client, graph, keys)

    monkeypatch.setattr(opening, "submit_graph", counted)
    data = da.from_array(X, chunks=(20, -1)).map_blocks(np.asarray, dtype=X.dtype)
    n_threads = sum(client.nthreads().values())
    with dask.config.set({"daskclust.persist": True}):
        found = digest(fit(data, max_iter=4))
    assert data.numblocks[0] > 2 * 16 * n_threads
    assert sum(sent) <= 2 * 16 * n_threads
    with dask.config.set({"scheduler": "sync"}):
        assert digest(fit(data, max_iter=4)) == found


def test_packs_hold_every_block_once_in_order():
    from daskclust.core.engine.opening import _PACK_BYTES, _pack

    blocks = [Block(10 * i, size, None) for i, size in enumerate([3, 7, 1, 1, 1, 90, 2, 2])]
    packs = _pack(blocks, 1, 1)
    assert [i for pack in packs for i in pack] == list(range(8))
    # A sixteenth of 107 bytes: 6.7.
    assert packs == [[0], [1], [2, 3, 4], [5], [6, 7]]
    large = [Block(i, _PACK_BYTES // 2, None) for i in range(100)]
    assert {len(pack) for pack in _pack(large, 1, 1)} == {2}
    assert _pack([], 1, 2) == []
