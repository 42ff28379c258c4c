"""Columns of tables that are not numbers, and messages that name them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from daskclust.core.engine import number_type

#: Data types of dates and durations, as pandas, polars and Arrow write them.
_TIMES = re.compile(r"date|time|duration|period", re.IGNORECASE)
#: Data types of categories and of lists.
_CATEGORIES = re.compile(r"categor|dictionary|enum", re.IGNORECASE)
_LISTS = re.compile(r"list|array", re.IGNORECASE)
_ENCODE = (
    "Encode it, for example by sklearn.preprocessing.OneHotEncoder, or leave it out. See the page "
    "how-to/tables."
)


def _columns_of(X: Any) -> Iterator[tuple[Any, Any]]:
    """Return names and columns of a table of pandas, polars, Arrow or Dask, or of one column.

    Anything else has none.
    """
    if getattr(X, "ndim", 0) == 1 and hasattr(X, "name"):
        yield X.name, X
    elif hasattr(X, "column_names"):
        yield from ((name, X.column(at)) for at, name in enumerate(X.column_names))
    elif hasattr(X, "iloc") and getattr(X, "ndim", 0) == 2:
        yield from ((name, X.iloc[:, at]) for at, name in enumerate(X.columns))
    elif hasattr(X, "columns"):
        yield from ((name, X[name]) for name in X.columns)
    elif hasattr(X, "to_numpy"):  # a column of polars or Arrow
        yield getattr(X, "name", None), X


def _type_of(column: Any) -> str:
    kind = getattr(column, "dtype", None)
    return str(getattr(column, "type", None) if kind is None else kind)


def check_dates(X: Any) -> None:
    """Raise for the first column of dates or times, which NumPy would take for numbers."""
    for name, column in _columns_of(X):
        kind = _type_of(column)
        if _TIMES.search(kind) and not _CATEGORIES.search(kind):
            raise ValueError(
                f"The column {name!r} holds dates or times ({kind}); expected numbers. Make "
                "numbers of it, such as days since the first, or leave it out. See the page "
                "how-to/tables."
            )


def check_lazy_columns(X: Any) -> None:
    """Raise for the first column of a Dask table that is not of numbers, by its data type."""
    for name, column in _columns_of(X):
        if number_type(column.dtype) is not None:
            continue
        kind = _type_of(column)
        if _CATEGORIES.search(kind):
            raise ValueError(f"The column {name!r} holds categories; expected numbers. {_ENCODE}")
        # Dask makes text of what pandas holds as objects, such as lists.
        raise ValueError(
            f"The column {name!r} holds text, or lists, as {kind}; expected numbers. {_ENCODE} For "
            "lists see the page how-to/embeddings."
        )


def column_at_fault(X: Any) -> str | None:
    """Say which column of a table cannot be converted to numbers, and what to do; else None."""
    for name, column in _columns_of(X):
        try:
            values = np.asarray(column)
            if values.astype(np.float64).ndim == 1 or column is X:
                continue
        except (TypeError, ValueError):
            pass
        return _message(name, column, _no_number(values))
    return None


def _no_number(values: Any) -> Any:
    """Return the first value that is not a number; None if there is none."""
    for value in values:
        try:
            float(value)
        except (TypeError, ValueError):
            if value is not None:
                return value
    return None


def _message(name: Any, column: Any, example: Any) -> str:
    kind = _type_of(column)
    head = "X holds" if name is None else f"The column {name!r} holds"
    if _LISTS.search(kind) or isinstance(example, list | tuple) or np.ndim(example):
        return (
            f"{head} lists; expected numbers. To use each list as a row of features, pass the "
            f"column alone, X[{name!r}]. See the page how-to/embeddings."
        )
    what = "categories" if _CATEGORIES.search(kind) else "text"
    if not isinstance(example, str):
        what = f"a {type(example).__name__}"
    return f"{head} {what}, such as {str(example)!r}; expected numbers. {_ENCODE}"
