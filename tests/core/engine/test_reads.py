"""Temporary read errors do not end a fit; permanent errors name the chunk."""

from __future__ import annotations

import errno
import itertools
import pickle
import re
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore

import daskclust
from daskclust.core.storage.retry import Retries, is_temporary, read
from daskclust.exceptions import ReadError, StoreError

N, P, ROWS = 4000, 4, 200
X = np.random.default_rng(0).normal(size=(N, P)) + np.arange(N)[:, None] % 3 * 4.0


class FailingStore(LocalStore):
    """A store of which every so-manieth read of a chunk fails, or all of one chunk."""

    count = itertools.count(1)
    lock = threading.Lock()
    every = 0
    lost = ""

    async def get(self, key, prototype=None, byte_range=None):
        if "/c/" in f"/{key}":
            if self.lost and str(key).endswith(self.lost):
                raise OSError("503: slow down")
            with self.lock:
                number = next(FailingStore.count)
            if self.every and number % self.every == 0:
                raise ConnectionResetError(f"read {number} failed")
        return await super().get(key, prototype, byte_range)


class OftenFailing(FailingStore):
    every = 25


class LosingOne(FailingStore):
    lost = "c/7/0"


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "x.zarr"
    array = zarr.create_array(target, shape=X.shape, chunks=(ROWS, P), dtype=X.dtype)
    array[:] = X
    return target


def opened(path, kind) -> da.Array:
    array = zarr.open_array(kind(path), mode="r")
    return da.from_array(array, chunks=array.chunks)


def fit(data):
    return daskclust.KMeans(3, random_state=0, max_iter=4).fit(data)


@pytest.fixture(scope="module")
def expected():
    with dask.config.set(scheduler="sync"):
        model = fit(da.from_array(X, chunks=(ROWS, P)))
        return model.cluster_centers_, model.inertia_


@pytest.fixture(autouse=True)
def _hasty():
    with dask.config.set({"daskclust.read-backoff": "1ms"}):
        yield


@pytest.mark.parametrize(
    ("scheduler", "persist"),
    [
        ("sync", "auto"),
        ("threads", True),
        ("threads", False),
        ("cluster", True),
        ("cluster", False),
    ],
)
def test_reads_that_fail_now_and_then_change_nothing(scheduler, persist, path, expected, request):
    options = {"daskclust.persist": persist}
    if scheduler == "cluster":
        request.getfixturevalue("client")
    else:
        options["scheduler"] = scheduler
    with dask.config.set(options):
        model = fit(opened(path, OftenFailing))
        np.testing.assert_array_equal(model.cluster_centers_, expected[0])
        assert model.inertia_ == expected[1]


@pytest.mark.parametrize(("scheduler", "shared"), [("sync", "constant"), ("cluster", "rechunked")])
def test_reads_shared_by_blocks_are_tried_again(shared, scheduler, path, request):
    options = {"daskclust.persist": False}
    if scheduler == "cluster":
        request.getfixturevalue("client")
    else:
        options["scheduler"] = "sync"

    def made(array):
        array = array[:1000]
        if shared == "constant":
            return array - array.mean(axis=0)
        return array.rechunk((30, P))

    def few(data):
        return daskclust.KMeans(2, init="random", random_state=0, max_iter=2).fit(data)

    with dask.config.set(options):
        model = few(made(opened(path, OftenFailing)))
    with dask.config.set(scheduler="sync"):
        reference = few(made(da.from_array(X, chunks=(ROWS, P))))
    np.testing.assert_array_equal(model.cluster_centers_, reference.cluster_centers_)


def test_a_chunk_that_cannot_be_read_is_named_and_the_next_fit_is_free_of_it(
    path, client, expected
):
    kept = []
    with dask.config.set({"daskclust.persist": True, "daskclust.read-retries": 2}):
        with pytest.raises(ReadError) as failed:
            fit(opened(path, LosingOne))
        # An error keeps all frames that it passed alive.
        kept.append(failed.value)
        text = str(failed.value)
        assert "\n" not in text
        assert re.search(r"chunk \(7, 0\) of '.*' of .*x\.zarr could not be read in 3 tries", text)
        assert "OSError: 503: slow down" in text
        assert isinstance(failed.value.__cause__, OSError)
        for _ in range(2):
            model = fit(opened(path, FailingStore))
            np.testing.assert_array_equal(model.cluster_centers_, expected[0])


def test_the_same_lazy_array_can_be_fitted_again_once_its_store_is_well(path, client, expected):
    array = zarr.open_array(LosingOne(path), mode="r")
    data = da.from_array(array, chunks=array.chunks, name="rows-of-one-name")
    with dask.config.set({"daskclust.read-retries": 1}):
        with pytest.raises(ReadError):
            fit(data)
        well = zarr.open_array(path, mode="r")
        data = da.from_array(well, chunks=well.chunks, name="rows-of-one-name")
        np.testing.assert_array_equal(fit(data).cluster_centers_, expected[0])


def test_labels_are_read_again_too(path, client):
    from daskclust.core.engine import labeled_rows

    array = opened(path, OftenFailing)[:, 0]
    rows, values, n = labeled_rows(array, lambda y: (np.flatnonzero(y > 9), y[y > 9]))
    np.testing.assert_array_equal(rows, np.flatnonzero(X[:, 0] > 9))
    np.testing.assert_array_equal(values, X[rows, 0])
    assert n == N


@pytest.mark.parametrize(
    "error", [TypeError, ValueError, KeyError, FileNotFoundError, PermissionError, MemoryError]
)
def test_errors_that_last_are_raised_at_once(error):
    tries = []

    def load():
        tries.append(1)
        raise error("no")

    assert not is_temporary(error("no"))
    with pytest.raises(error):
        read(load, "x", {}, Retries(5, 0.0))
    assert len(tries) == 1


