"""Two label maps of one place: which classes are the same, and how much land changed its class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from daskclust._types import Floats, Ints
from daskclust.colors import Legend
from daskclust.cube._images import Image
from daskclust.cube.areas import areas_of
from daskclust.cube.label_images import resampled
from daskclust.cube.label_map import LabelMap

#: A pair of codes is one number: the new one and this many times the old one, both plus 1.
_BASE = 2**31
#: Pairs of classes that are compared.
_MOST_PAIRS = 2**22
#: Color of what did not change.
_SAME_COLOR = "#d9d9d9"


@dataclass(frozen=True)
class Changes:
    """What became of each class of a map.

    Attributes
    ----------
    compared_by : str
        ``"name"``, ``"code"``, or ``"overlap"``: the one-to-one matching of most shared pixels.
    legend : Legend
        Of the m classes of both maps: those of the old one, then new ones without an old one.
    new_codes : dict of int
        Code in the new map, by code; what the new map has not is not there.
    new_names : dict of str
    pixels : ndarray of shape (m, m), int64
        Pixels of each class of the old map (down) that have each class of the new one (across).
    square_meters : ndarray of shape (m, m) or None
        None where the maps have no coordinate system.
    only_old, only_new : int
        Pixels that have a class in one of the maps only; they are compared with nothing.
    matched : LabelMap
        The new map with the codes, names and colors of the old one.
    changed : LabelMap
        0 where the class is the same, else a number for each transition, the most frequent first.
    """

    compared_by: str
    legend: Legend
    new_codes: dict[int, int]
    new_names: dict[int, str]
    pixels: Ints
    square_meters: Floats | None
    only_old: int
    only_new: int
    matched: LabelMap
    changed: LabelMap

    @property
    def unchanged(self) -> float:
        """Share of the pixels that both maps know and that kept their class."""
        return float(np.trace(self.pixels) / max(1, self.pixels.sum()))

    def transitions(self) -> list[tuple[int, int]]:
        """Return places of the old and the new class of each change, the most frequent first."""
        return _transitions(self.pixels)


def compare_maps(
    old: LabelMap, new: LabelMap, *, match: str = "auto", resample: bool = False
) -> Changes:
    """Compare two label maps of one grid.

    Parameters
    ----------
    match : {"auto", "name", "code", "overlap"}, default="auto"
        Which classes are the same: those of one name, those of one code, or those that share
        most pixels, one to one.  "auto": by name where both maps name classes, by code where
        neither names any, else by overlap.
    resample : bool, default=False
        Whether a new map of another grid is brought to the old one's by the nearest pixel.

    Raises
    ------
    ValueError
        The maps lie elsewhere, have no pixel in common, or no class in common by name or code.

    Notes
    -----
    One pass.  The maps of the result are lazy.

    Examples
    --------
    >>> names = {0: "water", 1: "wheat"}
    >>> old = LabelMap(np.array([[0, 0], [1, 1]]), names=names)
    >>> new = LabelMap(np.array([[5, 4], [4, 4]]), names={4: "wheat", 5: "water"})
    >>> found = compare_maps(old, new)
    >>> found.compared_by, found.pixels.tolist(), found.unchanged
    ('name', [[1, 1], [0, 2]], 0.75)
    """
    new = _on_grid(old, new, resample)
    pairs = da.map_blocks(
        _pair, old.values, new.values, dtype=np.int64, meta=np.empty((0, 0), np.int64)
    )
    where = LabelMap(pairs, place=old.georeference, dimension_names=old.dimension_names)
    table = areas_of(where)
    of_pairs = np.array([row.code for row in table], np.int64)
    mine, theirs = of_pairs // _BASE - 1, of_pairs % _BASE - 1
    size = np.array([row.pixels for row in table], np.int64)
    both = (mine >= 0) & (theirs >= 0)
    if not both.any():
        raise ValueError("No pixel has a class in both maps, so there is nothing to compare.")
    olds = sorted({*old.names, *mine[mine >= 0].tolist()})
    news = sorted({*new.names, *theirs[theirs >= 0].tolist()})
    if len(olds) * len(news) > _MOST_PAIRS:
        raise ValueError(
            f"{len(olds)} old and {len(news)} new classes are more than {_MOST_PAIRS} pairs to "
            "compare; expected maps of classes, not of segments."
        )
    counts = np.zeros((len(olds), len(news)), np.int64)
    at = np.searchsorted(olds, mine[both]), np.searchsorted(news, theirs[both])
    counts[at] = size[both]
    one, other = Legend.of(olds, old.names, old.colors), Legend.of(news, new.names, new.colors)
    by = _way(old, new, one, other) if match == "auto" else match
    partner = _partners(by, one, other, counts)
    # New classes without an old one follow the old ones.
    free = np.flatnonzero(partner < 0)
    partner[free] = len(olds) + np.arange(len(free))
    names = [*one.names]
    for name in (other.names[place] for place in free.tolist()):
        names.append(f"{name} (new)" if name in names else name)
    codes = (*olds, *range(olds[-1] + 1, olds[-1] + 1 + len(free)))
    colors = (*one.colors, *Legend.of(codes).colors[len(olds) :])
    legend = Legend(codes, tuple(names), colors)
    wanted = [codes[place] for place in partner.tolist()]
    m = len(codes)
    pixels = np.zeros((m, m), np.int64)
    pixels[at[0], partner[at[1]]] = size[both]
    areas = None
    if table[0].square_meters is not None:
        areas = np.zeros((m, m))
        meters = np.array([row.square_meters for row in table], dtype=np.float64)
        areas[at[0], partner[at[1]]] = meters[both]
    moves = _transitions(pixels)
    number = {move: 1 + place for place, move in enumerate(moves)}
    kinds = np.full(len(table), -1)
    ends = zip(at[0].tolist(), partner[at[1]].tolist(), strict=True)
    kinds[both] = [0 if a == b else number[a, b] for a, b in ends]
    return Changes(
        by,
        legend,
        dict(zip(wanted, news, strict=True)),
        dict(zip(wanted, other.names, strict=True)),
        pixels,
        areas,
        int(size[theirs < 0].sum()),
        int(size[mine < 0].sum()),
        _recoded(new, news, wanted, legend),
        _recoded(where, of_pairs.tolist(), kinds.tolist(), _of_moves(moves, legend)),
    )


def _pair(old: NDArray[Any], new: NDArray[Any]) -> Ints:
    for values in (old, new):
        if values.size and values.max() >= _BASE - 1:
            raise ValueError(f"A map holds {values.max()}; expected codes below {_BASE - 1}.")
    pairs = (old.astype(np.int64) + 1) * _BASE + (new.astype(np.int64) + 1)
    return np.where(pairs == 0, -1, pairs)


def _on_grid(old: LabelMap, new: LabelMap, resample: bool) -> LabelMap:
    """Return the new map on the grid and in the blocks of the old one."""
    wrong = old.georeference.differences(new.georeference, whose="the first one's")
    if new.shape != old.shape:
        wrong = [f"it has {new.shape} pixels, the first one {old.shape}", *wrong]
    values = new.values
    if wrong and not resample:
        raise ValueError(
            f"The second map lies elsewhere than the first: {'; '.join(wrong)}. To take the "
            "nearest of its pixels for each of the first map's, use --resample."
        )
    if wrong:
        image = Image(values, (-1,), new.georeference, names=new.dimension_names)
        chunks = old.values.chunks
        found = resampled("the second map", image, old.grid, chunks, to="the first map")
        values = found.values
    return LabelMap(
        values.rechunk(old.values.chunks),
        names=new.names,
        colors=new.colors,
        place=old.georeference,
        dimension_names=old.dimension_names,
    )


def _way(old: LabelMap, new: LabelMap, one: Legend, other: Legend) -> str:
    if not old.names and not new.names:
        return "code"
    named = [
        bool(each.names) and not legend.is_of_clusters
        for each, legend in ((old, one), (new, other))
    ]
    return "name" if all(named) else "overlap"


def _partners(by: str, one: Legend, other: Legend, counts: Ints) -> Ints:
    """Return the place of the old class of each new one, -1 for none."""
    out = np.full(len(other.codes), -1, np.int64)
    if by == "overlap":
        rows, columns = linear_sum_assignment(counts, maximize=True)
        shared = counts[rows, columns] > 0
        out[columns[shared]] = rows[shared]
        return out
    # Attributes of CF have no blanks in names.
    plain = (lambda name: "_".join(name.split())) if by == "name" else (lambda code: code)
    mine: Sequence[Any] = one.names if by == "name" else one.codes
    theirs: Sequence[Any] = other.names if by == "name" else other.codes
    places = {plain(key): at for at, key in enumerate(mine)}
    for at, key in enumerate(theirs):
        out[at] = places.pop(plain(key), -1)
    if (out < 0).all():
        raise ValueError(
            f"The maps have no class in common by {by}: {list(mine)[:10]} and "
            f"{list(theirs)[:10]}. Compare them by --match overlap, or give the same names."
        )
    return out


def _transitions(pixels: Ints) -> list[tuple[int, int]]:
    moved = pixels.copy()
    np.fill_diagonal(moved, 0)
    order = np.argsort(-moved, axis=None, kind="stable")[: np.count_nonzero(moved)]
    return list(zip(*(part.tolist() for part in np.unravel_index(order, moved.shape)), strict=True))


def _recoded(
    label_map: LabelMap, keys: Sequence[int], values: Sequence[int], legend: Legend
) -> LabelMap:
    """Return a map with other codes in the place of its own, which ascend."""
    own = Legend.of(()).of_labels(np.array([-1, *keys]), np.array([-1, *values]))
    return LabelMap(
        own.encode(label_map.values),
        names=legend.by_code,
        colors=legend.color_by_code,
        place=label_map.georeference,
        dimension_names=label_map.dimension_names,
    )


def _of_moves(moves: Sequence[tuple[int, int]], legend: Legend) -> Legend:
    """Return the legend of transitions: each has the color of what it led to."""
    names = ["unchanged", *(f"{legend.names[a]} -> {legend.names[b]}" for a, b in moves)]
    colors = [_SAME_COLOR, *(legend.colors[b] for _, b in moves)]
    return Legend(tuple(range(len(names))), tuple(names), tuple(colors))
