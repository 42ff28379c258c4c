"""``daskclust doctor``: whether client, scheduler and workers fit together."""

from __future__ import annotations

import argparse
import json
import time
import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dask.system import CPU_COUNT
from dask.utils import format_bytes

from daskclust.commands._cubes import add_cube_arguments, open_cube_of
from daskclust.commands._surroundings import (
    EXTRAS,
    MUST_MATCH,
    OTHERS,
    look_around,
    look_around_worker,
    sees,
    shares_folder,
)
from daskclust.commands.console import Progress, add_cluster_arguments, open_client
from daskclust.storage.seen import StoredArray
from daskclust.storage.urls import redact

__all__ = ["add_command", "diagnose"]

#: Below this, Python and the compiled kernels leave little for data.
_LITTLE = 700 * 2**20
#: File systems in memory, and those that machines share.
_IN_MEMORY = ("tmpfs", "ramfs")
_SHARED = ("beegfs", "ceph", "cifs", "fuse.sshfs", "gpfs", "lustre", "nfs", "nfs4", "smb3")
#: Seconds by which clocks may differ.
_SKEW = 5.0


def add_command(commands: Any) -> None:
    """Add ``doctor`` to the command line."""
    parser = commands.add_parser(
        "doctor",
        usage="%(prog)s [options] [CUBE]",
        help="check versions, threads, memory, and who sees a cube",
        description="Check versions, threads, memory, disks and clocks of this machine and of a "
        "cluster, and whether every worker sees a cube and can write where its map goes. Say what "
        "to change. Exit code 1 if something should be.",
    )
    add_cube_arguments(parser, scale=False)
    parser.add_argument(
        "--output", metavar="STORE", help="where a map is to be written; nothing is written there"
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")
    add_cluster_arguments(parser)
    parser.set_defaults(run=_run, parser=parser)


def _run(options: argparse.Namespace) -> int:
    client_side = look_around()
    array = None if options.cube is None else open_cube_of(options, scale="none").stored.array
    stored = array if isinstance(array, StoredArray) else None
    workers: dict[str, dict[str, Any]] = {}
    with Progress().task("Cluster"), open_client(options, useful_workers=CPU_COUNT) as client:
        asked = time.time()
        scheduler = client.run_on_scheduler(look_around)
        around = client.run(look_around_worker)
        answered = time.time()
        unseen = {} if stored is None else client.run(partial(sees, stored))
        unwritten = _who_cannot_write(client, options.output)
        for address, info in client.scheduler_info(n_workers=-1)["workers"].items():
            clock = around[address]["clock"]
            workers[address] = {
                **around[address],
                "threads": info["nthreads"],
                "memory_limit": info["memory_limit"],
                "memory_used": info["metrics"]["memory"],
                # The worker answered at some time between.
                "clock_skew": max(asked - clock, clock - answered, 0.0),
                "cube": unseen.get(address),
                "output": unwritten.get(address),
            }
    problems = diagnose(client_side, scheduler, workers)
    found = {
        "client": client_side,
        "scheduler": scheduler,
        "workers": workers,
        "cube": None if options.cube is None else redact(options.cube),
        "problems": problems,
    }
    print(json.dumps(found, indent=2) if options.json else _as_text(found))
    return 1 if problems else 0


def _who_cannot_write(client: Any, output: str | None) -> dict[str, str | None]:
    """Ask every worker to write beside an output; object stores are left to the job."""
    if output is None or "://" in output:
        return {}
    folder = Path(output).absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(
            f"The folder {str(folder)!r} of --output does not exist; create it, where all workers "
            "see it."
        )
    token = folder / f".daskclust-doctor-{uuid.uuid4().hex[:12]}"
    try:
        token.touch()
        answers: dict[str, str | None] = client.run(shares_folder, str(folder), token.name)
    finally:
        token.unlink(missing_ok=True)
    return answers


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
    for name in ("python", *MUST_MATCH):
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
        problems += [f"Worker {address}: {found}" for found in _surroundings(worker)]
    by_host: dict[str, int] = {}
    limits: dict[str, int] = {}
    for worker in workers.values():
        by_host[worker["host"]] = by_host.get(worker["host"], 0) + worker["threads"]
        limits[worker["host"]] = limits.get(worker["host"], 0) + (worker["memory_limit"] or 0)
    for host, limit in limits.items():
        memory = max(w["memory"] for w in workers.values() if w["host"] == host)
        if limit > memory:
            problems.append(
                f"Host {host} has {format_bytes(memory)}, the memory limits of its workers sum to "
                f"{format_bytes(limit)}: workers are killed before they spill. Lower "
                "--memory-limit."
            )
    for host, threads in by_host.items():
        cores = max(w["cores"] for w in workers.values() if w["host"] == host)
        if threads > cores:
            problems.append(
                f"Host {host} runs {threads} worker threads on {cores} cores: start fewer."
            )
    return problems


def _surroundings(worker: Mapping[str, Any]) -> list[str]:
    """Say what is amiss around one worker: its spill folder, nanny, clock and files."""
    found = []
    kind = worker.get("spill_file_system")
    if kind in _IN_MEMORY:
        found.append(
            f"its folder {worker['spill_folder']!r} lies in memory ({kind}), so spilling frees "
            "nothing. Set --local-directory to a disk."
        )
    elif kind in _SHARED:
        found.append(
            f"its folder {worker['spill_folder']!r} lies on a shared file system ({kind}), which "
            "many small files slow down for all. Set --local-directory to a local disk."
        )
    free, limit = worker.get("disk_free"), worker["memory_limit"]
    if free is not None and limit and free < limit and kind not in _IN_MEMORY:
        found.append(
            f"{format_bytes(free)} are free in its folder {worker['spill_folder']!r}, less than "
            f"its memory limit of {format_bytes(limit)}. Free some, or set --local-directory."
        )
    if worker.get("has_nanny") is False:
        found.append(
            "it has no nanny, so it is not started again when it dies. Start it without --no-nanny."
        )
    if worker.get("clock_skew", 0.0) > _SKEW:
        found.append(
            f"its clock is {worker['clock_skew']:.0f} s off this machine's. Synchronize clocks."
        )
    found += [str(worker[name]) for name in ("cube", "output") if worker.get(name)]
    return found


def _some(places: list[str]) -> str:
    return ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")


def _as_text(found: Mapping[str, Any]) -> str:
    client, workers = found["client"], found["workers"]
    versions = client["versions"]
    threads = sum(worker["threads"] for worker in workers.values())
    memory = sum(worker["memory_limit"] or 0 for worker in workers.values())
    missing = [
        f"{name} (daskclust[{extra}])" for name, extra in EXTRAS.items() if versions[name] is None
    ]
    lines = [
        f"Python    {client['python']} at {client['executable']}",
        "Versions  " + ", ".join(f"{name} {versions[name]}" for name in (*MUST_MATCH, *OTHERS)),
        f"Extras    {', '.join(f'{n} {versions[n]}' for n in EXTRAS if versions[n])}"
        + (f"; missing: {', '.join(missing)}" if missing else ""),
        f"Machine   {client['cores']} cores, {format_bytes(client['memory'])}",
        f"Cluster   {len(workers)} workers, {threads} threads, {format_bytes(memory)}",
    ]
    lines += [f"Problem   {problem}" for problem in found["problems"]]
    if not found["problems"]:
        lines.append("All is well.")
    return "\n".join(lines)
