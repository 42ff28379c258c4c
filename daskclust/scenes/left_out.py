"""Labels of an image at the rows of a cube, and ignored labels.

Labels are ignored on pixels without data, on masked pixels, and outside the scene.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Bools, Ints
from daskclust.core.class_names import warn_of_similar
from daskclust.core.engine import compute
from daskclust.core.warn import warn
from daskclust.exceptions import DaskclustWarning
from daskclust.scenes._block_tasks import CubeBlocks, CubeSource, Excluded, block_valid, one_object
from daskclust.scenes._open_array import Image
from daskclust.scenes.block_grid import flatten
from daskclust.scenes.formats.vector import Features, no_codes

#: Maximum number of features that a message lists.
_LISTED = 10


#: Numbers that occur in a block, and the numbers of their labeled, valid and masked pixels.
BlockCounts = tuple[Ints, Ints, Ints, Ints]


def count_labeled(numbers: Ints, valid: Bools, masked: Bools) -> BlockCounts:
    """Count the labeled pixels of a block by a number, such as the number of their feature.

    >>> valid, masked = np.array([True, False, True]), np.array([False, True, False])
    >>> [part.tolist() for part in count_labeled(np.array([5, 5, 2]), valid, masked)]
    [[2, 5], [1, 2], [1, 1], [0, 1]]
    """
    present, indices, labeled = np.unique(numbers, return_inverse=True, return_counts=True)
    size = len(present)
    n_valid, n_masked = (np.bincount(indices[mask], minlength=size) for mask in (valid, masked))
    return present, labeled, n_valid, n_masked


@dataclass(frozen=True)
class LabelCounts:
    """Numbers of labeled, valid and masked pixels; other labeled pixels have no data."""

    labeled: Ints
    valid: Ints
    masked: Ints

    @classmethod
    def total(cls, parts: Sequence[BlockCounts], size: int) -> LabelCounts:
        """Sum the counts of blocks, by numbers in ``[0, size)``."""
        sums = np.zeros((3, size), np.int64)
        for numbers, *counts in parts:
            sums[:, numbers] += counts
        return cls(*sums)


def text_of(pixels: LabelCounts, sources: Sequence[tuple[Features, LabelCounts]]) -> str:
    """Return a description of the ignored labels with reasons; "" if no label is ignored.

    `pixels` are the counts of all sources together.

    >>> counts = LabelCounts(np.array([7]), np.array([4]), np.array([1]))
    >>> text_of(counts, [])
    '3 of 7 labeled pixels are left out: 2 have no data and 1 is masked.'
    """
    labeled, valid, masked = (
        int(array[0]) for array in (pixels.labeled, pixels.valid, pixels.masked)
    )
    empty = labeled - valid - masked
    sentences = []
    if valid < labeled:
        reasons = [
            f"{n} {words[n != 1]}"
            for n, words in (
                (empty, ("has no data", "have no data")),
                (masked, ("is masked", "are masked")),
            )
            if n
        ]
        sentences.append(
            f"{labeled - valid} of {labeled} labeled pixels are left out: {' and '.join(reasons)}."
        )
    for features, counts in sources:
        sentences += _of_features(features, counts)
    return " ".join(sentences)


def _of_features(features: Features, counts: LabelCounts) -> list[str]:
    """Return a sentence about features with ignored pixels, or an empty list."""
    numbers = np.arange(len(features.classes))
    outside, beyond = (np.isin(numbers, members) for members in (features.outside, features.beyond))
    lost = (counts.labeled > 0) & (counts.valid == 0)
    # Other features of the same class may cover these pixels.
    small = np.isin(numbers, features.usable) & (counts.labeled == 0) & ~outside
    kinds = {
        "without data": lost & (counts.masked == 0),
        "masked, or without data": lost & (counts.masked > 0),
        "outside of the scene": outside,
        "without the center of a pixel of their own": small,
        "in part masked, or without data": (counts.valid < counts.labeled) & ~lost,
        "in part outside of the scene": beyond,
    }
    texts = [f"{kind}: {_listed(features, mask)}" for kind, mask in kinds.items() if mask.any()]
    return (
        [f"Of {len(numbers)} features of {features.source}, {'; '.join(texts)}."] if texts else []
    )


def _listed(features: Features, mask: Bools) -> str:
    numbers = np.flatnonzero(mask).tolist()
    shown = ", ".join(f"{number} ({features.classes[number]})" for number in numbers[:_LISTED])
    return shown + (f" and {len(numbers) - _LISTED} more" if len(numbers) > _LISTED else "")


def rows_of(
    blocks: CubeBlocks, counts: Sequence[int], image: Image, unlabeled: Sequence[int]
) -> tuple[Ints, NDArray[Any]]:
    """Return the labeled rows and their labels, with warnings about ignored labels.

    `counts` are the valid pixels of each block, and `unlabeled` the codes that mean no label; see
    ``Cube.rows_of``.
    """
    kind = image.values.dtype.kind
    if kind not in "iub":
        raise no_codes("label_map", image.values.dtype)
    no_label = (0,) if kind == "b" else _hidden(image, unlabeled)
    names, meanings = image.meanings if image.by_name else None, image.meanings or {}
    rows, labels, left_out = labeled_rows(blocks, counts, image.values, no_label, image.features)
    if left_out:
        warn(left_out, DaskclustWarning)
    warn_of_similar(meanings.values())
    unused = sorted(set(image.stated).difference(no_label, np.unique(labels).tolist()))
    if unused and len(labels):
        shown = ", ".join(repr(meanings.get(code, code)) for code in unused[:10])
        warn(
            f"{len(unused)} of the {len(image.stated)} classes label no pixel with data "
            f"({shown}): their features lie outside the image or on masked pixels, or are "
            "smaller than a pixel.",
            DaskclustWarning,
        )
    if names is not None:
        codes = np.array(sorted(names))
        texts = np.array([names[code] for code in codes.tolist()])
        labels = texts[np.searchsorted(codes, labels)]
    return rows, labels


def warn_of_left_out(blocks: CubeBlocks, image: Image, unlabeled: Sequence[int]) -> None:
    """Warn about ignored labels; only counts reach the client."""
    hidden = _hidden(image, unlabeled)
    _, left_out = _labeled(blocks, image.values, hidden, image.features, only_counts=True)
    if left_out:
        warn(left_out, DaskclustWarning)
    warn_of_similar((image.meanings or {}).values())


def _hidden(image: Image, unlabeled: Sequence[int]) -> tuple[int, ...]:
    """Return the codes that mean no label; values of the user do not refer to assigned codes."""
    return (*(() if image.by_name else unlabeled), *image.nodata)


def labeled_rows(
    blocks: CubeBlocks,
    counts: Sequence[int],
    image: Any,
    unlabeled: tuple[int, ...],
    features: Sequence[Features] = (),
) -> tuple[Ints, Ints, str]:
    """Return the rows of labeled valid pixels, their codes, and a text about ignored labels.

    `counts` are the valid pixels of each block. `features` label the pixels of the image.
    """
    by_block, left_out = _labeled(blocks, image, unlabeled, features)
    offsets = accumulate(counts, initial=0)
    rows = [block[0] + offset for block, offset in zip(by_block, offsets, strict=False)]
    return np.concatenate(rows), np.concatenate([block[1] for block in by_block]), left_out


def _labeled(
    blocks: CubeBlocks,
    image: Any,
    unlabeled: tuple[int, ...],
    features: Sequence[Features],
    **options: Any,
) -> tuple[list[Ints], str]:
    """Return rows in the block and labels, (2, m), per block, and a text about ignored labels."""
    lazy = blocks.map(
        _block_rows_of,
        flatten(image, blocks.grid),
        *(flatten(item.numbers, blocks.grid) for item in features),
        sizes=(1,) * blocks.grid.count,
        dtype=object,
        token="daskclust-rows-of",
        unlabeled=unlabeled,
        **options,
    )
    (by_block,) = compute("the reading of labels", lazy)
    counts = [block[1] for block in by_block if block[1]]
    sizes = 1, *(len(item.classes) for item in features)
    pixels, *totals = (
        LabelCounts.total([block_counts[i] for block_counts in counts], size)
        for i, size in enumerate(sizes)
    )
    return [block[0] for block in by_block], text_of(
        pixels, list(zip(features, totals, strict=True))
    )


def _block_rows_of(
    source: CubeSource,
    number: int,
    excluded: Excluded,
    labels: Array,
    *numbers: Array,
    unlabeled: tuple[int, ...],
    only_counts: bool = False,
) -> NDArray[np.object_]:
    """Return row numbers inside the block, and labels, of its labeled valid pixels.

    The result contains a (2, m) int64 array, empty with `only_counts`, and counts of the labeled
    pixels: of all pixels, and by feature for each source in `numbers`. It is one object, because
    expression arrays of Dask cannot be computed with unknown lengths.
    """
    labeled = ~np.isin(labels, [value for value in unlabeled if _holds(labels.dtype, value)])
    if not labeled.any():
        return one_object((np.empty((2, 0), dtype=np.int64), ()))
    if labels.dtype == np.uint64 and labels[labeled].max() > np.iinfo(np.int64).max:
        raise ValueError(
            f"label_map must contain labels up to {np.iinfo(np.int64).max}, got "
            f"{labels[labeled].max()}. Name it as unlabeled, or renumber the classes."
        )
    valid = block_valid(source, number, excluded)
    wanted = labeled & valid & (not only_counts)
    pairs = np.array([(np.cumsum(valid) - 1)[wanted], labels[wanted]], dtype=np.int64)
    masked = np.zeros(len(labels), bool) if excluded is None else excluded
    counts = []
    for numbers_of_source in (np.zeros(len(labels), np.int64), *numbers):
        in_source = labeled & (numbers_of_source >= 0)
        counts.append(
            count_labeled(numbers_of_source[in_source], valid[in_source], masked[in_source])
        )
    return one_object((pairs, tuple(counts)))


def _holds(dtype: np.dtype[Any], value: int) -> bool:
    """Return True if an integer dtype contains a value; otherwise NumPy would compare floats."""
    if dtype.kind == "b":
        return value in (0, 1)
    return bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)


def as_mask(name: str, image: Any) -> Any:
    """Return an image of booleans, or lazily an image of 0 and 1, as booleans.

    Other values, except nodata, raise an error when they are read.
    """
    values = image.values
    if values.dtype == bool:
        return values
    if values.dtype.kind not in "iu":
        raise ValueError(f"{name} must be bool, or 0 and 1, got dtype {values.dtype}.")
    return da.asarray(values).map_blocks(
        _mask_block, argument=name, nodata=image.nodata, dtype=bool, meta=np.empty((0, 0), bool)
    )


def _mask_block(values: Array, *, argument: str, nodata: tuple[int, ...]) -> Bools:
    is_one = values == 1
    allowed = [value for value in (0, *nodata) if _holds(values.dtype, value)]
    wrong = ~(is_one | np.isin(values, allowed))
    if wrong.any():
        raise ValueError(
            f"{argument} must contain booleans, or 0 and 1, which excludes a pixel, got "
            f"{values[wrong][0]}."
        )
    return np.asarray(is_one)
