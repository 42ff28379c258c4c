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
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_iris
from sklearn.model_selection import StratifiedKFold

import daskclust

#: What came out of all runs.
SUMMARY = Path(__file__).with_suffix(".json")
N_FOLDS = 10
#: Constraints, in % of all pairs of the training rows.
LEVELS = tuple(range(1, 11))
KINDS = ("both", "must", "cannot")
INITS = {"seeding": "neighborhoods", "dkm++": "dkm++", "robin": "robin", "maximin": "maximin"}
#: Methods that use no constraints, unless to start from them (Seeding).
PLAIN = ("LKM", "SKM")
SPARSE = ("SKM", "PCSKM")
#: Methods that weigh features.
WEIGHTED = ("SKM", "PCSKM", "MPCKM")
METHODS = ("LKM", "SKM", "PCKM", "MPCKM", "PCSKM")
STUDY_METHODS = ("PCSKM", "PCSKM Eq. 15", "PCSKM scaled")
#: PCSKM on two thirds of the training rows, to choose s by the others.
INNER = "PCSKM inner"
#: Scenarios of Figure 1 and its appendix: Seeding needs must-links, and is best with both.
SCENARIOS = tuple(
    (init, kind) for init in INITS for kind in KINDS if init != "seeding" or kind == "both"
)
REAL = ("fisheriris", "ionosphere", "digits048_1", "digits048_2", "digits048_3", "TTSCST")
SYNTHETIC = {"blobs_5_5": 5, "blobs_3_7": 3}
#: Number of features that may be informative, where the others are known not to be.
INFORMATIVE = {**SYNTHETIC, "TTSCST": 8}
#: Of the study of Eq. 15; those that are not the paper's are standardized.
STUDY = (*REAL, "wine", "vehicle", "breast-cancer")


class Task(NamedTuple):
    """One run: all folds, and all bounds s of a sparse method."""

    method: str
    data: str
    init: str
    kind: str
    level: int
    repetition: int

    @property
    def file(self) -> str:
        """Where its result is kept."""
        return "/".join([self.data, "-".join(map(str, self)) + ".json"])


# --- data ----------------------------------------------------------------------------------------


def test_data() -> Path:
    """Folder of the data that are not part of a package: $DASKCLUST_TEST_DATA."""
    beside = Path(__file__).resolve().parents[1].parent / "shared"
    return Path(os.environ.get("DASKCLUST_TEST_DATA") or beside)


@cache
def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows and classes of a data set."""
    if name == "fisheriris":
        return load_iris(return_X_y=True)
    if name in SYNTHETIC:
        informative = SYNTHETIC[name]
        return daskclust.datasets.make_sparse_blobs(
            120, informative, 10 - informative, 3, random_state=0
        )
    with np.load(data_file(name), allow_pickle=False) as file:
        x, y = file["X"].astype(np.float64), np.unique(file["y"], return_inverse=True)[1]
    if name in REAL:
        return x, y
    whole = np.isfinite(x).all(axis=1)
    x, y = x[whole], y[whole]
    return (x - x.mean(axis=0)) / x.std(axis=0), y


def data_file(name: str) -> Path:
    """Path of a data set that is not part of a package."""
    if name == "breast-cancer":
        return test_data() / "data" / "miss_breast_cancer_wisconsin.npz"
    if name in ("ionosphere", "wine", "vehicle"):
        return test_data() / "data" / f"uci_{name}.npz"
    return test_data() / "golden" / f"{name.replace('_', '_data')}.npz"


def available(names: Iterable[str]) -> list[str]:
    """Those data sets that are here."""
    built_in = {"fisheriris", *SYNTHETIC}
    return [name for name in names if name in built_in or data_file(name).is_file()]


# --- one run -------------------------------------------------------------------------------------


def bounds(n_features: int) -> np.ndarray:
    """The grid of s: 1.1, 1.3, ... up to sqrt(p)."""
    return np.arange(1.1, math.sqrt(n_features) + 1e-9, 0.2)


def pair_f(truth: np.ndarray, labels: np.ndarray) -> float:
    """F-score over the pairs of rows: "same cluster" as a guess of "same class"."""
    table = np.zeros((truth.max() + 1, labels.max() + 1))
    np.add.at(table, (truth, labels), 1)

    def pairs(counts: np.ndarray) -> float:
        return float((counts * (counts - 1)).sum())

    either = pairs(table.sum(axis=0)) + pairs(table.sum(axis=1))
    return 2 * pairs(table) / either if either else 1.0


def constraints(
    y: np.ndarray, train: np.ndarray, kind: str, level: int, seed: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Must-links and cannot-links drawn from the training rows: level % of all their pairs."""
    known = np.full(len(y), -1)
    known[train] = y[train]
    count = math.ceil(level / 100 * len(train) * (len(train) - 1) / 2)
    if kind == "both":
        # Half and half.
        count += count % 2
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    return daskclust.pairs_from_labels(known, n_pairs=count, kind=kind, random_state=rng)


