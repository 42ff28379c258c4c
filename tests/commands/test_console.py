"""The cluster of a command."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: In a process of its own: a command silences the loggers of distributed.
PROGRAM = """
import os, signal, time
from argparse import Namespace
import dask, distributed
from daskclust.commands.console import Progress, open_client

def main():
    dask.config.set({"distributed.deploy.lost-worker-timeout": "1ms"})
    options = Namespace(scheduler=None, scheduler_file=None, local=1, memory_limit=None)
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
