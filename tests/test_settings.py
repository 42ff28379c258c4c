"""Settings and arguments that mean nothing are refused by name, before anything is computed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from daskclust import KMeans
from daskclust.config import check_settings
from daskclust.exceptions import CheckpointError, ChunkError

X = np.arange(40.0).reshape(20, 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("persist", "maybe"),
        ("persist-fraction", "half"),
        ("persist-fraction", 2),
        ("num-threads", "many"),
        ("num-threads", 0),
        ("read-timeout", "soon"),
        ("read-timeout", 0),
        ("read-retries", -1),
        ("worker-timeout", "later"),
        ("init-rows", 1.5),
    ],
)
def test_settings_that_mean_nothing_are_refused(name: str, value: Any) -> None:
    check_settings()
    with dask.config.set({f"daskclust.{name}": value}):
        with pytest.raises(ValueError, match=rf"daskclust\.{name} must be .*got {value!r}"):
            KMeans(2, random_state=0).fit(X)


def test_an_empty_checkpoint_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="empty path"):
        KMeans(2, random_state=0, checkpoint="").fit(X)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_that_is_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "c.npz"
    os.symlink(tmp_path / "there" / "real.npz", link)
    KMeans(2, random_state=0, checkpoint=str(link)).fit(X)
    assert link.is_symlink()
    assert (tmp_path / "there" / "real.npz").is_file()


def test_truth_values_and_unknown_columns_are_told() -> None:
    with pytest.raises(TypeError, match="n_clusters must be an integer"):
        KMeans(True).fit(X)
    with pytest.raises(ValueError, match="known number of columns"):
        KMeans(2).fit(
            da.from_array(X, chunks=5).map_blocks(lambda b: b, chunks=((5,) * 4, (np.nan,)))
        )


def test_a_large_oversampling_factor_takes_no_more_room_than_there_are_rows() -> None:
    few = KMeans(2, random_state=0, oversampling_factor=20, algorithm="lloyd").fit(X)
    many = KMeans(2, random_state=0, oversampling_factor=1e9, algorithm="lloyd").fit(X)
    assert many.inertia_ == few.inertia_


def test_blocks_that_are_lists_are_told() -> None:
    lists = da.from_array(X, chunks=5).map_blocks(lambda b: b.tolist(), meta=np.empty((0, 2)))
    with pytest.raises(
        ChunkError, match=r"A block must be an array, as its metadata state, got list\..*map_blocks"
    ):
        KMeans(2, random_state=0).fit(lists)
