"""Rows as leaves on the open sets: trees and labels are those of SciPy and scikit-learn."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.cluster.hierarchy import linkage
from sklearn import cluster as peers
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from daskclust import DBSCAN, HDBSCAN, AgglomerativeClustering
from daskclust.core.kernels.linkage import LINKAGES

DATA = Path(os.environ.get("DASKCLUST_TEST_DATA", "../shared")) / "data"
#: The tables of at most 10 000 rows that miss no value.
SETS = (
    "hsi_forest_pixels_varsel",
    "landsat_statlog",
    "ts_cerrado_2classes",
    "ts_samples_modis_ndvi",
    "uci_ionosphere",
    "uci_pendigits_train",
    "uci_segment",
    "uci_vehicle",
    "uci_wine",
)

pytestmark = pytest.mark.slow


@pytest.fixture(params=SETS)
def rows(request):
    path = DATA / f"{request.param}.npz"
    if not path.exists():
        pytest.skip("needs the open sets in DASKCLUST_TEST_DATA")
    with np.load(path) as file:
        return file["X"].reshape(len(file["X"]), -1).astype(float)


@pytest.mark.parametrize("name", LINKAGES)
def test_heights_are_scipys(rows, name):
    model = AgglomerativeClustering(2, linkage=name, n_prototypes=len(rows)).fit(rows)
    assert_allclose(model.linkage_[:, 2], linkage(rows, name)[:, 2], rtol=1e-9)


@pytest.mark.filterwarnings("ignore:All rows are noise")
def test_density_clusters_are_scikit_learns(rows):
    for size, least in ((max(5, len(rows) // 100), 10), (20, 5)):
        expected = peers.HDBSCAN(size, min_samples=least, copy=True).fit(rows).labels_
        found = HDBSCAN(size, min_samples=least).fit(rows).labels_
        assert adjusted_rand_score(expected, found) == 1.0
        assert_array_equal(found < 0, expected < 0)
    some = StandardScaler().fit_transform(rows[:, :3])
    for eps in (0.1, 0.3):
        expected = peers.DBSCAN(eps=eps).fit(some).labels_
        assert_array_equal(DBSCAN(eps).fit(some).labels_, expected)
