"""``daskclust doctor``: check versions, memory, threads and access to stores on all machines."""

from __future__ import annotations

import argparse
import os
import platform
import uuid
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from dask.system import CPU_COUNT
from dask.utils import format_bytes
from distributed.system import MEMORY_LIMIT

from daskclust.app.commands import _compiling, console
from daskclust.app.commands.requests import DoctorRequest
from daskclust.core.storage.files import read_start, remove, write_whole
from daskclust.core.storage.redact import redact
from daskclust.core.storage.stored_array import StoredArray
from daskclust.core.storage.stores import local_path
from daskclust.exceptions import StoreError

_NEEDED, _READERS = "numpy numba scipy scikit-learn zarr", "fsspec h5py pandas pyarrow rasterio"
#: Packages whose objects travel between machines, or that read files there.
PACKAGES = f"daskclust {_NEEDED} {_READERS} s3fs xarray".split()
#: Minimum bytes per thread. With less, Python and the compiled kernels leave little for data.
_MIN_THREAD_BYTES = 700 * 2**20

Workers = Mapping[str, Mapping[str, Any]]


def describe_machine() -> dict[str, Any]:
    """Describe the machine of this process, and its limit of memory."""
    groups = Path("/proc/self/cgroup")  # processes with the same groups share a limit of memory
    return {
        "host": platform.node(),
        "group": f"{platform.node()} {groups.read_text() if groups.exists() else ''}",
        "cores": os.cpu_count() or 1,
        "memory": psutil.virtual_memory().total,
        "memory_allowed": MEMORY_LIMIT,
    }


def reason_not_readable(array: Any) -> str | None:
    """Return why this process does not read an array as the client does, or None."""
    try:
        if isinstance(array, StoredArray):
            array.compare()
            array.array[tuple(slice(0, 1) for _ in array.shape)]
        else:
            array.blocks[(0,) * array.ndim].compute(scheduler="sync")
        return None
    except (StoreError, OSError, ValueError, KeyError, ImportError) as error:
        return " ".join(redact(error).split())


def reason_not_writable(token: str) -> str | None:
    """Return why this process cannot write next to a file of the client, or None."""
    folder, file = redact(token.rpartition("/")[0]), f"{token}.{uuid.uuid4().hex[:8]}"
    try:
        if read_start(token, 1) is None:
            return f"it does not see {folder!r} as the client does"
        write_whole(file, b"daskclust", check=lambda: None)
        remove(file)
    except Exception as error:  # libraries of object stores have errors of their own
        return f"it cannot write to {folder!r}: {' '.join(redact(error).split())}"
    return None


def check_versions(client: Any) -> Iterator[str]:
    """Yield how packages of the client, the scheduler and the workers differ."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client.get_versions(check=True, packages=PACKAGES)
    for text in (str(warning.message) for warning in caught):
        if "Mismatched versions" in text:
            yield f"{text}\nInstall the same versions and extras everywhere."


def check_memory(workers: Workers) -> list[str]:
    """Return hosts and control groups that allow less memory than the limits of their workers."""
    problems: dict[str, str] = {}
    for key, allowed_by in (("group", "memory_allowed"), ("host", "memory")):
        for members in _by(workers, key):
            host, allowed = members[0]["host"], min(worker[allowed_by] for worker in members)
            limits = sum(worker["memory_limit"] or 0 for worker in members)
            if limits > allowed:
                problems.setdefault(
                    host,
                    f"Host {host} allows {format_bytes(allowed)}, but the memory limits of its "
                    f"workers sum to {format_bytes(limits)}: workers are killed before they "
                    "spill. Lower --memory-limit.",
                )
    return list(problems.values())


def check_threads(workers: Workers) -> Iterator[str]:
    """Yield workers with little memory per thread, and hosts with more threads than cores."""
    for address, worker in workers.items():
        limit, threads = worker["memory_limit"], max(1, worker["threads"])
        if not limit:
            yield f"Worker {address} has no memory limit: start it with --memory-limit."
        elif limit / threads < _MIN_THREAD_BYTES:
            yield (
                f"Worker {address} has {format_bytes(limit)} for {threads} threads: give it at "
                f"least {format_bytes(_MIN_THREAD_BYTES)} per thread, or fewer threads."
            )
    for members in _by(workers, "host"):
        threads, host, cores = (
            sum(w["threads"] for w in members),
            members[0]["host"],
            members[0]["cores"],
        )
        if threads > cores:
            yield f"Host {host} runs {threads} worker threads on {cores} cores."


def _by(workers: Workers, key: str) -> list[list[Mapping[str, Any]]]:
    values = {worker[key]: None for worker in workers.values()}
    return [[w for w in workers.values() if w[key] == value] for value in values]


def ask(client: Any, function: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the answers of workers by address, and a problem for each worker that fails."""
    answers, problems = {}, []
    for address, answer in client.run(function, on_error="return").items():
        if isinstance(answer, BaseException):
            text = f"{type(answer).__name__}: {' '.join(redact(answer).split())}".rstrip(".")
            problems.append(f"Worker {address} cannot be examined: {text}.")
        else:
            answers[address] = answer
    return answers, problems


