"""The real server over HTTP: what it serves, what it refuses, and what tabs do to each other."""

from __future__ import annotations

import contextlib
import json
import struct
import threading
import zlib
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import dask.array as da
import numpy as np
import pytest

from daskclust import open_cube
from daskclust.app.labeling.files import AnswersFile, Label, read_answers
from daskclust.app.labeling.learner import Learner
from daskclust.app.labeling.pictures import Pictures, _Bands
from daskclust.app.labeling.server import Page, pixels_inside, serve
from daskclust.app.labeling.session import InvalidRequest, Session

pytestmark = pytest.mark.usefixtures("few_trees")

HEIGHT, WIDTH = 40, 32


def _truth() -> np.ndarray:
    """Return four fields."""
    return (np.arange(HEIGHT)[:, None] >= 20) * 2 + (np.arange(WIDTH) >= 16)


def _image() -> np.ndarray:
    rng = np.random.default_rng(2)
    centers = rng.random((4, 6)) * 4 + 1
    image = centers[_truth()] + rng.normal(0, 0.05, (HEIGHT, WIDTH, 6))
    image[:3, :3] = np.nan
    return image


class _End(Exception):
    """Ends the thread of a page."""


class _Served:
    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url

    def get(self, path: str, **headers: str) -> tuple[int, Any, bytes]:
        return self._send(Request(self.url + path, headers=headers))

    def post(self, wish: Any, **headers: str) -> tuple[int, dict[str, Any]]:
        headers = {"Content-Type": "application/json", **headers}
        request = Request(self.url + "act", json.dumps(wish).encode(), headers)
        status, _, body = self._send(request)
        return status, json.loads(body) if body.startswith(b"{") else {}

    def labels(self) -> list[Label]:
        return read_answers(self.page.file, self.page.pictures.cube.pixel_grid)[1]

    def act(self, do: str, **wish: Any) -> dict[str, Any]:
        status, state = self.post({"do": do, **wish})
        assert status == 200, state
        return self.ready()

    def ready(self) -> dict[str, Any]:
        version = -1
        while True:
            _, _, body = self.get(f"state?since={version}")
            state = json.loads(body)
            if state["status"] == "ready":
                return dict(state)
            version = state["version"]

    @staticmethod
    def _send(request: Request) -> tuple[int, Any, bytes]:
        try:
            with urlopen(request, timeout=60) as answer:
                return answer.status, answer.headers, answer.read()
        except HTTPError as error:
            with error:
                return error.code, error.headers, error.read()


@pytest.fixture(scope="module")
def learner() -> Learner:
    cube = open_cube(da.from_array(_image(), chunks=(17, 32, 6)), dims=("y", "x", "band"))
    return Learner.of(cube, 0, lambda _: contextlib.nullcontext())


@pytest.fixture
def served(learner, tmp_path) -> Iterator[_Served]:
    def prepare(page: Page) -> Learner:
        page.pictures.choose_bands(page.pictures.bands, page.pictures.stretch)
        page.show_scene()
        page.pictures.classify(learner.cells)
        return learner

    def run() -> None:
        with contextlib.suppress(_End):
            page.run(prepare)

    def save() -> dict[str, str]:
        raise RuntimeError("the cluster is gone")

    def end() -> None:
        raise _End

    page = Page(
        Session((HEIGHT, WIDTH), ["0", "1", "2", "3"]),
        Pictures(learner.cube),
        AnswersFile(str(tmp_path / "labels.geojson")),
        save,
        lambda _: contextlib.nullcontext(),
    )
    # What a signal does to the main thread of the command.
    page._run_job = lambda job, one=page._run_job: job() if job is end else one(job)  # type: ignore[method-assign]
    with serve(page) as url:
        thread = threading.Thread(target=run)
        thread.start()
        try:
            found = _Served(page, url)
            found.ready()
            yield found
        finally:
            page._jobs.put(end)
            thread.join()


def _pixels(body: bytes) -> np.ndarray:
    """Decode a PNG without filters."""
    width, height, _, kind = struct.unpack(">IIBB", body[16:26])
    at, data = 8, b""
    while at < len(body):
        (length,) = struct.unpack(">I", body[at : at + 4])
        if body[at + 4 : at + 8] == b"IDAT":
            data += body[at + 8 : at + 8 + length]
        at += 12 + length
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, -1)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(height, width, {2: 3, 6: 4}[kind])


