"""Figures are what their words say, and names arrive wherever a command tells something."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskclust
from daskclust.cube.pixels import questions_of
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


def test_rows_of_noise_in_reports_of_tables(said: Said, tmp_path: Path, address: str) -> None:
    pandas.DataFrame(image().reshape(3, -1).T, columns=list("abc")).to_parquet("t.parquet")
    words = ("t.parquet", "--estimator", "hdbscan", "--min-cluster-size", 30, "--min-samples", 4)
    code, out, err = said("fit", *words, "--report", "r.html", "--scheduler", address)
    assert code == 0, err
    clustered, noise = re.search(r"Rows +(\d+) clustered, (\d+) noise", out).groups()
    text = text_of(Path("r.html").read_text())
    assert f" {clustered} rows clustered {noise} rows of noise 3 columns " in text


def test_values_of_a_column_of_vectors_are_no_columns(
    said: Said, tmp_path: Path, address: str
) -> None:
    rows = image().reshape(3, -1).T[3:]
    pandas.DataFrame({"e": rows.tolist()}).to_parquet("v.parquet")
    words = ("v.parquet", "--columns", "e", "--estimator", "sparsekmeans", "--sparsity", 1.3)
    more = ("--n-clusters", 2, "--report", "r.html", "--scheduler", address)
    code, out, err = said("fit", *words, *more)
    assert code == 0, err
    assert re.search(r"^Values    \d with weight$", out, flags=re.MULTILINE)
    text = text_of(Path("r.html").read_text())
    assert "SparseKMeans of 3 values of e. " in text
    assert " 237 rows clustered 3 values of e " in text


def test_clusters_of_no_class_are_called_as_in_the_map(
    said: Said, scene: Path, address: str
) -> None:
    cluster = ("--scheduler", address)
    cube = daskclust.open_cube(scene)
    y = ([30, 200], [3, 7])
    model = daskclust.SemiSupervisedKMeans(3, random_state=0).fit(cube, y)
    model.save("m.zarr")
    out = said("explain", "m.zarr", scene, *cluster)[1]
    # The classes are 3 and 7, so the third cluster has the code 8 in maps.
    assert re.search(r"^cluster_8 \(2\) +3 ", out, flags=re.MULTILINE)
    Path("new.csv").write_text("old,new\ncluster_8,glint\n3,meadow\n")
    assert said("rename", "m.zarr", "new.csv")[0] == 0
    code, out, err = said("predict", scene, "--model", "m.zarr", "--output", "p.zarr", *cluster)
    assert code == 0, err
    assert re.search(r"^ +8  glint +3 pixels", out, flags=re.MULTILINE)
    out = said("explain", "m.zarr", scene, *cluster)[1]
    assert re.search(r"^glint \(2\) +3 ", out, flags=re.MULTILINE)
    assert re.search(r"^meadow \(0\) ", out, flags=re.MULTILINE)


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


@pytest.mark.parametrize("kind", SCALED)
def test_spectra_of_a_prediction_are_in_the_units_that_they_have(
    said: Said, scene: Path, address: str, kind: str
) -> None:
    cube = daskclust.open_cube(scene, scale=kind)
    model = daskclust.KMeans(2, random_state=0).fit(cube)
    model.save("m.zarr")
    words = ("--model", "m.zarr", "--report", "r.html", "--scheduler", address)
    code, _, err = said("predict", scene, *words)
    assert code == 0, err
    page = Path("r.html").read_text()
    start = page.find("Cluster spectra")
    if kind == "whitened":
        assert start < 0
        return
    picture = page[start : page.index("</svg>", start)]
    wanted = SCALED["none" if kind == "standard" else kind]
    assert wanted in picture.replace("&#x27;", "'")
    if kind == "standard":
        # The far pixels have a mean of some 50 percent, and of 9 deviations.
        texts = re.findall(r">([\d.]+)<", picture)
        assert max(float(text) for text in texts if float(text) < 100) >= 20


def test_names_of_bands_are_in_questions(tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio")
    options = {"count": 3, "height": 12, "width": 20, "dtype": "float32", "driver": "GTiff"}
    with rasterio.open(tmp_path / "s.tif", "w", **options) as file:
        file.write(image())
        file.descriptions = ("blue", "row", "nir band")
    from daskclust.asking.files import QuestionsFile, write_questions
    from daskclust.asking.pictures import Pictures

    cube = daskclust.open_cube(tmp_path / "s.tif", bad_bands=[0])
    questions = questions_of(cube, np.array([4, 9]))
    assert questions.bands == ["row", "nir band"]
    assert Pictures(cube).band_names == ["row", "nir band"]
    write_questions(QuestionsFile(str(tmp_path / "a.csv")), questions)
    # A band of the name of a column does not hide it.
    with (tmp_path / "a.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["row"], line["column"]) for line in lines] == [("0", "4"), ("0", "9")]
    assert [float(line["band row"]) for line in lines] == pytest.approx(image()[1, 0, [4, 9]])


def test_a_map_of_changes_says_what_it_compares(said: Said, scene: Path, address: str) -> None:
    pytest.importorskip("rasterio")
    cube = daskclust.open_cube(scene)
    labels = np.arange(240) % 2
    cube.write_labels(labels, "a.tif")
    cube.write_labels(np.where(np.arange(240) < 9, 1, labels), "b.zarr")
    for name in ("c.tif", "c.zarr"):
        words = ("a.tif", "b.zarr", "--match", "code", "--output", name, "--scheduler", address)
        code, _, err = said("compare", *words)
        assert code == 0, err
        code, out, err = said("inspect", name)
        assert code == 0, err
        assert 'classes: ["unchanged", "cluster_0 -> cluster_1"]\n' in out
        assert out.endswith("job: compare of a.tif and b.zarr\n")


def test_seconds_of_a_fit_hold_its_start(said: Said, scene: Path, address: str) -> None:
    words = ("--n-clusters", 3, "--model", "m.zarr", "--json", "--scheduler", address)
    code, out, err = said("fit", scene, *words)
    assert code == 0, err
    found = json.loads(out)
    model = daskclust.load("m.zarr")
    of_iterations = sum(record["seconds"] for record in model.history_)
    assert found["iteration_seconds"] == pytest.approx(of_iterations)
    assert of_iterations < found["fit_seconds"] < found["seconds"]


def test_a_map_of_margins_says_what_it_is_in_other_programs(
    said: Said, scene: Path, address: str
) -> None:
    rasterio = pytest.importorskip("rasterio")
    words = ("--n-clusters", 3, "--uncertainty", "u.tif", "--scheduler", address)
    code, _, err = said("fit", scene, *words)
    assert code == 0, err
    with rasterio.open("u.tif") as file:
        tags = file.tags()
        assert file.descriptions == ("margin",)
    assert tags["long_name"] == "margin"
    assert tags["description"].startswith("1 less the distance to the nearest center")
    # What is no text is JSON.
    assert json.loads(tags["daskclust_job"])["estimator"] == "KMeans"


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
    with pytest.raises(ValueError, match=r"The cube is in '1', .* data in 'percent'"):
        model.predict(other)
    mixed = write("mixed.tif", image(), ("percent", "percent", "K"))
    assert "units" not in daskclust.open_cube(mixed).attributes
    files = [write(f"{n}.tif", image()[n : n + 1], ("percent",)) for n in range(3)]
    assert daskclust.open_cube(files).attributes["units"] == "percent"
    files[1] = write("1.tif", image()[1:2], ("K",))
    assert "units" not in daskclust.open_cube(files).attributes


def test_means_are_called_means(said: Said, scene: Path, address: str) -> None:
    words = ("--estimator", "gaussianmixture", "--n-components", 2, "--report", "r.html")
    code, out, err = said("fit", scene, *words, "--uncertainty", "u.zarr", "--scheduler", address)
    assert code == 0, err
    assert re.search(r"^Bound +-?[\d.]+ of the log-likelihood a row$", out, flags=re.MULTILINE)
    assert " area " not in (text := text_of(Path("r.html").read_text()))
    assert " share mean margin " in text
