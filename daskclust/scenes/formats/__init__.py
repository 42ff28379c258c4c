"""Image files that are no Zarr stores, as lazy ``xarray`` objects with one way to say things.

Whatever the file, the object that comes out is not decoded (values as stored) and says by the
same attributes what a reader needs: see :mod:`daskclust.scenes.formats.format_detection`.
"""
