"""Two writers of one place of a store that cannot rename: one of them, whole, or an error."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
import zarr
from zarr.abc.store import Store
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import daskclust
from daskclust.exceptions import ModelFormatError
from daskclust.storage import claims
from daskclust.storage.claims import CLAIM, Claim, LostClaimError
from daskclust.storage.outputs import Group, new_group, resolve
from daskclust.storage.stores import creates_alone, open_store
from tests.helpers import Writer, within


class LooksFirst(zarr.storage.MemoryStore):
    """A store that has no request to create an object and to fail where there is one."""

    set_if_not_exists = Store.set_if_not_exists


def url() -> str:
    return f"memory://{uuid.uuid4().hex}/x.zarr"


def url_of_plain_files() -> Any:
    """A file system that looks whether a file is there, and writes it then."""

    class Plain(type(fsspec.filesystem("memory"))):  # type: ignore[misc]
        store: dict[str, Any] = {}  # noqa: RUF012
        pseudo_dirs = [""]  # noqa: RUF012
        pipe_file = fsspec.AbstractFileSystem.pipe_file

    files = fsspec.implementations.asyn_wrapper.AsyncFileSystemWrapper(Plain(), asynchronous=True)
    return zarr.storage.FsspecStore(files, path="/x.zarr")


def obstore(kind: str, *where: Path) -> Any:
    module = pytest.importorskip("obstore.store", reason="obstore is not installed")
    return zarr.storage.ObjectStore(getattr(module, kind)(*where))


KINDS = ["url", "plain url", "store", "looks first", "obstore", "obstore files"]


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(claims, "_MOMENT", 0.05)
    made: dict[str, Callable[[], Any]] = {
        "url": url,
        "plain url": url_of_plain_files,
        "store": zarr.storage.MemoryStore,
        "looks first": LooksFirst,
        "obstore": lambda: obstore("MemoryStore"),
        "obstore files": lambda: obstore("LocalStore", tmp_path),
    }
    found = made[request.param]()
    assert creates_alone(resolve(found)[0]) == (request.param not in ("plain url", "looks first"))
    return found


def keys(target: Any) -> list[str]:
    async def found() -> list[str]:
        store, inner = resolve(target)
        return [key async for key in store.list_prefix(inner)]

    return sync(found())


def put(target: Any, key: str, text: str) -> None:
    store, inner = resolve(target)
    value = default_buffer_prototype().buffer.from_bytes(text.encode())
    sync(store.set(f"{inner}/{key}".lstrip("/"), value))


def values(target: Any) -> list[float]:
    return list(open_store(target)["labels"][:])


class Job:
    """A writer of eight chunks of one value, in two halves."""

    def __init__(self, target: Any, value: float, *, overwrite: bool = False) -> None:
        self.value = value
        self.writing = new_group(target, kind="label map", overwrite=overwrite)
        self.group = self.writing.__enter__()
        config: Any = {"write_empty_chunks": True}
        self.labels = self.group.create_array(
            "labels", shape=(8,), chunks=(1,), dtype="f8", config=config
        )
        self.labels[:4] = value

    def end(self) -> None:
        try:
            self.labels[4:] = self.value
        except BaseException as error:
            if not self.writing.__exit__(type(error), error, error.__traceback__):
                raise
        else:
            self.writing.__exit__(None, None, None)


def leave(target: Any, *, heard: float | None, **said: Any) -> None:
    """Leave what a writer leaves that is killed in the middle."""
    job = Job(target, 1)
    claim = replace(job.group.store.claim, **said)
    # The process of this test lives: what lies there is put back when it has ended.
    store, inner = resolve(target)
    left = {key: sync(store.get(key, default_buffer_prototype())) for key in keys(target)}
    job.end()
    sync(store.delete_dir(inner))
    for key, value in left.items():
        if CLAIM not in key:
            sync(store.set(key, value))
    put(target, CLAIM, json.dumps(asdict(claim)))
    if heard is not None:
        put(target, f"{CLAIM}-{claim.token}", str(time.time() - heard))


GONE = {"process": 2**22 + 1}  # larger than any of this system
ELSEWHERE = {"host": "elsewhere_0123", "machine": "node7", "process": 12}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_single_writer_leaves_no_claim(target: Any, overwrite: bool) -> None:
    for value in (1, 2)[: 1 + overwrite]:
        Job(target, value, overwrite=overwrite).end()
        assert values(target) == [value] * 8
        assert not [key for key in keys(target) if CLAIM in key]


def test_who_comes_second_is_refused_and_changes_nothing(target: Any) -> None:
    first = Job(target, 1)
    for refused in (lambda: Job(target, 2), Group(target, "label map").check):
        with pytest.raises(FileExistsError, match=r"being written by process \d+ on .*, since 20"):
            refused()
    first.end()
    assert values(target) == [1] * 8
    assert not [key for key in keys(target) if CLAIM in key]


@pytest.mark.parametrize("last", ["first", "second"])
def test_overwrite_takes_the_place_of_a_writer_that_lives(target: Any, last: str) -> None:
    first = Job(target, 1)
    second = Job(target, 2, overwrite=True)
    if last == "first":
        second.end()
    with pytest.raises(LostClaimError, match=r"taken over by .*process"):
        first.end()
    if last == "second":
        with pytest.raises(ValueError, match="incomplete"):
            open_store(target)
        second.end()
    assert values(target) == [2] * 8
    assert not [key for key in keys(target) if CLAIM in key]


@pytest.mark.parametrize("last", ["first", "second"])
def test_a_write_that_comes_too_late_is_never_taken_for_whole(
    monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """A chunk of the first writer is on its way while the second takes over and begins."""
    monkeypatch.setattr(claims, "_MOMENT", 0.05)
    jobs: list[Job] = []

    class Slow(zarr.storage.MemoryStore):
        async def set(self, key: str, value: Any, byte_range: Any = None) -> None:
            if key == "labels/c/6" and not jobs:
                jobs.append(None)  # type: ignore[arg-type]

                def begin() -> None:
                    jobs[0] = Job(self, 2, overwrite=True)
                    if last == "first":
                        jobs[0].end()
                        assert values(self) == [2] * 8

                # In this loop of events its requests would wait for this one.
                await asyncio.to_thread(begin)
            await super().set(key, value)

    target = Slow()
    with pytest.raises(LostClaimError):
        Job(target, 1).end()
    if last == "second":
        with pytest.raises(LostClaimError):
            jobs[0].end()
    with pytest.raises(ValueError, match="incomplete"):
        open_store(target)
    # Nothing is to be removed by hand.
    Job(target, 3).end()
    assert values(target) == [3] * 8


@pytest.mark.parametrize("said", [GONE, {**ELSEWHERE, "since": 1.0}])
def test_who_is_gone_is_cleared_away(target: Any, said: dict[str, Any]) -> None:
    leave(target, heard=700, **said)
    with pytest.raises(ValueError, match="incomplete"):
        open_store(target)
    Job(target, 2).end()
    assert values(target) == [2] * 8
    assert not [key for key in keys(target) if CLAIM in key]


@pytest.mark.parametrize("said", [{}, ELSEWHERE, {**ELSEWHERE, "since": 1.0}])
def test_who_may_live_is_left_alone_unless_told(target: Any, said: dict[str, Any]) -> None:
    leave(target, heard=500, **said)
    before = sorted(keys(target))
    with pytest.raises(FileExistsError, match="being written by process"):
        Job(target, 2)
    assert sorted(keys(target)) == before
    Job(target, 3, overwrite=True).end()
    assert values(target) == [3] * 8
    assert not [key for key in keys(target) if CLAIM in key]


def test_who_was_killed_before_it_began_has_removed_nothing(target: Any) -> None:
    Job(target, 1).end()
    put(target, CLAIM, json.dumps(asdict(replace(Claim.of_this_process(), **GONE))))
    with pytest.raises(FileExistsError, match="exists already"):
        Job(target, 2)
    assert values(target) == [1] * 8
    store, inner = resolve(target)
    zarr.open_group(store, path=inner, mode="a").create_array("notes", shape=(3,), dtype="i4")
    with pytest.raises(FileExistsError, match="also holds 'notes'"):
        Job(target, 2, overwrite=True)
    assert values(target) == [1] * 8


def test_what_a_writer_without_claims_left_is_replaced_if_asked(target: Any) -> None:
    group = zarr.create_group(resolve(target)[0], attributes={"daskclust:incomplete": True})
    group.create_array("labels", shape=(3,), dtype="i4")
    with pytest.raises(FileExistsError, match="exists already"):
        Job(target, 2)
    Job(target, 2, overwrite=True).end()
    assert values(target) == [2] * 8


def test_a_writer_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_BEAT", 0.02)
    target = zarr.storage.MemoryStore()
    job = Job(target, 1)
    heard = set()

    def listen() -> None:
        while len(heard) < 3:
            held = claims.holder(target, "")
            assert held is not None
            heard.add(held.heard)
            time.sleep(0.01)

    within(60, listen)
    job.end()
    threads = {thread.name for thread in threading.enumerate()}
    assert not [name for name in threads if "beat" in name]
    assert not [key for key in keys(target) if CLAIM in key]


def test_many_writers_at_once(target: Any) -> None:
    """Threads that start together: exactly one writes, the others are refused before they do."""
    together = threading.Barrier(4)
    told: list[str] = []

    def write(value: float) -> None:
        together.wait()
        try:
            Job(target, value).end()
            told.append("whole")
        except (FileExistsError, LostClaimError) as error:
            told.append(type(error).__name__)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(told) == 4
    assert Counter(told)["whole"] == 1, told
    assert len(set(values(target))) == 1


def test_an_unfinished_model_is_not_loaded_and_replaced() -> None:
    target = zarr.storage.MemoryStore()
    leave(target, heard=0, **GONE)
    with pytest.raises(ModelFormatError, match="its writer stopped before the end"):
        daskclust.load(target)
    other = zarr.storage.MemoryStore()
    leave(other, heard=0)
    with pytest.raises(ModelFormatError, match=r"it is being written by process \d+ on .*wait"):
        daskclust.load(other)
    model = daskclust.KMeans(2, random_state=0).fit([[0.0], [1.0], [5.0]])
    model.save(target)
    assert daskclust.load(target).cluster_centers_.tolist() == model.cluster_centers_.tolist()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("obstore.store", reason="obstore is not installed")
    return tmp_path


@contextmanager
def writers(*jobs: Writer) -> Iterator[tuple[Writer, ...]]:
    try:
        yield jobs
    finally:
        for job in jobs:
            job.kill()


@pytest.mark.parametrize("overwrite", [False, True])
def test_two_processes(folder: Path, overwrite: bool) -> None:
    with writers(Writer(folder, 1), Writer(folder, 2, overwrite=overwrite)) as (first, second):
        assert first.go_on().said() == "half"
        # The second ends first: by a refusal, or whole in the place of the first.
        found = second.go_on().said()
        if overwrite:
            assert found == "half"
            assert second.go_on().said() == "whole"
            assert first.go_on().said().startswith("LostClaimError")
        else:
            assert found.startswith("FileExistsError")
            assert first.go_on().said() == "whole"
    assert values(obstore("LocalStore", folder)) == [2 if overwrite else 1] * 8


def test_a_process_that_was_killed(folder: Path) -> None:
    with writers(Writer(folder, 1), Writer(folder, 2)) as (first, second):
        assert first.go_on().said() == "half"
        first.kill()
        with pytest.raises(ValueError, match="incomplete"):
            open_store(obstore("LocalStore", folder))
        assert second.go_on().said() == "half"
        assert second.go_on().said() == "whole"
    assert values(obstore("LocalStore", folder)) == [2] * 8
