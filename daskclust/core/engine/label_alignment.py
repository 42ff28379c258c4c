"""Join label vectors with each other, or with their rows, block by block."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from dask import delayed
from scipy.sparse import csr_array, hstack

from daskclust.core.array_types import Array, Bools
from daskclust.core.engine.blocks import (
    as_matrix,
    check_shape,
    check_vector,
    sparse_block,
    working_dtype,
)
from daskclust.core.engine.opening import is_dask, open_rows, unwrap
from daskclust.core.engine.parallel import compute
from daskclust.core.engine.rows import Rows
from daskclust.core.kernels.sparse import is_sparse
from daskclust.exceptions import ChunkError

#: Label of rows without a label.
_NONE = -1


def missing_labels(labels: Array) -> Bools:
    """Return a mask of missing labels: masked values, NaN, None and pandas' NA."""
    hidden = np.ma.getmaskarray(labels)
    plain = np.ma.getdata(labels)
    if plain.dtype.kind == "f":
        return hidden | np.isnan(plain)
    if plain.dtype.kind != "O":
        return hidden
    pandas = sys.modules.get("pandas")
    if pandas is not None:
        # NA is neither equal nor unequal to any value. It can occur only if pandas is loaded.
        return hidden | np.asarray(pandas.isna(plain), bool)
    try:
        # NaN is the only value that is not equal to itself. NumPy compares without a Python loop.
        is_nan = np.not_equal(plain, plain).astype(bool)
        return hidden | is_nan | np.equal(plain, np.array(None, dtype=object)).astype(bool)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Labels must be integers or strings, got values that cannot be compared ({error})."
        ) from error


def as_label_vector(labels: Any, name: str, *, masked: bool = False) -> Any:
    """Return labels as a one-dimensional NumPy or Dask array of numbers, -1 where missing.

    Other sortable labels, such as strings, are numbered; Dask labels then take one pass.
    Unless `masked`, masked labels and NaN raise ValueError, because -1 would be another class.
    """
    labels = unwrap(labels)
    if not is_dask(labels):
        # Unlike asarray, asanyarray keeps a mask.
        labels = np.asanyarray(labels)
    if labels.ndim != 1:
        raise ValueError(
            f"{name} must have one label per row, shape (n,), got shape {labels.shape}. Use "
            f"{name}.ravel() for a map of labels."
        )
    if labels.dtype.kind in "iub":
        return labels if is_dask(labels) else _whole(labels, name, np.dtype(np.int64), masked)
    if labels.dtype.kind == "f":
        to_integers = partial(_whole, name=name, dtype=np.dtype(np.int64), masked=masked)
        return by_block(labels, to_integers)
    names = distinct(labels, name, masked=masked)
    return by_block(labels, partial(_numbered, names=names))


def distinct(labels: Any, name: str, *, masked: bool = False) -> Array:
    """Return the distinct labels, sorted; Dask labels take one pass."""
    if not is_dask(labels):
        return _distinct(labels, name, masked)
    by_chunk = [delayed(_distinct)(block, name, masked) for block in labels.to_delayed().ravel()]
    return _sorted(np.concatenate(compute("names of labels", *by_chunk)), name)


def _sorted(names: Array, name: str) -> Array:
    try:
        return np.unique(names)
    except TypeError as error:
        raise ValueError(
            f"{name} must contain only integers or only strings, got labels that cannot be "
            f"sorted ({error})."
        ) from error


def _distinct(labels: Array, name: str, masked: bool) -> Array:
    return _sorted(np.asarray(np.ma.getdata(labels))[_present(labels, name, masked)], name)


def by_block(labels: Any, function: Callable[[Array], Array]) -> Any:
    """Apply a function that returns integers to labels, block by block."""
    return labels.map_blocks(function, dtype=np.int64) if is_dask(labels) else function(labels)


def _numbered(labels: Array, names: Array) -> Array:
    hidden = missing_labels(labels)
    numbers = np.full(len(labels), _NONE)
    positions = np.searchsorted(names, np.ma.getdata(labels)[~hidden])
    # Numbers of dtype object, such as a column with missing values, keep their values.
    items = names.tolist()
    if items and all(
        isinstance(item, int | float) and not isinstance(item, bool) for item in items
    ):
        positions = _whole(np.array(items), "The array of labels", np.dtype(np.int64), False)[
            positions
        ]
    numbers[~hidden] = positions
    return numbers


def _present(labels: Array, name: str, masked: bool) -> Bools:
    hidden = missing_labels(labels)
    if not masked and hidden.any():
        count = f"{int(hidden.sum())} of {len(labels)} here"
        what = "is a masked array with masked labels" if np.ma.is_masked(labels) else "has NaN"
        raise ValueError(
            f"{name} must have a label in each row, but it {what} ({count}). Use "
            "ignore_masked=True if the function has this argument, or remove these rows."
        )
    return ~hidden


