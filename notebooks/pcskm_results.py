"""What came out of the runs of the PCSKM paper: means, comparisons, and the published table.

Reads the files that ``pcskm_runs.py`` writes.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pcskm_runs import (
    INFORMATIVE,
    INITS,
    INNER,
    METHODS,
    N_FOLDS,
    PLAIN,
    REAL,
    SCENARIOS,
    SPARSE,
    STUDY,
    STUDY_METHODS,
    WEIGHTED,
    Task,
    cell_of,
)

#: What the published program reaches under this protocol, with five repetitions: mean F-scores of
#: LKM, SKM, PCKM, PCSKM, PCSKM with Eq. 15, and of WekaUT's MPCK-Means.
PUBLISHED = {
    ("fisheriris", "dkm++", "both", 1): (0.801, 0.861, 0.827, 0.886, 0.886, None),
    ("fisheriris", "dkm++", "both", 5): (0.801, 0.861, 0.808, 0.891, 0.891, 0.888),
    ("fisheriris", "dkm++", "both", 10): (0.801, 0.861, 0.845, 0.894, 0.899, 0.919),
    ("fisheriris", "dkm++", "must", 5): (0.801, 0.861, 0.796, 0.889, 0.889, None),
    ("fisheriris", "dkm++", "cannot", 5): (0.801, 0.861, 0.824, 0.895, 0.882, None),
    ("fisheriris", "maximin", "both", 1): (0.816, 0.861, 0.815, 0.886, 0.886, None),
    ("fisheriris", "maximin", "both", 5): (0.816, 0.861, 0.847, 0.891, 0.891, None),
    ("fisheriris", "maximin", "both", 10): (0.816, 0.861, 0.850, 0.891, 0.891, None),
    ("fisheriris", "seeding", "both", 1): (0.804, None, 0.820, 0.890, 0.890, None),
    ("fisheriris", "seeding", "both", 5): (0.801, None, 0.844, 0.891, 0.891, 0.925),
    ("fisheriris", "seeding", "both", 10): (0.801, None, 0.850, 0.897, 0.897, 0.925),
    ("digits048", "dkm++", "both", 1): (0.735, 0.771, 0.758, 0.812, 0.812, None),
    ("digits048", "dkm++", "both", 5): (0.735, 0.771, 0.803, 0.851, 0.829, 0.799),
    ("digits048", "dkm++", "both", 10): (0.735, 0.771, 0.806, 0.862, 0.862, 0.810),
    ("digits048", "dkm++", "must", 5): (0.735, 0.771, 0.806, 0.854, 0.859, None),
    ("digits048", "dkm++", "cannot", 5): (0.735, 0.771, 0.808, 0.860, 0.861, None),
    ("digits048", "maximin", "both", 1): (0.723, 0.771, 0.746, 0.809, 0.809, None),
    ("digits048", "maximin", "both", 5): (0.723, 0.771, 0.786, 0.852, 0.784, None),
    ("digits048", "maximin", "both", 10): (0.723, 0.771, 0.808, 0.862, 0.863, None),
    ("digits048", "seeding", "both", 1): (0.730, None, 0.769, 0.819, 0.821, None),
    ("digits048", "seeding", "both", 5): (0.734, None, 0.810, 0.852, 0.828, 0.817),
    ("digits048", "seeding", "both", 10): (0.735, None, 0.816, 0.868, 0.865, 0.818),
    ("TTSCST", "dkm++", "both", 1): (0.834, 0.787, 0.832, 0.896, 0.920, None),
    ("TTSCST", "dkm++", "both", 5): (0.834, 0.787, 0.867, 0.938, 0.935, 0.947),
    ("TTSCST", "dkm++", "both", 10): (0.834, 0.787, 0.871, 0.938, 0.938, 0.950),
    ("TTSCST", "dkm++", "must", 5): (0.834, 0.787, 0.782, 0.882, 0.883, None),
    ("TTSCST", "dkm++", "cannot", 5): (0.834, 0.787, 0.867, 0.938, 0.938, None),
    ("TTSCST", "maximin", "both", 1): (0.834, 0.787, 0.694, 0.902, 0.869, None),
    ("TTSCST", "maximin", "both", 5): (0.834, 0.787, 0.870, 0.938, 0.938, None),
    ("TTSCST", "maximin", "both", 10): (0.834, 0.787, 0.869, 0.938, 0.938, None),
    ("TTSCST", "seeding", "both", 1): (0.834, None, 0.861, 0.924, 0.934, None),
    ("TTSCST", "seeding", "both", 5): (0.834, None, 0.872, 0.938, 0.938, 0.950),
    ("TTSCST", "seeding", "both", 10): (0.834, None, 0.872, 0.938, 0.938, 0.950),
}
PUBLISHED_METHODS = ("LKM", "SKM", "PCKM", "PCSKM", "PCSKM Eq. 15", "MPCKM")


class Result(NamedTuple):
    """F-scores of a cell: a method on a data set from a start, with so many constraints.

    Attributes
    ----------
    mean, error : float
        Of the test folds, and the standard error over folds and repetitions; s of the best mean.
    each : float
        With the best s of each fold (in brackets in the published table).
    honest : float
        With s chosen within the training folds, by the rows set aside (of SKM, which uses no
        labels, by all training rows); NaN where that was not run.
    collapsed : float
        Share of the runs of all s that ended without a positive score.
    n_runs : int
        Folds times repetitions.
    kept_mean, kept_error : float
        As `mean` and `error`, of the runs that did not collapse.
    kept : int
        Those among the runs with their best s.
    """

    mean: float
    error: float
    each: float
    honest: float
    collapsed: float
    n_runs: int
    kept_mean: float
    kept_error: float
    kept: int


def _mean_and_error(scores: np.ndarray) -> tuple[float, float]:
    if not len(scores):
        return math.nan, math.nan
    return float(scores.mean()), float(scores.std(ddof=1) / math.sqrt(len(scores)))


def _honest(record: dict[str, Any], inner: list[dict[str, Any]]) -> list[float]:
    """F-scores of the test folds where s was chosen without them."""
    if record["method"] not in SPARSE:
        return []
    same = (other["test"] for other in inner if other["repetition"] == record["repetition"])
    judge = record["train"] if record["method"] in PLAIN else next(same, None)
    if judge is None:
        return []
    rows = zip(record["test"], judge, strict=True)
    return [test[int(np.argmax(known))] for test, known in rows]


def result_of(found: list[dict[str, Any]], inner: list[dict[str, Any]]) -> Result:
    """Sum the repetitions of a cell up."""
    test, collapsed = (
        np.concatenate([np.array(record[name], dtype=float) for record in found])
        for name in ("test", "collapsed")
    )
    best = test[:, test.mean(axis=0).argmax()]
    honest = [score for record in found for score in _honest(record, inner)]
    # One run has no spread: an s must have two to be judged by those that are left.
    kept = np.where(collapsed > 0, np.nan, test)[:, (collapsed == 0).sum(axis=0) > 1]
    left = kept[:, np.nanmean(kept, axis=0).argmax()] if kept.size else kept.ravel()
    left = left[np.isfinite(left)]
    mean, error = _mean_and_error(best)
    kept_mean, kept_error = _mean_and_error(left)
    return Result(
        mean=mean,
        error=error,
        each=float(test.max(axis=1).mean()),
        honest=float(np.mean(honest)) if honest else math.nan,
        collapsed=float(collapsed.mean()),
        n_runs=len(test),
        kept_mean=kept_mean,
        kept_error=kept_error,
        kept=len(left),
    )


class Cell(NamedTuple):
    """What came out of a cell.

    Attributes
    ----------
    all, first : Result
        Of all repetitions, and of the first alone: other methods were run as often.
    repetitions : int
    weights : list of float
        Means over folds, repetitions and s, where they are drawn.
    """

    all: Result
    first: Result
    repetitions: int
    weights: list[float]


Key = tuple[str, str, str, str, int]


class Results:
    """All cells that were run.

    Parameters
    ----------
    cells : dict
        By method, data set, start, kind and level.
    seconds : float
        Time of the runs.
    """

    def __init__(self, cells: dict[Key, Cell], seconds: float) -> None:
        self.cells = cells
        self.seconds = seconds
        #: Numbers of constraints.
        self.levels = sorted({key[4] for key in cells} - {0})

    @classmethod
    def of(cls, folder: str | os.PathLike[str]) -> Results:
        """Sum up the runs of a folder."""
        records: dict[Key, list[dict[str, Any]]] = {}
        for path in sorted(Path(folder).glob("*/*.json")):
            record = json.loads(path.read_text())
            method, data, init, kind, level = (record[name] for name in Task._fields[:5])
            records.setdefault((method, data, init, kind, level), []).append(record)
        cells = {}
        for key, found in records.items():
            method, data, _, kind, _ = key
            drawn = data in INFORMATIVE and kind in ("both", "none") and method in WEIGHTED
            inner = records.get((INNER, *key[1:]), []) if method == "PCSKM" else []
            cells[key] = Cell(
                result_of(found, inner),
                result_of(sorted(found, key=lambda record: record["repetition"])[:1], inner),
                len(found),
                np.mean([r["weights"] for r in found], axis=0).tolist() if drawn else [],
            )
        return cls(cells, sum(r["seconds"] for found in records.values() for r in found))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Keep the cells in a file, one a line."""

        def line(key: Key, cell: Cell) -> str:
            results = [[_rounded(value) for value in part] for part in (cell.all, cell.first)]
            weights = [_rounded(weight) for weight in cell.weights]
            return json.dumps([*key, *results, cell.repetitions, weights], separators=(",", ":"))

        lines = ",\n".join(line(*item) for item in sorted(self.cells.items()))
        Path(path).write_text(f'{{"seconds":{self.seconds:.0f},"cells":[\n{lines}\n]}}\n')

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Results:
        """Cells of a file."""

        def result(values: list[float | None]) -> Result:
            return Result(*(math.nan if value is None else value for value in values))

        found = json.loads(Path(path).read_text())
        cells = {
            tuple(line[:5]): Cell(result(line[5]), result(line[6]), *line[7:])
            for line in found["cells"]
        }
        return cls(cells, found["seconds"])

    def families(self, names: Iterable[str] = REAL) -> list[str]:
        """Data sets, with their sub-sets as one."""
        there = {key[1] for key in self.cells}
        return list(dict.fromkeys(name.split("_")[0] for name in names if name in there))

    def describe(self) -> str:
        """What was run."""
        counts = [cell.repetitions for cell in self.cells.values()]
        return (
            f"{sum(counts)} tasks on {len({key[1] for key in self.cells})} data sets, {N_FOLDS} "
            f"folds each, {min(counts)} to {max(counts)} repetitions; constraints: "
            f"{', '.join(map(str, self.levels))} % of the pairs; {self.seconds / 60:.0f} minutes "
            "in all"
        )

    def cell(self, method: str, data: str, init: str, kind: str, level: int) -> Cell | None:
        """Return a cell, if it was run."""
        return self.cells.get((method, data, *cell_of(method, init, kind, level)))

    def family(
        self, method: str, name: str, init: str, kind: str, level: int, *, first: bool = False
    ) -> Result | None:
        """F-scores of a data set; of "digits048" the mean over its sub-sets."""
        names = [data for data in STUDY if data.split("_")[0] == name.split("_")[0]]
        cells = [self.cell(method, data, init, kind, level) for data in names]
        found = [cell.first if first else cell.all for cell in cells if cell]
        if not found:
            return None
        mean = dict(zip(Result._fields, np.mean(found, axis=0).tolist(), strict=True))
        for error in ("error", "kept_error"):
            mean[error] = math.hypot(*(getattr(cell, error) for cell in found)) / len(found)
        for count in ("n_runs", "kept"):
            mean[count] = sum(getattr(cell, count) for cell in found)
        return Result(**mean)


