"""How far one scheduler carries: a model of its costs, and hundreds of simulated workers.

``python tests/benchmarks/scaling.py`` fits the model to passes on few simulated workers, and
compares its predictions for more workers with measured passes. Simulated workers share the cores
with scheduler and client, so processor times are listed separately. With ``--scheduler-file FILE``
it measures a cluster instead: passes over synthetic rows on 1, 2, 4, ... of its workers, with rows
that grow with the workers (weak scaling) and rows that stay the same (strong scaling), and a
forecast for ``--rows`` rows on more cores.
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from _timing import middle, print_table
from dask.utils import parse_bytes
from distributed import Client, LocalCluster
from scipy.optimize import nnls
from simulated import simulated

from daskclust.core.array_types import Floats
from daskclust.core.engine.blocks import Block, Group, Prepare, fold
from daskclust.core.engine.private_api import worker_infos
from daskclust.core.engine.resilient_tasks import Slot, Task, WorkerSlots
from daskclust.core.engine.rows import ClusterExecutor, OpenRows
from daskclust.core.engine.wait_for_workers import workers_of
from daskclust.core.reduction import ASSIGN, CenterSets, Reduction

#: By how much a prediction may be wrong.
TARGET = 0.3
STATES = (400, 40_000)
#: Of what two cores can show, two workers must show so much.
TARGET_WEAK = 0.9
#: Numbers of cores of the forecast.
_CORES = (64, 256, 512, 1024, 4096)

#: Partials that a task merges.
_SPLIT_EVERY = 8


def _make(start: int, size: int, n_features: int) -> Group:
    rng = np.random.default_rng(start)
    return Group([Block(start, size, rng.random((size, n_features), dtype=np.float32))])


def _fold_again(
    group: Group, prepare: Prepare, reduction: Reduction, state: Any, repeats: int
) -> list[float]:
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        fold(group, prepare, reduction, state)
        seconds.append(time.perf_counter() - began)
    return seconds


class MadeRows(OpenRows):
    """Noise in float32: at each of `places`, addresses of workers, a group of one block."""

    def __init__(self, client: Any, places: Sequence[str], size: int, n_features: int) -> None:
        slots = [Slot(size, place) for place in places]
        groups, ranges = [], []
        for i, slot in enumerate(slots):
            arguments = (i * size, size, n_features)
            groups.append(Task("make", _make, arguments, slot).submit(client))
            ranges.append([(i * size, (i + 1) * size)])
        executor = ClusterExecutor(WorkerSlots(client, slots, workers_of(client)), groups, ranges)
        super().__init__(executor, np.dtype(np.float32), (size,) * len(slots), n_features)

    def alone(self, reduction: Reduction, state: Any, repeats: int) -> list[list[float]]:
        """Return seconds of passes over each group by one task: without scheduler and client."""
        return self._executor.map(
            "alone", _fold_again, self._prepare, reduction, state, int(repeats)
        )


@dataclass(frozen=True)
class Sample:
    """A measured pass over groups that hold next to nothing; a group is what one task goes over.

    `state_bytes` is what each task is sent; `seconds` are of the clock, the others of processors.
    """

    groups: int
    state_bytes: int
    seconds: float
    client_seconds: float
    scheduler_seconds: float
    worker_seconds: float


def n_tasks(groups: int) -> int:
    """Return how many tasks a pass submits: one a group, and a tree of merges."""
    total = level = groups
    while level > _SPLIT_EVERY:
        level = -(-level // _SPLIT_EVERY)
        total += level
    return total


def _features(groups: int, state_bytes: int) -> Floats:
    tasks = n_tasks(groups)
    return np.array([1.0, tasks, tasks * float(state_bytes)])


@dataclass(frozen=True)
class Cost:
    """Seconds: a constant, for each task, and for each byte of the state in each task."""

    constant: float
    task: float
    byte: float

    @classmethod
    def fit(cls, samples: Sequence[Sample], values: Sequence[float]) -> Cost:
        """Fit to measured seconds by least squares of relative errors; nothing is negative."""
        scale = 1.0 / np.maximum(np.asarray(values, dtype=float), 1e-6)
        features = np.array([_features(s.groups, s.state_bytes) for s in samples])
        # Bytes are many: columns of one size keep the solver's tolerances meaningful.
        size = np.maximum(np.abs(features * scale[:, None]).max(axis=0), 1e-300)
        found, _ = nnls(features * scale[:, None] / size, np.asarray(values) * scale)
        return cls(*(found / size).tolist())

    def of(self, groups: int, state_bytes: int) -> float:
        return float(_features(groups, state_bytes) @ (self.constant, self.task, self.byte))


@dataclass(frozen=True)
class CostModel:
    """Costs of passes on a cluster, fitted to samples.

    Of the clock; of the processors of client, scheduler, and all workers together.
    """

    seconds: Cost
    client: Cost
    scheduler: Cost
    workers: Cost

    @classmethod
    def fit(cls, samples: Sequence[Sample]) -> CostModel:
        """Fit to samples of at least two numbers of groups."""
        names = ("seconds", "client_seconds", "scheduler_seconds", "worker_seconds")
        return cls(*(Cost.fit(samples, [getattr(s, name) for s in samples]) for name in names))

    def forecast(
        self, *, rows: float, cores: int, rows_a_second: float, state_bytes: int
    ) -> dict[str, float]:
        """Say what a pass over rows in memory would take, on them and beside: one group a core.

        ``scheduler_share`` is the share of the time that the scheduler is busy.
        """
        work, overhead = rows / cores / rows_a_second, self.seconds.of(cores, state_bytes)
        return {
            "cores": cores,
            "groups": cores,
            "tasks": n_tasks(cores),
            "work_seconds": work,
            "overhead_seconds": overhead,
            "efficiency": work / (work + overhead),
            "scheduler_share": min(1.0, self.scheduler.of(cores, state_bytes) / (work + overhead)),
        }

    def most_cores(self, **pass_: Any) -> int:
        """Return up to how many cores a pass keeps an efficiency of 0.9; 0 where one has less."""

        def is_worse(cores: int) -> bool:
            return self.forecast(cores=cores, **pass_)["efficiency"] < 0.9

        return bisect_left(range(1, 2**24), True, key=is_worse)


#: Rows of a block that holds next to nothing.
_TINY = 10
#: Share of a worker's memory that its made-up rows may take, and bytes at most.
_SHARE, _LARGEST = 0.1, parse_bytes("512 MiB")


def centers_of(k: int, p: int) -> CenterSets:
    return CenterSets(np.random.default_rng(0).random((1, k, p)))


def steps_to(n: int) -> list[int]:
    """Numbers of workers to measure: powers of two, and all of them."""
    found = [2**i for i in range(n.bit_length()) if 2**i < n]
    return [*found, n]


def rows_for(client: Any, worker: str, limit: int, p: int, k: int, seconds: float) -> int:
    """Return how many rows keep a thread of a worker busy for so long in a pass.

    `limit` is bytes of memory for each thread, 0 where unknown.
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

    In strong scaling there are `rows_a_thread` for the threads of the first worker. In each of the
    `repeats` a pass of the engine and one of every worker alone take turns; the shortest pass of
    each kind counts: what else runs on the machine only adds. ``alone_seconds`` are of the slowest
    core in passes that neither client nor scheduler take part in, ``possible`` is their efficiency.
    """
    workers = list(threads)
    state = centers_of(k, p)
    measured: list[dict[str, Any]] = []
    for kind in ("weak", "strong"):
        first: dict[str, Any] = {}
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
            first = first or here
            for name, key in (("efficiency", "seconds"), ("possible", "alone_seconds")):
                speed = here["rows"] / here[key] / here["cores"]
                here[name] = speed / (first["rows"] / first[key] / first["cores"])
            here["share_of_possible"] = here["efficiency"] / here["possible"]
            measured.append(here)
            del rows
    return measured


def measure_overhead(
    client: Any,
    places: Sequence[Sequence[str]],
    state_bytes: Sequence[int],
    repeats: int,
    say: Callable[[str], None],
) -> list[Sample]:
    """Measure passes over blocks that hold next to nothing, one a worker of `places`."""
    p = 5
    found = []
    # One worker of each process that has workers.
    found_in = client.run(lambda: (socket.gethostname(), os.getpid()))
    processes = [*{process: worker for worker, process in found_in.items()}.values()]

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
            size = int(state.centers.nbytes)
            found.append(Sample(len(where), size, min(seconds), *spent.tolist()))
        del rows
    return found


def weak(rounds: int, seconds: float = 1.0, p: int = 32, k: int = 16) -> float:
    """Return the weak scaling to two worker processes, as a share of what the cores can do."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        threads = dict(client.nthreads())
        rows = rows_for(client, next(iter(threads)), 0, p, k, seconds)
        table = measure_scaling(client, threads, rows, p, k, rounds, print)
    (two,) = (line for line in table if line["kind"] == "weak" and line["workers"] == 2)
    return float(two["share_of_possible"])