def _whole(labels: Array, name: str, dtype: np.dtype[Any], masked: bool) -> Array:
    """Return labels as integers of ``dtype``, -1 for missing labels; raise on other values."""
    present = _present(labels, name, masked)
    if not present.all():
        out = np.full(len(labels), _NONE, dtype)
        out[present] = _whole(np.ma.getdata(labels)[present], name, dtype, masked)
        return out
    labels = np.asarray(labels)
    is_integer = np.isfinite(labels) & (labels == np.floor(labels))
    if not is_integer.all():
        bad = labels[~is_integer][0]
        raise ValueError(f"{name} must contain integers, -1 for masked rows, got {bad}.")
    too_large = (labels >= 2.0**63) | (labels < -(2.0**63)) if labels.dtype.kind in "uf" else None
    if too_large is not None and too_large.any():
        raise ValueError(
            f"{name} must contain integers below 2**63, got {labels[too_large][0]}. Number the "
            "classes from 0."
        )
    out = labels.astype(dtype)
    if labels.size and dtype.kind == "f" and (out.astype(np.int64) != labels).any():
        raise ValueError(
            f"{name} must contain integers that {dtype} can represent, got "
            f"{labels[out.astype(np.int64) != labels][0]}. Number the classes from 0."
        )
    return out


def _columns(
    first: Any,
    labels: Array,
    width: int | None,
    name: str,
    dtype: Any,
    masked: bool,
    sparse: bool = False,
) -> Any:
    if width is None:
        check_vector(first, "labels_true")
    else:
        # A block of an expression array is in a list along its single chunk of columns.
        first = first[0] if isinstance(first, list) else first
        first = sparse_block(first, 0) if sparse else first
        check_shape(first, 0, width)
    check_vector(labels, name)
    if len(first) != len(labels):
        raise ChunkError(
            f"Arrays must have the same length and chunks, got a block of {len(first)} rows with "
            f"{len(labels)} {name}. Give both the same chunks."
        )
    to_integers = partial(_whole, dtype=dtype, masked=masked)
    first = to_integers(first, "labels_true") if width is None else as_matrix(first, dtype)
    if sparse:
        column = csr_array(to_integers(labels, name)[:, None])
        return hstack([first.matrix(), column], format="csr")
    return np.column_stack([first, to_integers(labels, name)])


def aligned_labels(first: Any, second: Any, names: tuple[str, str]) -> tuple[Any, Any]:
    """Return two arrays of equal length; if an array is lazy, both have the same chunks."""
    n, m = first.shape[0], second.shape[0]
    unknown = [bool(np.isnan(length)) for length in (n, m)]
    if not any(unknown) and n != m:
        raise ValueError(
            f"{names[0]} and {names[1]} must have the same length, got {n} and {m} rows."
        )
    if not (is_dask(first) or is_dask(second)):
        return first, second
    if not is_dask(first):
        first = _like(first, second, names)
    elif not is_dask(second):
        second = _like(second, first, names)
    elif not any(unknown):
        second = second.rechunk((first.chunks[0], *second.chunks[1:]))
    elif first.numblocks[0] != second.numblocks[0]:
        raise ChunkError(
            f"{names[0]} has {first.numblocks[0]} chunks and {names[1]} has "
            f"{second.numblocks[0]}, of unknown length, so their rows cannot be matched. Use "
            "compute_chunk_sizes() on both, or to_dask_array(lengths=True) on a Dask DataFrame."
        )
    return first, second


def _like(array: Array, other: Any, names: tuple[str, str]) -> Any:
    if np.isnan(other.shape[0]):
        raise ChunkError(
            f"{names[0]} or {names[1]} has chunks of unknown length, so its rows cannot be matched "
            "with an array in memory. Use compute_chunk_sizes(), or to_dask_array(lengths=True) on "
            "a Dask DataFrame."
        )
    chunks = other.chunks[0], *((-1,) * (array.ndim - 1))
    return da.from_array(array, chunks=chunks, asarray=False if is_sparse(array) else None)


def _append_labels(
    first: Any, labels: Any, n_columns: int, name: str, dtype: np.dtype[Any], masked: bool
) -> Any:
    width = None if first.ndim == 1 else first.shape[1]
    sparse = is_sparse(first)
    if not is_dask(first):
        return _columns(first, labels, width, name, dtype, masked, sparse)
    if first.ndim == 2 and first.numblocks[1] > 1:
        first = first.rechunk({1: -1})
    return da.blockwise(
        partial(_columns, width=width, name=name, dtype=dtype, masked=masked, sparse=sparse),
        "ik",
        first,
        "ij" if first.ndim == 2 else "i",
        labels,
        "i",
        dtype=dtype,
        new_axes={"k": n_columns},
        align_arrays=False,
        concatenate=False,
        meta=csr_array((0, 0), dtype=dtype) if sparse else np.empty((0, 0), dtype),
        # A prefix, not a name: expression arrays with a fixed name are not lowered.
        token="daskclust-labels",
    )


def open_label_pairs(labels_true: Any, labels_pred: Any, *, masked: bool = False) -> Rows:
    """Open two vectors of :func:`as_label_vector` as columns of rows, with equal chunks."""
    first, second = aligned_labels(labels_true, labels_pred, ("labels_true", "labels_pred"))
    return open_rows(_append_labels(first, second, 2, "labels_pred", np.dtype(np.float64), masked))


def open_labeled_rows(
    X: Any, labels: Any, sample_weight: Any = None, *, masked: bool = False
) -> Rows:
    """Open rows with their labels of :func:`as_label_vector` as an additional last column."""
    X, labels = aligned_labels(X, labels, ("X", "labels"))
    dtype = working_dtype(X.dtype)
    return open_rows(
        _append_labels(X, labels, X.shape[1] + 1, "labels", dtype, masked), sample_weight
    )
