"""What is refused where stores are opened."""

import json

import pytest
import zarr

from daskclust.storage.seen import as_dask
from daskclust.storage.stores import open_store


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
