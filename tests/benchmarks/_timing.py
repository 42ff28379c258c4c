"""What the benchmarks share: problems, processes of their own, tables."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

THREADS = 2


@dataclass(frozen=True)
class Problem:
    """A k-means problem: overlapping clusters, so that no peer converges early."""

    n: int
    p: int
    k: int

    def titled(self, name: str) -> str:
        """Return the name with the sizes."""
        return f"{name} ({self.n:.0e}, {self.p}, {self.k})"

    def data(
        self, dtype: str = "float32", seed: int = 0, spread: float = 1.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and starting centers; ``spread`` is that of the clusters' centers."""
        rng = np.random.default_rng(seed)
        centers = spread * rng.normal(size=(self.k, self.p))
        x = np.empty((self.n, self.p), dtype=dtype)
        for start in range(0, self.n, 65536):
            part = slice(start, min(self.n, start + 65536))
            size = part.stop - part.start
            x[part] = centers[rng.integers(self.k, size=size)]
            x[part] += rng.normal(size=(size, self.p)).astype(dtype)
        return x, x[: self.k].astype(np.float64)


PROBLEMS = {
    "a": Problem(1_000_000, 20, 10),
    "b": Problem(500_000, 126, 7),
    "c": Problem(500_000, 50, 100),
    "d": Problem(200_000, 16, 1000),
}
TOY = {name: Problem(4000, min(p.p, 20), min(p.k, 20)) for name, p in PROBLEMS.items()}


def peak_memory() -> float:
    """MiB that this process held at most.

    The usual ``ru_maxrss`` begins with what the parent held when it started this process.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].removesuffix("kB")) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def run_alone(
    script: str,
    *arguments: str,
    threads: int = THREADS,
    python: str = sys.executable,
    limit: float | None = None,
) -> dict[str, Any]:
    """Run a script in a process of its own and return the JSON it prints last.

    One that takes more than ``limit`` seconds is ended: ``subprocess.TimeoutExpired``.
    """
    env = dict(os.environ)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        env[name] = str(threads)
    done = subprocess.run(
        [python, "-W", "ignore", script, *arguments],
        capture_output=True,
        text=True,
        env=env,
        check=False,
        timeout=limit,
    )
    if done.returncode:
        raise RuntimeError(f"{script} {arguments} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def middle(values: list[float]) -> float:
    """Return the median."""
    return float(median(values))


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """Print a Markdown table."""
    print("| " + " | ".join(header) + " |")
    print("| " + " | ".join(["---"] * len(header)) + " |")
    for row in rows:
        print("| " + " | ".join(row) + " |")