def test_an_error_takes_its_cause_to_another_process():
    error = pickle.loads(pickle.dumps(ReadError("text", OSError("cause"))))
    assert str(error) == "text"
    assert str(error.__cause__) == "cause"


class Unpacked(Exception):
    """As errors of GDAL: it is packed, and cannot be unpacked."""

    def __init__(self, one, other):
        super().__init__("packed without its arguments")


def test_a_cause_that_cannot_be_unpacked_stays_at_home():
    error = pickle.loads(pickle.dumps(ReadError("text", Unpacked(1, 2))))
    assert type(error) is ReadError
    assert str(error) == "text"
    assert error.__cause__ is None


def test_a_message_holds_no_credentials():
    class Remote:
        shape = (1,)
        store = "https://bob:hunter2@host/s.zarr?sig=SECRET"

    def load():
        raise ConnectionError("gone: https://bob:hunter2@host/s.zarr/c/0?sig=SECRET")

    with pytest.raises(ReadError) as failed:
        read(load, ("a", 1), {"array": Remote()}, Retries(1, 0.0))
    assert "host/s.zarr" in str(failed.value)
    assert "hunter2" not in str(failed.value)
    assert "SECRET" not in str(failed.value)


class Unavailable(SimpleHTTPRequestHandler):
    """Serves files, and answers one request for a chunk in 50 with 503."""

    count = itertools.count(1)

    def do_GET(self):
        if "/c/" in self.path and next(self.count) % 50 == 0:
            self.send_error(503)
            return
        super().do_GET()

    def log_message(self, *args):
        pass


def test_a_server_that_is_unavailable_now_and_then(path, expected):
    pytest.importorskip("aiohttp")
    from functools import partial

    handler = partial(Unavailable, directory=str(path.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/x.zarr"
        array = zarr.open_array(url, mode="r")
        data = da.from_array(array, chunks=array.chunks)
        with dask.config.set({"scheduler": "threads", "daskclust.persist": False}):
            model = fit(data)
        server.shutdown()
    np.testing.assert_array_equal(model.cluster_centers_, expected[0])


def test_a_setting_of_persist_that_means_nothing_is_refused():
    with (
        dask.config.set({"daskclust.persist": "always", "scheduler": "sync"}),
        pytest.raises(
            ValueError,
            match=r"daskclust\.persist must be 'auto' \(if the data fit\), True \(always\)",
        ),
    ):
        fit(da.from_array(X, chunks=(ROWS, P)).map_blocks(np.copy))


def is_chunk(key):
    """Return True if a key of Zarr v2 or v3 is a chunk, not metadata."""
    return not key.rpartition("/")[2].startswith((".", "zarr.json"))


class FailingWrites(LocalStore):
    """A store of which every third write of a chunk fails."""

    count = itertools.count(1)

    async def set(self, key, value):
        if is_chunk(key) and next(FailingWrites.count) % 3 == 0:
            raise ConnectionResetError("a write failed")
        await super().set(key, value)


def test_labels_have_a_task_a_chunk(path):
    """Guarding reads must not cost tasks, nor a copy of a large array in each of them."""
    model = fit(da.from_array(X, chunks=(ROWS, P)))
    (labels,) = dask.optimize(model.predict(opened(path, LocalStore)))
    graph = dict(labels.__dask_graph__())
    assert sum(type(node).__name__ == "Task" for node in graph.values()) == N // ROWS
    np.save(path.parent / "x.npy", X)
    mapped = np.load(path.parent / "x.npy", mmap_mode="r")
    lazy = model.predict(da.from_array(mapped, chunks=(ROWS, P)))
    assert len(pickle.dumps(dict(lazy.__dask_graph__()))) < 2 * X.nbytes
    np.testing.assert_array_equal(lazy.compute(), model.predict(X))


@pytest.fixture
def scene(tmp_path):
    values = np.random.default_rng(0).normal(size=(50, 60, P)) + np.arange(60)[:, None] % 3 * 4.0
    values[:7, :20] = np.nan
    target = tmp_path / "scene.zarr"
    array = zarr.create_array(target, shape=values.shape, chunks=(10, 12, P), dtype=values.dtype)
    array[:] = values
    return target


def map_of(store, target):
    cube = daskclust.open_cube(store, dims=("y", "x", "band"))
    model = fit(cube.samples)
    written = cube.write_labels(model.labels_, target, n_clusters=3)
    values = cube.write_map(model.transform(cube.samples), zarr.storage.MemoryStore())
    return written["labels"][:], values["values"][:]


def test_a_map_is_read_and_written_again(scene, tmp_path):
    with dask.config.set({"scheduler": "threads", "daskclust.persist": False}):
        expected = map_of(scene, tmp_path / "a.zarr")
        found = map_of(OftenFailing(scene), FailingWrites(tmp_path / "b.zarr"))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_cannot_be_written_is_named(scene, tmp_path):
    class Full(LocalStore):
        async def set(self, key, value):
            if is_chunk(key):
                raise ConnectionResetError("no more")
            await super().set(key, value)

    with (
        dask.config.set({"scheduler": "sync", "daskclust.read-retries": 2}),
        pytest.raises(
            StoreError,
            match=r"b\.zarr/labels' at .* could not be written in 3 tries.*no more",
        ),
    ):
        map_of(scene, Full(tmp_path / "b.zarr"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_full_disk_is_not_written_to_again(number):
    assert not is_temporary(OSError(number, "no"))
    assert is_temporary(OSError(errno.EIO, "no"))
