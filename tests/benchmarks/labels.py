"""What few labels are worth: LabelSpreading and SpectralClustering on the open scenes and tables.

``python tests/benchmarks/labels.py`` fits each set with defaults, ``--draws`` times with
other labels and seeds, and prints adjusted Rand indices (of the rows without a label) beside
their targets; they are kept in ``labels.json`` beside it, set by set.  ``--rivals NAME ...``
adds classifiers of scikit-learn on the same labels; ``--parts trees`` leaves out the classifier.
The graph of LabelSpreading alone (``classifier=None``) is judged, too.  All pixels of a scene are
data; it is judged where the class is known, on 5000 drawn rows at most.  ``"1 %"`` is
drawn from all rows whose class is known, so that a small class may have no label; ``"1 % of each
class"`` from each class.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import warnings
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from _results import dumps
from _timing import print_table
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, roc_auc_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading as SklearnSpreading
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.svm import SVC

import daskclust
from daskclust import LabelSpreading, SpectralClustering, open_cube, pairs_from_labels
from daskclust.exceptions import ConstraintWarning
from daskclust.semisupervised.predict import margins

FILES = {
    "salinas": "hsi_salinas_a",
    "jasper": "hsi_jasper_ridge",
    "pendigits": "uci_pendigits_train",
    "landsat": "landsat_statlog",
    "letter": "uci_letterrecognition",
    "mnist": "mnist_5v6",
    "shuttle": "uci_shuttle",
    "segment": "uci_segment",
}
#: Further sets, without targets.
MORE_FILES = {
    "forest": "hsi_forest_pixels_varsel",
    "vehicle": "uci_vehicle",
    "modis": "ts_samples_modis_ndvi",
    "cerrado": "ts_cerrado_2classes",
    "ionosphere": "uci_ionosphere",
    "wine": "uci_wine",
}
#: Adjusted Rand index, by set and by what is known.
TARGETS = {
    ("salinas", "1 %"): 0.965,
    ("jasper", "1 %"): 0.895,
    ("pendigits", "1 %"): 0.86,
    ("landsat", "1 %"): 0.69,
    ("mnist", "1 %"): 0.95,
    ("letter", "1 %"): 0.37,
    ("shuttle", "1 %"): 0.955,
    ("salinas", "5 a class"): 0.92,
    ("jasper", "5 a class"): 0.77,
    ("salinas", "no labels"): 0.77,
    ("jasper", "no labels"): 0.74,
    ("pendigits", "no labels"): 0.70,
    ("mnist", "no labels"): 0.93,
    ("salinas", "200 pairs"): 0.94,
    ("jasper", "200 pairs"): 0.80,
    ("salinas", "AUC, 1 %"): 0.93,
    ("jasper", "AUC, 1 %"): 0.93,
}
RESULTS = Path(__file__).with_suffix(".json")
#: Of no labels, below k-means on the same view, at most.
LOSS = 0.08
#: Rows without a label that are judged, at most; and that semi-supervised rivals see besides the
#: labeled ones, and are judged on.
JUDGED, SEEN = 5000, 2000


class Data:
    """One set: its rows, its classes (-1 where unknown), and the cube of a scene."""

    def __init__(self, name: str, folder: Path) -> None:
        with np.load(folder / "data" / f"{(FILES | MORE_FILES)[name]}.npz") as file:
            self.is_scene = "cube" in file
            if self.is_scene:
                image, truth = file["cube"], file["gt"].astype(int)
                self.x: NDArray[Any] = image.reshape(-1, image.shape[2]).astype(np.float64)
                self.y, self.shape = truth.ravel(), truth.shape
                if name == "salinas":
                    self.y = np.where(self.y == 0, -1, self.y)
                self.rows: Any = open_cube(image, dims=("y", "x", "band"), chunks=(40, 40))
                # Rows of a cube come block by block.
                _, codes = self.rows.rows_of(np.arange(truth.size).reshape(truth.shape))
                self.x, self.y = self.x[codes], self.y[codes]
            else:
                self.x = file["X"].reshape(len(file["y"]), -1).astype(np.float64)
                self.y = file["y"].astype(int)
                # Lazily: a fit does not judge all rows then.
                self.rows = da.from_array(self.x, chunks=(8192, -1))
        self.known = np.flatnonzero(self.y >= 0)
        self.n_classes = len(np.unique(self.y[self.known]))

    def draw(self, labels: str, seed: int) -> NDArray[np.int64]:
        """Draw labeled rows: so many per cent of all, or of each class, or so many a class."""
        rng = np.random.default_rng(seed)
        number, unit = labels.split(" ", 1)
        if unit == "%":
            count = max(len(self.known) * int(number) // 100, 2)
            return np.sort(rng.permutation(self.known)[:count])
        of_each = [np.flatnonzero(self.y == c) for c in np.unique(self.y[self.known])]
        counts = [int(number)] * len(of_each)
        if unit == "% of each class":
            counts = [max(1, round(len(own) * int(number) / 100)) for own in of_each]
        drawn = [rng.permutation(own)[:m] for own, m in zip(of_each, counts, strict=True)]
        return np.sort(np.concatenate(drawn))


def calibration_error(proba: NDArray[Any], right: NDArray[Any]) -> float:
    """How far the best probability is from the share that is right: mean over ten bins."""
    sure = proba.max(axis=1)
    bins = np.minimum((sure * 10).astype(int), 9)
    sums = np.bincount(bins, sure - right, minlength=10)
    return float(np.abs(sums).sum() / len(sure))


def ceiling(truth: NDArray[Any], labeled: NDArray[Any]) -> float:
    """Index of rows that are all right, but for classes without a label: each is put to another."""
    best = truth
    for missing in np.setdiff1d(truth, labeled):
        others = [np.where(best == missing, other, best) for other in np.unique(labeled)]
        best = max(others, key=lambda found: adjusted_rand_score(truth, found))
    return float(adjusted_rand_score(truth, best))


#: Classifiers of scikit-learn, on labeled rows; the last two also on others.
RIVALS = ("SVM", "forest", "LDA", "spreading of scikit-learn", "self-training")


def rivals(
    data: Data,
    rows: NDArray[np.int64],
    test: NDArray[np.int64],
    seed: int,
    names: Collection[str] = RIVALS,
) -> Iterator[tuple[str, float]]:
    """Yield names of classifiers of scikit-learn, and their scores on the test rows.

    The score is NaN where a classifier cannot be fitted to these labels, and that is said.
    """
    x, y = data.x[rows], data.y[rows]
    components = min(30, data.x.shape[1], len(rows) - 1)
    some = np.sort(np.random.default_rng(seed).permutation(test)[:SEEN])
    both = np.concatenate([x, data.x[some]]), np.concatenate([y, np.full(len(some), -1)])
    classifiers = {
        "SVM": SVC(C=100.0),
        "forest": RandomForestClassifier(300, random_state=seed),
        "LDA": make_pipeline(
            PCA(components, random_state=seed),
            LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto"),
        ),
        "spreading of scikit-learn": SklearnSpreading(kernel="knn", max_iter=100),
        "self-training": SelfTrainingClassifier(RandomForestClassifier(100, random_state=seed)),
    }
    for name in names:
        taught, judged = (both, some) if name in RIVALS[3:] else ((x, y), test)
        classifier = make_pipeline(StandardScaler(), classifiers[name])
        try:
            found = classifier.fit(*taught).predict(data.x[judged])
        # Of one class, LDA can be fitted and cannot predict.
        except (ValueError, IndexError) as error:
            print(f"{name} cannot be fitted to {len(rows)} labels of {np.unique(y)}: {error}")
            yield name, float("nan")
            continue
        yield name, adjusted_rand_score(data.y[judged], found)


def supervised(
    data: Data, labels: str, seed: int, *, beside: Collection[str] = ()
) -> dict[str, float]:
    """Scores of LabelSpreading and of 1-NN, and the AUC of the margin against errors."""
    rows = data.draw(labels, seed)
    test = np.setdiff1d(data.known, rows)
    test = np.sort(np.random.default_rng(seed).permutation(test)[:JUDGED])
    model = LabelSpreading(random_state=seed).fit(data.rows, (rows, data.y[rows]))
    # Prediction and margin of new rows, by one pass instead of two.
    proba = model.predict_proba(data.x[test])
    found, margin = model.classes_[proba.argmax(axis=1)], margins(proba)
    nearest = KNeighborsClassifier(1).fit(data.x[rows], data.y[rows]).predict(data.x[test])
    scores = {f"{name}, {labels}": s for name, s in rivals(data, rows, test, seed, beside)}
    # What classifier=None gives, without another fit.
    alone = model.classes_[model._posterior.by_graph(data.x[test]).argmax(axis=1)]
    # The weight of trees and linear functions together, and of the linear functions.
    weight = float(model.mixing_weights_[1])
    share = 0.0 if model.classifier_ is None else model._posterior.classifier.linear_share
    return {
        **scores,
        f"graph alone, {labels}": adjusted_rand_score(data.y[test], alone),
        f"weight of the classifier, {labels}": weight,
        f"of it linear, {labels}": weight * share,
        f"calibration error, {labels}": calibration_error(proba, found == data.y[test]),
        labels: adjusted_rand_score(data.y[test], found),
        f"at most, {labels}": ceiling(data.y[test], data.y[rows]),
        f"AUC, {labels}": float(roc_auc_score(found == data.y[test], margin)),
        f"1-NN, {labels}": adjusted_rand_score(data.y[test], nearest),
    }


#: Parts of LabelSpreading that can be left out.
PARTS = ("trees",)


def parts(data: Data, labels: str, seed: int, names: Sequence[str]) -> dict[str, float]:
    """Scores of LabelSpreading without one part, and with all."""
    rows = data.draw(labels, seed)
    test = np.setdiff1d(data.known, rows)
    test = np.sort(np.random.default_rng(seed).permutation(test)[:JUDGED])
    scores = {}
    for name in ("", *names):
        classifier = None if name == "trees" else "trees"
        model = LabelSpreading(random_state=seed, classifier=classifier)
        model.fit(data.rows, (rows, data.y[rows]))
        found = adjusted_rand_score(data.y[test], model.predict(data.x[test]))
        scores[f"without {name}, {labels}" if name else labels] = found
    return scores


def unsupervised(data: Data, seed: int) -> dict[str, float]:
    """Scores of SpectralClustering, and of k-means in the same space."""
    model = SpectralClustering(data.n_classes, random_state=seed).fit(data.rows)
    truth = data.y[data.known]
    must, cannot = pairs_from_labels(data.y, n_pairs=200, random_state=seed)
    linked = SpectralClustering(data.n_classes, random_state=seed).fit(
        data.rows, must_link=must, cannot_link=cannot
    )
    plain = KMeans(data.n_classes, n_init=3, random_state=seed).fit_predict(model._space(data.x))
    return {
        "no labels": adjusted_rand_score(truth, np.asarray(model.labels_)[data.known]),
        "k-means": adjusted_rand_score(truth, plain[data.known]),
        "200 pairs": adjusted_rand_score(truth, np.asarray(linked.labels_)[data.known]),
    }


def measure(
    data: Data,
    draws: int,
    labels: list[str],
    *,
    labeled_only: bool = False,
    beside: Collection[str] = (),
    without: Sequence[str] = (),
) -> dict[str, list[float]]:
    """All scores of one set, a list of draws each."""
    scores: dict[str, list[float]] = {}
    for seed in range(draws):
        found = {} if labeled_only else unsupervised(data, seed)
        for known in labels:
            if without:
                found.update(parts(data, known, seed, without))
            else:
                found.update(supervised(data, known, seed, beside=beside))
        for key, value in found.items():
            scores.setdefault(key, []).append(value)
    return scores


def verdicts(name: str, scores: dict[str, list[float]]) -> Iterator[list[str]]:
    """Lines of the table: set, what was known, mean, deviation, target, verdict."""
    for key, values in scores.items():
        mean, target = float(np.mean(values)), TARGETS.get((name, key))
        if key == "no labels":
            floor = float(np.mean(scores["k-means"])) - LOSS
            target = max(floor, target or floor)
        verdict = "" if target is None else ("reached" if mean >= target else "MISSED")
        goal = "" if target is None else f"{target:.3f}"
        yield [name, key, f"{mean:.3f}", f"{np.std(values):.3f}", goal, verdict]


def keep(path: Path, name: str, found: dict[str, Any]) -> None:
    """Put what was found for a set into the file of results; its other scores stay."""
    results = json.loads(path.read_text())["results"] if path.exists() else {}
    results[name] = {**results.get(name, {}), **found}
    about = {
        "command": "python tests/benchmarks/labels.py",
        "measure": "adjusted Rand index of the rows without a label; mean and deviation of draws",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, other work beside it",
        "daskclust": daskclust.__version__,
        "results": dict(sorted(results.items())),
    }
    path.write_text(dumps(about) + "\n")


def summary(scores: dict[str, list[float]]) -> dict[str, Any]:
    """Mean, deviation and number of draws of each score; none where a draw has none."""
    return {
        key: {
            "mean": round(float(np.mean(values)), 4),
            "std": round(float(np.std(values)), 4),
            "draws": len(values),
        }
        for key, values in scores.items()
        if np.isfinite(values).all()
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=list(FILES))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--labels", nargs="*", default=["1 %", "5 a class"])
    parser.add_argument("--labeled-only", action="store_true", help="LabelSpreading only")
    parser.add_argument("--rivals", nargs="*", choices=RIVALS, default=(), metavar="NAME")
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("DASKCLUST_TEST_DATA", "shared"))
    )
    parser.add_argument("--parts", nargs="*", choices=PARTS, metavar="NAME")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    # Small groups without a label are no news here.
    warnings.simplefilter("ignore", ConstraintWarning)
    warnings.simplefilter("ignore", ConvergenceWarning)
    lines = []
    for name in options.sets:
        data = Data(name, options.data)
        scores = measure(
            data,
            options.draws,
            options.labels,
            labeled_only=options.labeled_only or bool(options.rivals or options.parts),
            beside=options.rivals,
            without=options.parts or (),
        )
        keep(options.output, name, summary(scores))
        found = list(verdicts(name, scores))
        print_table(["set", "known", "mean", "std", "target", ""], found)
        lines += found
    missed = [line for line in lines if line[-1] == "MISSED"]
    print(f"daskclust {daskclust.__version__}: {len(missed)} of {len(TARGETS)} targets missed")
    raise SystemExit(bool(missed))


if __name__ == "__main__":
    main()
