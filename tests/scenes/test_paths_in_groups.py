"""Cubes in groups of a Zarr hierarchy or of a DataTree, named by their paths."""

from __future__ import annotations

import numpy as np
import pytest
import zarr

import daskclust

xarray = pytest.importorskip("xarray")

RNG = np.random.default_rng(0)
BANDS = {name: RNG.integers(0, 99, (6, 4)).astype("int16") for name in ("b02", "b03")}
COORDINATES = {"y": 105.0 - 10 * np.arange(6), "x": 5.0 + 10 * np.arange(4)}


def dataset():
    return xarray.Dataset(
        {name: (("y", "x"), band) for name, band in BANDS.items()}, coords=COORDINATES
    )


@pytest.fixture(params=["tree", "node", "zarr", "group"])
def source(request, tmp_path):
    """Return the same hierarchy in several forms, the second and last one from a/."""
    tree = xarray.DataTree.from_dict({"/a/b": dataset(), "/a/c": dataset().isel(y=[0, 1])})
    if request.param in ("tree", "node"):
        return (tree, "a/") if request.param == "tree" else (tree["a"], "")
    tree.to_zarr(tmp_path / "s.zarr", consolidated=False)
    if request.param == "zarr":
        return tmp_path / "s.zarr", "a/"
    return zarr.open_group(tmp_path / "s.zarr", mode="r")["a"], ""


def test_bands_have_their_values_and_positions(source):
    store, above = source
    paths = [f"{above}b/{name}" for name in BANDS]
    cube = daskclust.open_cube(store, variable=paths)
    expected = np.stack(list(BANDS.values()), axis=-1).reshape(-1, 2)
    np.testing.assert_array_equal(cube.samples.compute(), expected)
    assert tuple(cube.pixel_grid.transform)[:6] == (10.0, 0.0, 0.0, 0.0, -10.0, 110.0)


def test_missing_paths_are_named_with_those_that_exist(source):
    store, above = source
    for wrong in ("b02", f"{above}b", f"{above}b/b04", f"{above}b/b02/x", "z/b02"):
        with pytest.raises(KeyError, match=rf"No .* '{wrong}' .*it has \['{above}b/b02', "):
            daskclust.open_cube(store, variable=wrong)


def test_a_root_without_arrays_names_their_paths(source):
    store, above = source
    with pytest.raises(ValueError, match=rf"in groups only. Pass variable=.* '{above}b/b02'"):
        daskclust.open_cube(store)


def test_a_dataset_lists_its_variables_and_long_lists_are_cut():
    with pytest.raises(KeyError, match=r"it has \['b02', 'b03'\]\."):
        daskclust.open_cube(dataset(), variable="a/b/b02")
    many = {f"{i:02d}": (("y", "x"), BANDS["b02"]) for i in range(23)}
    tree = xarray.DataTree.from_dict({"/a": xarray.Dataset(many)})
    with pytest.raises(KeyError, match=r"'a/19'\] and 3 more"):
        daskclust.open_cube(tree, variable="b02")
