"""Labels from several sources as one image; sources that contradict each other are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask.array as da
import numpy as np

from daskclust._types import Array, Ints
from daskclust.cube._images import Image

__all__ = ["join_labels"]

#: Of pixels without a class.
_NONE = -1


def join_labels(
    sources: Sequence[tuple[str, Image]], chunks: Any, unlabeled: Sequence[int] = ()
) -> Image:
    """Join label maps of one image, with names for messages; lazy, -1 where no source has a class.

    Sources with names of classes are joined by name, sources of codes by code; `unlabeled` values
    mean no class in maps of codes, besides their nodata. Sources that give a pixel different
    classes are an error when the result is computed.

    >>> one = Image(np.array([[7, -1]])), Image(np.array([[-1, 8]]), (-1,))
    >>> joined = join_labels([("a", one[0]), ("b", one[1])], ((1,), (2,)), (-1,))
    >>> joined.values.compute().tolist()
    [[7, 8]]
    """
    named = [name for name, image in sources if image.meanings is not None]
    plain = [name for name, image in sources if image.meanings is None]
    if named and plain:
        raise ValueError(
            f"{named[0]} names its classes and {plain[0]} has codes without names; which of them "
            "are the same cannot be told. Use codes in all of them, or give the map names "
            "(attributes flag_values and flag_meanings)."
        )
    texts = sorted({t for _, image in sources for t in (image.meanings or {}).values()})
    codes = {text: code for code, text in enumerate(texts)}
    parts = []
    for _, image in sources:
        none = [*image.nodata, *(() if image.by_name else unlabeled), _NONE]
        table = None
        if image.meanings is not None:
            known = {value: text for value, text in image.meanings.items() if value not in none}
            table = (np.array(list(known), np.int64), np.array([codes[t] for t in known.values()]))
        values = da.asarray(image.values).rechunk(chunks)
        parts.append(
            da.map_blocks(
                _known,
                values,
                none=np.array(none),
                table=table,
                dtype=np.int64,
                meta=np.empty((0, 0), np.int64),
            )
        )
    names = [name for name, _ in sources]
    joined = da.map_blocks(
        _joined,
        *parts,
        names=names,
        texts={code: text for text, code in codes.items()},
        dtype=np.int64,
        meta=np.empty((0, 0), np.int64),
    )
    meanings = {code: text for text, code in codes.items()} if named else None
    stated = {
        code if image.meanings is None else codes[image.meanings[code]]
        for _, image in sources
        for code in image.stated
    }
    return Image(
        joined, (_NONE,), meanings=meanings, stated=tuple(sorted(stated)), by_name=bool(named)
    )


def _known(values: Array, *, none: Array, table: Any) -> Ints:
    """Codes of one block, -1 for none."""
    found = values.astype(np.int64)
    missing = np.isin(values, none)
    if table is not None:
        given, codes = table
        order = np.argsort(given)
        at = np.searchsorted(given[order], found).clip(0, max(len(given) - 1, 0))
        has = given[order][at] == found if len(given) else np.zeros(found.shape, bool)
        strange = ~has & ~missing
        if strange.any():
            raise ValueError(
                f"A label map holds {found[strange][0]}, which its flag_meanings do not name; "
                "name all classes, or declare it as nodata."
            )
        found = np.where(has, codes[order][at] if len(given) else found, _NONE)
    return np.where(missing, _NONE, found)


def _joined(*parts: Ints, names: list[str], texts: dict[int, str], block_info: Any = None) -> Ints:
    out = parts[0].copy()
    owner = np.zeros(out.shape, np.int64)
    for number, part in enumerate(parts[1:], start=1):
        wrong = (part != _NONE) & (out != _NONE) & (part != out)
        if wrong.any():
            line, column = (int(axis[0]) for axis in np.nonzero(wrong))
            first, second = (
                texts.get(int(code), str(code)) for code in (out[line, column], part[line, column])
            )
            (top, _), (left, _) = block_info[0]["array-location"]
            raise ValueError(
                f"The pixel (row {top + line}, column {left + column}) is {first!r} in "
                f"{names[owner[line, column]]} and {second!r} in {names[number]}; expected one "
                "class a pixel. Correct one of the sources."
            )
        fresh = (out == _NONE) & (part != _NONE)
        out[fresh], owner[fresh] = part[fresh], number
    return out
