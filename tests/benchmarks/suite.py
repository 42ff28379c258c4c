"""All benchmarks beside other programs, by one command: tables, numbers, pictures, the machine.

``python tests/benchmarks/suite.py --output FOLDER`` measures each part that FOLDER lacks, so that a
run that was cut off goes on; ``--parts fits,growth`` measures these anew.  FOLDER then holds of
each part a table (``fits.md``), its numbers with the versions and the time (``fits.json``) and a
picture (``fits.png``), of all parts ``suite.md``, and ``machine.json``: measurements of another
machine need another folder.  ``page_tables.py`` writes the tables of the documentation from the
folder ``suite``.

Parts: ``fits`` (whole fits of k-means, ``whole_fits.py``), ``iterations`` and ``growth`` (an
iteration, and its growth with n, p and k, ``lloyd.py``), ``starts`` (inertia over twenty seeds,
``inertia.py``), ``embeddings`` and ``hierarchical`` (``embeddings.py``), ``constrained`` (PCSKMeans
and MPCKMeans beside published times, ``pcskm.py`` and ``constrained.py``), ``mixtures``
(``mixtures.py``) and ``pckid`` (by the number of rows, ``pckid.py``).  What is compared runs in
processes of its own that alternate, on two threads.
``--python PATH`` names an interpreter of peers that are not installed in this one, ``--peers`` and
``--problems`` take some of them.  The machine should have nothing else to do.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import _machine
import constrained
import embeddings
import inertia
import lloyd
import mixtures
import pckid
import pcskm
import whole_fits
from _pictures import Line, draw_bars, draw_growth
from _results import dumps
from _timing import PROBLEMS, TOY, Problem, print_figures, run_alone

import daskclust

#: Rows of PCKID in a toy run.
TOY_ROWS = (2000, 4000)


def _problems(options: Namespace) -> dict[str, Problem]:
    source = TOY if options.toy else PROBLEMS
    return {name: source[name] for name in options.problems}


def _fits(options: Namespace) -> Any:
    asked = options.peers.split(",")
    there = whole_fits.installed(options.python).items()
    pythons = {peer: python for peer, python in there if peer in asked}
    return whole_fits.compare(_problems(options), pythons, options.seeds)


def _iteration_peers(options: Namespace) -> tuple[str, ...]:
    there = {*whole_fits.installed(), "limit"} & set(options.peers.split(","))
    return tuple(peer for peer in lloyd.PEERS if peer in there)


def _iterations(options: Namespace) -> Any:
    peers = _iteration_peers(options)
    return lloyd.compare(_problems(options), repeats=options.repeats, peers=peers)


def _growth(options: Namespace) -> Any:
    peers = tuple(peer for peer in _iteration_peers(options) if peer != "limit")
    return lloyd.growth(*lloyd.origin_of(options.toy), peers, "float32", options.repeats)


def _starts(options: Namespace) -> Any:
    if options.toy:
        return inertia.compare(options.problems, 3, TOY, 1.0)
    return inertia.compare((*options.problems, *inertia.SETS))


def _constrained(options: Namespace) -> Any:
    toy = ["--toy"] if options.toy else []
    return {
        module.__name__: run_alone(str(module.__file__), "--json", *toy)
        for module in (pcskm, constrained)
    }


def _report_constrained(found: Any, options: Namespace) -> None:
    rows = pcskm.figures(found["pcskm"]), constrained.figures(found["constrained"])
    print_figures([*rows[0], *rows[1]], options.toy)


def _draw_constrained(found: Any, path: Path) -> None:
    small, metric = found["pcskm"]["small"], found["constrained"]["metric"]
    speeds = {
        "PCSKMeans\n2000 rows, 4000 pairs,\nover the MATLAB program": pcskm.OCTAVE_SECONDS / small,
        "MPCKMeans\n20 000 rows, 40 000 pairs,\nover WekaUT": constrained.WEKA_SECONDS / metric,
    }
    aims = dict(
        zip(
            speeds,
            (pcskm.OCTAVE_SECONDS / pcskm.TARGET_SMALL, constrained.TARGET_WEKA),
            strict=True,
        )
    )
    cells = {what: {"daskclust": speed} for what, speed in speeds.items()}
    draw_bars(cells, path, "seconds published over daskclust's", aims=aims)


def _mixtures(options: Namespace) -> Any:
    problem = mixtures.TOY if options.toy else mixtures.PROBLEM
    return mixtures.compare(problem, repeats=options.repeats)


def _draw_mixtures(found: Any, path: Path) -> None:
    names = {"diag": "diagonal covariances", "full": "full covariances"}
    ratios = mixtures.ratios(found)
    speeds = {title: {"daskclust": 1 / ratios[name]} for name, title in names.items()}
    aims = {title: 1 / mixtures.TARGETS[name] for name, title in names.items()}
    draw_bars(speeds, path, "EM iteration: speed over scikit-learn", aims=aims)


def _pckid(options: Namespace) -> Any:
    if options.toy:
        return pckid.compare(TOY_ROWS, cluster=False)
    return pckid.compare()


def _draw_pckid(found: Any, path: Path) -> None:
    sizes = [r["n"] for r in found]
    parts = {"all": "seconds", "eigenvectors": "spectrum", "k-means": "kmeans"}
    lines = [Line(name, sizes, [r[key] for r in found]) for name, key in parts.items()]
    draw_growth({"n": lines}, path, "seconds of PCKID")


def _embeddings(options: Namespace) -> Any:
    if options.toy:
        return embeddings.compare({"e": (20,)}, ["daskclust", "scikit-learn"], share=0.02)
    return embeddings.compare(embeddings.PROBLEMS, embeddings.installed(), options.seeds)


def _hierarchical(options: Namespace) -> Any:
    # So few clusters still have two levels.
    return embeddings.hierarchical(0.0125 if options.toy else 1.0)


@dataclass(frozen=True)
class Part:
    """A benchmark: what it is about, how it is measured, printed and drawn."""

    title: str
    measure: Callable[[Namespace], Any]
    report: Callable[[Any, Namespace], None]
    draw: Callable[[Any, Path, Namespace], None] | None


PARTS = {
    "fits": Part(
        "Whole fits of k-means, start included",
        _fits,
        lambda found, options: whole_fits.report(whole_fits.summary(found), _problems(options)),
        lambda found, path, options: whole_fits.draw(
            whole_fits.summary(found), path, _problems(options)
        ),
    ),
    "iterations": Part(
        "An iteration of Lloyd's algorithm",
        _iterations,
        lambda found, options: lloyd.report(found, _problems(options)),
        lambda found, path, options: lloyd.draw(found, path, _problems(options)),
    ),
    "growth": Part(
        "Growth of an iteration with n, p and k",
        _growth,
        lambda found, _: lloyd.report_growth(found),
        lambda found, path, _: draw_growth(found, path, "ms an iteration"),
    ),
    "starts": Part(
        "Inertia of whole fits over many seeds",
        _starts,
        lambda found, _: inertia.report(inertia.summary(found)),
        None,
    ),
    "embeddings": Part(
        "Embeddings: time until the inertia at which another program ends",
        _embeddings,
        lambda found, _: embeddings.report(found),
        None,
    ),
    "hierarchical": Part(
        "1e5 clusters of 2e6 rows on disk, two workers of 1.5 GB",
        _hierarchical,
        lambda found, _: embeddings.report_hierarchical(found),
        None,
    ),
    "constrained": Part(
        "Constraints, beside published times of other machines",
        _constrained,
        _report_constrained,
        lambda found, path, _: _draw_constrained(found, path),
    ),
    "mixtures": Part(
        "An iteration of Gaussian mixtures",
        _mixtures,
        lambda found, _: mixtures.report(found),
        lambda found, path, _: _draw_mixtures(found, path),
    ),
    "pckid": Part(
        "PCKID by the number of rows",
        _pckid,
        lambda found, _: pckid.report(found),
        lambda found, path, _: _draw_pckid(found, path),
    ),
}


def _plain(value: Any) -> Any:
    """Return what JSON can hold: tuples that are keys become text."""
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else ", ".join(map(str, key)): _plain(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def table_of(path: Path) -> str:
    """Return the table of the numbers of a part."""
    name, notes = path.stem, json.loads(path.read_text())
    found, options = notes["results"], notes["options"]
    if name == "iterations":
        found = {tuple(key.split(", ")): cell for key, cell in found.items()}
    elif name == "growth":
        found = {size: [Line(**line) for line in lines] for size, lines in found.items()}
    with redirect_stdout(io.StringIO()) as table:
        toy = options["toy"] == "True"
        PARTS[name].report(found, Namespace(toy=toy, problems=options["problems"]))
    return table.getvalue()


def _claim(folder: Path, toy: bool) -> dict[str, Any]:
    """Make the folder, or check that it is of this machine and of problems of this size."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "machine.json"
    here = {**_machine.hardware(), "problems": "toy" if toy else "full size"}
    if path.exists() and (there := json.loads(path.read_text())) != here:
        sys.exit(f"{folder} holds measurements of {there}; this is {here}. Name another folder.")
    path.write_text(json.dumps(here, indent=1) + "\n")
    return here


