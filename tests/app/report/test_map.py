"""The map of a report: its layers as text, axes, legend; and the viewer in a browser."""

from __future__ import annotations

import base64
import itertools
import json
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal
from test_report import browse, needs_browser, read

import daskclust
from daskclust.app.report._report import spectrum_axes
from daskclust.app.report.summary import MapSummary, legend_of, summarize

pytest.importorskip("matplotlib", reason="reports need matplotlib")
from daskclust.app.report import write_report
from daskclust.app.report._report import packed
from daskclust.app.report.sections import mostly_of

UTM = {"proj:code": "EPSG:32632", "spatial:transform": [30.0, 0.0, 600000.0, 0.0, -30.0, 5.1e6]}


def inflate(text: str, dtype: str) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype)


def summary_of(labels: np.ndarray, values: np.ndarray | None = None) -> MapSummary:
    k = int(labels.max()) + 1
    lazy = None if values is None else da.from_array(values)
    return summarize(da.from_array(labels), range(k), values=lazy)


def scene(shape: tuple[int, int] = (12, 20), **attributes: Any) -> Any:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 5, (*shape, 4)).astype(np.int16)
    values[0, :3] = -9
    group = zarr.create_group(zarr.storage.MemoryStore(), attributes=UTM)
    group.create_array(
        "cube",
        data=values,
        dimension_names=("y", "x", "band"),
        attributes={"_FillValue": -9, "wavelength": [400.0, 900.0, 1800.0, 3500.0], **attributes},
    )
    return daskclust.open_cube(group)


def test_more_clusters_than_two_bytes_hold() -> None:
    summary = summary_of(np.array([[0, 1, -1]]))
    for n, size in ((65_535, 2), (65_536, 4)):
        found = packed(replace(summary, preview=np.array([[0, n - 1, -1]])), n)
        assert found["bytes"] == size
        assert inflate(found["labels"], f"<u{size}").tolist() == [1, n, 0]


def test_layers_are_the_map() -> None:
    labels = np.array([[0, 1, 2], [-1, 2, 0]])
    margins = np.array([[0.0, 0.5, 1.0], [np.nan, np.nan, 0.126]], "float32")
    found = packed(summary_of(labels, margins), 3)
    assert (found["width"], found["height"], found["step"], found["bytes"]) == (3, 2, 1, 1)
    assert inflate(found["labels"], "u1").tolist() == [1, 2, 3, 0, 3, 1]
    assert inflate(found["margins"], "u1").tolist() == [0, 50, 100, 255, 255, 13]
    many = packed(summary_of(np.array([[0, 299]])), 300)
    assert many["bytes"] == 2
    assert inflate(many["labels"], "<u2").tolist() == [1, 300]


def test_noise_is_thinned_out_until_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.random.default_rng(0).integers(0, 200, (300, 310))
    monkeypatch.setattr("daskclust.app.report._report._MAX_CHARACTERS", 30_000)
    found = packed(summary_of(labels), 200)
    assert len(found["labels"]) <= 30_000
    step = found["step"]
    assert step > 1
    shown = inflate(found["labels"], "u1").reshape(found["height"], found["width"])
    assert_array_equal(shown, labels[::step, ::step] + 1)


def test_axes_are_in_the_units_of_the_system() -> None:
    pytest.importorskip("pyproj")
    axes = scene().pixel_grid.axes
    assert (axes.left, axes.across, axes.top, axes.down) == (600000.0, 30.0, 5.1e6, -30.0)
    assert (axes.x_name, axes.y_name) == ("Easting (m)", "Northing (m)")
    assert axes.pixel == "30 x 30 m"
    assert "UTM zone 32N" in str(axes.system)
    plain = daskclust.open_cube(np.ones((3, 4, 2)), dims=("y", "x", "band"))
    assert plain.pixel_grid.axes.x_name == "Column (pixel)"


def test_spectra_are_in_the_units_of_the_sensor() -> None:
    given = scene(units="W m-2 sr-1", long_name="radiance")
    wavelengths, x_name, y_name = spectrum_axes(given, "none")
    assert y_name == "radiance (W m-2 sr-1)"
    assert x_name == "wavelength (\N{MICRO SIGN}m)"
    assert wavelengths is not None
    assert wavelengths.tolist() == [0.4, 0.9, 1.8, 3.5]
    plain = daskclust.open_cube(np.ones((3, 4, 2)), dims=("y", "x", "band"))
    assert spectrum_axes(plain, "none")[1] == "band"


