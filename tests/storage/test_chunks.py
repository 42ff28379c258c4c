"""Chunks that are decoded in the thread that wants them are those that Zarr reads."""

from __future__ import annotations

import os
import pickle
import shutil
import time
import tracemalloc
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec

import daskclust
from daskclust.exceptions import StoreError
from daskclust.kernels.scratch import recycle
from daskclust.storage import seen as chunks
from daskclust.storage.seen import StoredArray, read_chunks

SHAPE, CHUNKS = (23, 9, 4), (8, 4, 4)

#: What is decoded here: format, and how it is compressed.
DIRECT: dict[str, dict[str, Any]] = {
    "default": {},
    "plain": {"compressors": None},
    "zstd with checksum": {"compressors": ZstdCodec(level=3, checksum=True)},
    "blosc": {"compressors": BloscCodec(cname="lz4", shuffle="shuffle", typesize=4)},
    "v2": {"zarr_format": 2},
    "v2 plain": {"zarr_format": 2, "compressors": None},
    "v2 blosc": {"zarr_format": 2, "compressors": numcodecs.Blosc()},
}
#: What is left to Zarr.
OTHERS: dict[str, dict[str, Any]] = {
    "gzip": {"compressors": GzipCodec()},
    "two compressors": {"compressors": (ZstdCodec(), Crc32cCodec())},
    "transposed": {"filters": TransposeCodec(order=(2, 0, 1))},
    "shards": {"shards": (16, 8, 4)},
    "v2 by columns": {"zarr_format": 2, "order": "F"},
    "v2 filtered": {"zarr_format": 2, "filters": [numcodecs.Delta(dtype="<f4")]},
    "big-endian": {"dtype": "int16", "serializer": BytesCodec(endian="big")},
    "logical": {"dtype": "bool"},
    "complex": {"dtype": "complex64"},
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


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float16", "float64"])
def test_numbers_of_every_kind_are_decoded(dtype: str, tmp_path: Path) -> None:
    array = store(tmp_path, dtype)
    found = read_chunks(array, slice(3, 20))
    assert found is not None
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, array[3:20])


@pytest.mark.parametrize("how", DIRECT)
def test_parts_of_any_extent_are_those_of_zarr(how: str, tmp_path: Path) -> None:
    array = store(tmp_path, **DIRECT[how])
    values = array[...]

    @given(st.tuples(*(st.tuples(st.integers(0, n), st.integers(0, n)) for n in SHAPE)))
    def same(ends: tuple[tuple[int, int], ...]) -> None:
        part = tuple(slice(min(pair), max(pair)) for pair in ends)
        found = read_chunks(array, part)
        assert (found is None) == (values[part].size == 0)
        if found is not None:
            np.testing.assert_array_equal(found, values[part])
            out = np.empty(values[part].shape, array.dtype)
            assert read_chunks(array, part, out) is out
            np.testing.assert_array_equal(out, values[part])

    same()


@pytest.mark.parametrize("how", OTHERS)
def test_other_layouts_are_left_to_zarr(how: str, tmp_path: Path) -> None:
    array = store(tmp_path, **OTHERS[how])
    assert read_chunks(array, slice(0, 8)) is None
    np.testing.assert_array_equal(StoredArray(array)[0:8], array[0:8])


def test_other_stores_are_left_to_zarr(tmp_path: Path) -> None:
    here = zarr.create_array(zarr.storage.MemoryStore(), shape=(4,), chunks=(2,), dtype="int8")
    assert read_chunks(here, slice(0, 2)) is None
    kept = store(tmp_path)
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        assert read_chunks(kept, slice(0, 2)) is None


@pytest.mark.parametrize(
    "selection", [3, (0, slice(0, 2)), slice(0, 9, 2), np.array([1, 5]), ..., slice(4, 4), -1]
)
def test_other_selections_are_left_to_zarr(selection: Any, tmp_path: Path) -> None:
    array = store(tmp_path)
    assert read_chunks(array, selection) is None
    if not isinstance(selection, np.ndarray):
        np.testing.assert_array_equal(StoredArray(array)[selection], array[selection])


@pytest.mark.parametrize("how", DIRECT)
def test_what_is_absent_is_filled_as_by_zarr(how: str, tmp_path: Path) -> None:
    array = store(tmp_path, **DIRECT[how])
    file_of(array, 0, 1, 0).unlink()
    assert read_chunks(array, slice(0, 8)) is None
    found = StoredArray(array)[0:8]
    assert (found[:, 4:8] == 0).all()
    np.testing.assert_array_equal(found, array[0:8])


