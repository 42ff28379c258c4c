"""The cost of a job: passes, tasks, bytes and memory, from metadata only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import psutil
from dask.system import CPU_COUNT
from dask.utils import format_bytes, parse_bytes

from daskclust.app.commands.console import counted, local_workers
from daskclust.app.commands.requests import ClusterOptions, RunOptions
from daskclust.cluster.constrained.base import FREE_ITERATIONS
from daskclust.cluster.level_sizes import bytes_of_levels, passes_of_levels, totals_of
from daskclust.core.engine import forecast
from daskclust.core.initialization.methods import passes_of_initialization
from daskclust.core.warn import warn
from daskclust.exceptions import MemoryPlanError, PerformanceWarning


def passes_of(params: Mapping[str, Any], *, constrained: bool) -> dict[str, int | None]:
    """Return upper limits of the passes of a fit by their purpose; None if unknown."""
    inner = int(params.get("max_iter", params.get("em_iter", 1)))
    levels = 0
    if "n_probe" in params:
        levels = passes_of_levels(params)
        # The first level is a fit of KMeans with default parameters.
        first = totals_of(params["n_clusters"])[0]
        params = {**params, "n_clusters": first, "init": "k-means||", "algorithm": "auto"}
    start = passes_of_initialization(params)
    iterations = inner * int(params.get("max_outer_iter", 1))
    # Constrained estimators are also iterated without constraints.
    is_scaled = params.get("penalty", "distance") not in ("distance", "constant")
    compares = params.get("init") == "auto" and "clamp" not in params
    if start is not None and constrained and (is_scaled or compares):
        start += iterations if "max_outer_iter" in params else FREE_ITERATIONS
    return {
        "survey": 1,
        "fetch_labeled_rows": int(constrained),
        "start": start,
        "iterations_at_most": iterations,
        "levels_below": levels,
        "last_assignment": 1,
    }


def memory_of(
    options: ClusterOptions,
    params: Mapping[str, Any] | None,
    shape: tuple[int, int],
    dtype: np.dtype[Any],
    *,
    block_rows: int,
    n_blocks: int,
    read: int,
) -> dict[str, Any]:
    """Estimate the memory of a worker and the bytes of temporary files, as JSON values.

    `params` is as in :func:`make_plan`.  `dtype` is the type of the rows, and `read` the number of
    bytes that are read for a block.
    """
    # A cluster of the user is not connected yet, so its workers are unknown.
    is_remote = options.scheduler is not None or options.scheduler_file is not None
    workers = local_workers(options, n_blocks)
    memory_limit = getattr(options, "memory_limit", None)
    limit = float(
        parse_bytes(memory_limit) if memory_limit else psutil.virtual_memory().total / CPU_COUNT
    )
    spill, task = 0, 0
    if params is not None and "n_probe" in params:
        spill, task = bytes_of_levels(params, shape, dtype, block_rows)
    estimate = forecast(
        shape,
        dtype,
        block_rows=block_rows,
        n_blocks=n_blocks,
        read=read,
        n_workers=workers,
        limit=limit,
        task=task,
    )
    return {
        "tasks_a_pass": None if is_remote else estimate.tasks,
        "kept_in_memory": estimate.is_persisted and not is_remote,
        "workers": None if is_remote else workers,
        "memory_a_worker": None if is_remote else limit,
        "peak_memory_a_worker": estimate.peak,
        "temporary_bytes": spill,
        "fits": None if is_remote else estimate.fits,
    }


def make_plan(
    cube: Any, options: Any, params: Mapping[str, Any] | None, *, constrained: bool
) -> dict[str, Any]:
    """Estimate the cost of a job, as JSON values.

    Numbers of passes are upper limits, because fits usually converge sooner. `params` is None for a
    prediction. `constrained` is True if labeled rows are copied to the client.
    """
    height, width, n_bands = cube.shape
    source, blocks = cube.stored, cube.blocks.count
    block_pixels = cube.chunks[0][0] * cube.chunks[1][0]
    counting = int(source.may_be_masked)
    memory = memory_of(
        options,
        params,
        (height * width, n_bands),
        np.dtype(np.float32 if source.dtype.itemsize <= 4 else np.float64),
        block_rows=block_pixels,
        n_blocks=blocks,
        read=block_pixels * source.shape[2] * source.dtype.itemsize,
    )
    # All maps are written in one pass, and the summary reads them.
    is_reported = hasattr(options, "uncertainty") and options.report is not None
    writes = {"write_maps": 1, "profiles": 2 * int(is_reported)}
    of_fit = {} if params is None else passes_of(params, constrained=constrained)
    passes = {"count_valid_pixels": counting, **of_fit, **writes}
    total = sum(value for value in passes.values() if value is not None)
    kept_rows = memory["kept_in_memory"] and params is not None
    reads = counting + 1 + sum(writes.values()) if kept_rows else total
    return {
        "pixels": height * width,
        "bands": n_bands,
        "blocks": blocks,
        "passes": passes,
        "passes_at_most": total,
        "tasks_to_write_labels": 3 * blocks,
        "bytes_a_pass": source.nbytes,
        "bytes_read_at_most": reads * source.nbytes,
        **memory,
    }


def check_memory(plan: Mapping[str, Any]) -> None:
    if plan.get("fits") is False:
        smaller = (
            "or a table of smaller parts"
            if "parts" in plan
            else "smaller blocks (--chunks), or a store with smaller chunks"
        )
        need, limit = (format_bytes(plan[f"{what}memory_a_worker"]) for what in ("peak_", ""))
        remedy = f"Use fewer and larger workers (--local, --memory-limit), {smaller}."
        if plan.get("rows_estimated"):
            warn(
                f"A worker would require about {need} and has {limit}, if the number of rows, "
                f"which is estimated from the first lines, is correct. If workers run out of "
                f"memory: {remedy}",
                PerformanceWarning,
            )
            return
        raise MemoryPlanError(f"A worker would require about {need} and has {limit}. {remedy}")


def only_plan(request: RunOptions, command: str, plan: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the plan of a dry run; otherwise check that it fits into memory."""
    if request.dry_run:
        return {"command": command, "dry_run": True, **plan}
    check_memory(plan)
    return None


