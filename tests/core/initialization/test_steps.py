"""Empty clusters take far rows."""

from __future__ import annotations

import numpy as np
import pytest

from daskclust.core.engine.opening import open_rows
from daskclust.core.initialization.steps import relocate_empty
from daskclust.core.reduction import Clusters


@pytest.mark.parametrize("copies", [1, 2, 9])
def test_an_empty_cluster_takes_all_rows_that_equal_the_farthest(copies: int) -> None:
    X = np.array([[0.0], [0.0], [1.0], *[[10.0]] * copies])
    clusters = Clusters(np.array([[1.0 + 10 * copies], [0.0]]), np.array([3.0 + copies, 0.0]))
    filled = relocate_empty(open_rows(X), np.array([[0.0], [100.0]]), clusters)
    assert filled.counts.tolist() == [3, copies]
    assert filled.sums.tolist() == [[1.0], [10.0 * copies]]
