"""Bounds of the ss-k-means++ paper, and the quality of oversampled initializations."""

from __future__ import annotations

import numpy as np
import pytest

SCRIPT = "ss_kmeanspp_paper"


def test_bounds_end_at_lemma_4_1(paper):
    theorem, proof = paper.bounds("iris")
    assert theorem[:-1].tolist() == pytest.approx([8 * (2 + np.log(u)) for u in (3, 2, 1)])
    assert np.isnan(theorem[-1])
    assert proof[0] == pytest.approx(8 * (1 + 1 + 1 / 2 + 1 / 3))
    # All classes of 50 rows with 5 labels.
    assert proof[-1] == pytest.approx(1 + 45 / (5 * 49))
    assert (proof[:-1] < theorem[:-1]).all()


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