def make(method: str, k: int, s: float | None, init: str) -> Any:
    """An estimator with the limits of the published program."""
    common = {"init": init, "max_iter": 25, "random_state": 0}
    if method in PLAIN and init == "neighborhoods":
        # They start from pairs, which otherwise do not count: see `run`.
        method = "PC" + method.replace("LKM", "KM")
    if method == "LKM":
        return daskclust.KMeans(k, tol=0, **common)
    if method == "SKM":
        return daskclust.SparseKMeans(k, sparsity=s, **common)
    if method == "PCKM":
        return daskclust.PCKMeans(k, **common)
    if method == "MPCKM":
        return daskclust.MPCKMeans(k, **{**common, "max_iter": 100})
    scores = {"PCSKM Eq. 15": True, "PCSKM scaled": "scaled"}.get(method, False)
    return daskclust.PCSKMeans(k, sparsity=s, penalized_scores=scores, **common)


def fit(model: Any, x: np.ndarray, **links: Any) -> tuple[Any, bool]:
    """Fit without warnings; return the model and whether its weights collapsed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, **links)
    return model, any(record.get("weights_kept") for record in model.history_)


def weights_of(model: Any) -> np.ndarray:
    """Feature weights, or the diagonal of the metric."""
    for name in ("feature_weights_", "metric_weights_"):
        if hasattr(model, name):
            return getattr(model, name)
    return np.ones(model.n_features_in_)


def run(task: Task) -> dict[str, Any]:
    """Make the runs of a task: F-scores by fold and s, of test and of training rows."""
    began = time.perf_counter()
    x, y = load(task.data)
    k = int(y.max()) + 1
    grid = bounds(x.shape[1]) if task.method.startswith(SPARSE) else [None]
    init = INITS[task.init]
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=task.repetition)
    plain, links = [], {}
    if task.method in PLAIN and task.init != "seeding":
        plain = [fit(make(task.method, k, s, init), x) for s in grid]
    elif task.method in PLAIN:
        # Must-links to start from, which cost nothing when violated.
        links["must_link_weight"] = 1e-12
    test, train, collapsed, weights = [], [], [], []
    for fold, (inside, outside) in enumerate(folds.split(x, y)):
        fitted = plain
        if task.method == INNER:
            inner = StratifiedKFold(3, shuffle=True, random_state=task.repetition)
            kept, aside = next(inner.split(inside, y[inside]))
            inside, outside = inside[kept], inside[aside]
        if not plain:
            number = KINDS.index(task.kind)
            seed = [task.repetition, fold, task.level, number]
            links["must_link"], cannot = constraints(y, inside, task.kind, task.level, seed)
            if task.method not in PLAIN:
                links["cannot_link"] = cannot
            fitted = [fit(make(task.method, k, s, init), x, **links) for s in grid]
        found = [np.asarray(model.labels_) for model, _ in fitted]
        test.append([pair_f(y[outside], labels[outside]) for labels in found])
        train.append([pair_f(y[inside], labels[inside]) for labels in found])
        collapsed.append([bool(fell) for _, fell in fitted])
        weights.append([weights_of(model) for model, _ in fitted])
    return {
        "test": test,
        "train": train,
        "collapsed": collapsed,
        # Average over the folds and over s, as in Figure 2.
        "weights": np.mean(weights, axis=(0, 1)).tolist(),
        "seconds": time.perf_counter() - began,
    }


# --- all runs ------------------------------------------------------------------------------------


def _cell(method: str, init: str, kind: str, level: int) -> tuple[str, str, int]:
    """Start, kind and level of a run: without constraints they are those of all."""
    plain = method in PLAIN and init != "seeding"
    return (init, "none", 0) if plain else (init, kind, level)


def tasks(
    data: Iterable[str],
    *,
    scenarios: Iterable[tuple[str, str]] = SCENARIOS,
    methods: Iterable[str] = METHODS,
    levels: Iterable[int] = LEVELS,
    repetitions: int = 2,
) -> Iterator[Task]:
    """All tasks; a plain method's once for each start that needs no constraints."""
    scenarios, methods, levels = list(scenarios), list(methods), list(levels)
    for repetition in range(repetitions):
        for name in data:
            for method in methods:
                for init, kind in scenarios:
                    for level in levels:
                        yield Task(method, name, *_cell(method, init, kind, level), repetition)


