"""When labels help: all methods side by side on the open scenes and tables.

``python tests/benchmarks/when_labels_help.py`` fits every method with fixed settings at 5
labels a class and at 1 %, without and with noise bands, adds what it finds to
``when_labels_help.json`` (existing figures are replaced).  Name sets or methods to run only these.
``page_tables.py`` writes the tables of ``docs/evidence/few-labels.md``, with the scores of
LabelSpreading that ``labels.py`` measured on the same draws.

Figures are adjusted Rand indices of the rows whose class is known and not given.  Tables are
scaled to standard deviations of 1, scenes taken as they are.  Noise bands: as many as there
are features, 30 at least and 200 at most, Gaussian, of the features' mean variance.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from labels import RESULTS as SCORE_RESULTS
from labels import Data
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import daskclust
from daskclust import (
    KMeans,
    MPCKMeans,
    PCSKMeans,
    SemiSupervisedKMeans,
    SpectralClustering,
    open_cube,
)

RESULTS = Path(__file__).with_suffix(".json")

SETS = (
    "salinas", "jasper", "pendigits", "landsat", "mnist", "letter", "shuttle", "segment",
    "forest", "vehicle", "modis", "cerrado", "ionosphere", "wine",
)  # fmt: skip
LABELS = ("5 a class", "1 %")
CLEAN, NOISY = "as they are", "with noise bands"
#: Draws of labels, and fewer for what takes minutes.
DRAWS, FEW_DRAWS = 5, 2
SLOW_METHODS, SLOW_SETS = {"PCSKMeans", "MPCKMeans"}, {"mnist", "letter", "shuttle"}


@dataclass(frozen=True)
class Task:
    """Rows, some of which are labeled."""

    rows: Any
    x: NDArray[Any]
    labeled: NDArray[np.int64]
    classes: NDArray[Any]
    n_classes: int
    seed: int

    @property
    def y(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Partial labels."""
        return self.labeled, self.classes


def _k_means(task: Task) -> Any:
    return KMeans(task.n_classes, random_state=task.seed).fit(task.x).labels_


def _several(task: Task) -> Any:
    k = 3 * len(np.unique(task.classes))
    model = SemiSupervisedKMeans(k, clusters_per_class=3, random_state=task.seed)
    model.fit(task.x, task.y)
    return model.cluster_classes_[model.labels_]


def _pcsk_means(task: Task) -> Any:
    sparsity = max(np.sqrt(task.x.shape[1]) / 2, 1.0)
    model = PCSKMeans(task.n_classes, sparsity=sparsity, random_state=task.seed)
    return model.fit(task.x, task.y).labels_


def _svm(task: Task) -> Any:
    if len(np.unique(task.classes)) == 1:
        return np.full(len(task.x), task.classes[0])
    x = StandardScaler().fit_transform(task.x)
    return SVC(C=10.0).fit(x[task.labeled], task.classes).predict(x)


METHODS: Mapping[str, Callable[[Task], Any]] = {
    "k-means": _k_means,
    "SemiSupervisedKMeans": lambda task: (
        SemiSupervisedKMeans(task.n_classes, random_state=task.seed).fit(task.x, task.y).labels_
    ),
    "3 clusters a class": _several,
    "MPCKMeans": lambda task: (
        MPCKMeans(task.n_classes, random_state=task.seed).fit(task.x, task.y).labels_
    ),
    "PCSKMeans": _pcsk_means,
    "1-NN": lambda task: (
        KNeighborsClassifier(1).fit(task.x[task.labeled], task.classes).predict(task.x)
    ),
    "SVM": _svm,
    "SpectralClustering": lambda task: (
        SpectralClustering(task.n_classes, random_state=task.seed).fit(task.rows, task.y).labels_
    ),
}


def with_noise(x: NDArray[Any], seed: int = 0) -> NDArray[Any]:
    """Append noise bands to rows."""
    width = int(np.clip(x.shape[1], 30, 200))
    scale = np.sqrt(x.var(axis=0).mean())
    noise = np.random.default_rng(seed).normal(scale=scale, size=(len(x), width))
    return np.hstack([x, noise])


def _rows(data: Data, x: NDArray[Any]) -> Any:
    """Rows of a table, or the cube of a scene."""
    if not data.is_scene:
        return x
    _, places = data.rows.rows_of(np.arange(len(x)).reshape(data.shape))
    image = np.empty_like(x)
    image[places] = x
    return open_cube(image.reshape(*data.shape, -1), dims=("y", "x", "band"), chunks=(40, 40))


def measure(
    data: Data, name: str, methods: list[str], draws: int | None = None
) -> Iterator[dict[str, Any]]:
    """Fit methods to one set; yield one record for each method, amount of labels, and variant."""
    x = (
        data.x
        if data.is_scene
        else (data.x - data.x.mean(axis=0))
        / np.where(data.x.std(axis=0) > 0, data.x.std(axis=0), 1.0)
    )
    for variant, values in ((CLEAN, x), (NOISY, with_noise(x))):
        rows = _rows(data, values)
        for method in methods:
            slow = method in SLOW_METHODS or name in SLOW_SETS
            count = draws or (FEW_DRAWS if slow else DRAWS)
            for labels in LABELS[:1] if method == "k-means" else LABELS:
                scores, seconds = [], []
                for seed in range(count):
                    labeled = data.draw(labels, seed)
                    task = Task(rows, values, labeled, data.y[labeled], data.n_classes, seed)
                    begin = time.perf_counter()
                    found = np.asarray(METHODS[method](task))
                    seconds.append(time.perf_counter() - begin)
                    test = np.setdiff1d(data.known, labeled)
                    scores.append(adjusted_rand_score(data.y[test], found[test]))
                yield {
                    "set": name,
                    "bands": variant,
                    "labels": labels if method != "k-means" else "none",
                    "method": method,
                    "ari": round(float(np.mean(scores)), 4),
                    "std": round(float(np.std(scores)), 4),
                    "draws": count,
                    "seconds": round(float(np.mean(seconds)), 2),
                }


