"""Clusters by tile of a mosaic, and their differences at seams."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest

import daskclust
from daskclust.explain import tile_drift

xarray = pytest.importorskip("xarray", reason="needs the extra `raster`")
pytest.importorskip("rioxarray", reason="needs the extra `raster`")


def tile(values: Any, left: float, top: float) -> Any:
    """Return a tile of one band with pixels of size 1; 0 is missing."""
    values = np.asarray(values, np.int16)[None]
    height, width = values.shape[1:]
    image = xarray.DataArray(
        values,
        dims=("band", "y", "x"),
        coords={"y": top - 0.5 - np.arange(height), "x": left + 0.5 + np.arange(width)},
        name=f"{left:g},{top:g}",
    )
    return image.rio.write_crs("EPSG:32633").rio.write_nodata(0)


def rows_of(cube: Any, image: Any) -> Any:
    """Return labels of rows from an image of labels."""
    return cube.values_of_rows(da.asarray(image)).compute()


def test_by_hand() -> None:
    # Two tiles side by side, 2 x 3 pixels each. One pixel of the second one is missing.
    cube = daskclust.open_mosaic([tile(np.ones((2, 3)), 0, 2), tile([[1, 1, 1], [0, 1, 1]], 3, 2)])
    labels = np.array([[0, 0, 1, 1, 1, 0], [0, 1, 0, 9, 1, 0]])
    found = tile_drift(None, cube, rows_of(cube, labels), width=2)
    assert found.tiles == ["DataArray '0,2'", "DataArray '3,2'"]
    assert found.labels.tolist() == [0, 1]
    assert found.sizes.tolist() == [6, 5]
    np.testing.assert_allclose(found.shares, [[4 / 6, 2 / 6], [2 / 5, 3 / 5]])
    # Strips: columns 1 and 2 of the first tile, without (1, 1), which has two columns between
    # itself and the second tile: labels 0, 1, 0.  Second tile: labels 1, 1, 1.
    assert found.seams.tolist() == [[0, 1]]
    assert found.seam_sizes.tolist() == [[3, 3]]
    np.testing.assert_allclose(found.distances, [2 / 3])
    frame = found.to_frame()
    assert frame["neighbor"].tolist() == ["DataArray '3,2'", "DataArray '0,2'"]
    np.testing.assert_allclose(frame["distance"], 2 / 3)


def brute_force(items: Any, labels: Any, width: int) -> dict[tuple[int, int], dict[int, int]]:
    """Count the labels near the seams of (tile, other), pixel by pixel."""
    found: dict[tuple[int, int], dict[int, int]] = {}
    height, columns = items.shape
    for y in range(height):
        for x in range(columns):
            cross = [(y + s, x) for s in range(-width, width + 1)]
            cross += [(y, x + s) for s in range(-width, width + 1)]
            near = {int(items[a, b]) for a, b in cross if 0 <= a < height and 0 <= b < columns}
            for other in near - {-1, int(items[y, x])}:
                if items[y, x] >= 0 and labels[y, x] >= 0:
                    counts = found.setdefault((int(items[y, x]), other), {})
                    counts[int(labels[y, x])] = counts.get(int(labels[y, x]), 0) + 1
    return found


@pytest.mark.parametrize("overlap", ["first", "last"])
@pytest.mark.parametrize("chunks", [None, (5, 4), (3, 20)])
def test_equals_brute_force_for_any_blocks(chunks: Any, overlap: Any) -> None:
    rng = np.random.default_rng(0)
    corners = [(0, 14), (6, 14), (0, 8), (6, 8), (12, 10)]
    tiles = [tile(rng.integers(0, 4, (8, 8)) > 0, left, top) for left, top in corners]
    options = {} if chunks is None else {"chunks": chunks}
    cube = daskclust.open_mosaic(tiles, overlap=overlap, **options)
    labels = rng.integers(0, 3, cube.shape[:2])
    rows = rows_of(cube, labels)
    found = tile_drift(None, cube, rows, width=2)
    items = cube.items.compute()
    # The last or first tile with data.
    expected_items = np.full((14, 20), -1)
    for number in range(5)[:: 1 if overlap == "last" else -1]:
        x, y = corners[number][0], 14 - corners[number][1]
        expected_items[y : y + 8, x : x + 8][tiles[number].values[0] > 0] = number
    np.testing.assert_array_equal(items, expected_items)
    expected = brute_force(items, cube.to_map(rows).compute(), 2)
    expected = {pair: n for pair, n in expected.items() if pair[::-1] in expected}
    assert found.sizes.sum() == cube.n_valid
    seams = [tuple(seam) for seam in found.seams.tolist()]
    assert sorted(seams) == sorted(pair for pair in expected if pair[0] < pair[1])
    for (a, b), sizes, distance in zip(seams, found.seam_sizes, found.distances, strict=True):
        sides = [
            np.array([expected[pair].get(label, 0) for label in range(3)])
            for pair in ((a, b), (b, a))
        ]
        assert sizes.tolist() == [side.sum() for side in sides]
        gap = sides[0] / sides[0].sum() - sides[1] / sides[1].sum()
        assert distance == pytest.approx(np.abs(gap).sum() / 2)


def test_a_brighter_tile_is_found() -> None:
    rng = np.random.default_rng(1)
    tiles = [
        tile(rng.normal(100 + 60 * (number == 2), 5, (20, 20)), 20 * number, 20)
        for number in range(5)
    ]
    cube = daskclust.open_mosaic(tiles)
    model = daskclust.KMeans(2, random_state=0).fit(cube)
    found = tile_drift(model, cube)
    assert found.to_frame()["tile"][0] == found.tiles[2]
    np.testing.assert_allclose(found.distances, [0, 1, 1, 0], atol=0.2)
    again = tile_drift(None, cube, model.labels_)
    np.testing.assert_array_equal(again.distances, found.distances)


def test_bad_input() -> None:
    tiles = [tile(np.ones((2, 3)), 0, 2), tile(np.ones((2, 3)), 3, 2)]
    cube = daskclust.open_mosaic(tiles)
    labels = np.zeros(cube.n_valid, int)
    with pytest.raises(TypeError, match=r"X must be a cube of .*, got ndarray"):
        tile_drift(None, np.ones((3, 2)), labels)
    with pytest.raises(ValueError, match="got another cube"):
        tile_drift(None, daskclust.open_cube(tiles[0]), labels)
    for options in ({"overlap": "mean"}, {"time": ["2024-01-01", "2024-02-01"]}):
        with pytest.raises(ValueError, match="several dates or with overlap='mean'"):
            tile_drift(None, daskclust.open_mosaic(tiles, **options), labels)
    with pytest.raises(ValueError, match="got None for both"):
        tile_drift(None, cube)
    with pytest.raises(ValueError, match="pixels with labels, got none"):
        tile_drift(None, cube, labels - 1)
    with pytest.raises(ValueError, match="width"):
        tile_drift(None, cube, labels, width=0)
