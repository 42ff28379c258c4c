"""Requests of stores are made again where they fail now and then, and given up in the end."""

from __future__ import annotations

import errno
import itertools
import pickle
import socket
import threading
import time
from collections.abc import Iterator

import dask
import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore, MemoryStore

import daskclust
from daskclust.exceptions import ReadError, StoreError
from daskclust.storage.outputs import new_group
from daskclust.storage.reads import Retries, Tries, is_passing
from daskclust.storage.stores import RetryingStore, local_path, open_store, retrying, underlying
from daskclust.tables import open_table


class Unreliable(LocalStore):
    """Every request fails the first time it is made, whatever it is."""

    made: set = set()  # noqa: RUF012
    failed = 0

    def _fail(self, *request):
        if request not in Unreliable.made:
            Unreliable.made.add(request)
            Unreliable.failed += 1
            raise ConnectionResetError("503: slow down")

    async def get(self, key, prototype=None, byte_range=None):
        self._fail("get", key, byte_range)
        return await super().get(key, prototype, byte_range)

    async def set(self, key, value):
        self._fail("set", key, value.to_bytes())
        await super().set(key, value)

    async def exists(self, key):
        self._fail("exists", key)
        return await super().exists(key)

    async def is_empty(self, prefix):
        self._fail("is_empty", prefix)
        return await super().is_empty(prefix)

    async def delete_dir(self, prefix):
        self._fail("delete_dir", prefix)
        await super().delete_dir(prefix)

    async def list_dir(self, prefix):
        # Half of the names are out by then.
        for i, name in enumerate([name async for name in super().list_dir(prefix)]):
            if i:
                self._fail("list_dir", prefix)
            yield name

    async def list_prefix(self, prefix):
        self._fail("list_prefix", prefix)
        async for name in super().list_prefix(prefix):
            yield name


@pytest.fixture(autouse=True)
def _hasty():
    Unreliable.made, Unreliable.failed = set(), 0
    with dask.config.set({"daskclust.read-backoff": "1ms", "scheduler": "sync"}):
        yield


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_groups_are_written_listed_and_read_whatever_fails_first(zarr_format, tmp_path):
    values = np.arange(12).reshape(3, 4)
    for overwrite in (False, True):
        with new_group(
            Unreliable(tmp_path / "a.zarr"),
            kind="test",
            overwrite=overwrite,
            consolidated=True,
            zarr_format=zarr_format,
        ) as group:
            for name in ("one", "two"):
                group.create_array(name, shape=(3, 4), chunks=(2, 2), dtype="i8")[...] = values
            group.attrs["title"] = "text"
    assert Unreliable.failed > 20
    with pytest.raises(FileExistsError), new_group(Unreliable(tmp_path / "a.zarr"), kind="other"):
        pass
    for store in (tmp_path / "a.zarr", Unreliable(tmp_path / "a.zarr")):
        found = open_store(store)
        assert sorted(found.keys()) == ["one", "two"]
        assert found.attrs["title"] == "text"
        np.testing.assert_array_equal(found["two"][...], values)


def test_models_are_saved_and_loaded_whatever_fails_first(tmp_path):
    X = np.random.default_rng(0).normal(size=(50, 3))
    model = daskclust.KMeans(3, random_state=0).fit(X)
    model.save(Unreliable(tmp_path / "m.zarr"))
    assert Unreliable.failed > 5
    loaded = daskclust.load(Unreliable(tmp_path / "m.zarr"))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_a_failure_for_good_names_store_and_request(tmp_path):
    class Closed(LocalStore):
        count = itertools.count()

        async def set(self, key, value):
            next(self.count)
            raise OSError(errno.EIO, "https://me:hunter2@host/x?sig=SECRET is closed")

        async def get(self, key, prototype=None, byte_range=None):
            raise ConnectionResetError("no")

    with dask.config.set({"daskclust.read-retries": 2}):
        with pytest.raises(StoreError, match=r"of '.*b\.zarr' could not be written in 3") as error:
            zarr.open_group(retrying(Closed(tmp_path / "b.zarr")), mode="w", zarr_format=2)
        text = str(error.value)
        assert "\n" not in text
        assert "hunter2" not in text
        assert "SECRET" not in text
        with pytest.raises(ReadError, match=r"could not be read in 3 tries.*Reset"):
            open_store(Closed(tmp_path / "b.zarr"))
    with dask.config.set({"daskclust.read-retries": 0}), pytest.raises(OSError, match="is closed"):
        zarr.open_group(retrying(Closed(tmp_path / "b.zarr")), mode="w", zarr_format=2)


