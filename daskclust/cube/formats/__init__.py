"""Image files that are no Zarr stores, as lazy ``xarray`` objects with one way to say things.

Whatever the file, the object that comes out is not decoded (values as stored) and says by the
same attributes what a reader needs: see :mod:`daskclust.cube.formats.found`.
"""

from daskclust.cube.formats.found import RASTER_EXTRA, needs_extra
from daskclust.cube.formats.opening import kind_of, open_file, open_files

__all__ = ["RASTER_EXTRA", "kind_of", "needs_extra", "open_file", "open_files"]
