"""What several test files need, once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import copy_context
from pathlib import Path
from typing import Any, TypeVar

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from scipy.sparse import csr_array

from daskclust.core.engine import on_notice
from daskclust.datasets import make_hyperspectral_cube

__all__ = [
    "chunks_of",
    "counts_of",
    "moons",
    "nearly",
    "small_scene",
    "spawned",
    "spread_by_less",
    "values",
    "within",
    "write_labels",
]

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[1]
#: A number that is no part of a name, such as that of ``x2`` or ``EPSG:32633``.
NUMBER = re.compile(r"(?<![\w:.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def chunks_of(default: int) -> Callable[..., da.Array]:
    """Return a function that cuts an array into chunks of rows, ``default`` each if not told."""

    def chunked(array: Any, rows: int = default) -> da.Array:
        array = np.asarray(array)
        return da.from_array(array, chunks=(rows, *array.shape[1:]))

    return chunked


def values(array: Any) -> np.ndarray:
    """Return the values of an array, lazy or not."""
    return array if isinstance(array, np.ndarray) else array.compute()


def nearly(shown: str, printed: str) -> bool:
    """Whether a text is the same, its numbers within 2 % or a thousandth.

    In the last bits processors differ, and so does a pixel or two.

    >>> nearly("97.5%", "97.4%"), nearly("97.5%", "95.0%"), nearly("forest", "built")
    (True, False, False)
    >>> nearly("(x2: 0.500)", "(x2: 0.501)"), nearly("x100", "x101"), nearly("1-NN", "2-NN")
    (True, False, False)
    """
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=False)
    return NUMBER.split(shown) == NUMBER.split(printed) and all(
        abs(float(one) - float(other)) <= 0.02 * abs(float(other)) + 1e-3 for one, other in pairs
    )


def moons(n: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two half circles that no straight line tells apart."""
    rng = np.random.default_rng(seed)
    angle = np.pi * rng.random(n)
    truth = rng.integers(0, 2, n)
    x = np.column_stack([np.cos(angle), np.sin(angle)])
    x[truth == 1] = [1.0, 0.4] - x[truth == 1]
    return x + rng.normal(scale=0.05, size=x.shape), truth


def with_repeated_indices(x: csr_array) -> csr_array:
    """Return the same matrix with stored zeros, and with unsorted and repeated indices."""
    rng, coo = np.random.default_rng(0), x.tocoo()
    n_rows, n_columns = x.shape
    row = np.concatenate([coo.row, coo.row, np.arange(n_rows)])
    column = np.concatenate([coo.col, coo.col, rng.integers(0, n_columns, n_rows)])
    stored = np.concatenate([coo.data - 1, np.ones(coo.nnz), np.zeros(n_rows)])
    order = np.lexsort([rng.random(len(row)), row])
    ends = np.append(0, np.cumsum(np.bincount(row, minlength=n_rows)))
    return csr_array((stored[order], column[order], ends), shape=x.shape)


def small_scene(folder: Path) -> np.ndarray:
    """Write ``scene.zarr``, of three classes in four blocks, and return its truth.

    K-means finds most of them in few passes: each takes a command a dozen milliseconds.
    """
    group = make_hyperspectral_cube(
        folder / "scene.zarr",
        shape=(40, 50),
        n_bands=12,
        n_classes=3,
        chunks=(20, 25),
        uninformative_noise=0.02,
        random_state=0,
    )
    return group["truth"][:]


def spawned() -> AbstractContextManager[Any]:
    """Let workers import all they need themselves, as they do for users (see conftest.py)."""
    return dask.config.set({"distributed.worker.multiprocessing-method": "spawn"})


def spread_by_less(patch: pytest.MonkeyPatch) -> None:
    """Let a fit of label spreading grow ten trees for a hundred, in two sets of prototypes for six.

    Sets and trees are most of its time, and of that of predictions, for a small scene.
    """
    from daskclust.semisupervised import classifiers, label_spreading

    patch.setattr(classifiers, "_TREES", 10)
    patch.setattr(label_spreading, "_SETS", 2)


def write_labels(store: Path, labels: np.ndarray, **attributes: Any) -> None:
    """Write a map of codes, -1 for none, as people have them."""
    group = zarr.create_group(store)
    codes = labels.astype(np.int16)
    group.create_array("classes", data=codes, dimension_names=("y", "x"), attributes=attributes)


def within(seconds: float, work: Callable[..., T], *arguments: Any) -> T:
    """Work in a thread, which may take long but not for ever."""
    found: list[T] = []
    errors: list[BaseException] = []
    said: list[str] = []

    def run() -> None:
        try:
            found.append(work(*arguments))
        except BaseException as error:
            errors.append(error)

    with on_notice(said.append):
        # The context, and who listens, are copied to the thread.
        thread = threading.Thread(target=copy_context().run, args=(run,), daemon=True)
        thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    assert found, f"not done after {seconds} s: {said} {_where(thread)}"
    return found[0]


def _where(thread: threading.Thread) -> str:
    """Tell what a thread is at."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)[-6:])


def counts_of(program: Path, *arguments: Any, seconds: float) -> dict[str, int]:
    """Run a program of the tests, whose last line is JSON, in a process that may not survive it."""
    done = subprocess.run(
        [sys.executable, program, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"{lines[-1:]}: exit {done.returncode}\n{done.stderr[-3000:]}"
    counts: dict[str, int] = json.loads(lines[-1])
    return counts
