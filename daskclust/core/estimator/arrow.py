"""Rows from Arrow and from columns of lists: polars, pandas, pyarrow, DuckDB and Dask.

Each conversion uses Arrow, which creates no Python object per value.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from numpy.typing import NDArray

#: Number of bytes of row groups of a Dataset that one task reads.
_PIECE_BYTES = 2**25
#: Start of the names of data types whose values are lists.
_LISTS = ("list", "large_list", "fixed_size_list", "List", "Array")


def is_list_type(kind: Any) -> bool:
    """Return True if the values of a data type of pandas, polars or Arrow are lists.

    >>> is_list_type("list<item: float>[pyarrow]"), is_list_type("map<string, int64>")
    (True, False)
    """
    return str(kind).startswith(_LISTS)


def list_size(kind: Any) -> int | None:
    """Return the length of all lists of an Arrow type; None if the type does not state it."""
    size = getattr(kind, "list_size", None)
    return None if size is None else int(size)


def matrix_of_lists(column: Any, name: Any, size: int | None = None) -> NDArray[Any]:
    """Return a column of lists of numbers as an array (n, `size`).

    Parameters
    ----------
    column : column of pandas, polars or Arrow
        Lists of `size` numbers; by default, as many as the type states or the first list has.
    name : object
        Name of the column, for messages.

    Raises
    ------
    ValueError
        If a list is missing, has another length or a missing value, or does not consist of numbers.
    """
    import pyarrow

    kind = f"The column {name!r} must contain lists of numbers"
    arrow = column.to_arrow() if hasattr(column, "to_arrow") else column
    if not isinstance(arrow, pyarrow.Array | pyarrow.ChunkedArray):
        try:
            arrow = pyarrow.array(column)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
            raise ValueError(f"{kind}, got other values: {error}.") from error
    if isinstance(arrow, pyarrow.ChunkedArray):
        arrow = arrow.combine_chunks()
    sizes = arrow.value_lengths().to_numpy(zero_copy_only=False)
    if size is None:
        present = sizes[~np.isnan(sizes)] if sizes.dtype.kind == "f" else sizes
        size = list_size(arrow.type) or int(next(iter(present), 0))
    complete = sizes == size  # NaN for a missing list
    if not complete.all():
        row = int(np.argmin(complete))
        content = "no list" if arrow[row].as_py() is None else f"{sizes[row]:.0f} numbers"
        raise ValueError(
            f"{kind}, {size} per list, got {content} in row {row} of a block. Remove such "
            "rows. See the page how-to/embeddings."
        )
    values = arrow.flatten()
    if values.null_count:
        raise ValueError(
            f"{kind}, got missing values in lists. Remove such rows. See the "
            "page how-to/embeddings."
        )
    matrix: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    if len(matrix) and matrix.dtype.kind not in "fiu":
        raise ValueError(f"{kind}, got lists of {values.type}. See the page how-to/embeddings.")
    return matrix.reshape(len(arrow), size)


def _only_column(X: Any) -> tuple[Any, Any] | None:
    """Return name and column of a table with one column, or of a column; otherwise None."""
    if hasattr(X, "column_names"):  # pyarrow.Table
        return (X.column_names[0], X.column(0)) if X.num_columns == 1 else None
    if hasattr(X, "columns"):
        names = list(X.columns)
        if getattr(X, "ndim", 2) != 2 or len(names) != 1:
            return None
        return names[0], X[names[0]]
    is_column = hasattr(X, "to_pylist") or (hasattr(X, "name") and hasattr(X, "to_numpy"))
    return (getattr(X, "name", None), X) if is_column else None


def _has_lists(column: Any) -> bool:
    kind = getattr(column, "dtype", None)
    if kind is None:
        kind = getattr(column, "type", None)
    if is_list_type(kind):
        return True
    if str(kind) != "object" or not hasattr(column, "iloc"):
        return False
    present = column.dropna()
    first = present.iloc[0] if len(present) else None
    return isinstance(first, list | tuple) or (isinstance(first, np.ndarray) and first.ndim == 1)


def first_lists(column: Any) -> Any:
    """Return the first list of a Dask column; read partitions until one has a list."""
    for number in range(column.npartitions):
        present = column.get_partition(number).dropna().head(1)
        if len(present):
            return present
    return column.head(0)


def _lazy_lists(X: Any) -> Any:
    """Return a column of lists of a Dask frame as a lazy array, and any other frame unchanged."""
    names = [X.name] if X.ndim == 1 else list(X.columns)
    column = X if X.ndim == 1 else X[names[0]]
    is_object = str(column.dtype) == "object"
    if len(names) != 1 or not (is_list_type(column.dtype) or is_object):
        return X
    size = list_size(getattr(column.dtype, "pyarrow_dtype", None))
    head = column.head(0) if size is not None else first_lists(column)
    if not _has_lists(head):
        return X
    # Lists of Python numbers may be integers in one partition and not in another.
    dtype = np.dtype(np.float64) if is_object else None
    first = _rows_of_lists(head, name=names[0], size=size, dtype=dtype)
    read = partial(_rows_of_lists, name=names[0], size=first.shape[1], dtype=dtype)
    blocks = [
        da.from_delayed(dask.delayed(read)(partition), (np.nan, first.shape[1]), meta=first[:0])
        for partition in column.to_delayed()
    ]
    return da.concatenate(blocks, allow_unknown_chunksizes=True)


def _rows_of_lists(
    column: Any, name: Any, size: int | None, dtype: np.dtype[Any] | None
) -> NDArray[Any]:
    rows = matrix_of_lists(column, name, size)
    return rows if dtype is None else rows.astype(dtype, copy=False)


def _index_of(schema: Any) -> list[Any]:
    """Return pandas' description of the index: names of columns, or ranges that have no column."""
    return list((schema.pandas_metadata or {}).get("index_columns", []))


