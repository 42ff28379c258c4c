"""Chunks of Zarr arrays: cut off, changed, or read by tasks of others."""

from __future__ import annotations

import pickle
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, GzipCodec

import daskclust
from daskclust.core.storage.retry import NEVER_AGAIN
from daskclust.core.storage.stored_array import StoredArray
from daskclust.exceptions import ChunkError, StoreError

SHAPE, CHUNKS = (23, 9, 4), (8, 4, 4)

#: Format, and compression.
KINDS: dict[str, dict[str, Any]] = {
    "default": {},
    "plain": {"compressors": None},
    "v2 blosc": {"zarr_format": 2, "compressors": numcodecs.Blosc()},
    "gzip": {"compressors": GzipCodec()},
    "shards": {"shards": (16, 8, 4)},
}
BLOSC: dict[str, dict[str, Any]] = {
    "v3": {"compressors": BloscCodec(cname="lz4", shuffle="shuffle", typesize=4)},
    "v2": KINDS["v2 blosc"],
}


def store(folder: Path, dtype: str = "float32", **options: Any) -> zarr.Array:
    array = zarr.create_array(
        folder / "rows.zarr", shape=SHAPE, chunks=CHUNKS, dtype=dtype, fill_value=0, **options
    )
    values = np.random.default_rng(0).integers(0, 255, SHAPE)
    array[...] = values.astype(dtype)
    return array


def file_of(array: zarr.Array, *place: int) -> Path:
    return Path(str(array.store.root)) / array.path / array.metadata.encode_chunk_key(place)


