"""Checkpoints that are changed at random: they are refused, or a fit goes on from them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutations import change_array, change_json
from test_damaged_checkpoints import FITS, X, labels_of, parts_of, stopped

from daskclust.core.engine import checkpoint

__all__ = ["change_checkpoint", "make_checkpoints"]


def make_checkpoints(folder: Path) -> None:
    """Write the checkpoint of a fit of each kind that was stopped in the middle."""
    for case in FITS:
        stopped(case, folder / f"{case}.npz", pytest.MonkeyPatch())


def _objects(found: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, which an earlier change may have made something else."""
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _change_header(rng: np.random.Generator, meta: dict[str, Any]) -> None:
    """Change anything but the records of iterations: what is in them only estimators know."""
    parts = _objects(meta.get("parts"))
    taken = [(loop, loop.pop("history")) for loop in parts if "history" in loop]
    change_json(rng, meta)
    for loop, history in taken:
        loop["history"] = history


def change_checkpoint(rng: np.random.Generator, source: Path, scratch: Path) -> Callable[[], None]:
    """Change one of the checkpoints; return its use, which goes on from it."""
    case = list(FITS)[rng.integers(len(FITS))]
    path = scratch / "fit.npz"
    whole = (source / f"{case}.npz").read_bytes()
    path.write_bytes(whole)
    if rng.integers(4):
        meta, arrays = parts_of(path)
        for _ in range(int(rng.integers(1, 4))):
            plain = sorted(name for name in arrays if arrays[name].dtype.kind != "V")
            if plain and rng.integers(2):
                name = plain[rng.integers(len(plain))]
                arrays[name] = change_array(rng, arrays[name])
            else:
                _change_header(rng, meta)
        # With a seal that is right; what is made up may be past writing.
        with contextlib.suppress(TypeError, ValueError):
            checkpoint._write(path, json.loads(json.dumps(meta)), arrays)
    else:
        content = bytearray(whole)
        for _ in range(int(rng.integers(1, 6))):
            content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        size = len(content)
        path.write_bytes(content[: int(rng.choice([size, size, size // 2, size - 9, 0]))])

    def use() -> None:
        labels = np.frombuffer(labels_of(case, path), dtype=np.int32)
        assert len(labels) == len(X)
        assert 0 <= labels.min()
        assert labels.max() < 10

    return use
