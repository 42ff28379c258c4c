"""The Dockerfile's steps in overlays of this machine's root, and what they make, run as a pod.

What is not run for want of a container engine: pulling the base image, whose place this
machine's own root takes, and `docker build` itself.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

sys.path.insert(0, str(Path(__file__).parent))
from _image import Stage, build, can_build, instructions

import daskclust
from daskclust.datasets import make_hyperspectral_cube

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "kubernetes" / "Dockerfile"


def test_the_last_stage_has_no_build_tools_and_no_rights() -> None:
    found = instructions(DOCKERFILE.read_text())
    last = max(i for i, (word, _) in enumerate(found) if word == "FROM")
    words = [word for word, _ in found[last:]]
    assert words.count("USER") == 1
    assert dict(found[last:])["USER"].split(":")[0] not in ("0", "root")
    for word, rest in found[last:]:
        assert not (word == "RUN" and ("pip" in rest or "apt" in rest)), rest
    assert any(word == "RUN" and "daskclust warmup" in rest for word, rest in found[:last])
    assert any(word == "ENV" and "PIP_CONSTRAINT=" in rest for word, rest in found[:last])


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    if not can_build():
        pytest.skip("needs the superuser, unshare and overlay mounts")
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the image's Python is 3.11")
    folder = tmp_path_factory.mktemp("image")
    for path in [folder, *folder.parents]:
        if path != Path("/") and path.stat().st_mode & 0o001 == 0:
            path.chmod(path.stat().st_mode | 0o011)
    return build(DOCKERFILE, ROOT, folder)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_steps_make_an_image_that_fits_as_a_pod_does(image: Stage, tmp_path: Path) -> None:
    """User 10001, read-only root, the environment of the operator; kernels are there already."""
    scratch, data = tmp_path / "scratch", tmp_path / "data"
    for place in (scratch, data):
        place.mkdir()
    make_hyperspectral_cube(
        data / "scene.zarr", shape=(30, 40), n_bands=10, chunks=(15, 20), random_state=0
    )
    for path in [data, scratch, *data.rglob("*")]:
        os.chown(path, 10001, 10001)
    pod = {
        "user": image.user,
        "binds": {"/scratch": scratch, "/data": data},
        "read_only": True,
    }
    operator = {
        "NUMBA_CACHE_DIR": "/scratch/numba-cache",
        "DASK_SCHEDULER_ADDRESS": "tcp://daskclust-fit-scheduler.default.svc.cluster.local:8786",
        "DASK_WORKER_NAME": "daskclust-fit-default-worker-1",
    }
    assert image.user == "10001:10001"
    refused = image.run(["sh", "-c", "touch /opt/daskclust/x || touch /root/x"], **pod)
    assert refused.returncode != 0
    words = [
        *image.entry, "daskclust", "fit", "/data/scene.zarr", "--estimator=kmeans",
        "--n-clusters=3", "--seed=0", "--output=/data/map.zarr", "--local=1",
        "--memory-limit=1GiB", "--json",
    ]  # fmt: skip
    done = image.run(words, **pod, **operator)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["n_clusters"] == 3
    cube = daskclust.open_cube(data / "scene.zarr")
    expected = cube.to_map(daskclust.KMeans(3, random_state=0).fit(cube.samples).labels_)
    group = zarr.open_group(data / "map.zarr", mode="r")
    np.testing.assert_array_equal(group["labels"][:], np.asarray(expected))
    # What a person or a script looks for, since the status of a DaskJob cannot be relied on.
    assert group.attrs["daskclust_job"]["mark"]
    assert (scratch / "numba-cache").is_dir()
    warm = image.run([*image.entry, "daskclust", "warmup", "--json"], **pod, **operator)
    assert warm.returncode == 0, warm.stderr
    found = json.loads(warm.stdout)
    assert found["compiled"] == 0
    assert found["from_cache"] > 0
