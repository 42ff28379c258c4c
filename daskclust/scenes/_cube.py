"""An open cube: its pixels as rows, values of rows back on the image, and images of its size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import dask.array as da
import numpy as np
from numpy.typing import ArrayLike, NDArray

from daskclust.core.array_types import Floats
from daskclust.core.engine import compute, read_again
from daskclust.core.storage.stored_array import StoredArray, as_dask
from daskclust.core.storage.stores import stamp
from daskclust.core.warn import warn
from daskclust.exceptions import DaskclustWarning
from daskclust.scenes import _block_tasks
from daskclust.scenes._block_tasks import CubeSource, Scaling, StoredCube
from daskclust.scenes._georeference import Georeference, PixelGrid, pixel_grid
from daskclust.scenes._metadata import Names
from daskclust.scenes._open_array import Image, are_features, open_image, read_image
from daskclust.scenes._writing import write_labels, write_map
from daskclust.scenes.bands import as_ranges
from daskclust.scenes.block_grid import flatten, merged_in_tree, unflatten
from daskclust.scenes.formats.opening import kind_of
from daskclust.scenes.formats.vector import rasterize_file
from daskclust.scenes.label_images import resampled, with_codes
from daskclust.scenes.label_map import LabelMap, as_data_array
from daskclust.scenes.pictures import cube_html, plot_cube
from daskclust.scenes.pixels import count_graph, places_of_rows, sample_pixels, whitened
from daskclust.scenes.smoothing import smooth

#: Rows of statistics merged by one task.
_FOLD = 256
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
        Values that mean "no data" in any band, besides NaN.
    blocks : BlockGrid
        The spatial blocks: their number, sizes and positions, in the order of the rows.
    georeference : Georeference
        Coordinate system and position, as stored; transforms that contradict the
        coordinates are corrected.

    Notes
    -----
    Rows are the valid pixels, numbered block by block, and line by line inside a block: not
    in the order of the lines of the image.  :meth:`to_map` brings values of rows into the
    order of the image, :meth:`rows_of` brings an image of labels into the order of the rows.

    The number of valid pixels per block is needed for `samples`, `n_valid`, `n_masked`
    and the methods.  It is counted once, on first use, by one pass over the store on the
    active Dask scheduler.  This pass is skipped if neither a nodata value nor NaN can
    occur, no mask was given, and ``scale`` is not ``"standard"``.  ``scale="whitened"``
    takes one more pass, over a sample of the pixels.  The counting pass also finds bands
    without any data.  They are then removed from `shape`, `bands`, `wavelengths` and
    `samples`, and a warning names them.
    """

    def __init__(
        self,
        source: CubeSource,
        *,
        pixels: da.Array | None,
        excluded: da.Array | None,
        scale: Scale,
        wavelengths: Floats | None,
        place: Georeference,
        attributes: Mapping[str, Any],
        dimension_names: tuple[str, str],
        dtype: np.dtype[Any],
        bands_are_fixed: bool = False,
        held_in: StoredArray | Sequence[Path] = (),
    ) -> None:
        self._source = source
        self._pixels = None if pixels is None else read_again(pixels)
        self._excluded = None if excluded is None else read_again(excluded)
        self._scale: Scale = scale
        self._stamp: str | None = None
        self.georeference = place
        self.wavelengths = wavelengths
        self.dimension_names = dimension_names
        self._dtype = dtype
        self._bands_are_fixed = bands_are_fixed
        # What is written to where the values change.
        self._held_in = held_in
        self.blocks = source.grid
        self.chunks = source.grid.chunks
        self.attributes: dict[str, Any] = dict(attributes)
        self.nodata = source.all_nodata

    def __repr__(self) -> str:
        y, x, p = self.shape
        down, across = self.blocks.numblocks
        return f"<Cube {y} x {x} pixels, {p} bands, {down} x {across} blocks>"

    # How it is stored and where it lies

    @property
    def shape(self) -> tuple[int, int, int]:
        """(y, x, bands kept)."""
        return (*self.blocks.shape, self._source.n_bands)

    @property
    def bands(self) -> NDArray[np.intp]:
        """Numbers of the bands kept."""
        kept = self._source.bands
        return np.arange(self._source.n_stored) if kept is None else kept

    def described(self) -> dict[str, Any]:
        """Describe the data as JSON values, to be saved with a model."""
        source, units = self._source, self.attributes.get("units")
        bands, names = self.bands.tolist(), self.attributes.get("band_names")
        if not isinstance(names, list | tuple) or len(names) != source.n_stored:
            names = None
        return {
            "bands": bands,
            "stored_bands": source.n_stored,
            "wavelengths": None if self.wavelengths is None else self.wavelengths.tolist(),
            "band_names": None if names is None else [str(names[at]) for at in bands],
            "dtype": str(source.dtype),
            "values": source.meaning.described(),
            "units": units if isinstance(units, str) else None,
        }

    def nodata_of(self, band: int) -> tuple[float, ...]:
        """Return the values that mean "no data" in a band, by its stored number."""
        own = self._source.nodata_of_bands
        return (*self._source.nodata, *(own[band] if own else ()))

    @property
    def values(self) -> dict[str, Any]:
        """`scale_factor` and `add_offset`, if any, that convert stored numbers to samples."""
        return self._source.meaning.described()

    @property
    def stored(self) -> StoredCube:
        """How the values are stored."""
        source = self._source
        values = self._pixels if source.array is None else as_dask(source.array)
        assert values is not None
        return StoredCube(
            array=None if source.array is None else source.array.array,
            order=source.order,
            shape=(*self.blocks.shape, source.n_stored),
            dtype=source.dtype,
            values=values,
            may_be_masked=not source.is_complete or self._excluded is not None,
        )

    def stored_bands(self, bands: Sequence[int]) -> da.Array:
        """Return bands as stored, by their stored numbers: lazy, (y, x, len(bands))."""
        if self._source.array is None:
            assert self._pixels is not None
            images = [unflatten(self._pixels[:, int(band)], self.blocks) for band in bands]
        else:
            whole = as_dask(self._source.array).transpose(self._source.order)
            images = [whole[:, :, int(band)] for band in bands]
        meaning = self._source.meaning
        stacked = da.stack(images, axis=2)
        if meaning.dtype is None:
            return stacked
        return da.map_blocks(meaning.view, stacked, meta=np.empty((0, 0, 0), meaning.dtype))

    def survey_blocks(self, blocks: Sequence[int]) -> tuple[int, NDArray[np.intp]]:
        """Count the valid pixels of some blocks, and find the bands without data in any of them.

        Of these the stored numbers are returned; the count does without them. Blocks are read,
        unless nothing stored can mean "no data".
        """
        p = self._source.n_bands
        surveys = self._per_block(
            _block_tasks.block_survey,
            sizes=(1,) * self.blocks.count,
            width=2 + p,
            dtype=np.float64,
            token="daskclust-count",
            moments=False,
        )
        some = surveys.blocks[[int(number) for number in blocks]]
        (found,) = compute("the count of pixels", some)
        keep = self._source.keep_incomplete
        (merged,) = _block_tasks.merge_surveys(found, n_bands=p, keep_incomplete=keep)
        return int(merged[0]), self.bands[merged[2 : 2 + p] == 0]

    # Reading the blocks

    @cached_property
    def _survey(self) -> _block_tasks.Surveyed:
        """Valid pixels per block, and the scaling; bands without data are left out.

        One pass; none where all pixels count, and no scaling is looked for.  Two numbers a block
        reach the client; statistics of bands are merged in a tree.
        """
        # The files read from here on must be the same ones until the end.
        self._stamp = stamp(self._held_in)
        source, scale, moments = self._source, self._scale, self._scale == "standard"
        scaling = scale
        if not isinstance(scaling, Scaling):
            scaling = Scaling("none" if scale == "whitened" else scaling, self._dtype)
        found = _block_tasks.Surveyed(source.grid.pixels, scaling)
        if moments or not source.is_complete or self._excluded is not None:
            p, keep = source.n_bands, source.keep_incomplete
            surveys = self._per_block(
                _block_tasks.block_survey,
                sizes=(1,) * source.grid.count,
                width=2 + (4 if moments else 1) * p,
                dtype=np.float64,
                token="daskclust-survey",
                moments=moments,
            )
            merged = merged_in_tree(
                surveys, _block_tasks.merge_surveys, _FOLD, n_bands=p, keep_incomplete=keep
            )
            heads, total = compute("the count of pixels", surveys[:, :2], merged)
            # Where a band is missing that other blocks have, no pixel is complete.
            whole = keep | (heads[:, 1] == total[0, 1])
            counts = tuple(int(count) for count in np.where(whole, heads[:, 0], 0))
            present = total[0, 2 : 2 + p] > 0
            if not present.any():
                present[:] = True  # a scene without data has no band to blame
            if moments:
                n, mean, squares = (part[present] for part in total[0, 2 + p :].reshape(3, p))
                std = np.sqrt(squares / np.maximum(n, 1.0))
                std[std == 0.0] = 1.0  # a constant band: centered, not divided by zero
                scaling = replace(scaling, mean=mean, std=std)
            elif scaling.mean is not None and scaling.std is not None:
                scaling = replace(scaling, mean=scaling.mean[present], std=scaling.std[present])
            if not present.all():
                self._leave_out(np.flatnonzero(~present))
            found = _block_tasks.Surveyed(counts, scaling)
        return replace(found, scaling=whitened(self, found)) if scale == "whitened" else found

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
            "in bad_bands (--bad-bands) to do without this warning.",
            DaskclustWarning,
        )
        self._source = replace(self._source, bands=np.delete(self.bands, empty))
        if self.wavelengths is not None:
            self.wavelengths = np.delete(self.wavelengths, empty)

    @property
    def sample_scaling(self) -> Scaling:
        """How valid pixels become `samples`."""
        return self._survey.scaling

    def scaled_as(self, scaling: Scaling) -> Self:
        """Return the same cube with the samples of a scaling that a fitted model has stored."""
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
        # Counts stay: no pass is made again.
        other.__dict__["_survey"] = replace(counted, scaling=other._scale)
        return other

    sample_pixels = sample_pixels
    places_of_rows = places_of_rows
    count_neighbors = count_graph

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
        """Number of pixels that are not valid, for any reason."""
        return self.shape[0] * self.shape[1] - self.n_valid

    @property
    def scaling(self) -> tuple[Floats, Floats] | None:
        """Mean and standard deviation that ``scale="standard"`` uses; None for other scales.

        Pass it as `scale` when you open another cube for prediction, so that both cubes
        are scaled alike.
        """
        found = self._survey.scaling
        if found.mean is None or found.std is None:
            return None
        return found.mean, found.std

    @cached_property
    def samples(self) -> da.Array:
        """Valid pixels as rows: lazy, (n_valid, bands), one row block per spatial block.

        In the order of the blocks, not of the lines of the image; see :meth:`to_map`.

        float32 for float32 and for integers of up to 16 bits, else float64.
        """
        counts, scaling = self._survey.counts, self._survey.scaling
        return self._per_block(
            CubeSource.samples,
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
            _block_tasks.block_valid, sizes=self.blocks.pixels, dtype=bool, token="daskclust-valid"
        )
        return unflatten(flat, self.blocks)

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
        """Run a function on every block, as `on_block` does; `sizes` rows come out."""
        pairs: list[Any] = [da.from_array(np.arange(self.blocks.count), chunks=1), "i"]
        if self._pixels is not None:
            pairs += [self._pixels, "ib"]
        for array in (*labels, *([] if self._excluded is None else [self._excluded])):
            pairs += [array, "ik"[: array.ndim]]
        out = "i" if width is None else "ip"
        # Not aligned: block i of every array belongs together though lengths differ.
        return da.blockwise(
            _block_tasks.on_block,
            out,
            *pairs,
            new_axes=None if width is None else {"p": width},
            adjust_chunks={"i": tuple(sizes)},
            align_arrays=False,
            # Blocks hold all bands: put together, they would be copied.
            concatenate=False,
            meta=np.empty((0,) * len(out), dtype),
            token=token,
            function=function,
            source=self._source,
            excludes=self._excluded is not None,
            **options,
        )

    # Values of rows, block by block

    def _image(self, labels: Any, fill_value: float) -> da.Array:
        """Put one value per row back onto the image; lazy, (y, x)."""
        aligned = _block_tasks.widened(_block_tasks.align(labels, self.block_counts), fill_value)
        flat = self._per_block(
            _block_tasks.expand_block,
            aligned,
            sizes=self.blocks.pixels,
            dtype=aligned.dtype,
            token="daskclust-map",
            fill_value=fill_value,
        )
        return unflatten(flat, self.blocks)

    def _check_unchanged(self) -> None:
        """Raise where the cube is no longer what its labels were made of."""
        if self._stamp != stamp(self._held_in):
            raise ValueError(
                "The store of the cube was written to since it was read first, so labels may "
                "belong to other values; expected a store that stays as it is. Nothing was "
                "written. Open the cube again, fit again, and write then."
            )

    # Images of its size

    def _repr_html_(self) -> str:
        # Nothing is counted for a look.
        return cube_html(self, self.n_valid if "_survey" in self.__dict__ else None)

    plot = plot_cube

    @property
    def pixel_grid(self) -> PixelGrid:
        """Shape, transform and coordinate system of the image."""
        return pixel_grid(self.georeference, self.shape[:2])

    def open_map(
        self,
        name: str,
        image: Any,
        *,
        variable: str | None = None,
        class_column: str | None = None,
        resample: bool = False,
    ) -> Image:
        """Open a label map of the size of the cube; nothing is computed.

        `name` is that of the argument, for messages. Floats become integers, and NaN is nodata.
        With `resample` an image of integers or booleans on another grid is brought to that of the
        cube: each pixel takes the value where its center lies, -1 (False) outside.
        """
        if resample and not are_features(image):
            found = with_codes(name, read_image(name, image, variable))
            same = found.values.shape == self.blocks.shape
            if not same or self.georeference.differences(found.place):
                found = resampled(name, found, self.pixel_grid, self.chunks)
            image, variable = found, None
        return with_codes(name, self.open_image(name, image, variable, class_column))

    def open_image(
        self,
        name: str,
        image: Any,
        variable: str | None = None,
        class_column: str | None = None,
    ) -> Image:
        """Open an image of any values, of the size of the cube; nothing is computed."""
        return open_image(
            name,
            image,
            self.blocks.shape,
            place=self.georeference,
            variable=variable,
            chunks=self.chunks,
            class_column=class_column,
        )

    def open_exclusion(self, name: str, image: Any, *, variable: str | None = None) -> Any:
        """Open an image of pixels that must not be asked about: (y, x), bool; nothing is computed.

        `image` is a boolean image, one of 0 and 1, or a vector file, whose features cover pixels;
        `name` is that of the argument, for messages.
        """
        if are_features(image) and kind_of(image) == "vector":
            codes, _ = rasterize_file(image, self.pixel_grid, self.chunks, covers=True)
            return codes >= 0
        return _block_tasks.as_mask(name, self.open_image(name, image, variable))

    def rows_where(self, mask: Any) -> da.Array:
        """Return the values of a boolean image at the rows: lazy, (n_valid,)."""
        return self._per_block(
            _block_tasks.block_row_values,
            flatten(mask, self.blocks),
            sizes=self.block_counts,
            dtype=bool,
            token="daskclust-rows-where",
        )

    def excluding(self, mask: Any) -> Self:
        """Return the cube with more pixels excluded, from which pixels are read by their place.

        Counts of rows are still those of this cube.
        """
        other, more = copy(self), flatten(mask, self.blocks)
        other._excluded = more if self._excluded is None else self._excluded | more
        return other

    rows_of = _block_tasks.rows_of

    # Values of rows on the image

    def to_map(
        self, labels: Any, *, fill_value: float = -1, classes: ArrayLike | None = None
    ) -> da.Array:
        """Put one value per row back onto the image.

        Parameters
        ----------
        labels : array of shape (n_valid,)
            NumPy, or Dask with the chunks of `samples` (other chunks are rechunked).
            Numbers, or text, which `classes` turns into codes.
        fill_value : number, default=-1
            Value of masked pixels, and of pixels whose label is masked.
        classes : array of shape (k,), default=None
            The model's ``classes_``, if labels are text.  Class i becomes the code i, any
            other text -1.  None takes the sorted distinct names in a NumPy array; lazy
            text needs `classes`.

        Returns
        -------
        dask.array.Array of shape (y, x)
            Lazy, with the blocks of the cube as chunks.  The dtype is that of the labels
            if it can hold `fill_value`.  Otherwise unsigned labels become int64 (negative
            `fill_value`), and integers become float64 (`fill_value` NaN or not an
            integer).

        Raises
        ------
        ValueError
            The number of labels is not `n_valid`, or labels are lazy text without
            `classes`.

        Notes
        -----
        Blocks with masked pixels are read again to find these pixels.

        Examples
        --------
        >>> import numpy as np, zarr
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> cube.to_map(np.array([5, 6, 7])).compute().tolist()
        [[5, -1], [6, 7]]
        """
        return self._image(_block_tasks.as_numbers(labels, classes)[0], fill_value)

    smooth = smooth

    def label_map(
        self,
        labels: Any,
        *,
        classes: ArrayLike | None = None,
        class_names: Sequence[str] | Mapping[int, str] | None = None,
    ) -> LabelMap:
        """Make a map of labels to look at, with names, colors and areas of its classes.

        Parameters
        ----------
        labels, classes
            See :meth:`to_map`; texts are the names in the map.
        class_names : sequence of str or mapping of int to str, default=None
            Meanings of the labels 0, 1, ..., or by label.

        Returns
        -------
        LabelMap
            Lazy.

        Examples
        --------
        >>> import numpy as np, zarr
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> cube.label_map(np.array([1, 0, 1]), class_names=["wheat", "water"]).area()[1].pixels
        2
        """
        codes, names = _block_tasks.as_numbers(labels, classes, class_names)
        if codes.dtype.kind not in "iub":
            raise ValueError(f"labels have dtype {codes.dtype}; expected integers, or text.")
        return LabelMap(
            self.to_map(codes),
            names=names,
            place=self.georeference,
            dimension_names=self.dimension_names,
        )

    def to_xarray(
        self,
        labels: Any,
        *,
        fill_value: float = -1,
        name: str = "labels",
        classes: ArrayLike | None = None,
        class_names: Names | None = None,
    ) -> Any:
        """Put one value per row back onto the image, as an ``xarray.DataArray``.

        Parameters
        ----------
        labels, classes
            See :meth:`to_map`.
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
            xarray is not installed.

        Examples
        --------
        >>> import numpy as np, zarr
        >>> from daskclust import open_cube
        >>> values = zarr.array(np.array([[[1], [-9]], [[2], [3]]], dtype="int16"))
        >>> cube = open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> cube.to_xarray(np.array([5, 6, 7])).dims
        ('y', 'x')
        """
        codes, names = _block_tasks.as_numbers(labels, classes, class_names)
        return as_data_array(
            self.to_map(codes, fill_value=fill_value),
            self.georeference,
            self.dimension_names,
            fill_value=fill_value,
            name=name,
            class_names=names,
        )

    write_labels = write_labels

    write_map = write_map
