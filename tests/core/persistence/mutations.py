"""Change saved models at random and load them: a program of its own, with bounded memory.

    python mutations.py FOLDER FIRST LAST

`FOLDER` holds saved models.  Each number from FIRST to LAST - 1 is the seed of one
change.  After any change, loading must end in a model that predicts, or in
ModelFormatError.  The number is printed before the attempt, so that a crash names it.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import zarr

import daskclust
from daskclust.core.persistence import models
from daskclust.exceptions import ModelFormatError

#: Address space beyond what imports and compiled kernels take.
_ROOM = 2 * 2**30
_MARK = "daskclust_model"
#: Bytes of a file that is read here to be changed.
_MOST = 2**20

NUMBERS: list[Any] = [
    *(0, 1, 2, 3, 4, 5, 7, 60, -1, 10**6, 10**12, 2**31, 2**63 - 1, 2**63, 2**70),
    *(0.5, -1.5, 1e-320, 1e160, 1.7e308, {"$float": "nan"}, {"$float": "inf"}),
]
OTHERS: list[Any] = [None, True, False, "", "a", "x" * 10**5, [], [1], ["a", "a"], {}, {"a": 1}]


def places(value: Any, found: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values in JSON."""
    out = [found] if found else []
    items: Any = []
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = list(enumerate(value))[:5]
    for key, item in items:
        out += places(item, (*found, key))
    return out


def change_json(rng: np.random.Generator, whole: Any) -> None:
    """Replace, remove or double one value."""
    found = places(whole)
    if not found:  # an earlier change has emptied it
        return
    path = list(rng.choice(np.array([*found, None], dtype=object)[:-1]))
    *way, last = path
    parent = whole
    for key in way:
        parent = parent[key]
    action = rng.integers(5)
    if action == 0:
        del parent[last]
    elif action == 1 and isinstance(parent, dict):
        parent[f"{last}x"] = parent[last]
    elif action == 2:
        parent[last] = [parent[last]] * int(rng.integers(0, 4))
    else:
        pool = NUMBERS if action == 3 else NUMBERS + OTHERS
        parent[last] = pool[rng.integers(len(pool))]


def change_array(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """Change shape, type or values."""
    action = int(rng.integers(10))
    if action == 0:
        return array[: int(rng.integers(0, len(array) + 1))] if array.ndim else array
    if action == 1:
        return array.T
    if action == 2:
        return array[None] if rng.integers(2) else array.reshape(-1)
    if action == 3:
        return array[..., : int(rng.integers(0, array.shape[-1] + 1))] if array.ndim else array
    if action == 4:
        return np.concatenate([array] * int(rng.integers(2, 4))) if array.ndim else array
    if action == 5:
        return array.astype(rng.choice(["f4", "f8", "i8", "i4", "?", "u1", "c16", "f2", ">f8"]))
    values = array.copy()
    if not values.size:
        return values
    where = rng.integers(values.size, size=int(rng.integers(1, 4)))
    if values.dtype.kind == "f":
        pool = [np.nan, np.inf, -np.inf, 0.0, -1.0, 5e-324, 1e149, 1e160, 1.7e308, -1e-9, 1e9]
        values.flat[where] = rng.choice(pool)
        if action == 9:
            values[...] = rng.choice(pool)
    elif values.dtype.kind == "i":
        values.flat[where] = rng.choice([0, -1, 1, 2, 10**6, 2**31, 2**62, 2**63 - 1, -(2**63)])
    elif values.dtype.kind in "bu":
        values.flat[where] = ~values.flat[where]
    else:  # text
        values.flat[where] = values.flat[0]
    return values


def write(folder: Path, arrays: dict[str, np.ndarray], meta: Any) -> None:
    """Write a model as `save` does, with a checksum that is right."""
    group = zarr.create_group(folder)
    for name, values in arrays.items():
        array = group.create_array(
            name,
            shape=values.shape,
            chunks=tuple(max(1, size) for size in values.shape),
            dtype=values.dtype,
            compressors=None,
            filters=None,
            config={"write_empty_chunks": True},
        )
        array[...] = values
    if isinstance(meta, dict):
        meta["digest"] = models._digest(meta, arrays)
    group.attrs[_MARK] = meta


#: Files of Zarr v3, and of v2, that say what there is.
METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


def change_files(rng: np.random.Generator, folder: Path) -> None:
    """Change files as they are: bits, lengths, the metadata of arrays."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    file = files[rng.integers(len(files))]
    action = rng.integers(4)
    if file.stat().st_size > _MOST:  # an earlier change does not allow this one
        return
    content = bytearray(file.read_bytes())
    if action == 0 and content:
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        file.write_bytes(bytes(content))
    elif action == 1:
        with file.open("r+b") as opened:
            opened.truncate(int(rng.choice([0, len(content) // 2, len(content) + 5, 10**11])))
    else:
        described = [path for path in files if path.name in METADATA]
        file = described[int(rng.integers(len(described)))]
        if file.stat().st_size > _MOST:
            return
        try:
            whole = json.loads(file.read_text())
        except ValueError:  # an earlier change has cut it off
            return
        change_json(rng, whole)
        file.write_text(json.dumps(whole))


def attempt(seed: int, sources: list[Path], scratch: Path, rows: np.ndarray) -> str:
    """Change one model, load it and predict."""
    rng = np.random.default_rng(seed)
    source = sources[rng.integers(len(sources))]
    folder = scratch / f"{seed}.zarr"
    if rng.integers(4) == 0:
        shutil.copytree(source, folder)
        change_files(rng, folder)
    else:
        group = zarr.open_group(source, mode="r")
        meta: Any = json.loads(json.dumps(group.attrs.asdict()[_MARK]))
        arrays = {name: np.asarray(array[...]) for name, array in group.arrays()}
        for _ in range(int(rng.integers(1, 4))):
            if arrays and rng.integers(2):
                name = sorted(arrays)[rng.integers(len(arrays))]
                what = rng.integers(12)
                if what == 0:
                    del arrays[name]
                elif what == 1:
                    arrays[f"{name}x"] = arrays[name]
                else:
                    arrays[name] = change_array(rng, arrays[name])
            else:
                change_json(rng, meta)
        try:
            write(folder, arrays, meta)
        except (ValueError, TypeError, OverflowError, KeyError):
            return "unwritable"
    try:
        model = daskclust.load(folder, max_bytes=2**26)
    except (ModelFormatError, FileNotFoundError):
        return "refused"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    p = model.n_features_in_
    labels = np.asarray(model.predict(np.resize(rows, (len(rows), p))))
    assert labels.shape == (len(rows),), labels.shape
    assert labels.dtype.kind == "i"
    # HDBSCAN alone calls rows noise.
    assert labels.min() >= (-1 if isinstance(model, daskclust.HDBSCAN) else 0)
    # Classes are any integers; clusters are few.
    assert ((labels < 10**6) | np.isin(labels, getattr(model, "classes_", []))).all()
    return "predicts"


def main(folder: str, first: str, last: str) -> None:
    """Try all seeds."""
    warnings.simplefilter("ignore")
    sources = sorted(Path(folder).glob("*.zarr"))
    rows = np.random.default_rng(0).normal(size=(7, 4))
    for source in sources:  # compile before memory is bounded
        daskclust.load(source).predict(rows)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _ROOM, used + _ROOM))
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(int(first), int(last)):
            print(f"seed {seed}", flush=True)
            found = attempt(seed, sources, Path(scratch), rows)
            counts[found] = counts.get(found, 0) + 1
    print(json.dumps(counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