def compare(
    few: tuple[int, ...],
    many: tuple[int, ...],
    repeats: int = 1,
    states: tuple[int, ...] = STATES,
    rounds: int = 3,
) -> list[tuple[Sample, CostModel]]:
    """Fit to few workers; measure many, and return these with the model.

    Few and many are clusters of their own, which take turns: what else the machine does slows
    both.  The scheduler of the few never has more.
    """
    found: dict[tuple[int, int], list[Sample]] = {}
    with simulated() as small, simulated() as large:
        workers = {small: small.grow(max(few)), large: large.grow(max(many))}
        for _ in range(rounds):
            # Short passes are measured more often: they vary more.
            for cluster, counts in ((small, few), (large, many), (small, few)):
                places = [workers[cluster][:count] for count in counts]
                for sample in measure_overhead(cluster.client, places, states, repeats, print):
                    found.setdefault((sample.groups, sample.state_bytes), []).append(sample)
    samples = [in_the_middle(same) for same in found.values()]
    for sample in samples:
        print(sample)
    model = CostModel.fit([sample for sample in samples if sample.groups in few])
    return [(sample, model) for sample in samples if sample.groups in many]


def in_the_middle(samples: list[Sample]) -> Sample:
    """Return the medians: short passes find a quiet moment more often than long ones."""
    names = ("seconds", "client_seconds", "scheduler_seconds", "worker_seconds")
    times = {name: middle([getattr(sample, name) for sample in samples]) for name in names}
    return replace(samples[0], **times)


