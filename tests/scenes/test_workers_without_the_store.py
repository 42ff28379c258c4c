"""Workers that do not see the input or the output: an error that says so, never a wrong map."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster
from numpy.testing import assert_array_equal

import daskclust
from daskclust.app import cli
from daskclust.core.engine.graph_partition import read_again
from daskclust.core.storage.stored_array import StoredArray, as_dask, metadata_digest
from daskclust.exceptions import ClusterError, StoreError
from daskclust.tables import open_table

pytestmark = pytest.mark.usefixtures("few_trees")

ROOT = Path(__file__).resolve().parents[2]


def may_unshare() -> bool:
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return False
    command = ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def some_of(*often: str, rare: Sequence[str]) -> list[Any]:
    """Of each reader one; the others are slow."""
    return [*often, *(pytest.param(ending, marks=pytest.mark.slow) for ending in rare)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that one of the two workers does not see: only an empty one."""
    return tmp_path_factory.mktemp("unseen")


@pytest.fixture(scope="module")
def half_blind(place: Path) -> Iterator[Client]:
    if not may_unshare():
        pytest.skip("needs the right to make a mount namespace (unshare -m)")
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        worker = (
            f"mount -t tmpfs none {place} && exec {sys.executable} -m distributed.cli.dask_worker "
            f"{cluster.scheduler_address} --no-nanny --nthreads 1 --name blind --no-dashboard"
        )
        process = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", worker],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        try:
            client.wait_for_workers(2, timeout=60)
            yield client
        finally:
            process.terminate()
            process.wait(300)


@pytest.fixture
def scene(place: Path) -> Path:
    path = place / f"scene-{time.monotonic_ns()}.zarr"
    values = np.arange(30 * 30 * 3, dtype=np.int16).reshape(30, 30, 3) + 1
    group = zarr.create_group(path)
    array = group.create_array(
        "cube", shape=values.shape, chunks=(6, 6, 3), dtype="i2", dimension_names=("y", "x", "band")
    )
    array[:] = values
    classes = group.create_array(
        "classes", shape=(30, 30), chunks=(6, 6), dtype="i2", dimension_names=("y", "x")
    )
    classes[:] = 1
    hidden = group.create_array(
        "hidden", shape=(30, 30), chunks=(6, 6), dtype=bool, dimension_names=("y", "x")
    )
    hidden[:] = values[:, :, 0] % 7 == 0
    return path


def test_an_input_that_a_worker_does_not_see(half_blind: Client, scene: Path) -> None:
    samples = daskclust.open_cube(scene, variable="cube").samples
    with pytest.raises(StoreError, match=r"worker tcp://.* does not see '.*scene-\d+\.zarr/cube'"):
        half_blind.compute(samples, workers=["blind"]).result()
    refused_or_right(lambda: samples.sum().compute(), "does not see")
    refused_or_right(
        lambda: daskclust.open_cube(scene, variable="cube", nodata=0).n_valid, "does not see"
    )
    refused_or_right(lambda: inertia(samples), "does not see")


def inertia(samples: da.Array) -> float:
    return float(daskclust.KMeans(3, random_state=0).fit(samples).inertia_)


def refused_or_right(found: Callable[[], float], message: str) -> None:
    """Run what either worker may do: the blind one refuses, the other one may do all by itself."""
    with dask.config.set(scheduler="synchronous"):
        expected = found()
    try:
        result = found()
    except StoreError as error:
        if not re.search(message, str(error)):
            raise
    else:
        assert result == pytest.approx(expected, rel=1e-12)


def own_array(how: str, path: Path, values: np.ndarray) -> da.Array:
    """Write a Zarr store, and return a lazy array of it that daskclust has not opened."""
    if how == "xarray":
        xarray = pytest.importorskip("xarray", reason="needs the extra `raster`")
        rows = xarray.Dataset({"rows": (("y", "x"), values)}).chunk({"y": 50})
        rows.to_zarr(path, zarr_format=2)
        return xarray.open_zarr(path)["rows"].data
    array = zarr.create_array(path, shape=values.shape, chunks=(50, 4), dtype=values.dtype)
    array[:] = values
    if how == "in a function":

        def part(number: np.ndarray, array: zarr.Array) -> np.ndarray:
            return np.asarray(array[number[0] * 50 : (number[0] + 1) * 50])

        numbers = da.arange(8, chunks=1)
        return numbers.map_blocks(
            part, array=array, dtype=values.dtype, chunks=((50,) * 8, (4,)), new_axis=1
        )
    return da.from_zarr(str(path), inline_array=how == "inline")


