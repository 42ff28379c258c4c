"""Scores by entropies and pairs, compared with scikit-learn."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as theirs

from daskclust import metrics as ours

NAMES = (
    "adjusted_mutual_info_score",
    "completeness_score",
    "fowlkes_mallows_score",
    "homogeneity_score",
    "v_measure_score",
)


@pytest.mark.parametrize("name", NAMES)
@given(seed=st.integers(0, 1000), k=st.integers(1, 6), n=st.integers(2, 60))
def test_scores_equal_those_of_scikit_learn(name: str, seed: int, k: int, n: int) -> None:
    truth, labels = np.random.default_rng(seed).integers(k, size=(2, n))
    expected = getattr(theirs, name)(truth, labels)
    found = getattr(ours, name)(da.from_array(truth, chunks=7), labels)
    assert found == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_rows_without_a_label_are_left_out(name: str) -> None:
    truth, labels = [0, 0, 1, 1, -1, 2], [0, 0, 1, 2, 3, -1]
    score = getattr(ours, name)
    assert score(truth, labels, ignore_masked=True) == score(truth[:4], labels[:4])
