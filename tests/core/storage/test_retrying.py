"""Reads and writes are retried if they fail now and then, and given up in the end."""

from __future__ import annotations

import errno
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore

import daskclust
from daskclust.core.storage.retry import Retries, is_temporary, persistently, unwritten
from daskclust.core.storage.stored_array import StoredArray
from daskclust.core.storage.stores import arrays_of, open_store
from daskclust.exceptions import ReadError, StoreError
from daskclust.tables import open_table


@pytest.fixture(autouse=True)
def _hasty():
    with dask.config.set({"daskclust.read-backoff": "1ms", "scheduler": "sync"}):
        yield


class Unreliable(LocalStore):
    """Every read, and every write of a chunk, fails the first time."""

    made: set = set()  # noqa: RUF012

    def _fail(self, *request):
        if request not in Unreliable.made:
            Unreliable.made.add(request)
            raise ConnectionResetError("503: slow down")

    async def get(self, key, prototype=None, byte_range=None):
        self._fail("get", key)
        return await super().get(key, prototype, byte_range)

    async def set(self, key, value):
        if "/c/" in f"/{key}":
            self._fail("set", key)
        await super().set(key, value)


def test_stores_are_opened_read_and_written_whatever_fails_first(tmp_path):
    values = np.arange(12).reshape(3, 4)
    group = zarr.create_group(tmp_path)
    for name in ("one", "two"):
        group.create_array(name, shape=(3, 4), chunks=(2, 2), dtype="i8")
    Unreliable.made = set()
    found = arrays_of(open_store(Unreliable(tmp_path, read_only=False)))
    for array in found.values():
        stored = StoredArray(array)
        stored[:] = values
        np.testing.assert_array_equal(stored[:], values)
    assert sorted(found) == ["one", "two"]
    assert len(Unreliable.made) > 10


def test_a_failure_for_good_names_store_and_request(tmp_path):
    zarr.create_array(tmp_path / "b.zarr", shape=(4,), chunks=(2,), dtype="i4")

    class Closed(LocalStore):
        async def set(self, key, value):
            raise OSError(errno.EIO, "https://me:hunter2@host/x?sig=SECRET is closed")

        async def get(self, key, prototype=None, byte_range=None):
            if key.startswith("c"):
                raise ConnectionResetError("no")
            return await super().get(key, prototype, byte_range)

    with dask.config.set({"daskclust.read-retries": 2}):
        stored = StoredArray(open_store(Closed(tmp_path / "b.zarr")))
        with pytest.raises(StoreError, match=r"b\.zarr' at .* could not be written in 3") as error:
            stored[:2] = [1, 2]
        text = str(error.value)
        assert "\n" not in text
        assert "hunter2" not in text
        assert "SECRET" not in text
        with pytest.raises(ReadError, match=r"b\.zarr' at .*could not be read in 3 tries.*Reset"):
            stored[:2]
    with dask.config.set({"daskclust.read-retries": 0}), pytest.raises(OSError, match="is closed"):
        StoredArray(open_store(Closed(tmp_path / "b.zarr")))[:2] = [1, 2]


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError, KeyboardInterrupt])
def test_a_missing_file_fails_at_once(error):
    calls = []

    def call() -> None:
        calls.append(1)
        raise error("no")

    with pytest.raises(error, match="no"):
        persistently(call, lambda: "'x'", Retries(5, 60.0), unwritten, "written")
    assert len(calls) == 1


def test_a_store_that_does_not_answer_is_given_up(monkeypatch):
    now, slept = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", slept.append)

    def tries(retries: Retries, seconds: float) -> int:
        calls = itertools.count(1)

        def call() -> Any:
            next(calls)
            now[0] += seconds
            raise OSError("no")

        with pytest.raises(ReadError, match=r"'x' could not be read in \d+ tries"):
            persistently(call, lambda: "'x'", retries)
        return next(calls) - 1

    assert tries(Retries(9, 1.0, 5.0), 5.0) == 2
    assert slept == [1.0]
    assert tries(Retries(9, 1.0, 500.0), 5.0) == 10
    # The pauses double, up to 30 seconds.
    assert slept[1:] == [1, 2, 4, 8, 16, 30, 30, 30, 30]


@pytest.mark.parametrize(
    ("status", "passes"), [(403, False), (404, False), (429, True), (503, True)]
)
def test_answers_of_http_that_last_are_not_asked_for_again(status, passes):
    error = Exception("answer")
    error.status = status
    assert is_temporary(error) is passes


def test_a_time_limit_that_means_nothing_is_refused():
    nothing = {"daskclust.read-timeout": "0s"}
    with (
        dask.config.set(nothing),
        pytest.raises(
            ValueError,
            match=r"daskclust\.read-timeout must be a time above 0, such as '2 minutes', or",
        ),
    ):
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


@pytest.mark.parametrize("name", ["scene.zarr", "scene.tif", "t.parquet"])
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
