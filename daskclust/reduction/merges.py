"""How two arrays of a partial are merged: the :class:`Merge` and the kinds used most.

A merge is data, as a reduction is: a name, a neutral element and an associative
rule.  An algorithm that needs another kind makes its own instance; nothing else has
to know it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.kernels.compensated import add_pairs
from daskclust.kernels.moments import merge_moments

__all__ = [
    "COUNT",
    "MAX",
    "MERGES",
    "MIN",
    "MOMENTS",
    "SUM",
    "TOP",
    "Merge",
    "smallest_keys",
    "top_dtype",
]


@dataclass(frozen=True)
class Merge:
    """A rule by which two arrays become one: a commutative monoid, up to rounding.

    :func:`daskclust.testing.check_merge_laws` tests what is asked of it.

    Parameters
    ----------
    name : str
        For messages.
    identity : callable(shape, dtype) -> ndarray
        The neutral element.  An axis whose length the data decide is 0 long.
    combine : callable(a, b) -> ndarray
        Associative and commutative; writes to neither.  A function of a module, so
        that it can be pickled.

    Examples
    --------
    >>> import numpy as np
    >>> product = Merge("product", np.ones, np.multiply)
    >>> product.combine(product.identity((2,), float), np.array([2.0, 3.0]))
    array([2., 3.])
    """

    name: str
    identity: Callable[[tuple[int, ...], Any], NDArray[Any]]
    combine: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]


def top_dtype(p: int) -> np.dtype:
    """Record of a chosen row: its key, its global number (-1 = none) and its values.

    Examples
    --------
    >>> top_dtype(3).names
    ('key', 'row', 'x')
    """
    return np.dtype([("key", np.float64), ("row", np.int64), ("x", np.float64, (p,))])


def smallest_keys(records: NDArray[Any], count: int) -> NDArray[Any]:
    """Return the ``count`` records of smallest key, ties by row number, along the last axis.

    Parameters
    ----------
    records : structured ndarray of shape (..., m)
        Of :func:`top_dtype`.
    count : int
        At most m.
    """
    if not len(records):
        return records[..., :count]
    if records.ndim == 1:
        order = np.lexsort((records["row"], records["key"]))[:count]
        return records[order]
    return np.stack([smallest_keys(part, count) for part in records])


def _sum(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    return np.stack(add_pairs((a[0], a[1]), (b[0], b[1])))


def _highest(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    kind = np.dtype(dtype)
    return np.full(shape, np.inf if kind.kind == "f" else np.iinfo(kind).max, kind)


def _lowest(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    kind = np.dtype(dtype)
    return np.full(shape, -np.inf if kind.kind == "f" else np.iinfo(kind).min, kind)


def _no_rows(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    empty = np.zeros(shape, dtype)
    empty["key"] = np.inf
    empty["row"] = -1
    return empty


def _top(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    return smallest_keys(np.concatenate([a, b], axis=-1), a.shape[-1])


#: Unevaluated pairs ``hi + lo``, so the first axis is 2 long: the total does not depend on the
#: order of merging.
SUM = Merge("sum", np.zeros, _sum)
#: Unsigned integers, summed modulo their range.
COUNT = Merge("count", np.zeros, np.add)
#: Rows weight, mean and squared deviations.
MOMENTS = Merge("moments", np.zeros, merge_moments)
MIN = Merge("min", _highest, np.minimum)
MAX = Merge("max", _lowest, np.maximum)
#: Records of :func:`top_dtype`, of which the smallest keys stay.
TOP = Merge("top", _no_rows, _top)

#: Kinds that may be given by name.
MERGES = {merge.name: merge for merge in (SUM, COUNT, MOMENTS, MIN, MAX, TOP)}
