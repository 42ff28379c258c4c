"""Reading one block of a cube: which of its pixels count, and what they hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.cube._values import PLAIN, Meaning
from daskclust.cube.layout import BlockGrid
from daskclust.storage.seen import StoredArray

__all__ = ["CubeSource"]


@dataclass(frozen=True)
class CubeSource:
    """Where the pixels come from, and which of them count.

    Parameters
    ----------
    array : StoredArray or None
        Three-dimensional; None where pixels come from a Dask array.
    order : tuple of int
        Axes of y, x and band in `array`.
    dtype : numpy.dtype
        As stored, with the sign that is meant.
    n_stored : int
        Number of bands stored.
    bands : ndarray of int or None
        Bands kept; None keeps all.
    nodata : tuple of numbers
        Values that mean "no data"; NaN always does.
    keep_incomplete : bool
        A pixel with some bands missing is kept, its missing values NaN.
    grid : BlockGrid
    masked : bool
        Values may be hidden by a NumPy mask, which means "no data".
    meaning : Meaning
        How samples are made of stored numbers, and which of these are valid.
    held : ndarray of shape (pixels, n_stored), optional
        The pixels of the one block that is being handled, where there is no `array`.
    """

    array: StoredArray | None
    order: tuple[int, int, int]
    dtype: np.dtype[Any]
    n_stored: int
    bands: NDArray[np.intp] | None
    nodata: tuple[float, ...]
    keep_incomplete: bool
    grid: BlockGrid
    masked: bool = False
    meaning: Meaning = PLAIN
    held: NDArray[Any] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether no stored value can mean "no data"; then validity needs no reading."""
        return not (self.nodata or self.dtype.kind == "f" or self.masked or self.meaning.has_range)

    def read(self, number: int) -> NDArray[Any]:
        """Pixels of block `number` as rows, (pixels, bands kept), of the stored dtype."""
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
            selection = [slice(None)] * 3
            selection[self.order[0]], selection[self.order[1]] = rows, cols
            values = self.array[tuple(selection)].transpose(self.order)
            values = values.reshape(-1, values.shape[2])
        if np.ma.isMaskedArray(values):
            if self.meaning.dtype is not None:
                mask = np.ma.getmaskarray(values)
                values = np.ma.array(self.meaning.view(np.ma.getdata(values)), mask=mask)
        else:
            values = self.meaning.view(values)
        return values if self.bands is None else values[:, self.bands]

    def missing(self, values: NDArray[Any]) -> NDArray[np.bool_]:
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

    def valid(
        self, number: int, excluded: NDArray[np.bool_] | None
    ) -> tuple[NDArray[np.bool_], NDArray[Any] | None, NDArray[np.bool_] | None]:
        """Return which pixels of block `number` count, and what was read for it.

        Returns
        -------
        valid : ndarray of shape (pixels,), bool
        values : ndarray of shape (pixels, bands) or None
            None where nothing had to be read.
        missing : ndarray of shape (pixels, bands), bool, or None
        """
        wanted = None if excluded is None else ~excluded
        pixels = self.grid.pixels_of(number)
        if wanted is not None and not wanted.any():
            return wanted, None, None
        if self.is_complete:
            return np.ones(pixels, bool) if wanted is None else wanted, None, None
        values = self.read(number)
        missing = self.missing(values)
        absent = np.asarray(missing.all(axis=1)) if self.keep_incomplete else _any_by_row(missing)
        valid = ~absent if wanted is None else wanted & ~absent
        return valid, values, missing

    def survey(
        self, number: int, excluded: NDArray[np.bool_] | None, *, rows: bool
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[Any] | None]:
        """Return what block `number` says of the bands that hold data.

        Returns
        -------
        present : ndarray of shape (bands,), bool
            Bands with data in some pixel that is not excluded.
        valid : ndarray of shape (pixels,), bool
            Pixels that count if the other bands are left out.
        rows : ndarray of shape (valid pixels, bands)
            Their samples, NaN in the other bands; None unless `rows`.
        """
        wanted = None if excluded is None else ~excluded
        pixels = self.grid.pixels_of(number)
        valid: NDArray[np.bool_] = np.zeros(pixels, bool)
        nothing = np.zeros(self.n_bands, bool), valid
        if wanted is not None and not wanted.any():
            return (*nothing, np.empty((0, self.n_bands)))
        if self.is_complete and not rows:
            valid = np.ones(pixels, bool) if wanted is None else wanted
            return np.ones(self.n_bands, bool), valid, None
        values = self.read(number)
        missing = self.missing(values)
        considered = missing if wanted is None else missing[wanted]
        present: NDArray[np.bool_] = ~np.asarray(considered.all(axis=0))
        if not present.any():
            return (*nothing, np.empty((0, self.n_bands)))
        if self.keep_incomplete:
            absent = np.asarray(missing.all(axis=1))
        else:
            absent = _any_by_row(missing if present.all() else missing[:, present])
        valid = ~absent if wanted is None else wanted & ~absent
        found = self.decoded(values[valid], missing[valid]) if rows else None
        return present, valid, found

    def rows(self, number: int, excluded: NDArray[np.bool_] | None) -> NDArray[Any]:
        """Read the valid pixels of block `number`, (n, bands); what they miss is NaN."""
        valid, values, missing = self.valid(number, excluded)
        if values is None:
            if not valid.any():
                return np.empty((0, self.n_bands), dtype=self.dtype)
            values = self.read(number)
        if not valid.all():
            values = values[valid]
            missing = None if missing is None else missing[valid]
        return self.decoded(values, missing)

    def decoded(self, rows: NDArray[Any], missing: NDArray[np.bool_] | None) -> NDArray[Any]:
        """Make samples of stored pixels (n, bands): scaled, and NaN where they are missing."""
        rows = self.meaning.scaled(np.ma.getdata(rows), self.bands)
        if missing is not None and missing.any():
            kind = rows.dtype
            if kind.kind != "f":
                kind = np.dtype(np.float32 if kind.itemsize <= 2 else np.float64)
            # A copy in any case: what was read may be somebody's array.
            rows = rows.astype(kind)
            rows[missing] = np.nan
        return rows

    @property
    def n_bands(self) -> int:
        """Number of bands kept."""
        return self.n_stored if self.bands is None else len(self.bands)


def _any_by_row(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return ``mask.any(axis=1)``, faster where little or nothing is set, as in most blocks."""
    count = np.count_nonzero(mask)
    if 8 * count > mask.size:
        return np.asarray(mask.any(axis=1))
    out = np.zeros(len(mask), dtype=bool)
    if count:
        out[np.flatnonzero(mask) // mask.shape[1]] = True
    return out
