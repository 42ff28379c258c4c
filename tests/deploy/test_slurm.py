"""The SLURM templates, run on a real SLURM: time limits, requeueing, lost workers, resubmission.

No job needs to last: workers of one that is to meet its time limit are stopped (SIGSTOP) once it
has a checkpoint, and the limit is then set to a minute or two from there.  So SLURM's own timer
ends it in mid-fit on any machine, and nothing computes till then.
"""

from __future__ import annotations

import json
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
JOB = ["--estimator", "gaussianmixture", "--n-components", "8", "--tol", "0", "--max-iter", "200",
       "--seed", "0"]  # fmt: skip
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


@dataclass(frozen=True)
class Limited:
    """Jobs that meet their time limit, by the tests that want them; and the map they must make."""

    jobs: dict[str, list[str]]
    expected: np.ndarray


def by_itself(work: Work) -> list[str]:
    return [sbatch(work, "by_itself", "--time=20", SIGNAL, *work.fit("by_itself"))]


def by_hand(work: Work) -> list[str]:
    # Without a signal before the limit: SLURM ends it.
    return [sbatch(work, "by_hand", "--time=20", "--signal=B:CONT@1", *work.fit("by_hand"))]


def chain(work: Work) -> list[str]:
    done = subprocess.run(
        [str(TEMPLATES / "chain.sh"), "3", "--ntasks=2", "--mem-per-cpu=1500M", "--time=20",
         SIGNAL, f"--output={work / 'chain'}.out", "--", *work.fit("chain")],
        env=environment(work, "chain"),
        cwd=work.folder,
        capture_output=True,
        text=True,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    jobs = done.stdout.split()
    assert len(jobs) == 3
    assert f"afterany:{jobs[0]}" in job_field(jobs[1], "Dependency")
    return jobs


@pytest.fixture(scope="module")
def undisturbed(slurm, work) -> np.ndarray:
    """The map of a short job that nothing happens to."""
    job = sbatch(work, "calm", "--time=20", *work.fit("calm"))
    wait_for(ended(job), PATIENCE)
    assert job_field(job, "JobState") == "COMPLETED", work.told("calm")
    return labels(work / "calm.zarr")


@pytest.fixture(scope="module")
def limited(request, slurm, work, undisturbed) -> Limited:
    """Fits that meet their time limit, side by side, in mid-fit."""
    # Those of the tests that were asked for.
    asked = {item.name for item in request.session.items}
    submits = {
        test_the_time_limit_is_hit_and_the_job_goes_on_by_itself: by_itself,
        test_a_job_that_slurm_ended_is_submitted_again_elsewhere: by_hand,
        test_a_chain_of_jobs: chain,
    }
    jobs = {}
    for test, submit in submits.items():
        if test.__name__ in asked:
            jobs[submit.__name__] = submit(work)
            stop_in_mid_fit(work, submit.__name__)
            limit_soon(jobs[submit.__name__][0])
    return Limited(jobs, undisturbed)


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


def finish(work: Work, name: str, expected: np.ndarray) -> None:
    """Wait for a run's end, and compare its map with that of the undisturbed fit."""
    try:
        wait_for((work / name / "finished").exists, PATIENCE)
    except AssertionError:
        raise AssertionError(work.told(name)) from None
    np.testing.assert_array_equal(labels(work / f"{name}.zarr"), expected)
    assert not list(work.folder.glob(f".{name}.zarr*")), "something unfinished is left"
    wait_for(lambda: not (work / name / "checkpoint.npz").exists(), 30)


def ended(job: str):
    return lambda: job_field(job, "JobState") not in ("RUNNING", "PENDING", "COMPLETING")


def go_on_now(job: str) -> None:
    """Let a job that was queued again start now; it would wait for two minutes."""
    wait_for(lambda: int(job_field(job, "Restarts")) >= 1, 120)
    wait_for(lambda: job_field(job, "JobState") == "PENDING", 120)
    run("scontrol", "update", f"jobid={job}", "starttime=now", "timelimit=20")


def test_the_time_limit_is_hit_and_the_job_goes_on_by_itself(limited, work):
    (job,) = limited.jobs["by_itself"]
    wait_for(lambda: "The time is up" in work.told("by_itself"), 300)
    go_on_now(job)
    finish(work, "by_itself", limited.expected)
    assert int(job_field(job, "Restarts")) == 1
    assert "Going on from the checkpoint" in work.told("by_itself")


def test_a_job_that_slurm_ended_is_submitted_again_elsewhere(limited, work):
    (job,) = limited.jobs["by_hand"]
    wait_for(ended(job), 300)
    assert job_field(job, "JobState") == "TIMEOUT"
    assert (work / "by_hand" / "checkpoint.npz").exists()
    # Another allocation: more workers, so another cluster.
    sbatch(work, "by_hand", "--time=20", "--ntasks=3", *work.fit("by_hand"))
    finish(work, "by_hand", limited.expected)
    assert "Going on from the checkpoint" in work.told("by_hand")
    # Submitted once too often: nothing is done twice.
    third = sbatch(work, "by_hand", "--time=20", *work.fit("by_hand"))
    wait_for(ended(third), 60)
    assert job_field(third, "JobState") == "COMPLETED"
    assert "Finished before" in work.told("by_hand")


def test_a_chain_of_jobs(limited, work):
    finish(work, "chain", limited.expected)
    assert "The time is up" in work.told("chain")
    assert "Going on from the checkpoint" in work.told("chain")
    last = limited.jobs["chain"][-1]
    wait_for(ended(last), PATIENCE)
    assert job_field(last, "JobState") == "COMPLETED"


def test_a_job_does_what_a_machine_does(undisturbed, work):
    done = subprocess.run(
        [sys.executable, "-m", "daskclust", *work.fit("plain"), "--local", "2"],
        env=environment(work, "plain"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(undisturbed, labels(work / "plain.zarr"))


def test_a_killed_worker_is_no_matter(slurm, work, undisturbed):
    by_node = work / "by_node.sbatch"
    template = (TEMPLATES / "daskclust.sbatch").read_text()
    by_node.write_text(template.replace("--mem-per-cpu=4G", "--mem=3000M"))
    sbatch(work, "wounded", "--time=20", *work.fit("wounded"), script=str(by_node))
    wait_for((work / "wounded" / "checkpoint.npz").exists, 240, every=0.05)
    # With its nanny: it does not come back.
    victims = workers_of(work / "wounded")
    assert len(victims) == 2
    assert not (work / "wounded" / "finished").exists()
    victims[-1].kill()
    finish(work, "wounded", undisturbed)
    # 90 % of what SLURM gave, however it was asked for.
    for name in ("wounded", "calm"):
        assert "1.26 GiB" in (work / name / "workers.log").read_text()


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


@dataclass(frozen=True)
class Plain:
    """A fit by the templates in Python: its words, its map, and the seconds that it takes."""

    words: list[str]
    expected: np.ndarray
    seconds: float


@pytest.fixture(scope="module")
def kmeans(work) -> Plain:
    """A fit of about a minute, so that workers can leave in its midst."""
    scene = work / "large.zarr"
    make_hyperspectral_cube(
        scene, shape=(1200, 1200), n_bands=12, chunks=(200, 200), random_state=0
    )

    def fit(iterations: int, *words: object) -> tuple[list[str], float]:
        job = ["--n-clusters", "60", "--tol", "0", "--max-iter", str(iterations), "--seed", "0"]
        done = subprocess.run(
            [sys.executable, "-m", "daskclust", "fit", *map(str, (scene, *job, *words)),
             "--local", "2", "--json"],
            env=environment(work, "kmeans"),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return job, json.loads(done.stdout)["iteration_seconds"]

    # The first compiles: its seconds say nothing about workers that find the kernels.
    fit(2, "--model", work / "compiled.zarr")
    _, each = fit(50, "--model", work / "measured.zarr")
    job, seconds = fit(max(50, min(3000, int(75 * 50 / each))), "--output", work / "kmeans.zarr")
    return Plain([str(scene), *job], labels(work / "kmeans.zarr"), seconds)


def test_workers_as_jobs_that_come_and_go(slurm, work, kmeans):
    """An adaptive SLURMCluster whose workers leave before the fit is done."""
    pytest.importorskip("dask_jobqueue", reason="needs the extra `deploy`")
    # Shorter than the fit, on a machine that may be faster by now, and longer than a job takes to
    # come: found by trying.
    for attempt, lifetime in enumerate((max(20.0, kmeans.seconds / 2), 20.0, 12.0)):
        folder = work / f"jobqueue{attempt}"
        folder.mkdir()
        run_jobqueue(work, folder, kmeans.words, lifetime)
        np.testing.assert_array_equal(labels(folder / "map.zarr"), kmeans.expected)
        told = [log.read_text() for log in folder.glob("slurm-*.out")]
        left = sum("worker-lifetime-reached" in log for log in told)
        if left and len(told) > 2:  # a third job of a cluster of two is in place of one that left
            return
    raise AssertionError("no worker left and was replaced")


def run_jobqueue(work: Work, folder: Path, fit: list[str], lifetime: float) -> None:
    scene, *job = fit
    words = [
        TEMPLATES / "jobqueue.py", scene, folder / "map.zarr", *job,
        "--memory", "1500MB", "--workers", "2", "2", "--lifetime", f"{lifetime:.0f}s",
        "--stagger", f"{lifetime / 3:.0f}s", "--walltime", "00:20:00", "--interface", "lo",
        "--scratch", folder / "scratch",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env=environment(work, folder.name),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr


def test_a_fit_in_python_is_queued_again(slurm, work, kmeans):
    """SLURMRunner: all roles in one allocation; queued again in mid-fit."""
    pytest.importorskip("dask_jobqueue", reason="needs the extra `deploy`")
    scene, *fit = kmeans.words
    words = [scene, str(work / "runner.zarr"), *fit]
    job = sbatch(
        work, "runner", "--time=20", "--ntasks=4", *words,
        script="runner.sbatch", DASKCLUST_DEPLOY=str(TEMPLATES),
    )  # fmt: skip
    wait_for((work / "runner" / "checkpoint.npz").exists, 240, every=0.05)
    run("scontrol", "requeue", job)
    go_on_now(job)
    finish(work, "runner", kmeans.expected)
    assert "Going on from the checkpoint" in work.told("runner")
    wait_for(ended(job), 120)
    assert job_field(job, "JobState") == "COMPLETED"
