"""Common to all readers: the attributes that they leave on an array, and the missing extra."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from daskclust.core.storage.redact import redact

#: Attribute of a DataArray: one truth value a band, True where the file calls it bad.
BAD_BANDS = "bad_bands"
#: Attribute of a DataArray: one name a band.
BAND_NAMES = "band_names"
#: Attribute of a DataArray: for each band the values that mean "no data", where bands differ.
NODATA_OF_BANDS = "nodata_of_bands"
#: Variables next to a cube: centers of its bands, and 1 for good bands (as in EMIT).
CENTERS = ("wavelength", "wavelengths", "center_wavelength", "center_wavelengths")
GOOD = ("good_wavelengths", "good_bands")
OF_BANDS = (*CENTERS, *GOOD)
RASTER_EXTRA = "pip install 'daskclust[raster]'"

# Rows and columns that a block has at least, where the file is stored in strips or small tiles.
_LEAST = 256
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
    """Open rasters that may have no place on Earth, without a warning of rasterio's for each."""
    from rasterio.errors import NotGeoreferencedWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield


def block_of(stored: tuple[int, int], shape: tuple[int, int], pixel_bytes: int) -> tuple[int, int]:
    """Rows and columns that are read at once: a multiple of the stored tiles or strips.

    `stored` is the shape of a tile or strip, `pixel_bytes` that of one pixel with all its bands.

    >>> block_of((1, 500), (1000, 500), 400)
    (256, 500)
    >>> block_of((512, 512), (1000, 1000), 20)
    (512, 512)
    >>> block_of((1, 50_000), (50_000, 50_000), 400)
    (2, 50000)
    """
    rows, cols = (min(step, size) for step, size in zip(stored, shape, strict=True))
    rows = min(shape[0], rows * -(-_LEAST // rows))
    cols = min(shape[1], cols * -(-_LEAST // cols))
    strip = min(stored[0], shape[0])
    while rows > strip and rows * cols * pixel_bytes > _BLOCK_BYTES:
        rows = max(strip, rows // 2 // strip * strip)
    return rows, cols
