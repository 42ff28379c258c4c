"""How passes scale on a cluster: strong, weak, and what tasks cost client and scheduler."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from dask.utils import parse_bytes

from daskclust._types import Floats
from daskclust.commands._cost_model import Sample
from daskclust.engine.made import MadeRows
from daskclust.reduction import ASSIGN, CenterSets

__all__ = ["measure_overhead", "measure_scaling", "rows_for"]

#: Rows of a block that holds next to nothing.
_TINY = 10
#: Share of a worker's memory that its made-up rows may take, and bytes at most.
_SHARE, _LARGEST = 0.1, parse_bytes("512 MiB")


def centers_of(k: int, p: int) -> CenterSets:
    """Return centers amid the made-up rows."""
    return CenterSets(np.random.default_rng(0).random((1, k, p)))


def steps_to(n: int) -> list[int]:
    """Numbers of workers to measure: powers of two, and all of them.

    Examples
    --------
    >>> steps_to(6)
    [1, 2, 4, 6]
    """
    found = [2**i for i in range(n.bit_length()) if 2**i < n]
    return [*found, n]


def rows_for(client: Any, worker: str, limit: int, p: int, k: int, seconds: float) -> int:
    """Return how many rows keep a thread of a worker busy for so long in a pass.

    Parameters
    ----------
    client : distributed.Client
    worker : str
        Address.
    limit : int
        Bytes of memory for each thread; 0 means unknown.
    p, k : int
        Features and clusters.
    """
    trial = 20_000
    rows = MadeRows(client, [worker], trial, p)
    state = centers_of(k, p)
    rows.alone(ASSIGN, state, 1)  # compiles, or reads what was compiled
    taken = min(rows.alone(ASSIGN, state, 3)[0])
    largest = min(_LARGEST, _SHARE * limit) if limit else _LARGEST
    return int(max(trial, min(trial * seconds / taken, largest / (4 * p))))


def _pass_seconds(rows: MadeRows, state: CenterSets, repeats: int) -> list[float]:
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        rows.reduce(ASSIGN, state)
        found.append(time.perf_counter() - began)
    return found


def measure_scaling(
    client: Any,
    threads: dict[str, int],
    rows_a_thread: int,
    p: int,
    k: int,
    repeats: int,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Measure passes on 1, 2, 4, ... workers, with rows that grow with them and that do not.

    Parameters
    ----------
    client : distributed.Client
    threads : dict of str to int
        Of each worker.
    rows_a_thread : int
        In weak scaling; in strong scaling, of the first worker's threads.
    repeats : int
        Rounds; in each, a pass of the engine and one of every worker alone take turns.
    say : callable(str)

    Returns
    -------
    list of dict
        For each kind and number of workers: ``kind``, ``workers``, ``cores``, ``rows``,
        ``seconds`` of a pass, ``alone_seconds`` of the slowest core in passes that
        neither client nor scheduler take part in, ``rows_a_second_and_core``,
        ``efficiency`` against one worker, ``possible`` (the same of cores alone),
        ``share_of_possible``, and ``scheduler_share`` of the time of one core.

    Notes
    -----
    The shortest pass of each kind counts: what else runs on the machine only adds.
    """
    workers = list(threads)
    state = centers_of(k, p)
    measured: list[dict[str, Any]] = []
    for kind in ("weak", "strong"):
        first: dict[str, Any] | None = None
        total = rows_a_thread * threads[workers[0]]
        for n in steps_to(len(workers)):
            say(f"{kind} scaling, {n} of {len(workers)} workers")
            places = [w for w in workers[:n] for _ in range(threads[w])]
            size = rows_a_thread if kind == "weak" else max(1, total // len(places))
            rows = MadeRows(client, places, size, p)
            rows.reduce(ASSIGN, state)
            seconds: list[float] = []
            alone: list[float] = []
            busy = spent = 0.0
            for _ in range(repeats):
                at = time.perf_counter(), client.run_on_scheduler(time.process_time)
                seconds += _pass_seconds(rows, state, 1)
                busy += client.run_on_scheduler(time.process_time) - at[1]
                spent += time.perf_counter() - at[0]
                alone.append(max(found[0] for found in rows.alone(ASSIGN, state, 1)))
            here: dict[str, Any] = {
                "kind": kind,
                "workers": n,
                "cores": len(places),
                "rows": rows.n_rows,
                "seconds": min(seconds),
                "alone_seconds": min(alone),
                "rows_a_second_and_core": rows.n_rows / min(seconds) / len(places),
                "scheduler_share": busy / spent,
            }
            first = here if first is None else first
            for name, key in (("efficiency", "seconds"), ("possible", "alone_seconds")):
                speed = here["rows"] / here[key] / here["cores"]
                here[name] = speed / (first["rows"] / first[key] / first["cores"])
            here["share_of_possible"] = here["efficiency"] / here["possible"]
            measured.append(here)
            del rows
    return measured


def _process() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()


def _one_a_process(client: Any) -> list[str]:
    """Return one worker of each process that has workers."""
    return list({process: address for address, process in client.run(_process).items()}.values())


def measure_overhead(
    client: Any,
    places: Sequence[Sequence[str]],
    state_bytes: Sequence[int],
    repeats: int,
    say: Callable[[str], None],
) -> list[Sample]:
    """Measure passes over blocks that hold next to nothing.

    Parameters
    ----------
    client : distributed.Client
    places : sequence of sequences of str
        Workers of the groups, for each number of groups to measure.
    state_bytes : sequence of int
        Sizes of states.
    say : callable(str)
    """
    p = 5
    found = []
    processes = _one_a_process(client)

    def busy() -> Floats:
        workers = sum(client.run(time.process_time, workers=processes).values())
        return np.array([time.process_time(), client.run_on_scheduler(time.process_time), workers])

    for where in places:
        rows = MadeRows(client, where, _TINY, p)
        for size in state_bytes:
            say(f"{len(where)} groups, states of {size} bytes")
            state = centers_of(max(1, size // (8 * p)), p)
            rows.reduce(ASSIGN, state)
            # Asking takes time of them all, too.
            first, before = busy(), busy()
            asking = before - first
            seconds = _pass_seconds(rows, state, repeats)
            spent = np.maximum(busy() - before - asking, 0.0) / repeats
            client_seconds, scheduler_seconds, worker_seconds = spent.tolist()
            found.append(
                Sample(
                    groups=len(where),
                    state_bytes=int(state.centers.nbytes),
                    seconds=min(seconds),
                    client_seconds=client_seconds,
                    scheduler_seconds=scheduler_seconds,
                    worker_seconds=worker_seconds,
                )
            )
        del rows
    return found
