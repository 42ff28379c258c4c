"""``daskclust doctor``: whether client, scheduler and workers fit together."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

import psutil
from dask.system import CPU_COUNT
from dask.utils import format_bytes

from daskclust.commands.console import Progress, add_cluster_arguments, open_client

__all__ = ["add_command", "diagnose"]

#: Packages whose versions must be the same everywhere: their objects travel.
_MUST_MATCH = ("daskclust", "dask", "distributed", "numpy", "numba", "zarr")
_OTHERS = ("scikit-learn", "scipy", "cloudpickle", "msgpack")
_EXTRAS = {"matplotlib": "plot", "xarray": "xarray", "pandas": "dataframe", "bokeh": "dashboard"}
#: Below this, Python and the compiled kernels leave little for data.
_LITTLE = 700 * 2**20


def add_command(commands: Any) -> None:
    """Add ``doctor`` to the command line."""
    parser = commands.add_parser(
        "doctor",
        help="check versions, threads and memory",
        description="Check versions, threads and memory of this machine and of a cluster, and say "
        "what to change. Exit code 1 if something should be.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")
    add_cluster_arguments(parser)
    parser.set_defaults(run=_run)


def look_around() -> dict[str, Any]:
    """Describe the process this runs in: client, scheduler or worker."""
    versions: dict[str, str | None] = {}
    for name in (*_MUST_MATCH, *_OTHERS, *_EXTRAS):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "python": platform.python_version(),
        "host": platform.node(),
        "versions": versions,
        "cores": CPU_COUNT,
        "memory": int(psutil.virtual_memory().total),
        "environment": {
            name: os.environ.get(name)
            for name in ("OMP_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_", "NUMBA_CACHE_DIR")
        },
        "temporary_is_writable": os.access(os.environ.get("TMPDIR", "/tmp"), os.W_OK),
        "executable": sys.executable,
    }


def _run(options: argparse.Namespace) -> int:
    client_side = look_around()
    scheduler: dict[str, Any] | None = None
    workers: dict[str, dict[str, Any]] = {}
    with Progress().task("Cluster"), open_client(options, useful_workers=CPU_COUNT) as client:
        scheduler = client.run_on_scheduler(look_around)
        around = client.run(look_around)
        for address, info in client.scheduler_info(n_workers=-1)["workers"].items():
            workers[address] = {
                **around[address],
                "threads": info["nthreads"],
                "memory_limit": info["memory_limit"],
                "memory_used": info["metrics"]["memory"],
            }
    problems = diagnose(client_side, scheduler, workers)
    found = {
        "client": client_side,
        "scheduler": scheduler,
        "workers": workers,
        "problems": problems,
    }
    print(json.dumps(found, indent=2) if options.json else _as_text(found))
    return 1 if problems else 0


def diagnose(
    client: Mapping[str, Any],
    scheduler: Mapping[str, Any] | None,
    workers: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    """Say what should be changed.

    Parameters
    ----------
    client, scheduler : mapping
        As :func:`look_around` returns them.
    workers : mapping of address to mapping
        The same, with ``threads``, ``memory_limit`` and ``memory_used``.
    """
    problems = []
    places = {"scheduler": scheduler, **{f"worker {a}": w for a, w in workers.items()}}
    for name in ("python", *_MUST_MATCH):
        mine = client["python"] if name == "python" else client["versions"][name]
        other: dict[Any, list[str]] = {}
        for place, around in places.items():
            if around is None:
                continue
            theirs = around["python"] if name == "python" else around["versions"].get(name)
            same = theirs == mine
            if name == "python":
                same = theirs.split(".")[:2] == mine.split(".")[:2]
            if not same:
                other.setdefault(theirs, []).append(place)
        for version, where in other.items():
            problems.append(
                f"{name} is {mine} here but {version or 'missing'} on {_some(where)}: install the "
                "same version everywhere."
            )
    for address, worker in workers.items():
        limit, threads = worker["memory_limit"], max(1, worker["threads"])
        if not limit:
            problems.append(f"Worker {address} has no memory limit: start it with --memory-limit.")
        elif limit / threads < _LITTLE:
            problems.append(
                f"Worker {address} has {format_bytes(limit)} for {threads} threads: give it at "
                f"least {format_bytes(_LITTLE)} a thread, or fewer threads."
            )
        elif worker["memory_used"] > 0.7 * limit:
            problems.append(
                f"Worker {address} already uses {format_bytes(worker['memory_used'])} of "
                f"{format_bytes(limit)}: release persisted data, or restart it."
            )
        blas = worker["environment"]["OMP_NUM_THREADS"]
        if threads > 1 and blas not in ("1",):
            problems.append(
                f"Worker {address} has {threads} threads and OMP_NUM_THREADS={blas}: set it to 1, "
                "or start the worker with a nanny, so that BLAS does not multiply threads."
            )
        if not worker["temporary_is_writable"]:
            problems.append(f"Worker {address} cannot write temporary files: set TMPDIR.")
    by_host: dict[str, int] = {}
    for worker in workers.values():
        by_host[worker["host"]] = by_host.get(worker["host"], 0) + worker["threads"]
    for host, threads in by_host.items():
        cores = max(w["cores"] for w in workers.values() if w["host"] == host)
        if threads > cores:
            problems.append(
                f"Host {host} runs {threads} worker threads on {cores} cores: start fewer."
            )
    return problems


def _some(places: list[str]) -> str:
    return ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")


def _as_text(found: Mapping[str, Any]) -> str:
    client, workers = found["client"], found["workers"]
    versions = client["versions"]
    threads = sum(worker["threads"] for worker in workers.values())
    memory = sum(worker["memory_limit"] or 0 for worker in workers.values())
    missing = [
        f"{name} (daskclust[{extra}])" for name, extra in _EXTRAS.items() if versions[name] is None
    ]
    lines = [
        f"Python    {client['python']} at {client['executable']}",
        "Versions  " + ", ".join(f"{name} {versions[name]}" for name in (*_MUST_MATCH, *_OTHERS)),
        f"Extras    {', '.join(f'{n} {versions[n]}' for n in _EXTRAS if versions[n])}"
        + (f"; missing: {', '.join(missing)}" if missing else ""),
        f"Machine   {client['cores']} cores, {format_bytes(client['memory'])}",
        f"Cluster   {len(workers)} workers, {threads} threads, {format_bytes(memory)}",
    ]
    lines += [f"Problem   {problem}" for problem in found["problems"]]
    if not found["problems"]:
        lines.append("All is well.")
    return "\n".join(lines)