_KEY = ("set", "bands", "labels", "method")


def add(path: Path, records: list[dict[str, Any]]) -> None:
    """Add records to the file of results; those of the same set, labels and method are replaced."""
    known = json.loads(path.read_text())["results"] if path.exists() else []
    kept = {tuple(record[key] for key in _KEY): record for record in (*known, *records)}
    about = {
        "command": "python tests/benchmarks/when_labels_help.py",
        "measure": "adjusted Rand index of the rows whose class is known and not given",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, other work beside it",
        "daskclust": daskclust.__version__,
    }
    lines = ",\n".join("  " + json.dumps(kept[key]) for key in sorted(kept))
    head = json.dumps(about, indent=1).removesuffix("\n}")
    path.write_text(f'{head},\n "results": [\n{lines}\n ]\n}}\n')


def table(
    results: list[dict[str, Any]], spreading: Mapping[str, Any], bands: str, labels: str
) -> str:
    """One table of the page: sets down, methods across, the best of each set in bold."""
    scores = {
        (r["set"], r["method"]): r["ari"]
        for r in results
        if r["bands"] == bands and r["labels"] in (labels, "none")
    }
    methods = list(METHODS)
    measured = [name for name in SETS if labels in spreading[name]]
    if bands == CLEAN and measured:
        methods.append("LabelSpreading")
        scores |= {(name, methods[-1]): spreading[name][labels]["mean"] for name in measured}
    lines = ["| set | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|"]
    for name in SETS:
        row = [scores.get((name, method)) for method in methods]
        best = max((round(value, 2) for value in row if value is not None), default=None)
        cells = [
            ""
            if value is None
            else (f"**{value:.2f}**" if round(value, 2) == best else f"{value:.2f}")
            for value in row
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    means = [
        np.mean([scores[name, method] for name in SETS])
        if all((name, method) in scores for name in SETS)
        else None
        for method in methods
    ]
    cells = ["" if value is None else f"{value:.2f}" for value in means]
    lines.append("| *mean* | " + " | ".join(cells) + " |")
    return "\n".join(lines)


#: What the second table of the page shows of ``labels.json``.
SCORES = ("1 %", "1-NN, 1 %", "AUC, 1 %", "5 a class", "no labels", "k-means", "200 pairs")


def score_table(results: Mapping[str, Any]) -> str:
    """Give the scores of ``labels.json`` as a table, mean and deviation."""
    lines = ["| set | " + " | ".join(SCORES) + " |", "|---" * (len(SCORES) + 1) + "|"]
    for name in (name for name in SETS if name in results):
        found = [results[name].get(key) for key in SCORES]
        cells = ["" if one is None else f"{one['mean']:.3f} ± {one['std']:.3f}" for one in found]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


#: Of the third table: scores of ``labels.json``, the first eight adjusted Rand indices.
BESIDE = {
    "SVM": "SVM, {}",
    "forest": "forest, {}",
    "LDA": "LDA, {}",
    "1-NN": "1-NN, {}",
    "spreading (scikit-learn)": "spreading of scikit-learn, {}",
    "self-training": "self-training, {}",
    "graph alone": "graph alone, {}",
    "graph and classifier": "{}",
    "weight of the classifier": "weight of the classifier, {}",
    "of it linear": "of it linear, {}",
    "calibration error": "calibration error, {}",
}


def beside_table(results: Mapping[str, Any]) -> str:
    """Give LabelSpreading beside other classifiers, the best index of each line in bold."""
    lines = ["| set, labels | " + " | ".join(BESIDE) + " | draws |"]
    lines.append("|---" * (len(BESIDE) + 2) + "|")
    for name in (name for name in SETS if name in results):
        for labels in ("5 a class", "1 %"):
            found = [results[name].get(key.format(labels)) for key in BESIDE.values()]
            if f"graph alone, {labels}" not in results[name]:
                continue
            best = max(round(one["mean"], 3) for one in found[:8] if one)
            cells = [
                ""
                if one is None
                else f"**{one['mean']:.3f}**"
                if at < 8 and round(one["mean"], 3) == best
                else f"{one['mean']:.3f}"
                for at, one in enumerate(found)
            ]
            draws = results[name][labels]["draws"]
            lines.append(f"| {name}, {labels} | " + " | ".join(cells) + f" | {draws} |")
    return "\n".join(lines)


def table_of(name: str) -> str:
    """Return a table of the page by its name, such as "as they are; 5 a class"."""
    results, scores = (json.loads(path.read_text())["results"] for path in (RESULTS, SCORE_RESULTS))
    if name == "scores of labels":
        return score_table(scores) + "\n"
    if name == "other classifiers":
        return beside_table(scores) + "\n"
    bands, labels = name.split("; ")
    return table(results, scores, bands, labels) + "\n"


def main() -> None:
    """Measure, and add the scores to the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--draws", type=int)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("DASKCLUST_TEST_DATA", "shared"))
    )
    options = parser.parse_args()
    # Small groups without a label, iterations that end: no news here.
    warnings.simplefilter("ignore")
    for name in options.sets:
        data = Data(name, options.data)
        for record in measure(data, name, options.methods, options.draws):
            add(options.output, [record])
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