def test_what_is_wrapped_stays_what_it_is(tmp_path):
    for plain in (MemoryStore(), LocalStore(tmp_path)):
        assert retrying(plain) is plain
    with dask.config.set({"daskclust.read-retries": 3}):
        store = retrying(Unreliable(tmp_path))
    assert isinstance(store, RetryingStore)
    assert retrying(store) is store
    # How often is decided where it is opened, not on each worker.
    there = pickle.loads(pickle.dumps(store))
    assert there == store
    assert there.retries.count == store.with_read_only(True).retries.count == 3
    assert (str(store), repr(store)) == (str(store._store), repr(store._store))
    assert local_path(store) == tmp_path
    assert underlying(store) is store._store


def test_a_request_that_stalls_is_made_again(tmp_path):
    class Stalling(LocalStore):
        calls = 0

        async def get(self, key, prototype=None, byte_range=None):
            import asyncio

            Stalling.calls += 1
            if Stalling.calls == 2:
                await asyncio.sleep(600)
            return await super().get(key, prototype, byte_range)

    array = zarr.create_array(LocalStore(tmp_path / "x.zarr"), shape=(4,), chunks=(1,), dtype="i4")
    array[:] = range(4)
    with dask.config.set({"daskclust.read-timeout": "300ms"}):
        found = open_store(Stalling(tmp_path / "x.zarr"))
        np.testing.assert_array_equal(found[:], range(4))


def test_a_store_that_does_not_answer_is_asked_twice():
    now = itertools.count(0, 10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: next(now))
        slow = Tries(Retries(9, 0.0, 5.0), lambda: "'x'")
        assert slow.pause_after(OSError("a")) == 0.0
        with pytest.raises(ReadError, match=r"'x' could not be read in 2 tries over 20\.0 s"):
            slow.pause_after(OSError("b"))
        quick = Tries(Retries(3, 0.0, 50.0), lambda: "'x'")
        assert [quick.pause_after(OSError("a")) for _ in range(3)] == [0.0] * 3


@pytest.mark.parametrize(
    ("status", "passes"), [(403, False), (404, False), (429, True), (503, True)]
)
def test_answers_of_http_that_last_are_not_asked_for_again(status, passes):
    error = Exception("answer")
    error.status = status
    assert is_passing(error) is passes


def test_a_time_limit_that_means_nothing_is_refused():
    nothing = {"daskclust.read-timeout": "0s"}
    with dask.config.set(nothing), pytest.raises(ValueError, match="read-timeout is '0s'; exp"):
        Retries.configured()
    with dask.config.set({"daskclust.read-timeout": None}):
        assert Retries.configured().timeout is None


@pytest.fixture
def deaf() -> Iterator[str]:
    """The host of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        taken: list[socket.socket] = []

        def take() -> None:
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        for connection in taken:
            connection.close()


@pytest.mark.parametrize("name", ["scene.zarr", "scene.tif", "scene.nc", "t.csv", "t.parquet"])
def test_a_server_that_never_answers_is_given_up_and_named(deaf, name):
    pytest.importorskip("aiohttp")
    pytest.importorskip("rioxarray", reason="needs the extra `raster`")
    opened = daskclust.open_cube
    if name.startswith("t."):
        pytest.importorskip("dask.dataframe", reason="needs the extra `dataframe`")
        opened = open_table
    began = time.monotonic()
    with (
        dask.config.set({"daskclust.read-timeout": "1s"}),
        pytest.raises((ReadError, OSError), match=f"127.0.0.1:.*{name}") as error,
    ):
        opened(f"http://me:hunter2@{deaf}/{name}?sig=SECRET")
    text = str(error.value)
    assert time.monotonic() - began < 300
    assert "hunter2" not in text
    assert "SECRET" not in text
    assert "\n" not in text
