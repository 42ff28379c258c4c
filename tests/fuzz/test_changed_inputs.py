"""Files that are changed at random are used, or refused in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from helpers import counts_of

HERE = Path(__file__).resolve().parent
KINDS = ["maps", "cubes", "checkpoints"]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="memory is bounded and measured as on Linux"
)


def changed(kind: str, first: int, last: int) -> dict[str, int]:
    if kind == "cubes":
        pytest.importorskip("rasterio", reason="needs the extra `raster`")
        pytest.importorskip("h5netcdf", reason="needs the extra `raster`")
    seconds = 300 + 10 * (last - first)
    return counts_of(HERE / "changed_inputs.py", kind, first, last, seconds=seconds)


@pytest.mark.parametrize(
    "kind",
    ["cubes", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("maps", "checkpoints"))],
)
def test_changed_inputs_are_used_or_refused(kind: str) -> None:
    counts = changed(kind, 0, 15)
    # A program that could not fail would refuse, or use, everything.
    assert counts["refused"] > 1
    assert counts["used"] > 0


@pytest.mark.slow
@pytest.mark.timeout(6000)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", range(5))
def test_many_changed_inputs(kind: str, part: int) -> None:
    changed(kind, 500 * part + 30, 500 * part + 530)
