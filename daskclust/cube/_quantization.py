"""Embeddings of one byte a band: AlphaEarth and TESSERA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dask.array as da
import numpy as np

from daskclust._choices import check_choice
from daskclust._types import Array
from daskclust._warnings import warn
from daskclust.cube._clouds import as_lazy
from daskclust.cube._georeference import Georeference
from daskclust.cube._images import open_image
from daskclust.cube._values import nodata_values
from daskclust.exceptions import QuantizationWarning

__all__ = ["NO_CODE", "chosen_quantization", "with_scales"]

#: Bands of AlphaEarth, and its code of "no data".
_BANDS = tuple(f"A{band:02d}" for band in range(64))
NO_CODE = -128


def chosen_quantization(
    quantization: Any,
    scales: Any,
    dtype: np.dtype[Any],
    bands: Sequence[str],
    n_bands: int,
    attributes: Mapping[str, Any],
) -> str | None:
    """Return the quantization of a cube: ``"alphaearth"``, ``"tessera"``, or None.

    `bands` is empty where names are not known. Scales that are missing or not needed are an error.
    """
    if quantization is not None:
        check_choice(quantization, "quantization", ("auto", "alphaearth", "tessera"))
    if quantization == "auto" and scales is not None:
        quantization = "tessera"
    if (quantization == "tessera") != (scales is not None):
        raise ValueError(
            f"quantization={quantization!r} with scales={'None' if scales is None else '...'}; "
            "expected scales=, one number a pixel, with 'tessera', and only there."
        )
    if quantization in ("alphaearth", "tessera") and dtype != np.int8:
        raise ValueError(
            f"quantization={quantization!r}, but the cube is of dtype {dtype}; expected the codes "
            "as they are stored, int8. Use quantization=None for values."
        )
    if quantization == "alphaearth" and n_bands != len(_BANDS):
        raise ValueError(f"The cube has {n_bands} bands; expected the 64 of 'alphaearth'.")
    if quantization != "auto":
        return None if quantization is None else str(quantization)
    if dtype != np.int8:
        return None
    if tuple(bands) == _BANDS and NO_CODE in nodata_values(attributes, dtype, "auto"):
        return "alphaearth"
    if not {"scale_factor", "add_offset", "_Unsigned"} & set(attributes):
        warn(
            f"The cube holds int8 in {n_bands} bands and nothing says what these codes mean; they "
            "are taken for values. Pass quantization='alphaearth' (64 bands), 'tessera' with "
            "scales=, or None if they are values.",
            QuantizationWarning,
        )
    return None


def with_scales(
    array: Any,
    order: tuple[int, ...],
    scales: Any,
    place: Georeference,
    no_data: Sequence[float],
) -> da.Array:
    """Return a cube (y, x, band) of float32: codes times the scale of their pixel; lazy.

    `order` are the axes y, x and band of `array`, `scales` are of shape (y, x).
    """
    codes = as_lazy(array).transpose(order)
    found = open_image("scales", scales, codes.shape[:2], place=place)
    factors = as_lazy(found.values)
    if factors.dtype.kind != "f":
        raise ValueError(
            f"scales has dtype {factors.dtype}; expected floats, one a pixel, by which its codes "
            "are multiplied."
        )
    factors = factors.rechunk(codes.chunks[:2])[:, :, None]
    return da.map_blocks(
        _times,
        codes,
        factors,
        no_data=tuple(no_data),
        dtype=np.dtype(np.float32),
        chunks=codes.chunks,
        meta=np.empty((0, 0, 0), np.float32),
        token="daskclust-scales",
    )


def _times(codes: Array, factors: Array, no_data: tuple[float, ...]) -> Array:
    out = codes.astype(np.float32) * factors.astype(np.float32)
    if no_data:
        out[np.isin(codes, no_data)] = np.nan
    return out
