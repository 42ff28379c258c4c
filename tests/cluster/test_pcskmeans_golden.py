"""PCSKMeans against the published program: every PCSKM and SKM case, wherever it runs."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.golden import DATA_SETS, edge_cases, load, sparse_cases
from oracles.pcskm_reference import BAD_WEIGHT, EMPTY, OUTER_LIMIT
from oracles.problems import violations
from oracles.published import bisection_threshold
from sklearn.exceptions import ConvergenceWarning

import daskclust.cluster.constrained.updates as sparse_loop
from daskclust import PCSKMeans
from daskclust.cluster.constrained.base import choose_neighborhoods
from daskclust.cluster.constrained.iteration import ConstrainedRows
from daskclust.cluster.constrained.sparsity import feature_weights
from daskclust.core.constraints import PairwiseConstraints
from daskclust.core.engine import open_rows
from daskclust.testing.strategies import row_chunks

#: The closed-form Delta against the published bisection: SEMANTICS.md, 7.
CLOSED_FORM, BISECTION = 1e-4, 1e-9

#: Edge cases whose outcome differs from the published program's, and why.
DIFFERENT = {
    "duplicate_centres_empty": "the program gives up on an empty cluster",
    "far_centre_empty": "the program gives up on an empty cluster",
    "k1": "the program gives up where no feature has a score; here the last weights are kept",
    "noisy15__digits048_data1__s1.50": "one round less: the box is not stretched to the origin",
}


def fit(case: dict[str, Any], X: Any = None, **parameters: Any) -> PCSKMeans:
    model = PCSKMeans(
        len(case["init_centres"]),
        sparsity=float(case["s"]),
        init=case["init_centres"],
        penalty="distance",
        **parameters,
    )
    return model.fit(
        case["X"] if X is None else X,
        must_link=case["must_link"],
        cannot_link=case["cannot_link"],
    )


def check(name: str, model: PCSKMeans, want: dict[str, Any], tolerance: float) -> None:
    """Labels and rounds identical; weights and centers within the tolerance."""
    np.testing.assert_array_equal(np.asarray(model.labels_), want["labels"], err_msg=name)
    assert model.n_iter_ == want["passes"], name
    close = partial(np.testing.assert_allclose, rtol=0, err_msg=name)
    close(model.feature_weights_, want["w"], atol=tolerance)
    close(model.assignment_weights_, want["w_assign"], atol=tolerance)
    size = np.abs(want["centres_raw"]).max()
    close(model.cluster_centers_, want["centres_raw"], atol=1e-12 * size)


@pytest.fixture
def published_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find Delta by the program's 15 halvings instead of the closed form."""
    halving = partial(feature_weights, threshold=bisection_threshold)
    monkeypatch.setattr(sparse_loop, "feature_weights", halving)


# --- every case ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", DATA_SETS)
def test_every_case(data_dir: Path, name: str) -> None:
    seen = 0
    for case, want in sparse_cases(data_dir, name):
        check(case, fit(want), want, CLOSED_FORM)
        seen += 1
    assert seen == {"fisheriris": 24, "digits048_data1": 30, "TTSCST": 30}[name]


@pytest.mark.usefixtures("published_threshold")
@pytest.mark.parametrize("name", DATA_SETS)
def test_every_case_with_the_published_threshold(data_dir: Path, name: str) -> None:
    for case, want in sparse_cases(data_dir, name):
        check(case, fit(want), want, BISECTION)


@given(data=st.data())
def test_any_chunks(data_dir: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(DATA_SETS))
    cases = list(sparse_cases(data_dir, name))
    case, want = data.draw(st.sampled_from(cases), label="case")
    chunks = data.draw(row_chunks(len(want["X"])), label="chunks")
    with dask.config.set(scheduler="synchronous"):
        model = fit(want, da.from_array(want["X"], chunks=(chunks, -1)))
        check(case, model, want, CLOSED_FORM)


# --- every scheduler -----------------------------------------------------------------------


# --- edge cases ----------------------------------------------------------------------------


def expected_warnings(case: str, want: dict[str, Any]) -> list[str]:
    """Beginnings of the warnings that a user gets."""
    expected = []
    if case.startswith("noisy15") or case == "pair_in_both_sets":
        expected.append("The constraints contradict each other")
    if want["status"] == OUTER_LIMIT:
        expected.append("The feature weights had not converged after")
    if case == "k1":
        expected.append("No feature score is positive in round 1")
    return expected