def _rounded(value: float) -> float | None:
    """Digits enough for all that is shown; JSON has no NaN."""
    return None if math.isnan(value) else round(value, 5)


def compare_with_published(results: Results) -> list[dict[str, Any]]:
    """Each cell of the published table beside ours."""
    found = []
    for (name, init, kind, level), row in PUBLISHED.items():
        for method, theirs in zip(PUBLISHED_METHODS, row, strict=True):
            ours = results.family(method, name, init, kind, level)
            if theirs is None or ours is None:
                continue
            # Runs in which Eq. 15 breaks down are left out of the published means.
            mean, error = ours.kept_mean, ours.kept_error
            found.append(
                {
                    "data": name,
                    "init": init,
                    "kind": kind,
                    "level": level,
                    "method": method,
                    "published": theirs,
                    "ours": mean,
                    "error": error,
                    "left out": ours.n_runs - ours.kept,
                    # Both are means over as many folds and repetitions, of about the same spread.
                    "within": abs(mean - theirs) <= 2 * math.sqrt(2) * error + 5e-4,
                }
            )
    return found


def compare_scores(results: Results) -> list[dict[str, Any]]:
    """The study of Eq. 15: three ways to score features, on the same folds and pairs."""
    found = []
    for name in results.families(STUDY):
        for init, kind in (("seeding", "both"), ("dkm++", "both"), ("dkm++", "cannot")):
            for level in (1, 5):
                cells = {
                    method: results.family(method, name, init, kind, level, first=True)
                    for method in STUDY_METHODS
                }
                if all(cells.values()):
                    found.append(
                        {"data": name, "init": init, "kind": kind, "level": level, **cells}
                    )
    return found


