"""Columns of tables that do not contain numbers, and error messages with their names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from daskclust.core.engine import number_type
from daskclust.core.estimator.arrow import is_list_type

#: Data types of dates and durations, in the spelling of pandas, polars and Arrow.
_TIMES = re.compile(r"date|time|duration|period", re.IGNORECASE)
#: Data types of categories.
_CATEGORIES = re.compile(r"categor|dictionary|enum", re.IGNORECASE)
_ENCODE = (
    "Encode it, for example by sklearn.preprocessing.OneHotEncoder, or omit it. See the page "
    "how-to/tables."
)


def _columns_of(X: Any) -> Iterator[tuple[Any, Any]]:
    """Yield names and columns of a table of pandas, polars, Arrow or Dask, or of a single column.

    Other objects have no columns.
    """
    if getattr(X, "ndim", 0) == 1 and hasattr(X, "name"):
        yield X.name, X
    elif hasattr(X, "column_names"):
        yield from ((name, X.column(i)) for i, name in enumerate(X.column_names))
    elif hasattr(X, "iloc") and getattr(X, "ndim", 0) == 2:
        yield from ((name, X.iloc[:, i]) for i, name in enumerate(X.columns))
    elif hasattr(X, "columns"):
        yield from ((name, X[name]) for name in X.columns)
    elif hasattr(X, "to_numpy"):  # a column of polars or Arrow
        yield getattr(X, "name", None), X


def _type_of(column: Any) -> str:
    kind = getattr(column, "dtype", None)
    return str(getattr(column, "type", None) if kind is None else kind)


def check_dates(X: Any) -> None:
    """Raise ValueError for the first column of dates or times, which NumPy converts to numbers."""
    for name, column in _columns_of(X):
        kind = _type_of(column)
        if _TIMES.search(kind) and not _CATEGORIES.search(kind):
            raise ValueError(
                f"The column {name!r} must contain numbers, got dates or times ({kind}). Convert "
                "it, for example to days since the first date, or omit it. See the page "
                "how-to/tables."
            )


def check_lazy_columns(X: Any) -> None:
    """Raise ValueError for the first column of a Dask table with a non-numeric data type."""
    for name, column in _columns_of(X):
        if number_type(column.dtype) is not None:
            continue
        kind = _type_of(column)
        if _CATEGORIES.search(kind):
            raise ValueError(f"The column {name!r} must contain numbers, got categories. {_ENCODE}")
        # Dask converts pandas objects, such as lists, to text.
        raise ValueError(
            f"The column {name!r} must contain numbers, got text or lists ({kind}). {_ENCODE} For "
            "lists see the page how-to/embeddings."
        )


def column_at_fault(X: Any) -> str | None:
    """Return the message for the first column that cannot be converted to numbers, or None."""
    for name, column in _columns_of(X):
        try:
            values = np.asarray(column)
            if values.astype(np.float64).ndim == 1 or column is X:
                continue
        except (TypeError, ValueError):
            pass
        return _message(name, column, _first_non_number(values))
    return None


def _first_non_number(values: Any) -> Any:
    """Return the first value that is not a number, or None."""
    for value in values:
        try:
            float(value)
        except (TypeError, ValueError):
            if value is not None:
                return value
    return None


def _message(name: Any, column: Any, example: Any) -> str:
    kind = _type_of(column)
    subject = "X" if name is None else f"The column {name!r}"
    if is_list_type(kind) or isinstance(example, list | tuple) or np.ndim(example):
        return (
            f"{subject} must contain numbers, got lists. To use each list as a row of features, "
            f"pass the column alone, X[{name!r}]. See the page how-to/embeddings."
        )
    content = "categories" if _CATEGORIES.search(kind) else "text"
    if not isinstance(example, str):
        content = f"a {type(example).__name__}"
    return f"{subject} must contain numbers, got {content}, such as {str(example)!r}. {_ENCODE}"
