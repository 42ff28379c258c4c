"""The oldest release of every dependency that ``pyproject.toml`` admits, in one environment."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: What is run there: kernels, fits on a cluster of processes, a cube and its label map.
SCRIPT = """
import numpy as np, dask.array as da, zarr
from distributed import Client, LocalCluster
import daskclust
from daskclust.kernels.nearest.assign import accumulate, nearest

def main(folder):
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        for k in (3, 12, 40):
            x, centers = rng.normal(size=(200, 13)).astype(dtype), rng.normal(size=(k, 13))
            squared = ((x.astype(float)[:, None] - centers) ** 2).sum(axis=2)
            assert (nearest(x, centers)[0] == squared.argmin(axis=1)).all()
            assert accumulate(x, centers).hi[:, -2].sum() == 200
    x = np.concatenate([rng.normal(size=(150, 4)), rng.normal(size=(150, 4)) + 9])
    links = {"must_link": [(0, 1)], "cannot_link": [(0, 299)]}
    scene = zarr.open_array(folder + "/scene.zarr", mode="w", shape=(20, 15, 4), chunks=(8, 15, 4),
                            dtype="float32")
    scene[:] = x.reshape(20, 15, 4).astype("float32")
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster):
            lazy = da.from_array(x, chunks=(70, 4))
            for model, more in (
                (daskclust.KMeans(2, random_state=0), {}),
                (daskclust.PCSKMeans(2, sparsity=1.5, random_state=0), links),
            ):
                labels = np.asarray(model.fit(lazy, **more).labels_)
                assert sorted(np.bincount(labels).tolist()) == [150, 150], model
            # Compiled code that the fits above do without: gaps, samples, prototypes.
            gaps = np.where(rng.random(x.shape) < 0.2, np.nan, x)
            gaps[np.isnan(gaps).all(axis=1), 0] = 0.0
            truth = np.arange(300) // 150
            few = np.where(np.arange(300) % 30 == 0, truth, -1)
            for model, y in (
                (daskclust.KMeans(2, missing="partial", random_state=0), {}),
                (daskclust.KMeans(2, algorithm="nested", random_state=0), {}),
                (daskclust.LabelSpreading(random_state=0), {"y": few}),
            ):
                rows = x if model.get_params().get("algorithm") == "nested" else gaps
                fitted = model.fit(da.from_array(rows, chunks=(70, 4)), **y)
                found = np.asarray(fitted.labels_)
                same = (found == truth).mean()
                assert max(same, 1 - same) > 0.95, (model, same)
            cube = daskclust.open_cube(folder + "/scene.zarr", dims=("y", "x", "band"),
                                       scale="standard")
            model = daskclust.KMeans(2, random_state=0).fit(cube.samples)
            cube.write_labels(model.labels_, folder + "/map.zarr")
    print("the oldest dependencies work")

if __name__ == "__main__":
    import sys
    main(sys.argv[1])
"""


def _floors() -> list[str]:
    """The oldest release that each requirement admits, as a requirement."""
    found = []
    for requirement in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "dependencies"
    ]:
        name, _, bounds = requirement.partition(">=")
        assert bounds, f"{requirement} has no floor"
        found.append(f"{name}=={bounds.split(',')[0].strip()}")
    return found


def test_every_dependency_has_a_floor() -> None:
    assert len(_floors()) >= 10


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the oldest wheels are of Python 3.11")
def test_the_oldest_dependencies_work(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    done = subprocess.run([*install, *_floors()], capture_output=True, text=True, check=False)
    offline = ("NewConnectionError", "Temporary failure in name resolution", "No route to host")
    if done.returncode and any(sign in done.stderr for sign in offline):
        pytest.skip("packages cannot be downloaded here")
    assert done.returncode == 0, done.stderr[-3000:]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path / "nc")}
    done = subprocess.run(
        [str(python), "-W", "ignore", str(script), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "the oldest dependencies work" in done.stdout, done.stderr[-3000:]
