"""k-means|| keeps 12 bytes a row between rounds, unless they would not fit."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest

from daskclust import KMeans
from daskclust.core.engine import Carry, open_rows
from daskclust.core.reduction import CANDIDATES, CandidateRound

X = np.random.default_rng(0).normal(size=(2000, 6))


@pytest.mark.parametrize("init", ["k-means||", "k-means++"])
def test_what_is_not_kept_is_worked_out_again_with_the_same_result(init: str) -> None:
    lazy = da.from_array(X, chunks=(300, 6)).map_blocks(np.copy, dtype=X.dtype)
    models = []
    for fraction in (0.3, 1e-12):
        with dask.config.set({"daskclust.persist-fraction": fraction}):
            models.append(KMeans(7, init=init, n_init=2, random_state=0).fit(lazy))
    kept, anew = models
    np.testing.assert_array_equal(anew.cluster_centers_, kept.cluster_centers_)
    assert anew.history_[0]["passes"] == kept.history_[0]["passes"]


def test_room_for_two_generations_of_what_is_kept_is_asked_for() -> None:
    with dask.config.set({"daskclust.persist-fraction": 1e-12}):
        assert not open_rows(da.from_array(X, chunks=(300, 6))).can_keep(12)
    assert open_rows(da.from_array(X, chunks=(300, 6))).can_keep(12)
    assert open_rows(X).can_keep(12)


def test_without_carry_nothing_is_kept() -> None:
    state = CandidateRound((X[:3],), (5,), 1, 4)
    rows = open_rows(X)
    carry, nothing = Carry(), Carry()
    kept = rows.reduce(CANDIDATES, state, carry)
    anew = rows.reduce(CANDIDATES.without_carry(), state, nothing)
    assert all(part is None for part in nothing.cache)
    assert any(part is not None for part in carry.cache)
    np.testing.assert_array_equal(anew, kept)
