"""``daskclust doctor``: whether client, scheduler and workers fit together."""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import os
import platform
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import cache, partial
from pathlib import Path
from typing import Any

import psutil
from dask.system import CPU_COUNT
from dask.utils import format_bytes

from daskclust.app.commands.console import (
    Progress,
    add_cluster_arguments,
    counted,
    open_client,
    tell,
)
from daskclust.core.storage.files import read_start, remove, write_whole
from daskclust.core.storage.redact import redact
from daskclust.core.storage.stored_array import StoredArray
from daskclust.core.storage.stores import local_path
from daskclust.exceptions import StoreError

#: Packages whose versions must be the same everywhere: their objects travel.
MUST_MATCH = ("daskclust", "dask", "distributed", "numpy", "numba", "zarr")
OTHERS = ("scikit-learn", "scipy", "cloudpickle", "msgpack")
#: Packages that read files.  Tasks name them: a worker without one cannot unpack what it is given.
READERS = ("fsspec", "h5py", "pandas", "pyarrow", "rasterio", "s3fs", "xarray")
EXTRAS = {"matplotlib": "plot", "xarray": "xarray", "pandas": "dataframe", "bokeh": "dashboard"}


def look_around() -> dict[str, Any]:
    """Describe the process this runs in: client, scheduler or worker."""
    versions: dict[str, str | None] = {}
    for name in dict.fromkeys((*MUST_MATCH, *OTHERS, *READERS, *EXTRAS)):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    group, allowed = control_group()
    return {
        "python": platform.python_version(),
        "host": platform.node(),
        "versions": versions,
        "code": code_digest(),
        "cores": CPU_COUNT,
        "on_cores": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory": int(psutil.virtual_memory().total),
        "control_group": group,
        "control_group_limit": allowed,
        "clock": time.time(),
        "environment": {
            name: os.environ.get(name)
            for name in ("OMP_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_", "NUMBA_CACHE_DIR")
        },
        "temporary_is_writable": os.access(os.environ.get("TMPDIR", "/tmp"), os.W_OK),
        "executable": sys.executable,
    }


def look_around_worker(dask_worker: Any) -> dict[str, Any]:
    """Describe the process of a worker, and where it spills to."""
    folder = Path(dask_worker.local_directory)
    return {
        **look_around(),
        "spill_folder": str(folder),
        "spill_file_system": file_system_of(folder),
        "disk_free": shutil.disk_usage(folder).free,
        "has_nanny": dask_worker.nanny is not None,
    }


@cache
def code_digest() -> str:
    """Digest of the package's modules: working copies of one version number may differ."""
    root = Path(__file__).resolve().parents[2]
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:12]


