"""The command line, as a user runs it: exit codes, streams, files, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import zarr
from sklearn.metrics import adjusted_rand_score

import daskclust
from daskclust.app import cli
from daskclust.app.commands import doctor
from daskclust.app.commands.demo import LABELS, PICTURE, REPORT, SCENE
from daskclust.core.storage.outputs import Output, Written

ROOT = Path(__file__).resolve().parents[3]
SMALL = ("--size", "64", "80", "40", "--seed", "3")
MARK = "DASKCLUST_TEST_RUN"
#: Before each line of a log.
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}"


class Run:
    """A run of the command in a process of its own, whose descendants can be found."""

    def __init__(self, *arguments: str, cwd: Path, program: tuple[str, ...] | None = None) -> None:
        self.mark = uuid.uuid4().hex
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [*(program or (sys.executable, "-m", "daskclust")), *arguments],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": path, MARK: self.mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(self) -> Run:
        self.out, self.err = self.process.communicate(timeout=900)
        self.code = self.process.returncode
        return self

    def left_behind(self) -> list[psutil.Process]:
        """Return the live processes that this run started and that outlive it."""
        found = []
        for _ in range(600):
            found = []
            for process in psutil.process_iter():
                try:
                    marked = process.environ().get(MARK) == self.mark
                    if marked and process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
                except psutil.Error:
                    continue
            if not found:
                break
            time.sleep(0.1)
        return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def demo(folder: Path) -> Run:
    # As pip's console script does it: worker processes import this file again.
    script = folder / "daskclust-script.py"
    script.write_text(
        "import sys\nfrom daskclust.app.cli import main\n"
        "if __name__ == '__main__':\n    sys.exit(main())\n"
    )
    return Run(
        *("demo", "--json", "--local", "2", "--output", "out", *SMALL),
        cwd=folder,
        program=(sys.executable, str(script)),
    ).finish()


def test_demo_ends_well_and_leaves_no_process(demo: Run) -> None:
    assert demo.code == 0, demo.err
    assert demo.left_behind() == []


def test_demo_reports_in_json(demo: Run, folder: Path) -> None:
    report = json.loads(demo.out)
    assert report == json.loads((folder / "out" / REPORT).read_text())
    assert report["shape"] == [64, 80, 40]
    assert report["workers"] == 2
    results = report["results"]
    assert results["PCSKMeans"]["ari"] > results["KMeans"]["ari"]


def test_demo_writes_everything(demo: Run, folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["daskclust-script.py", "out"]
    names = sorted(path.name for path in (folder / "out").iterdir())
    assert names == sorted([SCENE, LABELS, PICTURE, REPORT])
    assert (folder / "out" / PICTURE).read_bytes().startswith(b"\x89PNG")


def test_label_map_is_aligned_with_the_scene(demo: Run, folder: Path) -> None:
    truth = zarr.open_group(folder / "out" / SCENE, mode="r")["truth"][:]
    labels = zarr.open_group(folder / "out" / LABELS, mode="r")["labels"]
    assert labels.shape == (64, 80)
    assert labels.attrs["_ARRAY_DIMENSIONS"] == ["y", "x"]
    np.testing.assert_array_equal(labels[:] == -1, truth == -1)
    # Scrambled rows would agree by chance only.
    valid = truth >= 0
    score = adjusted_rand_score(truth[valid], labels[:][valid])
    assert score > 0.5
    assert score == pytest.approx(json.loads(demo.out)["results"]["PCSKMeans"]["ari"], abs=0.02)


def test_refuses_to_overwrite(
    demo: Run, folder: Path, said: Callable[..., tuple[int, str, str]]
) -> None:
    before = (folder / "out" / REPORT).stat().st_mtime_ns
    code, out, err = said("demo", "--output", folder / "out", *SMALL)
    assert code == 1
    assert err.count("\n") == 1
    assert "exists already" in err
    assert "--overwrite" in err
    assert not out
    assert (folder / "out" / REPORT).stat().st_mtime_ns == before


class Letters(Output):
    takes_empty = True

    def written(self) -> Written:
        return Written(self.kind, members=("a",))


def test_folder_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "out"
    with Letters(path, "letters").new() as folder:
        folder.mkdir()
        (folder / "a").write_text("1")
        assert not path.exists()
    assert (path / "a").read_text() == "1"
    with pytest.raises(FileExistsError), Letters(path, "letters").new():
        pass
    with pytest.raises(KeyboardInterrupt):
        _write_and_stop(path)
    assert (path / "a").read_text() == "1"
    with Letters(path, "letters", overwrite=True).new() as folder:
        folder.mkdir()
        (folder / "a").write_text("3")
    assert (path / "a").read_text() == "3"
    assert [item.name for item in path.parent.iterdir()] == ["out"]


def _write_and_stop(path: Path) -> None:
    with Letters(path, "letters", overwrite=True).new() as folder:
        folder.mkdir()
        (folder / "a").write_text("2")
        raise KeyboardInterrupt


def test_ctrl_c_that_a_library_makes_another_error_of(
    said: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(options: Any) -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as stop:  # as a module in C that is being imported
            raise ImportError("initialization failed") from stop
        return 0

    monkeypatch.setattr(doctor, "_run", run)
    assert said("doctor") == (130, "", "daskclust: interrupted\n")


def test_the_version_is_said_without_loading_what_commands_need() -> None:
    code = (
        "import sys\n"
        "from daskclust.app import cli\n"
        "assert cli.main(['--version']) == 0\n"
        "assert not {'numba', 'scipy', 'zarr', 'distributed', 'dask.array'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"daskclust {daskclust.__version__}"
    assert cli.main(["demo", "--help"]) == 0
    assert "--size" in capsys.readouterr().out


#: Says a line of progress and a result as commands do, and loads a tenth of what they load.
SAYS = (
    "import sys; from daskclust.app import cli\n"
    "from daskclust.app.commands.console import Progress\n"
    "cli._run = lambda *_: Progress().say('working') or print('found') or 0\n"
    "sys.exit(cli.main())"
)


@pytest.mark.skipif(os.name == "nt", reason="shells and /dev/full are other things on Windows")
@pytest.mark.parametrize(
    ("streams", "code", "said"),
    [
        ("2>&-", 0, ""),
        (">&- 2>&- <&-", 0, ""),
        pytest.param(
            ">/dev/full",
            1,
            "daskclust: error: results cannot be written to standard output (No space left on "
            "device).\n",
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device"),
        ),
    ],
)
@pytest.mark.parametrize("unbuffered", [""])
def test_standard_streams_that_are_closed_or_full(streams, code, said, unbuffered, tmp_path):
    words = f"-c {shlex.quote(SAYS)}"
    if streams.startswith(">&-") and not unbuffered:  # a whole command, once
        np.save(tmp_path / "cube.npy", np.ones((3, 4, 2)))
        words = "-m daskclust inspect cube.npy --dims y,x,band"
    found = subprocess.run(
        f"{sys.executable} {words} {streams}",
        shell=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == code, found.stderr
    lines = found.stderr.splitlines(keepends=True)
    told = "".join(line for line in lines if not re.match(TIME, line))
    # Without buffers the print itself fails.
    assert told == said or (unbuffered and said and "No space left on device" in told)
