"""Fixtures and Hypothesis profiles shared by all tests."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
DATA_VARIABLE = "DASKCLUST_TEST_DATA"

# No deadline anywhere: a first call may compile a Numba function or open a store.
settings.register_profile("default", max_examples=25, deadline=None)
settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True)
settings.register_profile("thorough", max_examples=300, deadline=None)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default")
)

# A shell's background job ignores Ctrl-C, and hands that on to the commands that tests interrupt.
if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):
    signal.signal(signal.SIGINT, signal.default_int_handler)


def find_data_dir() -> Path:
    """Folder of the test data: the environment's, else `shared` beside the repository."""
    return Path(os.environ.get(DATA_VARIABLE) or ROOT.parent / "shared").resolve()


def load_golden(name: str) -> dict[str, np.ndarray]:
    """Arrays of golden case `name` (with or without `.npz`); skips where it is absent."""
    path = find_data_dir() / "golden" / f"{name.removesuffix('.npz')}.npz"
    if not path.is_file():
        pytest.skip(f"no golden case {path.name}: set {DATA_VARIABLE} to the test data's folder")
    with np.load(path, allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}


@pytest.fixture
def synchronous() -> Iterator[None]:
    """Run whatever Dask computes in the test's own thread."""
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Connect to a cluster of two processes."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as connected,
    ):
        yield connected


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder that holds `data/` and `golden/`."""
    folder = find_data_dir()
    if not (folder / "data").is_dir():
        pytest.skip(f"no test data in {folder}: set {DATA_VARIABLE} to the folder that holds data/")
    return folder


@pytest.fixture(name="load_golden", scope="session")
def load_golden_fixture():
    """Return `load_golden`, for tests that cannot import conftest."""
    return load_golden
