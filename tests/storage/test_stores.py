"""What is refused where stores are opened."""

import json

import pytest
import zarr

from daskclust.storage.seen import as_dask
from daskclust.storage.stores import array_of, arrays_of, open_store


def test_metadata_that_make_no_sense_are_an_error_of_one_line(tmp_path):
    stored = zarr.create_array(tmp_path / "a.zarr", shape=(6, 6), chunks=(3, 3), dtype="i2")
    stored[:] = 1
    path = tmp_path / "a.zarr" / "zarr.json"
    whole = json.loads(path.read_text())
    path.write_text(json.dumps(whole | {"shape": [2**62, 6]}))
    with pytest.raises(ValueError, match=r"chunks of .* at most"):
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
        with pytest.raises(ValueError, match=r"metadata are damaged.*'labels'"):
            use(opened)
    assert array_of(opened, "other") is None
