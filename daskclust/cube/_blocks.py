"""What happens to one spatial block of a cube: pure functions of NumPy, run inside tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from daskclust.cube._values import PLAIN, Meaning
from daskclust.kernels.projection import project_rows
from daskclust.storage.seen import StoredArray

__all__ = [
    "BlockGrid",
    "CubeSource",
    "Scaling",
    "block_rows_of",
    "block_samples",
    "block_survey",
    "block_valid",
    "expand_block",
    "merge_surveys",
    "with_held",
    "write_block",
]


@dataclass(frozen=True)
class BlockGrid:
    """Spatial blocks of an image, numbered row by row.

    Parameters
    ----------
    shape : tuple of int
        Rows and columns of the image.
    block : tuple of int
        Rows and columns of a block; the last ones may be smaller.

    Examples
    --------
    >>> grid = BlockGrid((5, 4), (2, 3))
    >>> grid.count, grid.region(3)
    (6, (slice(2, 4, None), slice(3, 4, None)))
    >>> grid.pixels
    (6, 2, 6, 2, 3, 1)
    """

    shape: tuple[int, int]
    block: tuple[int, int]

    @property
    def numblocks(self) -> tuple[int, int]:
        """Blocks down and across."""
        return -(-self.shape[0] // self.block[0]), -(-self.shape[1] // self.block[1])

    @property
    def count(self) -> int:
        """Number of blocks."""
        return self.numblocks[0] * self.numblocks[1]

    @property
    def chunks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Chunk sizes of a Dask array cut along the blocks."""
        rows, cols = (
            tuple(min(step, size - at) for at in range(0, size, step))
            for size, step in zip(self.shape, self.block, strict=True)
        )
        return rows, cols

    @property
    def pixels(self) -> tuple[int, ...]:
        """Pixels of each block."""
        rows, cols = self.chunks
        return tuple(height * width for height in rows for width in cols)

    def pixels_of(self, number: int) -> int:
        """Pixels of block `number`."""
        rows, cols = self.region(number)
        return (rows.stop - rows.start) * (cols.stop - cols.start)

    def region(self, number: int) -> tuple[slice, slice]:
        """Rows and columns of block `number`."""
        i, j = divmod(number, self.numblocks[1])
        y, x = i * self.block[0], j * self.block[1]
        return (
            slice(y, min(y + self.block[0], self.shape[0])),
            slice(x, min(x + self.block[1], self.shape[1])),
        )


