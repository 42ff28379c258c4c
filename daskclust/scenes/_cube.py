"""An open cube: its pixels as rows, values of rows back on the image, and images of its size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import dask.array as da
import numpy as np
from numpy.typing import ArrayLike, NDArray

from daskclust.core.array_types import Floats, Ints
from daskclust.core.engine import read_again
from daskclust.core.reduction.connectivity import Connections, Connectivity
from daskclust.core.storage.stored_array import StoredArray
from daskclust.core.storage.stores import stamp
from daskclust.scenes import _block_tasks, left_out, pictures, pixels, smoothing
from daskclust.scenes._block_tasks import CubeBlocks, CubeSource, Scaling, StoredCube
from daskclust.scenes._georeference import Georeference, PixelGrid, pixel_grid
from daskclust.scenes._metadata import Names
from daskclust.scenes._open_array import Image, are_features, open_image, read_image
from daskclust.scenes._writing import (
    check_not_within,
    columns_of,
    label_writer,
    value_writer,
    write_together,
)
from daskclust.scenes.areas import line_weights
from daskclust.scenes.block_grid import flatten, unflatten
from daskclust.scenes.formats.opening import kind_of
from daskclust.scenes.formats.vector import covered, points_image
from daskclust.scenes.label_images import resampled, with_codes
from daskclust.scenes.label_map import LabelMap, as_data_array
from daskclust.scenes.survey import Scale, survey, survey_some, warn_of_empty_bands


class Cube:
    """An image cube as rows for clustering; made by :func:`daskclust.open_cube`.

    Attributes
    ----------
    chunks : tuple of tuples
        Block sizes along y and x.
    wavelengths : ndarray of shape (bands kept,), float64, or None
        Band centers in nm, or None.  Centers without a unit are taken as nm.
    attributes : dict
        The stored array's attributes.
    nodata : tuple of numbers
        Values that mean "no data" in any band, in addition to NaN.
    blocks : BlockGrid
        The spatial blocks: their number, sizes and positions, in the order of the rows.
    georeference : Georeference
        Coordinate system and position, as stored; transforms that contradict the
        coordinates are corrected.
    item_names : dict of int to str
        Name of the first file of each item of a mosaic, by the number of the item; empty for other
        cubes.
    items : dask.array.Array of shape (y, x), int32, or None
        Number of the item that each pixel of the first band comes from, -1 for none. None for other
        cubes, and for mosaics of several dates or with ``overlap="mean"``.

    Notes
    -----
    Rows are the valid pixels, numbered block by block, and line by line inside a block.
    :meth:`to_map` puts values of rows back onto the image, and :meth:`rows_of` returns the rows and
    labels of a label map.

    The first use of `samples`, `n_valid`, `n_masked` or a method counts the valid pixels in one
    pass.  The pass is skipped if neither a nodata value nor NaN can occur, no mask was given, and
    ``scale`` is not ``"standard"``.  ``scale="whitened"`` takes one more pass, over a sample of the
    pixels.  The pass also removes bands without any data, with a warning that names them.
    """

    def __init__(
        self,
        source: CubeSource,
        *,
        pixels: da.Array | None,
        excluded: da.Array | None,
        scale: Scale,
        wavelengths: Floats | None,
        position: Georeference,
        attributes: Mapping[str, Any],
        dtype: np.dtype[Any],
        bands_are_fixed: bool = False,
        sources: StoredArray | Sequence[Path] = (),
    ) -> None:
        self._blocks = CubeBlocks(
            source,
            None if pixels is None else read_again(pixels),
            None if excluded is None else read_again(excluded),
        )
        self._scale: Scale = scale
        self._stamp: str | None = None
        self.georeference = position
        self.wavelengths = wavelengths
        self._dtype = dtype
        self._bands_are_fixed = bands_are_fixed
        # Files or array that contain the values.
        self._sources = sources
        self.blocks = source.grid
        self.chunks = source.grid.chunks
        self.attributes: dict[str, Any] = dict(attributes)
        self.nodata = source.all_nodata
        self.item_names: dict[int, str] = {}
        self.items: da.Array | None = None

    def __repr__(self) -> str:
        y, x, p = self.shape
        down, across = self.blocks.numblocks
        return f"<Cube {y} x {x} pixels, {p} bands, {down} x {across} blocks>"

    # Storage and position

    @property
    def _source(self) -> CubeSource:
        return self._blocks.source

    @property
    def dimension_names(self) -> tuple[str, str]:
        """Names of y and x in the store."""
        return self.georeference.names

    @property
    def shape(self) -> tuple[int, int, int]:
        """(y, x, bands kept)."""
        return (*self.blocks.shape, self._source.n_bands)

    @property
    def bands(self) -> NDArray[np.intp]:
        """Numbers of the bands kept."""
        numbers = self._source.bands
        return np.arange(self._source.n_stored) if numbers is None else numbers

    def described(self) -> dict[str, Any]:
        """Describe the data as JSON values, to be saved with a model."""
        source, units = self._source, self.attributes.get("units")
        names = self.stored_names
        return {
            "bands": self.bands.tolist(),
            "stored_bands": source.n_stored,
            "wavelengths": None if self.wavelengths is None else self.wavelengths.tolist(),
            "band_names": None if names is None else [names[i] for i in self.bands],
            "dtype": str(source.dtype),
            "values": source.meaning.described(),
            "units": units if isinstance(units, str) else None,
        }

    @property
    def stored_names(self) -> list[str] | None:
        """Names of all stored bands; None if the file does not have a name for each."""
        names = self.attributes.get("band_names")
        if not isinstance(names, list | tuple) or len(names) != self._source.n_stored:
            return None
        return list(map(str, names))

    @property
    def band_names(self) -> list[str] | None:
        """Names of the bands kept; None if the file does not name each of them differently."""
        names = self.stored_names
        used = [] if names is None else [names[i] for i in self.bands]
        return used if used and all(used) and len(set(used)) == len(used) else None

    def nodata_of(self, band: int) -> tuple[float, ...]:
        """Return the values that mean "no data" in a band, by its stored number."""
        of_bands = self._source.nodata_of_bands
        return (*self._source.nodata, *(of_bands[band] if of_bands else ()))

    @property
    def values(self) -> dict[str, Any]:
        """`scale_factor` and `add_offset`, if any, that convert stored numbers to samples."""
        return self._source.meaning.described()

    @property
    def stored(self) -> StoredCube:
        """Storage of the values."""
        return self._blocks.stored

    def stored_bands(self, bands: Sequence[int]) -> da.Array:
        """Return bands as stored, by their stored numbers: lazy, (y, x, len(bands))."""
        return self._blocks.stored_bands(bands)

    def survey_blocks(self, blocks: Sequence[int]) -> tuple[int, NDArray[np.intp]]:
        """Count the valid pixels of some blocks, and find the bands without data in all of them.

        Returns the count and the stored numbers of these bands. The count ignores these bands.
        """
        n_valid, has_data = survey_some(self._blocks, blocks)
        return n_valid, self.bands[~has_data]

    # Reading the blocks

    @cached_property
    def _survey(self) -> _block_tasks.Surveyed:
        """Valid pixels per block, and the scaling; bands without data are removed."""
        # The files must not change from here on.
        self._stamp = stamp(self._sources)
        surveyed, present = survey(self._blocks, self._scale, self._dtype)
        if not present.all():
            warn_of_empty_bands(self._source, present, must_have_data=self._bands_are_fixed)
            source = replace(self._source, bands=self.bands[present])
            self._blocks = replace(self._blocks, source=source)
            if self.wavelengths is not None:
                self.wavelengths = self.wavelengths[present]
        if self._scale == "whitened":
            surveyed = replace(surveyed, scaling=pixels.whitened(self._blocks, surveyed))
        return surveyed

    @property
    def sample_scaling(self) -> Scaling:
        """Conversion of valid pixels to `samples`."""
        return self._survey.scaling

    def scaled_as(self, scaling: Scaling) -> Self:
        """Return the same cube with the samples of a scaling that a fitted model has stored."""
        counted = self._survey
        scaling.check(self._source.n_bands)
        other = copy(self)
        other.__dict__.pop("samples", None)
        other._scale = replace(scaling, dtype=self._dtype)
        # The counts are copied, so that no pass is repeated.
        other.__dict__["_survey"] = replace(counted, scaling=other._scale)
        return other

    # Some of the pixels, and their neighbors

    def take_pixels(
        self, numbers: Ints, make: Callable[[NDArray[Any]], NDArray[Any]] | None = None
    ) -> tuple[NDArray[np.intp], NDArray[Any]]:
        """Return the positions of the valid pixels in `numbers`, ascending, and their samples.

        `numbers` are distinct pixel numbers ``y * width + x``, at least one.  With `make`, the
        result of ``make(x)`` for the pixels of a block replaces the samples.  One pass reads the
        blocks of these pixels.
        """
        return pixels.take_pixels(self._blocks, numbers, self.sample_scaling, make)

    def sample_pixels(
        self, count: int, seed: int, *, without: Any = None
    ) -> tuple[NDArray[Any], tuple[NDArray[Any], NDArray[Any]]]:
        """Draw about `count` valid pixels, and pairs of adjacent pixels, in one pass.

        The pairs are up to 16 384 pixels with their right and lower neighbors.  Pixels that are
        True in the image `without` (y, x) are not drawn; this takes one or two more passes.
        """
        return pixels.sample_pixels(self._blocks, self._survey, count, seed, without=without)

    def places_of_rows(self, rows: Ints) -> Ints:
        """Return the pixel numbers ``y * width + x`` of rows.

        The blocks with these rows are read, unless all pixels are valid.
        """
        return pixels.places_of_rows(self._blocks, self.block_counts, rows)

    def find_pixels(self, rows: Ints) -> tuple[Ints, NDArray[Any]]:
        """Return the pixel numbers of rows, and their values without `scale`, in one pass."""
        plain = Scaling("none", self.sample_scaling.dtype)
        return pixels.find_pixels(self._blocks, self.block_counts, rows, plain)

    def rows_of_pixels(self, lines: Ints, columns: Ints) -> Ints:
        """Return the rows of some pixels, ascending; masked pixels have no row."""
        height, width, _ = self.shape
        inside = (lines >= 0) & (lines < height) & (columns >= 0) & (columns < width)
        if not inside.all():
            first = int(np.argmin(inside))
            raise ValueError(
                f"The pixel (row {lines[first]}, column {columns[first]}) lies outside the image "
                f"of {height} x {width} pixels."
            )
        image = points_image(lines, columns, np.zeros(len(lines), np.int64), self.chunks)
        return left_out.labeled_rows(self._blocks, self.block_counts, image, (-1,))[0]

    def count_neighbors(
        self, connectivity: Connectivity, weight: Any = None
    ) -> tuple[Connections, Connections]:
        """Count near nodes, and nodes of adjacent pixels, in one pass over the cube.

        Pixels of weight 0 are absent.  There is one `PairCounts` per space: it counts horizontally
        and vertically adjacent pixels by their nearest nodes, for any blocks.
        """
        return pixels.count_graph(self._blocks, self._survey, connectivity, weight)

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

        Pass it as `scale` to :func:`open_cube`, so that another cube is scaled alike.
        """
        used = self._survey.scaling
        if used.mean is None or used.std is None:
            return None
        return used.mean, used.std

    @cached_property
    def samples(self) -> da.Array:
        """Valid pixels as rows: lazy, (n_valid, bands), one row block per spatial block.

        float32 for float32 and for integers of up to 16 bits, else float64.
        """
        counts, scaling = self._survey.counts, self._survey.scaling
        return self._blocks.map(
            CubeSource.samples,
            sizes=counts,
            width=self._source.n_bands,
            dtype=scaling.dtype,
            token="daskclust-samples",
            scaling=scaling,
        )

    @cached_property
    def valid(self) -> da.Array:
        """True for pixels that are rows of `samples`: lazy, (y, x), bool."""
        flat = self._blocks.map(
            _block_tasks.block_valid, sizes=self.blocks.pixels, dtype=bool, token="daskclust-valid"
        )
        return unflatten(flat, self.blocks)

    # Values of rows, block by block

    def _aligned(self, values: Any) -> da.Array:
        return _block_tasks.align(values, self.block_counts)

    def _check_unchanged(self) -> None:
        """Raise an error if the cube changed after its labels were computed."""
        if self._stamp != stamp(self._sources):
            raise ValueError(
                "The store of the cube must not change after it is opened, but it was changed. The "
                "labels may belong to other values, so they were not written. Open the cube and "
                "fit again, and then write the labels."
            )

    # Images of its size

    def _repr_html_(self) -> str:
        return pictures.cube_html(self, counted="_survey" in vars(self))

    def plot(
        self,
        bands: int | Sequence[int] | None = None,
        *,
        ax: Any = None,
        title: str | None = None,
    ) -> Any:
        """Draw the cube in colors, or one of its bands.

        Parameters
        ----------
        bands : int or sequence of 3 int, default=None
            Stored number of one band, or of the three bands for red, green and blue.
            None takes the bands nearest to red, green and blue light.  Without
            wavelengths, None takes three bands spread over the cube; with fewer than
            three bands, the first one.
        ax : matplotlib Axes, default=None
            None makes a new figure.
        title : str, default=None
            None names the bands.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ImportError
            matplotlib is not installed.
        ValueError
            A band does not exist.

        Notes
        -----
        One pass over the chunks that hold these bands; large scenes are reduced to at
        most 1500 pixels a side.  Axes are in the units of the coordinate system.

        Examples
        --------
        >>> import daskclust, numpy as np
        >>> values = np.array([[[1], [-9]], [[2], [3]]])
        >>> ax = daskclust.open_cube(values, dims=("y", "x", "band"), nodata=-9).plot(0)
        >>> ax.get_xlabel(), ax.get_title(loc="left")
        ('column', 'band 0')
        """
        return pictures.draw_cube(self, bands, ax=ax, title=title)

    @property
    def pixel_grid(self) -> PixelGrid:
        """Shape, transform and coordinate system of the image."""
        return pixel_grid(self.georeference, self.shape[:2])

    @property
    def geobox(self) -> Any:
        """Grid of the image as ``odc.geo.geobox.GeoBox``; its coordinate system may be None.

        Raises
        ------
        ImportError
            odc-geo is not installed.
        """
        return self.pixel_grid.geobox

    def open_map(
        self,
        name: str,
        image: Any,
        *,
        variable: str | None = None,
        class_column: str | None = None,
        resample: bool = False,
    ) -> Image:
        """Open a label map of the size of the cube, without computing values.

        `name` is the name of the argument in messages.  Floats become integers, and NaN is nodata.
        With `resample`, a map on another grid is resampled to the grid of the cube: each pixel
        takes the value at its center, and -1 (False) outside the map.
        """
        if resample and not are_features(image):
            image = with_codes(name, read_image(name, image, variable))
            variable = None
            is_same = image.values.shape == self.blocks.shape
            if not is_same or self.georeference.differences(image.position):
                image = resampled(name, image, self.pixel_grid, self.chunks)
        return with_codes(name, self.open_image(name, image, variable, class_column))

    def open_image(
        self, name: str, image: Any, variable: str | None = None, class_column: str | None = None
    ) -> Image:
        """Open an image of the size of the cube, with any values, without computing them."""
        return open_image(
            name,
            image,
            self.blocks.shape,
            position=self.georeference,
            variable=variable,
            chunks=self.chunks,
            class_column=class_column,
        )

    def open_exclusion(self, name: str, image: Any, *, variable: str | None = None) -> Any:
        """Open an image of pixels to exclude from questions: (y, x), bool, lazy.

        `image` contains booleans, or 0 and 1, or it is a vector file, whose features cover pixels.
        `name` is the name of the argument in messages.
        """
        is_path = isinstance(image, str | os.PathLike)
        if are_features(image) and not (is_path and kind_of(image) == "table"):
            return covered(image, self.pixel_grid, self.chunks, variable)
        return left_out.as_mask(name, self.open_image(name, image, variable))

    def values_of_rows(self, image: Any) -> da.Array:
        """Return the values of an image (y, x) at the rows: lazy, (n_valid,)."""
        return self._blocks.map(
            _block_tasks.block_row_values,
            flatten(image, self.blocks),
            sizes=self.block_counts,
            dtype=image.dtype,
            token="daskclust-values-of-rows",
        )

    def row_weights(self, weight: Any) -> da.Array | None:
        """Return the weights of the rows: lazy, (n_valid,); None if all are equal.

        Parameters
        ----------
        weight : "area" or array of shape (y, x)
            - ``"area"``: area of the pixel, divided by the mean over all pixels.  In geographic
              coordinates it is the area of a cell on a sphere.  In projected coordinates all
              pixels have equal weights.
            - array: NumPy, Dask or xarray, a weight per pixel.  Values of masked pixels are
              ignored.

        Raises
        ------
        ValueError
            For another string, for an array of another shape or position, and if the grid of
            ``"area"`` is rotated or has no coordinate system.

        Examples
        --------
        >>> import daskclust, numpy as np
        >>> values = np.array([[[1.0], [np.nan]], [[2.0], [3.0]]])
        >>> cube = daskclust.open_cube(values, dims=("y", "x", "band"))
        >>> cube.row_weights(np.array([[1.0, 9.0], [2.0, 4.0]])).compute()
        array([1., 2., 4.])
        """
        if not isinstance(weight, str):
            image = self.open_image("sample_weight", weight)
            values = da.asarray(image.values)
            if image.nodata:
                # NaN raises an error at a valid pixel.
                values = da.where(da.isin(values, list(image.nodata)), np.nan, values)
            return self.values_of_rows(values)
        if weight != "area":
            raise ValueError(
                'sample_weight must be "area", an image (y, x) or one weight per row, got '
                f"{weight!r}."
            )
        lines = line_weights(self.pixel_grid)
        if lines is None:
            return None
        column = da.from_array(lines, chunks=(self.chunks[0],))[:, None]
        return self.values_of_rows(da.broadcast_to(column, self.shape[:2], chunks=self.chunks))

    def excluding(self, mask: Any) -> Self:
        """Return the cube with more pixels excluded, for reading pixels by their number.

        The counts of rows are unchanged.
        """
        other = copy(self)
        other._blocks = self._blocks.excluding(mask)
        return other

    def rows_of(
        self,
        label_map: Any,
        *,
        unlabeled: int | Sequence[int] = -1,
        variable: str | None = None,
        class_column: str | None = None,
        resample: bool = False,
    ) -> tuple[Ints, NDArray[Any]]:
        """Turn a label map into global row numbers and labels.

        Pass the result to a semi-supervised estimator as ``y=(rows, labels)``, or compare it with
        labels of rows: ``model.labels_[rows] == labels``.

        Parameters
        ----------
        label_map : array of shape (y, x) of whole numbers or bool, or a source of one
            NumPy, Dask, Zarr or xarray; a path of a store, or of a raster, vector (GeoJSON,
            GeoPackage, Shapefile) or CSV file; a GeoDataFrame, or another object with
            ``__geo_interface__`` and ``crs``.  NaN means "no label", True the label 1.  A
            feature labels the pixels whose center it covers.  A CSV file has columns for row
            and column, or x and y, and one for the class.
        unlabeled : int or sequence of int, default=-1
            Codes that mean "no label", in addition to nodata values of a stored map.  Class names
            always count as labels.
        variable : str, default=None
            Array inside the store, or layer of a vector file; needed if there are several.
        class_column : str, default=None
            Column of the classes in features or a CSV file; None takes the only candidate.
        resample : bool, default=False
            If True, a map on another grid is resampled to the grid of the cube (nearest pixel).
            If False, it raises ValueError.

        Returns
        -------
        rows : ndarray of shape (m,), int64
            Ascending row numbers of `samples`, without labeled pixels that are masked.
        labels : ndarray of shape (m,), int64 or str
            Class names, if `label_map` is a vector or CSV file whose classes are text.
            Otherwise codes, even if the map has names for them.

        Raises
        ------
        TypeError
            If `unlabeled` is not an integer.
        ValueError
            The map has another shape, coordinate system or position than the cube.  Its values are
            not integers.  Features of different classes cover the same pixel.

        Warns
        -----
        DaskclustWarning
            Labels are ignored, because their pixels are masked, without data or outside the scene.
            A class of a vector or CSV file labels no pixel with data.  Names of classes are nearly
            the same.

        Notes
        -----
        Runs on the user's scheduler and reads only blocks that hold labels.

        Examples
        --------
        >>> import daskclust, numpy as np
        >>> values = np.array([[[1], [-9]], [[2], [3]]])
        >>> cube = daskclust.open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> cube.rows_of(np.array([[0, -1], [-1, 2]]))
        (array([0, 2]), array([0, 2]))
        """
        opened = self.open_map(
            "label_map", label_map, variable=variable, class_column=class_column, resample=resample
        )
        values = tuple(unlabeled) if isinstance(unlabeled, Iterable) else (unlabeled,)
        if not all(isinstance(value, int | np.integer) for value in values):
            raise TypeError(
                f"`unlabeled` must be one or more integers, got {unlabeled!r}. Pass -1 or (0,), "
                "for example."
            )
        return left_out.rows_of(self._blocks, self.block_counts, opened, values)

    def warn_of_left_out(self, image: Image, unlabeled: Sequence[int] = ()) -> None:
        """Warn about ignored labels, and about similar names of classes.

        One pass over the blocks with labels; only counts reach the client.
        """
        left_out.warn_of_left_out(self._blocks, image, unlabeled)

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
            other text -1.  None takes the sorted distinct names in a NumPy array.

        Returns
        -------
        dask.array.Array of shape (y, x)
            Lazy, with the blocks of the cube as chunks.  If the dtype of the labels cannot hold
            `fill_value`, they become int64, or float64 for NaN and fractions.

        Raises
        ------
        ValueError
            The number of labels is not `n_valid`, or labels are lazy text without `classes`.

        Notes
        -----
        Blocks with masked pixels are read again to find these pixels.

        Examples
        --------
        >>> import daskclust, numpy as np
        >>> values = np.array([[[1], [-9]], [[2], [3]]])
        >>> cube = daskclust.open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> cube.to_map(np.array([5, 6, 7])).compute().tolist()
        [[5, -1], [6, 7]]
        """
        codes = _block_tasks.as_numbers(labels, classes)[0]
        return self._blocks.image(self._aligned(codes), fill_value)

    def smooth(
        self, labels: Any, proba: Any = None, *, strength: float = 0.5, min_pixels: int = 0
    ) -> da.Array:
        """Smooth labels of neighboring pixels with similar spectra, and remove small regions.

        Parameters
        ----------
        labels : array of shape (n_valid,), integer or text
            One label per valid pixel, such as ``model.predict(cube)``; -1 means "no label".
        proba : array of shape (n_valid, k), float, default=None
            Posteriors, such as ``model.predict_proba(cube)``.  None: only small regions are
            replaced.
        strength : float, default=0.5
            Weight of a neighbor with the same spectrum, relative to the logarithm of the
            posteriors (a Potts model).  0 disables smoothing.  Values above 1 remove small fields.
        min_pixels : int, default=0
            Regions of fewer pixels (with four neighbors) get the label of their largest neighbor,
            as with ``gdal_sieve``.  If this neighbor is small too, they get its new label.  A
            region without a neighbor keeps its label.

        Returns
        -------
        dask.array.Array of shape (n_valid,)
            Lazy, of the dtype of the labels, in the order of `samples`, and equal for any chunks.
            Rows without a label or finite posteriors are unchanged.

        Raises
        ------
        ValueError
            `strength` or `min_pixels` is out of range.  `labels` or `proba` does not have
            `n_valid` rows.  `labels` and `proba` are not of one model (found when computed).
            `labels` are lazy text without `proba`.

        Notes
        -----
        Smoothing makes ten mean-field sweeps over even and odd pixels, in blocks with 20 more
        pixels on each side.  A neighbor whose spectrum has the distance d counts
        ``exp(-d**2 / (2 m))``.  m is the median of d**2 in a sample, which one pass draws
        immediately.  *Memory of the workers*: a block waits for the next line of blocks.  Two lines
        of blocks take ``4 (k + 2)`` bytes per pixel, and the codes of the map 2 bytes per pixel up
        to 128 classes.  Dask spills both.  Time is linear in the pixels.  One task merges the
        regions at edges of blocks.

        Examples
        --------
        >>> import daskclust, numpy as np
        >>> cube = daskclust.open_cube(np.ones((2, 3, 1)), dims=("y", "x", "band"))
        >>> labels = np.array([0, 0, 0, 0, 1, 0])
        >>> cube.smooth(labels, min_pixels=2).compute().tolist()
        [0, 0, 0, 0, 0, 0]
        >>> proba = np.array([[0.9, 0.1]] * 4 + [[0.45, 0.55], [0.9, 0.1]])
        >>> cube.smooth(labels, proba).compute().tolist()
        [0, 0, 0, 0, 0, 0]
        """
        return smoothing.smooth(
            self._blocks, self._survey, labels, proba, strength=strength, min_pixels=min_pixels
        )

    def label_map(
        self,
        labels: Any,
        *,
        classes: ArrayLike | None = None,
        class_names: Sequence[str] | Mapping[int, str] | None = None,
    ) -> LabelMap:
        """Return a lazy map of labels with names, colors and areas of its classes.

        Parameters
        ----------
        labels, classes
            See :meth:`to_map`.  Text labels are the names in the map.
        class_names : sequence of str or mapping of int to str, default=None
            Meanings of the labels 0, 1, ..., or by label.

        Returns
        -------
        LabelMap
            Lazy.

        Examples
        --------
        >>> import daskclust, numpy as np
        >>> values = np.array([[[1], [-9]], [[2], [3]]])
        >>> cube = daskclust.open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> cube.label_map(np.array([1, 0, 1]), class_names=["wheat", "water"]).area()[1].pixels
        2
        """
        codes, names = _block_tasks.as_numbers(labels, classes, class_names)
        if codes.dtype.kind not in "iub":
            raise ValueError(f"labels must be integers or text, got dtype {codes.dtype}.")
        return LabelMap(
            self.to_map(codes),
            names=names,
            position=self.georeference,
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
        labels, classes, fill_value
            See :meth:`to_map`.
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
        >>> import daskclust, numpy as np
        >>> values = np.array([[[1], [-9]], [[2], [3]]])
        >>> cube = daskclust.open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> cube.to_xarray(np.array([5, 6, 7])).dims
        ('y', 'x')
        """
        codes, names = _block_tasks.as_numbers(labels, classes, class_names)
        return as_data_array(
            self.to_map(codes, fill_value=fill_value),
            self.georeference,
            fill_value=fill_value,
            name=name,
            class_names=names,
        )

    def write_labels(
        self,
        labels: Any,
        store: Any,
        *,
        overwrite: bool = False,
        n_clusters: int | None = None,
        classes: ArrayLike | None = None,
        class_names: Names | None = None,
        class_colors: Mapping[int, str] | None = None,
        attributes: Mapping[str, Any] | None = None,
        compute: bool = True,
    ) -> Any:
        """Write labels as an image into a new Zarr group, or a GeoTIFF.

        Parameters
        ----------
        labels : array of shape (n_valid,), integer or text
            NumPy, or Dask with the chunks of `samples`; -1 means "no label".
        store : str, path or zarr store
            The target, which workers must be able to reach.  If the name ends in .tif, the
            client writes a cloud-optimized GeoTIFF with colors, class names, nodata value and
            coordinate system.
        overwrite : bool, default=False
            Replace a label map that daskclust has written.  Other files are never replaced.
        n_clusters : int, default=None
            Number of clusters, if known.  Up to 32 767 clusters are stored as int16.
        classes : array of shape (k,), default=None
            The model's ``classes_``, if labels are text, which becomes the names of classes; see
            :meth:`to_map`.
        class_names : sequence of str or mapping of int to str, default=None
            Meanings of the labels 0, 1, ..., or by label; ``cluster_0``, ... by default.
        class_colors : mapping of int to str, default=None
            Colors by label, as ``#rrggbb``; distinct colors by default.
        attributes : mapping, default=None
            More attributes of the group, such as the origin of the labels.  JSON values;
            credentials in URLs are not stored.
        compute : bool, default=True
            False returns a writer for :func:`daskclust.scenes.write_together`, which writes several
            maps in one pass.

        Returns
        -------
        zarr.Group or Path
            The path of a GeoTIFF, else the group, open for reading.  Its array ``labels``
            (y, x) is int16 or int32 with ``_FillValue = -1``.  CF ``flag_values`` and
            ``flag_meanings`` list the known clusters and all labels that occur.

        Raises
        ------
        FileExistsError
            The target exists and `overwrite` is False, or daskclust has not written it.
        StoreError
            A worker cannot reach the cube or the target, or blocks of the target are
            missing.
        ValueError
            The target contains the cube.  The number of labels is not `n_valid`, or a label is
            less than -1 or too large for the dtype.  The local files of the cube were changed
            after its valid pixels were counted.

        Notes
        -----
        One task per block writes one chunk, on the active Dask scheduler.  A local target
        appears under its name only when it is complete.

        Examples
        --------
        >>> import daskclust, numpy as np, zarr
        >>> values = np.array([[[1], [-9]], [[2], [3]]])
        >>> cube = daskclust.open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> written = cube.write_labels(np.array([0, 0, 1]), zarr.storage.MemoryStore())
        >>> written["labels"][:].tolist(), written["labels"].attrs["flag_meanings"]
        ([[0, -1], [0, 1]], 'cluster_0 cluster_1')
        """
        labels, names = _block_tasks.as_numbers(labels, classes, class_names)
        largest = None
        if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu":
            present = np.ma.compressed(labels)
            largest = int(present.max()) if len(present) else -1
        aligned = self._aligned(labels)
        if aligned.dtype.kind not in "iu":
            raise ValueError(f"`labels` must be integers, got dtype {aligned.dtype}.")
        check_not_within(self.stored.array, store)
        writer = label_writer(
            self._blocks.image(aligned, -1),
            self.georeference,
            store,
            dtype=aligned.dtype,
            names=names or {},
            colors=class_colors,
            largest=largest,
            n_clusters=n_clusters,
            overwrite=overwrite,
            attributes=attributes,
            check=self._check_unchanged,
        )
        return write_together(writer)[0] if compute else writer

    def write_map(
        self,
        values: Any,
        store: Any,
        *,
        overwrite: bool = False,
        names: Iterable[Any] | None = None,
        attributes: Mapping[str, Any] | None = None,
        compute: bool = True,
    ) -> Any:
        """Write numbers of the rows, such as margins or probabilities, as an image.

        Parameters
        ----------
        values : array of shape (n_valid,) or (n_valid, m), float
            NumPy, or Dask with the chunks of `samples`.  float64 is kept; other types
            become float32.
        store : str or path
            The target.  If the name ends in .tif, a cloud-optimized GeoTIFF of m bands;
            otherwise a Zarr group with the array ``values``, (y, x) or (band, y, x).
        overwrite : bool, default=False
            Replace a map of values that daskclust has written.  Other files are never replaced.
        names : iterable, default=None
            Names of the m bands, such as ``model.classes_``; converted by ``str``.
        attributes : mapping, default=None
            More attributes; JSON values.
        compute : bool, default=True
            False returns a writer for :func:`daskclust.scenes.write_together`, which writes several
            maps in one pass.

        Returns
        -------
        zarr.Group or Path

        Raises
        ------
        FileExistsError
            The target exists and `overwrite` is False, or it is not a map of values that
            daskclust has written.
        ValueError
            `values` does not have `n_valid` rows, or there are not m names.

        Notes
        -----
        Masked pixels are NaN.  The client writes a GeoTIFF, one row of blocks at a time.
        A Zarr group is written by one task per block.

        Examples
        --------
        >>> import daskclust, numpy as np, zarr
        >>> values = np.array([[[1], [-9]], [[2], [3]]])
        >>> cube = daskclust.open_cube(values, dims=("y", "x", "band"), nodata=-9)
        >>> written = cube.write_map(np.array([0.5, 0.25, 1.0]), zarr.storage.MemoryStore())
        >>> written["values"][:].tolist()
        [[0.5, nan], [0.25, 1.0]]
        """
        bands = None if names is None else [str(name) for name in names]
        columns = columns_of(values, bands)
        images = [self._blocks.image(self._aligned(column), np.nan) for column in columns]
        check_not_within(self.stored.array, store)
        writer = value_writer(
            images[0] if np.ndim(values) == 1 else da.stack(images),
            self.georeference,
            store,
            names=bands,
            overwrite=overwrite,
            attributes=attributes,
            check=self._check_unchanged,
        )
        return write_together(writer)[0] if compute else writer
