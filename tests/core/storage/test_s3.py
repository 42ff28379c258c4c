"""Scenes, maps, models and reports in an object store, which fails now and then."""

from __future__ import annotations

import gc
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster

import daskclust
from daskclust.app import cli
from daskclust.app.report import write_report
from daskclust.core.storage.outputs import new_group
from daskclust.datasets import make_hyperspectral_cube
from daskclust.exceptions import DaskclustError

moto = pytest.importorskip("moto", reason="needs the extra `deploy`")
s3fs = pytest.importorskip("s3fs", reason="needs the extra `deploy`")

# s3fs leaves sessions of event loops that are gone to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:Unclosed:ResourceWarning")

SECRET, IDENTITY = "wJalrXUtnFEMI-not-for-print", "AKIANOTFORPRINT"
JOB = "--estimator kmeans --n-clusters 4 --seed 0"


class Store:
    """The server, and the content of its bucket."""

    def __init__(self, port: int, scene: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.scene = scene
        self.files: Any = None

    def fail(self, share: float, match: str = "") -> None:
        """Let a share of the requests fail from now on."""
        body = json.dumps({"share": share, "match": match}).encode()
        request = urllib.request.Request(f"{self.url}/-/failures", body, method="PUT")
        with urllib.request.urlopen(request, timeout=300):
            pass

    def failed(self) -> int:
        """Number of requests that have failed since the configuration."""
        with urllib.request.urlopen(f"{self.url}/-/failures", timeout=300) as answer:
            return int(json.loads(answer.read())["failed"])

    def everything(self) -> dict[str, bytes]:
        """All objects of the bucket."""
        self.files.invalidate_cache()
        return {name: self.files.cat_file(name) for name in self.files.find("bucket")}


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/failures", timeout=5):
            return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A server with a scene in its bucket; credentials and address in the environment only."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    folder = tmp_path_factory.mktemp("s3")
    make_hyperspectral_cube(
        folder / "scene.zarr", shape=(40, 50), n_bands=12, chunks=(20, 25), random_state=0
    )
    store = Store(port, folder / "scene.zarr")
    log = (folder / "server.log").open("w")
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("_s3.py")), str(port)],
        stdout=log,
        stderr=log,
    )
    environment = {
        "AWS_ACCESS_KEY_ID": IDENTITY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": store.url,
        # Ignore the configuration of the user.
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        # The client libraries also retry, which takes time; only our retries are tested.
        "AWS_MAX_ATTEMPTS": "2",
    }
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            end = time.monotonic() + 120
            while not _answers(store.url):
                assert server.poll() is None, (folder / "server.log").read_text()
                assert time.monotonic() < end
                time.sleep(0.1)
            s3fs.S3FileSystem.clear_instance_cache()
            store.files = s3fs.S3FileSystem()
            store.files.mkdir("bucket")
            store.files.put(str(store.scene), "bucket/scene.zarr", recursive=True)
            yield store
    finally:
        server.terminate()
        server.wait(300)
        log.close()
        store.files = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            s3fs.S3FileSystem.clear_instance_cache()
            gc.collect()


