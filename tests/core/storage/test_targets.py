"""Outputs that are replaced, and outputs that never are: folders, URLs and stores in memory."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import dask
import fsspec
import numpy as np
import pytest
import zarr
from fsspec import AbstractFileSystem

import daskclust
from daskclust.core.storage.atomic_write import (
    hidden_sibling,
    new_path,
    put_in_place,
    remove_stale,
)
from daskclust.core.storage.outputs import Group, new_group
from daskclust.core.storage.stores import INCOMPLETE, open_store
from daskclust.exceptions import ModelFormatError
from daskclust.scenes import area_table

DIMS = ("y", "x", "band")


def cube(store: Any = None) -> Any:
    values = np.arange(4 * 4 * 2, dtype=np.int16).reshape(4, 4, 2)
    if store is None:
        return daskclust.open_cube(values, dims=DIMS)
    group = zarr.create_group(store)
    group.create_array("cube", data=values, chunks=(2, 2, 2), dimension_names=DIMS)
    return daskclust.open_cube(store)


@pytest.fixture(params=["folder", "url", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return a function that makes a target from a name."""
    mark = uuid.uuid4().hex
    stores: dict[str, Any] = {}

    def make(name: str) -> Any:
        if request.param == "folder":
            return tmp_path / name
        if request.param == "url":
            return f"memory://{mark}/{name}"
        return stores.setdefault(name, zarr.storage.MemoryStore())

    return make


def digest(target: Any) -> Any:
    if isinstance(target, Path):
        return {p: p.read_bytes() for p in sorted(target.rglob("*")) if p.is_file()}
    if isinstance(target, str):
        files = fsspec.filesystem("memory")
        return {name: files.cat(name) for name in files.find(target.removeprefix("memory:/"))}
    return {key: value.to_bytes() for key, value in target._store_dict.items()}


def test_only_our_own_of_the_same_kind_is_replaced(place: Any) -> None:
    labels, scene = np.zeros(16, int), cube()
    model = daskclust.KMeans(2, random_state=0).fit(np.arange(8.0)[:, None])
    scene.write_labels(labels, place("l.zarr"))
    model.save(place("m.zarr"))
    zarr.create_group(place("foreign.zarr")).create_array("labels", data=np.ones(3))
    before = {name: digest(place(name)) for name in ("l.zarr", "m.zarr", "foreign.zarr")}
    assert all(before.values())
    for name in before:
        with pytest.raises(FileExistsError, match="exists already"):
            scene.write_labels(labels, place(name))
        with pytest.raises(FileExistsError, match="exists already"):
            model.save(place(name))
    for name, reason in (("m.zarr", "is a model"), ("foreign.zarr", "was not written by")):
        with pytest.raises(FileExistsError, match=reason):
            scene.write_labels(labels, place(name), overwrite=True)
    for name, reason in (("l.zarr", "is a label map"), ("foreign.zarr", "was not written by")):
        with pytest.raises(FileExistsError, match=reason):
            model.save(place(name), overwrite=True)
        with pytest.raises(FileExistsError, match=reason):
            daskclust.datasets.make_hyperspectral_cube(
                place(name), shape=(4, 4), n_bands=2, overwrite=True
            )
    assert before == {name: digest(place(name)) for name in before}
    written = scene.write_labels(labels + 1, place("l.zarr"), overwrite=True)
    assert (np.asarray(written["labels"][:]) == 1).all()
    model.save(place("m.zarr"), overwrite=True)
    # Files that a user has added to our arrays belong to the user.
    zarr.open_group(place("l.zarr"), mode="a").create_array("notes", data=np.ones(3))
    with pytest.raises(FileExistsError, match="also contains 'notes'"):
        scene.write_labels(labels, place("l.zarr"), overwrite=True)


