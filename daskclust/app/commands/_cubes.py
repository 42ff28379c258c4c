"""Common to the commands that read a cube: the flags, and opening it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from daskclust.app.commands.console import natural, one_of
from daskclust.app.commands.requests import (
    ClassOptions,
    CubeOptions,
    LabelRequest,
    SuggestRequest,
)
from daskclust.core.persistence.mixin import bands_for
from daskclust.core.storage.redact import redact
from daskclust.scenes.bands import in_descriptions, numbers
from daskclust.scenes.bands import parse_bands as ranges_of_bands
from daskclust.scenes.formats.opening import kind_of
from daskclust.scenes.formats.vector import no_codes

_NUMBER = r"(\d+(?:\.\d+)?)"


def add_cube_arguments(parser: argparse.ArgumentParser, *, scale: bool = True) -> None:
    group = parser.add_argument_group("data")
    group.add_argument(
        "cube",
        nargs="*",
        action=_Cube,
        metavar="CUBE",
        help="Zarr (folder, .zip or URL), GeoTIFF, COG, VRT, ENVI, NetCDF, HDF5, .npy, or several "
        "band files; with a cluster, workers must see it too",
    )
    group.add_argument("--variable", metavar="NAME", help="array inside the store")
    group.add_argument(
        "--dims", type=as_names, metavar="Y,X,BAND", help="dimensions in stored order, if unnamed"
    )
    group.add_argument(
        "--nodata",
        type=_nodata,
        default="auto",
        metavar="VALUE",
        help="value of pixels without data; auto: as the attributes say; none (default: auto)",
    )
    group.add_argument(
        "--mask",
        metavar="STORE[::NAME]",
        help="boolean image, true where a pixel is left out; one for each date: left out on it",
    )
    group.add_argument(
        "--bad-bands",
        type=parse_bands,
        metavar="LIST",
        help="bands to leave out, as in 0-3,107,400nm-450nm; none (default: as the file says)",
    )
    group.add_argument(
        "--wavelengths",
        type=_wavelengths,
        metavar="FILE|FROM-TO",
        help="band centers in nm: a text file with one number per stored band, or first and last, "
        "as in 400-2500 (default: as the file says)",
    )
    group.add_argument(
        "--incomplete",
        type=one_of("mask", "keep"),
        default="mask",
        metavar="{mask,keep}",
        help="pixels with some bands missing: left out, or kept with NaN (default: mask)",
    )
    group.add_argument(
        "--min-observed",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="of the bands or dates that kept pixels must have (default: 0, one at least)",
    )
    group.add_argument(
        "--chunks", type=_chunks, metavar="ROWSxCOLUMNS", help="of a block (default: as stored)"
    )
    if scale:
        group.add_argument(
            "--scale",
            type=one_of("none", "standard", "unit", "angle", "whitened"),
            default="none",
            metavar="NAME",
            help="scaling of features (default: none); standard: mean 0 and variance 1 (also for "
            "tables); angle: spectra of length 1; whitened: like angle, with white noise",
        )


def add_exclude_argument(group: Any) -> None:
    group.add_argument(
        "--exclude",
        metavar="STORE[::NAME]",
        help="pixels that must not be asked for: boolean image (true: not asked for), or polygons; "
        "they stay in the map",
    )


def open_exclusion(cube: Any, options: SuggestRequest | LabelRequest) -> Any:
    """Open the image that ``--exclude`` names, None without; only metadata are read."""
    if options.exclude is None:
        return None
    store, name = store_and_variable(options.exclude)
    return cube.open_exclusion("--exclude", local_name(store), variable=name)


def as_names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _nodata(text: str) -> float | str | None:
    if text.lower() in ("none", "null"):
        return None
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, auto or none") from error


def _wavelengths(text: str) -> tuple[float, ...]:
    """Read the first and the last wavelength, a list, or a file of all, for ``argparse``."""
    ends = re.fullmatch(rf"{_NUMBER}(?:nm)?-{_NUMBER}(?:nm)?", text.replace(" ", ""))
    if ends is not None:
        return float(ends[1]), float(ends[2])
    if "," in text and numbers(text) is not None:
        return tuple(float(part) for part in text.split(","))
    try:
        said = Path(text).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither FROM-TO in nm, as in 400-2500, nor a text file: {error}"
        ) from error
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if lines and not re.search(r"\d", lines[0]):
        del lines[0]  # a head
    stated = in_descriptions(lines)
    values = numbers(",".join(line.strip(",;") for line in lines)) if stated is None else stated
    if values is None or not len(values):
        raise argparse.ArgumentTypeError(
            f"{text!r} does not hold one number a band, each on a line or between commas"
        )
    return tuple(values.tolist())


def _chunks(text: str) -> tuple[int, int]:
    parts = text.lower().replace(",", "x").split("x")
    if len(parts) != 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not ROWSxCOLUMNS, as in 256x256")
    return natural(parts[0]), natural(parts[1])


def integers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of integers") from error


def parse_bands(text: str) -> tuple[int, ...] | str:
    """Read numbers and ranges of bands, for ``argparse``; wavelengths stay text.

    >>> parse_bands("0-2,7"), parse_bands("none"), parse_bands("400nm-450nm")
    ((0, 1, 2, 7), (), '400nm-450nm')
    """
    if text.lower() in ("none", "null"):
        return ()
    if text == "auto":
        return text
    try:
        items = ranges_of_bands(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if any(item.by_wavelength for item in items):
        return text
    return tuple(n for item in items for n in range(int(item.first), int(item.last) + 1))


class _Cube(argparse.Action):
    """One path as it is, several as a tuple."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        if values:
            setattr(namespace, self.dest, values[0] if len(values) == 1 else tuple(values))