def _run_and_keep(task: Task, folder: str) -> Task:
    result = run(task)
    path = Path(folder) / task.file
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.tmp")
    partial.write_text(json.dumps({**task._asdict(), **result}))
    partial.replace(path)
    return task


def run_all(
    todo: Iterable[Task],
    folder: str | os.PathLike[str],
    *,
    n_workers: int = 2,
    max_seconds: float = math.inf,
    report: Callable[[str], None] = print,
) -> int:
    """Run what is not there yet, on processes of this machine; return how many tasks remain."""
    waiting = [task for task in dict.fromkeys(todo) if not (Path(folder) / task.file).is_file()]
    began, done = time.perf_counter(), 0
    if n_workers <= 1:
        for task in waiting:
            if time.perf_counter() - began > max_seconds:
                break
            # Another process may have made it meanwhile.
            if not (Path(folder) / task.file).is_file():
                _run_and_keep(task, str(folder))
            done += 1
        return len(waiting) - done
    from distributed import Client, LocalCluster, as_completed

    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.upload_file(__file__)
        ahead = iter(waiting)

        def submit() -> list[Any]:
            task = next(ahead, None)
            if task is None or time.perf_counter() - began > max_seconds:
                return []
            return [client.submit(_run_and_keep, task, str(folder), pure=False)]

        running = as_completed([f for _ in range(2 * n_workers) for f in submit()])
        for future in running:
            future.result()
            done += 1
            if done % 50 == 0:
                report(f"{done} of {len(waiting)} tasks, {time.perf_counter() - began:.0f} s")
            for follower in submit():
                running.add(follower)
    return len(waiting) - done


# --- the published program's table ---------------------------------------------------------------

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


# --- what to run, and what came out --------------------------------------------------------------


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


def _result(found: list[dict[str, Any]], inner: list[dict[str, Any]]) -> Result:
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
                _result(found, inner),
                _result(sorted(found, key=lambda record: record["repetition"])[:1], inner),
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
        return self.cells.get((method, data, *_cell(method, init, kind, level)))

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


# --- pictures -------------------------------------------------------------------------------------

COLORS = {"LKM": "#999999", "SKM": "#e69f00", "PCKM": "#009e73", "MPCKM": "#d55e00"} | {
    "PCSKM": "#0072b2"
}
TITLES = {"both": "both kinds", "must": "must-links only", "cannot": "cannot-links only"}


