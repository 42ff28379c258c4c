"""Small regions of a map: GDAL's sieve is the oracle, for one block and for any blocks."""

from __future__ import annotations

import numpy as np
import pytest

from daskclust.scenes.block_grid import BlockGrid
from daskclust.scenes.smoothing_kernels import merge_open, regions_of, replaced


def sieved(codes: np.ndarray, least: int, block: tuple[int, int]) -> np.ndarray:
    """Sieve a map in blocks."""
    grid = BlockGrid(codes.shape, block)
    across = codes.shape[1]
    found = [
        regions_of(
            np.ascontiguousarray(codes[grid.region(i)]),
            least,
            tuple(part.start for part in grid.region(i)),
            across,
        )
        for i in range(grid.count)
    ]
    verdicts = merge_open([part for _, part in found], grid.numblocks, least, across)
    out = np.empty_like(codes)
    for i, (own, _) in enumerate(found):
        out[grid.region(i)] = replaced(own, verdicts[i])
    return out


def test_by_hand() -> None:
    codes = np.array([[0, 0, 0, 1], [0, 2, 2, 1], [0, 0, 1, 1], [3, -1, 4, 4]])
    # The two pixels of 2 touch 0 (six pixels) and 1 (four); 3 touches 0 alone, 4 touches 1.
    expected = [[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 1, 1], [0, -1, 1, 1]]
    for block in ((4, 4), (2, 2), (1, 3)):
        assert sieved(codes, 3, block).tolist() == expected
    assert sieved(codes, 1, (2, 2)).tolist() == codes.tolist()
    # Nothing is as large as that, so nothing changes.
    assert sieved(codes, 7, (2, 2)).tolist() == codes.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_equals_gdal_in_any_blocks(seed: int) -> None:
    features = pytest.importorskip("rasterio.features")
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(5, 45, 2))
    codes = rng.integers(0, rng.integers(2, 6), shape)
    if seed % 2:  # larger regions
        codes = np.kron(codes[::3, ::3], np.ones((3, 3), np.int64))[: shape[0], : shape[1]]
        noisy = rng.random(codes.shape) < 0.2
        codes[noisy] = rng.integers(0, 5, noisy.sum())
    codes[rng.random(codes.shape) < (0, 0.1, 0.3)[seed % 3]] = -1
    for least in (2, 3, 5, 9, 30):
        expected = features.sieve(codes.astype(np.int16), least, mask=codes >= 0, connectivity=4)
        expected = np.where(codes < 0, -1, expected)
        for block in ((50, 50), (7, 9), (3, 2), (1, 1)):
            assert np.array_equal(sieved(codes, least, block), expected), (least, block)
