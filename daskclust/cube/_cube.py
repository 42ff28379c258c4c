"""A cube opened: which pixels are rows, and labels back to the image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, Literal

import dask.array as da
import numpy as np
import zarr
from numpy.typing import NDArray

from daskclust.cube import _blocks
from daskclust.cube._blocks import BlockGrid, CubeSource, Scaling
from daskclust.cube._description import StoredCube
from daskclust.cube._georeference import Georeference
from daskclust.cube._images import Image, open_image
from daskclust.cube._label_maps import as_data_array, write_label_map
from daskclust.cube._labels import align, with_room
from daskclust.cube._layout import flatten, unflatten
from daskclust.cube._pixels import whitened
from daskclust.cube._survey import sample_dtype, take_survey
from daskclust.storage.seen import StoredArray, as_dask
from daskclust.storage.stores import local_path, stamp
from daskclust.storage.urls import redact

__all__ = ["Cube"]


#: How samples are scaled: by name, or as another cube's.
Scale = Literal["none", "standard", "unit", "whitened"] | Scaling


class Cube:
    """An image cube as rows for clustering; made by :func:`daskclust.open_cube`.

    Attributes
    ----------
    shape : tuple of int
        (y, x, bands kept).
    chunks : tuple of tuples
        Block sizes along y and x.
    wavelengths : ndarray of shape (bands kept,), float64, or None
        Band centers in nm (taken for nm where no unit says otherwise); None where
        there are none.
    bands : ndarray of int
        Numbers of the bands kept.
    dimension_names : tuple of str
        Names of y and x in the store.
    attributes : dict
        The stored array's attributes.
    nodata : tuple of numbers
        Values that mean "no data", besides NaN.

    Notes
    -----
    The number of valid pixels per block is needed for `samples`, `n_valid`,
    `n_masked` and the methods.  It is counted at the first need, once, by one pass
    over the store on the user's scheduler; no pass where neither a nodata value nor
    NaN is possible and no mask was given, unless ``scale="standard"`` needs the
    statistics; ``scale="whitened"`` takes one more pass, over a sample of the pixels.
    """

    def __init__(
        self,
        source: CubeSource,
        *,
        pixels: da.Array | None,
        excluded: da.Array | None,
        scale: Scale,
        wavelengths: NDArray[np.float64] | None,
        place: Georeference,
        attributes: Mapping[str, Any],
        dimension_names: tuple[str, str],
    ) -> None:
        self._source = source
        self._grid = source.grid
        self._pixels = pixels
        self._excluded = excluded
        self._scale: Scale = scale
        self._stamp: str | None = None
        self._place = place
        self.wavelengths = wavelengths
        self.dimension_names = dimension_names
        self.shape = (*source.grid.shape, source.n_bands)
        self.chunks = source.grid.chunks
        self.attributes: dict[str, Any] = dict(attributes)
        self.nodata = source.nodata
        self.bands: NDArray[np.intp] = (
            np.arange(source.n_bands) if source.bands is None else source.bands
        )

    def __repr__(self) -> str:
        y, x, p = self.shape
        down, across = self._grid.numblocks
        return f"<Cube {y} x {x} pixels, {p} bands, {down} x {across} blocks>"

    # How it is stored and where it lies

    @property
    def blocks(self) -> BlockGrid:
        """The spatial blocks: their number, sizes and places, in the order of the rows."""
        return self._grid

    @property
    def georeference(self) -> Georeference:
        """Coordinate system and position, as stored."""
        return self._place

    @property
    def stored(self) -> StoredCube:
        """How the values are stored."""
        source = self._source
        return StoredCube(
            array=None if source.array is None else source.array.array,
            order=source.order,
            shape=(*self._grid.shape, source.n_stored),
            dtype=source.dtype,
            may_be_masked=not source.is_complete or self._excluded is not None,
        )

    def stored_bands(self, bands: Sequence[int]) -> da.Array:
        """Return bands as stored, by their stored numbers: lazy, (y, x, len(bands))."""
        if self._source.array is None:
            assert self._pixels is not None
            images = [unflatten(self._pixels[:, int(band)], self._grid) for band in bands]
        else:
            whole = as_dask(self._source.array).transpose(self._source.order)
            images = [whole[:, :, int(band)] for band in bands]
        return da.stack(images, axis=2)

    def open_map(self, name: str, image: Any, *, variable: str | None = None) -> Image:
        """Open an image of the size of the cube, such as a label map; nothing is computed.

        Parameters
        ----------
        name : str
            Of the argument, for messages.
        image : array of shape (y, x), xarray.DataArray, zarr.Group, str or path
        variable : str, default=None
            Array inside a store.

        Raises
        ------
        ValueError
            Another shape, or another coordinate system or position than the cube.
        """
        return open_image(name, image, self._grid.shape, place=self._place, variable=variable)

    def count_valid(self, blocks: Sequence[int]) -> int:
        """Count the valid pixels of some blocks; reads these."""
        surveys = self._per_block(
            _blocks.block_survey,
            sizes=(1,) * self._grid.count,
            width=1,
            dtype=np.float64,
            token="daskclust-count",
            moments=False,
        )
        return int(surveys.blocks[[int(number) for number in blocks]].compute().sum())

    # What is in the blocks

    @cached_property
    def _survey(self) -> tuple[tuple[int, ...], Scaling]:
        """Valid pixels per block, and the scaling; at most one pass."""
        # What is read from here on has to be what is written about in the end.
        self._stamp = self._stamp_now()
        if self._scale == "whitened":
            counts, plain = self._counted("none")
            return counts, whitened(self, sum(counts), plain)
        return self._counted(self._scale)

    def _counted(self, scale: Scale) -> tuple[tuple[int, ...], Scaling]:
        """Count valid pixels per block, and find a scaling without neighbors; at most one pass."""
        if scale != "standard" and self._source.is_complete and self._excluded is None:
            if isinstance(scale, Scaling):
                return self._grid.pixels, scale
            return self._grid.pixels, Scaling(scale, sample_dtype(self._source.dtype))
        return take_survey(self._per_block, self._source, scale)

    @property
    def sample_scaling(self) -> Scaling:
        """How valid pixels become `samples`."""
        return self._survey[1]

    def scaled_as(self, scaling: Scaling) -> Cube:
        """Return the same cube with the samples of another one's scaling.

        Parameters
        ----------
        scaling : Scaling
            Of a cube with as many bands: what a fitted model keeps of its cube.

        Raises
        ------
        ValueError
            Another number of bands.
        """
        needs = {"standard": ("mean", "std"), "whitened": ("matrix",), "none": (), "unit": ()}
        if any(getattr(scaling, name) is None for name in needs[scaling.kind]):
            raise ValueError(f"The scaling {scaling.kind!r} lacks one of {needs[scaling.kind]}.")
        for values in (scaling.mean, scaling.matrix):
            if values is not None and len(values) != self._source.n_bands:
                raise ValueError(
                    f"The cube has {self._source.n_bands} bands; the model was fitted on one of "
                    f"{len(values)}. Keep the same bands."
                )
        other = copy(self)
        other.__dict__.pop("samples", None)
        other._scale = replace(scaling, dtype=sample_dtype(self._source.dtype))
        # What was counted stays as it is: no pass is made again.
        other.__dict__["_survey"] = self._survey[0], other._scale
        return other

    def _stamp_now(self) -> str | None:
        return None if self._source.array is None else stamp(self._source.array.array)

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

    @property
    def scaling(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Mean and standard deviation that ``scale="standard"`` uses; None for other scales.

        Pass it as `scale` when opening another cube whose rows are to be comparable,
        such as one to predict.
        """
        found = self._survey[1]
        if found.mean is None or found.std is None:
            return None
        return found.mean, found.std

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
        pairs: list[Any] = [da.arange(self._grid.count, chunks=1, dtype=np.int64), "i"]
        if self._pixels is not None:
            pairs += [self._pixels, "ib"]
            function = partial(_blocks.with_held, function=function)
        for array in (*labels, *([] if self._excluded is None else [self._excluded])):
            pairs += [array, "i"]
        out = "i" if width is None else "ip"
        # Not aligned: block i of every array belongs together though lengths differ.
        return da.blockwise(
            function,
            out,
            *pairs,
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
            Value of masked pixels, and of those whose labels are masked.

        Returns
        -------
        dask.array.Array of shape (y, x)
            Lazy, in the cube's blocks.  Of the labels' dtype, or of one that holds
            `fill_value`, too: unsigned labels become int64 for a negative one, integers
            float64 for NaN and other numbers that are no integers.

        Raises
        ------
        ValueError
            Another number of labels than valid pixels.

        Notes
        -----
        Blocks with masked pixels are read again, to know which.

        Examples
        --------
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> cube.to_map(np.array([5, 6, 7])).compute().tolist()
        [[5, -1], [6, 7]]
        """
        aligned = with_room(self._align(labels), fill_value)
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
        self,
        label_map: Any,
        *,
        unlabeled: int | Sequence[int] = -1,
        variable: str | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Turn a label map into global row numbers and labels.

        The result is the ``y=(rows, labels)`` of the semi-supervised estimators.

        Parameters
        ----------
        label_map : array of shape (y, x), integer or bool, or a store of one
            NumPy, Dask, Zarr or xarray; or a path or group, with `variable` where it
            has several two-dimensional arrays.  Of a bool map, the True pixels with
            label 1.
        unlabeled : int or sequence of int, default=-1
            Values that mean "no label", besides those that the attributes of a stored
            map declare; ground truth often uses 0, then pass 0.
        variable : str, default=None
            Array inside the store.

        Returns
        -------
        rows : ndarray of shape (m,), int64
            Ascending row numbers of `samples`.  Labeled pixels that are masked are left out.
        labels : ndarray of shape (m,), int64

        Raises
        ------
        ValueError
            Another shape, no integers, or a map that states another coordinate system
            or position than the cube.

        Notes
        -----
        Runs on the user's scheduler and reads only blocks that hold labels.

        Examples
        --------
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> rows, labels = cube.rows_of(np.array([[0, 1], [-1, 2]]))
        >>> rows.tolist(), labels.tolist()
        ([0, 2], [0, 2])
        """
        opened = self.open_map("label_map", label_map, variable=variable)
        image = opened.values
        if image.dtype.kind not in "iub":
            raise ValueError(f"label_map has dtype {image.dtype}; expected integers or booleans.")
        values = (unlabeled,) if isinstance(unlabeled, int | np.integer) else tuple(unlabeled)
        values = (0,) if image.dtype.kind == "b" else (*values, *opened.nodata)
        found = self._per_block(
            _blocks.block_rows_of,
            flatten(image, self._grid),
            sizes=(1,) * self._grid.count,
            dtype=object,
            token="daskclust-rows-of",
            unlabeled=values,
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
        attributes: Mapping[str, Any] | None = None,
    ) -> zarr.Group:
        """Write labels as an image into a new Zarr v3 group.

        Parameters
        ----------
        labels : array of shape (n_valid,), integer
            NumPy, or Dask chunked like `samples`; -1 means none.
        store : str, path or zarr store
            The target.  With a distributed cluster, workers must see it too.
        overwrite : bool, default=False
            Replace a label map that daskclust has written; never anything else.
        n_clusters : int, default=None
            Number of clusters, where known: up to 32 767 are stored as int16.
        class_names : sequence of str, default=None
            Meanings of the labels 0, 1, ...; ``cluster_0``, ... by default.
        attributes : mapping, default=None
            More attributes of the group, such as where the labels come from; JSON values,
            stored without the credentials of URLs.

        Returns
        -------
        zarr.Group
            Open for reading, with the array ``labels`` (y, x), int16 or int32,
            ``_FillValue = -1``, CF ``flag_values`` and ``flag_meanings`` (of the clusters
            that are known and the labels that occur), and the georeference of the cube
            unchanged (attributes, coordinates, grid mapping).

        Raises
        ------
        FileExistsError
            The target exists and `overwrite` is False, or it is no label map of daskclust.
        StoreError
            A worker does not see the cube or the target, or blocks are missing in it.
        ValueError
            The target is the cube's own store, or holds it.
            Another number of labels than valid pixels, or labels outside -1 to
            the largest number of the dtype; or the (local) files of the cube changed
            since its valid pixels were counted.

        Notes
        -----
        One task per block on the user's scheduler writes one chunk, so that no chunk
        is shared.  A local target appears under its name only when it is whole.

        Examples
        --------
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> written = cube.write_labels(np.array([0, 0, 1]), zarr.storage.MemoryStore())
        >>> written["labels"][:].tolist(), written["labels"].attrs["flag_meanings"]
        ([[0, -1], [0, 1]], 'cluster_0 cluster_1')
        """
        aligned = self._align(labels)
        self._check_target(store)
        largest = None
        if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu":
            shown = np.ma.compressed(labels)
            largest = int(shown.max()) if len(shown) else -1
        return write_label_map(
            self._grid,
            self._place,
            self.dimension_names,
            partial(self._write_blocks, aligned),
            aligned.dtype,
            store,
            overwrite=overwrite,
            n_clusters=n_clusters,
            largest=largest,
            class_names=class_names,
            attributes=attributes,
        )

    def _check_target(self, store: Any) -> None:
        """Refuse to write over the cube itself."""
        array = self.stored.array
        if array is None:
            return
        target, own = local_path(store), local_path(array.store)
        if own is None or target is None:
            same = store is array.store
        else:
            same = (own / array.path).resolve().is_relative_to(target.resolve())
        if same:
            raise ValueError(
                f"{redact(store)!r} holds the cube itself; write the label map elsewhere."
            )

    def _write_blocks(self, aligned: da.Array, target: StoredArray) -> list[int]:
        """Write all blocks and return the labels that occur."""
        found = self._per_block(
            _blocks.write_block,
            aligned,
            sizes=(1,) * self._grid.count,
            dtype=object,
            token="daskclust-write",
            target=target,
        ).compute()
        if self._stamp != self._stamp_now():
            raise ValueError(
                "The store of the cube was written to since it was read first, so labels may "
                "belong to other values; expected a store that stays as it is. Nothing was "
                "written. Open the cube again, fit again, and write then."
            )
        return sorted({int(code) for codes in found for code in codes})

    def to_xarray(
        self,
        labels: Any,
        *,
        fill_value: float = -1,
        name: str = "labels",
        class_names: Sequence[str] | None = None,
    ) -> Any:
        """Put one value per row back onto the image, as an ``xarray.DataArray``.

        Parameters
        ----------
        labels : array of shape (n_valid,)
            As for :meth:`to_map`.
        fill_value : number, default=-1
            Value of masked pixels.
        name : str, default="labels"
        class_names : sequence of str, default=None
            Meanings of the labels 0, 1, ..., for the attributes ``flag_values`` and
            ``flag_meanings``.

        Returns
        -------
        xarray.DataArray of shape (y, x)
            Lazy, with the cube's coordinates and georeference.

        Raises
        ------
        ImportError
            Without xarray.

        Examples
        --------
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> cube.to_xarray(np.array([5, 6, 7])).dims
        ('y', 'x')
        """
        return as_data_array(
            self.to_map(labels, fill_value=fill_value),
            self._place,
            self.dimension_names,
            fill_value=fill_value,
            name=name,
            class_names=class_names,
        )

    def _align(self, labels: Any) -> da.Array:
        return align(labels, self.block_counts)
