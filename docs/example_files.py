"""Small files for the pages of the documentation: scenes, polygons, tables and vectors.

A hidden first cell of each page that reads files calls one of the first three functions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import zarr

import daskclust

#: Rows, columns and bands of the scene; six classes.
SHAPE, BANDS = (60, 80), 40
CLASSES = ("water", "wheat", "maize", "forest", "road", "roof")
CRS = "EPSG:32632"
#: Upper left corner and size of a pixel, in meters.
CORNER, PIXEL = (600_000.0, 5_300_000.0), 30.0


def transform() -> Any:
    """Return the affine transformation from pixels to coordinates."""
    from affine import Affine

    return Affine(PIXEL, 0.0, CORNER[0], 0.0, -PIXEL, CORNER[1])


def write_raster(path: Path, bands: np.ndarray, **profile: Any) -> None:
    """Write bands of shape (band, y, x) as a GeoTIFF, or as the driver in `profile`."""
    import rasterio

    options = {"driver": "GTiff", "crs": CRS, "transform": transform(), **profile}
    count, height, width = bands.shape
    with rasterio.open(
        path, "w", count=count, height=height, width=width, dtype=bands.dtype, **options
    ) as raster:
        raster.write(bands)


def write_all(folder: Path) -> None:
    """Write all files of the pages, and the scene of Slovenia, into a folder."""
    daskclust.datasets.load_slovenia(folder / "slovenia")
    write_scenes(folder)
    write_tables(folder)


def write_scenes(folder: Path = Path()) -> None:
    """Write a scene in several formats, polygons, a series and a scene of embeddings."""
    group = daskclust.datasets.make_hyperspectral_cube(
        folder / "scene.zarr",
        shape=SHAPE,
        n_bands=BANDS,
        chunks=(30, 40),
        uninformative_noise=0.02,
        random_state=0,
    )
    cube, truth = group["cube"][:], group["truth"][:]
    np.save(folder / "truth.npy", truth)
    stored = np.where(cube == -9999, -9999, np.round(cube * 10_000)).astype(np.int16)
    bands = stored.transpose(2, 0, 1)
    write_raster(folder / "scene.tif", bands, nodata=-9999)
    write_raster(folder / "second.tif", np.ascontiguousarray(bands[:, 20:]), nodata=-9999)
    write_raster(folder / "scene.img", bands, driver="ENVI", nodata=-9999)
    with (folder / "scene.hdr").open("a") as header:
        wavelengths = ", ".join(f"{value:.1f}" for value in np.linspace(420, 2450, BANDS))
        good = ", ".join("0" if band in (15, 16) else "1" for band in range(BANDS))
        header.write(f"wavelength units = Nanometers\nwavelength = {{{wavelengths}}}\n")
        header.write(f"bbl = {{{good}}}\n")
    for number in (2, 3, 4, 8):
        write_raster(folder / f"B0{number}.tif", bands[4 * number][None], nodata=-9999)
    write_netcdf(folder / "scene.nc", stored)
    write_polygons(folder / "fields.gpkg", truth)
    write_series(folder / "series.zarr", np.where(cube == -9999, np.nan, cube)[..., [4, 16, 35]])
    write_earth(folder / "alphaearth.tif", truth)


def write_tables(folder: Path = Path()) -> None:
    """Write a table with names for some rows, and vectors in several formats."""
    write_table(folder / "table.parquet", 4800)
    write_embeddings(folder)


def write_tiles(folder: Path = Path("tiles")) -> None:
    """Write twelve tiles in two UTM zones; the bands are latitude and longitude."""
    import rasterio.transform
    import rasterio.warp

    folder.mkdir()
    for zone, left in ((32632, 740_000), (32633, 280_000)):
        for i, j in np.ndindex(3, 2):
            grid = rasterio.transform.from_origin(left + 4000 * j, 5_110_000 - 4000 * i, 100, 100)
            rows, columns = np.indices((40, 40))
            x, y = rasterio.transform.xy(grid, rows.ravel(), columns.ravel())
            x, y = rasterio.warp.transform(f"EPSG:{zone}", "EPSG:4326", x, y)
            values = np.round(np.reshape([y, x], (2, 40, 40)) * 1000).astype(np.uint16)
            crs = {"crs": f"EPSG:{zone}", "transform": grid, "nodata": 0}
            write_raster(folder / f"{zone}_{i}_{j}.tif", values, **crs)


def write_embeddings(folder: Path) -> None:
    """Write vectors of half precision to Parquet, and of bytes to ``.npy`` and Zarr."""
    import pyarrow
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 16))[rng.integers(0, 40, 900)] + 0.1 * rng.normal(size=(900, 16))
    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(x.astype(np.float16).ravel()), 16)
    table = pyarrow.table({"id": np.arange(len(x)), "embedding": lists})
    parquet.write_table(table, folder / "embeddings.parquet")
    np.save(folder / "vectors.npy", x.astype(np.int8))
    group = zarr.create_group(folder / "store.zarr")
    group.create_array("vectors", data=x.astype(np.int8), chunks=(300, 16))


def write_earth(path: Path, truth: np.ndarray) -> None:
    """Write a scene of embeddings as AlphaEarth stores them: one direction per class, and noise."""
    import rasterio

    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(truth.max() + 1, 64))[truth] + 0.5 * rng.normal(size=(*SHAPE, 64))
    vectors /= np.linalg.norm(vectors, axis=2)[:, :, None]
    codes = np.rint(127.5 * np.sign(vectors) * np.sqrt(np.abs(vectors))).clip(-127, 127)
    codes[truth < 0] = -128
    write_raster(path, codes.transpose(2, 0, 1).astype(np.int8), nodata=-128)
    with rasterio.open(path, "r+") as raster:
        raster.descriptions = [f"A{band:02d}" for band in range(64)]


def write_netcdf(path: Path, stored: np.ndarray) -> None:
    """Write a scene of scaled integers as NetCDF, as xarray does."""
    import xarray as xr

    data = np.where(stored == -9999, np.nan, stored / 10_000)
    image = xr.DataArray(
        data,
        dims=("y", "x", "band"),
        coords={
            "y": CORNER[1] - PIXEL * (np.arange(SHAPE[0]) + 0.5),
            "x": CORNER[0] + PIXEL * (np.arange(SHAPE[1]) + 0.5),
            "band": np.arange(BANDS),
        },
        name="reflectance",
    )
    encoding = {"dtype": "int16", "scale_factor": 1e-4, "_FillValue": -9999}
    image.to_netcdf(path, engine="h5netcdf", encoding={"reflectance": encoding})


def write_polygons(path: Path, truth: np.ndarray) -> None:
    """Write four polygons of one pixel for each class, with its name."""
    import pyogrio
    import shapely

    random = np.random.default_rng(0)
    fields, names = [], []
    for code, name in enumerate(CLASSES):
        for row, column in random.permutation(np.argwhere(truth == code))[:4]:
            corners = transform() @ (column, row), transform() @ (column + 1, row + 1)
            (left, top), (right, bottom) = corners
            fields.append(shapely.box(left, bottom, right, top))
            names.append(name)
    pyogrio.raw.write(
        path,
        geometry=shapely.to_wkb(fields),
        field_data=[np.array(names, dtype=object)],
        fields=["crop"],
        geometry_type="Polygon",
        crs=CRS,
        driver="GPKG",
    )


def write_series(path: Path, bands: np.ndarray) -> None:
    """Write four dates of three bands, with clouds, as an array of four dimensions."""
    random = np.random.default_rng(0)
    stack = np.stack([bands * (1 + 0.05 * date) for date in range(4)]).astype(np.float32)
    for date in range(4):
        row, column = random.integers(0, 40, 2)
        stack[date, row : row + 15, column : column + 20] = np.nan
    group = zarr.create_group(path)
    group.create_array(
        "series",
        data=stack.transpose(0, 3, 1, 2),
        chunks=(4, 3, 30, 40),
        dimension_names=("time", "band", "y", "x"),
    )


def write_table(path: Path, n_rows: int) -> None:
    """Write a table of numbers with a column of classes, which only 2 % of the rows have."""
    import pandas as pd

    X, y = daskclust.datasets.make_sparse_blobs(
        n_rows, n_informative=4, n_uninformative=4, random_state=0
    )
    table = pd.DataFrame(X, columns=[f"feature_{j}" for j in range(X.shape[1])])
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    known = np.random.default_rng(0).random(n_rows) < 0.02
    table["species"] = pd.Series(np.where(known, names, None), dtype="object")
    table.to_parquet(path)
    table.drop(columns="species").to_csv(path.with_name("second.csv"), index=False)
