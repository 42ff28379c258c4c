"""The cluster of a command."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import LocalCluster

from daskclust.app.commands.console import Parser, Progress
from daskclust.core.engine import compute

#: In a process of its own: a command silences the loggers of distributed.
PROGRAM = """
import os, signal, time
import dask, distributed
from daskclust.app.commands.console import Progress, open_client

def main():
    dask.config.set({"distributed.deploy.lost-worker-timeout": "1ms"})
    options = ClusterOptions(local=1)
    with open_client(options, useful_workers=1, progress=Progress()) as client:
        (first,) = client.run(os.getpid).values()
        os.kill(first, signal.SIGKILL)
        began = time.monotonic()
        while time.monotonic() - began < 120:
            found = list(client.run(os.getpid, on_error="ignore").values())
            if found and found != [first]:
                print("started again")
                return
            time.sleep(0.2)

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="kills a process by a signal")
def test_a_worker_that_is_slow_to_start_again_is_not_given_up(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "started again" in done.stdout


@pytest.mark.slow
def test_a_cluster_without_workers_starts_some_for_a_command(tmp_path, said):
    """It waited in silence for a minute, and ended; Python fitted."""
    zarr.create_array(tmp_path / "x.zarr", data=np.arange(96.0).reshape(4, 8, 3))
    with LocalCluster(
        n_workers=0, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    ) as cluster:
        cluster.adapt(minimum=0, maximum=1, interval="200ms", wait_count=100)
        code, _, err = said(
            "fit", str(tmp_path / "x.zarr"), "--dims=y,x,band", "--n-clusters=2",
            f"--output={tmp_path / 'map.zarr'}", f"--scheduler={cluster.scheduler_address}",
        )  # fmt: skip
    assert code == 0, err
    assert (tmp_path / "map.zarr").is_dir()


def test_a_command_waits_for_workers_as_long_as_is_configured(said):
    with (
        LocalCluster(
            n_workers=0, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
        dask.config.set({"daskclust.worker-timeout": "2s"}),
    ):
        code, _, err = said("doctor", f"--scheduler={cluster.scheduler_address}")
    assert code == 1
    assert "has had no workers" in err
    assert "daskclust.worker-timeout" in err
    assert "Traceback" not in err


def test_argparse_tells_the_arguments_of_all_groups() -> None:
    parser = Parser()
    parser.add_argument("scene")
    parser.add_argument_group("more").add_argument("--output", "-o")
    names = [action.option_strings or action.dest for action in parser.actions]
    assert names == [["-h", "--help"], "scene", ["--output", "-o"]], "_actions: Parser.actions"


def test_progress_states_the_expected_time() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    with progress.task("LabelSpreading"):
        for seconds, done in ((1.0, 0), (10.0, 3), (11.0, 4), (12.0, 12)):
            progress._last -= 0.0 if done == 4 else 60.0
            progress.advance("the pass 'survey'", done, 12, seconds)
        text = stream.getvalue()
    assert "LabelSpreading: pass 'survey', 0 of 12 tasks\n" in text
    assert "LabelSpreading: pass 'survey', 3 of 12 tasks, about 30 s left\n" in text
    assert "4 of 12" not in text  # too soon after the line before
    assert "LabelSpreading: pass 'survey', 12 of 12 tasks\n" in text


def test_progress_counts_the_tasks_of_threads() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    with progress.task("fit"):
        progress._last -= 60.0
        with dask.config.set(scheduler="threads"):
            compute("the sum", da.ones(12, chunks=3).map_blocks(np.copy).sum())
        text = stream.getvalue()
    assert re.search(r"fit: sum, \d+ of \d+ tasks", text), text