def test_what_is_no_zarr_is_never_deleted() -> None:
    files = fsspec.filesystem("memory")
    folder = f"/{uuid.uuid4().hex}"
    files.pipe(f"{folder}/raw/thesis.txt", b"ten years")
    model = daskclust.KMeans(2, random_state=0).fit(np.arange(8.0)[:, None])
    for overwrite in (False, True):
        for call in (
            lambda overwrite=overwrite: model.save(f"memory:/{folder}/raw", overwrite=overwrite),
            lambda overwrite=overwrite: cube().write_labels(
                np.zeros(16, int), f"memory:/{folder}/raw", overwrite=overwrite
            ),
        ):
            with pytest.raises(FileExistsError):
                call()
    assert files.cat(f"{folder}/raw/thesis.txt") == b"ten years"
    assert files.find(folder) == [f"{folder}/raw/thesis.txt"]


def test_a_cube_is_never_its_own_label_map(place: Any) -> None:
    target = place("scene.zarr")
    scene = cube(target)
    before = digest(target)
    for overwrite in (False, True):
        with pytest.raises((ValueError, FileExistsError), match=r"contains the cube|exists|writ"):
            scene.write_labels(np.zeros(16, int), target, overwrite=overwrite)
    assert digest(target) == before


def test_a_failure_leaves_nothing(place: Any) -> None:
    class Oops(Exception):
        pass

    def write() -> None:
        with new_group(place("x.zarr"), kind="label map") as group:
            group.create_array("a", data=np.ones(3))
            raise Oops

    with pytest.raises(Oops):
        write()
    assert digest(place("x.zarr")) == {}
    Group(place("x.zarr"), "label map").check()


class Dying(zarr.storage.MemoryStore):
    """A store whose client dies: from some request on, nothing is written or removed."""

    left = sys.maxsize

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise ConnectionAbortedError

    async def set(self, key: str, value: Any, byte_range: Any = None) -> None:
        self._count()
        await super().set(key, value)

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        self._count()
        await super().set_if_not_exists(key, value)

    async def delete(self, key: str) -> None:
        self._count()
        await super().delete(key)

    async def delete_dir(self, prefix: str) -> None:
        self._count()
        await super().delete_dir(prefix)


def write(store: Any, value: float, *, overwrite: bool = False, zarr_format: Any = 3) -> None:
    with new_group(
        store, kind="label map", overwrite=overwrite, consolidated=True, zarr_format=zarr_format
    ) as group:
        group.create_array("labels", data=np.full(4, value), chunks=(2,))
        group.create_array("y", data=np.full(3, value))


def kept(store: Any) -> set[float]:
    group = open_store(store)
    return {*group["labels"][:], *group["y"][:]}


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_writer_that_dies_leaves_the_old_group_or_an_incomplete_one(zarr_format: Any) -> None:
    """After any number of requests the place is as it was, or the next writer may replace it."""
    outcomes = set()
    with dask.config.set({"daskclust.read-retries": 0}):
        for count in range(99):
            store = Dying()
            write(store, 1, zarr_format=zarr_format)
            store.left = count
            try:
                write(store, 2, overwrite=True, zarr_format=zarr_format)
            except ConnectionAbortedError:
                store.left = sys.maxsize
            else:
                break
            try:
                outcomes.add(*kept(store))
                with pytest.raises(FileExistsError, match="exists already"):
                    write(store, 3)
                write(store, 3, overwrite=True)
            except (FileNotFoundError, KeyError, ValueError):
                # It is absent or incomplete: a requeued job runs.
                write(store, 3)
            assert kept(store) == {3}
    # The old group, or the new one without consolidated metadata.
    assert outcomes == {1, 2}


@pytest.mark.filterwarnings("ignore:Object at:zarr.errors.ZarrUserWarning")  # an empty folder
@pytest.mark.parametrize("kind", ["memory", "files"])
def test_incomplete_groups_of_obstore_are_replaced(kind: str, tmp_path: Path) -> None:
    module = pytest.importorskip("obstore.store", reason="obstore is not installed")
    inner = module.MemoryStore() if kind == "memory" else module.LocalStore(tmp_path)
    store = zarr.storage.ObjectStore(inner)
    zarr.create_group(store, attributes={INCOMPLETE: True}).create_array("old", data=np.ones(3))
    with pytest.raises(ValueError, match="is incomplete"):
        open_store(store)
    write(store, 2)
    assert kept(store) == {2}
    assert sorted(open_store(store)) == ["labels", "y"]
    with pytest.raises(FileExistsError, match="exists already"):
        write(store, 3)
    write(store, 3, overwrite=True)
    assert kept(store) == {3}


