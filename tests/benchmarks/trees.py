"""Trees and density on prototypes compared with those of all rows: agreement and noise.

    python tests/benchmarks/trees.py [--seeds 5] [--labels FOLDER] [--parts ward noise sets]

``ward``: adjusted Rand index with the classes, of SciPy's cut of all rows, of all rows but one in
twenty, and of 2000 prototypes.  ``noise``: 100 000 rows, a fifth of them uniform noise, and planted
clusters of several shapes; index with the labels of all rows, and precision and recall of noise.
Results in ``trees.json`` are not computed again, and ``--labels`` keeps the labels of all rows.
``sets``: index with the classes of every open set, of scikit-learn on a sample of 4000 rows, and of
all rows by 2000 prototypes.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.cluster
from _results import dumps
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.datasets import make_moons

import daskclust
from daskclust.metrics import adjusted_rand_score

DATA = Path(os.environ.get("DASKCLUST_TEST_DATA") or Path(__file__).parents[3] / "shared") / "data"
SETS = ("uci_pendigits_train", "landsat_statlog", "uci_shuttle", "mnist_5v6")
KEPT = Path(__file__).with_suffix(".json")
#: Kinds, features and seeds of planted clusters.
PLANTED = [
    *[("moons", 2, seed) for seed in (0, 1, 2, 101, 202)],
    *[("blobs", p, 0) for p in (2, 8, 16)],
    *[("blobs", p, 1) for p in (2, 8)],
    *[("blobs", 2, seed) for seed in (101, 202, 300, 303)],
    *[(kind, 2, seed) for seed in (101, 202) for kind in ("uneven", "stretched", "rings")],
    *[(kind, 8, 300) for kind in ("uneven", "stretched")],
    *[(kind, 2, seed) for seed in range(300, 304) for kind in ("uneven", "stretched")],
    ("blobs", 16, 1),
]
#: Rows of which SciPy's tree is grown: the condensed distances of more take gigabytes.
MOST = 14_000


def ward(seeds: int) -> None:
    """Keep the index of cuts with the classes."""
    for name in SETS:
        stored = np.load(DATA / f"{name}.npz")
        X = stored["X"].reshape(len(stored["X"]), -1).astype(float)
        truth = np.unique(stored["y"], return_inverse=True)[1]
        k = int(truth.max()) + 1
        found: dict[str, list[float]] = {"all rows": [], "but one in twenty": [], "prototypes": []}
        if len(X) <= MOST:
            found["all rows"] = [of_tree(X, truth, k)]
        if len(X) < 10_000:
            some = [np.random.default_rng(draw).random(len(X)) >= 0.05 for draw in range(5)]
            found["but one in twenty"] = [of_tree(X[of], truth[of], k) for of in some]
        for seed in range(seeds):
            model = daskclust.AgglomerativeClustering(k, random_state=seed).fit(X)
            found["prototypes"].append(adjusted_rand_score(truth, model.labels_))
        rounded = {way: np.round(values, 5).tolist() for way, values in found.items()}
        print(name, rounded, flush=True)
        keep("ward", name, rounded)


def of_tree(X: NDArray, truth: NDArray, k: int) -> float:
    """Return the index of SciPy's cut with the classes."""
    return float(adjusted_rand_score(truth, fcluster(linkage(X, "ward"), k, "maxclust")))


def kept() -> Any:
    """Return the results that are there."""
    return json.loads(KEPT.read_text()) if KEPT.exists() else {"noise": {}}


def keep(part: str, name: str, values: Any) -> None:
    """Add to the results."""
    found = kept()
    found.setdefault(part, {})[name] = values
    KEPT.write_text(dumps(dict(sorted(found.items()))) + "\n")


