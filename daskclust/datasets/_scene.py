"""The closed form behind :func:`make_hyperspectral_cube`: any pixel block, by itself.

A `Scene` holds everything small (spectra, patch centers, waves); `render` turns
it and a rectangle of pixels into values.  Every step is either elementwise or a
sum in a fixed order over classes or waves, never a matrix product, because those
round differently for different block shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Bools, Floats, Ints
from daskclust.datasets._random import row_normals, stream

__all__ = ["Scene", "make_scene", "render"]

_SPECTRA, _MAP, _GAPS, _LIGHT, _PIXELS = range(5)
_Floats = Floats

# Where classes differ: pigments and red edge, leaf water, minerals (centers, nm).
_WINDOWS = (680.0, 1200.0, 2200.0)
# Patches per class: enough for an irregular map, few enough to be regions.
_PATCHES = 4
# Distance of twin classes relative to that of other classes.
_TWIN_DISTANCE = 0.4


@dataclass(frozen=True)
class Waves:
    """A smooth random field: a sum of plane waves over map coordinates."""

    frequencies: _Floats  # (m, 2), cycles per map size
    phases: _Floats  # (m,)

    def __call__(self, v: _Floats, u: _Floats) -> _Floats:
        """Evaluate at ``v`` (n, 1) and ``u`` (1, m): an (n, m) field of variance 1."""
        field = np.zeros(np.broadcast_shapes(v.shape, u.shape))
        for (fv, fu), phase in zip(self.frequencies, self.phases, strict=True):
            field += np.sin(2.0 * np.pi * (fv * v + fu * u) + phase)
        return field * np.sqrt(2.0 / len(self.phases))


@dataclass(frozen=True)
class Scene:
    """A synthetic scene; see :func:`make_scene` for the meaning of the fields."""

    seed: int
    shape: tuple[int, int]
    wavelengths: _Floats  # (p,), nm
    informative: Bools  # (p,)
    base: _Floats  # (p,) reflectance
    deviations: _Floats  # (k, p) reflectance
    noise: _Floats  # (p,) standard deviation
    sites: _Floats  # (s, 2) map coordinates of the patch centers
    site_classes: Ints  # (s,)
    warp: tuple[Waves, Waves]
    light: Waves
    illumination: float
    mixing: float
    gaps: Waves | None
    gap_level: float
    stripes: tuple[float, float, float]  # slope, intercept, half width
    nodata: float
    gain: float  # stored number per unit of reflectance

    @property
    def n_bands(self) -> int:
        """Number of bands, p."""
        return len(self.wavelengths)

    @property
    def n_classes(self) -> int:
        """Number of classes, k."""
        return len(self.deviations)


def make_scene(
    *,
    seed: int,
    shape: tuple[int, int],
    n_bands: int,
    n_classes: int,
    n_informative: int,
    contrast: float,
    noise: float,
    uninformative_noise: float,
    mixing: float,
    illumination: float,
    nodata_fraction: float,
    nodata: float,
    gain: float,
) -> Scene:
    """Draw the small, global part of a scene.

    Parameters are those of :func:`make_hyperspectral_cube`; `gain` is the
    stored number per unit of reflectance.

    Examples
    --------
    >>> scene = make_scene(seed=0, shape=(9, 9), n_bands=12, n_classes=2, n_informative=4,
    ...                    contrast=0.3, noise=0.01, uninformative_noise=0.1, mixing=1.0,
    ...                    illumination=0.0, nodata_fraction=0.0, nodata=-1.0, gain=1.0)
    >>> int(scene.informative.sum()), scene.deviations.shape
    (4, (2, 12))
    """
    wavelengths = np.linspace(400.0, 2500.0, n_bands)
    distance = np.min([np.abs(wavelengths - center) for center in _WINDOWS], axis=0)
    informative = np.zeros(n_bands, dtype=bool)
    informative[np.argsort(distance, kind="stable")[:n_informative]] = True

    rng = stream(seed, _MAP)
    extent = np.array(shape) / max(shape)
    sites = rng.uniform(0.0, 1.0, (_PATCHES * n_classes, 2)) * extent
    gaps, level, stripes = _make_gaps(stream(seed, _GAPS), extent, nodata_fraction)
    return Scene(
        seed=seed,
        shape=shape,
        wavelengths=wavelengths,
        informative=informative,
        base=_base_spectrum(wavelengths),
        deviations=_class_spectra(
            stream(seed, _SPECTRA), wavelengths, informative, n_classes, contrast
        ),
        noise=np.where(informative, noise, uninformative_noise),
        sites=sites,
        site_classes=np.tile(np.arange(n_classes), _PATCHES),
        warp=(_make_waves(rng, 6, 1.0, 5.0), _make_waves(rng, 6, 1.0, 5.0)),
        light=_make_waves(stream(seed, _LIGHT), 4, 0.3, 1.5),
        illumination=illumination,
        mixing=mixing,
        gaps=gaps,
        gap_level=level,
        stripes=stripes,
        nodata=nodata,
        gain=gain,
    )


def _make_waves(rng: np.random.Generator, count: int, low: float, high: float) -> Waves:
    angle = rng.uniform(0.0, 2.0 * np.pi, count)
    size = rng.uniform(low, high, count)
    frequencies = np.stack([size * np.sin(angle), size * np.cos(angle)], axis=1)
    return Waves(frequencies, rng.uniform(0.0, 2.0 * np.pi, count))


def _bump(wavelengths: _Floats, center: float, width: float) -> _Floats:
    return np.exp(-0.5 * ((wavelengths - center) / width) ** 2)


def _base_spectrum(wavelengths: _Floats) -> _Floats:
    """Reflectance all classes share: a red edge, a slow decline, two water absorptions."""
    edge = 0.22 / (1.0 + np.exp(-(wavelengths - 720.0) / 40.0))
    decline = 1.0 - 0.35 * (wavelengths - 400.0) / 2100.0
    water = (1.0 - 0.7 * _bump(wavelengths, 1400.0, 50.0)) * (
        1.0 - 0.8 * _bump(wavelengths, 1900.0, 70.0)
    )
    return (0.15 + edge) * decline * water


def _class_spectra(
    rng: np.random.Generator,
    wavelengths: _Floats,
    informative: Bools,
    n_classes: int,
    contrast: float,
) -> _Floats:
    """Smooth class deviations (k, p), zero outside the informative bands."""
    raw = np.zeros((n_classes, len(wavelengths)))
    bumps = max(4, n_classes)
    for row in raw:
        for center in _WINDOWS:
            for _ in range(bumps):
                place, width = rng.uniform(center - 250.0, center + 250.0), rng.uniform(30.0, 90.0)
                row += rng.normal() * _bump(wavelengths, place, width)
    raw[:, ~informative] = 0.0
    # The nearest matrix with orthonormal rows: all pairs of classes become equally
    # far apart, so that the difficulty hardly depends on the seed.
    left, _, right = np.linalg.svd(raw, full_matrices=False)
    spectra = left @ right
    # Then every third class is turned towards the one before it: alike crops, which
    # plain k-means merges first when noise is strong.
    angle = 2.0 * np.arcsin(_TWIN_DISTANCE / np.sqrt(2.0))
    twins = np.arange(2, n_classes, 3)
    spectra[twins] = np.cos(angle) * spectra[twins - 1] + np.sin(angle) * spectra[twins]
    return spectra * (contrast / np.sqrt(2.0))


def _make_gaps(
    rng: np.random.Generator, extent: _Floats, fraction: float
) -> tuple[Waves | None, float, tuple[float, float, float]]:
    """Blobs where a smooth field is high (4/5 of the gaps), and one oblique stripe (1/5)."""
    if fraction == 0.0:
        return None, np.inf, (0.0, 0.0, -1.0)
    waves = _make_waves(rng, 12, 2.0, 6.0)
    slope, intercept = rng.uniform(-0.3, 0.3), rng.uniform(0.2, 0.8) * extent[0]
    # Levels from a fixed grid of the map, not from pixels: any block finds the same ones.
    grid = (np.arange(256) + 0.5) / 256.0
    v, u = grid[:, None] * extent[0], grid[None, :] * extent[1]
    level = float(np.quantile(waves(v, u), 1.0 - 0.8 * fraction))
    half_width = float(np.quantile(np.abs(v - slope * u - intercept), 0.2 * fraction))
    return waves, level, (float(slope), float(intercept), half_width)


def _coordinates(scene: Scene, region: tuple[slice, slice]) -> tuple[_Floats, _Floats]:
    size = max(scene.shape)
    rows, cols = region
    v = (np.arange(rows.start, rows.stop) + 0.5)[:, None] / size
    u = (np.arange(cols.start, cols.stop) + 0.5)[None, :] / size
    return v, u


def _class_distances(scene: Scene, v: _Floats, u: _Floats) -> _Floats:
    """Distance in pixels to the nearest patch center of each class, (k, rows, cols)."""
    v, u = v + 0.015 * scene.warp[0](v, u), u + 0.015 * scene.warp[1](v, u)
    nearest = np.full((scene.n_classes, *v.shape), np.inf)
    for (site_v, site_u), k in zip(scene.sites, scene.site_classes, strict=True):
        np.minimum(nearest[k], (v - site_v) ** 2 + (u - site_u) ** 2, out=nearest[k])
    return np.sqrt(nearest) * max(scene.shape)


def _gap_mask(scene: Scene, v: _Floats, u: _Floats) -> Bools:
    if scene.gaps is None:
        return np.zeros(np.broadcast_shapes(v.shape, u.shape), dtype=bool)
    slope, intercept, half_width = scene.stripes
    blobs = scene.gaps(v, u) > scene.gap_level
    return np.asarray(blobs | (np.abs(v - slope * u - intercept) < half_width))


def render(
    scene: Scene, region: tuple[slice, slice], dtype: Any
) -> tuple[Array, NDArray[np.int16]]:
    """Values and classes of the pixels of `region`.

    Parameters
    ----------
    scene : Scene
    region : tuple of slice
        Rows and columns, with start and stop.
    dtype : dtype
        Of the cube; integers are rounded.

    Returns
    -------
    cube : ndarray of shape (rows, cols, p)
    truth : ndarray of shape (rows, cols), int16

    Notes
    -----
    Memory: about four float64 copies of the block.
    """
    v, u = _coordinates(scene, region)
    distances = _class_distances(scene, v, u)
    truth = np.argmin(distances, axis=0).astype(np.int16)
    shares = _shares(distances, scene.mixing)

    rows, cols = region
    height, width = rows.stop - rows.start, cols.stop - cols.start
    spectra = np.empty((height, width, scene.n_bands))
    spectra[...] = scene.base
    for share, deviation in zip(shares, scene.deviations, strict=True):
        spectra += share[..., None] * deviation

    # One extra draw per pixel for its own brightness (texture, slope).
    draws = np.empty((height, width, scene.n_bands + 1))
    for i in range(height):
        first_pixel = (rows.start + i) * scene.shape[1] + cols.start
        draws[i] = row_normals(scene.seed, _PIXELS, first_pixel, width, scene.n_bands + 1)
    light = 1.0 + scene.illumination * (scene.light(v, u) + 0.3 * draws[..., -1])
    spectra *= light[..., None]
    draws[..., :-1] *= scene.noise
    spectra += draws[..., :-1]
    spectra *= scene.gain

    gaps = _gap_mask(scene, v, u)
    truth[gaps] = -1
    spectra[gaps] = scene.nodata
    if np.dtype(dtype).kind == "i":
        limits = np.iinfo(dtype)
        np.clip(np.rint(spectra, out=spectra), limits.min, limits.max, out=spectra)
    return spectra.astype(dtype), truth


def _shares(distances: _Floats, mixing: float) -> _Floats:
    """Share of each class in each pixel: a soft minimum over `mixing` pixels, (k, rows, cols)."""
    excess = distances - distances.min(axis=0)
    if mixing == 0.0:
        shares = np.zeros_like(distances)
        np.put_along_axis(shares, distances.argmin(axis=0)[None], 1.0, axis=0)
        return shares
    shares = np.exp(-excess / mixing)
    total = np.zeros(shares.shape[1:])
    for share in shares:  # a fixed order of adding up, whatever the block's shape
        total += share
    return shares / total
