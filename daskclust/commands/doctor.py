"""``daskclust doctor``: whether client, scheduler and workers fit together."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from dask.system import CPU_COUNT
from dask.utils import format_bytes

from daskclust.commands._cubes import add_cube_arguments, open_cube_of
from daskclust.commands._diagnosis import diagnose
from daskclust.commands._examine import ask_workers, who_cannot_write
from daskclust.commands._surroundings import EXTRAS, MUST_MATCH, OTHERS, look_around, sees
from daskclust.commands.console import Progress, add_cluster_arguments, counted, open_client
from daskclust.storage.seen import StoredArray
from daskclust.storage.urls import redact

__all__ = ["add_command"]


def add_command(commands: Any) -> None:
    """Add ``doctor`` to the command line."""
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
    parser.add_argument("--json", action="store_true", help="print as JSON")
    add_cluster_arguments(parser)
    parser.set_defaults(run=_run, parser=parser)


def _run(options: argparse.Namespace) -> int:
    client_side = look_around()
    stored: Any = None
    if options.cube is not None:
        source = open_cube_of(options, scale="none").stored
        stored = source.values if source.array is None else StoredArray(source.array)
    progress = Progress()
    with (
        progress.task("Cluster"),
        open_client(options, useful_workers=CPU_COUNT, progress=progress) as client,
    ):
        scheduler = client.run_on_scheduler(look_around)
        workers = ask_workers(client)
        unseen = {} if stored is None else client.run(partial(sees, stored), on_error="ignore")
        unwritten = who_cannot_write(client, options.output)
        for address, worker in workers.items():
            worker["cube"], worker["output"] = unseen.get(address), unwritten.get(address)
    problems = diagnose(client_side, scheduler, workers)
    found = {
        "client": client_side,
        "scheduler": scheduler,
        "workers": workers,
        "cube": None if options.cube is None else redact(options.cube),
        "problems": problems,
    }
    print(json.dumps(found, indent=2) if options.json else _as_text(found))
    return 1 if problems else 0


def _as_text(found: Mapping[str, Any]) -> str:
    client, workers = found["client"], found["workers"]
    versions = client["versions"]
    threads = sum(worker["threads"] for worker in workers.values())
    memory = sum(worker["memory_limit"] or 0 for worker in workers.values())
    missing = [
        f"{name} (daskclust[{extra}])" for name, extra in EXTRAS.items() if versions[name] is None
    ]
    lines = [
        f"Python    {client['python']} at {client['executable']}",
        "Versions  " + ", ".join(f"{name} {versions[name]}" for name in (*MUST_MATCH, *OTHERS)),
        f"Extras    {', '.join(f'{n} {versions[n]}' for n in EXTRAS if versions[n])}"
        + (f"; missing: {', '.join(missing)}" if missing else ""),
        f"Machine   {client['cores']} cores, {format_bytes(client['memory'])}",
        f"Cluster   {counted(len(workers), 'worker')}, {counted(threads, 'thread')}, "
        f"{format_bytes(memory)}",
    ]
    lines += [f"Problem   {problem}" for problem in found["problems"]]
    if not found["problems"]:
        lines.append("All is well.")
    return "\n".join(lines)
