"""The oldest release of every dependency in one environment, and every Python that is named."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: What is run there: kernels, fits on a cluster of processes, a cube and its label map.
SCRIPT = """
import numpy as np, dask.array as da, zarr
from distributed import Client, LocalCluster
import daskclust
from daskclust.core.kernels.nearest.assign import accumulate, nearest

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
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
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
    print("these dependencies work")

if __name__ == "__main__":
    import sys
    main(sys.argv[1])
"""


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def _floors() -> list[str]:
    """The oldest release that each requirement admits, as a requirement."""
    found = []
    for requirement in _project()["dependencies"]:
        name, _, bounds = requirement.partition(">=")
        assert bounds, f"{requirement} has no floor"
        found.append(f"{name}=={bounds.split(',')[0].strip()}")
    return found


def test_every_dependency_has_a_floor() -> None:
    assert len(_floors()) >= 10


def test_no_dashboard_runs_scripts_in_names() -> None:
    """CVE-2026-23528 is repaired in distributed 2026.1.1, which needs the same dask."""
    project = _project()
    named = [project["dependencies"], *project["optional-dependencies"].values()]
    floors = {}
    for requirement in itertools.chain.from_iterable(named):
        name, _, floor = requirement.partition(">=")
        if re.fullmatch(r"(dask|distributed)(\[\w+\])?", name):
            floors[name] = tuple(map(int, floor.split(".")))
    assert len(floors) == 3
    assert min(floors.values()) >= (2026, 1, 1)


def _interpreter(version: str) -> str:
    """Return a Python of a version, of the system or of pyenv; skips where there is none."""
    of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for candidate in (shutil.which(f"python{version}"), *of_pyenv):
        if candidate is not None:
            asked = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
            if done.stdout.strip() == version:
                return str(candidate)
    pytest.skip(f"no Python {version} here")


def _check(python: str, requirements: list[str], folder: Path) -> None:
    """Run the script in an environment of its own."""
    subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
    there = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    install = [str(there), "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    done = subprocess.run([*install, *requirements], capture_output=True, text=True, check=False)
    offline = ("NewConnectionError", "Temporary failure in name resolution", "No route to host")
    if done.returncode and any(sign in done.stderr for sign in offline):
        pytest.skip("packages cannot be downloaded here")
    assert done.returncode == 0, done.stderr[-3000:]
    script = folder / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(folder / "nc")}
    done = subprocess.run(
        [str(there), "-W", "ignore", str(script), str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "these dependencies work" in done.stdout, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the oldest wheels are of Python 3.11")
def test_the_oldest_dependencies_work(tmp_path: Path) -> None:
    _check(sys.executable, _floors(), tmp_path)


def _newer_pythons() -> list[str]:
    """Versions of Python that the package names and that do not run these tests."""
    named = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    return [version for version in named if version != running]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", _newer_pythons())
def test_every_python_that_is_named_works(version: str, tmp_path: Path) -> None:
    """With the newest release of every dependency."""
    _check(_interpreter(version), _project()["dependencies"], tmp_path)
