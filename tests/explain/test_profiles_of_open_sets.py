"""AUC of profiles compared with scikit-learn's, on every open data set."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from daskclust.explain import _profiles, profiles

DATA = Path(os.environ.get("DASKCLUST_TEST_DATA", "../shared")) / "data"
SETS = sorted(path.name for path in DATA.glob("*.npz"))
#: Rows of scikit-learn, which takes a second for each cluster and feature of more.
ROWS = 100_000


def rows_of(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and known classes of a set, or classes by the first feature."""
    with np.load(path) as found:
        keys = [key for key in ("X", "cube", "ndvi", "lai") if key in found]
        X = found[keys[0]]
        y = next((found[key] for key in ("y", "gt", "lulc") if key in found), None)
        if keys[0] in ("ndvi", "lai"):
            X = np.where(X == found["fill"], np.nan, X.astype(float)) if "fill" in found else X
            X = np.moveaxis(X, 0, -1)
    p = int(np.prod(X.shape[X.ndim - 1 if X.ndim == 3 and keys[0] != "X" else 1 :]))
    X = X.reshape(-1, p)
    if y is None:
        y = np.nan_to_num(X[:, -1] > np.nanmedian(X[:, -1]))
    step = -(-len(X) // ROWS)
    X, y = X[::step], np.ravel(y)[::step]
    assert len(np.unique(y)) > 1
    return X, np.asarray(y).astype(np.int64)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("most_rows", [ROWS, 0], ids=["bins", "bins-of-many-rows"])
def test_auc_is_that_of_scikit_learn(name: str, most_rows: int, monkeypatch) -> None:
    monkeypatch.setattr(_profiles, "_FEWER_BINS_FROM", most_rows)
    X, y = rows_of(DATA / name)
    found = profiles(None, X, y)
    # At most 40 features of wide sets, spread.
    chosen = np.unique(np.linspace(0, X.shape[1] - 1, 40).astype(int))
    worst = 0.0
    for at, label in enumerate(found.labels):
        for j in chosen:
            there = ~np.isnan(X[:, j].astype(float))
            own = y[there] == label
            if own.all() or not own.any():
                assert np.isnan(found.aucs[at, j])
                continue
            gap = abs(found.aucs[at, j] - roc_auc_score(own, X[there, j]))
            assert gap <= found.auc_errors[at, j] + 1e-12
            worst = max(worst, gap)
    print(f"{name}: {worst:.1e}")
    assert worst < 0.002
