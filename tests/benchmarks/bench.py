"""How a cluster scales, or how fast a cube is read for clustering.

``python tests/benchmarks/bench.py --scheduler-file scheduler.json --rows 1e11`` measures passes
over synthetic rows on 1, 2, 4, ... workers and forecasts them for more; with a CUBE it compares a
plain Dask sum with passes of KMeans. ``--help`` lists the options.
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.system import CPU_COUNT
from dask.utils import format_bytes, parse_bytes
from scipy.optimize import nnls

from daskclust.app.commands._cubes import add_cube_arguments, open_cube_of
from daskclust.app.commands.console import (
    Parser,
    Progress,
    add_cluster_arguments,
    counted,
    natural,
    number,
    open_client,
    tell,
)
from daskclust.core.array_types import Floats
from daskclust.core.engine.blocks import Block, Group, Prepare, fold
from daskclust.core.engine.private_api import worker_infos
from daskclust.core.engine.resilient_tasks import Slot, Task, WorkerSlots
from daskclust.core.engine.rows import ClusterExecutor, OpenRows
from daskclust.core.engine.wait_for_workers import workers_of
from daskclust.core.reduction import ASSIGN, CenterSets, Reduction
from daskclust.core.storage.atomic_write import new_place, remove_stale
from daskclust.core.storage.outputs import keeping

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


#: Groups, in all, of the passes over next to nothing that the model is fitted to.
_GROUPS = (8, 32, 128)
#: Bytes of the states: of a few centers, and of many.
_STATES = (512, 65_536)
#: Cores that are forecast for.
_CORES = (64, 256, 512, 1024, 4096)


def _check_picture(path: str | None) -> None:
    if path is not None and Path(path).exists():
        raise FileExistsError(f"--picture {path!r} exists already; choose another name.")


def run_scaling(options: argparse.Namespace) -> int:
    progress = Progress()
    picture = options.picture
    if picture is not None and Path(picture).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"--picture {picture!r} must end in .png, .svg or .pdf.")
    _check_picture(picture)
    p, k = options.features, options.n_clusters
    with (
        keeping([picture]),
        open_client(options, useful_workers=CPU_COUNT, progress=progress) as client,
    ):
        threads = dict(client.nthreads())
        workers = list(threads)
        with progress.task("Rows"):
            infos = worker_infos(client).items()
            limit = min((info.limit // max(1, threads[w]) for w, info in infos), default=0)
            rows = rows_for(client, workers[0], limit, p, k, options.seconds)
        with progress.task("Scaling"):
            table = measure_scaling(client, threads, rows, p, k, options.passes, progress.show)
        # Workers of the groups, for each number of groups; at least one for each worker.
        counts = sorted({max(count, len(workers)) for count in _GROUPS})
        if len(counts) == 1:  # more workers than that: some of them, too
            counts = [counts[0] // 8, counts[0] // 2, counts[0]]
        places = [[workers[i % len(workers)] for i in range(count)] for count in counts]
        with progress.task("Overhead"):
            samples = measure_overhead(client, places, _STATES, options.passes, progress.show)
    model = CostModel.fit(samples)
    one = next(line for line in table if line["workers"] == 1)
    given: dict[str, Any] = {
        "rows": options.rows,
        "rows_a_second": one["rows"] / one["alone_seconds"] / one["cores"],
        "state_bytes": int(centers_of(k, p).centers.nbytes),
    }
    cores = sorted({*_CORES, sum(threads.values())})
    found = {
        "command": "bench",
        "features": p,
        "n_clusters": k,
        "workers": len(threads),
        "threads": sum(threads.values()),
        "rows_a_thread": rows,
        "scaling": table,
        "overhead": [asdict(sample) for sample in samples],
        "model": asdict(model),
        "forecast": {
            "rows": options.rows,
            "rows_a_second_and_core": given["rows_a_second"],
            "state_bytes": given["state_bytes"],
            "passes": [model.forecast(cores=count, **given) for count in cores],
            "most_cores_at_90_percent": model.most_cores(**given),
        },
    }
    if options.picture is not None:
        draw_scaling(found, options.picture)
    return tell(options, found, _as_text)


def draw_scaling(found: Mapping[str, Any], path: str) -> None:
    """Draw efficiencies and the forecast, as ``bench --json`` prints them, in a file."""
    from daskclust.plotting import new_figure

    figure = new_figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for kind, color in (("weak", "#0072b2"), ("strong", "#d55e00")):
        lines = [line for line in found["scaling"] if line["kind"] == kind]
        cores = [line["cores"] for line in lines]
        left.plot(cores, [x["efficiency"] for x in lines], "o-", color=color, label=kind)
        left.plot(cores, [x["possible"] for x in lines], ":", color=color, label=f"{kind}, cores")
    passes = found["forecast"]["passes"]
    cores = [one["cores"] for one in passes]
    right.plot(cores, [one["efficiency"] for one in passes], "o-", color="#009e73", label="pass")
    busy = [one["scheduler_share"] for one in passes]
    right.plot(cores, busy, "s--", color="#555555", label="scheduler's share")
    left.set_ylabel("efficiency")
    forecast = f"Forecast, {found['forecast']['rows']:.3g} rows"
    for axes, title in ((left, "Measured"), (right, forecast)):
        axes.set(title=title, xlabel="worker threads", ylim=(0, 1.15), xscale="log")
        axes.legend(frameon=False, fontsize="small")
    target = Path(path)
    with new_place(target, check=lambda: _check_picture(path)) as picture:
        figure.savefig(picture, format=target.suffix[1:].lower(), dpi=150)
    remove_stale(target)


def _as_text(found: Mapping[str, Any]) -> list[str]:
    p, k = found["features"], found["n_clusters"]
    lines = [
        f"Cluster   {counted(found['workers'], 'worker')}, {counted(found['threads'], 'thread')}; "
        f"passes of KMeans, {p} features, {counted(k, 'cluster')}",
        "",
        "scaling  workers  cores        rows   a pass  rows/s/core  efficiency  cores alone  "
        "scheduler",
    ]
    line = (
        "{kind:7}  {workers:7}  {cores:5}  {rows:10}  {seconds:5.3f} s  "
        "{rows_a_second_and_core:11.3g}  {efficiency:10.2f}  {possible:11.2f}  "
        "{scheduler_share:9.0%}"
    )
    lines += [line.format(**found) for found in found["scaling"]]
    model, forecast = found["model"], found["forecast"]
    lines += [
        "",
        f"A pass takes {1e3 * model['seconds']['constant']:.1f} ms, and "
        f"{1e3 * model['seconds']['task']:.2f} ms more for each task.",
        "Processor time of a task: "
        + ", ".join(
            f"{name} {1e3 * model[name]['task']:.2f} ms"
            for name in ("scheduler", "client", "workers")
        )
        + ".",
        f"Forecast for {forecast['rows']:.3g} rows in memory, "
        f"{forecast['rows_a_second_and_core']:.3g} rows/s and core, states of "
        f"{format_bytes(forecast['state_bytes'])}:",
        "",
        "cores    work on rows  overhead   efficiency  scheduler",
    ]
    line = (
        "{cores:5}  {work_seconds:12.2f} s  {overhead_seconds:6.3f} s  {efficiency:11.2f}  "
        "{scheduler_share:9.0%}"
    )
    lines += [line.format(**one) for one in forecast["passes"]]
    most = forecast["most_cores_at_90_percent"]
    return [*lines, "", f"Up to {most} cores a pass keeps an efficiency of 0.9."]


def _parser() -> Parser:
    parser = Parser(
        usage="%(prog)s [options] [CUBE]",
        description="With CUBE: measure a plain Dask sum over the stored cube and passes of KMeans "
        "over its pixels, on the same workers, and print both in bytes a second. Without: measure "
        "passes over synthetic rows on 1, 2, 4, ... workers, with rows that grow with them (weak "
        "scaling) and that do not (strong), and what tasks cost scheduler and client; and forecast "
        "how many cores one scheduler serves.",
    )
    add_cube_arguments(parser)
    parser.add_argument(
        "--n-clusters", type=natural, default=8, metavar="K", help="default: %(default)s"
    )
    parser.add_argument(
        "--passes", type=natural, default=3, metavar="N", help="to time (default: %(default)s)"
    )
    positive = number(lambda value: 0 < value < float("inf"), "is no positive number")
    group = parser.add_argument_group("without CUBE")
    group.add_argument(
        "--features", type=natural, default=32, metavar="P", help="default: %(default)s"
    )
    group.add_argument(
        "--seconds",
        type=positive,
        default=0.5,
        metavar="SECONDS",
        help="that a pass keeps each worker busy in weak scaling (default: %(default)s)",
    )
    group.add_argument(
        "--rows",
        type=positive,
        default=1e9,
        metavar="NUMBER",
        help="of the data to forecast for, such as 1e11 (default: %(default)g)",
    )
    group.add_argument("--picture", metavar="FILE", help="draw the scaling: .png, .svg or .pdf")
    parser.add_argument("--json", action="store_true", help="print as JSON")
    add_cluster_arguments(parser)
    return parser


def _import() -> None:
    import daskclust.scenes  # noqa: F401


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    options.parser = parser
    if options.cube is None:
        return run_scaling(options)
    if options.picture is not None:
        options.parser.error("--picture is of scaling, which is measured without CUBE")
    from daskclust import KMeans, on_iteration
    from daskclust.core.engine import compute

    progress = Progress()
    cube = open_cube_of(options)
    stored = cube.stored.values
    # A pass is compared with Zarr as Dask reads it.
    bare_values = stored if cube.stored.array is None else da.from_zarr(cube.stored.array)
    with (
        open_client(options, useful_workers=cube.blocks.count, progress=progress) as client,
        # Reading is what is measured.
        dask.config.set({"daskclust.persist": False}),
    ):
        # What workers import with their first task is not the speed of reading.
        client.run(_import)
        sums: list[float] = []
        with progress.task("Bare sum"):
            for _ in range(options.passes):
                began = time.perf_counter()
                compute("the bare sum", bare_values.sum(dtype=np.float64))
                sums.append(time.perf_counter() - began)
        with progress.task("Valid pixels"):
            n_valid = cube.n_valid
        start: dict[str, Any] = {"init": "random", "n_init": 1, "random_state": 0}
        model = KMeans(options.n_clusters, max_iter=options.passes, tol=0.0, **start)
        seconds: list[float] = []
        with (
            progress.task("KMeans", rows=n_valid),
            on_iteration(progress.iteration),
            on_iteration(lambda record: seconds.append(record["seconds"])),
        ):
            model.fit(cube.samples)
        workers = len(client.nthreads())
    # The first ones may compile, and find nothing in the memory of the system.
    bare, one = min(sums), min(seconds)
    found = {
        "bytes": int(stored.nbytes),
        "workers": workers,
        "bare_sum_seconds": bare,
        "pass_seconds": seconds,
        "bare_bytes_a_second": stored.nbytes / bare,
        "pass_bytes_a_second": stored.nbytes / one,
        "share_of_bare_speed": bare / one,
    }
    return tell(options, found, _speeds_as_text)


def _speeds_as_text(found: dict[str, Any]) -> list[str]:
    return [
        f"Cube      {format_bytes(found['bytes'])}, {counted(found['workers'], 'worker')}",
        f"Bare sum  {found['bare_sum_seconds']:.2f} s, "
        f"{format_bytes(int(found['bare_bytes_a_second']))}/s",
        f"A pass    {min(found['pass_seconds']):.2f} s, "
        f"{format_bytes(int(found['pass_bytes_a_second']))}/s, "
        f"{found['share_of_bare_speed']:.2f} times a bare sum's speed",
    ]


if __name__ == "__main__":
    main()
