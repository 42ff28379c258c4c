"""A synthetic hyperspectral scene of any size, written to Zarr chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dask
import numpy as np
import zarr
from numpy.typing import DTypeLike, NDArray

from daskclust._types import Array, Bools, Floats
from daskclust.datasets._random import seed_of
from daskclust.datasets._rows import positive
from daskclust.datasets._scene import Scene, make_scene, render
from daskclust.engine import compute
from daskclust.storage.seen import StoredArray
from daskclust.storage.stores import encode_fill_value, open_store
from daskclust.storage.targets import check_written, new_group

__all__ = ["HyperspectralCube", "make_hyperspectral_cube"]

_DTYPES = ("float32", "float64", "int16")
#: Kind of the groups that are written here.
_KIND = "synthetic scene"
# Integer cubes hold reflectance times this, as many products do.
_INTEGER_GAIN = 10_000.0


@dataclass(frozen=True)
class HyperspectralCube:
    """A synthetic cube in memory.

    Attributes
    ----------
    cube : ndarray of shape (y, x, band)
        Reflectance; times 10 000 for integer dtypes; `nodata` where there is none.
    truth : ndarray of shape (y, x), int16
        Class of each pixel, -1 where there are no data.
    wavelengths : ndarray of shape (band,), float64
        Band centers in nm.
    informative : ndarray of shape (band,), bool
        Bands in which classes differ.
    nodata : float
        The value of pixels without data.
    """

    cube: Array
    truth: NDArray[np.int16]
    wavelengths: Floats
    informative: Bools
    nodata: float


def make_hyperspectral_cube(
    store: Any = None,
    *,
    shape: tuple[int, int] = (200, 200),
    n_bands: int = 120,
    n_classes: int = 6,
    n_informative: int | None = None,
    chunks: tuple[int, int] = (50, 50),
    contrast: float = 0.4,
    noise: float = 0.01,
    uninformative_noise: float = 0.1,
    mixing: float = 1.0,
    illumination: float = 0.05,
    nodata_fraction: float = 0.03,
    nodata: float = -9999.0,
    dtype: DTypeLike = "float32",
    random_state: Any = None,
    overwrite: bool = False,
) -> HyperspectralCube | zarr.Group:
    """Make a hyperspectral image whose classes are known.

    The scene consists of irregular patches of classes.  Their smooth spectra differ in
    some bands only; the other bands contain strong noise only.  Neighboring classes mix
    at their borders, and illumination varies over the map.  Pixels in blobs and in a
    stripe have no data.  Plain k-means fits the strong noise; sparse feature weights
    should find the informative bands.

    Parameters
    ----------
    store : str, path or zarr store, default=None
        Where to write a Zarr v3 group; None returns the cube in memory.
    shape : tuple of int, default=(200, 200)
        Rows (y) and columns (x).
    n_bands : int, default=120
        Number of bands, evenly from 400 to 2500 nm.
    n_classes : int, default=6
        Number of classes.
    n_informative : int, default=None
        Number of bands in which classes differ, around 680, 1200 and 2200 nm;
        None is a third of the bands.
    chunks : tuple of int, default=(50, 50)
        Rows and columns of a chunk; a chunk holds all bands.  Values do not depend on it.
    contrast : float, default=0.4
        Euclidean distance between the spectra of two classes, in reflectance.
        Approximate if there are fewer informative bands than classes.  The distance of
        classes 2, 5, 8, ... from the class before them is 0.4 times that.
    noise, uninformative_noise : float, default=0.01, 0.1
        Standard deviation of the noise in informative and in other bands (reflectance).
    mixing : float, default=1.0
        Width of the transition between classes, in pixels; 0 for none.
    illumination : float, default=0.05
        Standard deviation of the smooth brightness factor.
    nodata_fraction : float, default=0.03
        Approximate share of pixels without data, in [0, 1).
    nodata : float, default=-9999.0
        Value of pixels without data in all bands; may be NaN for floating-point dtypes.
    dtype : {"float32", "float64", "int16"}, default="float32"
        ``"int16"`` stores reflectance times 10 000, with a ``scale_factor`` attribute.
    random_state : None, int, Generator or RandomState, default=None
        An integer gives the same cube every time, for any `chunks` and scheduler.
    overwrite : bool, default=False
        Replace a scene that this function has written; nothing else is ever replaced.

    Returns
    -------
    HyperspectralCube or zarr.Group
        Without `store` a :class:`HyperspectralCube`; else the written group, open
        for reading, with arrays ``cube`` (y, x, band), ``truth`` (y, x) int16,
        ``wavelength`` (band,) in nm and ``informative`` (band,) bool.

    Raises
    ------
    FileExistsError
        The target exists and `overwrite` is False.
    ValueError
        A parameter outside its range.

    Notes
    -----
    With `store`, one Dask task per chunk writes on the active scheduler; each task needs
    the memory of about four float64 chunks.  All workers must be able to reach the store;
    a path must be on a shared file system.  A local store appears under its name only
    when it is complete.

    Examples
    --------
    >>> scene = make_hyperspectral_cube(shape=(30, 40), n_bands=24, random_state=0)
    >>> scene.cube.shape, scene.truth.shape, int(scene.informative.sum())
    ((30, 40, 24), (30, 40), 8)
    >>> group = make_hyperspectral_cube(
    ...     zarr.storage.MemoryStore(), shape=(30, 40), n_bands=24, random_state=0)
    >>> bool((group["cube"][:] == scene.cube).all())
    True
    """
    shape = _pair("shape", shape)
    chunks = _pair("chunks", chunks)
    kind = np.dtype(dtype)
    if kind.name not in _DTYPES:
        raise ValueError(f"dtype={kind.name!r}; expected one of {', '.join(_DTYPES)}.")
    n_bands = positive("n_bands", n_bands)
    if n_informative is None:
        n_informative = max(1, n_bands // 3)
    if positive("n_informative", n_informative) > n_bands:
        raise ValueError(f"n_informative={n_informative} exceeds n_bands={n_bands}.")
    _check_numbers(
        contrast=contrast,
        noise=noise,
        uninformative_noise=uninformative_noise,
        mixing=mixing,
        illumination=illumination,
    )
    if not 0.0 <= nodata_fraction < 1.0:
        raise ValueError(f"nodata_fraction={nodata_fraction!r}; expected 0 <= fraction < 1.")
    limits = np.iinfo(np.int16)
    if kind.kind == "i" and not (limits.min <= nodata <= limits.max and nodata == int(nodata)):
        raise ValueError(f"nodata={nodata!r} is no {kind.name}; choose one, for example -9999.")
    scene = make_scene(
        seed=seed_of(random_state),
        shape=shape,
        n_bands=n_bands,
        n_classes=positive("n_classes", n_classes),
        n_informative=n_informative,
        contrast=contrast,
        noise=noise,
        uninformative_noise=uninformative_noise,
        mixing=mixing,
        illumination=illumination,
        nodata_fraction=nodata_fraction,
        nodata=nodata,
        gain=_INTEGER_GAIN if kind.kind == "i" else 1.0,
    )
    if store is None:
        return _in_memory(scene, chunks, kind)
    _write(scene, chunks, kind, store, overwrite=overwrite)
    written = open_store(store)
    assert isinstance(written, zarr.Group)
    return written


def _regions(shape: tuple[int, int], chunks: tuple[int, int]) -> Iterator[tuple[slice, slice]]:
    for y in range(0, shape[0], chunks[0]):
        for x in range(0, shape[1], chunks[1]):
            yield (
                slice(y, min(y + chunks[0], shape[0])),
                slice(x, min(x + chunks[1], shape[1])),
            )


def _in_memory(scene: Scene, chunks: tuple[int, int], dtype: np.dtype[Any]) -> HyperspectralCube:
    cube = np.empty((*scene.shape, scene.n_bands), dtype=dtype)
    truth = np.empty(scene.shape, dtype=np.int16)
    for region in _regions(scene.shape, chunks):  # block by block: bounded temporaries
        cube[region], truth[region] = render(scene, region, dtype)
    return HyperspectralCube(
        cube=cube,
        truth=truth,
        wavelengths=scene.wavelengths,
        informative=scene.informative,
        nodata=scene.nodata,
    )


def _write_chunk(
    scene: Scene, region: tuple[slice, slice], cube: StoredArray, truth: StoredArray
) -> int:
    values, classes = render(scene, region, cube.dtype)
    cube[region] = values
    truth[region] = classes
    return classes.size


def _write(
    scene: Scene,
    chunks: tuple[int, int],
    dtype: np.dtype[Any],
    store: Any,
    *,
    overwrite: bool,
) -> None:
    block = min(chunks[0], scene.shape[0]), min(chunks[1], scene.shape[1])
    with new_group(store, kind=_KIND, overwrite=overwrite) as group:
        group.attrs["title"] = "Synthetic hyperspectral scene"
        attributes: dict[str, Any] = {
            "long_name": "reflectance",
            "units": "1",
            "_FillValue": encode_fill_value(scene.nodata, dtype),
        }
        if dtype.kind == "i":
            attributes["scale_factor"] = 1.0 / _INTEGER_GAIN
        cube = group.create_array(
            "cube",
            shape=(*scene.shape, scene.n_bands),
            chunks=(*block, scene.n_bands),
            dtype=dtype,
            fill_value=dtype.type(scene.nodata),
            config={"write_empty_chunks": True},
            dimension_names=("y", "x", "band"),
            attributes=attributes,
        )
        truth = group.create_array(
            "truth",
            shape=scene.shape,
            chunks=block,
            dtype=np.int16,
            fill_value=-1,
            config={"write_empty_chunks": True},
            dimension_names=("y", "x"),
            attributes={
                "long_name": "class",
                "_FillValue": -1,
                "flag_values": list(range(scene.n_classes)),
                "flag_meanings": " ".join(f"class_{k}" for k in range(scene.n_classes)),
            },
        )
        wavelength = group.create_array(
            "wavelength",
            shape=scene.wavelengths.shape,
            dtype=np.float64,
            dimension_names=("band",),
            attributes={"units": "nm", "long_name": "band center"},
        )
        wavelength[:] = scene.wavelengths
        informative = group.create_array(
            "informative",
            shape=scene.informative.shape,
            dtype=bool,
            dimension_names=("band",),
            attributes={"long_name": "classes differ in this band"},
        )
        informative[:] = scene.informative
        # Not traversed: dask would otherwise search the scene's fields for every chunk.
        shared = dask.delayed(scene, traverse=False)
        writer = dask.delayed(_write_chunk, pure=False)
        targets = StoredArray(cube), StoredArray(truth)
        tasks = [writer(shared, region, *targets) for region in _regions(scene.shape, block)]
        compute("the writing of the scene", *tasks)
        for array in (cube, truth):
            check_written(array)


def _pair(name: str, value: tuple[int, int]) -> tuple[int, int]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ValueError(f"{name}={value!r}; expected two integers, (rows, columns).")
    return positive(f"{name}[0]", value[0]), positive(f"{name}[1]", value[1])


def _check_numbers(**values: float) -> None:
    for name, value in values.items():
        if not (np.isfinite(value) and value >= 0.0):
            raise ValueError(f"{name}={value!r}; expected a finite number, zero or more.")
