"""A program and a cluster: hundreds of Dask workers in some processes beside a real scheduler.

The scheduler is a process of its own and talks TCP with every worker, so that it does for them
what it does for as many machines.  A process holds few workers, always as many: hundreds in one
share an event loop, and each then costs several times as much.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dask
from distributed import Client, Worker

# What workers run, imported once for all processes.
import daskclust.core.engine.rows  # noqa: F401

#: Workers of a process.
EACH = 16
#: What workers do besides tasks, which adds up where hundreds share a core.
_QUIET = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "60 s",
    # Fifty times a second by default: 512 workers would keep 0.7 of a core busy with nothing else.
    "distributed.admin.tick.interval": "2 s",
}


async def host(address: str, first: int, count: int, folder: str) -> None:
    """Run workers until the scheduler goes."""
    workers = await asyncio.gather(
        *(
            Worker(
                address,
                nthreads=1,
                name=f"simulated-{i}",
                memory_limit=0,
                dashboard=False,
                local_directory=folder,
            )
            for i in range(first, first + count)
        )
    )
    await asyncio.gather(*(worker.finished() for worker in workers))


def _run(address: str, first: int, count: int, folder: str) -> None:
    with dask.config.set(_QUIET):
        asyncio.run(host(address, first, count, folder))


def main(address: str, first: int, count: int, folder: str) -> None:
    """Fork processes of workers, which share what is imported."""
    # The collector would go over it, and so copy it, in each of them.
    gc.freeze()
    fork = multiprocessing.get_context("fork").Process
    processes = [
        fork(target=_run, args=(address, i, min(EACH, first + count - i), folder))
        for i in range(first, first + count, EACH)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


class Simulated:
    """A scheduler, and workers that are added as they are wanted."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self._folder = folder
        self._hosts: list[subprocess.Popen[bytes]] = []
        self._count = 0

    def grow(self, count: int) -> list[str]:
        """Have so many workers, and return their addresses."""
        more = count - self._count
        if more > 0:
            words = [self.client.scheduler.address, self._count, more, self._folder]
            self._hosts.append(
                subprocess.Popen(
                    [sys.executable, __file__, *map(str, words)],
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
            self._count = count
            self.client.wait_for_workers(count, timeout=600)
        return list(self.client.nthreads())

    def close(self) -> None:
        """End the workers."""
        for process in self._hosts:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def simulated() -> Iterator[Simulated]:
    """Yield a cluster without workers yet."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "scheduler.json"
        scheduler = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1",
             "--port", "0", "--no-dashboard", "--scheduler-file", str(file)],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            while not file.exists():
                if scheduler.poll() is not None:
                    raise RuntimeError("the scheduler did not start")
                time.sleep(0.1)
            with Client(scheduler_file=str(file), set_as_default=False) as client:
                cluster = Simulated(client, folder)
                try:
                    yield cluster
                finally:
                    cluster.close()
        finally:
            scheduler.terminate()
            scheduler.wait(30)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
