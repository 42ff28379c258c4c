"""Profiles and rules from one sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from daskclust.explain._data import open_labeled
from daskclust.explain._profiles import Profiles, profiles_of, sample_labeled
from daskclust.explain._rules import Rules, rules_of

__all__ = ["explained"]


def explained(
    model: Any, X: Any, features: Sequence[str] | None = None
) -> tuple[Profiles, Rules | None]:
    """Find profiles and rules together, in three passes.

    Parameters
    ----------
    model : fitted estimator
    X : array-like, dask.array.Array, DataFrame or Cube of shape (n, p)
    features : sequence of str, optional
        Names of the columns, where X has none.

    Returns
    -------
    rules : Rules or None
        None where all rows are of one cluster.
    """
    data = open_labeled(model, X, features=features)
    sample = sample_labeled(data)
    told = rules_of(data, sample) if len(sample.labels) > 1 else None
    return profiles_of(data, sample), told