def compare_choices(results: Results) -> list[dict[str, Any]]:
    """PCSKM with s chosen as in the paper and honestly, and the methods that need no s."""
    found = []
    for name in results.families():
        for init, kind in SCENARIOS:
            for level in results.levels:
                cells = {
                    method: results.family(method, name, init, kind, level, first=True)
                    for method in ("PCSKM", "PCKM", "MPCKM")
                }
                ours = cells["PCSKM"]
                if ours and not math.isnan(ours.honest) and all(cells.values()):
                    found.append(
                        {
                            "data": name,
                            "start": init,
                            "kind": kind,
                            "%": level,
                            "PCSKM, s as in the paper": ours.mean,
                            "PCSKM, s honest": ours.honest,
                            "PCKM": cells["PCKM"].mean,
                            "MPCKM": cells["MPCKM"].mean,
                        }
                    )
    return found


def summarize_scores(study: list[dict[str, Any]]) -> Iterator[str]:
    """Paired comparisons over the cells of the study."""
    from scipy.stats import wilcoxon as test

    for method in ("PCSKM Eq. 15", "PCSKM scaled"):
        gain = np.array([cell[method].mean - cell["PCSKM"].mean for cell in study])
        p = test(gain).pvalue if np.any(gain) else 1.0
        fell = float(np.mean([cell[method].collapsed for cell in study]))
        better, worse = int((gain > 1e-9).sum()), int((gain < -1e-9).sum())
        yield (
            f"{method} against the plain scores, {len(gain)} cells: better in {better}, worse in "
            f"{worse}; mean difference {gain.mean():+.4f}, median {np.median(gain):+.4f}, "
            f"p = {p:.2g}; {fell:.0%} of the runs collapsed"
        )


