"""Smooth maps: the sweeps against plain loops, the same in any chunks, masks, text and mistakes."""

from __future__ import annotations

import math

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from dask.callbacks import Callback

from daskclust import open_cube

SHAPE, K = (45, 53), 3


def scene() -> tuple[np.ndarray, np.ndarray]:
    """Return spectra with a masked patch, and posteriors of all pixels: two fields with noise."""
    rng = np.random.default_rng(0)
    truth = (np.add.outer(np.arange(SHAPE[0]), np.arange(SHAPE[1])) > 45) * 2
    spectra = (truth[..., None] * 40 + rng.normal(100, 10, (*SHAPE, 4))).astype(np.float32)
    spectra[10:13, 20:30] = -9
    proba = rng.dirichlet(np.ones(K), SHAPE) + 0.6 * np.eye(K)[truth]
    return spectra, (proba / proba.sum(axis=2, keepdims=True)).astype(np.float32)


def opened(spectra: np.ndarray, chunks: tuple[int, int]):
    store = zarr.array(spectra, chunks=(*chunks, 4))
    return open_cube(store, dims=("y", "x", "band"), nodata=-9)


def smooth(chunks: tuple[int, int], **options) -> np.ndarray:
    """Smooth the scene in blocks, and return the map; -1 where it is masked."""
    spectra, proba = scene()
    cube = opened(spectra, chunks)
    rows = by_rows(cube, proba)
    found = cube.smooth(rows.argmax(axis=1), rows, **options)
    assert found.chunks[0] == cube.samples.chunks[0]
    return cube.to_map(found).compute()


def by_rows(cube, image: np.ndarray) -> np.ndarray:
    """Return an image in the order of the rows of a cube."""
    valid = cube.valid.compute()
    return np.concatenate(
        [
            image[cube.blocks.region(i)][valid[cube.blocks.region(i)]]
            for i in range(cube.blocks.count)
        ]
    )


def plain(spectra: np.ndarray, proba: np.ndarray, strength: float) -> np.ndarray:
    """Sweep by dictionaries and Python's floats."""
    valid = (spectra != -9).all(axis=2)
    pixels = [tuple(at) for at in np.argwhere(valid).tolist()]
    gaps = {}
    for y, x in pixels:
        for other in ((y, x + 1), (y + 1, x)):
            if other[0] < SHAPE[0] and other[1] < SHAPE[1] and valid[other]:
                d = spectra[y, x].astype(float) - spectra[other]
                gaps[(y, x), other] = gaps[other, (y, x)] = float(d @ d)
    median = np.median(list(gaps.values()))
    near = {at: [] for at in pixels}
    for (one, other), gap in gaps.items():
        near[one].append((other, math.exp(-gap / (2 * median))))
    logs = {at: np.log(np.maximum(proba[at].astype(float), 0.001)) for at in pixels}
    q = {at: np.exp(log) / np.exp(log).sum() for at, log in logs.items()}
    for step in range(20):
        for at in pixels:
            if (sum(at) + step) % 2 == 0:
                energy = logs[at] + strength * sum((w * q[o] for o, w in near[at]), np.zeros(K))
                q[at] = np.exp(energy) / np.exp(energy).sum()
    out = np.full(SHAPE, -1)
    for at in pixels:
        out[at] = q[at].argmax()
    return out


def test_sweeps_are_those_of_plain_loops() -> None:
    spectra, proba = scene()
    before = np.where((spectra == -9).all(axis=2), -1, proba.argmax(axis=2))
    expected = plain(spectra, proba, 2.0)
    assert (expected != before).mean() > 0.03
    assert np.array_equal(smooth(SHAPE, strength=2.0), expected)


def test_same_in_any_chunks() -> None:
    whole = {least: smooth(SHAPE, strength=0.3, min_pixels=least) for least in (0, 12)}
    assert not np.array_equal(whole[0], whole[12])
    for chunks in ((20, 25), (7, 53)):
        for least, expected in whole.items():
            found = smooth(chunks, strength=0.3, min_pixels=least)
            assert np.array_equal(found, expected), (chunks, least)


def test_off_is_off() -> None:
    spectra, proba = scene()
    before = np.where((spectra == -9).all(axis=2), -1, proba.argmax(axis=2))
    assert np.array_equal(smooth((20, 25), strength=0), before)


