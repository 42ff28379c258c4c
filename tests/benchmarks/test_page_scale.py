"""The page on a large scene: a refit and its picture within two seconds, bounded memory."""

from __future__ import annotations

import contextlib
import resource
import time

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

from daskclust import open_cube
from daskclust.app.labeling.learner import Learner
from daskclust.app.labeling.pictures import Pictures

#: Pixels of a side, bands, classes; and bytes that the page's process may take besides.
SIDE, BANDS, CLASSES, ROOM = 6000, 20, 8, 1.5e9


def _block(block_info=None):
    (top, bottom), (left, right), _ = block_info[None]["array-location"]
    rng = np.random.default_rng(top * SIDE + left)
    field = _truth(np.arange(top, bottom)[:, None], np.arange(left, right))
    centers = np.random.default_rng(0).random((CLASSES, BANDS))
    noise = rng.standard_normal((bottom - top, right - left, BANDS), np.float32)
    return (centers[field] + 0.05 * noise).astype(np.float32)


def _truth(rows, columns):
    return (rows // 400 * 3 + columns // 300 * 5) % CLASSES


@pytest.mark.slow
@pytest.mark.benchmark
def test_a_refit_and_its_picture_take_two_seconds(tmp_path):
    chunks = da.core.normalize_chunks((500, 500, BANDS), (SIDE, SIDE, BANDS))
    image = da.map_blocks(_block, chunks=chunks, dtype=np.float32, meta=np.empty((0, 0, 0), "f4"))
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, memory_limit="1GB") as cluster,
        Client(cluster),
    ):
        image.to_zarr(str(tmp_path / "scene.zarr"))
        cube = open_cube(tmp_path / "scene.zarr", dims=("y", "x", "band"))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        pictures = Pictures(cube)
        pictures.look(pictures.bands, pictures.stretch)
        learner = Learner.of(cube, 0, lambda _: contextlib.nullcontext())
        pictures.classify(learner.cells)
        names = [str(i) for i in range(CLASSES)]
        known, found = [], learner.learn(names, [])
        seconds = []
        for _ in range(30):
            assert found.question is not None
            known.append((found.question, str(int(_truth(*found.question)))))
            began = time.perf_counter()
            found = learner.learn(names, known)
            tiles = -(-SIDE // 2**pictures.top // 256)
            assert found.shares is not None
            for down in range(tiles):
                for across in range(tiles):
                    pictures.map(pictures.top, down, across, found.shares, ["#000000"] * CLASSES)
            seconds.append(time.perf_counter() - began)
        # A screen of single pixels that nobody has looked at.
        began = time.perf_counter()
        for down in range(4):
            for across in range(6):
                pictures.scene(0, down, across)
        fresh = time.perf_counter() - began
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    print(
        f"refit and picture {np.median(seconds):.2f} s, {max(seconds):.2f} s at most; a screen "
        f"of new tiles {fresh:.2f} s; {used / 1e6:.0f} MB more in the page's process"
    )
    assert np.median(seconds) < 2.0
    assert used < ROOM
    assert found.sure is not None
    assert found.sure > 0.8
