"""What the notebook about the ss-k-means++ paper computes; how good oversampled starts are."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

SCRIPT = "ss_kmeanspp_paper"


def test_bounds_end_at_lemma_4_1(paper):
    theorem, proof = paper.bounds("iris")
    assert theorem[:-1].tolist() == pytest.approx([8 * (2 + np.log(u)) for u in (3, 2, 1)])
    assert np.isnan(theorem[-1])
    assert proof[0] == pytest.approx(8 * (1 + 1 + 1 / 2 + 1 / 3))
    # All classes of 50 rows with 5 labels.
    assert proof[-1] == pytest.approx(1 + 45 / (5 * 49))
    assert (proof[:-1] < theorem[:-1]).all()


@pytest.mark.filterwarnings(f"ignore::{ConvergenceWarning.__module__}.ConvergenceWarning")
def test_a_replicate_can_be_run_again(paper):
    one, two = (paper.run_replicate("iris", 4) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    names = list(paper.ALGORITHMS)
    # With all classes labeled there is nothing to sample.
    np.testing.assert_array_equal(
        one[-1, names.index("ss-k-means++")], one[-1, names.index("Constrained-KMeans")]
    )
    cost, fraction, n_iter, ari = np.moveaxis(one, -1, 0)
    assert (cost > 0).all()
    np.testing.assert_allclose(cost / fraction, cost[0, 0] / fraction[0, 0])
    without = [i for i, name in enumerate(names) if "(no Lloyd)" in name]
    assert (n_iter[:, without] == 0).all()
    assert (ari <= 1).all()


def test_quality_compares_medians_in_pairs(paper):
    found = np.ones((20, 2, len(paper.ALGORITHMS), 4))
    found[:, 1, list(paper.ALGORITHMS).index("ss-k-means||"), 0] = 0.9
    even, better = paper.quality(found, (0, 1), resamples=50)
    assert even == (0, 1.0, 1.0, 1.0)
    assert better == (1, 0.9, 0.9, 0.9)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_oversampled_starts_end_no_worse_than_sequential_ones(paper, monkeypatch):
    """At 0, 25, 50 and 75 % supervision of the mixture, with five rounds."""
    levels = (0, 6, 12, 18)
    monkeypatch.setitem(paper.DATA, "mixture", paper.DATA["mixture"]._replace(levels=levels))
    found = np.stack([paper.run_replicate("mixture", r) for r in range(100)])
    for q in paper.quality(found, levels):
        assert q.ratio <= 1.02
        assert q.low <= q.ratio <= q.high <= 1.02
