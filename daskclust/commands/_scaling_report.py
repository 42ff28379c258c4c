"""``daskclust bench`` without a cube: measuring, forecasting, and telling both."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dask.system import CPU_COUNT
from dask.utils import format_bytes

from daskclust.commands._cost_model import CostModel
from daskclust.commands._scaling import centers_of, measure_overhead, measure_scaling, rows_for
from daskclust.commands.console import Progress, open_client
from daskclust.storage.atomic import new_place

__all__ = ["draw_scaling", "run_scaling"]

#: Groups, in all, of the passes over next to nothing that the model is fitted to.
_GROUPS = (8, 32, 128)
#: Bytes of the states: of a few centers, and of many.
_STATES = (512, 65_536)
#: Cores that are forecast for.
_CORES = (64, 256, 512, 1024, 4096)


def run_scaling(options: argparse.Namespace) -> int:
    """Measure the cluster that was asked for; print a table or JSON, and draw."""
    progress = Progress()
    if options.picture is not None:
        _check_picture(options.picture)
    p, k = options.features, options.n_clusters
    with open_client(options, useful_workers=CPU_COUNT, progress=progress) as client:
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
        "command": "bench",
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
    print(json.dumps(found, indent=2) if options.json else _as_text(found))
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
    """Draw efficiencies and the forecast.

    Parameters
    ----------
    found : mapping
        As ``daskclust bench --json`` prints it.
    path : path-like
        Its ending decides the format.
    """
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


def _as_text(found: Mapping[str, Any]) -> str:
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
