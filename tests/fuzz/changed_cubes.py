"""Image cubes of all formats that are changed at random: they are clustered, or refused."""

from __future__ import annotations

import contextlib
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import rasterio
import xarray
import zarr
from mutations import NUMBERS, change_array, change_files, change_json
from rasterio.transform import from_origin

import daskclust

__all__ = ["change_cube", "make_cubes"]

SHAPE = 6, 12, 14
DIMS = "band", "y", "x"
#: Values of a cube that is clustered; one that says it is larger is only opened.
_MOST = 10**6
#: Files that are text.
_TEXT = (".hdr", ".vrt")
_VRT = """<VRTDataset rasterXSize="14" rasterYSize="12"><SRS>EPSG:32632</SRS>
<GeoTransform>600000, 30, 0, 5200000, 0, -30</GeoTransform>
{bands}</VRTDataset>"""
_BAND = """<VRTRasterBand dataType="Int16" band="{n}"><NoDataValue>-9</NoDataValue>
<SimpleSource><SourceFilename relativeToVRT="1">scene.tif</SourceFilename>
<SourceBand>{n}</SourceBand><SrcRect xOff="0" yOff="0" xSize="14" ySize="12"/>
<DstRect xOff="0" yOff="0" xSize="14" ySize="12"/></SimpleSource></VRTRasterBand>"""


def _write_zarr(folder: Path, values: np.ndarray, version: int) -> None:
    group = zarr.create_group(folder, zarr_format=version)
    names: dict[str, Any] = {"dimension_names": DIMS} if version == 3 else {}
    array = group.create_array(
        "cube", shape=SHAPE, chunks=(6, 6, 6), dtype="i2", fill_value=0, **names
    )
    array[...] = values
    array.attrs.update(_FillValue=-9, scale_factor=0.5, add_offset=1.0, valid_range=[0, 4000])
    if version == 2:
        array.attrs["_ARRAY_DIMENSIONS"] = list(DIMS)
    waves = group.create_array("wavelength", shape=(6,), dtype="f8")
    waves[...] = np.arange(400.0, 460, 10)


def make_cubes(folder: Path) -> None:
    """Write the same scene in each format, in a folder of its own."""
    values = np.random.default_rng(0).integers(0, 3000, SHAPE).astype(np.int16)
    values[:, :3, :3] = -9
    at = {name: folder / name for name in ("v3", "v2", "zip", "tif", "vrt", "envi", "nc", "npy")}
    for path in at.values():
        path.mkdir()
    _write_zarr(at["v3"] / "scene.zarr", values, 3)
    _write_zarr(at["v2"] / "scene.zarr", values, 2)
    with zipfile.ZipFile(at["zip"] / "scene.zip", "w") as archive:
        for file in sorted((at["v3"] / "scene.zarr").rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(at["v3"] / "scene.zarr"))
    options: dict[str, Any] = {
        "height": 12,
        "width": 14,
        "count": 6,
        "dtype": "int16",
        "crs": "EPSG:32632",
        "transform": from_origin(600_000, 5_200_000, 30, 30),
        "nodata": -9,
    }
    for path, driver, more in (
        (at["tif"] / "scene.tif", "GTiff", {"compress": "deflate"}),
        (at["vrt"] / "scene.tif", "GTiff", {"blockysize": 4}),
        (at["envi"] / "scene.img", "ENVI", {"interleave": "bil"}),
    ):
        with rasterio.open(path, "w", driver=driver, **options, **more) as file:
            file.write(values)
    bands = "".join(_BAND.format(n=n) for n in range(1, 7))
    (at["vrt"] / "scene.vrt").write_text(_VRT.format(bands=bands))
    header = at["envi"] / "scene.hdr"
    header.write_text(header.read_text() + "wavelength = {400,410,420,430,440,450}\n")
    with (at["envi"] / "scene.hdr").open("a") as text:
        text.write("wavelength units = Nanometers\nbbl = {1,1,0,1,1,1}\n")
    cube = xarray.DataArray(values, dims=DIMS, attrs={"_FillValue": np.int16(-9)})
    waves = xarray.DataArray(np.arange(400.0, 460, 10), dims="band")
    dataset = xarray.Dataset({"cube": cube, "wavelength": waves})
    dataset.to_netcdf(at["nc"] / "scene.nc", format="NETCDF4")
    dataset.to_netcdf(at["nc"] / "classic.nc", format="NETCDF3_CLASSIC")
    with h5py.File(at["nc"] / "scene.h5", "w") as h5:
        stored = h5.create_dataset("cube", data=values, chunks=(6, 6, 7), compression="gzip")
        for axis, name in enumerate(DIMS):
            stored.dims[axis].label = name
    np.save(at["npy"] / "scene.npy", values)


