"""A cube opened: which pixels are rows, and labels back to the image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust._warnings import warn
from daskclust.cube import _blocks
from daskclust.cube._blocks import BlockGrid, CubeSource, Scaling
from daskclust.cube._description import StoredCube
from daskclust.cube._georeference import Georeference
from daskclust.cube._grids import pixel_grid
from daskclust.cube._images import Image, open_image
from daskclust.cube._label_maps import (
    LABEL_MAP,
    VALUE_MAP,
    as_data_array,
    write_label_map,
    write_value_map,
)
from daskclust.cube._labels import align, with_room
from daskclust.cube._layout import flatten, unflatten
from daskclust.cube._metadata import Names
from daskclust.cube._pixels import whitened
from daskclust.cube._survey import Surveyed, sample_dtype, take_survey
from daskclust.cube._tif_maps import write_label_tif, write_value_tif
from daskclust.cube.bands import as_ranges
from daskclust.cube.formats.geotiff import is_geotiff
from daskclust.cube.formats.vector import PixelGrid
from daskclust.exceptions import DaskclustWarning
from daskclust.storage.seen import StoredArray, as_dask
from daskclust.storage.stores import local_path, stamp, stamp_files
from daskclust.storage.urls import redact

__all__ = ["Cube"]


#: How samples are scaled: by name, or as another cube's.
Scale = Literal["none", "standard", "unit", "whitened"] | Scaling


class Cube:
    """An image cube as rows for clustering; made by :func:`daskclust.open_cube`.

    Attributes
    ----------
    chunks : tuple of tuples
        Block sizes along y and x.
    wavelengths : ndarray of shape (bands kept,), float64, or None
        Band centers in nm (taken for nm where no unit says otherwise); None where
        there are none.
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
    The pass that counts finds bands without any data: from then on they are no longer
    among `shape`, `bands`, `wavelengths` and `samples`, and a warning names them.
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
        dtype: np.dtype[Any] | None = None,
        bands_are_fixed: bool = False,
        files: Sequence[Path] = (),
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
        self._dtype = sample_dtype(source.dtype) if dtype is None else dtype
        self._bands_are_fixed = bands_are_fixed
        self._files = tuple(files)
        self.chunks = source.grid.chunks
        self.attributes: dict[str, Any] = dict(attributes)
        self.nodata = source.nodata

    def __repr__(self) -> str:
        y, x, p = self.shape
        down, across = self._grid.numblocks
        return f"<Cube {y} x {x} pixels, {p} bands, {down} x {across} blocks>"

    # How it is stored and where it lies

    @property
    def shape(self) -> tuple[int, int, int]:
        """(y, x, bands kept)."""
        return (*self._grid.shape, self._source.n_bands)

    @property
    def bands(self) -> NDArray[np.intp]:
        """Numbers of the bands kept."""
        kept = self._source.bands
        return np.arange(self._source.n_stored) if kept is None else kept

    @property
    def values(self) -> dict[str, Any]:
        """What makes samples of stored numbers: `scale_factor` and `add_offset`, if any."""
        return self._source.meaning.described()

    @property
    def blocks(self) -> BlockGrid:
        """The spatial blocks: their number, sizes and places, in the order of the rows."""
        return self._grid

    @property
    def georeference(self) -> Georeference:
        """Coordinate system and position, as stored."""
        return self._place

    @property
    def pixel_grid(self) -> PixelGrid:
        """Shape, transform and coordinate system of the image."""
        return pixel_grid(self._place, self._grid.shape, self.dimension_names)

    @property
    def stored(self) -> StoredCube:
        """How the values are stored."""
        source = self._source
        values = self._pixels if source.array is None else as_dask(source.array)
        assert values is not None
        return StoredCube(
            array=None if source.array is None else source.array.array,
            order=source.order,
            shape=(*self._grid.shape, source.n_stored),
            dtype=source.dtype,
            values=values,
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
        meaning = self._source.meaning
        stacked = da.stack(images, axis=2)
        if meaning.dtype is None:
            return stacked
        return da.map_blocks(
            meaning.view, stacked, dtype=meaning.dtype, meta=np.empty((0, 0, 0), meaning.dtype)
        )

    def open_map(
        self,
        name: str,
        image: Any,
        *,
        variable: str | None = None,
        class_column: str | None = None,
    ) -> Image:
        """Open an image of the size of the cube, such as a label map; nothing is computed.

        Parameters
        ----------
        name : str
            Of the argument, for messages.
        image : array of shape (y, x), xarray.DataArray, zarr.Group, str or path
        variable : str, default=None
            Array inside a store.
        class_column : str, default=None
            Of a vector file or a CSV file.

        Raises
        ------
        ValueError
            Another shape, or another coordinate system or position than the cube.
        """
        return open_image(
            name,
            image,
            self._grid.shape,
            place=self._place,
            variable=variable,
            names=self.dimension_names,
            chunks=self.chunks,
            class_column=class_column,
        )

    def count_valid(self, blocks: Sequence[int]) -> int:
        """Count the valid pixels of some blocks, which are read; bands empty there are left out."""
        p = self._source.n_bands
        surveys = self._per_block(
            _blocks.block_survey,
            sizes=(1,) * self._grid.count,
            width=2 + p,
            dtype=np.float64,
            token="daskclust-count",
            moments=False,
        )
        found = surveys.blocks[[int(number) for number in blocks]].compute()
        keep = self._source.keep_incomplete
        return int(_blocks.merge_surveys(found, n_bands=p, keep_incomplete=keep)[0, 0])

    # What is in the blocks

    @cached_property
    def _survey(self) -> Surveyed:
        """Valid pixels per block, the scaling, and bands without data; at most one pass."""
        # What is read from here on has to be what is written about in the end.
        self._stamp = self._stamp_now()
        if self._scale == "whitened":
            counted = self._counted("none")
            scaling = whitened(self, sum(counted.counts), counted.scaling)
            return replace(counted, scaling=scaling)
        return self._counted(self._scale)

    def _counted(self, scale: Scale) -> Surveyed:
        """Count valid pixels per block, and find a scaling without neighbors; at most one pass."""
        if scale != "standard" and self._source.is_complete and self._excluded is None:
            scaling = scale if isinstance(scale, Scaling) else Scaling(scale, self._dtype)
            return Surveyed(self._grid.pixels, scaling, np.empty(0, np.intp))
        found = take_survey(self._per_block, self._source, scale, self._dtype)
        if len(found.empty):
            self._leave_out(found.empty)
        return found

    def _leave_out(self, empty: NDArray[np.intp]) -> None:
        """Go on without bands that hold no data."""
        numbers = self.bands[empty]
        text = as_ranges(numbers)
        if self._bands_are_fixed:
            raise ValueError(
                f"Bands {text} hold no data in any pixel, but bands= asks for them; expected "
                "data in every band that a model was fitted to. Fit the model without them."
            )
        warn(
            f"Bands {text} hold no data in any pixel and are left out: "
            f"{self.shape[2] - len(empty)} of {self._source.n_stored} bands are used. Name them "
            "in bad_bands (--bad-bands) to say so yourself.",
            DaskclustWarning,
        )
        self._source = replace(self._source, bands=np.delete(self.bands, empty))
        if self.wavelengths is not None:
            self.wavelengths = np.delete(self.wavelengths, empty)

    @property
    def sample_scaling(self) -> Scaling:
        """How valid pixels become `samples`."""
        return self._survey.scaling

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
        counted = self._survey
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
        other._scale = replace(scaling, dtype=self._dtype)
        # What was counted stays as it is: no pass is made again.
        other.__dict__["_survey"] = replace(counted, scaling=other._scale)
        return other

    def _stamp_now(self) -> str | None:
        if self._source.array is None:
            return stamp_files(self._files) if self._files else None
        return stamp(self._source.array.array)

    @property
    def block_counts(self) -> tuple[int, ...]:
        """Valid pixels of each block, in the order of the rows."""
        return self._survey.counts

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
        found = self._survey.scaling
        if found.mean is None or found.std is None:
            return None
        return found.mean, found.std

    @cached_property
    def samples(self) -> da.Array:
        """Valid pixels as rows: lazy, (n_valid, bands), one row block per spatial block.

        float32 for float32 and for integers of up to 16 bits, else float64.
        """
        counts, scaling = self._survey.counts, self._survey.scaling
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
        >>> import zarr
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
        class_column: str | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Turn a label map into global row numbers and labels.

        The result is the ``y=(rows, labels)`` of the semi-supervised estimators.

        Parameters
        ----------
        label_map : array of shape (y, x), integer or bool, or a store of one
            NumPy, Dask, Zarr or xarray; or a path or group, with `variable` where it
            has several two-dimensional arrays.  A path may also be of a raster file,
            a vector file (GeoJSON, GeoPackage, Shapefile: pixels whose center a feature
            covers), or a CSV file with row and column, or x and y, and class.
            Of a bool map, the True pixels with label 1.
        unlabeled : int or sequence of int, default=-1
            Values that mean "no label", besides those that the attributes of a stored
            map declare; ground truth often uses 0, then pass 0.
        variable : str, default=None
            Array inside the store.
        class_column : str, default=None
            Of a vector or CSV file; None takes the only one that can be meant.  Names
            become the codes 0, 1, ... in their alphabetical order (see :meth:`open_map`).

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
        >>> import zarr
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> rows, labels = cube.rows_of(np.array([[0, 1], [-1, 2]]))
        >>> rows.tolist(), labels.tolist()
        ([0, 2], [0, 2])
        """
        opened = self.open_map("label_map", label_map, variable=variable, class_column=class_column)
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
        class_names: Names | None = None,
        class_colors: Mapping[int, str] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Any:
        """Write labels as an image into a new Zarr v3 group, or a GeoTIFF.

        Parameters
        ----------
        labels : array of shape (n_valid,), integer
            NumPy, or Dask chunked like `samples`; -1 means none.
        store : str, path or zarr store
            The target.  With a distributed cluster, workers must see it too.  A name that
            ends in .tif becomes a cloud-optimized GeoTIFF with colors, class names, nodata
            and coordinate system, written by the client.
        overwrite : bool, default=False
            Replace a label map that daskclust has written; never anything else.
        n_clusters : int, default=None
            Number of clusters, where known: up to 32 767 are stored as int16.
        class_names : sequence of str or mapping of int to str, default=None
            Meanings of the labels 0, 1, ..., or by label; ``cluster_0``, ... by default.
        class_colors : mapping of int to str, default=None
            Colors by label, as ``#rrggbb``; well told apart by default.
        attributes : mapping, default=None
            More attributes of the group, such as where the labels come from; JSON values,
            stored without the credentials of URLs.

        Returns
        -------
        zarr.Group or Path
            Of a GeoTIFF its path.
            Else open for reading, with the array ``labels`` (y, x), int16 or int32,
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
        >>> import zarr
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> written = cube.write_labels(np.array([0, 0, 1]), zarr.storage.MemoryStore())
        >>> written["labels"][:].tolist(), written["labels"].attrs["flag_meanings"]
        ([[0, -1], [0, 1]], 'cluster_0 cluster_1')
        """
        aligned = self._align(labels)
        if is_geotiff(store):
            if aligned.dtype.kind not in "iu":
                raise ValueError(f"labels have dtype {aligned.dtype}; expected integers.")
            write_label_tif(
                self.to_map(aligned),
                self._place,
                self.dimension_names,
                store,
                kind=LABEL_MAP,
                overwrite=overwrite,
                n_clusters=n_clusters,
                class_names=class_names,
                class_colors=class_colors,
                attributes=attributes,
                check=self._check_unchanged,
            )
            return Path(store)
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
            class_colors=class_colors,
            attributes=attributes,
        )

    def write_map(
        self,
        values: Any,
        store: Any,
        *,
        overwrite: bool = False,
        names: Sequence[str] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Any:
        """Write numbers of the rows, such as margins or probabilities, as an image.

        Parameters
        ----------
        values : array of shape (n_valid,) or (n_valid, m), float
            NumPy, or Dask chunked like `samples`; float64 stays, other numbers become
            float32.
        store : str or path
            A name that ends in .tif becomes a cloud-optimized GeoTIFF of m bands, any
            other one a Zarr v3 group with the array ``values``, (y, x) or (band, y, x).
        overwrite : bool, default=False
            Replace a map of values that daskclust has written; never anything else.
        names : sequence of str, default=None
            Of the m bands.
        attributes : mapping, default=None
            More attributes; JSON values.

        Returns
        -------
        zarr.Group or Path

        Raises
        ------
        FileExistsError
            The target exists and `overwrite` is False, or it is no such map of daskclust.
        ValueError
            Another number of rows than valid pixels, or of names than of columns.

        Notes
        -----
        Masked pixels are NaN.  A GeoTIFF is written by the client, a row of blocks at a
        time; Zarr by one task a block.

        Examples
        --------
        >>> import zarr
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> written = cube.write_map(np.array([0.5, 0.25, 1.0]), zarr.storage.MemoryStore())
        >>> written["values"][:].tolist()
        [[0.5, nan], [0.25, 1.0]]
        """
        if not isinstance(values, da.Array):
            values = np.asarray(values)
        if values.ndim not in (1, 2) or values.dtype.kind not in "iufb":
            raise ValueError(
                f"values have shape {values.shape} and dtype {values.dtype}; expected numbers of "
                "shape (n_valid,) or (n_valid, m)."
            )
        columns = [values] if values.ndim == 1 else [values[:, k] for k in range(values.shape[1])]
        if names is not None and len(names) != len(columns):
            raise ValueError(f"Got {len(names)} names for {len(columns)} bands; expected one each.")
        dtype = np.float64 if values.dtype == np.float64 else np.float32
        images = [self.to_map(column.astype(dtype), fill_value=np.nan) for column in columns]
        image = images[0] if values.ndim == 1 else da.stack(images)
        if is_geotiff(store):
            write_value_tif(
                image,
                self._place,
                self.dimension_names,
                store,
                kind=VALUE_MAP,
                overwrite=overwrite,
                band_names=names,
                attributes=attributes,
                check=self._check_unchanged,
            )
            return Path(store)
        self._check_target(store)
        return write_value_map(
            image,
            self._place,
            self.dimension_names,
            store,
            overwrite=overwrite,
            band_names=names,
            attributes=attributes,
            check=self._check_unchanged,
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
        self._check_unchanged()
        return sorted({int(code) for codes in found for code in codes})

    def _check_unchanged(self) -> None:
        """Raise where the cube is no longer what its labels were made of."""
        if self._stamp != self._stamp_now():
            raise ValueError(
                "The store of the cube was written to since it was read first, so labels may "
                "belong to other values; expected a store that stays as it is. Nothing was "
                "written. Open the cube again, fit again, and write then."
            )

    def to_xarray(
        self,
        labels: Any,
        *,
        fill_value: float = -1,
        name: str = "labels",
        class_names: Names | None = None,
    ) -> Any:
        """Put one value per row back onto the image, as an ``xarray.DataArray``.

        Parameters
        ----------
        labels : array of shape (n_valid,)
            As for :meth:`to_map`.
        fill_value : number, default=-1
            Value of masked pixels.
        name : str, default="labels"
        class_names : sequence of str or mapping of int to str, default=None
            Meanings of the labels 0, 1, ..., or by label, for the attributes ``flag_values`` and
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
        >>> import zarr
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
