"""Times of k-means and of other programs, by one command: tables, numbers and the machine.

``python tests/benchmarks/suite.py --output FOLDER`` measures each part that is missing in FOLDER,
so an interrupted run resumes; ``--parts fits`` measures this part again. FOLDER then contains the
table (``fits.md``) and the numbers with versions and load (``fits.json``) of each part, and
``machine.json``: measurements of another machine need another folder. ``page_tables.py`` writes
the tables of the documentation from the folder ``suite``.

Parts: ``fits`` (complete fits, ``whole_fits.py``) and ``iterations`` (``lloyd.py``). Programs run
in separate processes that alternate, on two threads. ``--python PATH`` names an interpreter of
programs that are not installed in this one. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import _machine
import lloyd
import whole_fits
from _results import dumps
from _timing import PROBLEMS, TOY, Problem, run_alone

import daskclust


def _problems(options: Namespace) -> dict[str, Problem]:
    source = TOY if options.toy else PROBLEMS
    return {name: source[name] for name in options.problems}


def _fits(options: Namespace) -> Any:
    peers = options.peers.split(",")
    pythons = whole_fits.installed(options.python)
    pythons = {peer: python for peer, python in pythons.items() if peer in peers}
    return whole_fits.compare(_problems(options), pythons, options.seeds)


def _iterations(options: Namespace) -> Any:
    available = {*whole_fits.installed(), "limit"} & set(options.peers.split(","))
    peers = tuple(peer for peer in lloyd.PEERS if peer in available)
    cells = lloyd.compare(_problems(options), repeats=options.repeats, peers=peers)
    return {", ".join(key): cell for key, cell in cells.items()}


PARTS = {"fits": _fits, "iterations": _iterations}


def table_of(path: Path) -> str:
    """Return the table of a part from its stored numbers."""
    stored = json.loads(path.read_text())
    results, options = stored["results"], stored["options"]
    toy = options["toy"] == "True"
    problems = _problems(Namespace(toy=toy, problems=options["problems"]))
    with redirect_stdout(io.StringIO()) as table:
        if path.stem == "fits":
            whole_fits.report(whole_fits.summary(results), problems)
        else:
            cells = {tuple(key.split(", ")): cell for key, cell in results.items()}
            lloyd.report(cells, problems)
    return table.getvalue()


def _check_folder(folder: Path, toy: bool) -> None:
    """Create the folder, or check that it is of this machine and of problems of this size."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "machine.json"
    here = {**_machine.hardware(), "problems": "toy" if toy else "full size"}
    if path.exists() and (stored := json.loads(path.read_text())) != here:
        sys.exit(f"{folder} contains measurements of {stored}; this is {here}. Use another folder.")
    path.write_text(json.dumps(here, indent=1) + "\n")


def run_part(name: str, options: Namespace) -> str:
    """Measure one part, write its numbers and its table, and return the table."""
    notes = _machine.circumstances()
    notes["versions"] = {"daskclust": daskclust.__version__, **_machine.versions()}
    if options.python != sys.executable:
        notes["versions of peers"] = run_alone(str(_machine.__file__), python=options.python)
    stored = ("problems", "peers", "seeds", "repeats", "toy")
    notes["options"] = {key: str(getattr(options, key)) for key in stored}
    began = time.perf_counter()
    results = PARTS[name](options)
    notes["seconds"] = round(time.perf_counter() - began, 1)
    path = options.output / f"{name}.json"
    path.write_text(dumps({**notes, "results": results}) + "\n")
    table = table_of(path)
    path.with_suffix(".md").write_text(table)
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    known = tuple(dict.fromkeys((*whole_fits.PEERS, *lloyd.PEERS)))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--parts", help=f"some of {','.join(PARTS)}; default: the missing ones")
    parser.add_argument("--toy", action="store_true", help="small problems, to try the command")
    parser.add_argument("--problems", default="abcd")
    parser.add_argument("--peers", default=",".join(known))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds of complete fits")
    parser.add_argument("--repeats", type=int, default=3, help="number of repeats of iterations")
    options = parser.parse_args(arguments)
    _check_folder(options.output, options.toy)
    missing = [name for name in PARTS if not (options.output / f"{name}.json").exists()]
    for name in options.parts.split(",") if options.parts else missing:
        print(run_part(name, options), flush=True)


if __name__ == "__main__":
    main()
