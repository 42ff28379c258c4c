"""The published program's PCSKM and SKM results, by the kernels alone and by plain loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles.golden import DATA_SETS, edge_cases, sparse_cases
from oracles.pcskm_reference import Fit, pcskm

#: PCSKM and SKM cases of the three files, none of which ended with an empty cluster.
N_CASES = 84


def check(case: str, fit: Fit, want: dict[str, Any], tolerance: float) -> None:
    """Compare a run with the published program's."""
    assert fit.status == want["status"], case
    assert fit.passes == want["passes"], case
    np.testing.assert_array_equal(fit.labels, want["labels"], err_msg=case)
    np.testing.assert_allclose(fit.weights, want["w"], rtol=0, atol=tolerance, err_msg=case)
    np.testing.assert_allclose(
        fit.weights_of_labels, want["w_assign"], rtol=0, atol=tolerance, err_msg=case
    )
    np.testing.assert_allclose(
        fit.centers, want["centres_raw"], rtol=1e-9, atol=1e-12, err_msg=case
    )


def test_all_cases_are_there(data_dir: Path) -> None:
    """No case is lost: 22 SKM and 62 PCSKM."""
    names = [case for name in DATA_SETS for case, _ in sparse_cases(data_dir, name)]
    assert len(names) == N_CASES
    assert sum("__pcskm__" in case for case in names) == 62


@pytest.mark.parametrize("name", DATA_SETS)
@pytest.mark.parametrize(("threshold", "tolerance"), [("closed", 1e-4), ("bisection", 1e-9)])
@pytest.mark.system
def test_reference(data_dir: Path, name: str, threshold: Any, tolerance: float) -> None:
    """The plain loops, on which other tests rely, are what was published."""
    for case, given in sparse_cases(data_dir, name):
        fit = pcskm(
            given["X"],
            given["init_centres"],
            float(given["s"]),
            given["must_link"],
            given["cannot_link"],
            threshold=threshold,
        )
        check(case, fit, given, tolerance)


@pytest.mark.parametrize("stretched_box", [True, False])
@pytest.mark.system
def test_reference_on_edge_cases(data_dir: Path, stretched_box: bool) -> None:
    """Limits, shifts, scales, ties, repeated and contradictory pairs, empty clusters.

    Without stretching the box to the origin everything stays the same but one
    number: with 15 % wrong pairs, one digits run needs one round less.
    """
    other_passes = []
    for case, want in edge_cases(data_dir):
        fit = pcskm(
            want["X"],
            want["init_centres"],
            float(want["s"]),
            want["must_link"],
            want["cannot_link"],
            threshold="bisection",
            stretched_box=stretched_box,
            max_outer=int(want["max_outer"]),
            max_inner=int(want["max_inner"]),
        )
        assert fit.status == want["status"], case
        if fit.status > 0:
            continue
        if fit.passes != want["passes"]:
            other_passes.append((case, fit.passes - int(want["passes"])))
        np.testing.assert_array_equal(fit.labels, want["labels"], err_msg=case)
        np.testing.assert_allclose(fit.weights, want["w"], rtol=0, atol=1e-9, err_msg=case)
    assert other_passes == ([] if stretched_box else [("noisy15__digits048_data1__s1.50", -1)])