def test_an_incomplete_model_is_not_loaded_and_is_replaced() -> None:
    store = zarr.storage.MemoryStore()
    zarr.create_group(store, attributes={INCOMPLETE: True})
    with pytest.raises(ModelFormatError, match="its writer is still running or was stopped"):
        daskclust.load(store)
    model = daskclust.KMeans(2, random_state=0).fit([[0.0], [1.0], [5.0]])
    model.save(store)
    assert daskclust.load(store).cluster_centers_.tolist() == model.cluster_centers_.tolist()


def test_what_killed_writers_left_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a.zarr"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: ended.pid)
        for ending in ("partial", "old"):
            hidden_sibling(target, ending).mkdir()
    others = [tmp_path / ".a.zarr.notes.partial", tmp_path / ".b.zarr.0123456789ab.partial"]
    for other in others:
        other.mkdir()
    with new_group(target, kind="label map"):
        pass
    assert sorted(tmp_path.iterdir()) == sorted([target, *others])


def test_one_rename_for_files_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with new_path(tmp_path / "deep" / "a.txt") as partial:
        partial.write_text("new")
    assert (tmp_path / "deep" / "a.txt").read_text() == "new"

    def fail() -> None:
        with new_path(tmp_path / "deep" / "a.txt") as partial:
            partial.write_text("half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.txt"]
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
        (folder / folder.name).touch()
    rename, calls = Path.rename, []

    def fail_second(self: Path, to: Path) -> Path:
        calls.append(self)
        if len(calls) == 2:
            raise OSError("full")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", fail_second)
    with pytest.raises(OSError, match="full"):
        put_in_place(new, old)
    assert [path.name for path in old.iterdir()] == ["old"]
    monkeypatch.undo()
    put_in_place(new, old)
    assert [path.name for path in old.iterdir()] == ["new"]
    remove_stale(tmp_path / "nowhere" / "x")


class Noted(zarr.storage.LocalStore):
    """A store that somebody has made their own."""

    reads: list[str] = []  # noqa: RUF012

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        self.reads.append(key)
        return await super().get(key, prototype, byte_range)


def test_a_store_of_ones_own_stays_what_it_is(tmp_path: Path) -> None:
    cube(tmp_path / "scene.zarr")
    for read_only in (False, True):
        Noted.reads.clear()
        opened = daskclust.open_cube(Noted(tmp_path / "scene.zarr", read_only=read_only))
        assert type(opened.stored.array.store) is Noted
        assert opened.samples.compute().shape == (16, 2)
        assert "cube/c/0/0/0" in Noted.reads
    written = opened.write_labels(np.zeros(16, int), Noted(tmp_path / "l.zarr"))
    assert type(written.store) is Noted


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/a", "simplecache::https://127.0.0.1:9/a"])
def test_web_servers_are_refused_before_anything_is_computed(url: str, tmp_path: Path) -> None:
    from daskclust.app.report import write_report

    def fail(block: np.ndarray) -> np.ndarray:
        raise AssertionError("something was computed")

    data, model = cube(), daskclust.KMeans(2, random_state=0).fit(cube().samples)
    rows = model.labels_.map_blocks(fail, dtype=np.int32, meta=np.empty(0, np.int32))
    for work in (
        lambda: data.write_labels(rows, url),
        lambda: data.write_map(rows.astype(float), url),
        lambda: model.save(url),
        lambda: write_report(url, cube=data, model=model),
        lambda: daskclust.datasets.make_hyperspectral_cube(url, shape=(4, 4), n_bands=2),
        lambda: Group(zarr.storage.FsspecStore(Web()), "model", overwrite=True).check(),
    ):
        with pytest.raises(ValueError, match="on a web server, which can only be read"):
            work()


class Web(AbstractFileSystem):
    """As fsspec's of HTTP, which needs a package of its own."""

    protocol = ("http", "https")
    async_impl = True
    asynchronous = True


def test_a_url_is_no_folder_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"'s3:/bucket/areas\.csv' must be a path on this machine"):
        area_table(np.zeros((4, 4), int)).to_csv("s3://bucket/areas.csv")
    assert not list(tmp_path.iterdir())
