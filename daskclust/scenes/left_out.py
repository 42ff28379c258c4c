"""Labels of an image at the rows of a cube, and labels that no row takes.

Those are on pixels without data, on masked pixels, and outside of the scene.
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

#: Features that a message lists.
_LISTED = 10


#: Numbers that occur in a block, and of each the pixels that are labeled, valid and masked.
Counted = tuple[Ints, Ints, Ints, Ints]


def counted(numbers: Ints, valid: Bools, masked: Bools) -> Counted:
    """Count the labeled pixels of a block by a number, such as that of their feature.

    >>> valid, masked = np.array([True, False, True]), np.array([False, True, False])
    >>> [part.tolist() for part in counted(np.array([5, 5, 2]), valid, masked)]
    [[2, 5], [1, 2], [1, 1], [0, 1]]
    """
    found, places, labeled = np.unique(numbers, return_inverse=True, return_counts=True)
    size = len(found)
    one, other = (np.bincount(places[chosen], minlength=size) for chosen in (valid, masked))
    return found, labeled, one, other


@dataclass(frozen=True)
class Taken:
    """Labeled pixels by a number, and how many of them are valid or masked; others have no data."""

    labeled: Ints
    valid: Ints
    masked: Ints

    @classmethod
    def total(cls, parts: Sequence[Counted], size: int) -> Taken:
        """Sum the counts of blocks, by numbers in ``[0, size)``."""
        sums = np.zeros((3, size), np.int64)
        for numbers, *counts in parts:
            sums[:, numbers] += counts
        return cls(*sums)


def text_of(pixels: Taken, sources: Sequence[tuple[Features, Taken]]) -> str:
    """Return what was left out, and why; "" where all labels were taken.

    `pixels` are the counts of all sources together, of one number.

    >>> one = Taken(np.array([7]), np.array([4]), np.array([1]))
    >>> text_of(one, [])
    '3 of 7 labeled pixels are left out: 2 have no data and 1 is masked.'
    """
    labeled, valid, masked = (
        int(part[0]) for part in (pixels.labeled, pixels.valid, pixels.masked)
    )
    empty = labeled - valid - masked
    out = []
    if valid < labeled:
        why = [
            f"{count} {words[count != 1]}"
            for count, words in (
                (empty, ("has no data", "have no data")),
                (masked, ("is masked", "are masked")),
            )
            if count
        ]
        out.append(
            f"{labeled - valid} of {labeled} labeled pixels are left out: {' and '.join(why)}."
        )
    for features, taken in sources:
        out += _of_features(features, taken)
    return " ".join(out)


def _of_features(features: Features, taken: Taken) -> list[str]:
    """Return which features lost pixels, and why."""
    numbers = np.arange(len(features.classes))
    outside, beyond = (np.isin(numbers, some) for some in (features.outside, features.beyond))
    lost = (taken.labeled > 0) & (taken.valid == 0)
    # Other features of the same class may cover these pixels.
    small = np.isin(numbers, features.usable) & (taken.labeled == 0) & ~outside
    kinds = {
        "without data": lost & (taken.masked == 0),
        "masked, or without data": lost & (taken.masked > 0),
        "outside of the scene": outside,
        "without the center of a pixel of their own": small,
        "in part masked, or without data": (taken.valid < taken.labeled) & ~lost,
        "in part outside of the scene": beyond,
    }
    told = [
        f"{kind}: {_listed(features, chosen)}" for kind, chosen in kinds.items() if chosen.any()
    ]
    return [f"Of {len(numbers)} features of {features.source}, {'; '.join(told)}."] if told else []


def _listed(features: Features, chosen: Bools) -> str:
    numbers = np.flatnonzero(chosen).tolist()
    shown = ", ".join(f"{at} ({features.classes[at]})" for at in numbers[:_LISTED])
    return shown + (f" and {len(numbers) - _LISTED} more" if len(numbers) > _LISTED else "")


def rows_of(
    blocks: CubeBlocks, counts: Sequence[int], image: Image, unlabeled: Sequence[int]
) -> tuple[Ints, NDArray[Any]]:
    """Return the labeled rows and their labels, with warnings of labels that no row takes.

    `counts` are the valid pixels of each block, `unlabeled` values of codes that mean no label; see
    ``Cube.rows_of``.
    """
    kind = image.values.dtype.kind
    if kind not in "iub":
        raise no_codes("label_map", image.values.dtype)
    hidden = (0,) if kind == "b" else _hidden(image, unlabeled)
    names, meanings = image.meanings if image.by_name else None, image.meanings or {}
    rows, labels, left_out = labeled_rows(blocks, counts, image.values, hidden, image.features)
    if left_out:
        warn(left_out, DaskclustWarning)
    warn_of_similar(meanings.values())
    gone = sorted(set(image.stated).difference(hidden, np.unique(labels).tolist()))
    if gone and len(labels):
        shown = ", ".join(repr(meanings.get(code, code)) for code in gone[:10])
        warn(
            f"{len(gone)} of the {len(image.stated)} classes label no pixel with data "
            f"({shown}): their features lie outside the image or on masked pixels, or are "
            "smaller than a pixel.",
            DaskclustWarning,
        )
    if names is not None:
        known = np.array(sorted(names))
        texts = np.array([names[code] for code in known.tolist()])
        labels = texts[np.searchsorted(known, labels)]
    return rows, labels


def warn_of_left_out(blocks: CubeBlocks, image: Image, unlabeled: Sequence[int]) -> None:
    """Warn about labels that no row takes; only counts reach the client."""
    hidden = _hidden(image, unlabeled)
    _, left_out = _labeled(blocks, image.values, hidden, image.features, only_counts=True)
    if left_out:
        warn(left_out, DaskclustWarning)
    warn_of_similar((image.meanings or {}).values())


def _hidden(image: Image, unlabeled: Sequence[int]) -> tuple[int, ...]:
    """Return the codes that mean no label; those of the user do not mean codes assigned here."""
    return (*(() if image.by_name else unlabeled), *image.nodata)


def labeled_rows(
    blocks: CubeBlocks,
    counts: Sequence[int],
    image: Any,
    unlabeled: tuple[int, ...],
    features: Sequence[Features] = (),
) -> tuple[Ints, Ints, str]:
    """Return the rows of labeled valid pixels, their codes, and which labels are left out.

    `counts` are the valid pixels of each block. `features` are those that label the pixels of the
    image.
    """
    found, left_out = _labeled(blocks, image, unlabeled, features)
    offsets = accumulate(counts, initial=0)
    rows = [block[0] + offset for block, offset in zip(found, offsets, strict=False)]
    return np.concatenate(rows), np.concatenate([block[1] for block in found]), left_out


def _labeled(
    blocks: CubeBlocks,
    image: Any,
    unlabeled: tuple[int, ...],
    features: Sequence[Features],
    **options: Any,
) -> tuple[list[Ints], str]:
    """Return rows inside the block and labels, (2, m), of each block, and what is left out."""
    lazy = blocks.map(
        _block_rows_of,
        flatten(image, blocks.grid),
        *(flatten(one.numbers, blocks.grid) for one in features),
        sizes=(1,) * blocks.grid.count,
        dtype=object,
        token="daskclust-rows-of",
        unlabeled=unlabeled,
        **options,
    )
    (found,) = compute("the reading of labels", lazy)
    parts = [block[1] for block in found if block[1]]
    sizes = 1, *(len(one.classes) for one in features)
    pixels, *taken = (
        Taken.total([part[at] for part in parts], size) for at, size in enumerate(sizes)
    )
    return [block[0] for block in found], text_of(pixels, list(zip(features, taken, strict=True)))


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

    One (2, m) int64 array, empty with `only_counts`, and counts of the labeled pixels: of all
    pixels, and by feature for each source, whose `numbers` are given. One object: Dask's
    expression arrays cannot be computed with unknown lengths.
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
    taken = []
    for own in (np.zeros(len(labels), np.int64), *numbers):
        here = labeled & (own >= 0)
        taken.append(counted(own[here], valid[here], masked[here]))
    return one_object((pairs, tuple(taken)))


def _holds(dtype: np.dtype[Any], value: int) -> bool:
    """Return True if an integer dtype holds a value; else NumPy would compare rounded floats."""
    if dtype.kind == "b":
        return value in (0, 1)
    return bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)


def as_mask(name: str, image: Any) -> Any:
    """Return an image of bool, or of 0 and 1, as a boolean image; the latter lazily.

    Other values, except nodata, are an error when they are read.
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
    found = values == 1
    known = [value for value in (0, *nodata) if _holds(values.dtype, value)]
    wrong = ~(found | np.isin(values, known))
    if wrong.any():
        raise ValueError(
            f"{argument} must contain booleans, or 0 and 1, which excludes a pixel, got "
            f"{values[wrong][0]}."
        )
    return np.asarray(found)