@dataclass(frozen=True)
class Scaling:
    """How valid rows become samples.

    ``kind`` is ``"none"``, ``"unit"`` (each row divided by its Euclidean norm),
    ``"standard"`` (each band minus its `mean`, divided by its `std`) or ``"whitened"``
    (each row divided by its norm, then times `matrix`).
    """

    kind: Literal["none", "standard", "unit", "whitened"]
    dtype: np.dtype[Any]
    mean: NDArray[np.float64] | None = None
    std: NDArray[np.float64] | None = None
    matrix: NDArray[np.float64] | None = None

    def of_bands(self, keep: NDArray[np.bool_]) -> Scaling:
        """Return the same for some of the bands."""
        if self.mean is None or self.std is None:
            return self
        return replace(self, mean=self.mean[keep], std=self.std[keep])

    def __call__(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Scale `rows` (n, p), in float64, and return them as `dtype`."""
        if self.kind == "standard":
            assert self.mean is not None
            assert self.std is not None
            return ((rows - self.mean) / self.std).astype(self.dtype)
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
    min_observed : float
        Share of the bands that it must have for that.
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
    min_observed: float
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

    def _too_few(self, missing: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether pixels have less than the least share of their values, or none."""
        least = max(self.min_observed * missing.shape[1], 1.0)
        return np.asarray(np.count_nonzero(~missing, axis=1) < least)

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
        absent = self._too_few(missing) if self.keep_incomplete else _any_by_row(missing)
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
            absent = self._too_few(missing)
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


def with_held(
    ids: NDArray[np.int64],
    held: NDArray[Any],
    *rest: Any,
    function: Callable[..., Any],
    source: CubeSource,
    **options: Any,
) -> Any:
    """Run a function of this module on a block whose pixels are handed in."""
    return function(ids, *rest, source=replace(source, held=held), **options)


_Excluded = NDArray[np.bool_] | None
#: Counting beats sorting while labels run no further than so many times their number.
_FEW = 4


def _number(ids: NDArray[np.int64]) -> int:
    return int(ids[0])


def block_valid(
    ids: NDArray[np.int64], excluded: _Excluded = None, *, source: CubeSource
) -> NDArray[np.bool_]:
    """Which pixels of one block are valid; (pixels,)."""
    return source.valid(_number(ids), excluded)[0]


def block_samples(
    ids: NDArray[np.int64], excluded: _Excluded = None, *, source: CubeSource, scaling: Scaling
) -> NDArray[Any]:
    """Read and scale the valid pixels of one block; (n, bands)."""
    return scaling(source.rows(_number(ids), excluded))


def block_survey(
    ids: NDArray[np.int64], excluded: _Excluded = None, *, source: CubeSource, moments: bool
) -> NDArray[np.float64]:
    """One row that says what a block holds.

    Returns
    -------
    ndarray of shape (1, 2 + bands) or (1, 2 + 4 * bands), float64
        Number of pixels that are valid if bands without data in this block are left
        out; number of the other bands, and for each band whether it is one of them;
        with `moments` per band also the number of values, their mean, and the sum of
        squared deviations from it.
    """
    present, valid, rows = source.survey(_number(ids), excluded, rows=moments)
    numbers = np.array([valid.sum(), present.sum()], dtype=np.float64)
    head = [numbers, present.astype(np.float64)]
    if rows is None or not moments:
        return np.concatenate(head)[None]
    rows = rows.astype(np.float64)
    observed = ~np.isnan(rows)
    counts = observed.sum(axis=0)
    safe = np.maximum(counts, 1)
    # About the first value observed, so that a constant band has a spread of exactly zero.
    first = np.zeros(rows.shape[1])
    if len(rows):
        first = np.where(counts > 0, rows[observed.argmax(axis=0), np.arange(rows.shape[1])], 0.0)
    shifted = np.where(observed, rows - first, 0.0)
    mean = shifted.sum(axis=0) / safe
    squares = np.where(observed, shifted - mean, 0.0)
    return np.concatenate([*head, counts, first + mean, np.einsum("ij,ij->j", squares, squares)])[
        None
    ]


def merge_surveys(
    surveys: NDArray[np.float64], *, n_bands: int, keep_incomplete: bool
) -> NDArray[np.float64]:
    """Merge the rows of :func:`block_survey` in their order, into one row.

    A block where another band is empty than in all others has no valid pixel, so what it
    counted without that band does not count.  With `keep_incomplete` it does.

    Means and squared deviations are merged pair by pair (Chan, Golub and LeVeque),
    which loses nothing where the mean is large beside the spread.

    Examples
    --------
    >>> one = np.array([[2.0, 1.0, 1.0, 2.0, 1.0, 2.0]])
    >>> two = np.array([[1.0, 1.0, 1.0, 1.0, 4.0, 0.0]])
    >>> found = merge_surveys(np.concatenate([one, two]), n_bands=1, keep_incomplete=False)
    >>> found.tolist()  # of the values 0, 2 and 4
    [[3.0, 1.0, 1.0, 3.0, 2.0, 8.0]]
    """
    p = n_bands
    present = surveys[:, 2 : 2 + p].any(axis=0)
    total = np.zeros(surveys.shape[1])
    total[1], total[2 : 2 + p] = present.sum(), present
    own = total[2 + p :]
    count, mean, squares = own[:p], own[p : 2 * p], own[2 * p :]
    for row in surveys:
        if row[1] != total[1] and not keep_incomplete:
            continue
        total[0] += row[0]
        if not len(own):
            continue
        more, other, more_squares = (
            row[2 + p : 2 + 2 * p],
            row[2 + 2 * p : 2 + 3 * p],
            row[2 + 3 * p :],
        )
        both = np.maximum(count + more, 1.0)
        # Without rows so far, the mean is the other's to the last bit.
        mean[count == 0] = other[count == 0]
        shift = np.where(more > 0, other - mean, 0.0)
        squares += more_squares + shift * shift * (count * more / both)
        mean += shift * (more / both)
        count += more
    return total[None]


def _check_length(number: int, found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(
            f"Block {number} of the cube has {expected} valid pixels but got {found} labels. "
            "Labels must come from this cube's samples, in their order and chunks; if the store "
            "has changed since open_cube, open it again."
        )


def expand_block(
    ids: NDArray[np.int64],
    labels: NDArray[Any],
    excluded: _Excluded = None,
    *,
    source: CubeSource,
    fill_value: Any,
) -> NDArray[Any]:
    """Spread the labels of one block's valid pixels over all its pixels; (pixels,)."""
    number = _number(ids)
    pixels = source.grid.pixels_of(number)
    if np.ma.isMaskedArray(labels):
        labels = np.ma.filled(labels, fill_value)
    if len(labels) == pixels:  # all valid, nothing to look up
        return labels
    out = np.full(pixels, fill_value, dtype=labels.dtype)
    valid, _, _ = source.valid(number, excluded)
    _check_length(number, len(labels), int(valid.sum()))
    out[valid] = labels
    return out


def write_block(
    ids: NDArray[np.int64],
    labels: NDArray[Any],
    excluded: _Excluded = None,
    *,
    source: CubeSource,
    target: StoredArray,
) -> NDArray[np.object_]:
    """Write one block of a label map.

    Blocks are chunks of `target`, so that no two tasks touch the same chunk.

    Returns
    -------
    ndarray of shape (1,), object
        The labels that occur, ascending, without -1.
    """
    limit = np.iinfo(target.dtype).max
    shown = labels.compressed() if np.ma.isMaskedArray(labels) else labels
    largest = int(shown.max()) if len(shown) else -1
    if largest > limit or (len(shown) and int(shown.min()) < -1):
        raise ValueError(
            f"Labels run from {shown.min()} to {largest}; expected -1 to {limit} "
            f"({target.dtype}). For more clusters pass n_clusters= to write_labels."
        )
    number = _number(ids)
    # As int64, which holds -1, where something is masked.
    plain = labels.astype(np.int64) if np.ma.isMaskedArray(labels) else labels
    full = expand_block(ids, plain, excluded, source=source, fill_value=-1)
    rows, cols = source.grid.region(number)
    shape = rows.stop - rows.start, cols.stop - cols.start
    target[rows, cols] = full.reshape(shape).astype(target.dtype)
    found = np.empty(1, dtype=object)
    shown = np.asarray(shown)
    found[0] = _codes(shown[shown >= 0], largest)
    return found


def _codes(labels: NDArray[Any], largest: int) -> NDArray[np.int64]:
    if largest > _FEW * max(1, len(labels)):
        return np.unique(labels).astype(np.int64)
    return np.flatnonzero(np.bincount(labels.astype(np.int64)))


def block_rows_of(
    ids: NDArray[np.int64],
    labels: NDArray[Any],
    excluded: _Excluded = None,
    *,
    source: CubeSource,
    unlabeled: tuple[int, ...],
) -> NDArray[np.object_]:
    """Find the labeled valid pixels of one block.

    Returns
    -------
    ndarray of shape (1,), object
        One (2, m) int64 array of row numbers inside the block and labels.  An object,
        because Dask's expression arrays cannot be computed with unknown lengths.
    """
    out = np.empty(1, dtype=object)
    out[0] = np.empty((2, 0), dtype=np.int64)
    labeled = ~np.isin(labels, [value for value in unlabeled if _holds(labels.dtype, value)])
    if labeled.any():
        if labels.dtype == np.uint64 and labels[labeled].max() > np.iinfo(np.int64).max:
            raise ValueError(
                f"label_map holds {labels[labeled].max()}; expected labels up to "
                f"{np.iinfo(np.int64).max}. Name it as unlabeled, or renumber the classes."
            )
        valid, _, _ = source.valid(_number(ids), excluded)
        wanted = labeled & valid
        out[0] = np.array([(np.cumsum(valid) - 1)[wanted], labels[wanted]], dtype=np.int64)
    return out


def _holds(dtype: np.dtype[Any], value: int) -> bool:
    """Whether an integer dtype holds a value: comparing beyond it would go by rounded floats."""
    if dtype.kind == "b":
        return value in (0, 1)
    return bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)