@pytest.mark.parametrize(
    ("how", "copied"),
    [
        *(("from_zarr", copied) for copied in ("nothing", "half", "all")),
        *((how, "half") for how in ("inline", "in a function", "xarray")),
    ],
)
def test_a_store_that_others_opened(half_blind: Client, place: Path, how: str, copied: str) -> None:
    path = place / f"others-{time.monotonic_ns()}.zarr"
    values = (np.arange(400 * 4).reshape(400, 4) % 97 + 5).astype(np.int16)
    with dask.config.set(scheduler="synchronous"):
        X = own_array(how, path, values)
        model = daskclust.KMeans(3, random_state=0).fit(values)
    files = {str(f): f.read_bytes() for f in path.rglob("*") if f.is_file()}
    chunks = sorted(name for name in files if Path(name).name[0].isdigit())
    if copied == "half":
        files = {name: files[name] for name in files.keys() - set(chunks[: len(chunks) // 2])}
    if copied != "nothing":
        copy_there(half_blind, files)

    def first() -> np.ndarray:
        return np.asarray(half_blind.compute(model.predict(X[:50]), workers=["blind"]).result())

    if copied == "all":
        assert_array_equal(first(), model.predict(values[:50]))
        return
    missing = f"does not see .*{path.name}"
    try:
        assert_array_equal(first(), model.predict(values[:50]))
    except StoreError as refused:
        if not re.search(missing, str(refused)):
            raise
    with pytest.raises(StoreError, match=missing):
        half_blind.compute(model.predict(X), workers=["blind"]).result()
    for persist in (False, True):
        with dask.config.set({"daskclust.persist": persist}):
            refused_or_right(lambda: inertia(X), missing)


def own_file(how: str, path: Path, values: np.ndarray) -> da.Array:
    """Write a file, and return a lazy array of it that others opened, but for an archive."""
    if how == "zip":
        with zarr.storage.ZipStore(path, mode="w") as store:
            zarr.create_array(store, data=values, chunks=(50, 4), compressors=None)
        return as_dask(zarr.open_array(zarr.storage.ZipStore(path, mode="r")))
    if how == "xarray":
        xarray = pytest.importorskip("xarray", reason="needs the extra `raster`")
        pytest.importorskip("h5netcdf", reason="needs the extra `raster`")
        xarray.Dataset({"rows": (("y", "x"), values)}).to_netcdf(path, engine="h5netcdf")
        return xarray.open_dataset(path, engine="h5netcdf", chunks={"y": 50})["rows"].data
    pandas = pytest.importorskip("pandas", reason="needs the extra `dataframe`")
    frames = pytest.importorskip("dask.dataframe", reason="needs the extra `dataframe`")
    table = pandas.DataFrame(values, columns=list("abcd"))
    if how == "csv":
        table.to_csv(path, index=False)
        return frames.read_csv(path).to_dask_array(lengths=[len(values)])
    table.to_parquet(path, index=False)
    return frames.read_parquet(path).to_dask_array(lengths=[len(values)])


@pytest.mark.parametrize("how", ["zip", "xarray", "parquet", "csv"])
def test_files_that_others_opened(half_blind: Client, place: Path, how: str) -> None:
    """Other values were taken for the client's; a worker without an archive ended."""
    values = (np.arange(400 * 4).reshape(400, 4) % 89 + 10).astype(np.int16)

    def read_there(copied: str) -> np.ndarray:
        path = place / f"{copied}-{time.monotonic_ns()}.{'zip' if how == 'zip' else 'file'}"
        with dask.config.set(scheduler="synchronous"):
            own_file(how, path, values[::-1])
            other = path.read_bytes()
            path.unlink()
            X = own_file(how, path, values)
        whole = path.read_bytes()
        content = {"whole": whole, "other": other, "shorter": whole[: len(whole) * 3 // 4]}
        if copied in content:
            copy_there(half_blind, {str(path): content[copied]})
        return np.asarray(half_blind.compute(read_again(X), workers=["blind"]).result(120))

    assert_array_equal(read_there("whole"), values)
    for copied, said in (
        ("nothing", r"does not see .*nothing-"),
        ("shorter", r"sees \d+ bytes at '.*shorter-"),
        ("other", r"sees .* '.*other-"),
    ):
        with pytest.raises(StoreError, match=rf"worker tcp://.* {said}"):
            read_there(copied)


ROWS = np.random.default_rng(0).normal(size=(900, 3))
CLASSES = np.arange(900, dtype=np.int16) % 3
#: One class in each half, where there is one at all.
FEW = np.where(np.arange(900) % 5 == 0, np.arange(900) // 450 + 1, -1).astype(np.int16)


def whole_scene() -> daskclust.Cube:
    values = da.from_array(ROWS.reshape(30, 30, 3), chunks=(5, 5, 3))
    return daskclust.open_cube(values, dims=("y", "x", "band"))


def map_of(lazy: Any) -> float:
    return float(whole_scene().write_labels(lazy, zarr.storage.MemoryStore())["labels"][:].sum())


#: What may be lazy beside the rows: values, and what is made of them.
BESIDE: dict[str, tuple[np.ndarray, Callable[[Any], float]]] = {
    "weight": (
        CLASSES + 1,
        lambda lazy: daskclust.KMeans(3, random_state=0).fit(ROWS, sample_weight=lazy).inertia_,
    ),
    "y": (
        FEW,
        lambda lazy: daskclust.SemiSupervisedKMeans(3, random_state=0).fit(ROWS, lazy).inertia_,
    ),
    "links": (
        np.stack([np.arange(0, 400, 2), np.arange(1, 401, 2)], axis=1),
        lambda lazy: daskclust.PCKMeans(3, random_state=0).fit(ROWS, must_link=lazy).inertia_,
    ),
    "label map": (FEW.reshape(30, 30), lambda lazy: whole_scene().rows_of(lazy)[1].sum()),
    "labels of a map": (CLASSES, map_of),
}


@pytest.mark.parametrize("use", BESIDE)
@pytest.mark.filterwarnings("ignore:.* pairs are violated")
def test_what_lies_beside_the_rows(half_blind: Client, place: Path, use: str) -> None:
    """Only rows were compared: half of a label map, of weights, of labels to write were 0."""
    values, made = BESIDE[use]
    path = place / f"beside-{time.monotonic_ns()}.zarr"
    chunks = {1: (25,), 2: (5, 5)}[values.ndim] if values.shape[-1] > 3 else (25, values.shape[1])
    array = zarr.create_array(path, shape=values.shape, chunks=chunks, dtype=values.dtype)
    array[:] = values
    lazy = da.from_zarr(str(path))
    refused_or_right(lambda: float(made(lazy)), f"does not see .*{path.name}")


@pytest.mark.parametrize(
    "ending", some_of(".tif", ".nc", ".parquet", rare=(".cdf", ".npy", ".zip", ".csv"))
)
def test_a_file_that_a_worker_does_not_see(half_blind: Client, place: Path, ending: str) -> None:
    values = (np.arange(30 * 30 * 3).reshape(30, 30, 3) % 97).astype(np.float32)
    path = place / f"scene-{time.monotonic_ns()}{ending}"
    opened = write_scene(path, values)
    with dask.config.set(scheduler="synchronous"):  # what opening reads is read here: tasks that
        samples = opened().samples  # the scheduler knows already keep the worker that they have

    def read() -> None:
        half_blind.compute(samples, workers=["blind"]).result()

    with pytest.raises(StoreError, match=rf"worker tcp://.* does not see .*{path.name}") as error:
        read()
    text = str(error.value)
    assert "\n" not in text
    assert "use a shared file system" in text


def write_scene(path: Path, values: np.ndarray) -> Callable[[], Any]:
    """Write a scene, or a table of its pixels, and return what opens it."""
    if path.suffix in (".parquet", ".csv"):
        pandas = pytest.importorskip("pandas", reason="needs the extra `dataframe`")
        table = pandas.DataFrame(values.reshape(-1, 3), columns=list("abc"))
        if path.suffix == ".csv":
            table.to_csv(path, index=False)
        else:
            table.to_parquet(path, index=False)
        return partial(open_table, path)
    if path.suffix == ".npy":
        np.save(path, values)
        return partial(daskclust.open_cube, path, dims=("y", "x", "band"))
    if path.suffix in (".nc", ".cdf"):
        xarray = pytest.importorskip("xarray", reason="needs the extra `raster`")
        array = xarray.DataArray(values, dims=("y", "x", "band"), name="cube")
        classic = path.suffix == ".cdf"
        array.to_netcdf(path, engine="scipy" if classic else "h5netcdf")
        return partial(daskclust.open_cube, path)
    rasterio = pytest.importorskip("rasterio", reason="needs the extra `raster`")
    tif = path.with_suffix(".tif")
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 0, 0, -10, 0)}
    shape = {"height": 30, "width": 30, "count": 3, "dtype": "float32"}
    with rasterio.open(tif, "w", driver="GTiff", **shape, **place) as file:
        file.write(values.transpose(2, 0, 1))
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.write(tif, "scene.tif")
    return partial(daskclust.open_cube, path)


def test_a_mask_and_labels_that_a_worker_does_not_see(half_blind: Client, scene: Path) -> None:
    group = zarr.open_group(scene, mode="r")
    values = np.asarray(group["cube"][:])
    # The cube is in memory: only the raster beside it has to be seen, by each of 25 tasks.
    blocks = {"dims": ("y", "x", "band"), "chunks": (6, 6)}
    cube = daskclust.open_cube(values, **blocks)
    with pytest.raises(StoreError, match=r"scene-.*classes"):
        cube.rows_of(scene, variable="classes")
    masked = daskclust.open_cube(values, **blocks, mask=group["hidden"])
    with pytest.raises(StoreError, match=r"scene-.*hidden"):
        assert masked.n_valid


def copy_there(client: Client, files: dict[str, bytes]) -> None:
    """Write files on the worker that is blind to what the client has under these paths."""

    def write() -> None:
        for name, content in files.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_bytes(content)

    (blind,) = (a for a, w in client.scheduler_info()["workers"].items() if w["name"] == "blind")
    client.run(write, workers=[blind])


def diagnosed(client: Client, *arguments: str) -> tuple[int, str]:
    said = io.StringIO()
    with redirect_stdout(said):
        code = cli.main(["doctor", *arguments, f"--scheduler={client.scheduler.address}"])
    return code, said.getvalue()


def half_of(scene: Path) -> dict[str, bytes]:
    """Return the metadata of a store and half of its chunks, as a copy has that was cut off."""
    files = sorted(path for path in scene.rglob("*") if path.is_file())
    chunks = [path for path in files if path.name != "zarr.json"]
    kept = [path for path in files if path.name == "zarr.json"] + chunks[: len(chunks) // 2]
    return {str(path): path.read_bytes() for path in kept}


@pytest.mark.parametrize("shards", [None, (12, 12, 3)])
def test_a_copy_of_the_store_that_lacks_chunks(
    half_blind: Client, place: Path, shards: tuple[int, ...] | None
) -> None:
    path = place / f"half-{time.monotonic_ns()}.zarr"
    values = np.arange(30 * 30 * 3, dtype=np.int16).reshape(30, 30, 3) + 1
    # Of these blocks no worker has a file, and the client neither: fill values, as before.
    values[:6, :12] = 0
    if shards is not None:
        values[:12, :12] = 0
    array = zarr.create_array(
        path, shape=values.shape, chunks=(6, 6, 3), shards=shards, dtype="i2", fill_value=0,
        dimension_names=("y", "x", "band"),
    )  # fmt: skip
    array[:] = values
    copy_there(half_blind, half_of(path))
    lazy = as_dask(zarr.open_array(path, mode="r"))

    def on_blind(part: da.Array) -> np.ndarray:
        return np.asarray(half_blind.compute(part, workers=["blind"]).result())

    missing = rf"does not see \d+ of the \d+ stored chunks of .*{path.name}', such as '.*/c/"
    # Blocks that no worker and no client has, that lack chunks, and of several chunks.
    rows = 6 if shards is None else 12
    for part in (lazy[:rows, :12], lazy[24:], lazy.rechunk((30, 30, 3))):
        with pytest.raises(StoreError, match=f"worker tcp://.* {missing}"):
            on_blind(part)
    samples = daskclust.open_cube(path).samples
    refused_or_right(lambda: inertia(samples), f"{missing}.*shared file system")
    code, said = diagnosed(half_blind, str(path))
    assert code == 1
    assert re.search(r"does not see \d+ of the \d+ stored chunks of", said), said


def test_a_complete_copy_with_gaps_is_read(half_blind: Client, place: Path) -> None:
    path = place / f"whole-{time.monotonic_ns()}.zarr"
    array = zarr.create_array(path, shape=(40, 8, 2), chunks=(4, 4, 2), dtype="f4")
    array[8:20] = 3.0
    copy_there(half_blind, {str(f): f.read_bytes() for f in path.rglob("*") if f.is_file()})
    lazy = as_dask(zarr.open_array(path, mode="r"))
    found = half_blind.compute(lazy, workers=["blind"]).result()
    assert_array_equal(found, array[:])
    # Written since: what is there now counts.
    array[30:] = 1.0
    assert half_blind.compute(lazy.sum(), workers=["blind"]).result() == 3.0 * 12 * 8 * 2


@pytest.mark.parametrize(
    "ending", some_of(".tif", ".nc", ".npy", ".csv", rare=(".img", ".zip", ".cdf", ".parquet"))
)
def test_a_file_that_is_shorter_on_a_worker(half_blind: Client, place: Path, ending: str) -> None:
    values = (np.arange(60 * 60 * 3).reshape(60, 60, 3) % 97 + 1).astype(np.float32)
    path = place / f"short-{time.monotonic_ns()}{ending}"
    if ending == ".img":
        rasterio = pytest.importorskip("rasterio", reason="needs the extra `raster`")
        shape = {"height": 60, "width": 60, "count": 3, "dtype": "float32"}
        with rasterio.open(path, "w", driver="ENVI", **shape) as file:
            file.write(values.transpose(2, 0, 1))
        opened: Callable[[], Any] = partial(daskclust.open_cube, path)
    else:
        opened = write_scene(path, values)
    files = [f for f in path.parent.glob(f"{path.stem}*") if f.is_file()]
    contents = {str(f): f.read_bytes() for f in files}
    largest = max(contents, key=lambda name: len(contents[name]))
    if ending != ".zip":
        contents[largest] = contents[largest][: len(contents[largest]) * 3 // 4]
    contents[str(path)] = contents[str(path)][: len(contents[str(path)]) * 3 // 4]
    with dask.config.set(scheduler="synchronous"):
        samples = opened().samples
    copy_there(half_blind, contents)
    with pytest.raises(Exception, match=r"short-|whole|truncated|cut off|Parquet|size") as error:
        half_blind.compute(samples, workers=["blind"]).result()
    if ending in (".tif", ".img", ".zip", ".parquet", ".csv"):
        assert isinstance(error.value, StoreError)
        assert "bytes at" in str(error.value)
        assert "of which the client opened" in str(error.value)
    if ending in (".tif", ".img", ".zip"):
        code, said = diagnosed(half_blind, str(path))
        assert code == 1
        assert "bytes at" in said


@pytest.mark.parametrize(
    "ending", some_of(".zarr", ".nc", ".npy", rare=(".csv", ".tif", ".zip", ".cdf"))
)
def test_a_file_of_the_same_size_with_other_values(
    half_blind: Client, place: Path, ending: str
) -> None:
    values = (np.arange(30 * 30 * 3).reshape(30, 30, 3) % 89 + 10).astype(np.float32)

    def write(path: Path, values: np.ndarray) -> Callable[[], Any]:
        if ending != ".zarr":
            return write_scene(path, values)
        array = zarr.create_array(path, shape=values.shape, chunks=(9, 30, 3), dtype="f4",
                                  compressors=None, dimension_names=("y", "x", "band"))  # fmt: skip
        array[:] = values
        return partial(daskclust.open_cube, path)

    path = place / f"same-{time.monotonic_ns()}{ending}"

    def written(values: np.ndarray) -> tuple[Callable[[], Any], dict[str, bytes]]:
        opened = write(path, values)
        files = [f for top in place.glob(f"{path.stem}*") for f in (top, *top.rglob("*"))]
        return opened, {str(f): f.read_bytes() for f in files if f.is_file()}

    def on_blind(opened: Callable[[], Any]) -> np.ndarray:
        with dask.config.set(scheduler="synchronous"):
            samples = opened().samples
        return np.asarray(half_blind.compute(samples, workers=["blind"]).result())

    opened, older = written(values)
    copy_there(half_blind, older)
    # A copy as it should be, but for its times.
    assert_array_equal(on_blind(opened), values.reshape(-1, 3))
    for name in older:
        Path(name).unlink()
    opened, newer = written(values[::-1, ::-1].copy())
    assert {f: len(content) for f, content in newer.items()} == {
        f: len(content) for f, content in older.items()
    }
    with pytest.raises(StoreError, match=rf"worker tcp://.* sees other values in '.*{path.stem}"):
        on_blind(opened)
    if ending == ".zarr":
        code, said = diagnosed(half_blind, str(path))
        assert code == 1
        assert "sees other values in" in said


def test_an_output_that_a_worker_does_not_see(half_blind: Client, place: Path) -> None:
    values = np.arange(30 * 30 * 3, dtype=np.int16).reshape(30, 30, 3)
    cube = daskclust.open_cube(values, dims=("y", "x", "band"), chunks=(6, 6))
    labels = da.ones(900, chunks=(cube.samples.chunks[0],), dtype=np.int32)
    out = place / "labels.zarr"

    def written() -> int:
        cube.write_labels(labels, out, overwrite=True)
        whole = int(np.asarray(zarr.open_array(out / "labels", mode="r")[:]).sum())
        shutil.rmtree(out)
        return whole

    refused_or_right(written, "does not see")
    assert not [path for path in place.iterdir() if "labels" in path.name]
    blind = [
        name
        for name, info in half_blind.scheduler_info()["workers"].items()
        if info["name"] == "blind"
    ]
    left = half_blind.run(lambda: sorted(os.listdir(place)), workers=blind)
    # Incomplete copies of other tests lie there.
    made = [name for names in left.values() for name in names if "labels" in name]
    assert not made, "the worker made folders of its own"

    def made_scene() -> float:
        daskclust.datasets.make_hyperspectral_cube(
            place / "made.zarr", shape=(40, 40), n_bands=2, chunks=(8, 8), random_state=0
        )
        total = float(np.asarray(zarr.open_array(place / "made.zarr" / "cube")[:]).sum())
        shutil.rmtree(place / "made.zarr")
        return total

    refused_or_right(made_scene, "does not see")
    assert not [path for path in place.iterdir() if "made" in path.name]


def test_a_store_in_memory_reaches_no_other_process(client: Client) -> None:
    values = np.arange(30 * 30 * 3, dtype=np.int16).reshape(30, 30, 3)
    cube = daskclust.open_cube(values, dims=("y", "x", "band"), chunks=(6, 6))
    memory = zarr.storage.MemoryStore()
    with pytest.raises(
        StoreError,
        match="25 of 25 blocks written by workers are missing in 'memory:",
    ):
        cube.write_labels(np.ones(900, int), memory)
    assert memory._store_dict == {}


def test_a_worker_of_another_version_is_named(client: Client) -> None:
    def become(version: str) -> None:
        import daskclust

        daskclust._version.__version__ = version

    rows = da.from_array(ROWS, chunks=(100, 3))
    client.run(become, "0.0.1")
    try:
        with pytest.raises(
            ClusterError, match=r"must have daskclust .* like the client, got 0\.0\.1"
        ):
            daskclust.KMeans(3, random_state=0).fit(rows)
    finally:
        client.run(become, daskclust.__version__)
    daskclust.KMeans(3, random_state=0).fit(rows)


def test_a_block_that_vanishes_is_named(tmp_path: Path) -> None:
    values = np.arange(12 * 12 * 3, dtype=np.int16).reshape(12, 12, 3)
    cube = daskclust.open_cube(values, dims=("y", "x", "band"), chunks=(6, 6))

    def lose(block: np.ndarray) -> np.ndarray:
        for path in tmp_path.glob(".l.zarr.*.partial/labels/?.?"):
            path.unlink()
        return block

    rows = da.zeros(144, chunks=(cube.samples.chunks[0],), dtype=np.int32).map_blocks(
        lose, dtype=np.int32, meta=np.empty(0, np.int32)
    )
    with pytest.raises(StoreError, match=r"of 4 blocks .* \(such as \d\.\d"):
        with dask.config.set(scheduler="sync"):
            cube.write_labels(rows, tmp_path / "l.zarr")
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_goes_away_later(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "a.zarr", shape=(4,), chunks=(2,), dtype="i2")
    array[:] = [1, 2, 3, 4]
    stored = StoredArray(zarr.open_array(tmp_path / "a.zarr", mode="r"))
    assert_array_equal(stored[:2], [1, 2])
    assert_array_equal(as_dask(stored).compute(), [1, 2, 3, 4])
    (tmp_path / "a.zarr").rename(tmp_path / "gone")
    # What zarr answers now is the fill value.
    assert_array_equal(array[:], [0, 0, 0, 0])
    with pytest.raises(StoreError, match="does not see"):
        stored[2:]
    with pytest.raises(StoreError, match="does not see"):
        stored[:2] = np.array([5, 6])
    assert not (tmp_path / "a.zarr").exists()
    (tmp_path / "gone").rename(tmp_path / "a.zarr")
    assert_array_equal(stored[2:], [3, 4])
    zarr.create_array(tmp_path / "a.zarr", shape=(3,), dtype="i2", overwrite=True)
    with pytest.raises(StoreError, match="sees another array"):
        stored[:3]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_metadata_are_found_in_every_kind_of_store(tmp_path: Path, zarr_format: int) -> None:
    # A contract: metadata are read through zarr's own stores, by `sync` and `get`.
    found = set()
    for store in (
        zarr.storage.MemoryStore(),
        zarr.storage.LocalStore(tmp_path / "a"),
        "memory://x",
    ):
        group = zarr.create_group(store, zarr_format=zarr_format, overwrite=True)
        array = group.create_array("deep/er", shape=(4,), dtype="i2")
        assert metadata_digest(array) is not None
        found.add(metadata_digest(array))
        empty = zarr.create_array(zarr.storage.MemoryStore(), shape=(2,), dtype="i2")
        assert metadata_digest(empty) not in found
    assert len(found) == 1
    with zarr.storage.ZipStore(tmp_path / "a.zip", mode="w") as zipped:
        zarr.create_array(zipped, shape=(2,), dtype="i2")
    opened = zarr.open_array(zarr.storage.ZipStore(tmp_path / "a.zip", mode="r"))
    stored = StoredArray(opened)
    assert_array_equal(stored[:], [0, 0])


def test_vectors_and_their_labels_that_a_worker_does_not_see(
    half_blind: Client, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pandas", reason="needs the extra `dataframe`")
    path = place / f"vectors-{time.monotonic_ns()}.npy"
    np.save(path, np.arange(200, dtype=np.int8).reshape(50, 4))
    table = open_table(path)
    with pytest.raises(StoreError, match=rf"worker tcp://.* does not see .*{path.name}"):
        half_blind.compute(table.samples, workers=["blind"]).result()
    # One task for each of 25 parts: the blind worker is given some.
    with monkeypatch.context() as patch:
        patch.setattr("daskclust.tables._arrays._TASK_BYTES", 8)
        table = open_table(path)
    labels = da.ones(50, chunks=2, dtype=np.int32)
    for name in ("l.npy", "l.zarr"):
        target = place / name

        def written(target: Path = target) -> int:
            table.write_labels(labels, target)
            found = np.load(target) if target.suffix == ".npy" else zarr.open(target)["label"][:]
            target.unlink() if target.is_file() else shutil.rmtree(target)
            return int(found.sum())

        refused_or_right(written, "does not see")
        assert not [path for path in place.iterdir() if "l." in path.name]