@pytest.mark.parametrize("how", DIRECT)
@pytest.mark.parametrize("damage", ["shorter", "longer", "empty", "noise", "another"])
def test_damaged_chunks_are_never_answered(how: str, damage: str, tmp_path: Path) -> None:
    """A chunk that decodes to fewer values would leave those of another block in its place."""
    array = store(tmp_path, **DIRECT[how])
    small = zarr.create_array(
        tmp_path / "small.zarr",
        **{"shape": (4, 4, 4), "chunks": (4, 4, 4), "dtype": "float32", **DIRECT[how]},
    )
    small[...] = 1.0
    name = file_of(array, 0, 0, 0)
    whole = name.read_bytes()
    name.write_bytes(
        {
            "shorter": whole[:-5],
            "longer": whole + bytes(700),
            "empty": b"",
            "noise": bytes(range(256)) * 3,
            "another": file_of(small, 0, 0, 0).read_bytes(),
        }[damage]
    )
    here = (slice(0, 8), slice(0, 4))
    if "blosc" in how and damage in ("shorter", "empty"):
        # Zarr's decoder reads behind the end, and answers what lies there.
        with pytest.raises(StoreError, match=r"is cut off: it has \d+ bytes and needs \d+"):
            StoredArray(array)[here]
        return
    try:
        expected = array[here]
    except Exception:
        expected = None
    try:
        found = read_chunks(array, here)
    except StoreError:
        found = None
    assert found is None or np.array_equal(found, expected)
    if damage != "longer":
        assert found is None


def test_an_absent_chunk_takes_no_memory(tmp_path: Path) -> None:
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=(10,), chunks=(2**44,), dtype="float32", fill_value=3
    )
    assert read_chunks(array, slice(0, 9)) is None
    np.testing.assert_array_equal(StoredArray(array)[0:9], np.full(9, 3.0))


