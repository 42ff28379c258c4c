"""Fixtures of the tests of clusterers."""

from __future__ import annotations

from collections.abc import Iterator

import dask
import pytest

from daskclust.testing import CountingScheduler


@pytest.fixture
def scheduler() -> Iterator[CountingScheduler]:
    """Count computations; lazy arrays are read anew in each."""
    counting = CountingScheduler()
    with dask.config.set({"scheduler": counting, "daskclust.persist": False}):
        yield counting
