"""Make the scenes and polygons of ``daskclust.datasets.load_slovenia`` from the open data.

Two scenes of ten NDVI images each, on about the same days of the year, and polygons of land use:
``python tests/benchmarks/make_slovenia.py DATA_FOLDER``.  The place is that of eo-learn's example
(``example_data/TestEOPatch/bbox.geojson``).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from rasterio.features import shapes
from rasterio.transform import from_bounds
from rasterio.warp import transform_geom
from scipy import ndimage

TARGET = Path(__file__).parents[2] / "daskclust" / "datasets" / "slovenia"
BOUNDS = (465181.0522318204, 5079244.8912012065, 466180.53145382757, 5080254.63349641)
CLASSES = {2: "forest", 3: "grassland", 4: "shrubland", 8: "built"}
#: Cloudless dates, by day of the year.
DATES = {
    "scene.tif": "2016-01-17 2016-05-06 2016-05-26 2015-07-11 2016-08-04 2016-08-14 2015-08-30 "
    "2016-09-23 2015-12-18 2015-12-28",
    "second.tif": "2017-01-11 2017-04-21 2017-05-21 2017-07-10 2017-08-04 2017-08-24 2017-08-29 "
    "2017-10-08 2017-11-27 2017-12-07",
}
#: Pixels along a side of the squares in which polygons are drawn, and the fewest of a polygon.
_SQUARE, _FEWEST = 9, 6


def write_scenes(found: Any, transform: Any) -> None:
    """Write both scenes as int16, 1e4 a unit of NDVI."""
    days = [str(stamp)[:10] for stamp in found["timestamps"]]
    for name, dates in DATES.items():
        chosen = [days.index(day) for day in dates.split()]
        image = np.round(found["ndvi"][chosen] * 1e4).astype(np.int16)
        n, height, width = image.shape
        profile = {"driver": "GTiff", "count": n, "height": height, "width": width}
        profile |= {"dtype": "int16", "crs": "EPSG:32633", "transform": transform}
        with rasterio.open(
            TARGET / name, "w", **profile, nodata=-32768, compress="deflate", predictor=2
        ) as file:
            file.write(image)
            file.scales = [1e-4] * n
            for band, at in enumerate(chosen, start=1):
                file.set_band_description(band, f"NDVI {days[at]}")


def polygons(classes: Any, transform: Any) -> list[dict[str, Any]]:
    """Outline the largest region of each class in each square, away from its edge."""
    features = []
    rows, columns = np.indices(classes.shape)
    square = rows // _SQUARE * 100 + columns // _SQUARE
    # So that no two polygons touch.
    drawn = (rows % _SQUARE > 0) & (columns % _SQUARE > 0)
    for code, name in CLASSES.items():
        inside = (classes == code) & drawn
        for number in np.unique(square):
            regions, count = ndimage.label(inside & (square == number))
            sizes = np.bincount(regions.ravel(), minlength=count + 1)[1:]
            if not count or sizes.max() < _FEWEST:
                continue
            mask = regions == sizes.argmax() + 1
            if code == 2 and number % 3:
                continue  # there is much forest
            for outline, _ in shapes(mask.astype(np.uint8), mask=mask, transform=transform):
                place = transform_geom("EPSG:32633", "EPSG:4326", outline, precision=7)
                features.append(
                    {"type": "Feature", "properties": {"class": name}, "geometry": place}
                )
    return features


def main() -> None:
    """Write the files into the package."""
    with np.load(Path(sys.argv[1]) / "s2_ndvi_clouds_slovenia.npz") as found:
        _, height, width = found["ndvi"].shape
        transform = from_bounds(*BOUNDS, width, height)
        TARGET.mkdir(exist_ok=True)
        write_scenes(found, transform)
        fields = polygons(found["lulc"], transform)
    collection = {"type": "FeatureCollection", "features": fields}
    (TARGET / "fields.geojson").write_text(json.dumps(collection) + "\n")
    for path in sorted(TARGET.iterdir()):
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
