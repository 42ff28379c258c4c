"""The SLURM templates, run on a real SLURM: time limits, requeueing, lost workers, resubmission.

Jobs must last longer than their time limit of two minutes on any machine, so their number of
iterations is measured first. Those that meet the limit run side by side: what they wait for is
time, not cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import zarr

sys.path.insert(0, str(Path(__file__).parent))
import _slurm
from _slurm import job_field, run, wait_for

from daskclust.datasets import make_hyperspectral_cube

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "deploy" / "slurm"
#: EM that never stands still: as many iterations as are asked for.
JOB = ["--estimator", "gaussianmixture", "--n-components", "8", "--tol", "0", "--seed", "0"]
KMEANS = ["--n-clusters", "60", "--tol", "0", "--max-iter", "3000", "--seed", "0"]
#: Seconds of a job that has the machine for itself; side by side they take several times as long.
LONG, SHORT = 75.0, 10.0
#: Seconds that nothing here takes, but where it hangs.
PATIENCE = 900.0


@dataclass(frozen=True)
class Work:
    """A folder that all jobs see, with a scene, and how long fits are."""

    folder: Path
    long: int
    short: int

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    def fit(self, name: str, iterations: int) -> list[str]:
        """Words of the command that fits the scene."""
        words = ["fit", self / "scene.zarr", *JOB, "--max-iter", iterations]
        return [str(word) for word in (*words, "--output", self / f"{name}.zarr")]

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
        "DASKCLUST_SHARED": str(work),
        "NUMBA_CACHE_DIR": str(work / "numba-cache"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": "1",
        **more,
    }


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Work:
    folder = tmp_path_factory.mktemp("work")
    make_hyperspectral_cube(
        folder / "scene.zarr", shape=(120, 120), n_bands=12, chunks=(40, 40), random_state=0
    )
    iterations = 100
    done = subprocess.run(
        [sys.executable, "-m", "daskclust", "fit", str(folder / "scene.zarr"), *JOB,
         "--max-iter", str(iterations), "--local", "2", "--json",
         "--model", str(folder / "measured.npz")],
        env=environment(folder, "measured"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    each = json.loads(done.stdout)["fit_seconds"] / iterations
    return Work(folder, int(LONG / each), int(SHORT / each))


def sbatch(
    work: Work, name: str, *words: str, script: str = "daskclust.sbatch", **more: str
) -> str:
    """Submit a template as a user would, and return the job's number."""
    options = [word for word in words if word.startswith("--") and "=" in word]
    rest = list(words[len(options) :])
    done = subprocess.run(
        ["sbatch", "--parsable", "--ntasks=2", "--mem-per-cpu=1500M", f"--output={work / name}.out",
         *options, str(TEMPLATES / script), *rest],
        env=environment(work.folder, name, **more),
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
    words = work.fit("by_itself", work.long)
    return [sbatch(work, "by_itself", "--time=2", "--signal=B:USR1@20", *words)]


def by_hand(work: Work) -> list[str]:
    # Without a signal before the limit: SLURM ends it.
    words = work.fit("by_hand", work.long)
    return [sbatch(work, "by_hand", "--time=2", "--signal=B:CONT@1", *words)]


def chained(work: Work) -> list[str]:
    done = subprocess.run(
        [str(TEMPLATES / "chain.sh"), "3", "--ntasks=2", "--mem-per-cpu=1500M", "--time=2",
         "--signal=B:USR1@20", f"--output={work / 'chain'}.out", "--",
         *work.fit("chain", work.long)],
        env=environment(work.folder, "chain"),
        cwd=work.folder,
        capture_output=True,
        text=True,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    chain = done.stdout.split()
    assert len(chain) == 3
    assert f"afterany:{chain[0]}" in job_field(chain[1], "Dependency")
    for job in chain[1:]:
        run("scontrol", "update", f"jobid={job}", "timelimit=20")
    return chain


@pytest.fixture(scope="module")
def limited(request, slurm, work) -> Limited:
    """Fits of two minutes at most, side by side, and the undisturbed one beside them."""
    plain = subprocess.Popen(
        [sys.executable, "-m", "daskclust", *work.fit("plain", work.long), "--local", "2"],
        env=environment(work.folder, "plain"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # Those of the tests that were asked for.
    asked = {item.name for item in request.session.items}
    submits = {
        test_the_time_limit_is_hit_and_the_job_goes_on_by_itself: by_itself,
        test_a_job_that_slurm_ended_is_submitted_again_elsewhere: by_hand,
        test_a_chain_of_jobs: chained,
    }
    jobs = {
        submit.__name__: submit(work) for test, submit in submits.items() if test.__name__ in asked
    }
    if by_itself.__name__ in jobs:
        # While the undisturbed one goes on.
        wait_for(lambda: "The time is up" in work.told("by_itself"), 240)
        go_on_now(jobs[by_itself.__name__][0])
    assert plain.wait(PATIENCE) == 0
    return Limited(jobs, labels(work / "plain.zarr"))


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
    finish(work, "by_itself", limited.expected)
    assert int(job_field(job, "Restarts")) == 1
    assert "Going on from the checkpoint" in work.told("by_itself")


def test_a_job_that_slurm_ended_is_submitted_again_elsewhere(limited, work):
    (job,) = limited.jobs["by_hand"]
    wait_for(ended(job), 300)
    assert job_field(job, "JobState") == "TIMEOUT"
    assert (work / "by_hand" / "checkpoint.npz").exists()
    # Another allocation: more workers, so another cluster.
    sbatch(work, "by_hand", "--time=20", "--ntasks=3", *work.fit("by_hand", work.long))
    finish(work, "by_hand", limited.expected)
    assert "Going on from the checkpoint" in work.told("by_hand")
    # Submitted once too often: nothing is done twice.
    third = sbatch(work, "by_hand", "--time=20", *work.fit("by_hand", work.long))
    wait_for(ended(third), 60)
    assert job_field(third, "JobState") == "COMPLETED"
    assert "Finished before" in work.told("by_hand")


def test_a_chain_of_jobs(limited, work):
    finish(work, "chain", limited.expected)
    assert "The time is up" in work.told("chain")
    assert "Going on from the checkpoint" in work.told("chain")
    last = limited.jobs["chained"][-1]
    wait_for(ended(last), PATIENCE)
    assert job_field(last, "JobState") == "COMPLETED"


@pytest.fixture(scope="module")
def undisturbed(slurm, work) -> np.ndarray:
    """The map of a short job that nothing happens to."""
    job = sbatch(work, "calm", "--time=20", *work.fit("calm", work.short))
    wait_for(ended(job), PATIENCE)
    assert job_field(job, "JobState") == "COMPLETED", work.told("calm")
    return labels(work / "calm.zarr")


def test_a_killed_worker_is_no_matter(slurm, work, undisturbed):
    sbatch(work, "wounded", "--time=20", *work.fit("wounded", work.short))
    wait_for((work / "wounded" / "checkpoint.npz").exists, 240, every=0.05)
    # With its nanny: it does not come back.
    victims = [pid for pid, words in processes() if is_worker(words, work / "wounded")]
    assert len(victims) == 2
    os.kill(victims[-1], 9)
    finish(work, "wounded", undisturbed)


def processes() -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield int(entry.name), (entry / "cmdline").read_text().split("\0")
            except OSError:
                continue


def is_worker(words: list[str], run_folder: Path) -> bool:
    here = any(word.startswith(f"{run_folder}/scheduler") for word in words)
    return here and "worker" in words and not words[0].endswith("srun")


@dataclass(frozen=True)
class Plain:
    """The map of the fit that the templates in Python make, and the seconds it iterated for."""

    scene: Path
    expected: np.ndarray
    seconds: float


@pytest.fixture(scope="module")
def kmeans(work) -> Plain:
    """Hundreds of iterations, so that workers can leave in their midst."""
    scene = work / "large.zarr"
    make_hyperspectral_cube(scene, shape=(480, 480), n_bands=12, chunks=(120, 120), random_state=0)
    command = [sys.executable, "-m", "daskclust", "fit", str(scene), *KMEANS, "--local", "2"]
    # The first compiles: its seconds say nothing about workers that find the kernels.
    for words in (["--max-iter", "2", "--model", str(work / "compiled.npz")],
                  ["--output", str(work / "kmeans.zarr"), "--json"]):  # fmt: skip
        done = subprocess.run(
            [*command, *words],
            env=environment(work.folder, "kmeans"),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
    return Plain(scene, labels(work / "kmeans.zarr"), json.loads(done.stdout)["fit_seconds"])


def test_workers_as_jobs_that_come_and_go(slurm, work, kmeans):
    """An adaptive SLURMCluster whose workers leave before the fit is done."""
    pytest.importorskip("dask_jobqueue", reason="needs the extra `deploy`")
    # Shorter than the fit, and long enough to get something done: found by trying.
    for part in (2, 4, 8):
        folder = work / f"jobqueue{part}"
        folder.mkdir()
        run_jobqueue(work, folder, kmeans.scene, lifetime=max(15.0, kmeans.seconds / part))
        np.testing.assert_array_equal(labels(folder / "map.zarr"), kmeans.expected)
        told = [log.read_text() for log in folder.glob("slurm-*.out")]
        left = sum("worker-lifetime-reached" in log for log in told)
        if left and len(told) > 2:  # a third job of a cluster of two is in place of one that left
            return
    raise AssertionError("no worker left and was replaced")


def run_jobqueue(work: Work, folder: Path, scene: Path, lifetime: float) -> None:
    words = [
        TEMPLATES / "jobqueue.py", scene, folder / "map.zarr", *KMEANS,
        "--memory", "1500MB", "--workers", "2", "2", "--lifetime", f"{lifetime:.0f}s",
        "--stagger", "2s", "--walltime", "00:20:00", "--interface", "lo",
        "--scratch", folder / "scratch",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env=environment(work.folder, folder.name),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr


def test_a_fit_in_python_is_queued_again(slurm, work, kmeans):
    """SLURMRunner: all roles in one allocation; queued again in mid-fit."""
    pytest.importorskip("dask_jobqueue", reason="needs the extra `deploy`")
    words = [str(kmeans.scene), str(work / "runner.zarr"), *KMEANS]
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
