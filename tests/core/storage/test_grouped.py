"""Rows put by groups: any cut into parts gives the same groups, and nothing is left over."""

from __future__ import annotations

import errno
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskclust.core.storage import atomic_write
from daskclust.core.storage.files import is_folder_at_url
from daskclust.core.storage.shuffle_files import GroupedRows, temporary_folder
from daskclust.exceptions import StoreError

RECORD = np.dtype([("row", "i8"), ("x", "f2", (3,))])


def _records(n: int, seed: int = 0) -> np.ndarray:
    records = np.zeros(n, RECORD)
    records["row"] = np.arange(n)
    records["x"] = np.random.default_rng(seed).standard_normal((n, 3))
    return records


@pytest.mark.parametrize("kind", ["folder", "url"])
def test_groups_come_back_in_row_order_whatever_the_parts(tmp_path: Path, kind: str) -> None:
    base = str(tmp_path) if kind == "folder" else "memory://grouped/here"

    @given(
        groups=st.lists(st.integers(0, 4), max_size=30),
        cuts=st.lists(st.integers(0, 30), max_size=4),
        seed=st.integers(0, 9),
    )
    def check(groups: list[int], cuts: list[int], seed: int) -> None:
        records, of = _records(len(groups), seed), np.array(groups, dtype=np.int64)
        ends = sorted({0, len(groups), *(min(cut, len(groups)) for cut in cuts)})
        with temporary_folder(base) as folder:
            store = GroupedRows(folder, RECORD)
            for start, stop in list(pairwise(ends))[::-1]:
                store.write(start, of[start:stop], records[start:stop])
            for group in range(6):
                np.testing.assert_array_equal(store.read(ends[:-1], group), records[of == group])
        assert not is_folder_at_url(folder)

    check()
    assert not list(tmp_path.iterdir())


def test_a_row_may_be_in_several_groups(tmp_path: Path) -> None:
    records = _records(3)[[0, 1, 1, 2]]
    with temporary_folder(tmp_path) as folder:
        store = GroupedRows(folder, RECORD)
        store.write(0, np.array([7, 7, -1, -1]), records)
        np.testing.assert_array_equal(store.read([0], 7)["row"], [0, 1])
        np.testing.assert_array_equal(store.read([0], -1)["row"], [1, 2])


def test_nothing_is_left_after_an_error(tmp_path: Path) -> None:
    def fail() -> None:
        with temporary_folder(tmp_path) as folder:
            GroupedRows(folder, RECORD).write(0, np.zeros(2, np.int64), _records(2))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / f".daskclust-rows.{atomic_write.host()}-999999999-0123abcd.partial"
    left.mkdir()
    mine = tmp_path / ".daskclust-rows"
    mine.mkdir()
    with temporary_folder(tmp_path):
        assert not left.exists()
    assert list(tmp_path.iterdir()) == [mine]


def test_a_full_disk_is_named_and_no_part_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with temporary_folder(tmp_path) as folder:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"0\.rows"):
            GroupedRows(folder, RECORD).write(0, np.zeros(2, np.int64), _records(2))
        assert not list(Path(folder).iterdir())


def test_parts_that_are_missing_or_cut_off_are_errors(tmp_path: Path) -> None:
    with temporary_folder(tmp_path) as folder:
        store = GroupedRows(folder, RECORD)
        store.write(0, np.array([3, 3, 4]), _records(3))
        with pytest.raises(StoreError, match="Every worker must reach"):
            store.read([0, 3], 3)
        part = Path(folder) / "0.rows"
        part.write_bytes(part.read_bytes()[:-1])
        assert len(store.read([0], 3)) == 2
        with pytest.raises(StoreError, match="must have 14 bytes"):
            store.read([0], 4)
    with pytest.raises(StoreError, match="does not see"):
        store.write(0, np.array([3]), _records(1))
