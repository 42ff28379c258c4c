"""The work on one spatial block of a cube: pure functions of NumPy, run inside tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from daskclust._types import Array, Bools, Floats, Ints
from daskclust.cube import _blocks
from daskclust.cube._reading import CubeSource, Scaling
from daskclust.engine import compute
from daskclust.storage.seen import StoredArray


def with_held(
    ids: Ints,
    held: list[Array],
    *rest: Any,
    function: Callable[..., Any],
    source: CubeSource,
    **options: Any,
) -> Any:
    """Run a function of this module on a block whose pixels are handed in, as its only chunk."""
    return function(ids, *rest, source=replace(source, held=held[0]), **options)


_Excluded = Bools | None
#: Counting beats sorting while labels run no further than so many times their number.
_FEW = 4


def _number(ids: Ints) -> int:
    return int(ids[0])


def block_valid(ids: Ints, excluded: _Excluded = None, *, source: CubeSource) -> Bools:
    """Which pixels of one block are valid; (pixels,)."""
    return source.valid(_number(ids), excluded)[0]


def block_samples(
    ids: Ints, excluded: _Excluded = None, *, source: CubeSource, scaling: Scaling
) -> Array:
    """Read and scale the valid pixels of one block; (n, bands)."""
    return source.samples(_number(ids), excluded, scaling)


def block_survey(
    ids: Ints, excluded: _Excluded = None, *, source: CubeSource, moments: bool
) -> Floats:
    """Return one row, float64 of shape (1, 2 + bands) or (1, 2 + 4 * bands), about a block.

    The number of pixels that are valid if bands without data in this block are left out; the number
    of the other bands, and for each band whether it is one of them; with `moments`, per band also
    the number of values, their mean, and the sum of squared deviations from it.
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


def merge_surveys(surveys: Floats, *, n_bands: int, keep_incomplete: bool) -> Floats:
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
    ids: Ints, labels: Array, excluded: _Excluded = None, *, source: CubeSource, fill_value: Any
) -> Array:
    """Spread the labels of one block's valid pixels over all its pixels; (pixels,)."""
    number = _number(ids)
    pixels = source.grid.pixels_of(number)
    if np.ma.isMaskedArray(labels):
        labels = np.ma.filled(labels, fill_value)
    if len(labels) == pixels:  # all valid, nothing to look up
        return labels
    out = np.full(pixels, fill_value, dtype=labels.dtype)
    valid, _ = source.valid(number, excluded)
    _check_length(number, len(labels), int(valid.sum()))
    out[valid] = labels
    return out


def write_block(
    ids: Ints, labels: Array, excluded: _Excluded = None, *, source: CubeSource, target: StoredArray
) -> NDArray[np.object_]:
    """Write one block of a label map, and return its labels, ascending, without -1.

    Blocks are chunks of `target`, so that no two tasks touch the same chunk.
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


def _codes(labels: Array, largest: int) -> Ints:
    if largest > _FEW * max(1, len(labels)):
        return np.unique(labels).astype(np.int64)
    return np.flatnonzero(np.bincount(labels.astype(np.int64)))


def block_rows_of(
    ids: Ints,
    labels: Array,
    excluded: _Excluded = None,
    *,
    source: CubeSource,
    unlabeled: tuple[int, ...],
) -> NDArray[np.object_]:
    """Return row numbers inside the block, and labels, of its labeled valid pixels.

    One (2, m) int64 array in an array of objects: Dask's expression arrays cannot be computed with
    unknown lengths.
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
        valid, _ = source.valid(_number(ids), excluded)
        wanted = labeled & valid
        out[0] = np.array([(np.cumsum(valid) - 1)[wanted], labels[wanted]], dtype=np.int64)
    return out


def _holds(dtype: np.dtype[Any], value: int) -> bool:
    """Whether an integer dtype holds a value: comparing beyond it would go by rounded floats."""
    if dtype.kind == "b":
        return value in (0, 1)
    return bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)


# Rows of statistics merged by one task.
_FOLD = 256


def sample_dtype(stored: np.dtype[Any]) -> np.dtype[Any]:
    """float32 where it holds what is stored exactly, else float64."""
    small = stored.itemsize <= (4 if stored.kind == "f" else 2)
    return np.dtype(np.float32 if small else np.float64)


@dataclass(frozen=True)
class Surveyed:
    """The results of one pass over a cube.

    `counts` are the valid pixels of each block; `empty` are bands among those kept that hold no
    data at all.
    """

    counts: tuple[int, ...]
    scaling: Scaling
    empty: NDArray[np.intp]


def take_survey(
    _per_block: Callable[..., Any],
    source: CubeSource,
    scale: Literal["none", "standard", "unit", "whitened"] | Scaling,
    dtype: np.dtype[Any],
) -> Surveyed:
    """Count valid pixels of each block, find empty bands, and for ``"standard"`` the scaling.

    Two numbers a block reach the client; statistics of bands are merged in a tree.
    """
    moments = scale == "standard"
    p = source.n_bands
    width = 2 + (4 if moments else 1) * p
    surveys = _per_block(
        _blocks.block_survey,
        sizes=(1,) * source.grid.count,
        width=width,
        dtype=np.float64,
        token="daskclust-survey",
        moments=moments,
    )
    merged = surveys
    while True:
        merged = merged.rechunk({0: _FOLD})
        merged = merged.map_blocks(
            _blocks.merge_surveys,
            n_bands=p,
            keep_incomplete=source.keep_incomplete,
            chunks=((1,) * merged.numblocks[0], (width,)),
            dtype=np.float64,
            meta=np.empty((0, 0)),
        )
        if merged.numblocks[0] == 1:
            break
    heads, total = compute("the count of pixels", surveys[:, :2], merged)
    # Where a band is missing that other blocks have, no pixel is complete.
    whole = source.keep_incomplete | (heads[:, 1] == total[0, 1])
    counts = tuple(int(count) for count in np.where(whole, heads[:, 0], 0))
    present = total[0, 2 : 2 + p] > 0
    if not present.any():
        present[:] = True  # a scene without data has no band to blame
    empty = np.flatnonzero(~present)
    if isinstance(scale, Scaling):
        return Surveyed(counts, scale.of_bands(present), empty)
    if not moments:
        return Surveyed(counts, Scaling(scale, dtype), empty)
    n, mean, squares = (part[present] for part in total[0, 2 + p :].reshape(3, p))
    std = np.sqrt(squares / np.maximum(n, 1.0))
    std[std == 0.0] = 1.0  # a constant band: centered, not divided by zero
    return Surveyed(counts, Scaling("standard", dtype, mean=mean, std=std), empty)
