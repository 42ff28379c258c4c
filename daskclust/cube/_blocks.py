"""The work on one spatial block of a cube, run inside tasks; labels in the blocks of the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal

import dask.array as da
import numpy as np
from numpy.typing import ArrayLike, NDArray

from daskclust._types import Array, Bools, Floats, Ints
from daskclust._warnings import warn
from daskclust.cube._images import Image
from daskclust.cube._reading import CubeSource, Scaling, one_object
from daskclust.cube.formats.vector import no_codes
from daskclust.cube.layout import flatten
from daskclust.engine import compute
from daskclust.exceptions import ChunkError, DaskclustWarning
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
    shown = np.asarray(shown)
    return one_object(_codes(shown[shown >= 0], largest))


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
    labeled = ~np.isin(labels, [value for value in unlabeled if _holds(labels.dtype, value)])
    if not labeled.any():
        return one_object(np.empty((2, 0), dtype=np.int64))
    if labels.dtype == np.uint64 and labels[labeled].max() > np.iinfo(np.int64).max:
        raise ValueError(
            f"label_map holds {labels[labeled].max()}; expected labels up to "
            f"{np.iinfo(np.int64).max}. Name it as unlabeled, or renumber the classes."
        )
    valid, _ = source.valid(_number(ids), excluded)
    wanted = labeled & valid
    return one_object(np.array([(np.cumsum(valid) - 1)[wanted], labels[wanted]], dtype=np.int64))


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
        block_survey,
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
            merge_surveys,
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


def align(labels: Any, counts: Sequence[int]) -> da.Array:
    if not isinstance(labels, da.Array):
        # A mask stays: blocks put the fill value there.
        labels = np.asanyarray(labels)
    if labels.ndim != 1:
        raise ValueError(f"labels have shape {labels.shape}; expected one dimension.")
    if not isinstance(labels, da.Array):
        _check_number(len(labels), counts)
        return da.from_array(labels, chunks=(tuple(counts),))
    if any(math.isnan(size) for size in labels.chunks[0]):
        # Each block's length is checked by its task.
        if labels.numblocks[0] != len(counts):
            raise ChunkError(
                f"labels have {labels.numblocks[0]} blocks of unknown length, the cube has "
                f"{len(counts)}; compute the labels from this cube's samples, or call "
                "labels.compute_chunk_sizes() first."
            )
        return labels
    _check_number(labels.shape[0], counts)
    return labels if labels.chunks[0] == tuple(counts) else labels.rechunk((tuple(counts),))


def _check_number(found: int, counts: Sequence[int]) -> None:
    if found != sum(counts):
        raise ValueError(
            f"Got {found} labels for {sum(counts)} valid pixels; expected one per row of samples."
        )


def as_codes(
    labels: Any, classes: ArrayLike | None, names: Sequence[str] | Mapping[int, str] | None
) -> tuple[Any, dict[int, str]]:
    """Return labels as integers, and their names.

    Integers stay. Text becomes the number of its class, -1 for another word or a masked one; lazy
    text needs `classes`, NumPy arrays have their sorted names. `names` are those of the labels 0,
    1, ..., or by label.

    >>> as_codes(np.array(["b", "a", "c"]), ["a", "b"], None)
    (array([ 1,  0, -1]), {0: 'a', 1: 'b'})
    """
    given = dict(names) if isinstance(names, Mapping) else dict(enumerate(names or ()))
    labels = labels if isinstance(labels, da.Array) else np.asanyarray(labels)
    if labels.dtype.kind in "iub":
        return labels, given
    codes, found = as_numbers(labels, classes)
    if found is None:
        raise ValueError(f"labels have dtype {labels.dtype}; expected integers, or text.")
    return codes, found | given


def as_numbers(labels: Any, classes: ArrayLike | None) -> tuple[Any, dict[int, str] | None]:
    """Return text as codes, and their names; numbers as they are, and None.

    >>> as_numbers(np.array(["b", "a", "b"]), None)
    (array([1, 0, 1]), {0: 'a', 1: 'b'})
    >>> as_numbers(np.array([0.5]), None)
    (array([0.5]), None)
    """
    labels = labels if isinstance(labels, da.Array) else np.asanyarray(labels)
    if labels.dtype.kind not in "OUST":
        return labels, None
    if classes is not None:
        known = np.asarray(classes)
    elif isinstance(labels, da.Array):
        raise ValueError(
            f"labels are lazy text ({labels.dtype}), whose names are known only when they are "
            "computed; expected classes= with them, such as the classes_ of the model."
        )
    else:
        known = np.unique(np.ma.compressed(labels).astype(str))
    if isinstance(labels, da.Array):
        codes: Any = da.map_blocks(
            _places, labels, classes=known, dtype=np.int64, meta=np.empty(0, np.int64)
        )
    else:
        codes = _places(labels, classes=known)
    return codes, {code: str(name) for code, name in enumerate(known.tolist())}


def _places(labels: NDArray[Any], *, classes: NDArray[Any]) -> Ints:
    places = {str(name): code for code, name in enumerate(classes.tolist())}
    plain = np.ma.getdata(labels).astype(str)
    found, inverse = np.unique(plain, return_inverse=True)
    codes = np.array([places.get(str(name), -1) for name in found.tolist()], dtype=np.int64)
    out = codes[inverse] if len(found) else np.empty(0, np.int64)
    return np.where(np.ma.getmaskarray(labels), -1, out)


def widened(labels: da.Array, fill_value: float) -> da.Array:
    """Return labels of a dtype that holds `fill_value`, too."""
    kind = labels.dtype
    if kind.kind not in "biu":
        return labels
    if not math.isfinite(fill_value) or fill_value != int(fill_value):
        return labels.astype(np.float64)
    wanted = np.result_type(kind, np.min_scalar_type(int(fill_value)))
    if kind.kind in "bu" and fill_value < 0:
        wanted = np.dtype(np.int64)
    return labels if wanted == kind else da.map_blocks(_converted, labels, to=wanted, dtype=wanted)


def _converted(labels: NDArray[Any], *, to: Any) -> NDArray[Any]:
    if labels.dtype == np.uint64 and len(labels) and labels.max() > np.iinfo(np.int64).max:
        raise ValueError(
            f"labels hold {labels.max()}, which int64 does not; pass a fill_value from 0 on."
        )
    return labels.astype(to)


def labeled_rows(
    cube: Any, opened: Image, unlabeled: int | Sequence[int]
) -> tuple[Ints, NDArray[Any]]:
    """Return row numbers and labels of an opened label map; see :meth:`daskclust.Cube.rows_of`."""
    image = opened.values
    if image.dtype.kind not in "iub":
        raise no_codes("label_map", image.dtype)
    values = (unlabeled,) if isinstance(unlabeled, int | np.integer) else tuple(unlabeled)
    if not all(isinstance(value, int | np.integer) for value in values):
        raise TypeError(f"unlabeled={unlabeled!r}; expected whole numbers, such as -1 or (0,).")
    values = (0,) if image.dtype.kind == "b" else (*values, *opened.nodata)
    names = opened.meanings if opened.by_name else None
    if names is not None:
        values = opened.nodata
    rows_of = cube._per_block(
        block_rows_of,
        flatten(image, cube.blocks),
        sizes=(1,) * cube.blocks.count,
        dtype=object,
        token="daskclust-rows-of",
        unlabeled=values,
    )
    (found,) = compute("the reading of labels", rows_of)
    offsets = accumulate(cube.block_counts, initial=0)
    rows = [block[0] + offset for block, offset in zip(found, offsets, strict=False)]
    labels = np.concatenate([block[1] for block in found])
    gone = sorted(set(opened.stated).difference(values, np.unique(labels).tolist()))
    if gone and len(labels):
        shown = ", ".join(repr((opened.meanings or {}).get(code, code)) for code in gone[:10])
        warn(
            f"Of {len(gone)} of the {len(opened.stated)} classes no pixel with data is labeled "
            f"({shown}): all that they label lies outside the image, on masked pixels, or is "
            "smaller than a pixel.",
            DaskclustWarning,
        )
    if names is not None:
        known = np.array(sorted(names))
        texts = np.array([names[code] for code in known.tolist()])
        labels = texts[np.searchsorted(known, labels)]
    return np.concatenate(rows), labels
