"""Reports: what is in them, nothing from elsewhere, and a browser that shows them."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import itertools
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray
import zarr
from numpy.testing import assert_allclose, assert_array_equal

import daskclust
from daskclust import plotting
from daskclust.app.report.summary import agreement_of, compare_classes, known_classes, summarize
from daskclust.colors import Legend
from daskclust.exceptions import DaskclustWarning
from daskclust.metrics import accuracy_report
from daskclust.scenes._open_array import Image

pytest.importorskip("matplotlib", reason="reports need matplotlib")
from daskclust.app.report import write_report

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no headless Chromium here: install chromium to look at reports"
)
EVIL = '"><script>document.title="owned"</script><img src=x onerror=alert(1)>'


def make_cube(shape: tuple[int, int] = (30, 40), **options: Any) -> Any:
    group = daskclust.datasets.make_hyperspectral_cube(
        zarr.storage.MemoryStore(),
        shape=shape,
        n_bands=12,
        n_classes=3,
        chunks=(15, 20),
        random_state=0,
    )
    return daskclust.open_cube(group, **options), group["truth"][:]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    cube, truth = make_cube(scale="standard", bad_bands=[5])
    few = np.where(np.arange(40) % 7 == 0, truth, -1)
    model = daskclust.PCSKMeans(3, sparsity=2.0, random_state=0)
    # Four rows, each apart from all others, in three clusters.
    apart = list(itertools.combinations([1, 2, 3, 4], 2))
    model.fit(cube.samples, cube.rows_of(few), cannot_link=apart)
    path = tmp_path_factory.mktemp("report") / "r.html"
    written = write_report(
        path,
        cube=cube,
        model=model,
        truth=truth,
        title=f"Scene {EVIL}",
        class_names=["a", EVIL, "c"],
        configuration={"store": EVIL, "nested": {"key": 1}},
    )
    assert written == path
    return path, model


class Reader(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


def test_everything_is_inside(page: tuple[Path, Any]) -> None:
    path, _ = page
    reader = read(path)
    assert not [tag for tag, _ in reader.tags if tag in ("link", "iframe", "object")]
    # Data, and one script, which the policy knows by its hash.
    scripts = [attributes for tag, attributes in reader.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "map-data"}, {}]
    script = re.findall(r"<script>(.*?)</script>\s*</body>", path.read_text(), re.DOTALL)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    for tag, attributes in reader.tags:
        for name in ("src", "href", "xlink:href", "action", "data"):
            value = attributes.get(name) or "#"
            assert value.startswith(("#", "data:image/png;base64,")), (tag, name, value[:80])
        assert not [name for name in attributes if name.startswith("on")]
    assert "@import" not in path.read_text()
    assert not re.findall(r"url\((?!#)", path.read_text())
    policy = [a["content"] for t, a in reader.tags if t == "meta" and "http-equiv" in a]
    assert policy
    assert policy[0].startswith("default-src 'none'")
    assert f"script-src 'sha256-{digest}'" in policy[0]


def test_names_cannot_become_tags(page: tuple[Path, Any]) -> None:
    reader = read(page[0])
    assert reader.text.count("<script>document.title") >= 3  # as text
    assert "onerror" not in [name for _, attributes in reader.tags for name in attributes]


def test_ids_are_unique_on_the_page(page: tuple[Path, Any]) -> None:
    ids = [a["id"] for _, a in read(page[0]).tags if "id" in a]
    assert len(ids) == len(set(ids))
    text = page[0].read_text()
    for target in re.findall(r'(?:href="|url\()#([^")]+)', text):
        assert target in ids


def test_plain_models_and_arrays(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((9, 8, 4))
    cube = daskclust.open_cube(values, dims=("y", "x", "band"))
    model = daskclust.KMeans(2, random_state=0).fit(cube.samples)
    write_report(tmp_path / "r.html", cube=cube, model=model)
    text = read(tmp_path / "r.html").text
    assert "The scene in three bands" in text
    assert "Agreement" not in text
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write_report(tmp_path / "r.html", cube=cube, model=model)
    write_report(tmp_path / "r.html", cube=cube, model=model, overwrite=True, labels=model.labels_)
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


def test_a_masked_truth_is_none(tmp_path: Path) -> None:
    cube, truth = make_cube()
    hidden = np.arange(truth.size).reshape(truth.shape) % 3 == 0
    model = daskclust.KMeans(3, random_state=0).fit(cube)
    pages = []
    for number, known in enumerate(
        (
            np.where(hidden, -1, truth),
            np.ma.masked_array(np.where(hidden, 1, truth), hidden),
            da.from_array(np.ma.masked_array(np.where(hidden, 2, truth), hidden), chunks=15),
        )
    ):
        path = tmp_path / f"{number}.html"
        write_report(path, cube=cube, model=model, truth=known)
        pages.append(re.sub(r"Written [^<]* UTC", "", path.read_text()))
    assert pages[0] == pages[1] == pages[2]
    with pytest.raises(ValueError, match="truth must have the shape"):
        write_report(tmp_path / "3.html", cube=cube, model=model, truth=truth.ravel())


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cube, _ = make_cube()
    model = daskclust.KMeans(2, random_state=0).fit(cube.samples)
    (tmp_path / "r.html").write_text("old")
    with pytest.raises(FileExistsError, match="was not written by daskclust"):
        write_report(tmp_path / "r.html", cube=cube, model=model, overwrite=True)
    (tmp_path / "r.html").unlink()
    write_report(tmp_path / "r.html", cube=cube, model=model)
    old = (tmp_path / "r.html").read_text()

    def fail(self: Any, job: str) -> str:
        raise OSError("disk full")

    monkeypatch.setattr("daskclust.app.report.page.Page.html", fail)
    with pytest.raises(OSError, match="disk full"):
        write_report(tmp_path / "r.html", cube=cube, model=model, overwrite=True)
    assert (tmp_path / "r.html").read_text() == old
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"daskclust\[plot\]"):
        write_report(tmp_path / "r.html", cube=cube, model=model, overwrite=True)


# Parts


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_report_never_hides_a_store(overwrite: bool) -> None:
    cube, truth = make_cube()
    place = f"memory://hidden-{overwrite}/scene.zarr"
    daskclust.datasets.make_hyperspectral_cube(place, shape=(9, 9), n_bands=3)
    model = daskclust.KMeans(3, random_state=0).fit(cube)
    with pytest.raises(FileExistsError, match=r"scene.zarr' must be an HTML file, got a folder"):
        write_report(place, cube=cube, model=model, truth=truth, overwrite=overwrite)
    assert daskclust.open_cube(place).shape == (9, 9, 3)


def test_a_summary_counts_and_thins_out() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(-1, 4, (3100, 30)).astype(np.int16)
    image = da.from_array(labels, chunks=(500, 7))
    found = summarize(image, range(5))
    assert found.sizes.tolist() == [*np.bincount(labels[labels >= 0], minlength=4), 0]
    assert found.step == 2
    assert_array_equal(found.preview, labels[::2, ::2])
    # Codes of classes are any numbers.
    codes = np.array([3, 11, 12, 500])
    again = summarize(da.from_array(np.where(labels < 0, -1, codes[labels])), codes)
    assert again.sizes.tolist() == found.sizes[:4].tolist()
    assert_array_equal(again.preview, found.preview)


def test_the_accuracy_of_polygons_has_an_interval_of_polygons(tmp_path: Path) -> None:
    pytest.importorskip("pyogrio")
    rng = np.random.default_rng(0)
    units = np.repeat(np.repeat(np.arange(24).reshape(4, 6), 8, axis=0), 7, axis=1)
    truth = units % 3
    wrong = rng.random(24) < 0.3
    image = np.where(wrong[units] & (rng.random(units.shape) < 0.5), (truth + 1) % 3, truth)
    features = []
    for number in range(24):
        (y, x), names = divmod(number, 6), ["elm", "fir", "oak"]
        left, top = 5e5 + 70 * x, -80 * y
        ring = [(0, 0), (70, 0), (70, -80), (0, -80), (0, 0)]
        shape = {"type": "Polygon", "coordinates": [[[left + a, top + b] for a, b in ring]]}
        about = {"class": names[number % 3]}
        features.append({"type": "Feature", "properties": about, "geometry": shape})
    system = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::32633"}}
    whole = {"type": "FeatureCollection", "crs": system, "features": features}
    (tmp_path / "fields.geojson").write_text(json.dumps(whole))
    place = {"crs_wkt": "EPSG:32633", "GeoTransform": "500000 10 0 0 0 -10"}
    scene = xarray.DataArray(
        np.ones((*truth.shape, 2)), dims=("y", "x", "band"), attrs={"grid_mapping": "spatial_ref"}
    ).assign_coords(spatial_ref=xarray.DataArray(0, attrs=place))
    cube = daskclust.open_cube(scene, chunks=(9, 10))
    opened = cube.open_map("truth", tmp_path / "fields.geojson")
    known = da.where(da.from_array(units, chunks=cube.chunks) == 5, -1, known_classes(opened, ()))
    shown = da.from_array(image, chunks=cube.chunks)
    found = agreement_of(shown, known, cube.blocks, opened)
    legend = Legend((0, 1, 2), ("elm", "fir", "oak"), ("", "", ""), classes=frozenset(range(3)))
    compare_classes(found, legend, opened, warns=True)
    some = (units != 5).ravel()
    expected = accuracy_report(truth.ravel()[some], image.ravel()[some], groups=units.ravel()[some])
    assert found["independent_units"] == expected.n_units == 23
    assert found["accuracy"] == expected.overall
    assert_allclose(found["accuracy_interval"], expected.overall_interval)
    plain = agreement_of(shown, known, cube.blocks)
    for name in ("ari", "nmi", "pairwise_f", "pixels", "counts"):
        assert found[name] == plain[name]
    assert "by_unit" not in found
    few = da.where(da.from_array(units, chunks=cube.chunks) < 4, known, -1)
    found = agreement_of(shown, few, cube.blocks, opened)
    with pytest.warns(DaskclustWarning, match="is based on 4 independent units"):
        compare_classes(found, legend, opened, warns=True)


def test_a_prediction_does_not_tell_the_course_of_the_fit(tmp_path: Path) -> None:
    cube, _ = make_cube()
    model = daskclust.KMeans(3, random_state=0).fit(cube.samples)
    texts = []
    for predicted in (False, True):
        place = tmp_path / f"{predicted}.html"
        write_report(place, cube=cube, model=model, predicted=predicted)
        texts.append(place.read_text().partition("<details")[0])
    for words in ("passes over the data", "iterations", "in iterations", "pixels clustered"):
        assert words in texts[0]
        assert words not in texts[1]
    assert "pixels labeled" in texts[1]


def _compared(legend: Legend, truth: Image, clusters: list[int], counts: Any) -> dict[str, Any]:
    found = {"classes": [0, 1], "clusters": clusters, "counts": counts}
    compare_classes(found, legend, truth)
    return found


def test_accuracy_is_that_of_names_codes_or_a_matching() -> None:
    counts = [[0, 8], [1, 1]]
    blank = Image(np.empty((0, 0), int))
    numbers = _compared(Legend((0, 1), ("cluster_0", "cluster_1"), ("", "")), blank, [0, 1], counts)
    assert (numbers["compared_by"], numbers["best_matching_accuracy"]) == ("matching", 0.9)
    assert "accuracy" not in numbers
    # Noise is no cluster, and of no class.
    noisy = Legend((0, 1), ("cluster_0", "noise"), ("", ""), noise=1)
    assert _compared(noisy, blank, [0, 1], counts)["best_matching_accuracy"] == 0.1
    coded = Legend((0, 1), ("water", "wheat"), ("", ""), classes=frozenset([0, 1]))
    found = _compared(coded, blank, [0, 1], counts)
    assert (found["compared_by"], found["accuracy"], found["matched"]) == ("code", 0.1, [0, 1])
    assert [item["class"] for item in found["by_class"]] == ["water", "wheat"]
    numbers = Legend.of([0, 1], kind="class")
    found = _compared(replace(numbers, classes=frozenset([0, 1])), blank, [0, 1], counts)
    assert [item["class"] for item in found["by_class"]] == ["class_0", "class_1"]
    # The same names, whatever their codes.
    named = replace(blank, meanings={0: "wheat", 1: "water"}, by_name=True)
    found = _compared(coded, named, [0, 1], counts)
    assert (found["compared_by"], found["accuracy"], found["matched"]) == ("name", 0.9, [1, 0])
    # A class that the map does not have, and a cluster of no class.
    named = replace(blank, meanings={0: "wheat", 1: "rye"}, by_name=True)
    more = Legend((0, 1, 2), ("water", "wheat", "cluster_2"), ("",) * 3, classes=frozenset([0, 1]))
    found = _compared(more, named, [1, 2], [[3, 4], [2, 1]])
    assert (found["accuracy"], found["matched"]) == (0.3, [0, -1])
    # Names that differ by a blank only: each pixel counts once.
    soils = replace(coded, names=("dry soil", "dry_soil"))
    named = replace(blank, meanings={0: "dry soil", 1: "dry_soil"}, by_name=True)
    found = _compared(soils, named, [0, 1], [[4, 0], [0, 6]])
    assert (found["accuracy"], found["matched"]) == (1.0, [0, 1])
    assert [item["truth"] for item in found["by_class"]] == [4, 6]
    for other in (
        replace(blank, meanings={0: "oak", 1: "elm"}, by_name=True),
        replace(blank, meanings={0: "oak", 1: "elm"}),
    ):
        with pytest.warns(DaskclustWarning, match="without a common name"):
            found = _compared(coded, other, [0, 1], counts)
        assert found["compared_by"] is None
        assert "accuracy" not in found
    # A truth of texts is told by them, though the map has codes.
    plain = replace(coded, names=("class_0", "class_1"))
    with pytest.warns(
        DaskclustWarning, match="known classes are .'oak', 'elm'., the classes of the map"
    ):
        _compared(
            plain, replace(blank, meanings={0: "oak", 1: "elm"}, by_name=True), [0, 1], counts
        )
    # Codes that were made for texts are no codes of the truth's.
    with pytest.warns(DaskclustWarning, match="without a common name"):
        _compared(replace(coded, codes_are_given=False), blank, [0, 1], counts)


def test_a_class_beyond_signed_numbers_is_none_only_if_told() -> None:
    largest = 2**64 - 1
    codes = np.array([[0, largest], [1, 1]], np.uint64)
    assert_array_equal(known_classes(Image(codes), (largest,)).compute(), [[0, -1], [1, 1]])
    with pytest.raises(ValueError, match=f"codes below .*, got {largest}"):
        known_classes(Image(codes), (-1,)).compute()


# In a browser


def browse(path: Path, folder: Path, *more: str) -> str:
    """Open a page, and return the document that became of it."""
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER,
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", "--disable-background-networking", "--hide-scrollbars"),
            f"--user-data-dir={folder / 'profile'}",
            # The viewer unpacks its layers after the page has loaded.
            "--virtual-time-budget=5000",
            *("--window-size=1240,2600", *more, path.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@needs_browser
def test_a_browser_shows_it(page: tuple[Path, Any], tmp_path: Path) -> None:
    document = browse(page[0], tmp_path, "--dump-dom")
    # The script in the title has not run, and was not made a tag.
    title = re.search(r"<title>(.*?)</title>", document)
    assert title is not None
    assert "owned" not in title[1].split("&")[0]
    assert "owned" not in re.sub(r"&lt;script&gt;.*?&lt;/script&gt;", "", title[1])
    # Ours has run: the viewer stands in for the picture.
    assert 'data-ready="yes"' in document
    browse(page[0], tmp_path, f"--screenshot={tmp_path / 'shot.png'}")
    picture = pytest.importorskip("PIL.Image").open(tmp_path / "shot.png").convert("RGB")
    seen = np.asarray(picture).reshape(-1, 3)
    assert seen.shape[0] > 10**6
    for color in plotting.label_colors(3):
        wanted = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
        # The map is painted, not only a line of the legend.
        assert (seen == wanted).all(axis=1).sum() > 5000, color
