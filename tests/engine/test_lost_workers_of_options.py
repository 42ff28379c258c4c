"""Options of fits, missing and extreme values: the same bits, whatever becomes of workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from disasters import DEEDS, Clusters, alone, assert_same, many_clusters, patiently, struck

import daskclust

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]

SHORT: dict[str, Any] = {"random_state": 0, "tol": 0}


def with_gaps(data: Any) -> Any:
    """Values that are missing, here and there, and a row of which all are."""
    gaps = np.random.default_rng(1).random(data.shape) < 0.2
    gaps[77] = True
    return da.where(da.from_array(gaps, chunks=data.chunks), np.nan, data)


def fit_nested(data: Any) -> Any:
    return daskclust.KMeans(5, algorithm="nested", max_iter=8, **SHORT).fit(data)


def fit_parts(data: Any) -> Any:
    model = daskclust.KMeans(4, random_state=0)
    for part in (data[:240], data[240:300], data[300:]):
        model.partial_fit(part)
    return model


def fit_gaps(data: Any) -> Any:
    return daskclust.KMeans(4, missing="partial", max_iter=5, **SHORT).fit(with_gaps(data))


def fit_gaps_sparsely(data: Any) -> Any:
    model = daskclust.PCSKMeans(3, missing="partial", random_state=0, max_iter=2, max_outer_iter=2)
    return model.fit(with_gaps(data), must_link=[(0, 1), (5, 9)], cannot_link=[(0, 2)])


def fit_mixture_view(data: Any) -> Any:
    y = np.where(np.arange(len(data)) % 20 == 0, np.arange(len(data)) % 3, -1)
    return daskclust.LabelSpreading(15, views="mean", random_state=0).fit(with_gaps(data), y)


def fit_largest(data: Any) -> Any:
    return daskclust.KMeans(4, max_iter=4, **SHORT).fit(data * 1e139)


def fit_smallest(data: Any) -> Any:
    return daskclust.KMeans(4, max_iter=4, **SHORT).fit(data * 1e-300)


def fit_far(data: Any) -> Any:
    return daskclust.GaussianMixture(2, random_state=0, max_iter=3, tol=0).fit(data + 1e9)


def fit_tree(data: Any) -> Any:
    return daskclust.AgglomerativeClustering(4, n_prototypes=40, random_state=0).fit(data)


def fit_bubbles(data: Any) -> Any:
    return daskclust.HDBSCAN(30, min_samples=5, n_prototypes=60, random_state=0).fit(data)


def fit_kept(data: Any) -> Any:
    # So many columns that bounds are kept between passes.
    wide = da.concatenate([data] * 40, axis=1).rechunk({1: -1})
    k = 1 + 2**14 // wide.shape[1]
    return daskclust.KMeans(k, init="random", n_init=1, max_iter=6, **SHORT).fit(wide)


def fit_boxes(data: Any) -> Any:
    return daskclust.DBSCAN(0.4).fit(data[:, :2])


def fit_levels(data: Any) -> Any:
    # Rows by parents in files, parts, a refinement and the division of leaves that are too large.
    model = daskclust.HierarchicalKMeans(
        (4, 5), max_iter=2, refine=2, max_cluster_size=60, random_state=0
    )
    return model.fit(data)


FITS = [
    fit_levels,
    fit_tree,
    fit_bubbles,
    fit_boxes,
    fit_kept,
    fit_nested,
    fit_parts,
    fit_gaps,
    fit_gaps_sparsely,
    fit_mixture_view,
    fit_largest,
    fit_smallest,
    fit_far,
]


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    with patiently(), many_clusters() as kept:
        yield kept


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("share", [0.2, 0.8])
@pytest.mark.parametrize("persist", [False, True], ids=["streamed", "kept"])
@pytest.mark.parametrize("fit", FITS)
def test_options_outlive_every_disaster(
    fit: Any,
    persist: bool,
    share: float,
    deed: Any,
    clusters: Clusters,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    found = struck(fit, persist, 2, share, deed, clusters, monkeypatch, tmp_path / "now")
    assert_same(found, alone(fit))
