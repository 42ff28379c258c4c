"""The work on one spatial block of a cube, inside tasks; labels in the blocks of the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import Any, Literal

import dask.array as da
import numpy as np
import zarr
from numpy.typing import ArrayLike, NDArray

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.engine import seen_alike
from daskclust.core.kernels.projection import project_rows
from daskclust.core.storage.stored_array import StoredArray, as_dask
from daskclust.core.warn import warn
from daskclust.exceptions import ChunkError, DaskclustWarning
from daskclust.scenes._metadata import PLAIN, Meaning, Names, as_names
from daskclust.scenes.block_grid import BlockGrid, flatten, unflatten


@dataclass(frozen=True)
class Scaling:
    """Conversion of valid rows to samples.

    ``kind`` is ``"none"``, ``"unit"`` (each row divided by its Euclidean norm),
    ``"standard"`` (each band minus its `mean`, divided by its `std`) or ``"whitened"``
    (each row divided by its norm, then times `matrix`).
    """

    kind: Literal["none", "standard", "unit", "whitened"]
    dtype: np.dtype[Any]
    mean: Floats | None = None
    std: Floats | None = None
    matrix: Floats | None = None

    @property
    def is_by_value(self) -> bool:
        """True if each sample depends on one stored value."""
        return self.kind in ("none", "standard")

    def check(self, n_bands: int) -> None:
        """Raise an error if the scaling has another number of bands, or lacks a parameter."""
        needs = {"standard": ("mean", "std"), "whitened": ("matrix",), "none": (), "unit": ()}
        if any(getattr(self, name) is None for name in needs[self.kind]):
            raise ValueError(f"The scaling {self.kind!r} must have {needs[self.kind]}.")
        for values in (self.mean, self.matrix):
            if values is not None and len(values) != n_bands:
                raise ValueError(
                    f"The cube has {n_bands} bands; the model was fitted on {len(values)} bands. "
                    "Keep the same bands."
                )

    def __call__(self, rows: Array, *, narrow: bool = True) -> Array:
        """Scale `rows` (n, p) in float64; without `narrow`, the result may have another dtype."""
        if self.kind == "standard":
            assert self.mean is not None
            assert self.std is not None
            wide = (rows - self.mean) / self.std
            return wide.astype(self.dtype) if narrow else wide
        if not narrow and self.kind == "none":
            return rows
        if self.kind == "whitened":
            assert self.matrix is not None
            origin, wide = np.zeros(len(self.matrix)), rows.astype(np.float64)
            return project_rows(wide, True, origin, self.matrix).astype(self.dtype)
        if self.kind == "unit":
            wide = rows.astype(np.float64)
            norm = np.sqrt(np.nansum(wide * wide, axis=1, keepdims=True))
            norm[norm == 0.0] = 1.0  # a row of zeros has no direction: it stays zero
            return (wide / norm).astype(self.dtype)
        return rows.astype(self.dtype, copy=False)


#: Bytes of stored values that are processed at a time, so that they stay in the cache.
_TILE = 2**18


@dataclass(frozen=True)
class CubeSource:
    """Stored pixels, and the rules by which pixels are valid.

    `array` is None if pixels come from a Dask array; then `block_pixels` are the pixels (pixels,
    n_stored) of the current block. `order` are the axes of y, x and band in `array`. `dtype` is the
    stored type, with the stated sign. `bands` are the bands kept, None for all bands.

    Missing values are NaN, `nodata` in any band, `nodata_of_bands` in one band each, and, if
    `masked`, values hidden by a NumPy mask. With `keep_incomplete`, a pixel is valid if it has at
    least the fraction `min_observed` of its bands; its missing values become NaN.
    """

    array: StoredArray | None
    order: tuple[int, int, int]
    dtype: np.dtype[Any]
    n_stored: int
    bands: NDArray[np.intp] | None
    nodata: tuple[float, ...]
    keep_incomplete: bool
    min_observed: float
    grid: BlockGrid
    masked: bool = False
    meaning: Meaning = PLAIN
    block_pixels: Array | None = None
    nodata_of_bands: tuple[tuple[float, ...], ...] = ()

    @property
    def all_nodata(self) -> tuple[float, ...]:
        """Values that mean "no data" in any band."""
        return tuple(dict.fromkeys((*self.nodata, *chain(*self.nodata_of_bands))))

    @property
    def is_complete(self) -> bool:
        """True if no stored value can mean "no data", so that all pixels are valid."""
        return not (
            self.all_nodata or self.dtype.kind == "f" or self.masked or self.meaning.has_range
        )

    def read(self, number: int) -> Array:
        """Pixels of block `number` as rows, (pixels, bands kept), of the stored dtype."""
        return self._in_rows(self._stored(number))

    def _stored(self, number: int) -> Array:
        """Pixels of block `number` as rows of all stored bands."""
        if self.array is None:
            assert self.block_pixels is not None
            values = self.block_pixels
            if not self.masked and np.ma.is_masked(values):
                raise ValueError(
                    f"Block {number} of the cube is a masked array, but its Dask array has no "
                    f"mask. Build it from masked arrays only, or pass mask= or nodata=."
                )
        else:
            rows, cols = self.grid.region(number)
            selection = [slice(0, self.n_stored)] * 3
            selection[self.order[0]], selection[self.order[1]] = rows, cols
            values = self.array.read(tuple(selection)).transpose(self.order)
            values = values.reshape(-1, values.shape[2])
        if self.meaning.dtype is None or not np.ma.isMaskedArray(values):
            return self.meaning.view(values)
        mask = np.ma.getmaskarray(values)
        return np.ma.array(self.meaning.view(np.ma.getdata(values)), mask=mask)

    def _in_rows(self, stored: Array) -> Array:
        """Return the bands kept of all pixels; the memory order decides the last bits of sums."""
        if self.array is None and not stored.flags.c_contiguous:
            stored = stored.copy(order="C")
        return stored if self.bands is None else stored[:, self.bands]

    def _kept(self, values: Array) -> Array:
        if self.bands is None:
            return values
        first, n = int(self.bands[0]), len(self.bands)
        if np.array_equal(self.bands, np.arange(first, first + n)):
            return values[:, first : first + n]
        if np.ma.isMaskedArray(values):
            return values[:, self.bands]
        return np.take(values, self.bands, axis=1)

    def missing(self, values: Array) -> Bools:
        """Return a mask of the values that mean "no data"."""
        hidden = np.ma.getmaskarray(values) if np.ma.isMaskedArray(values) else None
        values = np.ma.getdata(values)
        absent = np.isnan(values) if values.dtype.kind == "f" else None
        if hidden is not None:
            absent = hidden if absent is None else absent | hidden
        for nodata in self.nodata:
            # Compare in the stored dtype: -3.4e38 as float32 differs from the float64 literal.
            equal = values == values.dtype.type(nodata)
            absent = equal if absent is None else np.logical_or(absent, equal, out=absent)
        for row, applies in self._rows_of_nodata(values.dtype):
            equal = (values == row) & applies
            absent = equal if absent is None else absent | equal
        outside = self.meaning.outside(values)
        if outside is not None:
            absent = outside if absent is None else absent | outside
        return np.zeros(values.shape, bool) if absent is None else absent

    def _rows_of_nodata(self, dtype: np.dtype[Any]) -> Iterator[tuple[Array, Bools]]:
        """Yield rows of values that mean "no data" in one band, and masks of the bands with one."""
        of_bands = self.nodata_of_bands
        of_kept = (
            of_bands
            if self.bands is None or not of_bands
            else [of_bands[band] for band in self.bands]
        )
        for values in zip_longest(*of_kept):
            applies = np.array([value is not None for value in values], bool)
            yield np.array([0 if value is None else value for value in values], dtype), applies

    def _is_whole(self, values: Array) -> bool:
        """Return True if minimum and maximum of integers show that none of them means "no data".

        This is the usual case, and takes half the time of comparisons.  False if not certain.
        """
        if values.dtype.kind not in "iu" or np.ma.isMaskedArray(values) or not values.size:
            return False
        if self.meaning.has_range:
            return False
        middle = np.iinfo(values.dtype).max // 2
        low = [nodata for nodata in self.all_nodata if nodata <= middle]
        high = [nodata for nodata in self.all_nodata if nodata > middle]
        return not (low and values.min() <= max(low)) and not (high and values.max() >= min(high))

    def _too_few(self, missing: Bools) -> Bools:
        """Return a mask of the pixels with too few values."""
        least = max(self.min_observed * missing.shape[1], 1.0)
        return np.asarray(np.count_nonzero(~missing, axis=1) < least)

    def _absent(self, values: Array) -> Bools:
        absent = np.empty(len(values), dtype=bool)
        for tile in _tiles(values):
            values_kept = self._kept(values[tile])
            if self._is_whole(values_kept):
                absent[tile] = False
                continue
            missing = self.missing(values_kept)
            absent[tile] = self._too_few(missing) if self.keep_incomplete else _any_by_row(missing)
        return absent

    def valid(self, number: int, excluded: Bools | None) -> tuple[Bools, Array | None]:
        """Return a mask of the valid pixels of a block, and its stored values if they were read."""
        wanted = None if excluded is None else ~excluded
        pixels = self.grid.pixels_of(number)
        if wanted is not None and not wanted.any():
            return wanted, None
        if self.is_complete:
            return np.ones(pixels, bool) if wanted is None else wanted, None
        stored = self._stored(number)
        present = ~self._absent(stored)
        return present if wanted is None else wanted & present, stored

    def survey(
        self, number: int, excluded: Bools | None, *, rows: bool
    ) -> tuple[Bools, Bools, Array | None]:
        """Return bands with data, valid pixels, and samples of block `number`.

        A band has data if a pixel that is not excluded has a value. Pixels are valid by these bands
        alone. Samples are NaN in the other bands, and None unless `rows`.
        """
        wanted = None if excluded is None else ~excluded
        pixels = self.grid.pixels_of(number)
        valid: Bools = np.zeros(pixels, bool)
        no_pixels = np.zeros(self.n_bands, bool), valid
        if wanted is not None and not wanted.any():
            return (*no_pixels, np.empty((0, self.n_bands)))
        if self.is_complete and not rows:
            valid = np.ones(pixels, bool) if wanted is None else wanted
            return np.ones(self.n_bands, bool), valid, None
        values = self.read(number)
        missing = self.missing(values)
        considered = missing if wanted is None else missing[wanted]
        present: Bools = ~np.asarray(considered.all(axis=0))
        if not present.any():
            return (*no_pixels, np.empty((0, self.n_bands)))
        if self.keep_incomplete:
            absent = self._too_few(missing)
        else:
            absent = _any_by_row(missing if present.all() else missing[:, present])
        valid = ~absent if wanted is None else wanted & ~absent
        samples = self._decoded(values[valid], missing[valid]) if rows else None
        return present, valid, samples

    def samples(self, number: int, excluded: Bools | None, scaling: Scaling) -> Array:
        """Read and scale the valid pixels of block `number`, (n, bands); missing values are NaN."""
        valid, stored = self.valid(number, excluded)
        n = int(np.count_nonzero(valid))
        if not n:
            return np.empty((0, self.n_bands), dtype=scaling.dtype)
        if stored is None:
            stored = self._stored(number)
        if n == len(valid) and self._are_samples(stored, scaling):
            return stored
        if not scaling.is_by_value:
            values = self._in_rows(stored)
            return scaling(self._decoded(values if n == len(valid) else values[valid]))
        out = np.empty((n, self.n_bands), scaling.dtype)
        done = 0
        for tile in _tiles(stored):
            values, is_valid = self._kept(stored[tile]), valid[tile]
            count = int(np.count_nonzero(is_valid))
            if count < len(is_valid):
                values = values[is_valid]
            out[done : done + count] = scaling(self._decoded(values), narrow=False)
            done += count
        return out

    def pixels(self, number: int, excluded: Bools | None) -> tuple[Bools, Array]:
        """Return a mask of the valid pixels of block `number`, and the values of all its pixels."""
        valid, stored = self.valid(number, excluded)
        return valid, self._decoded(
            self._in_rows(self._stored(number) if stored is None else stored)
        )

    def _are_samples(self, stored: Array, scaling: Scaling) -> bool:
        return (
            (scaling.kind, stored.dtype) == ("none", scaling.dtype)
            and self.bands is None
            and not self.meaning.is_scaled
            and not self.keep_incomplete
            and not np.ma.isMaskedArray(stored)
        )

    def _decoded(self, rows: Array, missing: Bools | None = None) -> Array:
        """Return samples of stored pixels (n, bands): decoded, and NaN for missing values."""
        if missing is None and self.keep_incomplete:
            # Otherwise missing values are only in pixels that are not valid.
            missing = self.missing(rows)
        rows = self.meaning.scaled(np.ma.getdata(rows), self.bands)
        if missing is not None and missing.any():
            kind = rows.dtype
            if kind.kind != "f":
                kind = np.dtype(np.float32 if kind.itemsize <= 2 else np.float64)
            # Always copy, because the values may be an array of the user.
            rows = rows.astype(kind)
            rows[missing] = np.nan
        return rows

    @property
    def n_bands(self) -> int:
        return self.n_stored if self.bands is None else len(self.bands)


def _tiles(values: Array) -> Iterator[slice]:
    """Cut rows into runs that fit into the cache."""
    step = max(1, _TILE // max(1, values.shape[1] * values.dtype.itemsize))
    for start in range(0, len(values), step):
        yield slice(start, start + step)


def _any_by_row(mask: Bools) -> Bools:
    """Return ``mask.any(axis=1)``, faster if few values are True, as in most blocks."""
    count = np.count_nonzero(mask)
    if 8 * count > mask.size:
        return np.asarray(mask.any(axis=1))
    out = np.zeros(len(mask), dtype=bool)
    if count:
        out[np.flatnonzero(mask) // mask.shape[1]] = True
    return out


@dataclass(frozen=True)
class StoredCube:
    """Storage of the values of a cube; `array` is None if they come from a Dask array.

    `order` are the axes of y, x and band in the array, and `shape` includes unused bands. `values`
    are lazy; without an array in Zarr they are pixels as rows. `may_be_masked` is True if values
    can mean "no data", so that valid pixels must be counted.
    """

    array: zarr.Array | None
    order: tuple[int, int, int]
    shape: tuple[int, int, int]
    dtype: np.dtype[Any]
    values: da.Array
    may_be_masked: bool

    @property
    def nbytes(self) -> int:
        rows, columns, bands = self.shape
        return rows * columns * bands * self.dtype.itemsize


def one_object(value: Any) -> NDArray[np.object_]:
    """Wrap a value of unknown size as a chunk of one object."""
    out = np.empty(1, dtype=object)
    out[0] = value
    return out


def on_block(
    ids: Ints,
    *arrays: Any,
    function: Callable[..., Any],
    source: CubeSource,
    excludes: bool,
    **more: Any,
) -> Any:
    """Run ``function(source, number, excluded, *arrays, **more)`` on a block.

    If pixels come from a Dask array, the first of `arrays` is a list with the pixels of the block.
    With `excludes`, the last array is a mask of excluded pixels.
    """
    inputs = list(arrays)
    if source.array is None:
        source = replace(source, block_pixels=inputs.pop(0)[0])
    excluded = inputs.pop() if excludes else None
    return function(source, int(ids[0]), excluded, *inputs, **more)


@dataclass(frozen=True)
class CubeBlocks:
    """The blocks of a cube; functions run on them as tasks.

    `pixels` are the pixels as rows, if they come from a Dask array. `excluded` are the pixels, as
    rows, that a mask excludes.
    """

    source: CubeSource
    pixels: da.Array | None
    excluded: da.Array | None

    @property
    def grid(self) -> BlockGrid:
        return self.source.grid

    @property
    def is_complete(self) -> bool:
        """True if all pixels are valid without reading them."""
        return self.source.is_complete and self.excluded is None

    @property
    def stored(self) -> StoredCube:
        """Storage of the values."""
        source = self.source
        values = self.pixels if source.array is None else as_dask(source.array)
        assert values is not None
        return StoredCube(
            array=None if source.array is None else source.array.array,
            order=source.order,
            shape=(*self.grid.shape, source.n_stored),
            dtype=source.dtype,
            values=values,
            may_be_masked=not self.is_complete,
        )

    def stored_bands(self, bands: Sequence[int]) -> da.Array:
        """Return bands as stored, by their stored numbers: lazy, (y, x, len(bands))."""
        source, values = self.source, self.stored.values
        if source.array is None:
            images = [unflatten(values[:, int(band)], self.grid) for band in bands]
        else:
            images = [values.transpose(source.order)[:, :, int(band)] for band in bands]
        stacked, dtype = da.stack(images, axis=2), source.meaning.dtype
        if dtype is None:
            return stacked
        return da.map_blocks(source.meaning.view, stacked, meta=np.empty((0, 0, 0), dtype))

    def excluding(self, mask: Any) -> CubeBlocks:
        """Return the blocks with more excluded pixels: the True pixels of an image (y, x)."""
        more = flatten(mask, self.grid)
        return replace(self, excluded=more if self.excluded is None else self.excluded | more)

    def map(
        self,
        function: Callable[..., Any],
        *arrays: da.Array,
        sizes: Sequence[float],
        dtype: Any,
        token: str,
        width: int | None = None,
        **options: Any,
    ) -> da.Array:
        """Run a function on every block, as `on_block` does, with its chunk of each array.

        The results have `sizes` rows, and `width` columns if it is given.
        """
        pairs: list[Any] = [da.from_array(np.arange(self.grid.count), chunks=1), "i"]
        if self.pixels is not None:
            pairs += [self.pixels, "ib"]
        for array in (*arrays, *([] if self.excluded is None else [self.excluded])):
            pairs += [array, "ik"[: array.ndim]]
        out = "i" if width is None else "ip"
        # Not aligned: block i of each array belongs to the same pixels, but lengths differ.
        return da.blockwise(
            on_block,
            out,
            *pairs,
            new_axes=None if width is None else {"p": width},
            adjust_chunks={"i": tuple(sizes)},
            align_arrays=False,
            # Blocks contain all bands; concatenating the list would copy them.
            concatenate=False,
            meta=np.empty((0,) * len(out), dtype),
            token=token,
            function=function,
            source=self.source,
            excludes=self.excluded is not None,
            **options,
        )

    def image(self, values: da.Array, fill_value: float) -> da.Array:
        """Put one value per row back onto the image; lazy, (y, x).

        Images that are computed together share the reads that find the masked pixels.
        """
        wide = widened(values, fill_value)
        counts = wide.chunks[0]
        masks = []
        if counts != tuple(self.grid.pixels):
            masks = [
                self.map(
                    block_mask,
                    sizes=self.grid.pixels,
                    dtype=bool,
                    token="daskclust-mask",
                    counts=counts,
                )
            ]
        flat = self.map(
            expand_block,
            wide,
            *masks,
            sizes=self.grid.pixels,
            dtype=wide.dtype,
            token="daskclust-map",
            fill_value=fill_value,
        )
        return unflatten(flat, self.grid)


Excluded = Bools | None


def block_valid(source: CubeSource, number: int, excluded: Excluded) -> Bools:
    return source.valid(number, excluded)[0]


def block_mask(
    source: CubeSource, number: int, excluded: Excluded, *, counts: Sequence[int]
) -> Bools:
    """Return a mask of the valid pixels of a block; a complete block is not read."""
    pixels = source.grid.pixels_of(number)
    if counts[number] == pixels:
        return np.ones(pixels, bool)
    return source.valid(number, excluded)[0]


def block_row_values(source: CubeSource, number: int, excluded: Excluded, values: Array) -> Array:
    """Select the values of the valid pixels of a block."""
    return values[block_valid(source, number, excluded)]


def block_survey(source: CubeSource, number: int, excluded: Excluded, *, moments: bool) -> Floats:
    """Return statistics of a block, float64 of shape (1, 2 + bands) or (1, 2 + 4 * bands).

    They are the number of pixels that are valid by the bands with data in this block, the number of
    these bands, and 1 or 0 per band. With `moments`, they are followed by the number of values, the
    mean, and the sum of squared deviations from the mean, per band.
    """
    present, valid, rows = source.survey(number, excluded, rows=moments)
    numbers = np.array([valid.sum(), present.sum()], dtype=np.float64)
    head = [numbers, present.astype(np.float64)]
    if rows is None or not moments:
        return np.concatenate(head)[None]
    rows = rows.astype(np.float64)
    observed = ~np.isnan(rows)
    counts = observed.sum(axis=0)
    safe = np.maximum(counts, 1)
    # Subtract the first observed value, so that a constant band has a variance of exactly zero.
    first = np.zeros(rows.shape[1])
    if len(rows):
        first = np.where(counts > 0, rows[observed.argmax(axis=0), np.arange(rows.shape[1])], 0.0)
    shifted = np.where(observed, rows - first, 0.0)
    mean = shifted.sum(axis=0) / safe
    squares = np.where(observed, shifted - mean, 0.0)
    deviations = np.einsum("ij,ij->j", squares, squares)
    return np.concatenate([*head, counts, first + mean, deviations])[None]


def merge_surveys(surveys: Floats, *, n_bands: int, keep_incomplete: bool) -> Floats:
    """Merge the rows of :func:`block_survey` in their order, into one row.

    If a block lacks a band that other blocks have, its pixels are incomplete and its counts are
    ignored, except with `keep_incomplete`.

    Means and squared deviations are merged pair by pair (Chan, Golub and LeVeque),
    which is accurate if the mean is large compared with the spread.

    >>> one = np.array([[2.0, 1.0, 1.0, 2.0, 1.0, 2.0]])
    >>> two = np.array([[1.0, 1.0, 1.0, 1.0, 4.0, 0.0]])
    >>> merged = merge_surveys(np.concatenate([one, two]), n_bands=1, keep_incomplete=False)
    >>> merged.tolist()  # of the values 0, 2 and 4
    [[3.0, 1.0, 1.0, 3.0, 2.0, 8.0]]
    """
    p = n_bands
    present = surveys[:, 2 : 2 + p].any(axis=0)
    total = np.zeros(surveys.shape[1])
    total[1], total[2 : 2 + p] = present.sum(), present
    moments = total[2 + p :]
    for row in surveys:
        if row[1] != total[1] and not keep_incomplete:
            continue
        total[0] += row[0]
        if not len(moments):
            continue
        count, mean, squares = moments.reshape(3, p)
        row_count, row_mean, row_squares = row[2 + p :].reshape(3, p)
        counts = np.maximum(count + row_count, 1.0)
        # Without rows so far, the mean is exactly the mean of this row.
        mean[count == 0] = row_mean[count == 0]
        shift = np.where(row_count > 0, row_mean - mean, 0.0)
        squares += row_squares + shift * shift * (count * row_count / counts)
        mean += shift * (row_count / counts)
        count += row_count
    return total[None]


def expand_block(
    source: CubeSource,
    number: int,
    excluded: Excluded,
    labels: Array,
    valid: Bools | None = None,
    *,
    fill_value: Any,
) -> Array:
    """Spread the labels of one block's valid pixels over all its pixels; (pixels,)."""
    pixels = source.grid.pixels_of(number)
    if np.ma.isMaskedArray(labels):
        labels = np.ma.filled(labels, fill_value)
    if len(labels) == pixels:
        return labels
    out = np.full(pixels, fill_value, dtype=labels.dtype)
    valid = block_valid(source, number, excluded) if valid is None else valid
    if len(labels) != valid.sum():
        raise ValueError(
            f"Block {number} of the cube has {valid.sum()} valid pixels but got {len(labels)} "
            "labels. Labels must come from this cube's samples, in their order and chunks; if the "
            "store has changed since open_cube, open it again."
        )
    out[valid] = labels
    return out


