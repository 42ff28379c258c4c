"""Functions of the commands that read a cube: flags, and opening the cube."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from daskclust.app.commands.contradictions import OF_MOSAICS
from daskclust.app.commands.requests import (
    ClassOptions,
    CubeOptions,
    LabelRequest,
    SuggestRequest,
    UsageError,
)
from daskclust.core.array_types import Ints
from daskclust.core.persistence.mixin import bands_for
from daskclust.core.storage.redact import redact
from daskclust.exceptions import DaskclustWarning
from daskclust.scenes.formats.opening import kind_of
from daskclust.scenes.formats.vector import no_codes


def open_exclusion(cube: Any, options: SuggestRequest | LabelRequest) -> Any:
    """Open the image of ``--exclude``, or return None without it; only metadata are read."""
    if options.exclude is None:
        return None
    store, name = store_and_variable(options.exclude)
    return cube.open_exclusion("--exclude", local_name(store), variable=name)


def count_pixels(cube: Any, task: Callable[[str], Any]) -> int:
    """Count the valid pixels; raise ValueError if all are masked.  `task` shows the progress."""
    with task("Valid pixels"):
        n_valid = int(cube.n_valid)
    if n_valid == 0:
        raise ValueError(
            f"All {cube.n_masked} pixels are masked, by nodata "
            f"({', '.join(map(str, (*cube.nodata, 'NaN')))}) or "
            "--mask; check --nodata, --bad-bands and --mask, or use --incomplete keep."
        )
    return n_valid


def paths_of(cube: Any) -> dict[str, str]:
    """Return the paths of a cube's files, by their names in messages."""
    if cube is None or isinstance(cube, str):
        return {} if cube is None else {"the cube": cube}
    return {f"file {number} of the cube": path for number, path in enumerate(cube, start=1)}


def name_of_cube(cube: Any) -> str:
    """Return the file name of a cube; for several files, the first name and the number of others.

    >>> name_of_cube("tiles/scene.tif"), name_of_cube(("b02.tif", "b03.tif"))
    ('scene.tif', 'b02.tif and 1 more')
    """
    first, *others = (cube,) if isinstance(cube, str) else cube
    name = Path(redact(first).rstrip("/")).name
    return f"{name} and {len(others)} more" if others else name


def store_and_variable(text: str) -> tuple[str, str | None]:
    """Split ``STORE::NAME``.

    >>> store_and_variable("truth.zarr::classes"), store_and_variable("s3://b/truth.zarr")
    (('truth.zarr', 'classes'), ('s3://b/truth.zarr', None))
    """
    store, colons, name = text.rpartition("::")
    # fsspec chains protocols by the same colons, as in simplecache::s3://.
    return (store, name) if colons and "/" not in name else (text, None)


def open_cube_of(options: CubeOptions, *, model: Any = None) -> Any:
    """Open the cube that the options describe, with the bands that a model was fitted to."""
    import daskclust

    names = "variable dims nodata incomplete min_observed chunks wavelengths".split()
    chosen = {name: getattr(options, name) for name in names}
    chosen["bad_bands"] = "auto" if options.bad_bands is None else options.bad_bands
    chosen["bands"] = None if model is None else bands_for(model, open_cube_of(options))
    # Commands with a model, or without a fit, have no option for scaling.
    chosen["scale"] = getattr(options, "scale", "none")
    if options.mask is not None:
        store, name = store_and_variable(options.mask)
        chosen["mask"] = local_name(store) if name is None else (local_name(store), name)
    grid = grid_of(options)
    if options.mosaic:
        return daskclust.open_mosaic(_tiles(options), **grid, **chosen)
    return daskclust.open_cube(local_name(options.cube), **chosen)


def grid_of(options: CubeOptions) -> dict[str, Any]:
    """Return the given options of the mosaic; raise a UsageError without ``--mosaic``."""
    grid = {name: getattr(options, name) for name in OF_MOSAICS if options.is_given(name)}
    if grid and not options.mosaic:
        raise UsageError(
            f"--{next(iter(grid)).replace('_', '-')} requires --mosaic. Pass the tiles with "
            "--mosaic instead of CUBE."
        )
    return grid


