"""Views that a cube offers, and models that take theirs along."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import daskclust
from daskclust import Cube, KMeans, open_cube

SHAPE = (12, 15, 4)


def image(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.integers(200, 900, SHAPE)
    values[rng.random(SHAPE[:2]) < 0.1] = 0
    return values.astype(np.int16)


def opened(values: np.ndarray, chunks: tuple[int, int] = (5, 4), **options: Any) -> Cube:
    return open_cube(values, dims=("y", "x", "band"), chunks=chunks, nodata=0, **options)


def test_angle_is_another_name_of_unit() -> None:
    values = image()
    unit, angle = (opened(values, scale=scale).samples.compute() for scale in ("unit", "angle"))
    assert_array_equal(unit, angle)
    assert_allclose(np.linalg.norm(unit, axis=1), 1.0, rtol=1e-6)


def test_whitened_by_hand() -> None:
    """N is half the mean square of what adjacent directions differ by."""
    values = image()
    valid = (values != 0).all(axis=2)
    directions = values / np.linalg.norm(values, axis=2, keepdims=True).clip(1e-9)
    gaps = []
    for one, other, both in (
        (directions[1:], directions[:-1], valid[1:] & valid[:-1]),
        (directions[:, 1:], directions[:, :-1], valid[:, 1:] & valid[:, :-1]),
    ):
        gaps.append((one - other)[both])
    found = np.concatenate(gaps)
    noise = found.T @ found / (2 * len(found))
    level = np.trace(noise) / 4
    turned, vectors = np.linalg.eigh(noise + 10 * level * np.eye(4))
    expected = directions[valid] @ (vectors / np.sqrt(turned / level)) @ vectors.T
    cube = opened(values, SHAPE[:2], scale="whitened")
    assert_allclose(cube.samples.compute(), expected, rtol=1e-5)


@cache
def whitened(chunks: tuple[int, int]) -> np.ndarray:
    """Return the rows of an image, each in its place."""
    with dask.config.set(scheduler="synchronous"):
        cube = opened(image(), chunks, scale="whitened")
        samples = cube.samples.compute()
        rows = cube.to_map(np.arange(len(samples))).compute()
    return np.where(rows[..., None] >= 0, samples[rows], -9)


@given(st.integers(1, SHAPE[0]), st.integers(1, SHAPE[1]))
def test_whitened_does_not_depend_on_the_blocks(height: int, width: int) -> None:
    assert_array_equal(whitened((height, width)), whitened(SHAPE[:2]))


def test_whitened_needs_whole_pixels() -> None:
    with pytest.raises(ValueError, match="requires incomplete='mask'"):
        opened(image(), scale="whitened", incomplete="keep")


@pytest.mark.parametrize("scale", ["none", "standard", "unit", "whitened"])
def test_a_model_takes_its_view_along(scale: str, tmp_path: Path) -> None:
    cube, other = opened(image(0), scale=scale), opened(image(1), scale="none")
    model = KMeans(3, random_state=0).fit(cube)
    expected = model.predict(other.scaled_as(cube.sample_scaling).samples).compute()
    assert_array_equal(model.predict(other).compute(), expected)
    assert_array_equal(model.predict(cube).compute(), model.labels_.compute())
    model.save(tmp_path / "m.zarr")
    loaded = daskclust.load(tmp_path / "m.zarr")
    assert_array_equal(loaded.predict(other).compute(), expected)
    assert_array_equal(loaded.transform(other).compute(), model.transform(other).compute())


def test_a_model_of_rows_has_no_view_of_its_own() -> None:
    cube = opened(image(), scale="unit")
    model = KMeans(3, random_state=0).fit(opened(image(), scale="standard"))
    model.fit(cube.samples)
    assert_array_equal(model.predict(cube).compute(), model.labels_.compute())


def test_another_number_of_bands_is_named() -> None:
    model = KMeans(3, random_state=0).fit(opened(image(), scale="whitened"))
    fewer = opened(image()[:, :, :3])
    with pytest.raises(ValueError, match="The cube must have the 4 bands of the model, got 3"):
        model.predict(fewer)
