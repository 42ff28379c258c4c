"""Pictures and HTML of cubes and label maps."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal

matplotlib = pytest.importorskip("matplotlib", reason="needs the extra `plot`")
matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402

from daskclust import Cube, open_cube  # noqa: E402
from daskclust.scenes import LabelMap  # noqa: E402


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.fixture
def cube() -> Cube:
    values = np.arange(4 * 6 * 4, dtype="int16").reshape(4, 6, 4)
    values[0, 0] = -1
    array = zarr.create_array(
        zarr.storage.MemoryStore(),
        data=values,
        chunks=(2, 6, 4),
        dimension_names=("y", "x", "band"),
        attributes={
            "_FillValue": -1,
            "wavelength": [470, 550, 660, 900],
            "crs_wkt": "EPSG:32632",
            "transform": [30, 0, 6e5, 0, -30, 5.2e6],
            "units": "DN <raw>",
        },
    )
    return open_cube(array)


def test_a_cube_in_colors(cube: Cube) -> None:
    ax = cube.plot()
    shown = ax.images[0]
    assert shown.get_array().shape == (4, 6, 3)
    assert ax.get_title(loc="left") == "660 nm, 550 nm, 470 nm"
    assert shown.get_extent() == [6e5, 6e5 + 180, 5.2e6 - 120, 5.2e6]
    assert ax.get_xlabel() == "easting (m)"
    # No data are dark, not a color.
    assert_array_equal(np.unique(shown.get_array()[0, 0]), [0.1])


def test_a_band(cube: Cube) -> None:
    figure, mine = plt.subplots()
    ax = cube.plot(3, ax=mine, title="near infrared")
    assert ax is mine
    shown = np.ma.getdata(ax.images[0].get_array())
    assert np.isnan(shown[0, 0])
    assert shown[0, 1] == 7
    assert ax.get_title(loc="left") == "near infrared"
    assert figure.axes[1].get_ylabel() == "900 nm (DN <raw>)"
    with pytest.raises(ValueError, match=r"bands must be one number or three .* got 4"):
        cube.plot(4)
    with pytest.raises(ValueError, match=r"bands must be one number or three .*, got \[0, 1\]"):
        cube.plot([0, 1])


def test_a_large_scene_is_thinned_out() -> None:
    labels = LabelMap(np.arange(4000, dtype="int32")[:, None] // 2000)
    assert labels.plot().images[0].get_array().shape == (1334, 1, 3)


def test_a_label_map_with_its_legend(cube: Cube) -> None:
    labels = np.arange(cube.n_valid) % 3
    found = cube.label_map(labels, class_names=["wheat", "sugar beet", "water", "none here"])
    ax = found.plot()
    entries = ax.get_legend()
    said = [text.get_text() for text in entries.get_texts()]
    assert said == ["wheat", "sugar beet", "water", "none here", "no class"]
    image = ax.images[0]
    codes = cube.to_map(labels).compute()
    drawn = image.get_array() / 255
    for code, patch in enumerate(entries.get_patches()[:3]):
        assert_array_equal(drawn[codes == code][0], patch.get_facecolor()[:3])
    assert not (drawn[codes == -1] == drawn[codes == 0][0]).all()


def test_labels_that_are_text(cube: Cube) -> None:
    text = np.array(["water", "wheat"], dtype=object)[np.arange(cube.n_valid) % 2]
    found = cube.label_map(text, classes=["water", "wheat"])
    assert_array_equal(found.values.compute(), cube.to_map(np.arange(cube.n_valid) % 2).compute())
    assert found.names == {0: "water", 1: "wheat"}
    assert found.to_xarray().attrs["flag_meanings"] == "water wheat"
    # In memory the names are known, lazily they are not.
    assert cube.label_map(text).names == {0: "water", 1: "wheat"}
    with pytest.raises(ValueError, match="classes="):
        cube.label_map(da.from_array(text.astype(str), chunks=7))


def test_html_of_a_cube_reads_nothing(cube: Cube) -> None:
    text = cube._repr_html_()
    assert "_survey" not in vars(cube)
    assert "not counted yet" in text
    # Not what the files take.
    assert " uncompressed<" in text
    assert "WGS 84 / UTM zone 32N (EPSG:32632)" in text
    assert "470 to 900 nm" in text
    assert "x 600000 to 600180, y 5200000 to 5199880" in text
    cube.n_valid  # noqa: B018
    assert ">23<" in cube._repr_html_()


def test_html_of_a_cube_names_its_quantization() -> None:
    codes = np.ones((2, 3, 64), dtype="int8")
    cube = open_cube(codes, dims=("y", "x", "band"), quantization="alphaearth")
    assert "alphaearth" in cube._repr_html_()


def test_html_of_a_label_map_escapes_names(cube: Cube) -> None:
    found = cube.label_map(np.zeros(cube.n_valid, int), class_names=["<script>alert(1)</script>"])
    text = found._repr_html_()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "background:#0072b2" in text
    assert (
        len(LabelMap(np.zeros((2, 2), int), names={k: "x" for k in range(99)})._repr_html_()) < 2e4
    )
