"""PCKMeans, and SparseKMeans, against the published program."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.golden import DATA_SETS, cases, edge_cases
from oracles.pcskm_reference import EMPTY
from sklearn.exceptions import ConvergenceWarning

from daskclust import KMeans, PCKMeans, PCSKMeans, SparseKMeans
from daskclust.exceptions import ConstraintWarning
from daskclust.testing.strategies import row_chunks

#: Edge cases in which the published program gives up, because a cluster is empty.
GIVEN_UP = {"duplicate_centres_empty", "far_centre_empty"}
#: Of `kmeans_lloyd`, and of the constrained routine.
LIMITS = {"lloyd": 100, "lloydmpck": 25, "pckm": 25}


def fit(want: dict[str, Any], max_iter: int, X: Any = None) -> PCKMeans:
    start = want["init_centres"]
    model = PCKMeans(len(start), init=start, penalty="distance", max_iter=max_iter)
    return model.fit(
        want["X"] if X is None else X,
        must_link=want["must_link"],
        cannot_link=want["cannot_link"],
    )


def plain_cases(data_dir: Path, name: str) -> Iterator[tuple[str, dict[str, Any], int]]:
    for algorithm, limit in LIMITS.items():
        for case, want in cases(data_dir, name, algorithm):
            yield case, want, limit


def check(case: str, model: Any, want: dict[str, Any]) -> None:
    np.testing.assert_array_equal(np.asarray(model.labels_), want["labels"], err_msg=case)
    assert model.n_iter_ == want["passes"], case
    size = np.abs(want["centres_raw"]).max()
    np.testing.assert_allclose(
        model.cluster_centers_, want["centres_raw"], rtol=0, atol=1e-12 * size, err_msg=case
    )


@pytest.mark.parametrize("name", DATA_SETS)
def test_every_case(data_dir: Path, name: str) -> None:
    seen = 0
    for case, want, limit in plain_cases(data_dir, name):
        check(case, fit(want, limit), want)
        seen += 1
    assert seen == 12


@given(data=st.data())
def test_any_chunks(data_dir: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(DATA_SETS))
    case, want, limit = data.draw(st.sampled_from(list(plain_cases(data_dir, name))), label="case")
    chunks = data.draw(row_chunks(len(want["X"])), label="chunks")
    with dask.config.set(scheduler="synchronous"):
        check(case, fit(want, limit, da.from_array(want["X"], chunks=(chunks, -1))), want)


@pytest.mark.parametrize("name", DATA_SETS)
def test_without_constraints_k_means_is_the_same(data_dir: Path, name: str) -> None:
    """And so is a single round of the sparse ones."""
    for case, want in cases(data_dir, name, "lloyd", "lloydmpck"):
        given = {"n_clusters": len(want["init_centres"]), "init": want["init_centres"]}
        check(case, KMeans(**given, max_iter=100, tol=0).fit(want["X"]), want)
        sparse = SparseKMeans(**given, max_outer_iter=1)
        with pytest.warns(ConvergenceWarning, match="after 1 rounds"):
            sparse.fit(want["X"])
        np.testing.assert_array_equal(sparse.labels_, want["labels"], err_msg=case)
        assert len(sparse.history_) == want["passes"]


@pytest.mark.parametrize("name", DATA_SETS)
def test_sparse_cases(data_dir: Path, name: str) -> None:
    """`SparseKMeans` is `PCSKMeans` without constraints, to the last bit."""
    seen = 0
    for case, want in cases(data_dir, name, "skm"):
        given = {"n_clusters": len(want["init_centres"]), "init": want["init_centres"]}
        model = SparseKMeans(**given, sparsity=float(want["s"])).fit(want["X"])
        check(case, model, want)
        np.testing.assert_allclose(model.feature_weights_, want["w"], rtol=0, atol=1e-4)
        same = PCSKMeans(**given, sparsity=float(want["s"])).fit(want["X"])
        for attribute in ("feature_weights_", "feature_scores_", "cluster_centers_", "objective_"):
            np.testing.assert_array_equal(getattr(model, attribute), getattr(same, attribute))
        seen += 1
    assert seen >= 6


def test_edge_cases(data_dir: Path) -> None:
    """The same, but where the program gives up: there an empty cluster is repaired."""
    given_up = set()
    for case, want in edge_cases(data_dir):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConstraintWarning)
            if case.startswith("inner_limit"):
                warnings.simplefilter("ignore", ConvergenceWarning)
            model = fit(want, int(want["max_inner"]))
        if want["pckm_status"] == EMPTY:
            given_up.add(case)
            assert any(record["repaired"] for record in model.history_), case
            assert np.bincount(model.labels_, minlength=int(want["K"])).min() > 0, case
            continue
        np.testing.assert_array_equal(model.labels_, want["pckm_labels"], err_msg=case)
        assert model.n_iter_ == want["pckm_passes"], case
        size = np.abs(want["pckm_centres"]).max()
        np.testing.assert_allclose(
            model.cluster_centers_, want["pckm_centres"], rtol=0, atol=1e-12 * size, err_msg=case
        )
    assert given_up == GIVEN_UP
