"""The benchmark of constraints at toy size, and at full size against its targets."""

from __future__ import annotations

import constrained
import pytest
from _timing import Problem


def test_constraints_are_measured_at_toy_size() -> None:
    found = constrained.large(Problem(4000, 6, 3), n_pairs=500, n_labels=200, passes=3)
    assert set(found) >= {"ordered", "many pairs", "labels, fit", "pairs, fit"}
    assert min(found.values()) > 0
    assert constrained.chain(1000) < constrained.TARGET_CHAIN
    assert constrained.metric(300, 200, repeats=1) > 0


@pytest.mark.benchmark
@pytest.mark.timeout(900)
def test_constraints_reach_their_targets() -> None:
    found = constrained.large()
    assert found["ordered"] / found["many pairs"] < constrained.TARGET_SHARE
    assert found["labels, fit"] / found["pairs, fit"] <= constrained.TARGET_LABELS
    assert constrained.chain() < constrained.TARGET_CHAIN
    assert constrained.WEKA_SECONDS / constrained.metric() >= constrained.TARGET_WEKA
