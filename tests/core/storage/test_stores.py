"""Errors of opening stores."""

import json
import zipfile

import pytest
import zarr

import daskclust
from daskclust.core.storage.stored_array import StoredArray, as_dask, values_of
from daskclust.core.storage.stores import array_of, arrays_of, open_store
from daskclust.exceptions import StoreError


def test_metadata_that_make_no_sense_are_an_error_of_one_line(tmp_path):
    stored = zarr.create_array(tmp_path / "a.zarr", shape=(6, 6), chunks=(3, 3), dtype="i2")
    stored[:] = 1
    path = tmp_path / "a.zarr" / "zarr.json"
    whole = json.loads(path.read_text())
    path.write_text(json.dumps(whole | {"shape": [2**62, 6]}))
    with pytest.raises(
        ValueError,
        match=r"The array '/' of shape \(4611686018427387904, 6\) must have at most 16777216",
    ):
        as_dask(zarr.open_array(tmp_path / "a.zarr", mode="r"))
    old = zarr.create_array(
        tmp_path / "b.zarr", shape=(6,), chunks=(3,), dtype="i2", zarr_format=2, fill_value=0
    )
    old[:] = 1
    path = tmp_path / "b.zarr" / ".zarray"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"fill_value": 10**30}))
    with pytest.raises(ValueError, match="metadata are damaged"):
        open_store(tmp_path / "b.zarr")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("said", [[1], 3, "x"])
def test_attributes_that_are_no_object_are_an_error_of_one_line(version, said, tmp_path):
    group = zarr.create_group(tmp_path / "a.zarr", zarr_format=version)
    group.create_array("labels", shape=(6, 6), chunks=(3, 3), dtype="i2")[:] = 1
    folder = tmp_path / "a.zarr" / "labels"
    if version == 2:
        (folder / ".zattrs").write_text(json.dumps(said))
    else:
        path = folder / "zarr.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"attributes": said}))
    with pytest.raises(ValueError, match=r"labels' cannot be opened: its metadata are damaged"):
        open_store(folder)
    opened = open_store(tmp_path / "a.zarr")
    for use in (arrays_of, lambda group: array_of(group, "labels")):
        with pytest.raises(ValueError, match=r"a\.zarr' cannot be opened: its metadata"):
            use(opened)
    assert array_of(opened, "other") is None


def zipped(tmp_path):
    """A zip file of a Zarr cube, as it is."""
    group = zarr.create_group(tmp_path / "a.zarr")
    group.create_array("cube", shape=(4, 4, 2), chunks=(2, 4, 2), dtype="i2")[:] = 1
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted((tmp_path / "a.zarr").rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(tmp_path / "a.zarr"))
    return path


@pytest.mark.parametrize(
    ("at", "value", "match"),
    [
        (0, 0, "is not a complete zip file: Bad magic number"),
        # The flags of the first file: as if it held a difference to another.
        (8, 0x20, "metadata are damaged.*compressed patched data"),
    ],
)
def test_a_damaged_zip_file_is_an_error_of_one_line(at, value, match, tmp_path):
    path = zipped(tmp_path)
    content = bytearray(path.read_bytes())
    directory = content.index(b"PK\x01\x02")
    metadata = content.rindex(b"PK\x01\x02") if at else directory
    content[metadata + at] = value
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.zip'.*{match}"):
        daskclust.open_cube(path, dims=("y", "x", "band"))


@pytest.mark.parametrize("damage", [TypeError, NotImplementedError, IndexError, ZeroDivisionError])
def test_what_readers_make_of_damaged_chunks_names_the_array(damage, tmp_path, monkeypatch):
    array = zarr.create_array(tmp_path / "a.zarr", shape=(6,), chunks=(3,), dtype="i2")
    array[:] = 1

    def get(*_, **__):
        raise damage("nonsense")

    stored = StoredArray(array)
    monkeypatch.setattr(type(array), "__getitem__", get)
    for read in (lambda: stored[2:4], lambda: values_of(array)):
        with pytest.raises(StoreError, match=rf"a\.zarr' at \[.*{damage.__name__}: nonsense"):
            read()


def test_more_blocks_than_can_be_listed_are_refused(tmp_path):
    group = zarr.create_group(tmp_path / "a.zarr")
    group.create_array(
        "cube", shape=(2**40, 4, 2), chunks=(2, 4, 2), dtype="i2", dimension_names=("y", "x", "b")
    )
    with pytest.raises(ValueError, match=r"1099511627776 x 4 pixels has 549755813888 blocks"):
        daskclust.open_cube(tmp_path / "a.zarr", dims=("y", "x", "band"))
