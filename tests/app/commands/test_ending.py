"""Commands that are ended by a signal: the code, the time, what is left, and going on."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from numpy.testing import assert_array_equal
from test_commands import labels_in

import daskclust
from daskclust.core.storage.atomic_write import hidden_sibling

ROOT = Path(__file__).resolve().parents[3]
MARK = "DASKCLUST_TEST_RUN"
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are other things on Windows")


class Command:
    """A command in a session of its own, whose words are read as they come."""

    def __init__(self, *arguments: str, cwd: Path, **environment: str) -> None:
        self.mark = uuid.uuid4().hex
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "daskclust", *arguments],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": path, MARK: self.mark, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.err = ""
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                self.err += line
                self._lines.put(line)
        self._lines.put(None)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            line = self._lines.get(timeout=600)
            assert line is not None, self.err
            if text in line:
                return
        raise AssertionError(self.err)

    def end(self, signum: int) -> None:
        """Send a signal to the command alone, and wait; a busy machine takes some seconds."""
        self.process.send_signal(signum)
        self.process.wait(300)

    def finish(self) -> int:
        self.process.wait(300)
        self._reader.join(300)
        return self.process.returncode

    def left_behind(self, seconds: float = 5.0) -> list[str]:
        deadline = time.monotonic() + seconds
        while True:
            found = []
            for process in psutil.process_iter():
                try:
                    marked = process.environ().get(MARK) == self.mark
                    if marked and process.status() != psutil.STATUS_ZOMBIE:
                        found.append(" ".join(process.cmdline()))
                except psutil.Error:
                    continue
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.1)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ending") / "scene.zarr"
    daskclust.datasets.make_hyperspectral_cube(
        path, shape=(60, 60), n_bands=12, n_classes=3, chunks=(12, 12), random_state=0
    )
    return path


def job(scene: Path, *more: str, n_init: int = 20) -> tuple[str, ...]:
    return (
        *("fit", str(scene), "--estimator", "kmeans", "--n-clusters", "9", "--set", "tol=0"),
        *("--set", "init=random", "--set", f"n_init={n_init}", "--set", "max_iter=1000"),
        *("--output", "l.zarr", *more),
    )


@pytest.mark.parametrize(
    ("signum", "code", "word", "moment"),
    [
        (signal.SIGTERM, 143, "terminated", "writing"),
        pytest.param(signal.SIGHUP, 129, "hung up", "iterating", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, "interrupted", "iterating", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, "interrupted", "writing", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, "terminated", "iterating", marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 129, "hung up", "writing", marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_a_fit_and_the_same_command_goes_on(
    scene: Path,
    tmp_path: Path,
    said: Callable[..., tuple[int, str, str]],
    address: str,
    signum: int,
    code: int,
    word: str,
    moment: str,
) -> None:
    # A fit that is interrupted lasts a while; one that is waited for need not.
    n_init = {"iterating": 20, "writing": 2}[moment]
    run = Command(*job(scene, "--local", "1", n_init=n_init), cwd=tmp_path)
    run.wait_for({"iterating": "KMeans ...", "writing": "Maps ..."}[moment])
    if moment == "iterating":
        deadline = time.monotonic() + 300
        while not list(tmp_path.glob(".*.checkpoint.npz")) and time.monotonic() < deadline:
            time.sleep(0.02)
    run.end(signum)
    assert run.finish() == code, run.err
    assert run.left_behind() == []
    lines = run.err.splitlines()
    assert "the same command resumes from it" in run.err
    assert lines[-1] == f"daskclust: {word}"
    assert "Traceback" not in run.err
    assert not (tmp_path / "l.zarr").exists()
    # Run in another way: it is the same job.
    again = job(scene, "--scheduler", address, "--title", "Again", n_init=n_init)
    code, _, err = said(*again)
    assert code == 0, err
    assert "Resuming from the checkpoint" in err
    assert [path.name for path in tmp_path.iterdir()] == ["l.zarr"]
    cube = daskclust.open_cube(scene)
    whole = daskclust.KMeans(9, tol=0, init="random", n_init=n_init, max_iter=1000, random_state=0)
    expected = cube.to_map(whole.fit(cube.samples).labels_).compute()
    assert_array_equal(labels_in(tmp_path / "l.zarr"), expected)


@pytest.mark.parametrize(
    ("signum", "seconds"),
    [
        (signal.SIGINT, 1.0),
        pytest.param(signal.SIGINT, 5.0, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 3.0, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 6.0, marks=pytest.mark.slow),
    ],
)
def test_a_signal_before_there_is_a_cluster(
    scene: Path, tmp_path: Path, signum: int, seconds: float
) -> None:
    run = Command(*job(scene, "--local", "2"), cwd=tmp_path)
    time.sleep(seconds)
    run.end(signum)
    # While Python imports the package, a signal ends the process as in any Python program.
    code = run.finish()
    assert code in {128 + signum, -signum}, run.err
    if code > 0:
        assert "Traceback" not in run.err
    assert run.left_behind() == []
    # After 6 s a fast machine may have written the map: whole, then.
    assert not list(tmp_path.glob("*.partial"))
    if (tmp_path / "l.zarr").exists():
        assert set(range(9)) <= set(np.unique(labels_in(tmp_path / "l.zarr")).tolist())


def test_ctrl_c_in_a_terminal_reaches_no_worker(scene: Path, tmp_path: Path) -> None:
    run = Command(*job(scene, "--local", "2"), cwd=tmp_path)
    run.wait_for("KMeans ...")
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.finish() == 130, run.err
    assert "Traceback" not in run.err
    assert "distributed" not in run.err
    assert run.left_behind() == []


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    # nohup asks for that.
    code = (
        "import signal, os, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from daskclust.app.cli import _signals_raise\n"
        "with _signals_raise():\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    print('still here')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "still here\n"


@pytest.mark.slow
def test_a_killed_run_leaves_nothing_after_the_next(
    scene: Path, tmp_path: Path, said: Callable[..., tuple[int, str, str]], address: str
) -> None:
    words = job(scene, "--model", "m.zarr", "--report", "r.html", n_init=2)
    run = Command(*words, "--local", "1", cwd=tmp_path)
    run.wait_for("Maps: ")
    run.process.kill()
    run.finish()
    # What an earlier kill, and another job for the same output, have left.
    hidden_sibling(tmp_path / "l.zarr", "partial").mkdir()
    hidden_sibling(tmp_path / "r.html", "partial").touch()
    for path in tmp_path.glob(f".*-{os.getpid()}-*.partial"):
        path.rename(path.with_name(path.name.replace(str(os.getpid()), str(run.process.pid))))
    (tmp_path / ".l.zarr.0123456789abcdef.checkpoint.npz").touch()
    (tmp_path / ".l.zarr.notes").touch()
    # Its label map is its own: no --overwrite.
    code, _, err = said(*words, "--scheduler", address)
    assert code == 0, err
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".l.zarr.notes", "l.zarr", "m.zarr", "r.html"]
    # Another job is refused them.
    code, _, err = said(*words, "--scheduler", address, "--seed", "1")
    assert code == 1
    assert "l.zarr" in err.splitlines()[-1]
    assert "exists already" in err