def control_group(
    membership: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> tuple[str | None, int | None]:
    """Return the control group that bounds the memory of this process most, and its bytes.

    Of groups inside each other, the one that sets the limit. `membership` is what the kernel says
    of the groups of a process; `root` is where groups are mounted, of version 1 or 2.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None, None
    best: tuple[str | None, int | None] = (None, None)
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        # In a container the group of the host may not be visible: then its top is ours.
        group = top / path.lstrip("/")
        for place in (group, *group.parents):
            if not place.is_relative_to(top):
                break
            limit = _bytes_in(place / name)
            if limit is not None and (best[1] is None or limit < best[1]):
                best = (f"/{place.relative_to(top)}".replace("/.", "/"), limit)
    return best


def _bytes_in(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    # Version 1 says "no limit" by a number that no machine has.
    return int(text) if text.isdigit() and int(text) < 2**60 else None


def file_system_of(folder: Path) -> str:
    """Return the type of the file system that holds a folder, such as ``"ext4"``.

    >>> file_system_of(Path("/proc/self"))
    'proc'
    """
    place = folder.resolve()
    best = ("", "unknown")
    for partition in psutil.disk_partitions(all=True):
        mount = Path(partition.mountpoint)
        if place.is_relative_to(mount) and len(str(mount)) >= len(best[0]):
            best = str(mount), partition.fstype
    return best[1]


def sees(array: Any) -> str | None:
    """Return why this process does not see an array as the client does, or None.

    Of a Dask array the first block is read.
    """
    try:
        if not isinstance(array, StoredArray):
            array.blocks[(0,) * array.ndim].compute(scheduler="sync")
            return None
        array.compare()
        array.array[tuple(slice(0, 1) for _ in array.shape)]
    except (StoreError, OSError, ValueError, KeyError, ImportError) as error:
        return " ".join(redact(error).split())
    return None


def shares(token: str) -> str | None:
    """Return why this process cannot write where the client has made a file, or None."""
    folder = redact(token.rpartition("/")[0])
    mine = f"{token}.{uuid.uuid4().hex[:8]}"
    path = local_path(mine)
    try:
        if read_start(token, 1) is None:
            return f"it does not see {folder!r} as the client does"
        if path is None:
            write_whole(mine, b"daskclust", check=lambda: None)
            remove(mine)
        else:
            path.write_bytes(b"daskclust")
    except Exception as error:  # libraries of object stores have errors of their own
        why = " ".join(redact(error).split())
        if path is not None and isinstance(error, OSError):
            why = str(error.strerror)
        return f"it cannot write to {folder!r}: {why}"
    finally:
        if path is not None:
            path.unlink(missing_ok=True)
    return None


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
    here = {"scheduler": scheduler, **{f"worker {a}": w for a, w in workers.items()}}
    places = {place: around for place, around in here.items() if around is not None}
    for name in ("python", *MUST_MATCH):
        is_python = name == "python"
        mine = client["python"] if is_python else client["versions"][name]
        other: dict[Any, list[str]] = {}
        for place, around in places.items():
            theirs = around["python"] if is_python else around["versions"].get(name)
            differ = theirs != mine
            if is_python:
                differ = theirs.split(".")[:2] != mine.split(".")[:2]
            if differ:
                other.setdefault(theirs, []).append(place)
        for version, where in other.items():
            yield (
                f"{name} is {mine} here but {version or 'missing'} on {_some(where)}: install the "
                "same version everywhere."
            )

    for name in READERS:
        lacking = [p for p, around in places.items() if around["versions"].get(name, "?") is None]
        if client["versions"].get(name) and lacking:
            yield (
                f"{name} is {client['versions'][name]} here but missing on {_some(lacking)}: what "
                "it opens here cannot be read there. Install the same extras everywhere."
            )

    mine = client["code"], client["versions"]["daskclust"]
    others = [
        place
        for place, around in places.items()
        if around["versions"].get("daskclust") == mine[1] and around.get("code") != mine[0]
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
    for (host,), here in _by(workers, "host"):
        memory, limit = max(w["memory"] for w in here), _sum_of_limits(here)
        if limit > memory:
            yield (
                f"Host {host} has {format_bytes(memory)}, the memory limits of its workers sum to "
                f"{format_bytes(limit)}: workers are killed before they spill. Lower "
                "--memory-limit."
            )
    for (host, name), here in _by(workers, "host", "control_group"):
        if name is None:
            continue
        allowed, limit = min(w["control_group_limit"] for w in here), _sum_of_limits(here)
        if allowed < limit <= max(w["memory"] for w in here):
            yield (
                f"The control group {name!r} on host {host} allows {format_bytes(allowed)}, the "
                f"memory limits of its workers sum to {format_bytes(limit)}: workers are killed "
                "before they spill. Lower --memory-limit, or ask for more memory."
            )


def _by(workers: Mapping[str, Around], *keys: str) -> Iterable[tuple[Any, list[Around]]]:
    found: dict[Any, list[Around]] = {}
    for worker in workers.values():
        found.setdefault(tuple(map(worker.get, keys)), []).append(worker)
    return found.items()


def _sum_of_limits(workers: list[Around]) -> int:
    return sum(worker["memory_limit"] or 0 for worker in workers)


def _threads(workers: Mapping[str, Around]) -> Iterator[str]:
    for (host,), here in _by(workers, "host"):
        threads = sum(w["threads"] for w in here)
        cores = max(w["cores"] for w in here)
        bound = {tuple(w.get("on_cores") or ()) for w in here}
        if len(bound) > 1:  # a batch system gives each its own
            cores = max(cores, len({core for some in bound for core in some}))
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
        yield (
            f"its clock is {worker['clock_skew']:.0f} s off this machine's, or more. Synchronize "
            "clocks."
        )
    yield from (str(worker[name]) for name in ("cube", "output") if worker.get(name))


def _some(places: list[str]) -> str:
    return ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")


#: Seconds that a fit waits for answers about its cluster.
_PATIENCE = 15.0
#: Problems that a fit names.
_NAMED = 4


def ask_workers(client: Any) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return what each worker says of itself and the scheduler knows of it, by address.

    And problems of workers that cannot say anything, as where daskclust is not installed.
    """
    asked = time.time()
    around = client.run(look_around_worker, on_error="return")
    answered = time.time()
    found, failed = {}, []
    for address, info in client.scheduler_info(n_workers=-1)["workers"].items():
        if address not in around:  # it has come meanwhile
            continue
        if isinstance(around[address], BaseException):
            failed.append(f"Worker {address} cannot be examined: {_error(around[address])}.")
            continue
        clock = around[address]["clock"]
        found[address] = {
            **around[address],
            "threads": info["nthreads"],
            "memory_limit": info["memory_limit"],
            "memory_used": info["metrics"]["memory"],
            # The worker answered at some time between.
            "clock_skew": max(asked - clock, clock - answered, 0.0),
        }
    return found, failed


def _error(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(redact(error).split())}".rstrip(".")


def look_before_fit(client: Any, progress: Progress) -> None:
    """Say what would spoil a fit on a cluster; never keep it from starting.

    Costs a short call of each worker, all at once.  What is answered late, as by workers that
    still import, is said then.
    """
    answer: Future[list[str]] = Future()

    def ask() -> None:
        try:
            scheduler = client.run_on_scheduler(look_around)
            workers, failed = ask_workers(client)
            answer.set_result([*failed, *spoilers(look_around(), scheduler, workers)])
        except BaseException as error:
            answer.set_exception(error)

    # In a thread: a worker that is stopped answers when it goes on, and a fit can wait for that.
    threading.Thread(target=ask, name="daskclust-look", daemon=True).start()
    late = False
    try:
        answer.result(_PATIENCE)
    except TimeoutError:
        late = True
        progress.say(
            f"The cluster did not answer for {_PATIENCE:.0f} s; what is wrong with it is said when "
            "it does."
        )
    except Exception:  # said below
        pass
    answer.add_done_callback(partial(_say_problems, progress, late))


def _say_problems(progress: Progress, late: bool, answer: Future[list[str]]) -> None:
    error = answer.exception()
    if error is not None:
        # Late, it is most likely that the command is done.
        if not late:
            progress.say(
                f"warning: the cluster was not examined ({type(error).__name__}); "
                "daskclust doctor tells more."
            )
        return
    problems = answer.result()
    for problem in problems[:_NAMED]:
        progress.say(f"warning: {problem}")
    if len(problems) > _NAMED:
        progress.say(f"warning: {len(problems) - _NAMED} more; daskclust doctor names them.")


def who_cannot_write(client: Any, output: str | None) -> dict[str, str | None]:
    """Ask every worker to write beside an output, and to remove it again."""
    if output is None:
        return {}
    path = local_path(output)
    folder = output.rstrip("/").rpartition("/")[0] if path is None else str(path.parent)
    if path is not None and not path.parent.is_dir():
        raise FileNotFoundError(
            f"The folder {folder!r} of --output does not exist; create it, where all workers "
            "see it."
        )
    token = f"{folder}/.daskclust-doctor-{uuid.uuid4().hex[:12]}"
    write_whole(token, b"daskclust", check=lambda: None)
    try:
        return _in_words(client.run(partial(shares, token), on_error="return"))
    finally:
        remove(token)


def _in_words(answers: dict[str, Any]) -> dict[str, str | None]:
    """Say what workers answered that none of the functions above has foreseen."""
    return {
        address: f"it could not look: {_error(found)}."
        if isinstance(found, BaseException)
        else found
        for address, found in answers.items()
    }


def add_command(commands: Any) -> None:
    # Not at the top: workers import this module, and need nothing of it.
    from daskclust.app.commands._cubes import add_cube_arguments

    parser = commands.add_parser(
        "doctor",
        usage="%(prog)s [options] [CUBE]",
        description="Check versions, threads, memory, disks and clocks of this machine and of a "
        "cluster, and whether every worker sees a cube and can write where its map goes. Say what "
        "to change. Exit code 1 if something should be.",
    )
    add_cube_arguments(parser, scale=False)
    parser.add_argument(
        "--output", metavar="STORE", help="where a map is to be written; nothing stays there"
    )
    parser.add_argument(
        "--compile",
        action="store_true",
        help="only compile the kernels of all estimators in advance, and print the folders where "
        "they are stored: next to the package, or NUMBA_CACHE_DIR; exit code 1 if they cannot be "
        "stored",
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")
    add_cluster_arguments(parser)


def _compile(options: argparse.Namespace) -> int:
    from daskclust.app.commands._compiling import as_text, compile_all

    found = compile_all()
    tell(options, found, as_text)
    if found["folders"]:
        return 0
    raise OSError(
        "Compiled kernels cannot be stored: the folder of the package and the home folder are "
        "read-only. Set NUMBA_CACHE_DIR to a folder that can be written to."
    )


def _run(options: argparse.Namespace) -> int:
    from daskclust.app.commands._cubes import open_cube_of

    if options.compile:
        return _compile(options)
    client_side = look_around()
    stored: Any = None
    if options.cube is not None:
        source = open_cube_of(options).stored
        stored = source.values if source.array is None else StoredArray(source.array)
    progress = Progress()
    with (
        progress.task("Cluster"),
        open_client(options, useful_workers=CPU_COUNT, progress=progress) as client,
    ):
        scheduler = client.run_on_scheduler(look_around)
        workers, failed = ask_workers(client)
        unseen = {}
        if stored is not None:
            unseen = _in_words(client.run(partial(sees, stored), on_error="return"))
        unwritten = who_cannot_write(client, options.output)
        for address, worker in workers.items():
            worker["cube"], worker["output"] = unseen.get(address), unwritten.get(address)
    problems = [*failed, *diagnose(client_side, scheduler, workers)]
    found = {
        "client": client_side,
        "scheduler": scheduler,
        "workers": workers,
        "cube": None if options.cube is None else redact(options.cube),
        "problems": problems,
    }
    tell(options, found, _as_text)
    return 1 if problems else 0


def _as_text(found: Mapping[str, Any]) -> list[str]:
    client, workers = found["client"], found["workers"]
    versions = client["versions"]
    threads = sum(worker["threads"] for worker in workers.values())
    limits = [worker["memory_limit"] for worker in workers.values()]
    memory = format_bytes(sum(limits)) if all(limits) else "not all with a memory limit"
    missing = [
        f"{name} (daskclust[{extra}])" for name, extra in EXTRAS.items() if versions[name] is None
    ]
    lines = [
        f"Python    {client['python']} at {client['executable']}",
        "Versions  " + ", ".join(f"{name} {versions[name]}" for name in (*MUST_MATCH, *OTHERS)),
        f"Extras    {', '.join(f'{n} {versions[n]}' for n in EXTRAS if versions[n])}"
        + (f"; missing: {', '.join(missing)}" if missing else ""),
        f"Machine   {client['cores']} cores, {format_bytes(client['memory'])}",
        f"Cluster   {counted(len(workers), 'worker')}, {counted(threads, 'thread')}, {memory}",
    ]
    problems = [f"Problem   {problem}" for problem in found["problems"]]
    return lines + (problems or ["All is well."])
