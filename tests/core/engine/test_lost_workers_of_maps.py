"""If workers fail, labels and maps are complete and correct, or an error is raised."""

from __future__ import annotations

import threading
import time
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from disasters import (
    ENDLESS,
    SLOW,
    Disaster,
    restart,
    retire_all,
    sigkill_all,
    sigkill_one,
    started,
)
from distributed import Client
from helpers import within

import daskclust
from daskclust.core.engine import on_notice
from daskclust.exceptions import ClusterError

DIMS = ("y", "x", "band")


def make_scene() -> np.ndarray:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(40, 40, 3)) + rng.integers(0, 3, (40, 40, 1)) * 4.0
    values[3:9, 20:] = np.nan
    return values


SCENE = make_scene()


def read_slowly(block: np.ndarray) -> np.ndarray:
    time.sleep(SLOW)
    return block.copy()


def slow_cube() -> Any:
    lazy = da.from_array(SCENE, chunks=(8, 8, 3))
    lazy = lazy.map_blocks(read_slowly, dtype=SCENE.dtype, meta=np.empty((0, 0, 0)))
    return daskclust.open_cube(lazy, dims=DIMS)


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    with dask.config.set(scheduler="sync"):
        cube = daskclust.open_cube(da.from_array(SCENE, chunks=(8, 8, 3)), dims=DIMS)
        pckid = daskclust.PCKID(
            3, n_initializations=1, max_components=3, n_init=1, max_iter=2, random_state=0
        )
        return {
            "kmeans": daskclust.KMeans(3, random_state=0).fit(cube.samples),
            "pckid": pckid.fit(cube.samples),
            "spreading": daskclust.LabelSpreading(20, random_state=0).fit(
                cube.samples, (np.arange(0, 90, 3), np.arange(30) % 3)
            ),
        }


def predicted(models: Any, folder: Any) -> np.ndarray:
    return models["kmeans"].predict(slow_cube().samples).compute()


def labels_of_pckid(models: Any, folder: Any) -> np.ndarray:
    return models["pckid"].predict(slow_cube().samples).compute()


def margins(models: Any, folder: Any) -> np.ndarray:
    cube = slow_cube()
    written = cube.write_map(models["spreading"].margin(cube.samples), folder / "m.zarr")
    return written["values"][:]


def label_map(models: Any, folder: Any) -> np.ndarray:
    cube = slow_cube()
    written = cube.write_labels(
        models["kmeans"].predict(cube.samples), folder / "l.zarr", n_clusters=3
    )
    return written["labels"][:]


def rows(models: Any, folder: Any) -> np.ndarray:
    image = np.where(np.arange(1600).reshape(40, 40) % 7 == 0, 1, -1)
    return np.concatenate(slow_cube().rows_of(image))


WORK = {
    "predict": predicted,
    "pckid": labels_of_pckid,
    "write_map": margins,
    "write_labels": label_map,
    "rows_of": rows,
}
DEEDS = {f.__name__: f for f in (sigkill_all, sigkill_one, retire_all, restart)}


def alone(name: str, models: Any, folder: Any) -> np.ndarray:
    folder.mkdir()
    with dask.config.set(scheduler="threads"):
        return WORK[name](models, folder)


def struck(name: str, deed: str, n_workers: int, models: Any, folder: Any) -> None:
    expected = alone(name, models, folder / "alone")
    with started(n_workers) as cluster, Client(cluster) as client:
        # Only Dask waits for computations of the user, so they have a time limit.
        strike = threading.Timer(6 * SLOW, DEEDS[deed], (client, cluster))
        strike.start()
        found = within(ENDLESS, WORK[name], models, folder)
        strike.join()
    np.testing.assert_array_equal(found, expected)


def test_a_label_map_outlives_all_workers(models, tmp_path):
    struck("write_labels", "sigkill_all", 1, models, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "deed"),
    [
        *((name, "sigkill_all") for name in WORK),
        *(("write_labels", deed) for deed in DEEDS if deed != "sigkill_all"),
    ],
)
def test_labels_and_maps_outlive_failures(name, deed, models, tmp_path):
    struck(name, deed, 2, models, tmp_path)


@pytest.mark.parametrize("name", ["write_labels"])
def test_without_workers_a_map_is_given_up_and_nothing_stays(name, models, tmp_path):
    said: list[str] = []
    with (
        started(0) as cluster,
        Client(cluster),
        dask.config.set({"daskclust.worker-timeout": "4s"}),
        on_notice(said.append),
        pytest.raises(ClusterError, match=r"no workers for \d.*pixels.*worker-timeout"),
    ):
        within(ENDLESS, WORK[name], models, tmp_path)
    assert "waits for workers" in said[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_ensemble_outlives_all_workers(monkeypatch, tmp_path):
    from daskclust.mixture import _ensemble

    data = np.random.default_rng(0).normal(size=(300, 3))
    data[::7, 1] = np.nan
    given = {"n_initializations": 3, "max_components": 4, "n_init": 2, "em_iter": 3}

    def fit(X: Any) -> Any:
        model = daskclust.PCKID(2, random_state=0, **given).fit(X)
        return model.cluster_centers_, np.asarray(model.labels_)

    X = da.from_array(data, chunks=(50, 3))
    with dask.config.set(scheduler="sync"):
        expected = fit(X)
    with started(1) as cluster, Client(cluster) as client:
        # The members are the tasks that are waited for under this name.
        train = _ensemble.map_independent
        at_members: list[Disaster] = []

        def watched(*arguments: Any, **options: Any) -> Any:
            file = tmp_path / "now"
            at_members.append(Disaster(monkeypatch, client, cluster, sigkill_all, 1, file))
            return train(*arguments, **options)

        monkeypatch.setattr(_ensemble, "map_independent", watched)
        found = within(ENDLESS, fit, X)
        assert at_members[0].struck_in_time()
    np.testing.assert_allclose(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])
