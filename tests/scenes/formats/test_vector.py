"""Features from objects and layers, and edges of their polygons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("rasterio", reason="needs the extra `raster`")
pytest.importorskip("pyogrio", reason="needs the extra `raster`")
shapely = pytest.importorskip("shapely", reason="needs the extra `raster`")

import pyogrio.raw  # noqa: E402
from pyproj import CRS, Transformer  # noqa: E402

import daskclust  # noqa: E402
from daskclust.scenes.formats import vector  # noqa: E402

RING = shapely.box(600_000, 5_199_900, 600_100, 5_200_000).difference(
    shapely.box(600_040, 5_199_940, 600_060, 5_199_960)
)
BOX = shapely.box(600_120, 5_199_960, 600_160, 5_200_000)


class Collection:
    """Features as Python objects offer them."""

    def __init__(self, crs: Any, *items: tuple[Any, dict[str, Any]]) -> None:
        self.crs = crs
        features = [
            {"type": "Feature", "geometry": shape and shape.__geo_interface__, "properties": said}
            for shape, said in items
        ]
        self.__geo_interface__ = {"type": "FeatureCollection", "features": features}


def scene() -> daskclust.Cube:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("rioxarray")
    lines = {"y": 5_199_995 - 10.0 * np.arange(12), "x": 600_005 + 10.0 * np.arange(20)}
    image = xarray.DataArray(np.ones((12, 20, 2)), lines, ("y", "x", "band"))
    return daskclust.open_cube(image.rio.write_crs("EPSG:32632"), chunks=(5, 7))


def expected() -> np.ndarray:
    image = np.full((12, 20), "", dtype=object)
    image[:10, :10], image[4:6, 4:6], image[:4, 12:16] = "ring", "", "box"
    return image


def labeled(cube: daskclust.Cube, source: Any, **options: Any) -> np.ndarray:
    rows, labels = cube.rows_of(source, **options)
    image = np.full(12 * 20, "", dtype=object)
    image[cube.places_of_rows(rows)] = labels
    return image.reshape(12, 20)


@pytest.mark.parametrize("crs", [CRS(32632), "EPSG:32632", CRS(4326)])
def test_objects_with_features_label_pixels(crs: Any) -> None:
    shapes = RING, BOX
    if CRS(crs).is_geographic:
        moved = Transformer.from_crs(32632, crs, always_xy=True).transform
        shapes = shapely.transform(np.array(shapes), lambda xy: np.stack(moved(*xy.T), axis=1))
    fields = [{"id": 7, "crop": "ring"}, {"crop": "box"}, {"crop": None}, {"crop": "box"}]
    items = zip((*shapes, shapes[0], None), fields, strict=True)
    source = Collection(crs, *items)
    cube = scene()
    assert_array_equal(labeled(cube, source, class_column="crop"), expected())
    # As areas: also those without a class.
    covered = cube.open_exclusion("mask", source).compute()
    assert_array_equal(covered, expected() != "")


def test_a_geodataframe_labels_pixels() -> None:
    geopandas = pytest.importorskip("geopandas")
    columns = {"crop": ["ring", "box", None], "area": [1.5, None, 2.0]}
    source = geopandas.GeoDataFrame(columns, geometry=[RING, BOX, BOX], crs=32632)
    assert_array_equal(labeled(scene(), source, class_column="crop"), expected())
    with pytest.raises(ValueError, match=r"The GeoDataFrame has the class 1\.5, which is not"):
        scene().rows_of(source, class_column="area")


def test_objects_without_a_system_or_features_are_refused() -> None:
    with pytest.raises(ValueError, match="The Collection states no coordinate system"):
        scene().rows_of(Collection(None, (BOX, {"class": 1})))
    with pytest.raises(ValueError, match="The Polygon must have polygons or points with a class"):
        scene().rows_of(BOX)
    with pytest.raises(ValueError, match="variable='a', but The Collection has no layers"):
        scene().rows_of(Collection(32632, (BOX, {"class": 1})), variable="a")


def test_a_layer_must_be_named_if_there_are_several(tmp_path: Path) -> None:
    path = tmp_path / "fields.gpkg"
    for name, shape, more in (("a", RING, {}), ("b", BOX, {"append": True})):
        classes = [np.array([{"a": "ring", "b": "box"}[name]], object)]
        pyogrio.raw.write(
            path, shapely.to_wkb(np.array([shape])), classes, ["class"], layer=name,
            driver="GPKG", geometry_type="Polygon", crs="EPSG:32632", **more,
        )  # fmt: skip
    cube = scene()
    with pytest.raises(ValueError, match=r"has the layers \['a', 'b'\]; name a layer in variable="):
        cube.rows_of(path)
    assert set(labeled(cube, path, variable="b").ravel()) == {"", "box"}
    with pytest.raises(OSError, match="cannot be read as features"):
        cube.rows_of(path, variable="c")


def test_edges_of_polygons_by_hand() -> None:
    triangle = shapely.Polygon([(0, 0), (1, 0), (0, 1)])
    shapes = np.array([shapely.Point(5, 5), None, shapely.MultiPolygon([triangle])], object)
    starts, ends, numbers = vector._edges(shapes)
    assert starts.tolist() == [[0, 0], [1, 0], [0, 1]]
    assert ends.tolist() == [[1, 0], [0, 1], [0, 0]]
    assert numbers.tolist() == [2, 2, 2]
