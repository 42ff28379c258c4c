"""Image files other than Zarr stores, as lazy arrays with uniform metadata.

Whatever the file, the object that comes out is not decoded (values as stored) and says by the
same attributes what a reader needs: see :mod:`daskclust.scenes.formats.format_detection`.
"""