def _change_file(rng: np.random.Generator, file: Path) -> None:
    """Change bits, bytes, numbers or the length of a file."""
    content = bytearray(file.read_bytes())
    size = len(content)
    action = rng.integers(5)
    if file.suffix in _TEXT and rng.integers(4):
        words = file.read_text(errors="replace").replace("=", " = ").split(" ")
        at = int(rng.integers(len(words)))
        words[at] = str(NUMBERS[rng.integers(len(NUMBERS))]) if rng.integers(2) else ""
        file.write_text(" ".join(words))
        return
    if action < 3 and size:
        # What describes the pixels lies at either end.
        span = size if action == 0 else min(size, 600)
        for _ in range(int(rng.integers(1, 6))):
            place = int(rng.integers(span))
            place = place if action < 2 else size - 1 - place
            value = content[place] ^ (1 << int(rng.integers(8)))
            content[place] = value if rng.integers(2) else int(rng.choice([0, 1, 127, 255]))
    elif action == 3:
        del content[int(rng.integers(size + 1)) :]
    elif size:
        first = int(rng.integers(size))
        content[first : first + 8] = rng.integers(0, 256, 8, dtype=np.uint8).tobytes()
    file.write_bytes(content)


def _change_array(rng: np.random.Generator, folder: Path) -> None:
    """Change values and attributes of a Zarr cube as its own writer would write them."""
    # What was damaged before may be past reading, and what is made up past writing.
    with contextlib.suppress(Exception):
        group = zarr.open_group(folder, mode="r+")
        before = group["cube"]
        values = change_array(rng, np.asarray(before[...]))
        attributes = json.loads(json.dumps(before.attrs.asdict()))
        change_json(rng, attributes)
        names = before.metadata.dimension_names if before.metadata.zarr_format == 3 else None
        new = group.create_array("cube", data=values, overwrite=True, dimension_names=names)
        new.attrs.update(attributes)


def change_cube(rng: np.random.Generator, source: Path, scratch: Path) -> Callable[[], None]:
    """Change one of the cubes; return its use, which clusters it and makes a map."""
    kinds = sorted(path for path in source.iterdir() if path.is_dir())
    folder = scratch / "cube"
    shutil.copytree(kinds[rng.integers(len(kinds))], folder)
    scenes = sorted(path for path in folder.iterdir())
    scene = scenes[rng.integers(len(scenes))]
    for _ in range(int(rng.integers(1, 3))):
        if scene.suffix == ".zarr":
            (change_files if rng.integers(3) else _change_array)(rng, scene)
        else:
            _change_file(rng, scenes[rng.integers(len(scenes))])

    def use() -> None:
        given: dict[str, Any] = {"dims": DIMS} if scene.suffix in (".npy", ".h5") else {}
        cube = daskclust.open_cube(scene, incomplete=str(rng.choice(["mask", "keep"])), **given)
        if np.prod([float(length) for length in cube.shape]) > _MOST:
            return
        model = daskclust.KMeans(2, missing="partial", max_iter=3, random_state=0)
        labels = model.fit(cube.samples).labels_
        image = np.asarray(cube.to_map(labels))
        assert image.shape == cube.shape[:2]
        assert image.min() >= -1
        assert image.max() < 2

    return use
