"""Scenes in stores of other packages: whatever is a store of Zarr is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr

from daskclust import KMeans, open_cube

CODES = np.random.default_rng(0).integers(-127, 128, (20, 30, 64)).astype(np.int8)


def write(store: Any) -> None:
    group = zarr.open_group(store, mode="w")
    names = ("y", "x", "band")
    group.create_array("embedding", data=CODES, chunks=(10, 30, 64), dimension_names=names)


def obstore_store() -> Any:
    obstore = pytest.importorskip("obstore.store", reason="obstore is not installed")
    store = zarr.storage.ObjectStore(obstore.MemoryStore())
    write(store)
    return store


def icechunk_store() -> Any:
    icechunk = pytest.importorskip("icechunk", reason="icechunk is not installed")
    repository = icechunk.Repository.create(icechunk.in_memory_storage())
    session = repository.writable_session("main")
    write(session.store)
    session.commit("codes")
    return repository.readonly_session("main").store


@pytest.mark.parametrize("make", [zarr.storage.MemoryStore, obstore_store, icechunk_store])
def test_a_scene_is_read_from_a_store(make) -> None:
    store = make()
    if make is zarr.storage.MemoryStore:
        write(store)
    cube = open_cube(store, quantization="alphaearth")
    known = open_cube(CODES, dims=("y", "x", "band"), quantization="alphaearth")
    fits = [KMeans(4, max_iter=3, random_state=0).fit(c).labels_ for c in (cube, known)]
    np.testing.assert_array_equal(*(labels.compute() for labels in fits))