def planted(kind: str, p: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Make clusters of different spread, size or shape, or two moons, and uniform noise."""
    rng = np.random.default_rng(seed)
    n = 80_000
    if kind == "moons":
        X, y = make_moons(n, noise=0.05, random_state=seed)
    elif kind == "uneven":
        centers, spreads = rng.uniform(-6, 6, (8, p)), rng.uniform(0.1, 0.6, 8)
        y = rng.choice(8, n, p=0.8 * rng.dirichlet(np.full(8, 2.0)) + 0.2 / 8)
        X = centers[y] + rng.normal(size=(n, p)) * spreads[y, None]
    elif kind == "stretched":
        centers, y = rng.uniform(-8, 8, (6, p)), rng.integers(0, 6, n)
        axes = [np.linalg.qr(rng.normal(size=(p, p)))[0] for _ in range(6)]
        X = rng.normal(size=(n, p)) * np.where(np.arange(p) == 0, 1.2, 0.15)
        for c, turned in enumerate(axes):
            X[y == c] = centers[c] + X[y == c] @ turned
    elif kind == "rings":
        y, angle = rng.integers(0, 4, n), rng.uniform(0, 2 * np.pi, n)
        radius = np.array([0.0, 2.0, 4.0, 0.0])[y]
        X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
        X += rng.normal(size=(n, 2)) * 0.15
        bar = (y == 3).sum()
        X[y == 3] = np.column_stack([rng.uniform(-4, 4, bar), 6 + rng.normal(size=bar) * 0.1])
    else:
        centers, spreads = rng.uniform(-6, 6, (12, p)), rng.uniform(0.15, 0.5, 12)
        y = rng.integers(0, 12, n)
        X = centers[y] + rng.normal(size=(n, p)) * spreads[y, None]
    noise = rng.uniform(X.min(axis=0) - 0.5, X.max(axis=0) + 0.5, (n // 4, X.shape[1]))
    return np.concatenate([X, noise]), np.append(y, np.full(n // 4, -1))


def default(folder: Path | None) -> None:
    """Keep how the default number of prototypes agrees with all rows."""
    for kind, p, seed in PLANTED:
        name = f"{kind}, {p}, {seed}"
        if name in kept()["noise"]:
            continue
        X, truth = planted(kind, p, seed)
        path = folder and folder / f"{kind}-{p}-{seed}.npy"
        known = np.load(path) if path and path.exists() else all_rows(X)
        if path:
            np.save(path, known)
        model = daskclust.HDBSCAN(500, min_samples=10, random_state=0).fit(X)
        clean = truth >= 0
        found = {
            "prototypes": model.n_prototypes,
            "all rows": np.round(noise(known, truth), 5).tolist(),
            "index": round(adjusted_rand_score(known[clean], model.labels_[clean]), 5),
            "noise": np.round(noise(model.labels_, truth), 5).tolist(),
        }
        print(name, found, flush=True)
        keep("noise", name, found)


def all_rows(X: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the labels of the ordinary algorithm."""
    import hdbscan

    # It does not count the row itself among its neighbors; its own tree is approximate by default.
    exact = hdbscan.HDBSCAN(500, min_samples=9, approx_min_span_tree=False, core_dist_n_jobs=1)
    labels: NDArray[np.int64] = exact.fit(X).labels_
    return labels


def noise(labels: NDArray, truth: NDArray) -> tuple[float, float]:
    """Return precision and recall of noise."""
    right = ((labels < 0) & (truth < 0)).sum()
    return right / max((labels < 0).sum(), 1), right / (truth < 0).sum()


def sets() -> None:
    """Keep the index with the classes of each open set."""
    for path in sorted(DATA.glob("*.npz")):
        stored = np.load(path)
        if not {"X", "y"} <= set(stored.files):
            continue
        X = stored["X"].reshape(len(stored["X"]), -1).astype(float)
        truth = np.unique(stored["y"], return_inverse=True)[1].ravel()
        if not np.isfinite(X).all() or len(truth) != len(X):
            continue
        k = int(truth.max()) + 1
        some = np.arange(len(X))
        if len(X) > 4000:
            some = np.random.default_rng(0).choice(len(X), 4000, replace=False)
        of_sample = (
            sklearn.cluster.AgglomerativeClustering(k),
            sklearn.cluster.HDBSCAN(max(2, len(some) // 100), min_samples=10, copy=True),
        )
        of_all = (
            daskclust.AgglomerativeClustering(k, random_state=0),
            daskclust.HDBSCAN(0.01, min_samples=10, n_prototypes=2000, random_state=0),
        )
        found = [len(X), k]
        for peer, model in zip(of_sample, of_all, strict=True):
            for fitted, rows in ((peer, some), (model, slice(None))):
                score = adjusted_rand_score(truth[rows], fitted.fit(X[rows]).labels_)
                found.append(round(float(score), 5))
        print(path.stem, found, flush=True)
        keep("sets", path.stem, found)


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--labels", type=Path, help="folder that keeps labels of all rows")
    parser.add_argument("--parts", nargs="+", default=["ward", "noise", "sets"])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    parts = {
        "ward": lambda: ward(options.seeds),
        "noise": lambda: default(options.labels),
        "sets": sets,
    }
    for part in options.parts:
        parts[part]()


if __name__ == "__main__":
    main()
