"""Files are replaced as a whole, and what killed processes left is removed."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest

from daskclust.core.storage import atomic_write
from daskclust.core.storage.atomic_write import new_path, remove_stale, reserved
from daskclust.core.storage.outputs import lock_outputs, new_group

HOST = atomic_write.host()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "fit.npz"
    path.write_bytes(b"old")
    return path


def leftover(path, owner: str, age: float = 0.0):
    found = path.with_name(f".{path.name}.{owner}.partial")
    found.write_bytes(b"half")
    then = time.time() - age
    os.utime(found, (then, then))
    return found


def ended_process() -> int:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_a_file_is_replaced_whole(path):
    with new_path(path) as partial:
        partial.write_bytes(b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == ["fit.npz"]


def test_a_folder_that_is_removed_while_a_file_is_written(tmp_path):
    path = tmp_path / "out" / "map.tif"
    said = r"map\.tif' was not written, because its folder was removed"

    def write(partial):
        shutil.rmtree(path.parent)
        partial.write_bytes(b"half")

    with pytest.raises(FileNotFoundError, match=said), new_path(path) as partial:
        write(partial)


def test_an_error_while_writing_leaves_the_old_file_alone(path):
    def fail():
        with new_path(path) as partial:
            partial.write_bytes(b"half")
            raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        fail()
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["fit.npz"]


@pytest.mark.parametrize(
    ("owner", "age", "goes"),
    [
        (lambda: f"{HOST}-{ended_process()}-0123abcd", 0, True),
        (lambda: f"{HOST}-{os.getpid()}-0123abcd", 0, False),
        # The number of a process that is gone, taken over by one that began later.
        (lambda: f"{HOST}-{os.getpid()}-0123abcd", 1e6, True),
        (lambda: "elsewhere-1-0123abcd", 0, False),
        (lambda: "elsewhere-1-0123abcd", 1e4, True),
    ],
    ids=["gone", "alive", "number again", "other host", "old"],
)
def test_only_what_nobody_writes_is_removed(path, owner, age, goes):
    found = leftover(path, owner(), age)
    remove_stale(path)
    assert found.exists() != goes
    assert path.exists()


@pytest.mark.parametrize("more", [".aux.xml", ".gpkg", ".gpkg-journal"])
def test_what_libraries_write_beside_a_file_goes_with_it(path, more):
    owner = f"{HOST}-{ended_process()}-0123abcd"
    beside = path.with_name(f".{path.name}.{owner}.partial{more}")
    beside.write_bytes(b"half")
    remove_stale(path)
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("age", [1e4, 0])
def test_a_folder_of_another_host_in_which_something_is_written_stays(path, age):
    folder = path.with_name(f".{path.name}.elsewhere-1-0123abcd.partial")
    inner = folder / "labels" / "c"
    inner.mkdir(parents=True)
    (inner / "0").write_bytes(b"half")
    for item in (inner / "0", inner, inner.parent, folder):
        then = time.time() - (age if item.is_file() else 1e4)
        os.utime(item, (then, then))
    remove_stale(path)
    assert folder.exists() == (age == 0)


@pytest.mark.parametrize(
    "name", [".fit.npz.partial", ".fit.npz.mine.partial", ".fat.npz.a-1-0123abcd.partial"]
)
def test_files_of_others_stay(path, name):
    other = path.with_name(name)
    other.write_bytes(b"")
    os.utime(other, (0, 0))
    remove_stale(path)
    assert other.exists()


@pytest.mark.skipif(not os.path.exists("/proc/self/ns/pid"), reason="needs Linux")
def test_a_container_of_the_same_host_name_has_processes_of_its_own(path, monkeypatch):
    """Process 17 of another container is unknown here, so it does not count as dead."""
    with monkeypatch.context() as patch:
        real = os.stat

        def other(place, *args, **kwargs):
            found = real(place, *args, **kwargs)
            return os.stat_result((*found[:1], found.st_ino + 1, *found[2:]))

        patch.setattr(os, "stat", other)
        atomic_write.host.cache_clear()
        theirs = atomic_write.host()
    atomic_write.host.cache_clear()
    assert theirs != atomic_write.host() == HOST
    writing = leftover(path, f"{theirs}-{ended_process()}-0123abcd")
    mine = leftover(path, f"{HOST}-{ended_process()}-0123abcd")
    remove_stale(path)
    assert writing.exists()
    assert not mine.exists()
    # If it is older than the file by a minute, it is stale on any host.
    os.utime(writing, (time.time() - 100,) * 2)
    remove_stale(path)
    assert not writing.exists()


def test_what_a_task_writes_after_a_failure_goes_too(tmp_path):
    def cut_off() -> None:
        with new_path(tmp_path / "map.zarr") as partial:
            partial.mkdir()
            late.append(partial / "c" / "0")
            task.start()
            raise ValueError("cut off")

    def write() -> None:
        late[0].parent.mkdir(parents=True)
        late[0].write_bytes(b"late")

    late, task = [], threading.Timer(0.06, write)
    with pytest.raises(ValueError, match="cut off"):
        cut_off()
    task.join()
    assert not list(tmp_path.iterdir())


def test_a_full_disk_says_what_was_written(path):
    with pytest.raises(OSError, match=r"No space left.*fit\.npz'"), new_path(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match=r"^of another kind$"), new_path(path):
        raise OSError("of another kind")


@pytest.mark.skipif(os.name == "nt", reason="files are not locked there")
def test_a_place_is_kept_for_one_process(path, tmp_path):
    other = tmp_path / "made" / "map.zarr"
    with reserved([path, other, path]):
        who = rf"map.zarr' is being written by process {os.getpid()} on .*, since 20.*Wait for it"
        with pytest.raises(FileExistsError, match=who), reserved([other]):
            pass
    assert sorted(item.name for item in tmp_path.rglob("*")) == ["fit.npz", "made"]
    # Of a process that was killed the file stays, and the lock does not.
    killed = (
        "import os, pathlib, sys; from daskclust.core.storage.atomic_write import reserved\n"
        "with reserved([pathlib.Path(sys.argv[1])]): os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", killed, str(path)], check=False)
    assert (tmp_path / ".fit.npz.lock").exists()
    with reserved([path]):
        pass
    assert not (tmp_path / ".fit.npz.lock").exists()


@pytest.mark.skipif(os.name == "nt", reason="files are not locked there")
def test_of_two_processes_that_write_one_output_the_second_is_refused(tmp_path):
    """A map could get the classes of another map from the file next to it."""
    other = (
        "import sys; from daskclust.core.storage.outputs import new_group\n"
        "with new_group(sys.argv[1], kind='model', overwrite=True): pass"
    )
    command = [sys.executable, "-c", other, "a.zarr"]
    with lock_outputs([tmp_path / "a.zarr"]), new_group(tmp_path / "a.zarr", kind="model") as group:
        found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert f"a.zarr' is being written by process {os.getpid()} on " in found.stderr
        group.attrs["of"] = "the first"
    assert [item.name for item in tmp_path.iterdir()] == ["a.zarr"]
    subprocess.run(command, cwd=tmp_path, check=True)