def _frame_of(piece: Any, columns: list[str] | None = None, *, schema: Any) -> Any:
    """Read a piece as a pandas table with the index that pandas stored."""
    import pandas
    from pyarrow.parquet import ParquetFile

    own = piece.physical_schema
    if columns is not None:
        columns = [*columns, *(name for name in _index_of(own) if isinstance(name, str))]
    if hasattr(piece, "row_groups") and own.equals(schema):
        # Arrow's scanner would return one chunk per row group, which costs another copy.
        with ParquetFile(piece.open(), metadata=piece.metadata) as file:
            groups = [group.id for group in piece.row_groups]
            table = file.read_row_groups(groups, columns, use_threads=False)
    else:
        table = piece.to_table(schema=schema, columns=columns, use_threads=False)
    return table.replace_schema_metadata(own.metadata).to_pandas(types_mapper=pandas.ArrowDtype)


def _is_counted(described: Any) -> bool:
    """Return True if the index is 0, 1, ..., which pieces of a file need not store."""
    unnamed = isinstance(described, dict) and described.get("name") is None
    return unnamed and (described["start"], described["step"]) == (0, 1)


def _pieces(fragment: Any) -> list[Any]:
    """Divide a Parquet file into runs of row groups of about 32 MiB; other fragments stay whole."""
    if not hasattr(fragment, "row_groups"):
        return [fragment]
    ranges = [entry for entry in _index_of(fragment.physical_schema) if isinstance(entry, dict)]
    if not all(map(_is_counted, ranges)):
        return [fragment]
    runs: list[list[int]] = []
    size = _PIECE_BYTES
    for group in fragment.row_groups:
        if size + group.total_byte_size > _PIECE_BYTES:
            runs.append([])
            size = 0
        runs[-1].append(group.id)
        size += group.total_byte_size
    # A file without rows may have no row groups.
    return [fragment.subset(row_group_ids=run) for run in runs] or [fragment]


def _check_columns(dataset: Any, fragment: Any) -> None:
    """Raise ValueError if a file lacks a column, which Arrow would read as missing values."""
    from pyarrow.dataset import get_partition_keys

    keys = get_partition_keys(fragment.partition_expression)
    absent = {*dataset.schema.names} - {*fragment.physical_schema.names, *keys}
    if absent:
        raise ValueError(
            "All files of a Dataset must have the columns of its schema, but "
            f"{getattr(fragment, 'path', fragment)!r} has no column {min(absent)!r}. Remove the "
            "file or the column."
        )


def pieces_of(dataset: Any) -> list[Any]:
    """Return the fragments of a Dataset, and runs of row groups of large Parquet files."""
    try:
        fragments = list(dataset.get_fragments())
    except ValueError as error:
        raise ValueError(
            f"X must be a Dataset without a filter or projection: {error} Or pass X.to_table()."
        ) from error
    pieces: list[Any] = []
    for fragment in fragments:
        _check_columns(dataset, fragment)
        pieces += _pieces(fragment)
    if not pieces:
        raise ValueError("X must be a Dataset with at least one file, got no fragments.")
    return pieces