def fit_edge(case: str, want: dict[str, Any]) -> PCSKMeans:
    """Fit an edge case with its limits, and see that it warns of what belongs to it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fit(want, max_iter=int(want["max_inner"]), max_outer_iter=int(want["max_outer"]))
    expected = expected_warnings(case, want)
    violated, n_pairs = (
        len(violations(model)),
        len(want["must_link"]) + len(want["cannot_link"]),
    )
    if violated >= max(10, n_pairs / 5):
        expected.append(f"{violated} of {n_pairs} pairs are violated")
    for warning, beginning in zip(caught, expected, strict=True):
        assert str(warning.message).startswith(beginning), case
        assert warning.filename == __file__, case
    return model


@pytest.mark.usefixtures("published_threshold")
def test_edge_cases(data_dir: Path) -> None:
    """Limits, shifts, scales, ties, wrong pairs: the same but for the cases that are listed."""
    different = set()
    for case, want in edge_cases(data_dir):
        model = fit_edge(case, want)
        assert np.isfinite(model.cluster_centers_).all(), case
        assert np.isfinite(model.feature_weights_).all(), case
        if want["status"] in (EMPTY, BAD_WEIGHT):
            different.add(case)
            continue
        np.testing.assert_array_equal(model.labels_, want["labels"], err_msg=case)
        np.testing.assert_allclose(
            model.feature_weights_, want["w"], rtol=0, atol=BISECTION, err_msg=case
        )
        if model.n_iter_ != want["passes"]:
            assert model.n_iter_ == want["passes"] - 1, case
            different.add(case)
    assert different == set(DIFFERENT)


def test_edge_cases_with_the_closed_form(data_dir: Path) -> None:
    for case, want in edge_cases(data_dir):
        model = fit_edge(case, want)
        if want["status"] in (EMPTY, BAD_WEIGHT):
            continue
        np.testing.assert_array_equal(model.labels_, want["labels"], err_msg=case)
        np.testing.assert_allclose(
            model.feature_weights_, want["w"], rtol=0, atol=CLOSED_FORM, err_msg=case
        )


def test_empty_clusters_are_repaired_where_the_program_gives_up(data_dir: Path) -> None:
    repaired = 0
    for case, want in edge_cases(data_dir):
        if want["status"] != EMPTY:
            continue
        model = fit_edge(case, want)
        assert np.bincount(model.labels_, minlength=int(want["K"])).min() > 0, case
        assert any(record["repaired"] for record in model.history_), case
        assert len(np.unique(model.cluster_centers_, axis=0)) == want["K"], case
        repaired += 1
    assert repaired == 2


# --- the start from neighborhoods ---------------------------------------------------------


@pytest.mark.parametrize("name", DATA_SETS)
def test_neighborhoods_are_the_published_seeding(data_dir: Path, name: str) -> None:
    """Same centers in the same order: no ties decide here, not even the program's random ones."""
    golden = load(data_dir, name)
    X, k = golden["X"], int(golden["K"])
    for pairs in ("c1", "c5", "c10", "ml5"):
        links = golden[f"{pairs}_must_link"], golden[f"{pairs}_cannot_link"]
        constraints = PairwiseConstraints.from_fit_arguments(len(X), *links)
        rows = ConstrainedRows.fetch(open_rows(X), constraints)
        sizes = choose_neighborhoods(rows, len(X), agreeing=False).weights
        published = golden[f"{pairs}_seeding_neighbourhood_sizes"]
        assert sorted(sizes) == sorted(published.tolist())
        start = choose_neighborhoods(rows, k, agreeing=False).centroids
        np.testing.assert_allclose(start, golden[f"{pairs}_init_seeding"], rtol=1e-12)
        # and that is where a fit starts from
        one_pass = {"sparsity": 1.5, "penalty": "distance", "max_iter": 1, "max_outer_iter": 1}
        model = PCSKMeans(k, init="neighborhoods", **one_pass)
        given = PCSKMeans(k, init=start, **one_pass)
        for one in (model, given):
            with pytest.warns(ConvergenceWarning):
                one.fit(X, must_link=links[0], cannot_link=links[1])
        np.testing.assert_array_equal(model.labels_, given.labels_)
