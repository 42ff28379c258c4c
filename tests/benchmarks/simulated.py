"""A program and a cluster: hundreds of Dask workers in one process beside a real scheduler.

The scheduler is a process of its own and talks TCP with every worker, so that it does for them
what it does for as many machines.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dask
from distributed import Client, Worker

#: What workers do besides tasks, which adds up where hundreds share a core.
_QUIET = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "60 s",
}


async def host(address: str, first: int, count: int, folder: str) -> None:
    """Run workers until the scheduler goes."""
    workers: list[Worker] = []
    for i in range(first, first + count, 16):
        batch = [
            Worker(
                address,
                nthreads=1,
                name=f"simulated-{j}",
                memory_limit=0,
                dashboard=False,
                local_directory=folder,
            )
            for j in range(i, min(first + count, i + 16))
        ]
        workers += await asyncio.gather(*batch)
    await asyncio.gather(*(worker.finished() for worker in workers))


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
                    [sys.executable, __file__, *map(str, words)], stderr=subprocess.DEVNULL
                )
            )
            self._count = count
            self.client.wait_for_workers(count, timeout=600)
        return list(self.client.nthreads())

    def close(self) -> None:
        """End the workers."""
        for process in self._hosts:
            process.kill()
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
    with dask.config.set(_QUIET):
        asyncio.run(host(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