@dataclass(frozen=True)
class Surveyed:
    """The results of one pass over a cube; `counts` are the valid pixels of each block."""

    counts: tuple[int, ...]
    scaling: Scaling


def align(labels: Any, counts: Sequence[int]) -> da.Array:
    labels = seen_alike(labels)
    is_lazy = isinstance(labels, da.Array)
    # Keep a mask: blocks replace masked labels by the fill value.
    labels = labels if is_lazy else np.asanyarray(labels)
    if labels.ndim != 1:
        raise ValueError(f"labels must have one dimension, got shape {labels.shape}.")
    if math.isnan(labels.shape[0]):
        # Each block's length is checked by its task.
        if labels.numblocks[0] != len(counts):
            raise ChunkError(
                f"labels have {labels.numblocks[0]} blocks of unknown length, the cube has "
                f"{len(counts)}; compute the labels from this cube's samples, or call "
                "labels.compute_chunk_sizes() first."
            )
        return labels
    if labels.shape[0] != sum(counts):
        raise ValueError(
            f"labels must have one value per row of samples, got {labels.shape[0]} labels for "
            f"{sum(counts)} valid pixels."
        )
    chunks = (tuple(counts),)
    return labels.rechunk(chunks) if is_lazy else da.from_array(labels, chunks=chunks)