def test_sieve_is_gdals() -> None:
    features = pytest.importorskip("rasterio.features")
    spectra, proba = scene()
    codes = proba.argmax(axis=2)
    valid = (spectra != -9).all(axis=2)
    expected = features.sieve(codes.astype(np.int16), 6, mask=valid, connectivity=4)
    for chunks in (SHAPE, (9, 20)):
        cube = opened(spectra, chunks)
        found = cube.to_map(cube.smooth(by_rows(cube, codes), min_pixels=6)).compute()
        assert np.array_equal(found, np.where(valid, expected, -1))


def test_labels_that_are_no_columns_and_text_keep_their_values() -> None:
    spectra, proba = scene()
    cube = opened(spectra, (20, 25))
    rows = by_rows(cube, proba)
    columns = cube.smooth(rows.argmax(axis=1), rows, strength=1.0, min_pixels=4).compute()
    for names in (np.array([3, 7, 11], np.uint8), np.array(["a", "bb", "ccc"])):
        labels = names[rows.argmax(axis=1)]
        found = cube.smooth(labels, rows, strength=1.0, min_pixels=4)
        assert found.dtype == labels.dtype
        assert np.array_equal(found.compute(), names[columns])
        sieved = cube.smooth(labels, min_pixels=4).compute()
        numbers = cube.smooth(rows.argmax(axis=1), min_pixels=4).compute()
        assert np.array_equal(sieved, names[numbers])


def test_rows_without_a_label_stay_without() -> None:
    spectra, proba = scene()
    cube = opened(spectra, (20, 25))
    rows = by_rows(cube, proba)
    labels = rows.argmax(axis=1)
    labels[::50] = -1
    found = cube.smooth(labels, rows, strength=5.0, min_pixels=9).compute()
    assert np.array_equal(found == -1, labels == -1)


def test_mistakes_are_told() -> None:
    spectra, proba = scene()
    cube = opened(spectra, (20, 25))
    rows = by_rows(cube, proba)
    labels = rows.argmax(axis=1)
    for options in (
        {"strength": -1},
        {"strength": math.nan},
        {"min_pixels": -1},
        {"min_pixels": 1.5},
    ):
        with pytest.raises(ValueError, match=next(iter(options))):
            cube.smooth(labels, rows, **options)
    with pytest.raises(ValueError, match="proba must have"):
        cube.smooth(labels, rows[:-1])
    with pytest.raises(ValueError, match="dtype"):
        cube.smooth(labels.astype(float), rows)
    with pytest.raises(ValueError, match="must be of the same model"):
        cube.smooth(np.zeros_like(labels), rows).compute()


class Held(Callback):
    """Counts the bytes that chunks hold at once: of views, those of the whole array."""

    def __init__(self) -> None:
        self.most = 0
        super().__init__(posttask=self._count)

    def _count(self, key, result, graph, state, worker) -> None:
        found: dict[int, int] = {}
        values = list(state["cache"].values())
        while values:
            value = values.pop()
            if isinstance(value, list | tuple):
                values.extend(value)
            elif isinstance(value, np.ndarray):
                while isinstance(value.base, np.ndarray):
                    value = value.base
                found[id(value)] = value.nbytes
        self.most = max(self.most, sum(found.values()))


def test_what_waits_for_neighbors_does_not_grow_with_the_lines() -> None:
    k, width, block = 20, 80, 40

    def most(height: int) -> int:
        rng = np.random.default_rng(0)
        cube = opened(rng.random((height, width, 4), np.float32), (block, block))
        proba = cube.samples.map_blocks(
            lambda x: np.repeat(x, k // 4, axis=1), chunks=(cube.samples.chunks[0], (k,))
        )
        labels = proba.map_blocks(np.argmax, axis=1, drop_axis=1, dtype=np.int64)
        image = cube.to_map(cube.smooth(labels, proba, min_pixels=4))
        target = zarr.create_array({}, shape=image.shape, chunks=(block, block), dtype="i4")
        with dask.config.set(scheduler="sync"), Held() as held:
            da.store(image, target)
        return held.most

    low, high = 6 * block, 24 * block
    # Of a pixel two codes of a byte are held; its posteriors have 80.
    assert most(high) - most(low) < 5 * (high - low) * width
