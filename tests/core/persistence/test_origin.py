"""Models store a description of their cube, and check other cubes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal

import daskclust
from daskclust.app.report.summary import legend_of
from daskclust.core.persistence.mixin import check_same_data, class_names_of, scene_of
from daskclust.exceptions import ModelFormatError

WAVELENGTHS = [450.0, 550.0, 650.0, 850.0]


def scene(**attributes: Any) -> Any:
    """Two kinds of pixels in four bands."""
    rng = np.random.default_rng(0)
    values = rng.normal([100, 300, 200, 900], 5, (6, 8, 4))
    values[:, 4:] = rng.normal([500, 300, 700, 100], 5, (6, 4, 4))
    return with_values(values.astype(np.int16), **attributes)


def with_values(values: np.ndarray, **attributes: Any) -> Any:
    group = zarr.create_group(zarr.storage.MemoryStore())
    array = group.create_array(
        "data", data=values, dimension_names=("y", "x", "band"), chunks=(3, 8, values.shape[2])
    )
    array.attrs.update(attributes)
    return group


def saved(model: Any, folder: Path) -> Any:
    model.save(folder / "m.zarr")
    return daskclust.load(folder / "m.zarr")


def test_bands_in_another_order_are_refused_in_python(tmp_path: Path) -> None:
    group = scene(wavelength=WAVELENGTHS)
    cube = daskclust.open_cube(group)
    model = saved(daskclust.KMeans(2, random_state=0).fit(cube), tmp_path)
    expected = model.predict(cube).compute()
    turned = with_values(group["data"][...][..., ::-1], wavelength=WAVELENGTHS[::-1])
    for call in (model.predict, model.transform, model.score):
        with pytest.raises(ValueError, match="has 850 nm, and the band of the model has 450 nm"):
            call(daskclust.open_cube(turned))
    assert_array_equal(model.predict(daskclust.open_cube(group)), expected)


def test_names_of_bands_come_from_the_coordinate_of_the_bands(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    values = np.arange(3 * 4 * 5, dtype="float32").reshape(3, 4, 5)
    names = ["blå", "rød <1>", "nir"]
    image = xarray.DataArray(values, dims=("band", "y", "x"), coords={"band": names}, name="s")
    group = zarr.create_group(tmp_path / "s.zarr")
    group.create_array("s", data=values, dimension_names=("band", "y", "x"))
    text = group.create_array("band", shape=3, dtype="string", dimension_names=("band",))
    text[:] = np.array(names, dtype=object)
    image.to_netcdf(tmp_path / "s.nc", engine="h5netcdf")
    model = daskclust.KMeans(2, random_state=0).fit(daskclust.open_cube(image))
    for source in (image, tmp_path / "s.zarr", tmp_path / "s.nc"):
        cube = daskclust.open_cube(source)
        assert cube.attributes["band_names"] == names
        model.predict(cube)
    with pytest.raises(ValueError, match=r"Band 'nir' is number 0 in the cube, and number 2"):
        model.predict(daskclust.open_cube(image[::-1]))
    # Numbers are places, not names.
    assert "band_names" not in daskclust.open_cube(image.assign_coords(band=[1, 2, 3])).attributes


def test_bands_are_compared_by_name_where_there_are_no_wavelengths() -> None:
    names = ["B02", "B03", "B04", "B08"]
    group = scene(band_names=names)
    model = daskclust.KMeans(2, random_state=0).fit(daskclust.open_cube(group))
    assert scene_of(model)["band_names"] == names
    turned = with_values(group["data"][...][..., ::-1], band_names=names[::-1])
    with pytest.raises(ValueError, match="'B08' is number 0 in the cube, and number 3"):
        model.predict(daskclust.open_cube(turned))
    model.predict(daskclust.open_cube(with_values(group["data"][...], band_names=names)))
    # Names of another sensor say nothing.
    other = with_values(group["data"][...], band_names=["blue", "green", "red", "nir"])
    model.predict(daskclust.open_cube(other))


def test_bands_are_compared_by_number_where_nothing_else_is_known() -> None:
    group = scene()
    model = daskclust.KMeans(2, random_state=0).fit(daskclust.open_cube(group, bad_bands="0"))
    model.predict(daskclust.open_cube(group, bad_bands="0"))
    with pytest.raises(ValueError, match="Feature 0 is band 0 of the cube, and was band 1 of 4"):
        model.predict(daskclust.open_cube(group, bad_bands="3"))


def test_digital_numbers_for_reflectances_are_refused(tmp_path: Path) -> None:
    group = scene(scale_factor=1e-4, add_offset=0.0)
    model = saved(daskclust.KMeans(2, random_state=0).fit(daskclust.open_cube(group)), tmp_path)
    raw = daskclust.open_cube(with_values(group["data"][...]))
    with pytest.raises(ValueError, match="those of the cube are stored int16 numbers"):
        model.predict(raw)
    one, other = (scene(units=unit) for unit in ("1", "W m-2 sr-1"))
    model = daskclust.KMeans(2, random_state=0).fit(daskclust.open_cube(one))
    with pytest.raises(ValueError, match="same unit, got 'W m-2 sr-1' and '1'"):
        model.predict(daskclust.open_cube(other))


def test_models_of_grids_remember_their_cube() -> None:
    cube = daskclust.open_cube(scene(wavelength=WAVELENGTHS), scale="standard")
    found = daskclust.selection.choose_n_clusters(
        daskclust.KMeans(random_state=0), cube, [2, 3], criterion="silhouette"
    )
    model = found.best_estimator
    assert scene_of(model)["wavelengths"] == WAVELENGTHS
    plain = daskclust.open_cube(scene(wavelength=WAVELENGTHS))
    assert_array_equal(model.predict(plain), model.predict(cube))


def test_names_of_classes_are_saved_with_the_model(tmp_path: Path) -> None:
    cube = daskclust.open_cube(scene())
    labels = zarr.create_group(zarr.storage.MemoryStore())
    codes = np.full((6, 8), -1, np.int16)
    codes[0, 1], codes[2, 6] = 3, 7
    labels.create_array("labels", data=codes).attrs.update(
        flag_values=[3, 7],
        flag_meanings="low_vegetation bare_soil",
        flag_colors="#102030 #405060",
        class_names={"3": "low vegetation", "7": "bare soil"},
    )
    model = saved(daskclust.SemiSupervisedKMeans(2, random_state=0).fit(cube, labels), tmp_path)
    assert class_names_of(model)[0] == {3: "low vegetation", 7: "bare soil"}
    legend = legend_of(model)
    assert legend.names == ("low vegetation", "bare soil")
    assert legend.colors == ("#102030", "#405060")
    # Nothing is remembered of an earlier fit.
    model.fit(cube, (np.array([0, 20]), np.array([3, 7])))
    assert class_names_of(model) == ({}, {})
    # Clusters that are not classes do not get class names by equal numbers.
    codes[codes >= 0] //= 4
    labels["labels"][...] = codes
    labels["labels"].attrs.update(class_names={"0": "low vegetation", "1": "bare soil"})
    clusters = daskclust.PCSKMeans(2, random_state=0).fit(cube, labels)
    assert legend_of(clusters).names == ("cluster_0", "cluster_1")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("_cube_data", {"bands": [0, 1]}),
        ("_cube_data", {"wavelengths": ["a", "b", "c", "d"]}),
        ("_cube_data", {"more": 1}),
        ("_class_names", {"names": {"x": "wheat"}}),
        ("_class_names", {"names": {"1": 2}}),
    ],
)
def test_what_contradicts_the_model_is_no_model(name: str, change: Any) -> None:
    model = daskclust.KMeans(2, random_state=0).fit(daskclust.open_cube(scene()))
    entry = type(model)._saved_state.get(name) or daskclust.core.persistence.mixin.ENTRIES[name]
    said = getattr(model, name, {"names": {}, "colors": {}})
    assert entry.restore(name, said, {}, {"p": 4}) == said
    with pytest.raises(ModelFormatError, match=name):
        entry.restore(name, {**said, **change}, {}, {"p": 4})


def test_a_model_of_an_array_takes_any_cube_of_as_many_bands() -> None:
    cube = daskclust.open_cube(scene())
    model = daskclust.KMeans(2, random_state=0).fit(cube.samples)
    check_same_data(model, cube)
    assert len(model.predict(cube)) == cube.n_valid
