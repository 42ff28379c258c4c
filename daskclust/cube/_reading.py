"""Reading one block of a cube: which of its pixels count, and what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import dask.array as da
import numpy as np
import zarr
from numpy.typing import NDArray

from daskclust._types import Array, Bools, Floats
from daskclust.cube._metadata import PLAIN, Meaning
from daskclust.cube.layout import BlockGrid
from daskclust.kernels.projection import project_rows
from daskclust.kernels.scratch import spare
from daskclust.storage.seen import StoredArray


@dataclass(frozen=True)
class Scaling:
    """How valid rows become samples.

    ``kind`` is ``"none"``, ``"unit"`` (each row divided by its Euclidean norm),
    ``"standard"`` (each band minus its `mean`, divided by its `std`) or ``"whitened"``
    (each row divided by its norm, then times `matrix`).
    """

    kind: Literal["none", "standard", "unit", "whitened"]
    dtype: np.dtype[Any]
    mean: Floats | None = None
    std: Floats | None = None
    matrix: Floats | None = None

    def of_bands(self, keep: Bools) -> Scaling:
        """Return the same for some of the bands."""
        if self.mean is None or self.std is None:
            return self
        return replace(self, mean=self.mean[keep], std=self.std[keep])

    @property
    def is_by_value(self) -> bool:
        """Whether a sample is made of one stored value alone."""
        return self.kind in ("none", "standard")

    def __call__(self, rows: Array, *, narrow: bool = True) -> Array:
        """Scale `rows` (n, p), in float64; not `narrow`, they need not be of `dtype` already."""
        if self.kind == "standard":
            assert self.mean is not None
            assert self.std is not None
            wide = (rows - self.mean) / self.std
            return wide.astype(self.dtype) if narrow else wide
        if not narrow and self.kind == "none":
            return rows
        if self.kind == "whitened":
            assert self.matrix is not None
            origin = np.zeros(len(self.matrix))
            return project_rows(rows.astype(np.float64), True, origin, self.matrix).astype(
                self.dtype
            )
        if self.kind == "unit":
            wide = rows.astype(np.float64)
            norm = np.sqrt(np.nansum(wide * wide, axis=1, keepdims=True))
            norm[norm == 0.0] = 1.0  # a row of zeros has no direction: it stays zero
            return (wide / norm).astype(self.dtype)
        return rows.astype(self.dtype, copy=False)


#: Bytes of stored values that are handled at a time.
_TILE = 2**18


@dataclass(frozen=True)
class CubeSource:
    """Stored pixels, and which of them count.

    `array` is None where pixels come from a Dask array; `held` then are the pixels (pixels,
    n_stored) of the one block that is being handled. `order` are the axes of y, x and band in
    `array`; `dtype` is the stored one, with the sign that is meant. `bands` are those kept, None
    for all. `nodata` mean "no data", as NaN and (`masked`) values hidden by a NumPy mask do.
    `keep_incomplete`: a pixel is kept that has at least the share `min_observed` of its bands, its
    missing values NaN.
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
    held: Array | None = None

    @property
    def is_complete(self) -> bool:
        """Whether no stored value can mean "no data"; then validity needs no reading."""
        return not (self.nodata or self.dtype.kind == "f" or self.masked or self.meaning.has_range)

    def read(self, number: int) -> Array:
        """Pixels of block `number` as rows, (pixels, bands kept), of the stored dtype."""
        return self._in_rows(self._stored(number))

    def _stored(self, number: int) -> Array:
        """Pixels of block `number` as rows of all stored bands."""
        if self.array is None:
            assert self.held is not None
            values = self.held
            if not self.masked and np.ma.is_masked(values):
                raise ValueError(
                    f"Block {number} of the cube is a masked array, which its Dask array does not "
                    "say. Build it from masked arrays only, or pass mask= or nodata=."
                )
        else:
            rows, cols = self.grid.region(number)
            selection = [slice(0, self.n_stored)] * 3
            selection[self.order[0]], selection[self.order[1]] = rows, cols
            shape = tuple(part.stop - part.start for part in selection)
            room = spare(shape, self.array.dtype)
            values = self.array.read(tuple(selection), room).transpose(self.order)
            values = values.reshape(-1, values.shape[2])
        if not np.ma.isMaskedArray(values):
            return self.meaning.view(values)
        if self.meaning.dtype is None:
            return values
        mask = np.ma.getmaskarray(values)
        return np.ma.array(self.meaning.view(np.ma.getdata(values)), mask=mask)

    def _in_rows(self, stored: Array) -> Array:
        """Return the bands kept of all pixels; how they lie decides the last bits of sums."""
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
        """Which of `values` mean "no data"; of their shape."""
        hidden = np.ma.getmaskarray(values) if np.ma.isMaskedArray(values) else None
        values = np.ma.getdata(values)
        found = np.isnan(values) if values.dtype.kind == "f" else None
        if hidden is not None:
            found = hidden if found is None else found | hidden
        for nodata in self.nodata:
            # In the stored dtype: -3.4e38 written as float32 equals no float64 literal.
            equal = values == values.dtype.type(nodata)
            found = equal if found is None else np.logical_or(found, equal, out=found)
        outside = self.meaning.outside(values)
        if outside is not None:
            found = outside if found is None else found | outside
        return np.zeros(values.shape, bool) if found is None else found

    def _is_whole(self, values: Array) -> bool:
        """Whether whole numbers tell by their extremes that none of them means "no data".

        Half the work of comparing each, and what most tiles are.  False where it is not certain.
        """
        if values.dtype.kind not in "iu" or np.ma.isMaskedArray(values) or not values.size:
            return False
        if self.meaning.has_range:
            return False
        middle = np.iinfo(values.dtype).max // 2
        low = [nodata for nodata in self.nodata if nodata <= middle]
        high = [nodata for nodata in self.nodata if nodata > middle]
        return not (low and values.min() <= max(low)) and not (high and values.max() >= min(high))

    def _too_few(self, missing: Bools) -> Bools:
        """Whether pixels have less than the least share of their values, or none."""
        least = max(self.min_observed * missing.shape[1], 1.0)
        return np.asarray(np.count_nonzero(~missing, axis=1) < least)

    def _absent(self, values: Array) -> Bools:
        """Which of some stored pixels do not count."""
        absent = np.empty(len(values), dtype=bool)
        for tile in _tiles(values):
            kept = self._kept(values[tile])
            if self._is_whole(kept):
                absent[tile] = False
                continue
            missing = self.missing(kept)
            absent[tile] = self._too_few(missing) if self.keep_incomplete else _any_by_row(missing)
        return absent

    def valid(self, number: int, excluded: Bools | None) -> tuple[Bools, Array | None]:
        """Return which pixels of a block count, and its stored values if they had to be read."""
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

        Bands have data in some pixel that is not excluded. Pixels count if the other bands are left
        out. Samples are NaN in the other bands, and None unless `rows`.
        """
        wanted = None if excluded is None else ~excluded
        pixels = self.grid.pixels_of(number)
        valid: Bools = np.zeros(pixels, bool)
        nothing = np.zeros(self.n_bands, bool), valid
        if wanted is not None and not wanted.any():
            return (*nothing, np.empty((0, self.n_bands)))
        if self.is_complete and not rows:
            valid = np.ones(pixels, bool) if wanted is None else wanted
            return np.ones(self.n_bands, bool), valid, None
        values = self.read(number)
        missing = self.missing(values)
        considered = missing if wanted is None else missing[wanted]
        present: Bools = ~np.asarray(considered.all(axis=0))
        if not present.any():
            return (*nothing, np.empty((0, self.n_bands)))
        if self.keep_incomplete:
            absent = self._too_few(missing)
        else:
            absent = _any_by_row(missing if present.all() else missing[:, present])
        valid = ~absent if wanted is None else wanted & ~absent
        found = self._decoded(values[valid], missing[valid]) if rows else None
        return present, valid, found

    def samples(self, number: int, excluded: Bools | None, scaling: Scaling) -> Array:
        """Read and scale the valid pixels of block `number`, (n, bands); what they miss is NaN."""
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
        out = spare((n, self.n_bands), scaling.dtype)
        done = 0
        for tile in _tiles(stored):
            values, chosen = self._kept(stored[tile]), valid[tile]
            found = int(np.count_nonzero(chosen))
            if found < len(chosen):
                values = values[chosen]
            out[done : done + found] = scaling(self._decoded(values), narrow=False)
            done += found
        return out

    def pixels(self, number: int, excluded: Bools | None) -> tuple[Bools, Array]:
        """Read block `number` once: which pixels are valid, and the values of all its pixels."""
        valid, stored = self.valid(number, excluded)
        return valid, self._decoded(
            self._in_rows(self._stored(number) if stored is None else stored)
        )

    def _are_samples(self, stored: Array, scaling: Scaling) -> bool:
        """Whether stored pixels are what samples are, as they lie there."""
        return (
            (scaling.kind, stored.dtype) == ("none", scaling.dtype)
            and self.bands is None
            and not self.meaning.is_scaled
            and not self.keep_incomplete
            and not np.ma.isMaskedArray(stored)
        )

    def _decoded(self, rows: Array, missing: Bools | None = None) -> Array:
        """Make samples of stored pixels (n, bands): scaled, and NaN where they are missing."""
        if missing is None and self.keep_incomplete:
            # Otherwise what is missing lies in pixels that do not count.
            missing = self.missing(rows)
        rows = self.meaning.scaled(np.ma.getdata(rows), self.bands)
        if missing is not None and missing.any():
            kind = rows.dtype
            if kind.kind != "f":
                kind = np.dtype(np.float32 if kind.itemsize <= 2 else np.float64)
            # A copy in any case: the values may be an array of the user.
            rows = rows.astype(kind)
            rows[missing] = np.nan
        return rows

    @property
    def n_bands(self) -> int:
        return self.n_stored if self.bands is None else len(self.bands)


def _tiles(values: Array) -> Iterator[slice]:
    """Cut rows into runs that stay in the cache, from one step to the next."""
    step = max(1, _TILE // max(1, values.shape[1] * values.dtype.itemsize))
    for start in range(0, len(values), step):
        yield slice(start, start + step)


def _any_by_row(mask: Bools) -> Bools:
    """Return ``mask.any(axis=1)``, faster where little or nothing is set, as in most blocks."""
    count = np.count_nonzero(mask)
    if 8 * count > mask.size:
        return np.asarray(mask.any(axis=1))
    out = np.zeros(len(mask), dtype=bool)
    if count:
        out[np.flatnonzero(mask) // mask.shape[1]] = True
    return out


@dataclass(frozen=True)
class StoredCube:
    """How the values of a cube are stored; `array` is None where they come from a Dask array.

    `order` are the axes of y, x and band in the array, and `shape` counts the bands that are left
    out. `values` are lazy: pixels as rows where there is no array in Zarr. `may_be_masked`: some
    value can mean "no data", so that valid pixels have to be counted.
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
    """Wrap a value of any size for a chunk of one: its length is not known beforehand."""
    out = np.empty(1, dtype=object)
    out[0] = value
    return out
