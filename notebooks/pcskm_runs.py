"""The protocol of the PCSKM paper: data, folds, constraints, methods, and the runs of them all.

A task is one run: a data set, a start, a kind and a number of constraints, a repetition, a
method.  Its result is a small file; what is there already is not run again.  Workers import this
module alone.  ``pcskm_paper.py`` is the command.
"""

from __future__ import annotations

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
    """An estimator with the limits, the penalty and the single start of the published program."""
    common = {"init": init, "max_iter": 25, "random_state": 0}
    if method in PLAIN and init == "neighborhoods":
        # They start from pairs, which otherwise do not count: see `run`.
        method = "PC" + method.replace("LKM", "KM")
    if method == "LKM":
        return daskclust.KMeans(k, tol=0, **common)
    if method == "SKM":
        return daskclust.SparseKMeans(k, sparsity=s, n_init=1, **common)
    common |= {"n_init": 1, "penalty": "distance"}
    if method == "PCKM":
        return daskclust.PCKMeans(k, **common)
    if method == "MPCKM":
        return daskclust.MPCKMeans(k, **{**common, "max_iter": 100})
    penalized = method in ("PCSKM Eq. 15", "PCSKM scaled")
    model = daskclust.PCSKMeans(k, sparsity=s, penalized_scores=penalized, **common)
    if method == "PCSKM scaled":
        model._penalty_share = 0.5
    return model


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


def cell_of(method: str, init: str, kind: str, level: int) -> tuple[str, str, int]:
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
                        yield Task(method, name, *cell_of(method, init, kind, level), repetition)


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
