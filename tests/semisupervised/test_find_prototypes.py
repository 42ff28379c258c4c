"""Prototypes of a sample are the centers of KMeans, found without a fit."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from daskclust import KMeans
from daskclust.semisupervised import problem
from daskclust.semisupervised.problem import find_prototypes


@pytest.mark.parametrize(("n", "p", "k"), [(300, 3, 20), (2000, 9, 500), (26_880, 10, 420)])
@pytest.mark.parametrize("n_empty", [0, 2])
def test_prototypes_are_the_centers_of_kmeans(
    n: int, p: int, k: int, n_empty: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Few centers, many with bounds that are kept, and as many rows as several threads share.
    rng = np.random.default_rng(k)
    z, weight = rng.normal(size=(n, p)), rng.integers(1, 4, size=n).astype(float)
    # Of equal starts the first gets all rows, and the others are to be found anew.
    z[: n_empty + 1] = z[0]
    monkeypatch.setattr(problem, "draw_apart", lambda *_: np.arange(k))
    found = find_prototypes(z, weight, k, 6, 0)
    model = KMeans(k, init=z[:k], max_iter=6)
    model.fit(z.astype(np.float32), sample_weight=weight)
    assert_array_equal(found.centers, np.unique(model.cluster_centers_, axis=0))
    assert found.n_iter == model.n_iter_