def test_questions_lead_to_the_map(served):
    truth, state, asked = _truth(), served.ready(), set()
    while state["n_labels"] < 8:
        pixel = state["question"]["row"], state["question"]["column"]
        assert pixel not in asked, "never the same twice"
        asked.add(pixel)
        state = served.act("label", **state["question"], **{"class": str(truth[pixel])}, asked=True)
    kept = served.labels()
    assert {(one.row, one.column): one.name for one in kept} == {p: str(truth[p]) for p in asked}
    assert state["accuracy"]["total"] >= 3
    assert state["change"] < 0.2
    _, headers, body = served.get(f"tile/map/0/0/0?v={state['map']}")
    assert headers["Content-Type"] == "image/png"
    colors = np.array(
        [[int(c["color"][i : i + 2], 16) for i in (1, 3, 5)] for c in state["classes"]]
    )
    shown = _pixels(body)
    valid = shown[:, :, 3] == 255
    assert not valid[:3, :3].any()
    assert valid.sum() == HEIGHT * WIDTH - 9
    right = (shown[:, :, :3] == colors[truth]).all(axis=2)
    assert right[valid].mean() > 0.98
    for layer in ("scene", "uncertainty"):
        status, _, body = served.get(f"tile/{layer}/0/0/0")
        assert status == 200
        assert _pixels(body).shape[:2] == (HEIGHT, WIDTH)


def test_one_class_is_never_enough(learner):
    names = ["0", "1", "2", "3"]
    found = learner.learn(names, [((30, 4), "2")])
    assert (found.change, found.is_enough) == (None, False)
    known = [((30, 4 + i), "2") for i in range(3)] + [((30, 20 + i), "3") for i in range(3)]
    two = learner.learn(names, known)
    assert two.change is not None
    assert not two.is_enough
    known += [((5, 4), "0"), ((5, 20), "1"), ((9, 7), "0"), ((9, 28), "1")]
    assert learner.learn(names, known).is_enough
    assert not learner.learn([*names, "4"], known).is_enough


def test_excluded_pixels_are_never_asked_for_and_have_no_class_in_the_map(learner):
    cube, exclude = learner.cube, _truth() == 1
    masked = Learner.of(cube, 0, lambda _: contextlib.nullcontext(), exclude)
    passed: list[tuple[int, int]] = []
    while (found := masked.learn(["0"], [], (), passed)).question is not None:
        passed.append(found.question)
    assert len(passed) > 30
    assert not exclude[tuple(np.transpose(passed))].any()
    pictures = Pictures(cube, cube.excluding(exclude))
    pictures.classify(masked.cells)
    shares = np.ones((len(masked.cells.nodes), 1))
    shown = _pixels(pictures.map(0, 0, 0, shares, ["#ff0000"]))[:, :, 3] == 255
    valid = np.asarray(cube.valid)
    assert np.array_equal(shown, valid & ~exclude)


def test_skip_another_and_undo(served):
    first = served.ready()["question"]
    state = served.act("skip", **first)
    assert (state["n_labels"], state["n_skipped"]) == (0, 1)
    second = state["question"]
    assert second != first
    state = served.act("another", **second)
    assert state["question"] not in (first, second)
    assert state["n_skipped"] == 1
    state = served.act("undo")
    assert state["n_skipped"] == 0
    assert not served.labels()
    assert served.act("refit")["question"] == first


