"""A worker without a package that the data need: an error that names both, and a worker that lives.

Such a worker could not unpack its tasks.  That ended it, and the fit waited.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

import daskclust
from daskclust.core.engine.private_api import Packed
from daskclust.exceptions import ClusterError, StoreError
from daskclust.tables import open_table

ROOT = Path(__file__).resolve().parents[3]
HIDDEN = ("h5netcdf", "rasterio", "pyarrow")
VALUES = np.random.default_rng(0).normal(size=(40, 30, 4)).astype("float32")


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return the client of a cluster whose only worker lacks packages."""
    folder = tmp_path_factory.mktemp("poor")
    hide = f"""
        import sys

        class Hidden:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in {HIDDEN!r}:
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

        sys.meta_path.insert(0, Hidden())
        """
    (folder / "sitecustomize.py").write_text(textwrap.dedent(hide))
    with (
        LocalCluster(n_workers=0, processes=True, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        command = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address]
        process = subprocess.Popen(
            [*command, "--nthreads", "1", "--no-dashboard", "--no-nanny"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        )
        try:
            client.wait_for_workers(1, timeout=300)
            yield client
        finally:
            process.terminate()
            process.wait(300)


def netcdf(folder: Path) -> Any:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    scene = xarray.Dataset({"v": (("y", "x", "band"), VALUES)})
    scene.to_netcdf(folder / "a.nc", engine="h5netcdf")
    stored = xarray.open_dataset(folder / "a.nc", chunks={"y": 10}, engine="h5netcdf")
    return stored["v"].data.reshape((-1, 4))


def geotiff(folder: Path) -> Any:
    rasterio = pytest.importorskip("rasterio")
    profile = {"driver": "GTiff", "height": 40, "width": 30, "count": 4, "dtype": "float32"}
    with rasterio.open(folder / "a.tif", "w", transform=(10, 0, 0, 0, -10, 0), **profile) as file:
        file.write(np.moveaxis(VALUES, -1, 0))
    return daskclust.open_cube(folder / "a.tif", chunks=(10, 30))


def parquet(folder: Path) -> Any:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(VALUES.reshape(-1, 4), columns=list("abcd"))
    frame.to_parquet(folder / "a.parquet")
    return open_table(folder / "a.parquet").samples


def own_function(_: Path) -> Any:
    return da.from_array(VALUES.reshape(-1, 4), chunks=(300, 4)).map_blocks(absent())


def own_function_after_others(_: Path) -> Any:
    """Return blocks that have inputs in common, whose graph is not cut."""
    chunks = da.from_array(VALUES.reshape(-1, 4), chunks=(300, 4)).rechunk((500, 4))
    return chunks.map_blocks(absent()).rechunk((350, 4))


def absent() -> Callable[..., Any]:
    import of_this_process_alone

    return of_this_process_alone.double


@pytest.mark.parametrize(
    ("data", "package", "kept"),
    [
        (netcdf, "h5netcdf", True),
        (geotiff, "rasterio", False),
        (parquet, "pyarrow", False),
        (own_function, "of_this_process_alone", True),
        (own_function, "of_this_process_alone", False),
        (own_function_after_others, "of_this_process_alone", True),
    ],
)
def test_a_worker_without_a_package_is_named_with_it(
    poor: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    data: Callable[[Path], Any],
    package: str,
    kept: bool,
) -> None:
    (tmp_path / "of_this_process_alone.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (worker,) = poor.nthreads()
    settings = {"daskclust.persist": kept, "daskclust.worker-timeout": "30s"}
    with dask.config.set(settings), pytest.raises(ClusterError) as raised:
        daskclust.KMeans(3, random_state=0).fit(data(tmp_path))
    message = str(raised.value)
    assert f"The worker {worker}" in message
    assert package in message
    assert "Install the same packages and versions on each worker as on the client" in message
    assert [*poor.nthreads()] == [worker], "the worker ended"
    sys.modules.pop("of_this_process_alone", None)


def test_weights_that_a_worker_cannot_make(
    poor: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_this_process_alone.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    weight = da.ones(1200, chunks=300).map_blocks(absent())
    with (
        dask.config.set({"daskclust.worker-timeout": "30s"}),
        pytest.raises(ClusterError, match="cannot import 'of_this_process_alone'"),
    ):
        daskclust.KMeans(3).fit(VALUES.reshape(-1, 4), sample_weight=weight)
    assert len(poor.nthreads()) == 1
    sys.modules.pop("of_this_process_alone", None)


@pytest.mark.parametrize("protocol", [4, 5])
def test_a_packed_function_travels_twice_before_it_is_unpacked(protocol: int) -> None:
    """As through a scheduler, which must not need the packages of the workers."""
    packed = Packed(partial(np.append, np.empty(0), VALUES))
    for _ in range(3):
        beside: list[pickle.PickleBuffer] = []
        data = pickle.dumps(
            packed, protocol, buffer_callback=beside.append if protocol > 4 else None
        )
        assert bool(beside) == (protocol > 4)
        packed = pickle.loads(data, buffers=[buffer.raw() for buffer in beside])
    np.testing.assert_array_equal(packed(None), VALUES.ravel())


def test_a_packed_function_lends_no_memory_of_memoryviews() -> None:
    """Else Python 3.11 crashes where it collects them (python/cpython#77894)."""
    arrived = memoryview(VALUES.tobytes())
    beside: list[memoryview] = []
    pickle.dumps(
        Packed(None, b"", arrived, memoryview(b"")),
        5,
        buffer_callback=lambda buffer: beside.append(memoryview(buffer)),
    )
    assert [bytes(buffer) for buffer in beside] == [VALUES.tobytes(), b""]
    arrived.release()  # a BufferError, if it is lent


class Opened:
    """A file that is opened when it is unpickled, like files of h5py."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self) -> None:
        """Do nothing."""

    def __reduce__(self) -> Any:
        return open, (self.path,)


def test_a_file_that_is_not_there_is_no_missing_package(tmp_path: Path) -> None:
    packed = pickle.loads(pickle.dumps(Packed(Opened(tmp_path / "gone.h5"))))
    with pytest.raises(StoreError, match=r"does not see a file .*gone\.h5.*shared file system"):
        packed()
    # Temporary errors belong to neither kind.
    packed = pickle.loads(pickle.dumps(Packed(Opened(tmp_path))))
    with pytest.raises(IsADirectoryError):
        packed()