@pytest.fixture(scope="module")
def address(store: Store) -> Iterator[str]:
    """A worker process, which finds the credentials in the environment it was started in."""
    with LocalCluster(
        n_workers=1, threads_per_worker=2, dashboard_address=":0", memory_limit="2GiB"
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(autouse=True)
def calm(store: Store) -> Iterator[None]:
    yield
    store.fail(0.0)


@pytest.fixture
def run(address: str, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(command: str) -> tuple[int, str, str]:
        code = cli.main([*command.split(), "--scheduler", address])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def expected(store: Store) -> np.ndarray:
    """The map of the same fit on files."""
    cube = daskclust.open_cube(store.scene)
    model = daskclust.KMeans(4, random_state=0).fit(cube.samples)
    return np.asarray(cube.to_map(model.labels_))


def labels(place: str) -> np.ndarray:
    return np.asarray(zarr.open_group(place, mode="r")["labels"][:])


def no_secrets(store: Store, *texts: str) -> None:
    for name, content in store.everything().items():
        for secret in (SECRET, IDENTITY):
            assert secret.encode() not in content, name
    for text in texts:
        assert SECRET not in text
        assert IDENTITY not in text


def test_scene_in_map_model_and_report_out_by_command(
    run: Any, store: Store, expected: np.ndarray
) -> None:
    command = (
        f"fit s3://bucket/scene.zarr {JOB} --output s3://bucket/c/map.zarr "
        "--model s3://bucket/c/model.zarr --json"
    )
    report = " --report s3://bucket/c/report.html"
    pytest.importorskip("matplotlib")
    code, out, err = run(command + report)
    assert code == 0, err
    assert json.loads(out)["outputs"]["report"] == "s3://bucket/c/report.html"
    np.testing.assert_array_equal(labels("s3://bucket/c/map.zarr"), expected)
    written = store.everything()
    assert written["bucket/c/report.html"].startswith(b"<!doctype html>")
    # Written last, and only then: what stands for the whole.
    attributes = json.loads(written["bucket/c/map.zarr/.zattrs"])
    assert attributes["daskclust_job"]["mark"]
    assert "daskclust:incomplete" not in attributes
    code, again, more = run(
        "predict s3://bucket/scene.zarr --model s3://bucket/c/model.zarr "
        "--output s3://bucket/c/again.zarr"
    )
    assert code == 0, more
    np.testing.assert_array_equal(labels("s3://bucket/c/again.zarr"), expected)
    no_secrets(store, out, err, again, more)
    # The same job replaces what is its own; another does not.
    assert run(command + report)[0] == 0
    code, out, err = run(command.replace("--seed 0", "--seed 1") + report)
    assert code == 1
    assert "exists already" in err
    assert not Path("s3:").exists()


def test_scene_in_map_model_and_report_out_in_python(
    address: str, store: Store, expected: np.ndarray
) -> None:
    pytest.importorskip("matplotlib")
    with Client(address):
        cube = daskclust.open_cube("s3://bucket/scene.zarr")
        model = daskclust.KMeans(4, random_state=0).fit(cube.samples)
        cube.write_labels(model.labels_, "s3://bucket/p/map.zarr", n_clusters=4)
        model.save("s3://bucket/p/model.zarr")
        place = write_report("s3://bucket/p/report.html", cube=cube, model=model)
        assert place == "s3://bucket/p/report.html"
        with pytest.raises(FileExistsError, match="exists already"):
            write_report("s3://bucket/p/report.html", cube=cube, model=model)
        again = daskclust.load("s3://bucket/p/model.zarr").predict(cube.samples)
        np.testing.assert_array_equal(np.asarray(cube.to_map(again)), expected)
    np.testing.assert_array_equal(labels("s3://bucket/p/map.zarr"), expected)
    no_secrets(store)


@pytest.mark.parametrize("share", [0.02, 0.2])
def test_requests_that_fail_now_and_then_are_made_again(
    run: Any, store: Store, expected: np.ndarray, share: float
) -> None:
    name = f"s3://bucket/f{int(100 * share)}"
    store.fail(share)
    code, _, err = run(
        f"fit s3://bucket/scene.zarr {JOB} --output {name}/map.zarr --model {name}/model.zarr"
    )
    assert store.failed() >= 2
    assert code == 0, err
    store.fail(0.0)
    np.testing.assert_array_equal(labels(f"{name}/map.zarr"), expected)


def test_a_store_that_stays_out_of_reach_is_one_line(run: Any, store: Store) -> None:
    (name,) = (name for name, found in zarr.open_group(store.scene).arrays() if found.ndim == 3)
    with daskclust_reads(retries=1):
        store.fail(1.0, f"/{name}/c/")
        code, out, err = run(f"fit s3://bucket/scene.zarr {JOB} --output s3://bucket/never.zarr")
    assert code == 1
    last = err.splitlines()[-1]
    assert last.startswith("daskclust: error: ")
    assert "could not be read" in last or "Service Unavailable" in last
    assert "Traceback" not in err
    assert "s3://bucket/scene.zarr" in last
    store.fail(0.0)
    assert not [name for name in store.everything() if name.startswith("bucket/never")]
    no_secrets(store, out, err)


def daskclust_reads(retries: int) -> Any:
    import dask

    return dask.config.set({"daskclust.read-retries": retries, "daskclust.persist": False})


def test_a_map_that_cannot_be_written_is_one_line_and_leaves_nothing_whole(
    run: Any, store: Store
) -> None:
    store.fail(1.0, "/lost.zarr/labels/0.")
    code, out, err = run(f"fit s3://bucket/scene.zarr {JOB} --output s3://bucket/lost.zarr")
    assert code == 1
    assert err.splitlines()[-1].startswith("daskclust: error: ")
    assert "Traceback" not in err
    no_secrets(store, out, err)
    store.fail(0.0)
    with pytest.raises((FileNotFoundError, ValueError)):
        daskclust.open_cube("s3://bucket/lost.zarr")


def test_a_scene_that_is_not_there_and_wrong_credentials_are_one_line(
    run: Any, store: Store
) -> None:
    code, _, err = run(f"fit s3://bucket/none.zarr {JOB} --output s3://bucket/x.zarr")
    assert code == 1
    assert "s3://bucket/none.zarr" in err.splitlines()[-1]
    code, _, err = run(f"fit s3://nobucket/none.zarr {JOB} --output s3://bucket/x.zarr")
    assert code == 1
    assert len(err.splitlines()) == 1
    assert issubclass(DaskclustError, Exception)


def test_doctor_asks_workers_for_the_scene_and_the_place_of_the_map(run: Any, store: Store) -> None:
    before = set(store.everything())
    command = "doctor s3://bucket/scene.zarr --output s3://bucket/d/map.zarr --json"
    _, out, err = run(command)
    assert not [p for p in json.loads(out)["problems"] if "see" in p or "write" in p], err
    assert set(store.everything()) == before
    no_secrets(store, out, err)


def test_what_a_killed_process_left_is_replaced(store: Store) -> None:
    place = "s3://bucket/killed.zarr"
    program = (
        "import os; from daskclust.core.storage.outputs import new_group; "
        f"new_group({place!r}, kind='label map').__enter__()"
        ".create_array('labels', shape=(8,), chunks=(1,), dtype='f8')[:4] = 1; os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    with pytest.raises(ValueError, match="incomplete"):
        daskclust.open_cube(place)
    with new_group(place, kind="label map") as group:
        group.create_array("labels", data=np.full(8, 2.0), chunks=(1,))
    np.testing.assert_array_equal(labels(place), np.full(8, 2))