def run_part(name: str, options: Namespace) -> None:
    """Measure, print and draw one part."""
    part, folder = PARTS[name], options.output
    notes = _machine.circumstances()
    notes["versions"] = {"daskclust": daskclust.__version__, **_machine.versions()}
    if options.python != sys.executable:
        notes["versions of peers"] = run_alone(str(_machine.__file__), python=options.python)
    told = ("problems", "peers", "seeds", "repeats", "toy")
    notes["options"] = {key: str(getattr(options, key)) for key in told}
    began = time.perf_counter()
    found = part.measure(options)
    notes["seconds"] = round(time.perf_counter() - began, 1)
    with redirect_stdout(io.StringIO()) as table:
        part.report(found, options)
    if part.draw:
        part.draw(found, folder / f"{name}.png", options)
    (folder / f"{name}.md").write_text(table.getvalue())
    # Last: a part that has its numbers is complete.
    numbers = dumps({**notes, "results": _plain(found)})
    (folder / f"{name}.json").write_text(numbers + "\n")


def _gather(folder: Path, machine: dict[str, Any]) -> str:
    """Return all parts that the folder holds as one page."""
    page = ["# Benchmarks", ", ".join(f"{key}: {value}" for key, value in machine.items())]
    for name, part in PARTS.items():
        path = folder / f"{name}.json"
        if not path.exists():
            continue
        notes, table = json.loads(path.read_text()), folder / f"{name}.md"
        versions = {**notes.get("versions of peers", {}), **notes["versions"]}
        page += [
            f"## {part.title}",
            # Of stored results there may be the numbers alone.
            (table.read_text() if table.exists() else table_of(path)).strip(),
            f"{notes['began']}, commit {notes['commit'] or 'unknown'}, {notes['seconds']} s, load "
            f"before {notes['load before']}; "
            + ", ".join(f"{library} {version}" for library, version in versions.items()),
        ]
        if (folder / f"{name}.png").exists():
            page.append(f"![{part.title}]({name}.png)")
    return "\n\n".join(page) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    known = tuple(dict.fromkeys((*whole_fits.PEERS, *lloyd.PEERS)))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--parts", help=f"of {','.join(PARTS)}; default: those FOLDER lacks")
    parser.add_argument("--toy", action="store_true", help="small problems, to try the command")
    parser.add_argument("--problems", default="abcd")
    parser.add_argument("--peers", default=",".join(known))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seeds", type=int, default=3, help="of whole fits")
    parser.add_argument("--repeats", type=int, default=3, help="of iterations")
    options = parser.parse_args(arguments)
    for name, allowed in (("parts", PARTS), ("peers", known)):
        asked = (getattr(options, name) or "").split(",")
        if unknown := [item for item in asked if item and item not in allowed]:
            parser.error(f"--{name} {','.join(unknown)}: expected some of {', '.join(allowed)}.")
    if not {"daskclust", whole_fits.REFERENCE} <= set(options.peers.split(",")):
        parser.error(f"--peers needs daskclust and {whole_fits.REFERENCE}, which ratios are over.")
    machine = _claim(options.output, options.toy)
    lacking = [name for name in PARTS if not (options.output / f"{name}.json").exists()]
    for name in options.parts.split(",") if options.parts else lacking:
        run_part(name, options)
        print((options.output / f"{name}.md").read_text(), flush=True)
        (options.output / "suite.md").write_text(_gather(options.output, machine))


if __name__ == "__main__":
    main()