def as_numbers(
    labels: Any, classes: ArrayLike | None = None, names: Names | None = None
) -> tuple[Any, dict[int, str] | None]:
    """Return text labels as codes, other labels unchanged, and the known names or None.

    The code of a text is the number of its class; other and masked text becomes -1. `classes` are
    required for lazy text, and default to the sorted names of a NumPy array. `names` take
    precedence over `classes`.

    >>> as_numbers(np.array(["b", "a", "c"]), ["a", "b"], {1: "beet"})
    (array([ 1,  0, -1]), {0: 'a', 1: 'beet'})
    >>> as_numbers(np.array([0.5]))
    (array([0.5]), None)
    """
    labels = seen_alike(labels)
    labels = labels if isinstance(labels, da.Array) else np.asanyarray(labels)
    if labels.dtype.kind not in "OUST":
        if classes is not None and names is None and np.asarray(classes).dtype.kind in "OUST":
            # Numbers may be clusters: several may belong to a class, or none.
            warn(
                "classes are text and labels are numbers, whose names are not taken from classes; "
                "give class_names, such as {0: 'water'}.",
                DaskclustWarning,
            )
        return labels, None if names is None else as_names(names)
    if classes is not None:
        class_names = np.asarray(classes)
    elif isinstance(labels, da.Array):
        raise ValueError(
            f"Lazy text labels require classes=, because their names are unknown until they are "
            f"computed, got dtype {labels.dtype}. Pass for example the classes_ of the model."
        )
    else:
        class_names = np.unique(np.ma.compressed(labels).astype(str))
    codes: Any = (
        da.map_blocks(_codes_of, labels, classes=class_names, meta=np.empty(0, np.int64))
        if isinstance(labels, da.Array)
        else _codes_of(labels, classes=class_names)
    )
    return codes, {**as_names(class_names.tolist()), **as_names(names)}


