"""Types of parameters that are one of a few words, so that editors complete them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from numpy.typing import ArrayLike

__all__ = ["Init", "InitWithLabels", "InitWithPairs", "Missing", "Views"]

_Drawn = Literal["k-means||", "k-means++", "random", "maximin", "dkm++", "robin"]
_Paired = Literal["auto", "ss-k-means||", "ss-k-means++", "neighborhoods"]
_View = Literal["raw", "standard", "angle", "whitened", "mean", "mixture", "pckid"]

#: First centers of estimators that know nothing but rows.
Init = _Drawn | ArrayLike | Callable[..., Any]
#: Of estimators that know pairs of rows.
InitWithPairs = _Paired | _Drawn | ArrayLike | Callable[..., Any]
#: Of estimators that know some labels.
InitWithLabels = (
    Literal["ss-k-means||", "ss-k-means++", "seeded-random"] | ArrayLike | Callable[..., Any]
)
#: Whether NaN is an error or a value that is not known.
Missing = Literal["error", "partial"]
#: Spaces in which prototypes are compared.
Views = Literal["auto"] | _View | tuple[_View, ...]