def draw_performance(results: Results, scenarios: Iterable[tuple[str, str]]) -> Any:
    """Figure 1: F-score of the test folds against the number of constraints."""
    import matplotlib.pyplot as plt

    scenarios = list(scenarios)
    names = results.families()
    figure, axes = plt.subplots(
        len(scenarios),
        len(names),
        figsize=(3.1 * len(names), 2.3 * len(scenarios)),
        sharex=True,
        sharey="col",
        squeeze=False,
        layout="constrained",
    )
    for row, (init, kind) in zip(axes, scenarios, strict=True):
        for axis, name in zip(row, names, strict=True):
            for method, color in COLORS.items():
                cells = {v: results.family(method, name, init, kind, v) for v in results.levels}
                points = [(level, cell.mean) for level, cell in cells.items() if cell]
                if not points:
                    continue
                style = {"ls": "--"} if method in PLAIN else {"marker": "o", "ms": 3.5}
                width = 2.2 if method == "PCSKM" else 1.3
                axis.plot(*zip(*points, strict=True), color=color, lw=width, label=method, **style)
            axis.grid(alpha=0.3)
            # All ten would touch each other.
            axis.set_xticks(results.levels[:: max(1, len(results.levels) // 3)])
        row[0].set_ylabel(f"{init}, {TITLES[kind]}\nF-score", fontsize=8)
    for axis, name in zip(axes[0], names, strict=True):
        axis.set_title(name)
    for axis in axes[-1]:
        axis.set_xlabel("constraints, % of all pairs")
    lines = {line.get_label(): line for axis in axes.flat for line in axis.get_lines()}
    figure.legend(
        lines.values(), lines.keys(), loc="outside upper center", ncol=len(lines), frameon=False
    )
    return figure


def draw_weights(results: Results, init: str = "dkm++") -> Any:
    """Figure 2: mean feature weights, for each number of constraints."""
    import matplotlib.pyplot as plt

    cells = {
        (method, name): [
            cell
            for level in (results.levels[:1] if method in PLAIN else results.levels)
            if (cell := results.cell(method, name, init, "both", level)) and cell.weights
        ]
        for method in WEIGHTED
        for name in INFORMATIVE
    }
    names = [name for name in INFORMATIVE if cells["PCSKM", name]]
    methods = [method for method in WEIGHTED if any(cells[method, name] for name in names)]
    figure, axes = plt.subplots(
        len(methods),
        len(names),
        figsize=(4.2 * len(names), 1.9 * len(methods)),
        squeeze=False,
        layout="constrained",
    )
    for row, method in zip(axes, methods, strict=True):
        for axis, name in zip(row, names, strict=True):
            here = cells[method, name]
            width = 0.8 / max(1, len(here))
            for at, cell in enumerate(here):
                weights = np.array(cell.weights)
                places = np.arange(1, len(weights) + 1) + (at - (len(here) - 1) / 2) * width
                shade = 0.4 + 0.6 * (at + 1) / len(here)
                # The scale of a metric has no meaning: shares of the largest weight.
                axis.bar(places, weights / weights.max(), width, color=COLORS[method], alpha=shade)
            p = len(cells["PCSKM", name][0].weights)
            axis.axvspan(INFORMATIVE[name] + 0.5, p + 0.5, color="0.9", zorder=0)
            axis.set_xlim(0.5, p + 0.5)
            axis.set_xticks(range(1, p + 1, 1 if p < 12 else 2))
        row[0].set_ylabel(f"{method}\nweight / largest")
    for axis, name in zip(axes[0], names, strict=True):
        axis.set_title(name)
    for axis in axes[-1]:
        axis.set_xlabel("feature (grey: known to be uninformative)")
    return figure


def draw_published(compared: list[dict[str, Any]]) -> Any:
    """Our F-scores against those of the published program, with two standard errors."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5, 4.6), layout="constrained")
    for method in dict.fromkeys(cell["method"] for cell in compared):
        cells = [cell for cell in compared if cell["method"] == method]
        axis.errorbar(
            [c["published"] for c in cells],
            [c["ours"] for c in cells],
            yerr=[2 * math.sqrt(2) * c["error"] for c in cells],
            fmt="o",
            ms=4,
            lw=0.7,
            color=COLORS.get(method, "#cc79a7"),
            label=method,
        )
    ends = axis.get_xlim()
    axis.plot(ends, ends, color="0.6", lw=1, zorder=0)
    axis.set(xlabel="published program", ylabel="daskclust, two standard errors", xlim=ends)
    axis.legend(frameon=False)
    axis.grid(alpha=0.3)
    return figure


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