def _codes_of(labels: NDArray[Any], *, classes: NDArray[Any]) -> Ints:
    code_of = {str(name): code for code, name in enumerate(classes.tolist())}
    plain = np.ma.getdata(labels).astype(str)
    present, inverse = np.unique(plain, return_inverse=True)
    codes = np.array([code_of.get(str(name), -1) for name in present.tolist()], dtype=np.int64)
    out = codes[inverse] if len(present) else np.empty(0, np.int64)
    return np.where(np.ma.getmaskarray(labels), -1, out)


def widened(labels: da.Array, fill_value: float) -> da.Array:
    """Return labels of a dtype that holds `fill_value`, too."""
    kind = labels.dtype
    if kind.kind not in "biu":
        return labels
    if not math.isfinite(fill_value) or fill_value != int(fill_value):
        return labels.astype(np.float64)
    wide = np.result_type(kind, np.min_scalar_type(int(fill_value)))
    if kind.kind in "bu" and fill_value < 0:
        wide = np.dtype(np.int64)
    return labels if wide == kind else da.map_blocks(_converted, labels, to=wide, dtype=wide)


def _converted(labels: NDArray[Any], *, to: Any) -> NDArray[Any]:
    if labels.dtype == np.uint64 and len(labels) and labels.max() > np.iinfo(np.int64).max:
        raise ValueError(
            f"labels must fit into int64, got {labels.max()}. Pass a fill_value of at least 0."
        )
    return labels.astype(to)
