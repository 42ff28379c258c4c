"""How a cluster scales, or how fast a cube is read for clustering.

``python tests/benchmarks/bench.py`` measures passes over made-up rows on 1, 2, 4, ... workers, with
rows that grow with them (weak scaling) and that do not (strong), and the costs of tasks for
scheduler and client, and forecasts how far one scheduler carries.  With a cube it measures a bare
Dask sum over it, and passes of KMeans over its pixels, on the same workers.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import made_rows
import numpy as np
from cluster_passes import centers_of, measure_overhead, measure_scaling, rows_for
from cost_model import CostModel
from dask.system import CPU_COUNT
from dask.utils import format_bytes

from daskclust.commands._cubes import add_cube_arguments, open_cube_of
from daskclust.commands.console import Progress, add_cluster_arguments, natural, open_client
from daskclust.commands.parser import Parser
from daskclust.storage.atomic import new_place

#: Groups, in all, of the passes over next to nothing that the model is fitted to.
_GROUPS = (8, 32, 128)
#: Bytes of the states: of a few centers, and of many.
_STATES = (512, 65_536)
#: Cores that are forecast for.
_CORES = (64, 256, 512, 1024, 4096)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    parser = Parser(prog="bench.py", usage="%(prog)s [options] [CUBE]", description=__doc__)
    add_cube_arguments(parser)
    parser.add_argument(
        "--n-clusters", type=natural, default=8, metavar="K", help="default: %(default)s"
    )
    parser.add_argument(
        "--passes", type=natural, default=3, metavar="N", help="to time (default: %(default)s)"
    )
    group = parser.add_argument_group("without CUBE")
    group.add_argument(
        "--features", type=natural, default=32, metavar="P", help="default: %(default)s"
    )
    group.add_argument(
        "--seconds",
        type=_positive,
        default=0.5,
        metavar="SECONDS",
        help="that a pass keeps each worker busy in weak scaling (default: %(default)s)",
    )
    group.add_argument(
        "--rows",
        type=_positive,
        default=1e9,
        metavar="NUMBER",
        help="of the data to forecast for, such as 1e11 (default: %(default)g)",
    )
    group.add_argument("--picture", metavar="FILE", help="draw the scaling: .png, .svg or .pdf")
    parser.add_argument("--json", action="store_true", help="print as JSON")
    add_cluster_arguments(parser)
    options = parser.parse_args(argv)
    if options.cube is None:
        return run_scaling(options)
    if options.picture is not None:
        parser.error("--picture is of scaling, which is measured without CUBE")
    return run_reading(options)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from error
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no positive number")
    return value


def run_reading(options: argparse.Namespace) -> int:
    """Compare passes over a cube with a bare sum."""
    from daskclust import KMeans, on_iteration
    from daskclust.engine import compute

    progress = Progress()
    cube = open_cube_of(options)
    stored = cube.stored.values
    # Of Zarr as Dask reads it, which is what a pass is compared with.
    bare_values = stored if cube.stored.array is None else da.from_zarr(cube.stored.array)
    blocks = len(cube.chunks[0]) * len(cube.chunks[1])
    with (
        open_client(options, useful_workers=blocks, progress=progress) as client,
        # Reading is what is measured.
        dask.config.set({"daskclust.persist": False}),
    ):
        # What workers import with their first task is not the speed of reading.
        client.run(import_module, "daskclust.cube")
        with progress.task("Bare sum"):
            began = time.perf_counter()
            compute("the bare sum", bare_values.sum(dtype=np.float64))
            bare = time.perf_counter() - began
        with progress.task("Valid pixels"):
            n_valid = cube.n_valid
        model = KMeans(
            options.n_clusters,
            init="random",
            n_init=1,
            max_iter=options.passes,
            tol=0.0,
            random_state=0,
        )
        seconds: list[float] = []
        with (
            progress.task("KMeans", rows=n_valid),
            on_iteration(progress.iteration),
            on_iteration(lambda record: seconds.append(record["seconds"])),
        ):
            model.fit(cube.samples)
        workers = len(client.nthreads())
    # The first one may compile.
    one = min(seconds)
    found = {
        "bytes": int(stored.nbytes),
        "workers": workers,
        "bare_sum_seconds": bare,
        "pass_seconds": seconds,
        "bare_bytes_a_second": stored.nbytes / bare,
        "pass_bytes_a_second": stored.nbytes / one,
        "share_of_bare_speed": bare / one,
    }
    print(json.dumps(found, indent=2) if options.json else reading_text(found))
    return 0


def reading_text(found: dict[str, Any]) -> str:
    return "\n".join(
        [
            f"Cube      {format_bytes(found['bytes'])}, {found['workers']} workers",
            f"Bare sum  {found['bare_sum_seconds']:.2f} s, "
            f"{format_bytes(int(found['bare_bytes_a_second']))}/s",
            f"A pass    {min(found['pass_seconds']):.2f} s, "
            f"{format_bytes(int(found['pass_bytes_a_second']))}/s, "
            f"{found['share_of_bare_speed']:.2f} of a bare sum's speed",
        ]
    )


def run_scaling(options: argparse.Namespace) -> int:
    """Measure the cluster that was asked for; print a table or JSON, and draw."""
    progress = Progress()
    if options.picture is not None:
        _check_picture(options.picture)
    p, k = options.features, options.n_clusters
    with open_client(options, useful_workers=CPU_COUNT, progress=progress) as client:
        client.upload_file(made_rows.__file__)
        threads = dict(client.nthreads())
        with progress.task("Rows"):
            limit = _memory_a_thread(client, threads)
            rows = rows_for(client, next(iter(threads)), limit, p, k, options.seconds)
        with progress.task("Scaling"):
            table = measure_scaling(client, threads, rows, p, k, options.passes, progress.show)
        with progress.task("Overhead"):
            samples = measure_overhead(
                client, _places(list(threads)), _STATES, options.passes, progress.show
            )
    model = CostModel.fit(samples)
    one = next(line for line in table if line["workers"] == 1)
    rate = one["rows"] / one["alone_seconds"] / one["cores"]
    state_bytes = int(centers_of(k, p).centers.nbytes)
    cores = sorted({*_CORES, sum(threads.values())})
    found = {
        "features": p,
        "n_clusters": k,
        "workers": len(threads),
        "threads": sum(threads.values()),
        "rows_a_thread": rows,
        "scaling": table,
        "overhead": [asdict(sample) for sample in samples],
        "model": model.as_json(),
        "forecast": {
            "rows": options.rows,
            "rows_a_second_and_core": rate,
            "state_bytes": state_bytes,
            "passes": [
                asdict(
                    model.forecast(
                        rows=options.rows,
                        cores=count,
                        rows_a_second=rate,
                        state_bytes=state_bytes,
                    )
                )
                for count in cores
            ],
            "most_cores_at_90_percent": model.most_cores(
                rows=options.rows, rows_a_second=rate, state_bytes=state_bytes
            ),
        },
    }
    if options.picture is not None:
        draw_scaling(found, options.picture)
    print(json.dumps(found, indent=2) if options.json else scaling_text(found))
    return 0


def _memory_a_thread(client: Any, threads: Mapping[str, int]) -> int:
    from daskclust.engine.dask_surface import worker_infos

    infos = worker_infos(client)
    return min((info.limit // max(1, threads[w]) for w, info in infos.items()), default=0)


def _places(workers: list[str]) -> list[list[str]]:
    """Workers of the groups, for each number of groups; at least one for each worker."""
    counts = sorted({max(count, len(workers)) for count in _GROUPS})
    if len(counts) == 1:  # more workers than that: some of them, too
        counts = [counts[0] // 8, counts[0] // 2, counts[0]]
    return [[workers[i % len(workers)] for i in range(count)] for count in counts]


def _check_picture(name: str) -> None:
    if Path(name).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"--picture {name!r} must end in .png, .svg or .pdf.")
    if Path(name).exists():
        raise FileExistsError(f"--picture {name!r} exists already; choose another name.")


def draw_scaling(found: Mapping[str, Any], path: str | Path) -> None:
    """Draw efficiencies and the forecast, as ``--json`` prints them."""
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
    right.legend(frameon=False, fontsize="small")
    for axes, title in (
        (left, "Measured"),
        (right, f"Forecast, {found['forecast']['rows']:.3g} rows"),
    ):
        axes.set(title=title, xlabel="worker threads", ylim=(0, 1.15), xscale="log")
    left.set_ylabel("efficiency")
    left.legend(frameon=False, fontsize="small")
    target = Path(path)
    with new_place(target) as partial:
        figure.savefig(partial, format=target.suffix[1:].lower(), dpi=150)


def scaling_text(found: Mapping[str, Any]) -> str:
    p, k = found["features"], found["n_clusters"]
    lines = [
        f"Cluster   {found['workers']} workers, {found['threads']} threads; passes of KMeans, {p} "
        f"features, {k} clusters",
        "",
        "scaling  workers  cores        rows   a pass  rows/s/core  efficiency  cores alone  "
        "scheduler",
    ]
    for x in found["scaling"]:
        lines.append(
            f"{x['kind']:7}  {x['workers']:7}  {x['cores']:5}  {x['rows']:10}  "
            f"{x['seconds']:5.3f} s  {x['rows_a_second_and_core']:11.3g}  {x['efficiency']:10.2f}  "
            f"{x['possible']:11.2f}  {x['scheduler_share']:9.0%}"
        )
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
    for one in forecast["passes"]:
        lines.append(
            f"{one['cores']:5}  {one['work_seconds']:12.2f} s  {one['overhead_seconds']:6.3f} s  "
            f"{one['efficiency']:11.2f}  {one['scheduler_share']:9.0%}"
        )
    most = forecast["most_cores_at_90_percent"]
    lines += ["", f"Up to {most} cores a pass keeps an efficiency of 0.9."]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
