"""Definitions of all readers: attributes of arrays, and the error for a missing extra."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from daskclust.core.storage.redact import redact

#: Attribute of a DataArray: one boolean per band, True for bands that the file marks as bad.
BAD_BANDS = "bad_bands"
#: Attribute of a DataArray: one name per band.
BAND_NAMES = "band_names"
#: Attribute of a DataArray: the values that mean "no data" per band, if bands differ.
NODATA_OF_BANDS = "nodata_of_bands"
#: Variables next to a cube: centers of its bands, and 1 for good bands (as in EMIT).
CENTERS = ("wavelength", "wavelengths", "center_wavelength", "center_wavelengths")
GOOD = ("good_wavelengths", "good_bands")
OF_BANDS = (*CENTERS, *GOOD)
RASTER_EXTRA = "pip install 'daskclust[raster]'"

# Minimum number of rows and columns of a block, for files with strips or small tiles.
_MIN_SIDE = 256
_BLOCK_BYTES = 64 * 2**20


@contextmanager
def needs_extra(what: str) -> Iterator[None]:
    """Raise ImportError with the extra to install if a reader's package is missing."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"{redact(what)} needs the package {error.name or 'of its format'!r}, which is not "
            f"installed. Use: {RASTER_EXTRA}"
        ) from error


@contextmanager
def maybe_unplaced() -> Iterator[None]:
    """Suppress rasterio's warnings about images without a position."""
    from rasterio.errors import NotGeoreferencedWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield


def block_of(stored: tuple[int, int], shape: tuple[int, int], pixel_bytes: int) -> tuple[int, int]:
    """Return rows and columns that are read at once: a multiple of the stored tiles or strips.

    `stored` is the shape of a tile or strip. `pixel_bytes` are the bytes of a pixel with all bands.

    >>> block_of((1, 500), (1000, 500), 400)
    (256, 500)
    >>> block_of((512, 512), (1000, 1000), 20)
    (512, 512)
    >>> block_of((1, 50_000), (50_000, 50_000), 400)
    (2, 50000)
    """
    rows, cols = (min(step, size) for step, size in zip(stored, shape, strict=True))
    rows = min(shape[0], rows * -(-_MIN_SIDE // rows))
    cols = min(shape[1], cols * -(-_MIN_SIDE // cols))
    strip = min(stored[0], shape[0])
    while rows > strip and rows * cols * pixel_bytes > _BLOCK_BYTES:
        rows = max(strip, rows // 2 // strip * strip)
    return rows, cols
