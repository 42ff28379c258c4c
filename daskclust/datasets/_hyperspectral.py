"""A synthetic hyperspectral scene of any size, written to Zarr chunk by chunk.

A `_Scene` contains the global data (spectra, patch centers, waves), which are small.  `render`
computes the values of a rectangle of pixels from it.  Each step is elementwise, or a sum over
classes or waves in a fixed order.  The rounding of matrix products would depend on the shape of
the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dask
import numpy as np
import zarr
from numpy.typing import DTypeLike, NDArray

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.engine import compute
from daskclust.core.storage.outputs import check_written, new_group
from daskclust.core.storage.stored_array import StoredArray
from daskclust.core.storage.stores import encode_fill_value, open_store
from daskclust.datasets._random import check_finite, positive, row_normals, seed_of, stream

_SPECTRA, _MAP, _NODATA, _LIGHT, _PIXELS = range(5)

# Wavelengths at which classes differ: pigments and red edge, leaf water, minerals (centers, nm).
_WINDOWS = (680.0, 1200.0, 2200.0)
# Number of patches per class: irregular regions need several.
_PATCHES = 4
# Distance between twin classes, as a fraction of the distance between other classes.
_TWIN_DISTANCE = 0.4


@dataclass(frozen=True)
class Waves:
    """A smooth random field: a sum of plane waves over map coordinates."""

    frequencies: Floats  # (m, 2), cycles per map size
    phases: Floats  # (m,)

    def __call__(self, v: Floats, u: Floats) -> Floats:
        """Evaluate at ``v`` (n, 1) and ``u`` (1, m): an (n, m) field of variance 1."""
        field = np.zeros(np.broadcast_shapes(v.shape, u.shape))
        for (fv, fu), phase in zip(self.frequencies, self.phases, strict=True):
            field += np.sin(2.0 * np.pi * (fv * v + fu * u) + phase)
        return field * np.sqrt(2.0 / len(self.phases))


@dataclass(frozen=True)
class _Scene:
    """Global data of a scene; see :func:`make_hyperspectral_cube`."""

    seed: int
    shape: tuple[int, int]
    wavelengths: Floats  # (p,), nm
    informative: Bools  # (p,)
    base: Floats  # (p,) reflectance
    deviations: Floats  # (k, p) reflectance
    noise: Floats  # (p,) standard deviation
    sites: Floats  # (s, 2) map coordinates of the patch centers
    site_classes: Ints  # (s,)
    warp: tuple[Waves, Waves]
    light: Waves
    illumination: float
    mixing: float
    nodata_field: Waves | None
    blob_level: float
    stripe: tuple[float, float, float]  # slope, intercept, half width
    nodata: float
    gain: float  # stored number per unit of reflectance

    @property
    def n_bands(self) -> int:
        return len(self.wavelengths)

    @property
    def n_classes(self) -> int:
        return len(self.deviations)


def _make_scene(
    seed: int,
    shape: tuple[int, int],
    n_bands: int,
    n_classes: int,
    n_informative: int,
    noise: tuple[float, float],
    contrast: float,
    nodata_fraction: float,
    **settings: float,
) -> _Scene:
    wavelengths = np.linspace(400.0, 2500.0, n_bands)
    distance = np.min([np.abs(wavelengths - center) for center in _WINDOWS], axis=0)
    informative = np.zeros(n_bands, dtype=bool)
    informative[np.argsort(distance, kind="stable")[:n_informative]] = True

    rng = stream(seed, _MAP)
    extent = np.array(shape) / max(shape)
    sites = rng.uniform(0.0, 1.0, (_PATCHES * n_classes, 2)) * extent
    nodata_field, level, stripe = _draw_nodata_areas(stream(seed, _NODATA), extent, nodata_fraction)
    return _Scene(
        seed=seed,
        shape=shape,
        wavelengths=wavelengths,
        informative=informative,
        base=_base_spectrum(wavelengths),
        deviations=_class_spectra(
            stream(seed, _SPECTRA), wavelengths, informative, n_classes, contrast
        ),
        noise=np.where(informative, *noise),
        sites=sites,
        site_classes=np.tile(np.arange(n_classes), _PATCHES),
        warp=(_make_waves(rng, 6, 1.0, 5.0), _make_waves(rng, 6, 1.0, 5.0)),
        light=_make_waves(stream(seed, _LIGHT), 4, 0.3, 1.5),
        nodata_field=nodata_field,
        blob_level=level,
        stripe=stripe,
        **settings,
    )


def _make_waves(rng: np.random.Generator, count: int, low: float, high: float) -> Waves:
    angle = rng.uniform(0.0, 2.0 * np.pi, count)
    size = rng.uniform(low, high, count)
    frequencies = np.stack([size * np.sin(angle), size * np.cos(angle)], axis=1)
    return Waves(frequencies, rng.uniform(0.0, 2.0 * np.pi, count))


def _bump(wavelengths: Floats, center: float, width: float) -> Floats:
    return np.exp(-0.5 * ((wavelengths - center) / width) ** 2)


def _base_spectrum(wavelengths: Floats) -> Floats:
    """Return the reflectance of all classes: a red edge, a slow decline, two water absorptions."""
    edge = 0.22 / (1.0 + np.exp(-(wavelengths - 720.0) / 40.0))
    decline = 1.0 - 0.35 * (wavelengths - 400.0) / 2100.0
    water = (1.0 - 0.7 * _bump(wavelengths, 1400.0, 50.0)) * (
        1.0 - 0.8 * _bump(wavelengths, 1900.0, 70.0)
    )
    return (0.15 + edge) * decline * water


def _class_spectra(
    rng: np.random.Generator,
    wavelengths: Floats,
    informative: Bools,
    n_classes: int,
    contrast: float,
) -> Floats:
    """Return smooth class deviations (k, p), which are zero outside the informative bands."""
    raw = np.zeros((n_classes, len(wavelengths)))
    bumps = max(4, n_classes)
    for row in raw:
        for center in _WINDOWS:
            for _ in range(bumps):
                peak, width = rng.uniform(center - 250.0, center + 250.0), rng.uniform(30.0, 90.0)
                row += rng.normal() * _bump(wavelengths, peak, width)
    raw[:, ~informative] = 0.0
    # The nearest matrix with orthonormal rows makes all distances between classes equal, so the
    # difficulty depends little on the seed.
    u, _, vt = np.linalg.svd(raw, full_matrices=False)
    spectra = u @ vt
    # Every third class is rotated towards the class before it.  With strong noise, k-means merges
    # these similar classes first.
    angle = 2.0 * np.arcsin(_TWIN_DISTANCE / np.sqrt(2.0))
    twins = np.arange(2, n_classes, 3)
    spectra[twins] = np.cos(angle) * spectra[twins - 1] + np.sin(angle) * spectra[twins]
    return spectra * (contrast / np.sqrt(2.0))


def _draw_nodata_areas(
    rng: np.random.Generator, extent: Floats, fraction: float
) -> tuple[Waves | None, float, tuple[float, float, float]]:
    """Return a field and its threshold for blobs without data, and the line of a stripe.

    The blobs have 4/5 of the pixels without data, and the stripe has 1/5.
    """
    if fraction == 0.0:
        return None, np.inf, (0.0, 0.0, -1.0)
    waves = _make_waves(rng, 12, 2.0, 6.0)
    slope, intercept = rng.uniform(-0.3, 0.3), rng.uniform(0.2, 0.8) * extent[0]
    # Thresholds come from a fixed grid of the map, so they do not depend on blocks.
    grid = (np.arange(256) + 0.5) / 256.0
    v, u = grid[:, None] * extent[0], grid[None, :] * extent[1]
    level = float(np.quantile(waves(v, u), 1.0 - 0.8 * fraction))
    half_width = float(np.quantile(np.abs(v - slope * u - intercept), 0.2 * fraction))
    return waves, level, (float(slope), float(intercept), half_width)


def _class_distances(scene: _Scene, v: Floats, u: Floats) -> Floats:
    """Return distances in pixels to the nearest patch center of each class, (k, rows, cols)."""
    v, u = v + 0.015 * scene.warp[0](v, u), u + 0.015 * scene.warp[1](v, u)
    nearest = np.full((scene.n_classes, *v.shape), np.inf)
    for (site_v, site_u), k in zip(scene.sites, scene.site_classes, strict=True):
        np.minimum(nearest[k], (v - site_v) ** 2 + (u - site_u) ** 2, out=nearest[k])
    return np.sqrt(nearest) * max(scene.shape)


def _nodata_mask(scene: _Scene, v: Floats, u: Floats) -> Bools:
    if scene.nodata_field is None:
        return np.zeros(np.broadcast_shapes(v.shape, u.shape), dtype=bool)
    slope, intercept, half_width = scene.stripe
    blobs = scene.nodata_field(v, u) > scene.blob_level
    return np.asarray(blobs | (np.abs(v - slope * u - intercept) < half_width))


def render(
    scene: _Scene, region: tuple[slice, slice], dtype: Any
) -> tuple[Array, NDArray[np.int16]]:
    """Return values (rows, cols, p), rounded for integers, and classes of a region's pixels.

    Memory: about four float64 copies of the block.
    """
    rows, cols = region
    size = max(scene.shape)
    v = (np.arange(rows.start, rows.stop) + 0.5)[:, None] / size
    u = (np.arange(cols.start, cols.stop) + 0.5)[None, :] / size
    distances = _class_distances(scene, v, u)
    truth = np.argmin(distances, axis=0).astype(np.int16)
    fractions = _class_fractions(distances, scene.mixing)

    height, width = rows.stop - rows.start, cols.stop - cols.start
    spectra = np.empty((height, width, scene.n_bands))
    spectra[...] = scene.base
    for fraction, deviation in zip(fractions, scene.deviations, strict=True):
        spectra += fraction[..., None] * deviation

    # One additional draw per pixel for its brightness (texture, slope).
    draws = np.empty((height, width, scene.n_bands + 1))
    for i in range(height):
        first_pixel = (rows.start + i) * scene.shape[1] + cols.start
        draws[i] = row_normals(scene.seed, _PIXELS, first_pixel, width, scene.n_bands + 1)
    light = 1.0 + scene.illumination * (scene.light(v, u) + 0.3 * draws[..., -1])
    spectra *= light[..., None]
    draws[..., :-1] *= scene.noise
    spectra += draws[..., :-1]
    spectra *= scene.gain

    has_no_data = _nodata_mask(scene, v, u)
    truth[has_no_data] = -1
    spectra[has_no_data] = scene.nodata
    if np.dtype(dtype).kind == "i":
        limits = np.iinfo(dtype)
        np.clip(np.rint(spectra, out=spectra), limits.min, limits.max, out=spectra)
    return spectra.astype(dtype), truth


def _class_fractions(distances: Floats, mixing: float) -> Floats:
    """Return the fraction of each class per pixel: a soft minimum over `mixing` pixels."""
    excess = distances - distances.min(axis=0)
    if mixing == 0.0:
        fractions = np.zeros_like(distances)
        np.put_along_axis(fractions, distances.argmin(axis=0)[None], 1.0, axis=0)
        return fractions
    fractions = np.exp(-excess / mixing)
    total = np.zeros(fractions.shape[1:])
    for fraction in fractions:  # a fixed order of summation for any shape of the block
        total += fraction
    return fractions / total


_DTYPES = ("float32", "float64", "int16")
#: Kind of the groups written by this module.
_KIND = "synthetic scene"
# Integer cubes store reflectance times this factor, as many products do.
_INTEGER_GAIN = 10_000.0


@dataclass(frozen=True)
class HyperspectralCube:
    """A synthetic cube in memory.

    Attributes
    ----------
    cube : ndarray of shape (y, x, band)
        Reflectance, times 10 000 for integer dtypes; `nodata` for missing data.
    truth : ndarray of shape (y, x), int16
        Class of each pixel, -1 for missing data.
    wavelengths : ndarray of shape (band,), float64
        Band centers in nm.
    informative : ndarray of shape (band,), bool
        True for bands in which classes differ.
    nodata : float
        Value of pixels without data.
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
    """Generate a hyperspectral image with known classes.

    Use it to test clustering of images, selection of bands, and treatment of missing data.

    The scene consists of irregular patches of classes.  Their smooth spectra differ in some bands
    only.  The other bands contain strong noise, which misleads plain k-means.  Neighboring classes
    mix at their borders, illumination varies over the map, and pixels in blobs and in a stripe have
    no data.

    Parameters
    ----------
    store : str, path or zarr store, default=None
        Target of a Zarr v3 group; None returns the cube in memory.
    shape : tuple of int, default=(200, 200)
        Number of rows (y) and columns (x).
    n_bands : int, default=120
        Number of bands, with equal distances from 400 to 2500 nm.
    n_classes : int, default=6
        Number of classes.
    n_informative : int, default=None
        Number of bands in which classes differ, around 680, 1200 and 2200 nm;
        None is a third of the bands.
    chunks : tuple of int, default=(50, 50)
        Rows and columns of a chunk; a chunk contains all bands.  Values do not depend on chunks.
    contrast : float, default=0.4
        Euclidean distance between the spectra of two classes, in reflectance.  It is approximate if
        there are fewer informative bands than classes.  Classes 2, 5, 8, ... are similar to the
        class before them, with 0.4 times this distance.
    noise, uninformative_noise : float, default=0.01, 0.1
        Standard deviation of the noise in informative and in other bands (reflectance).
    mixing : float, default=1.0
        Width of the transition between classes, in pixels; 0 for sharp borders.
    illumination : float, default=0.05
        Standard deviation of the smooth brightness factor.
    nodata_fraction : float, default=0.03
        Approximate fraction of pixels without data, in [0, 1).
    nodata : float, default=-9999.0
        Value of pixels without data in all bands; may be NaN for floating-point dtypes.
    dtype : {"float32", "float64", "int16"}, default="float32"
        ``"int16"`` stores reflectance times 10 000, with a ``scale_factor`` attribute.
    random_state : None, int, Generator or RandomState, default=None
        An integer gives the same cube every time, for any `chunks` and scheduler.
    overwrite : bool, default=False
        If True, replace a scene written by this function.  Other files are not replaced.

    Returns
    -------
    HyperspectralCube or zarr.Group
        Without `store` a :class:`HyperspectralCube`; else the written group, opened for reading,
        with arrays ``cube`` (y, x, band), ``truth`` (y, x) int16, ``wavelength`` (band,) in nm and
        ``informative`` (band,) bool.

    Raises
    ------
    FileExistsError
        If the target exists and `overwrite` is False.
    ValueError
        For parameters out of range.

    Notes
    -----
    With `store`, a Dask task per chunk writes on the active scheduler.  It needs memory for about
    four float64 chunks.  All workers must have access to the store.  A local store appears under
    its name only when it is complete.

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
        raise ValueError(f"dtype must be {' or '.join(_DTYPES)}, got {kind.name!r}.")
    n_bands = positive("n_bands", n_bands)
    if n_informative is None:
        n_informative = max(1, n_bands // 3)
    if positive("n_informative", n_informative) > n_bands:
        raise ValueError(f"n_informative must be at most n_bands={n_bands}, got {n_informative}.")
    check_finite(
        contrast=contrast,
        noise=noise,
        uninformative_noise=uninformative_noise,
        mixing=mixing,
        illumination=illumination,
    )
    if not 0.0 <= nodata_fraction < 1.0:
        raise ValueError(f"nodata_fraction must be in [0, 1), got {nodata_fraction!r}.")
    limits = np.iinfo(np.int16)
    if kind.kind == "i" and not (limits.min <= nodata <= limits.max and nodata == int(nodata)):
        raise ValueError(f"nodata must be an {kind.name}, got {nodata!r}. Use for example -9999.")
    scene = _make_scene(
        seed_of(random_state),
        shape,
        n_bands,
        positive("n_classes", n_classes),
        n_informative,
        (noise, uninformative_noise),
        contrast,
        nodata_fraction,
        mixing=mixing,
        illumination=illumination,
        nodata=nodata,
        gain=_INTEGER_GAIN if kind.kind == "i" else 1.0,
    )
    if store is None:
        cube, truth = np.empty((*shape, n_bands), kind), np.empty(shape, np.int16)
        for region in _regions(shape, chunks):  # block by block, to limit temporary memory
            cube[region], truth[region] = render(scene, region, kind)
        return HyperspectralCube(cube, truth, scene.wavelengths, scene.informative, scene.nodata)
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


def _write_chunk(
    scene: _Scene, region: tuple[slice, slice], cube: StoredArray, truth: StoredArray
) -> int:
    values, classes = render(scene, region, cube.dtype)
    cube[region] = values
    truth[region] = classes
    return classes.size


def _write(
    scene: _Scene, chunks: tuple[int, int], dtype: np.dtype[Any], store: Any, *, overwrite: bool
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
        band_arrays: dict[str, tuple[Array, dict[str, Any]]] = {
            "wavelength": (scene.wavelengths, {"units": "nm", "long_name": "band center"}),
            "informative": (scene.informative, {"long_name": "classes differ in this band"}),
        }
        for name, (values, array_attributes) in band_arrays.items():
            group.create_array(
                name, data=values, dimension_names=("band",), attributes=array_attributes
            )
        # traverse=False, because dask would search the scene's fields for every chunk.
        shared = dask.delayed(scene, traverse=False)
        writer = dask.delayed(_write_chunk, pure=False)
        targets = StoredArray(cube), StoredArray(truth)
        tasks = [writer(shared, region, *targets) for region in _regions(scene.shape, block)]
        compute("the writing of the scene", *tasks)
        for array in (cube, truth):
            check_written(array)


def _pair(name: str, value: tuple[int, int]) -> tuple[int, int]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ValueError(f"{name} must be two integers (rows, columns), got {value!r}.")
    return positive(f"{name}[0]", value[0]), positive(f"{name}[1]", value[1])
