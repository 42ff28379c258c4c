"""Image cubes in Zarr as rows for clustering, and label maps back into Zarr.

A cube (y, x, band) becomes a table with one row per valid pixel.  Rows are
numbered block by block, and inside a block line by line; nothing is shuffled, so
that a row block is one read of the store and a label block one write.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal

import dask
import dask.array as da
import numpy as np
import zarr
from numpy.typing import ArrayLike, NDArray

from daskclust import _blocks
from daskclust._blocks import BlockGrid, CubeSource, Scaling
from daskclust._layout import flatten, unflatten
from daskclust._metadata import (
    as_image,
    check_choice,
    check_mask,
    choose_block,
    find_dimensions,
    find_variable,
    find_wavelengths,
    flags,
    kept_bands,
    label_dtype,
    nodata_values,
)
from daskclust._stores import georeference, new_group, open_store
from daskclust.exceptions import ChunkError

__all__ = ["Cube", "open_cube"]

# Rows of statistics merged by one task.
_FOLD = 256


def open_cube(
    store: Any,
    *,
    variable: str | None = None,
    nodata: float | Literal["auto"] | None = "auto",
    mask: Any = None,
    bad_bands: ArrayLike | None = None,
    scale: Literal["none", "standard", "unit"] = "none",
    dims: Sequence[str] | None = None,
    missing: Literal["mask", "nan"] = "mask",
    chunks: tuple[int, int] | None = None,
) -> Cube:
    """Open an image cube in Zarr.

    Parameters
    ----------
    store : str, path, zarr store, zarr.Group or zarr.Array
        Zarr v2 or v3; a ``.zip`` path is a zip store.  With a distributed
        cluster, workers must see it under the same path.
    variable : str, default=None
        Array inside a group; None takes the only three-dimensional one.
    nodata : float, None or "auto", default="auto"
        Value that means "no data", besides NaN.  ``"auto"`` reads the attributes
        ``_FillValue``, ``missing_value`` and ``nodata`` (never Zarr's own
        ``fill_value``, which says how unwritten chunks read); None means no value does.
    mask : array of shape (y, x), bool, default=None
        True excludes a pixel.  A NumPy, Dask or Zarr array.
    bad_bands : array of bool, shape (band,), or of int, default=None
        Bands to drop: True, or the numbers.
    scale : {"none", "standard", "unit"}, default="none"
        ``"standard"``: every band to mean 0 and variance 1 over the valid pixels;
        ``"unit"``: every spectrum to length 1.
    dims : sequence of str, default=None
        Names of the dimensions in stored order, for an array that has none, or
        other ones than the usual; for example ``("y", "x", "band")``.
    missing : {"mask", "nan"}, default="mask"
        What happens to a pixel with "no data" in some kept bands: excluded, or
        kept with NaN there (for estimators that accept NaN).
    chunks : tuple of int, default=None
        Rows and columns of a block; None takes those of the store (its shards, if
        it has any).  Row numbers depend on it.

    Returns
    -------
    Cube

    Raises
    ------
    FileNotFoundError
        No Zarr store there.
    KeyError
        No such `variable`.
    ValueError
        Dimensions without a (known) name, no or several candidate variables, or a
        parameter outside its range.

    Warns
    -----
    PerformanceWarning
        Blocks of the store are too large to hold all bands at once and get divided,
        so that its chunks are read several times.

    Notes
    -----
    Values are taken as stored: ``scale_factor`` and ``add_offset`` are not applied.
    Opening reads metadata only.

    Examples
    --------
    >>> from daskclust.datasets import make_hyperspectral_cube
    >>> group = make_hyperspectral_cube(
    ...     zarr.storage.MemoryStore(), shape=(40, 60), n_bands=10, chunks=(20, 30),
    ...     random_state=0)
    >>> cube = open_cube(group)
    >>> cube.shape, cube.samples.numblocks, cube.n_valid + cube.n_masked
    ((40, 60, 10), (4, 1), 2400)
    """
    check_choice("scale", scale, ("none", "standard", "unit"))
    check_choice("missing", missing, ("mask", "nan"))
    node = open_store(store)
    group = node if isinstance(node, zarr.Group) else None
    array = find_variable(node, variable)
    order, names = find_dimensions(array, dims)
    shape = array.shape[order[0]], array.shape[order[1]]
    n_bands = array.shape[order[2]]
    bands = kept_bands(bad_bands, n_bands)
    grid = BlockGrid(shape, choose_block(array, order, chunks))
    source = CubeSource(
        array=array,
        order=order,
        bands=bands,
        nodata=nodata_values(array, nodata),
        keep_incomplete=missing == "nan",
        grid=grid,
    )
    wavelengths = find_wavelengths(group, array, n_bands)
    if wavelengths is not None and bands is not None:
        wavelengths = wavelengths[bands]
    return Cube(
        source,
        excluded=None if mask is None else flatten(check_mask(mask, shape), grid),
        scale=scale,
        wavelengths=wavelengths,
        group=group,
        dimension_names=names,
    )


class Cube:
    """An image cube as rows for clustering; made by :func:`open_cube`.

    Attributes
    ----------
    shape : tuple of int
        (y, x, bands kept).
    chunks : tuple of tuples
        Block sizes along y and x.
    wavelengths : ndarray of shape (bands kept,), float64, or None
        As stored (usually nm); None where the store has none.
    bands : ndarray of int
        Numbers of the bands kept.
    dimension_names : tuple of str
        Names of y and x in the store.
    attributes : dict
        The stored array's attributes.

    Notes
    -----
    The number of valid pixels per block is needed for `samples`, `n_valid`,
    `n_masked` and the methods.  It is counted at the first need, once, by one pass
    over the store on the user's scheduler; no pass where neither a nodata value nor
    NaN is possible and no mask was given, unless ``scale="standard"`` needs the
    statistics.
    """

    def __init__(
        self,
        source: CubeSource,
        *,
        excluded: da.Array | None,
        scale: Literal["none", "standard", "unit"],
        wavelengths: NDArray[np.float64] | None,
        group: zarr.Group | None,
        dimension_names: tuple[str, str],
    ) -> None:
        self._source = source
        self._grid = source.grid
        self._excluded = excluded
        self._scale: Literal["none", "standard", "unit"] = scale
        self._group = group
        self.wavelengths = wavelengths
        self.dimension_names = dimension_names
        self.shape = (*source.grid.shape, source.n_bands)
        self.chunks = source.grid.chunks
        self.attributes: dict[str, Any] = dict(source.array.attrs)
        self.bands: NDArray[np.intp] = (
            np.arange(source.n_bands) if source.bands is None else source.bands
        )

    def __repr__(self) -> str:
        y, x, p = self.shape
        down, across = self._grid.numblocks
        return f"<Cube {y} x {x} pixels, {p} bands, {down} x {across} blocks>"

    # What is in the blocks

    @cached_property
    def _survey(self) -> tuple[tuple[int, ...], Scaling]:
        """Valid pixels per block, and the scaling; at most one pass."""
        source, moments = self._source, self._scale == "standard"
        stored = source.array.dtype
        small = stored.itemsize <= (4 if stored.kind == "f" else 2)
        dtype = np.dtype(np.float32 if small else np.float64)
        if not moments and source.is_complete and self._excluded is None:
            return self._grid.pixels, Scaling(self._scale, dtype)
        width = 1 + 3 * source.n_bands if moments else 1
        surveys = self._per_block(
            _blocks.block_survey,
            sizes=(1,) * self._grid.count,
            width=width,
            dtype=np.float64,
            token="daskclust-survey",
            moments=moments,
        )
        merged = surveys
        while moments and merged.numblocks[0] > 1:
            merged = merged.rechunk({0: _FOLD})
            merged = merged.map_blocks(
                _blocks.merge_surveys,
                chunks=((1,) * merged.numblocks[0], (width,)),
                dtype=np.float64,
                meta=np.empty((0, 0)),
            )
        column, total = dask.compute(surveys[:, 0], merged if moments else None)
        counts = tuple(int(count) for count in column)
        if not moments:
            return counts, Scaling(self._scale, dtype)
        p = source.n_bands
        n, mean, squares = total[0, 1 : 1 + p], total[0, 1 + p : 1 + 2 * p], total[0, 1 + 2 * p :]
        std = np.sqrt(squares / np.maximum(n, 1.0))
        std[std == 0.0] = 1.0  # a constant band: centred, not divided by zero
        return counts, Scaling("standard", dtype, mean=mean, std=std)

    @property
    def block_counts(self) -> tuple[int, ...]:
        """Valid pixels of each block, in the order of the rows."""
        return self._survey[0]

    @property
    def n_valid(self) -> int:
        """Number of valid pixels, the rows of `samples`."""
        return sum(self.block_counts)

    @property
    def n_masked(self) -> int:
        """Number of pixels left out, for whatever reason."""
        return self.shape[0] * self.shape[1] - self.n_valid

    @cached_property
    def samples(self) -> da.Array:
        """Valid pixels as rows: lazy, (n_valid, bands), one row block per spatial block.

        float32 for float32 and for integers of up to 16 bits, else float64.
        """
        counts, scaling = self._survey
        return self._per_block(
            _blocks.block_samples,
            sizes=counts,
            width=self._source.n_bands,
            dtype=scaling.dtype,
            token="daskclust-samples",
            scaling=scaling,
        )

    @cached_property
    def valid(self) -> da.Array:
        """Which pixels are rows of `samples`: lazy, (y, x), bool."""
        flat = self._per_block(
            _blocks.block_valid, sizes=self._grid.pixels, dtype=bool, token="daskclust-valid"
        )
        return unflatten(flat, self._grid)

    def _per_block(
        self,
        function: Callable[..., Any],
        *labels: da.Array,
        sizes: Sequence[float],
        dtype: Any,
        token: str,
        width: int | None = None,
        **options: Any,
    ) -> da.Array:
        """Run ``function(ids, *labels, [excluded])`` on every block; `sizes` rows come out."""
        numbers = da.arange(self._grid.count, chunks=1, dtype=np.int64)
        arrays = [numbers, *labels] + ([] if self._excluded is None else [self._excluded])
        out = "i" if width is None else "ip"
        # Not aligned: block i of every array belongs together though lengths differ.
        return da.blockwise(
            function,
            out,
            *(item for array in arrays for item in (array, "i")),
            new_axes=None if width is None else {"p": width},
            adjust_chunks={"i": tuple(sizes)},
            align_arrays=False,
            concatenate=True,
            dtype=dtype,
            meta=np.empty((0,) * len(out), dtype=dtype),
            token=token,
            source=self._source,
            **options,
        )

    # Labels back to the image

    def to_map(self, labels: Any, *, fill_value: float = -1) -> da.Array:
        """Put one value per row back onto the image.

        Parameters
        ----------
        labels : array of shape (n_valid,)
            NumPy, or Dask chunked like `samples` (another chunking costs a rechunk).
        fill_value : number, default=-1
            Value of masked pixels.

        Returns
        -------
        dask.array.Array of shape (y, x)
            Lazy, in the cube's blocks.  Signed: unsigned labels become int64
            where `fill_value` is negative.

        Raises
        ------
        ValueError
            Another number of labels than valid pixels.

        Notes
        -----
        Blocks with masked pixels are read again, to know which.

        Examples
        --------
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> cube.to_map(np.array([5, 6, 7])).compute().tolist()
        [[5, -1], [6, 7]]
        """
        aligned = self._align(labels)
        if aligned.dtype.kind in "bu" and fill_value < 0:
            aligned = aligned.astype(np.int64)
        flat = self._per_block(
            _blocks.expand_block,
            aligned,
            sizes=self._grid.pixels,
            dtype=aligned.dtype,
            token="daskclust-map",
            fill_value=fill_value,
        )
        return unflatten(flat, self._grid)

    def rows_of(
        self, label_map: Any, *, unlabelled: int | Sequence[int] = -1
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Turn a label map into global row numbers and labels.

        The result is the ``y=(rows, labels)`` of the semi-supervised estimators.

        Parameters
        ----------
        label_map : array of shape (y, x), integer or bool
            NumPy, Dask or Zarr.  Of a bool map, the True pixels with label 1.
        unlabelled : int or sequence of int, default=-1
            Values that mean "no label"; ground truth often uses 0, then pass 0.

        Returns
        -------
        rows : ndarray of shape (m,), int64
            Ascending row numbers of `samples`.  Labelled pixels that are masked are left out.
        labels : ndarray of shape (m,), int64

        Notes
        -----
        Runs on the user's scheduler and reads only blocks that hold labels.

        Examples
        --------
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> rows, labels = cube.rows_of(np.array([[0, 1], [-1, 2]]))
        >>> rows.tolist(), labels.tolist()
        ([0, 2], [0, 2])
        """
        image = as_image("label_map", label_map, self._grid.shape)
        if image.dtype.kind not in "iub":
            raise ValueError(f"label_map has dtype {image.dtype}; expected integers or booleans.")
        values = (unlabelled,) if isinstance(unlabelled, int | np.integer) else tuple(unlabelled)
        if image.dtype.kind == "b":
            values = (0,)
        found = self._per_block(
            _blocks.block_rows_of,
            flatten(image, self._grid),
            sizes=(1,) * self._grid.count,
            dtype=object,
            token="daskclust-rows-of",
            unlabelled=values,
        ).compute()
        offsets = accumulate(self.block_counts, initial=0)
        rows = [block[0] + offset for block, offset in zip(found, offsets, strict=False)]
        return np.concatenate(rows), np.concatenate([block[1] for block in found])

    def write_labels(
        self,
        labels: Any,
        store: Any,
        *,
        overwrite: bool = False,
        n_clusters: int | None = None,
        class_names: Sequence[str] | None = None,
    ) -> zarr.Group:
        """Write labels as an image into a new Zarr v3 group.

        Parameters
        ----------
        labels : array of shape (n_valid,), integer
            NumPy, or Dask chunked like `samples`; -1 means none.
        store : str, path or zarr store
            The target.  With a distributed cluster, workers must see it too.
        overwrite : bool, default=False
            Replace an existing Zarr store.
        n_clusters : int, default=None
            Number of clusters, where known: up to 32 767 are stored as int16.
        class_names : sequence of str, default=None
            Meanings of the labels 0, 1, ...; ``cluster_0``, ... by default.

        Returns
        -------
        zarr.Group
            Open for reading, with the array ``labels`` (y, x), int16 or int32,
            ``_FillValue = -1``, CF ``flag_values`` and ``flag_meanings``, and the
            georeference of the cube unchanged (attributes, coordinates, grid mapping).

        Raises
        ------
        FileExistsError
            The target exists and `overwrite` is False, or it is no Zarr store.
        ValueError
            Another number of labels than valid pixels, or labels outside -1 to
            the largest number of the dtype.

        Notes
        -----
        One task per block on the user's scheduler writes one chunk, so that no chunk
        is shared.  A local target appears under its name only when it is whole.

        Examples
        --------
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> written = cube.write_labels(np.array([0, 0, 1]), zarr.storage.MemoryStore())
        >>> written["labels"][:].tolist(), written["labels"].attrs["flag_meanings"]
        ([[0, -1], [0, 1]], 'cluster_0 cluster_1')
        """
        aligned = self._align(labels)
        if aligned.dtype.kind not in "iu":
            raise ValueError(f"labels have dtype {aligned.dtype}; expected integers.")
        if n_clusters is None and class_names is not None:
            n_clusters = len(class_names)
        if n_clusters is None and isinstance(labels, np.ndarray):
            n_clusters = int(labels.max(initial=-1)) + 1
        dtype = label_dtype(aligned.dtype, n_clusters)
        with new_group(store, overwrite=overwrite) as group:
            target = group.create_array(
                "labels",
                shape=self._grid.shape,
                chunks=self._grid.block,
                dtype=dtype,
                fill_value=-1,
                dimension_names=self.dimension_names,
                attributes={"long_name": "cluster", **georeference(self.attributes)},
            )
            self._copy_georeference(group)
            largest = self._per_block(
                _blocks.write_block,
                aligned,
                sizes=(1,) * self._grid.count,
                dtype=np.int64,
                token="daskclust-write",
                target=target,
            ).compute()
            found = max(int(largest.max(initial=-1)) + 1, n_clusters or 0)
            target.attrs.update(flags(found, class_names))
        written = open_store(store)
        assert isinstance(written, zarr.Group)
        return written

    def _align(self, labels: Any) -> da.Array:
        """Return `labels` as a Dask array with the chunks of `samples`."""
        counts = self.block_counts
        if not isinstance(labels, da.Array):
            labels = np.asarray(labels)
        if labels.ndim != 1:
            raise ValueError(f"labels have shape {labels.shape}; expected one dimension.")
        if not isinstance(labels, da.Array):
            self._check_number(len(labels))
            return da.from_array(labels, chunks=(counts,))
        if any(math.isnan(size) for size in labels.chunks[0]):
            # Each block's length is checked by its task.
            if labels.numblocks[0] != len(counts):
                raise ChunkError(
                    f"labels have {labels.numblocks[0]} blocks of unknown length, the cube has "
                    f"{len(counts)}; compute the labels from this cube's samples, or call "
                    "labels.compute_chunk_sizes() first."
                )
            return labels
        self._check_number(labels.shape[0])
        return labels if labels.chunks[0] == counts else labels.rechunk((counts,))

    def _check_number(self, found: int) -> None:
        if found != self.n_valid:
            raise ValueError(
                f"Got {found} labels for {self.n_valid} valid pixels; expected one per row of "
                "samples."
            )

    def _copy_georeference(self, group: zarr.Group) -> None:
        if self._group is None:
            return
        group.attrs.update(georeference(self._group.attrs))
        mapping = self.attributes.get("grid_mapping")
        names = {*self.dimension_names, *([mapping] if isinstance(mapping, str) else [])}
        for name in sorted(names):
            array = self._group.get(name)
            if not isinstance(array, zarr.Array) or array.ndim > 1 or name == "labels":
                continue
            attributes = {k: v for k, v in array.attrs.items() if k != "_ARRAY_DIMENSIONS"}
            # A grid mapping's value means nothing; coordinates of text cannot be positions.
            numeric = array.dtype.kind in "iuf"
            if not numeric and array.ndim:
                continue
            copy = group.create_array(
                name,
                shape=array.shape,
                dtype=array.dtype if numeric else np.int32,
                dimension_names=(name,) if array.ndim else (),
                attributes=attributes,
            )
            if numeric:
                copy[...] = array[...]
