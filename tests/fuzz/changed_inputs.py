"""Change what users give at random and use it: a program of bounded memory.

    python changed_inputs.py KIND FIRST LAST

KIND is "maps", "cubes" or "checkpoints".  Each number from FIRST to LAST - 1 is the seed of one
change.  Whatever is changed, the map, the cube and the checkpoint must end in labels, or in an
error of the kinds that the command line prints as one line.  The number is printed before the
attempt, so that a crash names it.
"""

from __future__ import annotations

import contextlib
import json
import resource
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import dask
import numpy as np
import zarr

import daskclust
from daskclust.app import cli

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "core" / "engine"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "core" / "persistence"))
from changed_checkpoints import change_checkpoint, make_checkpoints
from mutations import change_array, change_files, change_json

#: Address space beyond what imports and compiled kernels take.
_ROOM = 2 * 2**30
#: Processor seconds that nothing here may take: other work on the machine does not count.
_LONGEST = 30.0
#: Seeds that are tried before memory is bounded, and again after it.
_BEFORE = 5


def make(folder: Path) -> None:
    """Write a scene and a map of classes."""
    rng = np.random.default_rng(0)
    scene = zarr.create_group(folder / "scene.zarr")
    values = rng.integers(0, 1000, (12, 14, 6)).astype(np.int16)
    array = scene.create_array(
        "cube", shape=values.shape, chunks=(6, 6, 6), dtype="i2", dimension_names=("y", "x", "band")
    )
    array[:] = values
    cube = daskclust.open_cube(folder / "scene.zarr", variable="cube")
    classes = rng.integers(-1, 3, cube.n_valid)
    cube.write_labels(classes, folder / "map.zarr", n_clusters=3, class_names=["a", "b", "c"])


def judge(call: Any) -> str:
    """Return how a call ended; what the command line would not print as one line is raised."""
    began = time.process_time()
    try:
        call()
        found = "used"
    except Exception as error:
        if not cli._is_expected(error) or len(cli._one_line(error)) < 12:
            raise
        found = "refused"
    assert time.process_time() - began < _LONGEST
    return found


def change_map(rng: np.random.Generator, source: Path, scratch: Path) -> Any:
    """Change a label map; return its use as labels of the scene."""
    folder = scratch / "map.zarr"
    shutil.copytree(source / "map.zarr", folder)
    for _ in range(int(rng.integers(1, 3))):
        if rng.integers(3):
            change_files(rng, folder)
            continue
        # What was damaged before may be past reading, and what is made up past writing.
        with contextlib.suppress(Exception):
            group = zarr.open_group(folder, mode="r+")
            values = change_array(rng, np.asarray(group["labels"][...]))
            attributes = json.loads(json.dumps(group["labels"].attrs.asdict()))
            change_json(rng, attributes)
            new = group.create_array("labels", data=values, overwrite=True)
            new.attrs.update(attributes)
    cube = daskclust.open_cube(source / "scene.zarr", variable="cube")

    def use() -> None:
        rows, labels = cube.rows_of(folder, variable="labels")
        assert len(rows) == len(labels)
        assert not len(rows) or (0 <= rows.min() and rows.max() < cube.n_valid)

    return use


def tools_for(kind: str) -> tuple[Any, Any]:
    """Return what makes the things to change, and what changes one and returns its use."""
    if kind == "cubes":  # needs the extra `raster`
        from changed_cubes import change_cube, make_cubes

        return make_cubes, change_cube
    return {
        "maps": (make, change_map),
        "checkpoints": (make_checkpoints, change_checkpoint),
    }[kind]


def main(kind: str, first: str, last: str) -> None:
    """Try all seeds."""
    warnings.simplefilter("ignore")
    counts: dict[str, int] = {}
    prepare, change = tools_for(kind)
    with (
        tempfile.TemporaryDirectory() as inside,
        tempfile.TemporaryDirectory() as outside,
        contextlib.chdir(inside),
        dask.config.set({"scheduler": "sync", "daskclust.read-backoff": "1ms"}),
    ):
        source = Path(inside)
        prepare(source)
        for seed in range(_BEFORE):  # import and compile
            one(change, seed, source, Path(outside))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _ROOM, used + _ROOM))
        for seed in range(int(first), int(last)):
            print(f"seed {seed}", flush=True)
            found = one(change, seed, source, Path(outside))
            counts[found] = counts.get(found, 0) + 1
    print(json.dumps({**counts, "cpu seconds": round(time.process_time())}))


def one(change: Any, seed: int, source: Path, outside: Path) -> str:
    """Return how the use of what a seed changes has ended."""
    scratch = outside / "scratch"
    scratch.mkdir()
    try:
        found = judge(change(np.random.default_rng(seed), source, scratch))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
