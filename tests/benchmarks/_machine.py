"""What a benchmark ran on: the machine, and the versions of all libraries.

``python tests/benchmarks/_machine.py`` prints the versions of an interpreter.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

#: Distributions whose versions matter to a time; of a checkout, metadata may be out of date.
LIBRARIES = (
    "numpy",
    "scipy",
    "numba",
    "llvmlite",
    "dask",
    "distributed",
    "zarr",
    "scikit-learn",
    "scikit-learn-intelex",
    "faiss-cpu",
    "superkmeans",
    "dask-ml",
)


def versions() -> dict[str, str]:
    """Return the versions of this interpreter and of what is installed in it."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    """Name of the processor's model."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _commit() -> str:
    """Return the commit of this checkout, or nothing where it is none."""
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def hardware() -> dict[str, Any]:
    """Return what does not change between two runs on one machine."""
    import psutil

    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "memory in GiB": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
    }


def circumstances() -> dict[str, Any]:
    """Return what changes: the time, the commit, and how busy the machine was before."""
    return {
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "load before": round(os.getloadavg()[0], 2),
    }


if __name__ == "__main__":
    print(json.dumps(versions()))
