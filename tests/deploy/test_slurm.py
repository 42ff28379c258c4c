"""The SLURM templates, run on a real SLURM: time limits, requeueing, lost workers, resubmission."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

sys.path.insert(0, str(Path(__file__).parent))
import _slurm
from _slurm import job_field, run, wait_for

from daskclust.datasets import make_hyperspectral_cube

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "deploy" / "slurm"
#: Long enough to meet a time limit of a minute: clusters of noise, until nothing moves.
JOB = ["--estimator", "kmeans", "--n-clusters", "60", "--tol", "0", "--max-iter", "2000"]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    missing = _slurm.missing_programs()
    if missing and (os.getuid() != 0 or not Path("/usr/bin/apt-get").exists()):
        pytest.skip(f"no SLURM here ({', '.join(missing)}), and not allowed to install it")
    if os.getuid() != 0:
        pytest.skip("a SLURM of one's own needs the superuser")
    if missing:
        _slurm.install()
    with _slurm.slurm(tmp_path_factory.mktemp("slurm")) as folder:
        yield folder


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder that all jobs see, with a scene, and the map of an undisturbed fit."""
    folder = tmp_path_factory.mktemp("work")
    make_hyperspectral_cube(
        folder / "scene.zarr", shape=(500, 500), n_bands=60, chunks=(100, 100), random_state=0
    )
    subprocess.run(
        [sys.executable, "-m", "daskclust", "fit", str(folder / "scene.zarr"), *JOB, "--seed", "0",
         "--output", str(folder / "plain.zarr"), "--local", "2"],
        check=True,
        timeout=600,
        capture_output=True,
    )  # fmt: skip
    return folder


def environment(work: Path, name: str, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "DASKCLUST_RUN": str(work / name),
        "DASKCLUST_HOST": "127.0.0.1",
        "DASKCLUST_SHARED": str(work),
        "NUMBA_CACHE_DIR": str(work / "numba-cache"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        **more,
    }


def submit(work: Path, name: str, *options: str, **more: str) -> str:
    """Submit the template as a user would, and return the job's number."""
    done = subprocess.run(
        ["sbatch", "--parsable", "--ntasks=2", "--mem-per-cpu=1500M",
         f"--output={work}/{name}.out", *options, str(TEMPLATES / "daskclust.sbatch"),
         "fit", str(work / "scene.zarr"), *JOB, "--seed", "0",
         "--output", str(work / f"{name}.zarr")],
        env=environment(work, name, **more),
        cwd=work,
        capture_output=True,
        text=True,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def told(work: Path, name: str) -> str:
    log = work / f"{name}.out"
    return log.read_text() if log.exists() else ""


def finish(work: Path, name: str, timeout: float = 400) -> None:
    """Wait for a run's end, and compare its map with that of the undisturbed fit."""
    marker = work / name / "finished"
    wait_for(marker.exists, timeout)
    found = zarr.open_group(work / f"{name}.zarr", mode="r")["labels"][:]
    expected = zarr.open_group(work / "plain.zarr", mode="r")["labels"][:]
    np.testing.assert_array_equal(found, expected)
    assert not list(work.glob(f".{name}.zarr*")), "something unfinished is left"
    assert not (work / name / "checkpoint.npz").exists()


def ended(job: str):
    return lambda: job_field(job, "JobState") not in ("RUNNING", "PENDING", "COMPLETING")


def test_an_undisturbed_job(slurm, work):
    job = submit(work, "calm", "--time=10")
    finish(work, "calm")
    wait_for(ended(job), 60)
    assert job_field(job, "JobState") == "COMPLETED"


def test_the_time_limit_is_hit_and_the_job_goes_on_by_itself(slurm, work):
    job = submit(work, "limited", "--time=1", "--signal=B:USR1@20")
    wait_for(lambda: "The time is up" in told(work, "limited"), 150)
    wait_for(lambda: int(job_field(job, "Restarts")) >= 1, 60)
    # A requeued job waits two minutes otherwise.
    wait_for(lambda: job_field(job, "JobState") == "PENDING", 60)
    run("scontrol", "update", f"jobid={job}", "starttime=now", "timelimit=10")
    finish(work, "limited")
    assert "Going on from the checkpoint" in told(work, "limited")


def test_a_killed_worker_is_no_matter(slurm, work):
    submit(work, "wounded", "--time=10")
    wait_for(lambda: (work / "wounded" / "checkpoint.npz").exists(), 120)
    pattern = f"dask.worker.*{work / 'wounded'}"
    found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=False)
    victims = [int(word) for word in found.stdout.split()]
    assert victims
    # With its nanny: it does not come back.
    os.kill(victims[-1], 9)
    finish(work, "wounded")


def test_a_job_that_ended_at_its_limit_is_submitted_again_elsewhere(slurm, work):
    first = submit(work, "again", "--time=1", "--signal=B:USR1@20", DASKCLUST_REQUEUE="no")
    wait_for(ended(first), 200)
    assert (work / "again" / "checkpoint.npz").exists()
    # Another allocation: more workers, so another cluster.
    submit(work, "again", "--time=10", "--ntasks=3")
    finish(work, "again")
    assert "Going on from the checkpoint" in told(work, "again")
    # Submitted once too often: nothing is done twice.
    third = submit(work, "again", "--time=10")
    wait_for(ended(third), 60)
    assert job_field(third, "JobState") == "COMPLETED"
    assert "Finished before" in told(work, "again")


def test_a_chain_of_jobs(slurm, work):
    done = subprocess.run(
        [str(TEMPLATES / "chain.sh"), "3", "--ntasks=2", "--mem-per-cpu=1500M", "--time=1",
         "--signal=B:USR1@20", f"--output={work}/chain.out", "--",
         "fit", str(work / "scene.zarr"), *JOB, "--seed", "0",
         "--output", str(work / "chain.zarr")],
        env=environment(work, "chain"),
        cwd=work,
        capture_output=True,
        text=True,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    jobs = done.stdout.split()
    assert len(jobs) == 3
    assert "afterany" in job_field(jobs[1], "Dependency")
    for job in jobs[1:]:
        run("scontrol", "update", f"jobid={job}", "timelimit=10")
    finish(work, "chain")