def count_pixels(cube: Any, tell: Callable[[str], Any]) -> int:
    """Count the valid pixels; raise ValueError if there are none.  `tell` shows the progress."""
    with tell("Valid pixels"):
        n_valid = int(cube.n_valid)
    if n_valid == 0:
        raise ValueError(
            f"All {cube.n_masked} pixels are masked, by nodata "
            f"({', '.join(map(str, (*cube.nodata, 'NaN')))}) or "
            "--mask; check --nodata, --bad-bands and --mask, or use --incomplete keep."
        )
    return n_valid


def paths_of(cube: Any) -> dict[str, str]:
    """Return the paths of a cube's files, by what messages call them."""
    if cube is None or isinstance(cube, str):
        return {} if cube is None else {"the cube": cube}
    return {f"the cube's band file {number}": path for number, path in enumerate(cube, start=1)}


def name_of_cube(cube: Any) -> str:
    """Return the name of a cube's file without folders, of several that of the first.

    >>> name_of_cube("tiles/scene.tif"), name_of_cube(("b02.tif", "b03.tif"))
    ('scene.tif', 'b02.tif and 1 more')
    """
    first, *others = (cube,) if isinstance(cube, str) else cube
    name = Path(redact(first).rstrip("/")).name
    return f"{name} and {len(others)} more" if others else name


def store_and_variable(text: str) -> tuple[str, str | None]:
    """Divide ``STORE::NAME``.

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
    # With a model, and if nothing is fitted, scaling is not an option.
    chosen["scale"] = getattr(options, "scale", "none")
    if options.mask is not None:
        store, name = store_and_variable(options.mask)
        chosen["mask"] = local_name(store) if name is None else (local_name(store), name)
    return daskclust.open_cube(local_name(options.cube), **chosen)


def local_name(path: Any) -> Any:
    """Return a path that holds in every folder, for workers, or several; URLs as they are."""
    if isinstance(path, tuple):
        return [*map(local_name, path)]
    return path if "://" in path else str(Path(path).absolute())


def parts_of(text: str) -> list[str]:
    """Divide ``a.tif,b.geojson``; a file whose own name has a comma is one.

    >>> parts_of("ask.geojson,few.tif"), parts_of("few.zarr::classes")
    (['ask.geojson', 'few.tif'], ['few.zarr::classes'])
    """
    if Path(store_and_variable(text)[0]).exists():
        return [text]
    return [part for part in (part.strip() for part in text.split(",")) if part]


def inputs_of(options: CubeOptions, *names: str) -> dict[str, str | None]:
    """Return the paths of what a command reads, options `names` too, by what messages say."""
    found: dict[str, str | None] = {**paths_of(options.cube)}
    for name in ("labels", "truth", "mask", "exclude"):
        text = getattr(options, name, None)
        parts = [] if text is None else parts_of(text)
        for i, part in enumerate(parts, start=1):
            flag = f"--{name}" if len(parts) == 1 else f"source {i} of --{name}"
            found[flag] = store_and_variable(part)[0]
    for name in (*names, "config"):
        given = getattr(options, name)
        found[f"--{name.replace('_', '-')}"] = None if given is None else str(given)
    return found


def add_known_classes(group: Any, flags: str, *, truth: bool = True) -> None:
    group.add_argument(
        "--class-column",
        metavar="NAME",
        help=f"of {flags} in vector files (GeoJSON, GeoPackage, Shapefile) and CSV",
    )
    group.add_argument(
        "--resample-labels",
        action="store_true",
        help=f"bring {flags} of another grid to that of the cube, by the nearest pixel",
    )
    group.add_argument(
        "--unlabeled",
        type=integers,
        default=(-1,),
        metavar="LIST",
        help=f"values of {flags} that mean none, besides their nodata (default: -1)",
    )
    if truth:
        group.add_argument(
            "--truth",
            metavar="STORE[::NAME]",
            help="map of known classes, or of a table a column, only to compare with",
        )


def open_labels(cube: Any, options: ClassOptions, name: str) -> Any:
    """Open the label maps that a flag names, as one; only metadata are read.

    Sources that contradict each other are an error when the values are computed.
    """
    from daskclust.app.labeling.files import has_only_class
    from daskclust.scenes.label_images import join_labels

    flag, text = f"--{name}", getattr(options, name)
    opened = []
    for part in parts_of(text):
        store, variable = store_and_variable(part)
        column = options.class_column if kind_of(store) in ("vector", "table") else None
        if column and has_only_class(part, column):
            column = "class"  # files of questions have their own
        image = cube.open_map(
            flag,
            local_name(store),
            variable=variable,
            class_column=column,
            resample=options.resample_labels,
        )
        if image.values.dtype.kind not in "iub":
            raise no_codes(flag, image.values.dtype)
        opened.append((redact(part), image))
    if not opened:
        raise ValueError(f"{flag} {text!r} names no file.")
    if len(opened) == 1:
        return opened[0][1]
    return join_labels(opened, cube.chunks, tuple(options.unlabeled))
