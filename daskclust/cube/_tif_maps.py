"""Maps as cloud-optimized GeoTIFF, written strip by strip of blocks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.colors import class_colors as default_colors
from daskclust.cube._georeference import Georeference
from daskclust.cube._grids import pixel_grid
from daskclust.cube._metadata import Names, as_names
from daskclust.cube.formats.geotiff import MARK, Legend, check_cog, write_cog
from daskclust.engine import compute
from daskclust.storage.urls import redact_all

__all__ = ["write_label_tif", "write_value_tif"]


def _strips(
    image: da.Array, convert: Callable[[NDArray[Any]], NDArray[Any]]
) -> Iterator[tuple[slice, slice, NDArray[Any]]]:
    """Compute an image (y, x) or (m, y, x) by rows of blocks: what the client holds at once."""
    ends = np.concatenate([[0], np.cumsum(image.chunks[-2])]).tolist()
    columns = slice(0, image.shape[-1])
    for start, stop in pairwise(ends):
        (strip,) = compute("the writing of the map", image[..., start:stop, :])
        yield slice(start, stop), columns, convert(strip)


def write_label_tif(
    image: da.Array,
    place: Georeference,
    names: tuple[str, str],
    path: str | os.PathLike[str],
    *,
    kind: str,
    overwrite: bool,
    n_clusters: int | None,
    class_names: Names | None,
    class_colors: Mapping[int, str] | None,
    attributes: Mapping[str, Any] | None,
    check: Callable[[], None],
) -> None:
    """Write labels (y, x), -1 for none, as 8 or 16 bits with a color table, else as 32.

    Parameters
    ----------
    image : dask.array.Array
    place, names
        Of the cube.
    n_clusters : int or None
        None: up to 65 535 are written.
    check : callable()
        Raises where the map must not be kept.
    """
    check_cog(path, kind=kind, overwrite=overwrite)
    named = as_names(class_names)
    ends = [1 + code for code in named] + ([] if n_clusters is None else [n_clusters])
    # One value more than labels, for none.
    room = max(ends, default=2**8)
    dtype: np.dtype[Any] = np.dtype(
        np.uint8 if room < 2**8 else np.uint16 if room < 2**16 else np.int32
    )
    limit = int(np.iinfo(dtype).max) - 1
    nodata = -1 if dtype.kind == "i" else limit + 1
    found: set[int] = {*named, *range(n_clusters or 0)}

    def convert(labels: NDArray[Any]) -> NDArray[Any]:
        codes = np.unique(labels)
        if len(codes) and (codes[0] < -1 or codes[-1] > limit):
            raise ValueError(
                f"Labels run from {codes[0]} to {codes[-1]}; expected -1 to {limit} ({dtype}). "
                "For more clusters pass n_clusters= to write_labels."
            )
        found.update(codes[codes >= 0].tolist())
        return np.where(labels < 0, nodata, labels).astype(dtype)

    def legend() -> Legend:
        codes = sorted(found)
        colors = {**default_colors(codes), **(class_colors or {})}
        return Legend(
            {k: named.get(k, f"cluster_{k}") for k in codes}, {k: _rgb(colors[k]) for k in codes}
        )

    write_cog(
        path,
        _strips(image, convert),
        pixel_grid(place, image.shape, names),
        dtype=dtype,
        nodata=nodata,
        legend=legend,
        tags=_tags(kind, attributes),
        check=check,
    )


def write_value_tif(
    image: da.Array,
    place: Georeference,
    names: tuple[str, str],
    path: str | os.PathLike[str],
    *,
    kind: str,
    overwrite: bool,
    band_names: Sequence[str] | None,
    attributes: Mapping[str, Any] | None,
    check: Callable[[], None],
) -> None:
    """Write numbers (y, x) or (m, y, x), NaN for none, as float32 or float64 bands."""
    check_cog(path, kind=kind, overwrite=overwrite)

    def convert(values: NDArray[Any]) -> NDArray[Any]:
        return values

    write_cog(
        path,
        _strips(image, convert),
        pixel_grid(place, image.shape[-2:], names),
        dtype=image.dtype,
        count=1 if image.ndim == 2 else image.shape[0],
        nodata=float("nan"),
        band_names=band_names,
        tags=_tags(kind, attributes),
        check=check,
    )


def _tags(kind: str, attributes: Mapping[str, Any] | None) -> dict[str, str]:
    said = redact_all(dict(attributes or {}))
    return {MARK: kind, **{key: json.dumps(value) for key, value in said.items()}}


def _rgb(color: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(color.removeprefix("#"))
    return red, green, blue