@pytest.mark.parametrize("how", BLOSC)
def test_a_chunk_in_blosc_that_is_cut_off_is_never_answered(how: str, tmp_path: Path) -> None:
    """The decoder reads behind the end, and returns what lies there."""
    array = store(tmp_path, **BLOSC[how])
    name = file_of(array, 1, 0, 0)
    whole = name.read_bytes()
    for length in range(0, len(whole), len(whole) // 9):
        name.write_bytes(whole[:length])
        for selection in (slice(8, 16), ..., (slice(0, 23), slice(2, 3)), (9, 1)):
            with pytest.raises(StoreError, match=rf"is cut off: it has {length} bytes and needs"):
                StoredArray(array)[selection]
        np.testing.assert_array_equal(StoredArray(array)[16:], array[16:])
    name.write_bytes(whole)
    np.testing.assert_array_equal(StoredArray(array)[:], array[:])
    name.unlink()
    assert (StoredArray(array)[8:16, :4] == 0).all()


def test_tasks_of_others_get_the_array_itself(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    kept = zarr.create_array(tmp_path / "x.zarr", shape=rows.shape, chunks=(20, 3), dtype="f8")
    kept[...] = rows

    def block(array: Any, start: int) -> Any:
        assert isinstance(array, zarr.Array)
        return np.asarray(array)[start : start + 30] + len(array.attrs)

    parts = [
        da.from_delayed(dask.delayed(block)(dask.delayed(kept), start), (30, 3), float)
        for start in (0, 30)
    ]
    model = daskclust.KMeans(2, init=rows[:2], algorithm="lloyd", max_iter=3)
    expected = model.fit(rows).cluster_centers_
    for lazy in (da.concatenate(parts), da.concatenate(parts) * 1.0):
        np.testing.assert_allclose(model.fit(lazy).cluster_centers_, expected, rtol=1e-12)


@pytest.mark.parametrize("keep", ["auto", False])
def test_a_store_that_fits_is_read_once(
    keep: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.random.default_rng(0).integers(1, 99, (600, 3)).astype(np.int16)
    kept = zarr.create_array(tmp_path / "x.zarr", shape=rows.shape, chunks=(50, 3), dtype="int16")
    kept[...] = rows
    read, get = Counter[str](), zarr.Array.__getitem__

    def counted(array: zarr.Array, selection: Any) -> Any:
        values = get(array, selection)
        # Dask asks for an empty selection, too.
        read[str(selection)] += values.size > 0
        return values

    monkeypatch.setattr(zarr.Array, "__getitem__", counted)
    model = daskclust.KMeans(4, init=rows[:4].astype(float), algorithm="lloyd", max_iter=5, tol=0)
    with dask.config.set({"daskclust.persist": keep, "scheduler": "threads"}):
        model.fit(da.from_zarr(kept))
    read = +read
    assert len(read) == 12
    # Otherwise once a pass: the survey, each iteration, and the inertia in the end.
    assert {*read.values()} == ({1} if keep else {model.history_[-1]["passes"] + 1})


def test_an_array_travels_to_other_processes(tmp_path: Path) -> None:
    array = StoredArray(store(tmp_path))
    there = pickle.loads(pickle.dumps(array))
    assert (there.shape, there.dtype, there.ndim) == (SHAPE, np.float32, 3)
    assert (there.name, repr(there)) == (array.name, repr(array))
    np.testing.assert_array_equal(there[:], array[:])


@pytest.mark.parametrize("kind", KINDS)
def test_a_chunk_that_a_copy_lacks_is_an_error(kind: str, tmp_path: Path) -> None:
    array = store(tmp_path, **KINDS[kind])
    sent = pickle.dumps(StoredArray(array))
    values = array[:]
    file = file_of(array, 1, 0, 0)
    content = file.read_bytes()
    file.unlink()
    there = pickle.loads(sent)
    for selection in (slice(0, 4), slice(8, 12)):
        with pytest.raises(StoreError, match=r"does not see 1 of the \d+ stored chunks of .*'"):
            there[selection]
    file.write_bytes(content)
    np.testing.assert_array_equal(there[:], values)


def test_a_copy_made_after_the_opening_is_read(tmp_path: Path) -> None:
    array = store(tmp_path)
    sent = pickle.dumps(StoredArray(array))
    values = array[:]
    copied = shutil.copytree(tmp_path / "rows.zarr", tmp_path / "copy", copy_function=shutil.copy)
    shutil.rmtree(tmp_path / "rows.zarr")
    copied.rename(tmp_path / "rows.zarr")
    np.testing.assert_array_equal(pickle.loads(sent)[:], values)


def test_an_older_copy_with_the_same_metadata_is_an_error(tmp_path: Path) -> None:
    array = store(tmp_path)
    sent = pickle.dumps(StoredArray(array))
    array[...] = 255 - array[...]
    with pytest.raises(StoreError, match=r"sees other values in|bytes at"):
        pickle.loads(sent)[:]


@pytest.mark.parametrize("how", ["path", "xarray"])
def test_a_store_that_changes_between_two_passes_ends_the_fit(how: str, tmp_path: Path) -> None:
    image = np.random.default_rng(0).normal(size=(40, 30, 4)).astype(np.float32)
    group = zarr.create_group(tmp_path / "c.zarr")
    group.create_array("c", data=image, chunks=(10, 30, 4), dimension_names=("y", "x", "band"))
    if how == "path":
        cube = daskclust.open_cube(tmp_path / "c.zarr")
    else:
        xarray = pytest.importorskip("xarray", reason="needs the extra `raster`")
        cube = daskclust.open_cube(xarray.open_zarr(tmp_path / "c.zarr", consolidated=False).c)
    with dask.config.set({"daskclust.persist": False}):
        model = daskclust.KMeans(3, random_state=0).fit(cube)
        group["c"][12:18] = 5
        with pytest.raises((ChunkError, ValueError), match=r"changed|written to"):
            np.asarray(cube.to_map(model.labels_))


@pytest.mark.parametrize("kind", KINDS)
def test_the_pipeline_of_zarrs_reads_the_same(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("zarrs", reason="needs the package `zarrs`")
    store(tmp_path, **KINDS[kind])
    values = zarr.open_array(tmp_path / "rows.zarr")[:]
    model = daskclust.KMeans(2, random_state=0).fit(values.reshape(23, -1))
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        array = zarr.open_array(tmp_path / "rows.zarr", mode="r")
        assert "zarrs" in type(array.async_array.codec_pipeline).__module__
        there = pickle.loads(pickle.dumps(StoredArray(array, NEVER_AGAIN)))
        for part in (slice(3, 20), (slice(0, 23), slice(2, 7)), ...):
            np.testing.assert_array_equal(there[part], values[part])
        rows = da.from_zarr(array).rechunk((8, -1, -1)).reshape(23, -1)
        np.testing.assert_array_equal(model.fit(rows).predict(rows), model.predict(rows.compute()))
        name = file_of(array, 0, 0, 0)
        name.write_bytes(name.read_bytes()[:-3])
        with pytest.raises((StoreError, OSError, ValueError, RuntimeError)):
            there[:8]