def test_one_cut_chunk_is_held_at_a_time(tmp_path: Path) -> None:
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=(60, 2**17), chunks=(10, 2**17), dtype="i8"
    )
    array[...] = 1
    tracemalloc.start()
    try:
        found = read_chunks(array, (slice(0, 60), slice(0, 2**10)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found is not None
    # The result, a decoded chunk, and less than another.
    assert peak < found.nbytes + 1.5 * 10 * 2**17 * 8


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


def test_a_path_and_an_array_are_read_by_dask_without_zarr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.random.default_rng(0).integers(0, 99, (600, 3)).astype(np.int16)
    kept = zarr.create_array(tmp_path / "x.zarr", shape=rows.shape, chunks=(90, 3), dtype="int16")
    kept[...] = rows
    lazy = [
        da.from_zarr(str(tmp_path / "x.zarr")),
        da.from_zarr(kept),
        da.from_array(kept, chunks=(180, 3)) * 1,
    ]
    model = daskclust.KMeans(4, init=rows[:4].astype(float), algorithm="lloyd", max_iter=5)
    expected = model.fit(da.from_array(rows, chunks=(90, 3))).cluster_centers_

    def refused(*args: Any) -> None:
        raise AssertionError("Zarr was asked")

    monkeypatch.setattr(zarr.Array, "__getitem__", refused)
    for array in lazy:
        for keep in (False, True):
            with dask.config.set({"daskclust.persist": keep, "scheduler": "threads"}):
                model.fit(array)
                np.testing.assert_array_equal(model.cluster_centers_, expected)
                assert np.asarray(model.labels_).shape == (600,)


@pytest.mark.parametrize("keep", ["auto", False])
def test_a_store_that_fits_is_decoded_once(
    keep: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.random.default_rng(0).integers(1, 99, (600, 3)).astype(np.int16)
    kept = zarr.create_array(tmp_path / "x.zarr", shape=rows.shape, chunks=(50, 3), dtype="int16")
    kept[...] = rows
    decode, decoded = chunks._decode, []

    def counted(name: str, *arguments: Any) -> bool:
        decoded.append(name)
        return decode(name, *arguments)

    monkeypatch.setattr(chunks, "_decode", counted)
    model = daskclust.KMeans(4, init=rows[:4].astype(float), algorithm="lloyd", max_iter=5, tol=0)
    with dask.config.set({"daskclust.persist": keep, "scheduler": "threads"}):
        model.fit(da.from_zarr(kept))
    times = set(Counter(decoded).values())
    assert len(set(decoded)) == 12
    # Otherwise once a pass: the survey, each iteration, and the inertia in the end.
    assert times == ({1} if keep else {model.history_[-1]["passes"] + 1})


def test_values_outlive_the_memory_that_is_used_again(tmp_path: Path) -> None:
    array = zarr.create_array(
        tmp_path / "x.zarr", shape=(8, 2**18), chunks=(1, 2**18), dtype="float32"
    )
    array[...] = np.arange(1, 9)[:, None]
    with ThreadPoolExecutor(1, initializer=recycle) as pool:
        read = [
            pool.submit(read_chunks, array, slice(number, number + 1)).result()
            for number in range(8)
        ]
    for number, values in enumerate(read):
        assert (values == number + 1).all()


def test_an_array_travels_to_other_processes(tmp_path: Path) -> None:
    array = StoredArray(store(tmp_path))
    there = pickle.loads(pickle.dumps(array))
    assert (there.shape, there.dtype, there.ndim) == (SHAPE, np.float32, 3)
    assert (there.name, repr(there)) == (array.name, repr(array))
    np.testing.assert_array_equal(there[:], array[:])


@pytest.mark.parametrize("kind", ["default", "plain", "v2 blosc", "gzip", "shards"])
@pytest.mark.parametrize("change", ["written", "renamed", "removed"])
def test_a_chunk_that_changes_after_the_opening_is_an_error(
    kind: str, change: str, tmp_path: Path
) -> None:
    array = store(tmp_path, **{**DIRECT, **OTHERS}[kind])
    opened = StoredArray(array)
    there = pickle.loads(pickle.dumps(opened))
    for one in (opened, there):
        np.testing.assert_array_equal(one[:], array[:])
    time.sleep(0.02)  # the clock of the file system is coarse
    file = file_of(array, 1, 0, 0)
    before = file.read_bytes()
    if change == "written":
        array[8:] = array[8:] + 1
    else:
        file.rename(tmp_path / "aside")
        if change == "renamed":
            (tmp_path / "new").write_bytes(before)
            (tmp_path / "new").rename(file)
    for one in (opened, there):
        with pytest.raises(StoreError, match=r"has changed|which the client has"):
            one[8:]
    if change != "removed":
        np.testing.assert_array_equal(StoredArray(array)[:], array[:])


def test_a_copy_made_after_the_opening_is_read(tmp_path: Path) -> None:
    array = store(tmp_path)
    sent = pickle.dumps(StoredArray(array))
    values = array[:]
    time.sleep(0.02)
    copied = shutil.copytree(tmp_path / "rows.zarr", tmp_path / "copy", copy_function=shutil.copy)
    shutil.rmtree(tmp_path / "rows.zarr")
    copied.rename(tmp_path / "rows.zarr")
    np.testing.assert_array_equal(pickle.loads(sent)[:], values)


def test_where_the_clock_of_files_is_ahead_times_say_nothing(tmp_path: Path) -> None:
    array = store(tmp_path)
    ahead = time.time() + 100
    for file in (tmp_path / "rows.zarr").rglob("*"):
        os.utime(file, (ahead, ahead))
    np.testing.assert_array_equal(StoredArray(array)[:], array[:])


@pytest.mark.parametrize("how", ["path", "xarray"])
def test_a_store_that_changes_between_two_passes_ends_the_fit(how: str, tmp_path: Path) -> None:
    image = np.random.default_rng(0).normal(size=(40, 30, 4)).astype(np.float32)
    group = zarr.create_group(tmp_path / "c.zarr")
    group.create_array("c", data=image, chunks=(10, 30, 4), dimension_names=("y", "x", "band"))

    def opened() -> daskclust.Cube:
        if how == "path":
            return daskclust.open_cube(tmp_path / "c.zarr")
        xarray = pytest.importorskip("xarray", reason="needs the extra `raster`")
        return daskclust.open_cube(xarray.open_zarr(tmp_path / "c.zarr", consolidated=False).c)

    cube = opened()
    model = daskclust.KMeans(3, random_state=0).fit(cube)
    time.sleep(0.02)
    group["c"][12:18] = 5
    for use in (model.fit, model.predict, lambda cube: cube.to_map(model.labels_)):
        with pytest.raises(StoreError, match=r"has changed.* Open it again"):
            np.asarray(use(cube))
    np.asarray(model.predict(opened()))
