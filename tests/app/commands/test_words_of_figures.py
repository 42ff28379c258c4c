"""Figures are what their words say, and names arrive wherever a command tells something."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskclust
from daskclust.explain import drift, profiles, rules

pandas = pytest.importorskip("pandas", reason="needs the extra `dataframe`")
pytest.importorskip("pyarrow", reason="needs the extra `dataframe`")
pytest.importorskip("matplotlib")

Said = Callable[..., tuple[int, str, str]]
SHAPE = (12, 20)


def image() -> np.ndarray:
    """Two bodies of pixels, and three pixels far from everything."""
    values = np.random.default_rng(0).random((3, *SHAPE)).astype("float32")
    values[:2, :6] += 6
    values[2, 6:] += 3
    values[:, 0, :3] = [[50, 90, 20], [20, 50, 90], [90, 20, 50]]
    return values


def text_of(page: str) -> str:
    """The words of a page."""
    bare = re.sub(r"<style>.*?</style>|<script.*?</script>", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", bare))


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    xarray = pytest.importorskip("xarray")
    attributes = {"long_name": "surface_reflectance", "units": "percent"}
    array = xarray.DataArray(image(), dims=("band", "y", "x"), attrs=attributes, name="scene")
    array = array.assign_coords(wavelength=("band", [480.0, 660.0, 860.0], {"units": "nm"}))
    array.to_dataset().to_zarr(tmp_path / "s.zarr", zarr_format=2)
    return tmp_path / "s.zarr"


def test_noise_is_no_cluster(said: Said, scene: Path, address: str) -> None:
    cluster = ("--scheduler", address)
    model = daskclust.HDBSCAN(min_cluster_size=30, min_samples=4).fit(daskclust.open_cube(scene))
    labels = np.asarray(model.labels_)
    model.save("m.zarr")
    found = profiles(model, daskclust.open_cube(scene))
    # In Python labels stay what they are.
    assert found.labels.tolist() == [-1, 0, 1]
    assert found.names == ["noise", "0", "1"]
    assert (-1, "480 nm") in found.to_frame().index
    assert str(found).startswith("Profiles of 2 clusters")
    assert str(drift(model, daskclust.open_cube(scene))).startswith("Drift of 2 clusters")
    noise = int((np.asarray(model.predict(daskclust.open_cube(scene))) < 0).sum())
    assert 3 <= noise <= (labels < 0).sum() + 3
    code, out, err = said("predict", scene, "--model", "m.zarr", "--output", "p.zarr", *cluster)
    assert code == 0, err
    assert f"Pixels    {240 - noise} labeled, {noise} noise, 0 masked\n" in out
    words = ("predict", scene, "--model", "m.zarr", "--output", "q.zarr", "--json", *cluster)
    assert json.loads(said(*words)[1])["n_clusters"] == 2
    code, out, err = said("explain", "m.zarr", scene, "--output", "e.html", *cluster)
    assert code == 0, err
    # They are pixels, as in everything else that is said of scenes.
    assert re.match(r"cluster +pixels +share ", out)
    assert re.search(rf"^noise +{noise} ", out, flags=re.MULTILINE)
    text = text_of(Path("e.html").read_text())
    assert " 240 pixels 2 clusters 3 features " in text
    # Headings: only names that are numbers need a word.
    assert f"Each cluster in numbers noise {noise} pixels" in text
    assert "Cluster 0 120 pixels" in text
    assert not re.search("Cluster (noise|-1)", text)


SCALED = {
    "none": "surface reflectance (percent)",
    "standard": "standard deviations from the band's mean",
    "unit": "share of the spectrum's length",
    "whitened": "whitened share of the spectrum's length",
}


@pytest.mark.parametrize("kind", SCALED)
def test_profiles_say_what_their_values_are(
    said: Said, scene: Path, address: str, kind: str
) -> None:
    cube = daskclust.open_cube(scene, scale=kind)
    model = daskclust.KMeans(2, random_state=0).fit(cube)
    model.save("m.zarr")
    # The model remembers how its cube was scaled; this one is not.
    found = profiles(model, daskclust.open_cube(scene))
    assert found.values_are == SCALED[kind]
    bands = ["480 nm", "660 nm", "860 nm"]
    if kind == "whitened":  # mixtures of all bands
        bands = ["direction 0", "direction 1", "direction 2"]
        assert found.wavelengths is None
    assert found.features == bands
    assert {each.split(" <")[0].split(" >")[0] for each in _conditions(model, scene)} <= {*bands}
    words = ("--output", "e.html", "--scheduler", address)
    code, out, err = said("explain", "m.zarr", scene, *words)
    assert code == 0, err
    assert f"\nValues    {SCALED[kind]}\n" in out
    page = Path("e.html").read_text()
    assert f"Values: {SCALED[kind]}." in text_of(page).replace("&#x27;", "'")
    if kind != "whitened":  # as the axis of the picture
        assert page.count(SCALED[kind].replace("'", "&#x27;")) + page.count(SCALED[kind]) >= 2


def _conditions(model: Any, scene: Path) -> list[str]:
    told = rules(model, daskclust.open_cube(scene)).rules
    return [re.sub(r"^[-\d.e]+ < ", "", text) for rule in told for text in rule.conditions]


def test_units_of_bands_of_rasters_are_known(tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio")
    size = {"height": 12, "width": 20, "dtype": "float32", "driver": "GTiff"}

    def write(name: str, bands: np.ndarray, units: tuple[str, ...]) -> Path:
        with rasterio.open(tmp_path / name, "w", count=len(bands), **size) as file:
            file.write(bands)
            file.units = units
        return tmp_path / name

    cube = daskclust.open_cube(write("s.tif", image(), ("percent",) * 3))
    model = daskclust.KMeans(2, random_state=0).fit(cube)
    assert profiles(model, cube).values_are == "value (percent)"
    # They are compared, as those of any other format.
    other = daskclust.open_cube(write("other.tif", image() / 100, ("1",) * 3))
    with pytest.raises(ValueError, match="The data of the cube and the model must have the same"):
        model.predict(other)
    mixed = write("mixed.tif", image(), ("percent", "percent", "K"))
    assert "units" not in daskclust.open_cube(mixed).attributes
    files = [write(f"{n}.tif", image()[n : n + 1], ("percent",)) for n in range(3)]
    assert daskclust.open_cube(files).attributes["units"] == "percent"
    files[1] = write("1.tif", image()[1:2], ("K",))
    assert "units" not in daskclust.open_cube(files).attributes
