"""Histograms by label are counted in short whole numbers where these suffice."""

from itertools import pairwise

import numpy as np
import pytest

from daskclust.core.reduction import RowBlock
from daskclust.explain.profile_kernels import choose_bins
from daskclust.explain.profile_reductions import (
    LABEL_HISTOGRAMS,
    CenterDistances,
    HistogramsRequest,
)
from daskclust.testing import reduce_groups


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("cuts", [[0, 3000], [0, 0, 700, 2000, 3000]])
def test_short_counts_are_those_of_doubles(weighted, cuts):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 3000)
    x = np.column_stack([rng.normal(size=(3000, 2)), labels])
    bins = choose_bins(x[:, :2], labels, np.ones(3000, bool), 16)
    weight = rng.integers(0, 3, 3000).astype(float) if weighted else None
    blocks = [
        RowBlock(x[i:j], None if weight is None else weight[i:j], ((i, j - i),))
        for i, j in pairwise(cuts)
    ]
    center_distances = CenterDistances(np.zeros((3, 2)))
    states = [
        HistogramsRequest(np.arange(3), bins, center_distances, 2, total)
        for total in (6000.0, 2.0**32)
    ]
    short, long = reduce_groups(LABEL_HISTOGRAMS, states, [blocks[:1], blocks[1:]])
    identities = [LABEL_HISTOGRAMS.identity(state)["counts"].dtype for state in states]
    assert identities == [np.uint32, np.float64]
    np.testing.assert_array_equal(short.counts, long.counts)
    np.testing.assert_array_equal(short.nearest, long.nearest)
    expected = np.bincount(labels, weight, 3) if weighted else np.bincount(labels)
    np.testing.assert_array_equal(short.counts.sum(axis=2), [expected, expected])
    distances = np.sqrt((x[:, :2] ** 2).sum(axis=1))
    at = short.nearest["row"][1]
    np.testing.assert_allclose(short.nearest["key"][1], distances[at])
