"""Advice about a cluster, from the reports of its processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dask.utils import format_bytes

from daskclust.commands._surroundings import MUST_MATCH

__all__ = ["diagnose", "spoilers"]

#: Below this, Python and the compiled kernels leave little for data.
_LITTLE = 700 * 2**20
#: File systems in memory, and those that machines share.
_IN_MEMORY = ("tmpfs", "ramfs")
_SHARED = ("beegfs", "ceph", "cifs", "fuse.sshfs", "gpfs", "lustre", "nfs", "nfs4", "smb3")
#: Seconds by which clocks may differ.
_SKEW = 5.0

Around = Mapping[str, Any]


def diagnose(client: Around, scheduler: Around | None, workers: Mapping[str, Around]) -> list[str]:
    """Return advice from the facts of :func:`look_around` (client, scheduler) and `ask_workers`."""
    return [
        *_versions(client, scheduler, workers),
        *_each(workers),
        *_memory(workers),
        *_threads(workers),
    ]


def spoilers(client: Around, scheduler: Around | None, workers: Mapping[str, Around]) -> list[str]:
    """Return what would spoil a fit that is about to start: versions, and missing memory."""
    in_memory = [
        f"Worker {address}: {found}"
        for address, worker in workers.items()
        for found in _spilling(worker)
        if worker.get("spill_file_system") in _IN_MEMORY
    ]
    return [*_versions(client, scheduler, workers), *_memory(workers), *in_memory]


def _versions(
    client: Around, scheduler: Around | None, workers: Mapping[str, Around]
) -> Iterator[str]:
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
            yield (
                f"{name} is {mine} here but {version or 'missing'} on {_some(where)}: install the "
                "same version everywhere."
            )

    mine = client["code"], client["versions"]["daskclust"]
    others = [
        place
        for place, around in places.items()
        if around is not None
        and around["versions"].get("daskclust") == mine[1]
        and around.get("code") != mine[0]
    ]
    if others:
        yield (
            f"daskclust is {mine[1]} here and on {_some(others)}, but its files differ: install "
            "the same working copy everywhere."
        )


def _each(workers: Mapping[str, Around]) -> Iterator[str]:
    for address, worker in workers.items():
        limit, threads = worker["memory_limit"], max(1, worker["threads"])
        if not limit:
            yield f"Worker {address} has no memory limit: start it with --memory-limit."
        elif limit / threads < _LITTLE:
            yield (
                f"Worker {address} has {format_bytes(limit)} for {threads} threads: give it at "
                f"least {format_bytes(_LITTLE)} a thread, or fewer threads."
            )
        elif worker["memory_used"] > 0.7 * limit:
            yield (
                f"Worker {address} already uses {format_bytes(worker['memory_used'])} of "
                f"{format_bytes(limit)}: release persisted data, or restart it."
            )
        blas = worker["environment"]["OMP_NUM_THREADS"]
        if threads > 1 and blas not in ("1",):
            yield (
                f"Worker {address} has {threads} threads and OMP_NUM_THREADS={blas}: set it to 1, "
                "or start the worker with a nanny, so that BLAS does not multiply threads."
            )
        if not worker["temporary_is_writable"]:
            yield f"Worker {address} cannot write temporary files: set TMPDIR."
        for found in (*_spilling(worker), *_surroundings(worker)):
            yield f"Worker {address}: {found}"


def _memory(workers: Mapping[str, Around]) -> Iterator[str]:
    """Compare the limits of workers with what machines and control groups allow."""
    hosts: dict[str, list[Around]] = {}
    groups: dict[tuple[str, str], list[Around]] = {}
    for worker in workers.values():
        hosts.setdefault(worker["host"], []).append(worker)
        if worker.get("control_group") is not None:
            groups.setdefault((worker["host"], worker["control_group"]), []).append(worker)
    for host, here in hosts.items():
        memory, limit = max(w["memory"] for w in here), _sum_of_limits(here)
        if limit > memory:
            yield (
                f"Host {host} has {format_bytes(memory)}, the memory limits of its workers sum to "
                f"{format_bytes(limit)}: workers are killed before they spill. Lower "
                "--memory-limit."
            )
    for (host, name), here in groups.items():
        allowed, limit = min(w["control_group_limit"] for w in here), _sum_of_limits(here)
        if allowed < limit <= max(w["memory"] for w in here):
            yield (
                f"The control group {name!r} on host {host} allows {format_bytes(allowed)}, the "
                f"memory limits of its workers sum to {format_bytes(limit)}: workers are killed "
                "before they spill. Lower --memory-limit, or ask for more memory."
            )


def _sum_of_limits(workers: list[Around]) -> int:
    return sum(worker["memory_limit"] or 0 for worker in workers)


def _threads(workers: Mapping[str, Around]) -> Iterator[str]:
    by_host: dict[str, int] = {}
    for worker in workers.values():
        by_host[worker["host"]] = by_host.get(worker["host"], 0) + worker["threads"]
    for host, threads in by_host.items():
        cores = max(w["cores"] for w in workers.values() if w["host"] == host)
        if threads > cores:
            yield f"Host {host} runs {threads} worker threads on {cores} cores: start fewer."


def _spilling(worker: Around) -> Iterator[str]:
    kind = worker.get("spill_file_system")
    if kind in _IN_MEMORY:
        yield (
            f"its folder {worker['spill_folder']!r} lies in memory ({kind}), so spilling frees "
            "nothing. Set --local-directory to a disk."
        )
    elif kind in _SHARED:
        yield (
            f"its folder {worker['spill_folder']!r} lies on a shared file system ({kind}), which "
            "many small files slow down for all. Set --local-directory to a local disk."
        )
    free, limit = worker.get("disk_free"), worker["memory_limit"]
    if free is not None and limit and free < limit and kind not in _IN_MEMORY:
        yield (
            f"{format_bytes(free)} are free in its folder {worker['spill_folder']!r}, less than "
            f"its memory limit of {format_bytes(limit)}. Free some, or set --local-directory."
        )


def _surroundings(worker: Around) -> Iterator[str]:
    if worker.get("has_nanny") is False:
        yield (
            "it has no nanny, so it is not started again when it dies. Start it without --no-nanny."
        )
    if worker.get("clock_skew", 0.0) > _SKEW:
        yield f"its clock is {worker['clock_skew']:.0f} s off this machine's. Synchronize clocks."
    yield from (str(worker[name]) for name in ("cube", "output") if worker.get(name))


def _some(places: list[str]) -> str:
    return ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