def wilcoxon(results: Results) -> list[dict[str, Any]]:
    """PCSKM against the others over all cases, as in the paper: paired, averaged over levels."""
    cases = [(name, init, kind) for name in results.families() for init, kind in SCENARIOS]
    others = [method for method in METHODS if method != "PCSKM"]
    return [
        {"method": method, **found}
        for method in others
        if (found := _paired(results, [(("PCSKM", *case), (method, *case)) for case in cases]))
    ]


def wilcoxon_of_kinds(results: Results) -> list[dict[str, Any]]:
    """Kinds of constraints against each other, over all methods that use any."""
    cases = [
        (method, name, init)
        for method in METHODS
        for name in results.families()
        for init in INITS
        if method not in PLAIN and init != "seeding"
    ]
    return [
        {"kinds": f"{one} - {other}", **found}
        for one, other in (("cannot", "must"), ("both", "must"), ("both", "cannot"))
        if (found := _paired(results, [((*case, one), (*case, other)) for case in cases]))
    ]


def _paired(
    results: Results, cases: list[tuple[tuple[str, ...], tuple[str, ...]]]
) -> dict[str, Any]:
    """Compare two cells in each case, averaged over the levels that were run of both."""
    from scipy.stats import wilcoxon as test

    gains = []
    for one, other in cases:
        found = [
            (results.family(*one, level), results.family(*other, level)) for level in results.levels
        ]
        both = [a.mean - b.mean for a, b in found if a and b]
        if both:
            gains.append(float(np.mean(both)))
    if not gains:
        return {}
    return {
        "cases": len(gains),
        "median difference": float(np.median(gains)),
        "better": sum(gain > 0 for gain in gains),
        "p": float(test(gains).pvalue),
    }