def _tiles(options: CubeOptions) -> Any:
    """Return the paths of the tiles, or the path of one file of STAC items."""
    from daskclust.scenes.mosaic_items import OF_STAC_ITEMS

    files = (options.cube,) if isinstance(options.cube, str) else options.cube or ()
    paths = [local_name(path) for path in files]
    return paths[0] if len(paths) == 1 and paths[0].lower().endswith(OF_STAC_ITEMS) else paths


def tiles_of_pixels(cube: Any, options: CubeOptions, lines: Ints, columns: Ints) -> Ints:
    """Return the tile number of each pixel; ``--overlap`` selects one of several tiles."""
    from daskclust.scenes.mosaic_grid import tiles_of_points
    from daskclust.scenes.mosaic_items import read_items
    from daskclust.scenes.mosaic_tiles import open_tiles

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DaskclustWarning)  # The cube has warned of damaged tiles.
        opened = open_tiles(read_items(_tiles(options)), options.assets, options.skip_damaged)
    grid = cube.geobox
    x, y = grid.transform @ (columns + 0.5, lines + 0.5)
    order = -1 if options.overlap == "last" else 1
    return tiles_of_points([tiles[0] for _, tiles in opened][::order], x, y, grid.crs.to_wkt())


def local_name(path: Any) -> Any:
    """Return one or more absolute paths, which workers in other folders need; keep URLs."""
    if isinstance(path, tuple):
        return [*map(local_name, path)]
    return path if "://" in path else str(Path(path).absolute())


def sources_of(text: str) -> list[str]:
    """Split ``a.tif,b.geojson`` into files; the name of an existing file may contain a comma.

    >>> sources_of("ask.geojson,few.tif"), sources_of("few.zarr::classes")
    (['ask.geojson', 'few.tif'], ['few.zarr::classes'])
    """
    if Path(store_and_variable(text)[0]).exists():
        return [text]
    return [source for source in (source.strip() for source in text.split(",")) if source]


def inputs_of(options: CubeOptions, *names: str) -> dict[str, str | None]:
    """Return the input paths of a command by their names in messages; `names` are more options."""
    paths: dict[str, str | None] = {**paths_of(options.cube)}
    for name in ("labels", "truth", "mask", "exclude"):
        text = getattr(options, name, None)
        sources = [] if text is None else sources_of(text)
        for i, source in enumerate(sources, start=1):
            flag = f"--{name}" if len(sources) == 1 else f"source {i} of --{name}"
            paths[flag] = store_and_variable(source)[0]
    for name in (*names, "config"):
        path = getattr(options, name)
        paths[f"--{name.replace('_', '-')}"] = None if path is None else str(path)
    return paths


def open_labels(cube: Any, options: ClassOptions, name: str) -> Any:
    """Open the label maps of a flag as one map; only metadata are read.

    If the maps contradict each other, computing the values raises an error.
    """
    from daskclust.app.labeling.files import has_only_class
    from daskclust.scenes.label_images import join_labels

    flag, text = f"--{name}", getattr(options, name)
    opened = []
    for source in sources_of(text):
        store, variable = store_and_variable(source)
        column = options.class_column if kind_of(store) in ("vector", "table") else None
        if column and has_only_class(source, column):
            column = "class"  # the column in files of questions
        image = cube.open_map(
            flag,
            local_name(store),
            variable=variable,
            class_column=column,
            resample=options.resample_labels,
        )
        if image.values.dtype.kind not in "iub":
            raise no_codes(flag, image.values.dtype)
        opened.append((redact(source), image))
    if not opened:
        raise ValueError(f"{flag} {text!r} must be the path of a file.")
    if len(opened) == 1:
        return opened[0][1]
    return join_labels(opened, cube.chunks, tuple(options.unlabeled))
