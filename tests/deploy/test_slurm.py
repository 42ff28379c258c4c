"""A real SLURM on this machine: a job meets its time limit and resumes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest
import zarr

sys.path.insert(0, str(Path(__file__).parent))
import _slurm
from _slurm import job_field, run, wait_for

from daskclust.datasets import make_hyperspectral_cube

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "deploy" / "slurm"
#: EM that never stands still: some seconds of as many iterations as are asked for.
JOB = ["--estimator", "gaussianmixture", "--n-clusters", "8", "--set", "tol=0",
       "--set", "max_iter=200", "--seed", "0"]  # fmt: skip
#: Seconds before the limit; SLURM often signals half a minute sooner.
SIGNAL = "--signal=B:USR1@60"
#: Seconds that nothing here takes, but where it hangs.
PATIENCE = 900.0


@dataclass(frozen=True)
class Work:
    """A folder that all jobs see, with a scene."""

    folder: Path

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    def fit(self, name: str) -> list[str]:
        """Words of the command that fits the scene."""
        words = ["fit", self / "scene.zarr", *JOB, "--output", self / f"{name}.zarr"]
        return [str(word) for word in words]

    def told(self, name: str) -> str:
        log = self / f"{name}.out"
        return log.read_text() if log.exists() else ""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory) -> Iterator[Path]:
    missing = _slurm.missing_programs()
    if os.getuid() != 0:
        pytest.skip("a SLURM of one's own needs the superuser")
    if missing and not Path("/usr/bin/apt-get").exists():
        pytest.skip(f"no SLURM here ({', '.join(missing)}), and no apt-get to install it")
    if missing:
        _slurm.install()
    with _slurm.slurm(tmp_path_factory.mktemp("slurm")) as folder:
        yield folder


def environment(work: Path, name: str, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "DASKCLUST_RUN": str(work / name),
        "DASKCLUST_HOST": "127.0.0.1",
        "DASKCLUST_SHARED": str(work.folder),
        "NUMBA_CACHE_DIR": str(work / "numba-cache"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": "1",
        # A scheduler may be slow to answer where much else runs.
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "300s",
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "300s",
        **more,
    }


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Work:
    folder = tmp_path_factory.mktemp("work")
    make_hyperspectral_cube(
        folder / "scene.zarr", shape=(120, 120), n_bands=12, chunks=(40, 40), random_state=0
    )
    return Work(folder)


def sbatch(
    work: Work,
    name: str,
    *words: str,
    script: str = "daskclust.sbatch",
    **more: str,
) -> str:
    """Submit a template as a user would, and return the job's number."""
    options = [word for word in words if word.startswith("--") and "=" in word]
    rest = list(words[len(options) :])
    if "#SBATCH --mem=" not in (TEMPLATES / script).read_text():
        # SLURM takes only one of `--mem` and `--mem-per-cpu`.
        options.append("--mem-per-cpu=1500M")
    done = subprocess.run(
        ["sbatch", "--parsable", "--ntasks=2", f"--output={work / name}.out",
         *options, str(TEMPLATES / script), *rest],
        env=environment(work, name, **more),
        cwd=work.folder,
        capture_output=True,
        text=True,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def stop_in_mid_fit(work: Work, name: str) -> None:
    """Stop the workers of a job, once it has a checkpoint."""
    wait_for((work / name / "checkpoint.npz").exists, PATIENCE, every=0.05)
    workers = workers_of(work / name)
    assert len(workers) == 2
    for nanny in workers:
        for process in (nanny, *nanny.children(recursive=True)):
            process.suspend()
    assert not (work / name / "finished").exists()


def limit_soon(job: str) -> None:
    """Set the time limit of a running job to one or two minutes from now."""
    hours, minutes, _ = job_field(job, "RunTime").split(":")
    run("scontrol", "update", f"jobid={job}", f"timelimit={60 * int(hours) + int(minutes) + 2}")


def labels(path: Path) -> np.ndarray:
    return np.asarray(zarr.open_group(path, mode="r")["labels"][:])


def ended(job: str):
    return lambda: job_field(job, "JobState") not in ("RUNNING", "PENDING", "COMPLETING")


def go_on_now(job: str) -> None:
    """Let a job that was queued again start now; it would wait for two minutes."""
    wait_for(lambda: int(job_field(job, "Restarts")) >= 1, 120)
    wait_for(lambda: job_field(job, "JobState") == "PENDING", 120)
    run("scontrol", "update", f"jobid={job}", "starttime=now", "timelimit=20")


def workers_of(run_folder: Path) -> list[psutil.Process]:
    """Return the processes `dask worker` of a run, which are nannies."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()
            here = any(word.startswith(f"{run_folder}/scheduler") for word in words)
            # Neither srun nor the shell that starts them.
            if here and "worker" in words and Path(words[0]).name not in ("srun", "bash"):
                found.append(process)
    return found


def test_a_job_meets_its_time_limit_and_resumes_by_itself(slurm, work):
    job = sbatch(work, "limited", "--time=20", SIGNAL, *work.fit("limited"))
    stop_in_mid_fit(work, "limited")
    limit_soon(job)
    wait_for(lambda: "The time is up" in work.told("limited"), 300)
    go_on_now(job)
    try:
        wait_for((work / "limited" / "finished").exists, PATIENCE)
    except AssertionError:
        raise AssertionError(work.told("limited")) from None
    assert int(job_field(job, "Restarts")) == 1
    assert "Resuming from the checkpoint" in work.told("limited")
    done = subprocess.run(
        [sys.executable, "-m", "daskclust", *work.fit("plain"), "--local", "2"],
        env=environment(work, "plain"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(labels(work / "limited.zarr"), labels(work / "plain.zarr"))
    assert not list(work.folder.glob(".limited.zarr*")), "an unfinished map remains"
    # A job that is submitted once more computes nothing.
    again = sbatch(work, "limited", "--time=20", *work.fit("limited"))
    wait_for(ended(again), 60)
    assert job_field(again, "JobState") == "COMPLETED"
    assert "Finished before" in work.told("limited")
