"""Labels together with missing values: daskclust and what one would use instead.

``python tests/benchmarks/clouds.py`` makes the runs and adds them to ``clouds.json`` beside this
file; what is there is not run again.  Time series of vegetation indices (MODIS, 4 and 2
classes) of which 20, 40 and 60 % are hidden in three ways, and a Sentinel-2 series under real
clouds.  Five draws of labels and gaps, 10 labels a class (Sentinel-2: 1 % of the pixels);
adjusted Rand index of the rows without a label.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from _results import dumps
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import KNeighborsClassifier

import daskclust

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

#: Scores and seconds of all runs so far.
RESULTS = Path(__file__).with_suffix(".json")
SHARES = (0.2, 0.4, 0.6)
MECHANISMS = ("mcar", "dates", "nmar")


def load(name: str) -> Floats | NDArray:
    """Return the arrays of a file of the test data."""
    beside = Path(__file__).resolve().parents[2].parent / "shared"
    path = Path(os.environ.get("DASKCLUST_TEST_DATA") or beside) / "data" / f"{name}.npz"
    with np.load(path, allow_pickle=False) as data:
        return {key: data[key] for key in data.files}


def series(name: str) -> tuple[Floats, Labels]:
    """Series of shape (n, dates, bands), complete, and their classes."""
    data = load(name)
    return data["X"].astype(float), data["y"].astype(int)


def slovenia() -> tuple[Floats, Labels]:
    """NDVI of shape (n, dates), NaN under clouds, and the land cover."""
    data = load("s2_ndvi_clouds_slovenia")
    X = np.where(data["cloud"], np.nan, data["ndvi"].astype(float))
    X = X.reshape(len(X), -1).T
    cover = data["lulc"].ravel().astype(int)
    kept = (cover > 0) & ~np.isnan(X).all(axis=1)
    X = X[kept]
    return X[:, ~np.isnan(X).all(axis=0)], cover[kept]


def hide(X: Floats, mechanism: str, share: float, seed: int) -> Floats:
    """Hide a share: of the values, of the dates with all their bands, or of high values first.

    At least one date of each row is left.
    """
    rng = np.random.default_rng([seed, 7])
    n, dates, bands = X.shape
    if mechanism == "mcar":
        gone = rng.random(X.shape) < share
    elif mechanism == "dates":
        gone = np.repeat(rng.random((n, dates, 1)) < share, bands, axis=2)
    else:
        # The odds rise with the rank of the value among those of its date and band.
        rank = X.argsort(axis=0).argsort(axis=0) / n
        odds = 2 * share * rank if share <= 0.5 else 1 - 2 * (1 - share) * (1 - rank)
        gone = rng.random(X.shape) < odds
    gone[np.arange(n), rng.integers(dates, size=n)] = False
    return np.where(gone, np.nan, X).reshape(n, -1)


def draw_labels(truth: Labels, seed: int, share: float | None) -> Labels:
    """Return the rows that are labeled: 10 of each class, or a share of all."""
    rng = np.random.default_rng([seed, 3])
    if share is not None:
        rows = rng.permutation(len(truth))[: round(share * len(truth))]
        # Each class once at least.
        missing = np.setdiff1d(truth, truth[rows])
        more = [rng.choice(np.flatnonzero(truth == c)) for c in missing]
        return np.concatenate([rows, np.array(more, dtype=int)])
    each = [rng.permutation(np.flatnonzero(truth == c))[:10] for c in np.unique(truth)]
    return np.concatenate(each)


def mean_filled(X: Floats) -> Floats:
    """Fill in the means of the columns."""
    return SimpleImputer(keep_empty_features=True).fit_transform(X)


def mixture_filled(X: Floats) -> Floats:
    """Fill in conditional means under a mixture of 8 diagonal components."""
    model = daskclust.GaussianMixture(8, covariance_type="diag", random_state=0)
    return np.asarray(model.fit(X).impute(X))


def classifier(make: Callable[[], object], fill: Callable[[Floats], Floats]) -> Callable:
    """Return what learns from the labeled rows only."""

    def predict(X: Floats, y: Labels, known: Labels, seed: int) -> Labels:
        X = fill(X)
        model = make()
        if hasattr(model, "random_state"):
            model.set_params(random_state=seed)
        return model.fit(X[known], y[known]).predict(X)

    return predict


def spreading(views: str | tuple[str, ...], fill: Callable[[Floats], Floats] | None = None):
    """Return label spreading with these views."""

    def predict(X: Floats, y: Labels, known: Labels, seed: int) -> Labels:
        model = daskclust.LabelSpreading(views=views, random_state=seed)
        rows = X if fill is None else fill(X)
        return model.fit(rows, (np.sort(known), y[np.sort(known)])).labels_

    return predict


def kmeans(X: Floats, y: Labels, known: Labels, seed: int) -> Labels:
    """K-means of what the means fill in."""
    k = len(np.unique(y))
    return daskclust.KMeans(k, n_init=5, random_state=seed).fit(mean_filled(X)).labels_


def partial_kmeans(X: Floats, y: Labels, known: Labels, seed: int) -> Labels:
    """K-means over what is observed."""
    k = len(np.unique(y))
    model = daskclust.KMeans(k, n_init=5, missing="partial", random_state=seed)
    return np.asarray(model.fit(X).labels_)


def boosting() -> HistGradientBoostingClassifier:
    """Gradient boosting, which takes NaN; small leaves, as labels are few."""
    return HistGradientBoostingClassifier(min_samples_leaf=2, max_iter=50)


METHODS: dict[str, Callable[[Floats, Labels, Labels, int], Labels]] = {
    "k-means, mean": kmeans,
    "k-means, partial": partial_kmeans,
    "1-NN, mean": classifier(lambda: KNeighborsClassifier(1), mean_filled),
    "random forest, mean": classifier(lambda: RandomForestClassifier(200), mean_filled),
    "random forest, mixture": classifier(lambda: RandomForestClassifier(200), mixture_filled),
    "gradient boosting, NaN": classifier(boosting, lambda X: X),
    "label spreading, mean": spreading("standard", mean_filled),
    "label spreading, mixture": spreading("mixture"),
    "label spreading, pckid": spreading("pckid"),
    "label spreading, auto": spreading("auto"),
}


def cases(names: list[str] | None) -> Iterator[tuple[str, str, float]]:
    """Sets, mechanisms and shares; those that must reach a target first."""
    found = [("s2_ndvi_clouds_slovenia", "clouds", 0.0)]
    sets = ("ts_samples_modis_ndvi", "ts_cerrado_2classes")
    found += [(name, "dates", 0.4) for name in sets]
    found += [(name, "complete", 0.0) for name in sets]
    found += [(name, m, share) for name in sets for share in SHARES for m in MECHANISMS]
    done = set()
    for case in found:
        if case not in done and (names is None or case[0] in names):
            done.add(case)
            yield case


def run(case: tuple[str, str, float], seed: int, method: str) -> tuple[float, float]:
    """Score of one method on one draw, and its seconds."""
    name, mechanism, share = case
    if mechanism == "clouds":
        X, truth = slovenia()
        known = draw_labels(truth, seed, 0.01)
    else:
        complete, truth = series(name)
        X = complete.reshape(len(complete), -1)
        if mechanism != "complete":
            X = hide(complete, mechanism, share, seed)
        known = draw_labels(truth, seed, None)
    began = time.perf_counter()
    found = np.asarray(METHODS[method](X, truth, known, seed))
    seconds = time.perf_counter() - began
    others = np.ones(len(truth), bool)
    others[known] = False
    return adjusted_rand_score(truth[others], found[others]), seconds


def main(argv: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    path = options.results
    results = json.loads(path.read_text()) if path.is_file() else {}
    for case in cases(options.sets):
        for method in options.methods:
            for seed in range(options.draws):
                key = ":".join(map(str, (*case, method, seed)))
                if key in results:
                    continue
                score, seconds = run(case, seed, method)
                results[key] = {"ari": round(score, 4), "seconds": round(seconds, 2)}
            scores = [results[":".join(map(str, (*case, method, s)))] for s in range(options.draws)]
            print(
                *case,
                method,
                round(float(np.mean([s["ari"] for s in scores])), 3),
                sum(s["seconds"] for s in scores),
                flush=True,
            )
            scratch = path.with_suffix(".tmp")
            scratch.write_text(dumps(dict(sorted(results.items()))) + "\n")
            scratch.replace(path)


if __name__ == "__main__":
    main()