def examine(client: Any) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return facts about the workers of a cluster by address, and problems of a fit."""
    answers, failed = ask(client, describe_machine)
    workers = {
        address: {**answers[address], "threads": w["nthreads"], "memory_limit": w["memory_limit"]}
        for address, w in client.scheduler_info(n_workers=-1)["workers"].items()
        if address in answers
    }
    return workers, [*check_versions(client), *failed, *check_memory(workers)]


def check_access(client: Any, reason: Any) -> list[str]:
    """Return why workers have no access; `reason` is called on each worker."""
    answers, failed = ask(client, reason)
    return [
        *failed,
        *(f"Worker {address}: {answer}" for address, answer in answers.items() if answer),
    ]


def check_output(client: Any, output: str) -> list[str]:
    """Let every worker write next to an output; return why workers cannot."""
    path = local_path(output)
    folder = output.rstrip("/").rpartition("/")[0] if path is None else str(path.parent)
    if path is not None and not path.parent.is_dir():
        raise FileNotFoundError(f"The folder {folder!r} of --output does not exist; create it.")
    token = f"{folder}/.daskclust-doctor-{uuid.uuid4().hex[:12]}"
    write_whole(token, b"daskclust", check=lambda: None)
    try:
        return check_access(client, partial(reason_not_writable, token))
    finally:
        remove(token)


def _run(options: argparse.Namespace) -> int:
    if options.compile:
        return console.print_results(options, _compiling.compile_all(), _compiling.as_text)
    results = doctor(DoctorRequest.of(options))
    return console.print_results(options, results, _as_text) or int(bool(results["problems"]))


def doctor(options: DoctorRequest) -> dict[str, Any]:
    """Return facts about a cluster, and its problems."""
    from daskclust.app.commands._cubes import open_cube_of

    source = None if options.cube is None else open_cube_of(options).stored
    with console.open_client(options, CPU_COUNT, console.Progress()) as client:
        workers, problems = examine(client)
        problems += check_threads(workers)
        if source is not None:
            stored = source.values if source.array is None else StoredArray(source.array)
            problems += check_access(client, partial(reason_not_readable, stored))
        if options.output is not None:
            problems += check_output(client, options.output)
        versions = client.get_versions(packages=PACKAGES)["client"]["packages"]
    return {"client": {"versions": versions}, "workers": workers, "problems": problems}


def _as_text(results: Mapping[str, Any]) -> list[str]:
    workers, packages = results["workers"].values(), results["client"]["versions"].items()
    memory = format_bytes(sum(worker["memory_limit"] or 0 for worker in workers))
    versions = [f"{name} {version or 'missing'}" for name, version in packages]
    threads = sum(worker["threads"] for worker in workers)
    cluster = f"Cluster   {len(workers)} workers, {threads} threads, {memory}"
    problems = [f"Problem   {problem}" for problem in results["problems"]]
    return [f"Versions  {', '.join(versions)}", cluster, *(problems or ["No problems found."])]