def frame_of_pieces(schema: Any, pieces: list[Any]) -> Any:
    """Return a lazy frame with one partition per piece of a Dataset."""
    import pandas
    from dask.dataframe import from_map

    meta = schema.empty_table().to_pandas(types_mapper=pandas.ArrowDtype)
    read = partial(_frame_of, schema=schema)
    return from_map(read, pieces, meta=meta, label="read-dataset", enforce_metadata=False)


def _read_stream(X: Any) -> Any:
    """Return an object with ``__arrow_c_stream__`` as a pyarrow table."""
    import pyarrow

    table = pyarrow.table(X)
    if not table.num_rows and not hasattr(X, "__len__"):
        raise ValueError(
            f"X must have rows, got none from a {type(X).__name__}. A stream can be read only "
            "once. Pass a table to use the rows again."
        )
    return table


def _is_lazy_polars(X: Any) -> bool:
    return hasattr(X, "collect_schema") and hasattr(X, "collect") and not hasattr(X, "to_numpy")


def _opened(X: Any) -> Any:
    """Return a Dataset on disk as a lazy frame; collect scanners and lazy polars frames."""
    if hasattr(X, "get_fragments") and hasattr(X, "schema"):
        if type(X).__name__ == "InMemoryDataset":
            return X.to_table()
        return frame_of_pieces(X.schema, pieces_of(X))
    if type(X).__name__ == "Scanner" and hasattr(X, "to_reader"):
        return X.to_table()
    return X.collect() if _is_lazy_polars(X) else X


def _with_arrow_lists(frame: Any) -> Any:
    """Convert names to text and Python lists to Arrow lists; Dask would convert lists to text."""
    import pandas
    import pyarrow

    frame = frame.rename(columns=str)
    objects = [name for name, kind in frame.dtypes.items() if str(kind) == "object"]
    lists = [name for name in objects if _has_lists(frame[name])]
    array = pandas.arrays.ArrowExtensionArray
    return frame.assign(**{name: array(pyarrow.array(frame[name])) for name in lists})


def as_lazy_frame(X: Any) -> Any:
    """Return a Dataset, a table in memory, or an Arrow stream as a Dask DataFrame.

    A Dataset and a Dask DataFrame are not read into memory.  Return None for other objects.
    """
    from dask.dataframe import from_pandas

    has_columns = hasattr(X, "columns") or hasattr(X, "column_names")
    is_column = hasattr(X, "to_numpy") and not has_columns
    if is_column or (hasattr(X, "to_dask_array") and X.ndim == 1):
        raise TypeError(
            f"X must be a table, got one column ({type(X).__name__}). Convert it to a table, or "
            "pass the column to the estimator."
        )
    if hasattr(X, "to_dask_array"):
        return X
    if hasattr(X, "iloc"):
        return from_pandas(_with_arrow_lists(X), npartitions=1, sort=False)
    X = _opened(X)
    if hasattr(X, "to_dask_array"):
        return X
    if hasattr(X, "__arrow_c_stream__"):
        import pandas

        table = _read_stream(X).to_pandas(types_mapper=pandas.ArrowDtype)
        return from_pandas(table, npartitions=1, sort=False)
    return None


def as_table(X: Any) -> Any:
    """Return X as a type that estimators check and read.

    - A table of :func:`daskclust.open_table` is its `samples`.
    - A column of lists of numbers, alone or as the only column of a table, is an array (n, p); it
      is lazy for Dask.
    - A pyarrow Dataset is a lazy frame with one partition per fragment, or per run of row groups.
    - A polars LazyFrame, and any other object with ``__arrow_c_stream__``, is read into memory.
    - Other objects are returned unchanged.
    """
    if not (hasattr(X, "iloc") or hasattr(X, "to_dask_array")):
        if hasattr(X, "samples") and hasattr(X, "frame"):
            return X.samples
        X = _opened(X)
        in_memory = hasattr(X, "to_numpy") or hasattr(X, "to_pandas")
        if hasattr(X, "__arrow_c_stream__") and not in_memory:
            X = _read_stream(X)
    if hasattr(X, "to_dask_array"):
        return _lazy_lists(X)
    only = _only_column(X)
    if only is None or not _has_lists(only[1]):
        return X
    return matrix_of_lists(only[1], only[0])