def predictions(sample: Sample, model: CostModel) -> dict[str, tuple[float, float]]:
    """Return predicted and measured seconds: of the clock, and of processors."""
    measured = {
        "clock": (model.seconds, sample.seconds),
        "scheduler": (model.scheduler, sample.scheduler_seconds),
        "client": (model.client, sample.client_seconds),
        "workers": (model.workers, sample.worker_seconds),
    }
    size = sample.groups, sample.state_bytes
    return {name: (cost.of(*size), seconds) for name, (cost, seconds) in measured.items()}


def describe_cluster(client: Any, rows: float, p: int = 32, k: int = 8, repeats: int = 3) -> None:
    """Print the scaling of a cluster, and a forecast for more cores."""
    threads = dict(client.nthreads())
    workers = list(threads)
    infos = worker_infos(client).items()
    limit = min((info.limit // max(1, threads[w]) for w, info in infos), default=0)
    each = rows_for(client, workers[0], limit, p, k, 0.5)
    table = measure_scaling(client, threads, each, p, k, repeats, print)
    columns = ("rows", "seconds", "rows_a_second_and_core", "efficiency", "possible")
    columns += ("scheduler_share",)
    lines = [
        [line["kind"], str(line["workers"]), *(f"{line[key]:.4g}" for key in columns)]
        for line in table
    ]
    print_table(["scaling", "workers", *columns], lines)
    counts = sorted({max(count, len(workers)) for count in (8, 32, 128)})
    if len(counts) == 1:
        counts = [counts[0] // 8, counts[0] // 2, counts[0]]
    places = [[workers[i % len(workers)] for i in range(count)] for count in counts]
    model = CostModel.fit(measure_overhead(client, places, (512, 65_536), repeats, print))
    print(model)
    one = next(line for line in table if line["workers"] == 1)
    given: dict[str, Any] = {
        "rows": rows,
        "rows_a_second": one["rows"] / one["alone_seconds"] / one["cores"],
        "state_bytes": int(centers_of(k, p).centers.nbytes),
    }
    passes = [model.forecast(cores=count, **given) for count in _CORES]
    print_table(list(passes[0]), [[f"{value:.4g}" for value in one.values()] for one in passes])
    print(f"Up to {model.most_cores(**given)} cores a pass has an efficiency of 0.9.")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--few", default="16,32,64,128")
    parser.add_argument("--many", default="512")
    parser.add_argument("--scheduler-file")
    parser.add_argument("--rows", type=float, default=1e9, help="number of rows of the forecast")
    options = parser.parse_args()
    if options.scheduler_file:
        with Client(scheduler_file=options.scheduler_file, set_as_default=False) as client:
            describe_cluster(client, options.rows)
        return
    few, many = (tuple(int(n) for n in text.split(",")) for text in (options.few, options.many))
    table = []
    for sample, model in compare(few, many):
        shown = [str(sample.groups), str(sample.state_bytes)]
        pairs = predictions(sample, model)
        shown += [f"{1e3 * said:.0f} / {1e3 * measured:.0f}" for said, measured in pairs.values()]
        table.append(shown)
    heads = [f"{name}, ms (predicted / measured)" for name in pairs]
    print_table(["workers", "state, bytes", *heads], table)


if __name__ == "__main__":
    main()
