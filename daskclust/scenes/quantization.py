"""Codes of one byte per band that stand for floats: embeddings of AlphaEarth and TESSERA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dask.array as da
import numpy as np

from daskclust.config import check_choice
from daskclust.core.array_types import Array
from daskclust.core.warn import warn
from daskclust.exceptions import QuantizationWarning
from daskclust.scenes import _metadata
from daskclust.scenes._georeference import Georeference
from daskclust.scenes._open_array import as_lazy, open_image
from daskclust.scenes.formats.format_detection import BAND_NAMES, NODATA_OF_BANDS

#: Bands of AlphaEarth, and its code of "no data".
ALPHAEARTH_BANDS = [f"A{band:02d}" for band in range(64)]
NO_CODE = -128


def chosen_quantization(
    quantization: Any,
    scales: Any,
    dtype: np.dtype[Any],
    n_bands: int,
    attributes: Mapping[str, Any],
) -> str | None:
    """Return the quantization of a cube: ``"alphaearth"``, ``"tessera"``, or None.

    Missing and superfluous scales are an error.
    """
    if quantization is not None:
        check_choice(quantization, "quantization", ("auto", "alphaearth", "tessera"))
    if quantization == "auto" and scales is not None:
        quantization = "tessera"
    if (quantization == "tessera") != (scales is not None):
        raise ValueError(
            "scales must be one float per pixel with quantization='tessera', and None otherwise, "
            f"got scales={'None' if scales is None else '...'} with quantization={quantization!r}."
        )
    if quantization in ("alphaearth", "tessera") and dtype != np.int8:
        raise ValueError(
            "The cube must contain the stored codes, of dtype int8, with "
            f"quantization={quantization!r}, got dtype {dtype}. Use quantization=None for values."
        )
    n_years, rest = divmod(n_bands, len(ALPHAEARTH_BANDS))
    if quantization == "alphaearth" and rest:
        raise ValueError(
            f"The cube must have the {len(ALPHAEARTH_BANDS)} bands of 'alphaearth', got {n_bands}."
        )
    if quantization != "auto":
        return None if quantization is None else str(quantization)
    if dtype != np.int8:
        return None
    # In a series of years, names are "date band".
    names = [name.rpartition(" ")[2] for name in attributes.get(BAND_NAMES, ())]
    is_alphaearth = not rest and names == ALPHAEARTH_BANDS * n_years
    if is_alphaearth and NO_CODE in _metadata.nodata_values(attributes, dtype, "auto"):
        return "alphaearth"
    if not {"scale_factor", "add_offset", "_Unsigned"} & set(attributes):
        warn(
            f"The metadata do not state what the int8 codes of the {n_bands} bands mean, so the "
            "codes are used as values. Pass quantization='alphaearth' (64 bands), 'tessera' with "
            "scales=, or None for values.",
            QuantizationWarning,
        )
    return None


def with_scales(
    array: Any,
    order: tuple[int, ...],
    scales: Any,
    position: Georeference,
    no_data: Sequence[float],
) -> da.Array:
    """Return a cube (y, x, band) of float32: codes times the scale of their pixel; lazy.

    `order` are the axes y, x and band of `array`, `scales` are of shape (y, x).
    """
    codes = as_lazy(array).transpose(order)
    image = open_image("scales", scales, codes.shape[:2], position=position)
    factors = as_lazy(image.values)
    if factors.dtype.kind != "f":
        raise ValueError(
            "scales must contain floats, one per pixel, by which its codes are multiplied, got "
            f"dtype {factors.dtype}."
        )
    factors = factors.rechunk(codes.chunks[:2])[:, :, None]
    return da.map_blocks(
        _times,
        codes,
        factors,
        no_data=tuple(no_data),
        chunks=codes.chunks,
        meta=np.empty((0, 0, 0), np.float32),
        token="daskclust-scales",
    )


def _times(codes: Array, factors: Array, no_data: tuple[float, ...]) -> Array:
    wrong = factors[factors < 0]
    if wrong.size:
        raise ValueError(
            "scales must contain numbers >= 0, by which codes are multiplied, and NaN or inf for "
            f"missing values, got {wrong[0]:g} ({wrong.size} such pixels in a block)."
        )
    # TESSERA stores have inf where nothing has been written.
    factors = np.where(np.isinf(factors), np.nan, factors).astype(np.float32)
    out = codes.astype(np.float32) * factors
    if no_data:
        out[np.isin(codes, no_data)] = np.nan
    return out


#: Attributes that describe codes and not the decoded values.
OF_CODES = (
    *_metadata.NODATA_ATTRIBUTES,
    NODATA_OF_BANDS,
    "valid_min",
    "valid_max",
    "valid_range",
    "_Unsigned",
)