def test_an_undo_that_is_not_written_takes_nothing_back(served, monkeypatch):
    """It took back two answers."""
    for row in (28, 29, 30):
        served.act("label", row=row, column=30, **{"class": "3"})

    def fail(*_: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("daskclust.app.labeling.server.write_answers", fail)
        for wish in ({"do": "undo"}, {"do": "label", "row": 31, "column": 30, "class": "3"}):
            assert served.post(wish)[0] != 200
            assert served.ready()["n_labels"] == 3
    assert len(served.labels()) == 3
    assert served.act("undo")["n_labels"] == 2


def test_of_two_tabs_that_answer_one_question_the_first_counts(served):
    question = served.ready()["question"]
    wish = {"do": "label", **question, "asked": True}
    assert served.post({**wish, "class": "1"})[0] == 200
    status, found = served.post({**wish, "class": "2"})
    assert status == 409
    assert "answered already" in found["refused"]
    assert found["state"]["n_labels"] == 1
    assert [one.name for one in served.labels()] == ["1"]


def test_a_click_labels_any_pixel_with_data(served):
    state = served.act("label", row=30, column=30, **{"class": "3"})
    assert state["labels"] == [[30, 30, 3]]
    for row, column, text in ((0, 0, "No data"), (40, 0, "No data"), (-1, 0, "No data")):
        status, found = served.post({"do": "label", "row": row, "column": column, "class": "3"})
        assert status == 409
        assert text in found["refused"]
    status, found = served.post({"do": "label", "row": 1.5, "column": "x", "class": "3"})
    assert status == 409
    assert served.ready()["n_labels"] == 1


def test_a_polygon_labels_its_pixels_and_one_undo_takes_them_back(served):
    state = served.act("polygon", corners=[[0, 0], [0, 4], [4, 4], [4, 0]], **{"class": "0"})
    assert state["n_labels"] == 16 - 9
    assert served.act("undo")["n_labels"] == 0
    for corners in ([], [[0, 0], [1, 1]], [[0, 0], [0, 1], ["x", 1]], None, [[1], [2], [3]]):
        assert served.post({"do": "polygon", "corners": corners, "class": "0"})[0] == 409


def test_pixels_of_polygons_by_hand():
    assert pixels_inside([(0, 0), (3, 0), (0, 3)], (9, 9)).tolist() == [
        [0, 0],
        [0, 1],
        [1, 0],
    ]
    large = pixels_inside([(0, 0), (0, 3000), (3000, 3000), (3000, 0)], (3000, 3000))
    assert len(large) == 100
    assert np.ptp(large[:, 0]) > 2500
    assert not len(pixels_inside([(5, 5), (5, 5.4), (5.4, 5.4)], (9, 9)))
    with pytest.raises(InvalidRequest):
        pixels_inside([(0, 0), (0, float("nan")), (1, 1)], (9, 9))


def test_classes_are_added_renamed_and_removed(served):
    served.act("label", row=30, column=30, **{"class": "3"})
    state = served.act("add", **{"class": "<b>fire</b>"})
    assert state["classes"][4]["name"] == "<b>fire</b>"
    state = served.act("change", **{"class": "3"}, to="soil", color="#010203")
    assert [one.name for one in served.labels()] == ["soil"]
    assert state["classes"][3] == {"name": "soil", "color": "#010203", "labels": 1}
    state = served.act("remove", **{"class": "soil"})
    assert state["n_labels"] == 0
    assert served.post({"do": "add", "class": "1"})[0] == 409
    assert served.post({"do": "remove", "class": "x"})[0] == 409


def test_spectra(served):
    served.act("label", row=30, column=30, **{"class": "3"})
    found = json.loads(served.get("spectrum?row=30&column=30")[2])
    np.testing.assert_allclose(found["values"], _image()[30, 30], atol=1e-5)
    assert found["classes"] == {"3": found["values"]}
    assert json.loads(served.get("spectrum?row=0&column=0")[2])["values"] is None
    # JSON has no NaN; a browser stops at it.
    served.page.spectrum = lambda row, column: {"values": [float("nan"), 1.5], "classes": {}}
    assert served.get("spectrum?row=0&column=0")[2] == b'{"values": [null, 1.5], "classes": {}}'
    del served.page.spectrum
    assert served.get("spectrum?row=40&column=0")[0] == 404
    assert served.get("spectrum?row=a&column=0")[0] == 400


def test_what_fails_is_said_and_the_page_goes_on(served):
    assert served.post({"do": "save"})[0] == 409  # no label yet
    served.act("label", row=30, column=30, **{"class": "3"})
    assert "the cluster is gone" in served.act("save")["message"]
    assert served.act("label", row=1, column=30, **{"class": "1"})["n_labels"] == 2


def test_labels_that_cannot_be_written_are_not_taken(served):
    place = served.page.file.path
    place.write_text("mine")
    status, found = served.post({"do": "label", "row": 30, "column": 30, "class": "3"})
    assert status == 409
    assert "not written by daskclust" in found["refused"]
    assert found["state"]["n_labels"] == 0
    assert place.read_text() == "mine"


def test_labels_that_others_changed_are_kept(served):
    """A second page, or QGIS, wrote to the file: the next answer replaced what was there."""
    served.act("label", row=30, column=30, **{"class": "3"})
    place = served.page.file.path
    mine = place.read_text()
    theirs = mine.replace('"class": "3"', '"class": "2"')
    assert theirs != mine
    place.write_text(theirs)
    status, found = served.post({"do": "label", "row": 1, "column": 30, "class": "1"})
    assert status == 409
    assert "was changed by another program" in found["refused"]
    assert place.read_text() == theirs
    place.write_text(mine)
    assert served.act("label", row=1, column=30, **{"class": "1"})["n_labels"] == 2


def test_only_the_page_itself_is_answered(served):
    parts = urlsplit(served.url)
    token, here = parts.path.strip("/"), f"http://{parts.netloc}"
    assert len(token) >= 32
    status, headers, body = served.get("")
    assert status == 200
    assert b'id="map"' in body
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert served.get("", Host=f"localhost:{parts.port}")[0] == 200
    # A token that is wrong, missing, or longer.
    other = _Served(served.page, f"{here}/")
    wrong = token[:-1] + ("y" if token[-1] == "x" else "x")
    for path in ("", "x/", f"{wrong}/state", "/state", f"{token}x/", f"{token}%00/state"):
        assert other.get(path)[0] == 404, path
    assert other.get(token)[0] == 404
    # A foreign origin or host, and a foreign page in the browser.
    wish = {"do": "label", "row": 30, "column": 30, "class": "3"}
    for foreign in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{parts.port + 1}"},
        {"Host": f"evil.example:{parts.port}"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        assert served.post(wish, **foreign)[0] == 403, foreign
        assert served.get("state", **foreign)[0] == 403, foreign
    # A form of another page cannot send JSON.
    assert served.post(wish, **{"Content-Type": "text/plain"})[0] == 404
    assert served.ready()["n_labels"] == 0
    assert served.post(wish, Origin=here)[0] == 200
    # A tunnel has another port, a proxy another name.
    through = {"Host": "localhost:9", "Origin": "http://localhost:9"}
    assert served.get("state", **through)[0] == 200
    proxied = {"Host": "hub.example", "Origin": "https://hub.example", "X-ProxyContextPath": "/p"}
    assert served.get("state", **proxied)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "../page.js",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e/server.py",
        "server.py",
        "page.js/",
        "/page.js",
        "static/page.js",
        "tile/scene/0/0",
        "tile/scene/0/0/99",
        "tile/scene/-1/0/0",
        "tile/scene/0/0/0/..",
        "tile/../0/0/0",
        "tile/scene/0/0/1e3",
        "tile/scene/9999999999999999999999/0/0",
        "state/x",
        "act",
    ],
)
def test_tricks_with_paths_find_nothing(served, path):
    assert served.get(path)[0] == 404


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b'"x"', b'{"do": 1}', b'{"do": "x"}'])
def test_messages_that_make_no_sense_are_refused(served, body):
    request = Request(served.url + "act", body, {"Content-Type": "application/json"})
    assert served._send(request)[0] in (400, 409)


def test_tiles_of_every_level_show_every_so_manyth_pixel(monkeypatch):
    for name, pixels in (("TILE", 8), ("OVERVIEW", 10), ("READ", 20), ("_PIXELS_AT_ONCE", 60)):
        monkeypatch.setattr(f"daskclust.app.labeling.pictures.{name}", pixels)
    values = np.random.default_rng(0).random((75, 50, 3), np.float32)
    values[3:9, 4:20] = np.nan
    found = Pictures(open_cube(values, dims=("y", "x", "band"), chunks=(16, 16)))
    found.choose_bands((0, 1, 2), "all")
    assert found.top == 3
    for level in range(found.top + 1):
        for down, across in np.ndindex(5, 5):
            if not found.has(level, down, across):
                continue
            valid, shown = found._tile(level, down, across, _Bands((0, 1, 2)))
            step = 2**level
            places = np.s_[8 * down * step :: step, 8 * across * step :: step]
            expected = values[places][:8, :8]
            np.testing.assert_array_equal(valid, ~np.isnan(expected[..., 0]))
            np.testing.assert_array_equal(shown[valid], expected[valid])