def plan_as_text(plan: Mapping[str, Any]) -> list[str]:
    passes = ", ".join(
        f"{name.replace('_', ' ')} {'?' if count is None else count}"
        for name, count in plan["passes"].items()
        if count != 0
    )
    passes = f"Passes    at most {plan['passes_at_most']}: {passes}"
    if "parts" in plan:
        size, label = plan["bytes_of_files"], plan["label_column"]
        lines = [
            f"Table     {counted(plan['parts'], 'part')}"
            + ("" if size is None else f", {format_bytes(size)}"),
            f"Columns   {', '.join(plan['columns'])} as {plan['dtype']}"
            + ("" if label is None else f"; labels {label}"),
            passes,
        ]
    else:
        lines = [
            f"Cube      {plan['pixels']} pixels, {plan['bands']} bands, "
            f"{counted(plan['blocks'], 'block')}, {format_bytes(plan['bytes_a_pass'])}",
            passes,
            f"Tasks     {plan['tasks_a_pass'] or '2 a thread'} a pass, about "
            f"{plan['tasks_to_write_labels']} to write labels",
            f"Reads     at most {format_bytes(plan['bytes_read_at_most'])}"
            + (", then rows are kept in memory" if plan["kept_in_memory"] else ""),
        ]
    return [*lines, *_memory_as_text(plan)]


def _memory_as_text(plan: Mapping[str, Any]) -> list[str]:
    if plan["peak_memory_a_worker"] is None:
        return ["Memory    unknown until the rows are counted"]
    memory = f"Memory    about {format_bytes(plan['peak_memory_a_worker'])} a worker"
    if plan.get("rows_estimated"):
        memory += " (the number of rows is estimated)"
    if plan["workers"]:
        fits = "fits" if plan["fits"] else "does NOT fit"
        workers = counted(plan["workers"], "worker")
        memory += (
            f"; {workers} of {format_bytes(plan['memory_a_worker'])} on this machine: {fits}. "
            "For another cluster, pass its --local and --memory-limit"
        )
    if not plan["temporary_bytes"]:
        return [memory]
    return [memory, f"Disk      about {format_bytes(plan['temporary_bytes'])} in temporary files"]
