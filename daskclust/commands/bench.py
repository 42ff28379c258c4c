"""``daskclust bench``: how a cluster scales, or how fast a cube is read for clustering."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.utils import format_bytes

from daskclust.commands._cubes import add_cube_arguments, open_cube_of
from daskclust.commands._scaling_report import run_scaling
from daskclust.commands.console import Progress, add_cluster_arguments, natural, open_client

__all__ = ["add_command"]


def add_command(commands: Any) -> None:
    """Add ``bench`` to the command line."""
    parser = commands.add_parser(
        "bench",
        usage="%(prog)s [options] [CUBE]",
        description="With CUBE: measure a bare Dask sum over the stored cube and passes of KMeans "
        "over its pixels, on the same workers, and tell both in bytes a second. Without: measure "
        "passes over made-up rows on 1, 2, 4, ... workers, with rows that grow with them (weak "
        "scaling) and that do not (strong), and what tasks cost scheduler and client; and say how "
        "far one scheduler carries.",
    )
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
    parser.set_defaults(run=_run, parser=parser)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from error
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no positive number")
    return value


def _import() -> None:
    import daskclust.cube  # noqa: F401


def _run(options: argparse.Namespace) -> int:
    if options.cube is None:
        return run_scaling(options)
    if options.picture is not None:
        options.parser.error("--picture is of scaling, which is measured without CUBE")
    return _run_reading(options)


def _run_reading(options: argparse.Namespace) -> int:
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
        client.run(_import)
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
    print(json.dumps(found, indent=2) if options.json else _as_text(found))
    return 0


def _as_text(found: dict[str, Any]) -> str:
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