def test_clusters_are_told_by_what_is_known_of_them() -> None:
    table = {"classes": [1, 2], "clusters": [4, 0], "counts": [[0, 9], [5, 1]]}
    assert mostly_of({"truth": {**table, "class_names": ["sea", "ice"]}}) == {
        4: "100% ice",
        0: "90% sea",
    }
    assert mostly_of(None) == {}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    cube = scene()
    rows = np.arange(40)
    model = daskclust.SemiSupervisedKMeans(3, random_state=0)
    model.fit(cube, (rows, np.where(rows % 2, 11, 4)))
    margin = np.linspace(0, 1, cube.n_valid)
    path = tmp_path_factory.mktemp("map") / "r.html"
    write_report(
        path,
        cube=cube,
        model=model,
        class_names={4: "winter wheat", 11: "</script><b>x"},
        uncertainty=margin,
        uncertainty_is="a gap",
    )
    return path, model


def data_in(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="map-data">(.*?)</script>', text)
    assert found is not None
    return json.loads(found[1])


def test_classes_keep_codes_and_names_in_the_report(page: tuple[Path, Any]) -> None:
    data = data_in(page[0])
    assert data["codes"] == [4, 11, 12]
    assert data["names"] == ["winter wheat", "</script><b>x", "cluster_12"]
    assert data["colors"] == list(legend_of(page[1]).colors)
    labels = inflate(data["labels"], "u1").reshape(12, 20)
    assert (labels[0, :3] == 0).all()
    assert (inflate(data["margins"], "u1").reshape(12, 20)[0, :3] == 255).all()
    text = read(page[0]).text
    for word in (
        "winter wheat",
        "Margin: a gap.",
        "Uncertainty",
        "2 classes, 1 cluster of no class",
    ):
        assert word in text, word
    if data["unit"] == "m":
        assert "area (ha)" in text
        assert "pixels of 30 x 30 m" in text


@pytest.mark.parametrize("named", [True, False])
def test_errors_are_where_the_known_class_is_another(tmp_path: Path, named: bool) -> None:
    cube = scene()
    rows = np.arange(40)
    if named:
        model = daskclust.SemiSupervisedKMeans(3, random_state=0)
        model.fit(cube, (rows, np.where(rows % 2, 11, 4)))
    else:
        model = daskclust.KMeans(3, random_state=0).fit(cube)
    # 25 is no class of the map.
    truth = np.random.default_rng(1).choice([-1, 4, 11, 25], cube.shape[:2])
    write_report(tmp_path / "r.html", cube=cube, model=model, truth=truth)
    found = np.asarray(cube.to_map(legend_of(model).encode(np.asarray(model.labels_)))).ravel()
    known, compared = truth.ravel(), (found >= 0) & (truth.ravel() >= 0)
    if named:
        right = compared & (found == known)
    else:
        ways = itertools.permutations(range(3))
        right = max(
            (compared & (np.array(way)[found] == known_at(known)) for way in ways),
            key=np.count_nonzero,
        )
    data = data_in(tmp_path / "r.html")
    places = inflate(data["known"], "u1").astype(int)
    assert_array_equal(places, np.where(compared, known_at(known) + 1, 0))
    assert data["knownNames"] == ["4", "11", "25"]
    labels = inflate(data["labels"], "u1").astype(int)
    told = np.array([-1, *data["matches"]])[places] == labels - 1
    assert_array_equal(compared & told, right)
    n, m = np.count_nonzero(right), np.count_nonzero(compared)
    text = read(tmp_path / "r.html").text
    assert f"right {n:,} ({n / m:.1%})" in text
    assert f"wrong {m - n:,} ({(m - n) / m:.1%})" in text
    assert f"Of {m:,} pixels of known class" in text
    assert ("matches it best" in text) is not named


def known_at(known: np.ndarray) -> np.ndarray:
    return np.select([known == 4, known == 11, known == 25], [0, 1, 2], -1)


@needs_browser
def test_the_viewer_paints_what_is_asked_for(page: tuple[Path, Any], tmp_path: Path) -> None:
    document = browse(page[0], tmp_path, "--dump-dom")
    viewer = re.search(r'<figure class="viewer"[^>]*>.*?</figure>', document, re.DOTALL)
    assert viewer is not None
    assert 'data-ready="yes"' in viewer[0]
    assert re.search(r"<img[^>]* hidden", viewer[0])
    assert not re.search(r"<canvas[^>]* hidden", viewer[0])
    # Boxes of the legend came to life.
    assert len(re.findall(r'type="checkbox"', document)) == 3
    assert not re.search(r'type="checkbox"[^>]* hidden', document)
