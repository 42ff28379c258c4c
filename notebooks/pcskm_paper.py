"""The experiments of "A semi-supervised sparse K-Means algorithm" (Vouros & Vasilaki, 2021).

``python notebooks/pcskm_paper.py FOLDER`` makes the runs.  Each (a data set, a start, a kind and a
number of constraints, a repetition, a method) is a task of its own, a second or two long, whose
result is a small file in FOLDER: what is there already is not run again, so that the whole may be
done in parts.  What came out is kept in ``pcskm_paper.json`` beside this file, which ``--summary``
writes and the notebook ``02_pcskm_paper.ipynb`` shows.

The protocol is the paper's.  Ten stratified folds; constraints are drawn from the labels of nine
of them, 1 % to 10 % of all their pairs; all rows are clustered; the pairwise F-score is that of the
rows of the tenth.  The bound s of the sparse methods is chosen "as in the paper", by the F-score of
the test rows themselves, and "honestly", within the training folds: a third of their rows is set
aside, constraints come from the other two thirds, and the s that clusters that third best is taken
(the rows whose pairs are the constraints cannot tell: a large s satisfies the constraints best).

Here are the command and the lists of runs.  The protocol is in ``pcskm_runs``, what came out in
``pcskm_results``, the figures are in ``pcskm_figures``; their names can be taken from here, too.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from pathlib import Path

from pcskm_figures import draw_performance, draw_published, draw_weights
from pcskm_results import (
    PUBLISHED,
    PUBLISHED_METHODS,
    Results,
    compare_choices,
    compare_scores,
    compare_with_published,
    result_of,
    summarize_scores,
    wilcoxon,
    wilcoxon_of_kinds,
)
from pcskm_runs import (
    INNER,
    LEVELS,
    METHODS,
    REAL,
    SCENARIOS,
    STUDY,
    STUDY_METHODS,
    SYNTHETIC,
    Task,
    available,
    bounds,
    cell_of,
    constraints,
    fit,
    make,
    pair_f,
    run_all,
    tasks,
)

__all__ = [
    "PUBLISHED_METHODS",
    "SCENARIOS",
    "STUDY_METHODS",
    "SUMMARY",
    "Results",
    "bounds",
    "cell_of",
    "compare_choices",
    "compare_scores",
    "compare_with_published",
    "constraints",
    "draw_performance",
    "draw_published",
    "draw_weights",
    "fit",
    "main",
    "make",
    "pair_f",
    "paper_tasks",
    "result_of",
    "run_all",
    "summarize_scores",
    "table_tasks",
    "toy_tasks",
    "wilcoxon",
    "wilcoxon_of_kinds",
]

#: What came out of all runs.
SUMMARY = Path(__file__).with_suffix(".json")


def table_tasks(repetitions: int = 5, methods: Iterable[str] = PUBLISHED_METHODS) -> list[Task]:
    """The runs behind the published table."""
    methods, found = list(methods), []
    for (name, init, kind, level), row in PUBLISHED.items():
        found += tasks(
            [data for data in available(REAL) if data.split("_")[0] == name],
            scenarios=[(init, kind)],
            methods=[m for m, f in zip(PUBLISHED_METHODS, row, strict=True) if f and m in methods],
            levels=[level],
            repetitions=repetitions,
        )
    return list(dict.fromkeys(found))


def paper_tasks(
    repetitions: int = 2, table_repetitions: int = 5, levels: Iterable[int] = LEVELS
) -> list[Task]:
    """The runs behind the table, then those behind the figures."""
    levels = list(levels)
    found = table_tasks(table_repetitions)
    found += tasks(available((*REAL, *SYNTHETIC)), levels=levels, repetitions=repetitions)
    chosen = [s for s in SCENARIOS if s[0] in ("seeding", "dkm++")]
    found += tasks(available(REAL), scenarios=chosen, methods=[INNER], levels=levels, repetitions=1)
    return list(dict.fromkeys(found))


def study_tasks(repetitions: int = 1) -> list[Task]:
    """The runs of the study of Eq. 15: three ways to score features, on seven kinds of data."""
    return list(
        tasks(
            available(STUDY),
            scenarios=[("seeding", "both"), ("dkm++", "both"), ("dkm++", "cannot")],
            methods=STUDY_METHODS,
            levels=(1, 5),
            repetitions=repetitions,
        )
    )


def toy_tasks() -> list[Task]:
    """A few runs of everything, in seconds."""
    few = {"levels": (1, 10), "repetitions": 1}
    iris = tasks(["fisheriris"], scenarios=[("seeding", "both"), ("dkm++", "both")], **few)
    blobs = tasks(["blobs_3_7"], scenarios=[("dkm++", "both")], levels=(1,), repetitions=1)
    study = tasks(
        ["fisheriris"],
        scenarios=[("dkm++", "cannot")],
        methods=STUDY_METHODS,
        levels=(5,),
        repetitions=1,
    )
    inner = [Task(INNER, "fisheriris", "dkm++", "both", 1, 0)]
    return [*iris, *blobs, *study, *inner]


def main(argv: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--summary", action="store_true", help=f"write {SUMMARY.name}, too")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--table-repetitions", type=int, default=5)
    parser.add_argument("--levels", nargs="+", type=int, choices=LEVELS, default=LEVELS)
    parser.add_argument("--study", action="store_true", help="only the study of Eq. 15")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--data", nargs="+", choices=(*STUDY, *SYNTHETIC), help="default: all")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--max-seconds", type=float, default=math.inf)
    options = parser.parse_args(argv)
    if options.study:
        todo = study_tasks(options.repetitions)
    else:
        todo = paper_tasks(options.repetitions, options.table_repetitions, options.levels)
    todo = [task for task in todo if task.method.split()[0] in options.methods]
    todo = [task for task in todo if not options.data or task.data in options.data]
    left = run_all(todo, options.folder, n_workers=options.workers, max_seconds=options.max_seconds)
    print(f"{len(todo)} tasks, {left} left; run again to go on")
    if options.summary:
        Results.of(options.folder).write(SUMMARY)


if __name__ == "__main__":
    main()
