"""Labels of rows, in the chunks of the rows with a fill value; and those of a label map."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import ArrayLike, NDArray

from daskclust._types import Ints
from daskclust._warnings import warn
from daskclust.cube._blocks import block_rows_of
from daskclust.cube._images import Image
from daskclust.cube.layout import flatten
from daskclust.engine import compute
from daskclust.exceptions import ChunkError, DaskclustWarning


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
        raise ValueError(f"label_map has dtype {image.dtype}; expected integers or booleans.")
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
