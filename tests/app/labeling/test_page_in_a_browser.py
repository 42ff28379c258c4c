"""The command and a real browser: thirty answers by the page's own buttons give the map."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import dask
import numpy as np
import pytest
import zarr
from browser import Browser, find_chromium
from distributed import Client, LocalCluster
from sklearn.metrics import adjusted_rand_score

from daskclust import LabelSpreading, open_cube
from daskclust.app.cli import main

needs_chromium = pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium here")
READY = "state !== null && state.status === 'ready'"


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[tuple[str, Any]]:
    """Start the command; yield its URL and the process, and end it by Ctrl-C."""
    command = [sys.executable, "-m", "daskclust", "label", *arguments, "--no-browser"]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    errors = folder / "stderr.txt"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as process,
    ):
        # A command that hangs must not hang the tests.
        watch = threading.Timer(900, process.kill)
        watch.start()
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:"), errors.read_text()
            yield url, process
        finally:
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=60)
            watch.cancel()
    assert process.returncode == 130, errors.read_text()
    # The address is the only line of its kind.
    assert not [line for line in rest.splitlines() if line.startswith("http")]


def answer(browser: Browser, truth: np.ndarray, count: int) -> None:
    """Answer questions by a map of classes, 0 of which is none; every third one by a key."""
    names = browser.run("state.classes.map(one => one.name)")
    while (done := int(browser.text("#n-labels"))) < count:
        browser.wait(f"{READY} && document.querySelector('#question').dataset.row", 120)
        place = "document.querySelector('#question').dataset"
        row, column = browser.run(f"[Number({place}.row), Number({place}.column)]")
        name, version = str(truth[row, column]), browser.run("state.version")
        if name == "0":
            browser.click("#skip")
        elif done % 3 == 2:
            browser.press(str(names.index(name) + 1))
        else:
            browser.click(f'#classes button[data-class="{name}"]')
        browser.wait(f"state.version > {version} && {READY}", 120)


@pytest.mark.slow
@needs_chromium
def test_answers_about_salinas_a_give_its_map(tmp_path, data_dir):
    import rasterio

    path = data_dir / "data" / "hsi_salinas_a.npz"
    if not path.is_file():
        pytest.skip("the data are not here")
    with np.load(path) as arrays:
        # Every third pixel each way: all is a ninth as long, the classes are as hard to tell.
        np.save(tmp_path / "scene.npy", arrays["cube"][::3, ::3].astype(np.float32))
        truth = arrays["gt"][::3, ::3]
    classes = ",".join(str(code) for code in np.unique(truth) if code)
    arguments = ("scene.npy", "--dims", "y,x,band", "--classes", classes, "--local", "1")
    with (
        running(tmp_path, *arguments, "--output", "map.tif") as (url, _),
        # So narrow that the panel lies below the scene.
        Browser(740, 600) as browser,
    ):
        browser.open(url)
        browser.wait(READY, 300)
        answer(browser, truth, 22)
        assert "of the last 20 answers" in browser.text("#accuracy")
        # The map covers the picture in the very colors of the classes.
        browser.press("0")
        browser.run("new Promise(done => setTimeout(done, 500))")
        share = browser.run(
            "(() => { const colors = state.classes.map(one => parseInt(one.color.slice(1), 16));"
            "const data = paint.getImageData(0, 0, canvas.width, canvas.height).data;"
            "let found = 0; for (let i = 0; i < data.length; i += 4)"
            "  found += colors.includes((data[i] << 16) + (data[i + 1] << 8) + data[i + 2]);"
            "return 4 * found / data.length; })()"
        )
        assert share > 0.1  # of the canvas; beside the scene it is dark
        # A click on the scene chooses a pixel; the class goes to it, and undo takes it back.
        browser.press("0")  # else the last pixel with an answer is in the middle
        middle = browser.run(
            "(() => { const b = document.querySelector('#map').getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        browser.click_at(*middle)
        browser.wait("document.querySelector('#hint').textContent.startsWith('You chose')")
        browser.press("1")
        browser.wait(f"state.n_labels === 23 && {READY}")
        browser.press("u")
        browser.wait(f"state.n_labels === 22 && {READY}")
        browser.click("#save")
        browser.wait("Object.keys(state.saved).length > 0", 300)
        saved = json.loads(browser.run("JSON.stringify(state.saved)"))
        colors = dict(browser.run("state.classes.map(one => [one.name, one.color])"))
        assert saved["output"] == "map.tif"
        assert {"uncertainty", "model", "report"} <= saved.keys()
        assert not browser.errors
        # Nothing leaves the machine, and nothing but the page is asked for.
        assert [one for one in browser.requests if not one.startswith((url, "data:"))] == []
    for name in saved.values():
        assert (tmp_path / name).exists()
    with rasterio.open(tmp_path / "map.tif") as opened:
        found, palette = opened.read(1), opened.colormap(1)
    assert {name: "#" + bytes(palette[int(name)][:3]).hex() for name in colors} == colors
    labels = json.loads((tmp_path / "scene_labels.geojson").read_text())["features"]
    judged = truth > 0
    for feature in labels:
        judged[feature["properties"]["row"], feature["properties"]["column"]] = False
    assert adjusted_rand_score(truth[judged], found[judged]) >= 0.97


def _state(url: str, **wish: Any) -> dict[str, Any]:
    """Do something on the page, and return its state when nothing is under way."""
    if wish:
        body = json.dumps(wish).encode()
        with urlopen(Request(f"{url}act", body, {"Content-Type": "application/json"})) as reply:
            reply.read()
    version = -1
    while True:
        with urlopen(f"{url}state?since={version}", timeout=60) as reply:
            found = json.load(reply)
        if found["status"] == "ready":
            return dict(found)
        version = found["version"]


def test_the_command_saves_and_goes_on_without_a_browser(tmp_path, monkeypatch):
    import rasterio

    truth = (np.arange(40)[:, None] >= 20) * 2 + (np.arange(30) >= 15)
    rng = np.random.default_rng(1)
    centers = rng.random((4, 6)) * 4 + 1
    image = centers[truth] + rng.normal(0, 0.1, (40, 30, 6))
    np.save(tmp_path / "scene.npy", image.astype(np.float32))
    names = ["lake", "wood", "soil", "town"]
    arguments = ("scene.npy", "--dims", "y,x,band", "--classes", "lake,wood", "--local", "1")
    arguments += ("--output", "map.tif")
    with running(tmp_path, *arguments) as (url, _):
        state = _state(url)
        for name in names[2:]:
            state = _state(url, do="add", **{"class": name})
        for _ in range(8):
            row, column = state["question"]["row"], state["question"]["column"]
            wish = {"row": row, "column": column, "class": names[truth[row, column]]}
            state = _state(url, do="label", asked=True, **wish)
        state = _state(url, do="save")
        assert state["message"].startswith("saved: map.tif"), state["message"]
        assert set(state["saved"]) == {"output", "model", "report", "uncertainty"}
        colors = {one["name"]: one["color"] for one in state["classes"]}
    with rasterio.open(tmp_path / "map.tif") as opened:
        found, palette = opened.read(1), opened.colormap(1)
    # Classes that are text are numbered in their order.
    ordered = sorted(names)
    codes = np.array([ordered.index(name) for name in names])
    assert (found == codes[truth]).mean() > 0.98
    shown = {name: "#" + bytes(palette[code][:3]).hex() for code, name in enumerate(ordered)}
    assert shown == colors
    # Started again, it goes on with the same labels, and may replace its own outputs.
    states = []

    def look(url: str) -> None:
        with urlopen(f"{url}state", timeout=60) as reply:
            states.append(json.load(reply))
        signal.raise_signal(signal.SIGINT)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(webbrowser, "open", look)
    assert main(["label", *arguments]) == 130
    (state,) = states
    assert state["n_labels"] == 8
    assert {one["name"]: one["color"] for one in state["classes"]} == colors


def test_files_of_others_and_wrong_ports_are_refused_at_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "scene.npy", np.ones((6, 5, 4), np.float32))
    (tmp_path / "map.tif").write_text("mine")
    (tmp_path / "mine.geojson").write_text("{}")
    for arguments, text in (
        (("--output", "map.tif"), "exists already"),
        (("--labels", "mine.geojson"), "not written by daskclust"),
        (("--labels", "labels.csv"), "must end in"),
        (("--labels", "labels.gpkg"), "requires a coordinate system"),
        (("--port", "70000"), "must be a port from 0 to 65535, got '70000'"),
        (("--incomplete", "keep"), "complete pixels"),
    ):
        command = ["label", "scene.npy", "--dims", "y,x,band", "--no-browser", *arguments]
        assert main(command) in (1, 2)
        said = capsys.readouterr()
        assert text in said.err
        assert not said.out


def _kill(client: Client, *, everyone: bool) -> None:
    """End workers as an operating system would; nannies start others."""
    numbers = list(client.run(os.getpid).values())
    for number in numbers if everyone else numbers[:1]:
        os.kill(number, signal.SIGKILL)


def _wait_for(url: str, wanted: str) -> None:
    """Wait until something is under way, or nothing is."""
    version, status = -1, ""
    while status not in (wanted, "ready"):
        with urlopen(f"{url}state?since={version}", timeout=60) as reply:
            found = json.load(reply)
        version, status = found["version"], found["status"]


@pytest.mark.slow
@pytest.mark.parametrize("everyone", [False, True], ids=["one", "all"])
def test_workers_that_are_killed_cost_no_label_and_no_pixel(tmp_path, everyone):
    truth = (np.arange(240)[:, None] >= 120) * 2 + (np.arange(200) >= 100)
    rng = np.random.default_rng(1)
    centers = rng.random((4, 6)) * 4 + 1
    image = centers[truth] + rng.normal(0, 0.1, (*truth.shape, 6))
    # Many blocks: what the page does takes long enough to lose workers in between.
    zarr.create_array(tmp_path / "scene.zarr", data=image.astype(np.float32), chunks=(40, 40, 6))
    names = ["lake", "wood", "soil", "town"]
    scene = ("scene.zarr", "--dims", "y,x,band", "--seed", "0")
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
        Client(cluster) as client,
    ):
        there = ("--scheduler", cluster.scheduler_address)
        arguments = (*scene, *there, "--classes", ",".join(names), "--output", "map.zarr")
        with running(tmp_path, *arguments) as (url, _):
            _wait_for(url, "Prototypes")
            _kill(client, everyone=everyone)
            state = _state(url)
            for _ in range(6):
                row, column = state["question"]["row"], state["question"]["column"]
                wish = {"row": row, "column": column, "class": names[truth[row, column]]}
                state = _state(url, do="label", asked=True, **wish)
            # Pixels that nobody has read yet: workers are asked for them.
            client.wait_for_workers(1, timeout=300)
            _kill(client, everyone=everyone)
            for row, column in ((11, 13), (231, 17), (9, 190), (222, 183)):
                wish = {"row": row, "column": column, "class": names[truth[row, column]]}
                state = _state(url, do="label", **wish)
            assert state["n_labels"] == 10
            client.wait_for_workers(1, timeout=300)
            body = json.dumps({"do": "save"}).encode()
            with urlopen(Request(f"{url}act", body, {"Content-Type": "application/json"})):
                _wait_for(url, "saving")
            _kill(client, everyone=everyone)
            state = _state(url)
            assert state["message"].startswith("saved: map.zarr"), state["message"]
        client.wait_for_workers(1, timeout=300)
    found = zarr.open_group(str(tmp_path / "map.zarr"), mode="r")["labels"][:]
    cube = open_cube(tmp_path / "scene.zarr", dims=("y", "x", "band"), scale="none")
    rows, known = cube.rows_of(tmp_path / "scene_labels.geojson", class_column="class")
    labels = np.full(truth.size, -1)
    labels[rows] = [sorted(names).index(name) for name in known]
    with dask.config.set(scheduler="sync"):
        model = LabelSpreading(random_state=0).fit(cube, labels)
        assert np.array_equal(found, cube.to_map(model.labels_).compute())
    # Classes that are text are numbered in their order.
    codes = np.array([sorted(names).index(name) for name in names])
    assert (found == codes[truth]).mean() > 0.98
