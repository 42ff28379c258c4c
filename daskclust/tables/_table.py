"""Tables (Parquet, CSV, arrays) as rows for clustering, and labels written beside the rows."""

from __future__ import annotations

import difflib
import glob
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Ints
from daskclust.core.engine import compute, number_type, parts_read_again
from daskclust.core.estimator.arrow import (
    as_lazy_frame,
    first_lists,
    list_size,
    matrix_of_lists,
)
from daskclust.core.storage.files import matching, unanswered
from daskclust.core.storage.npy import NewNpy, NpyOutput
from daskclust.core.storage.outputs import (
    Group,
    Output,
    check_written,
    finite,
    json_text,
    new_group,
)
from daskclust.core.storage.redact import redact, redact_all
from daskclust.core.storage.retry import NEVER_AGAIN, Retries, persistently
from daskclust.core.storage.stored_array import SeenFiles, StoredArray
from daskclust.core.storage.stores import local_path, open_store, url_options
from daskclust.core.warn import warn
from daskclust.exceptions import DaskclustWarning, ReadError
from daskclust.tables._arrays import SHOWN, as_lists, stored_vectors
from daskclust.tables._csv import HEAD_BYTES, Head, HeadError
from daskclust.tables._writing import LabelsFolder, mark, write_part

#: What outputs of labels alone are.
_LABELS = "array of labels"
#: Values that mean no label.
_NONE = -1
#: Bytes of values up to which row groups of Parquet are read together, as one part.
_PART = 32 * 2**20
#: Labels in CSV that are codes; tools that know one type of numbers write 3.0.
_CODE = re.compile(r"(-?(?:0|[1-9]\d{0,17}))(?:\.0*)?")


@dataclass(frozen=True)
class _Vectors:
    """Lists of numbers, all of one length."""

    dtype: np.dtype[Any]
    size: int


@dataclass(frozen=True)
class Table:
    """A table of any size; made by :func:`open_table`.

    Attributes
    ----------
    frame : dask.dataframe.DataFrame
        All columns of the files.
    columns : tuple of str
        Names of the feature columns.
    label_column : str or None
        Name of the column of partial labels.
    """

    frame: Any
    columns: tuple[str, ...]
    label_column: str | None = None
    #: Local files that are read; none for URLs and frames.
    files: tuple[Path, ...] = ()
    #: Names of the items, where the only column is one of lists.
    vectors: _Vectors | None = None
    #: Whether the columns that are not features are text, as in CSV.
    is_text: bool = False
    #: The rows, where they are stored as an array.
    array: Any = None
    #: Types of the features in the files other than the first.
    kinds: tuple[np.dtype[Any], ...] = ()
    #: The files as they were opened: the graph of a fit looks at them anew.
    seen: SeenFiles = field(default_factory=lambda: SeenFiles(()))

    @property
    def n_features(self) -> int:
        """Number of features: of columns, or of the values of each list."""
        return len(self.columns) if self.vectors is None else self.vectors.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of `samples`."""
        if self.vectors is not None:
            return self.vectors.dtype
        kinds = self.frame.dtypes
        numbers = (number_type(kinds[name]) for name in self.columns)
        return np.result_type(np.float32, *numbers, *self.kinds)

    @property
    def bytes_of_files(self) -> int | None:
        """Size of the local files in bytes; None where there are none."""
        return sum(file.stat().st_size for file in self.files) if self.files else None

    @property
    def rows_at_most(self) -> int | None:
        """How many rows local files can hold, told without reading them; None elsewhere.

        Of Parquet exactly, by its metadata; of CSV by lines, or by bytes where it is large.
        """
        if self.array is not None:
            return len(self.array)
        size = self.bytes_of_files
        if size is None or any(file.suffix.lower() == ".gz" for file in self.files):
            return None
        if not self.is_text:
            import pyarrow.parquet

            return sum(pyarrow.parquet.read_metadata(file).num_rows for file in self.files)
        if size > HEAD_BYTES:
            return size // 2
        # A line is the header; one without an end is a line, too.
        texts = [file.read_bytes().rstrip() for file in self.files]
        return sum(max(text.count(b"\n"), text.count(b"\r")) for text in texts)

    @property
    def largest_part(self) -> tuple[int, int, int] | None:
        """Rows in all, rows of the largest part, and bytes that are read for it, told by metadata.

        Of CSV about so many, by the length of the first lines; None where there are no local files.
        """
        n_parts, size = self.frame.npartitions, self.bytes_of_files
        width = self.n_features * self.dtype.itemsize
        if self.array is not None:
            largest = max(self.array.chunks[0], default=0)
            return len(self.array), largest, largest * width
        if size is None or any(file.suffix.lower() == ".gz" for file in self.files):
            return None
        if self.is_text:
            with self.files[0].open("rb") as file:
                head = file.read(HEAD_BYTES)
            n_rows = round(size * head.count(b"\n") / max(1, len(head)))
            largest = -(-n_rows // n_parts)
        else:
            import pyarrow.parquet

            metadata = [pyarrow.parquet.read_metadata(file) for file in self.files]
            of_files = [of_file.num_rows for of_file in metadata]
            n_rows = sum(of_files)
            largest = max(of_files if n_parts == len(of_files) else map(_most_rows, metadata))
        # Bytes of the file, its columns, and the values.
        share = largest / max(1, n_rows)
        return n_rows, largest, round(share * size) + 2 * largest * width

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Number of rows of each partition; counted once, by one pass over a single column."""
        if self.array is not None:
            return tuple(map(int, self.array.chunks[0]))
        parts = [dask.delayed(len)(part) for part in self._parts([self.columns[0]])]
        return tuple(int(length) for length in compute("the count of rows", *parts))

    def _parts(self, columns: Sequence[str] | None = None) -> list[Any]:
        """Return the parts of some columns, delayed: always the same parts of the files.

        Dask's optimization would bind parts together where few columns are read; here only columns
        are left out. Reads that fail in a way that may pass are made again.
        """
        self.seen.check()

        def parts() -> list[Any]:
            frame = self.frame
            if columns is not None:
                chosen = frame[list(columns)]
                fewer = chosen.simplify()
                frame = fewer if fewer.npartitions == frame.npartitions else chosen
            return list(frame.to_delayed(optimize_graph=False))

        found = persistently(parts, lambda: "The metadata of the table", _retries_of(self.files))
        return parts_read_again(found, self.files)

    @cached_property
    def samples(self) -> Any:
        """The features: a lazy Dask array (n, p), one chunk per partition.

        float32 where all columns are float32 or integers of up to 16 bits, else float64; a
        column of lists, or an array, as it is stored.
        """
        if self.array is not None:
            return self.array
        p = self.n_features
        blocks = [
            da.from_delayed(
                dask.delayed(_values)(part, self.columns, self.dtype, length)
                if self.vectors is None
                else dask.delayed(_vector_values)(part, self.columns[0], self.vectors, length),
                (length, p),
                meta=np.empty((0, p), self.dtype),
            )
            for part, length in zip(self._parts(self.columns), self.lengths, strict=True)
        ]
        return da.concatenate(blocks)

    def labels(self) -> tuple[Ints, NDArray[Any]]:
        """Return the partial labels of `label_column`, as ``y=(rows, labels)``.

        Missing values, empty text and -1 mean "no label".  Only the rows that have a
        label are sent to the client.  Cost: one pass over this column.

        Raises
        ------
        ValueError
            The table was opened without a label column.
        """
        if self.label_column is None:
            raise ValueError("The table has no label column; name one in open_table.")
        column = self.label_column
        found = compute("the reading of labels", *self._labeled_parts(column, _labeled))
        starts = np.cumsum([0, *self.lengths])
        rows = [places + start for (places, _), start in zip(found, starts, strict=False)]
        labels = self._as_classes(column, np.concatenate([values for _, values in found]))
        return np.concatenate(rows), labels

    def known_classes(self, column: str) -> tuple[Any, dict[int, str] | None]:
        """Return the classes of a column as codes, and their names.

        Missing values, empty text and -1 mean "no class".  Codes (n,) are lazy, one chunk per
        partition, -1 for none; names are by code, None where the column holds codes.  One pass
        over the column; nothing as long as the table reaches the client.
        """
        if column not in self.frame.columns:
            raise _no_column(column, [str(name) for name in self.frame.columns])
        parts = self._labeled_parts(column, _distinct)
        found = np.concatenate(compute("the classes of a column", *parts))
        if not len(found):
            raise ValueError(
                f"The column {column!r} holds no class; expected one at least. Nothing, empty text "
                "and -1 mean none."
            )
        classes = np.unique(self._as_classes(column, found))
        names = dict(enumerate(map(str, classes))) if classes.dtype.kind == "O" else None
        parts = self._labeled_parts(column, _coded, np.unique(found), classes)
        blocks = [
            da.from_delayed(part, (length,), meta=np.empty(0, np.int64))
            for part, length in zip(parts, self.lengths, strict=True)
        ]
        return da.concatenate(blocks), names

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise KeyError for the first column that the table does not have."""
        known = [str(name) for name in self.frame.columns]
        for name in columns:
            if name not in known:
                raise _no_column(name, known)

    def cells(self, rows: Ints, columns: Sequence[str]) -> Any:
        """Return some columns of some rows, in their order, as a pandas table.

        Cost: reads these columns of the partitions with such rows.
        """
        import pandas

        starts = np.cumsum([0, *self.lengths])
        owners = np.searchsorted(starts, rows, side="right") - 1
        wanted, parts = np.unique(owners), self._parts(columns)
        found = compute(
            "the nearest rows",
            *(
                dask.delayed(_rows_of)(parts[k], rows[owners == k] - starts[k], list(columns))
                for k in wanted
            ),
        )
        if not found:
            return pandas.DataFrame(columns=list(columns))
        order = np.concatenate([np.flatnonzero(owners == k) for k in wanted])
        return (
            pandas.concat(found, ignore_index=True).iloc[np.argsort(order)].reset_index(drop=True)
        )

    def _labeled_parts(self, column: str, read: Any, *more: Any) -> list[Any]:
        return [
            dask.delayed(read)(part[column], length, *more)
            for part, length in zip(self._parts([column]), self.lengths, strict=True)
        ]

    def _as_classes(self, column: str, labels: NDArray[Any]) -> NDArray[Any]:
        """Return labels as codes where they are such."""
        if self.is_text and number_type(self.frame.dtypes[column]) is None:
            # In CSV all is text: codes are what they look like, if all of them do.
            labels = _codes_in(labels, column)
        if labels.dtype.kind == "i" and len(labels) and labels.min() < 0:
            raise ValueError(
                f"The label column {column!r} holds the class {labels.min()}; expected codes of 0 "
                "and more, -1 for none."
            )
        return labels

    def write_labels(
        self,
        labels: Any,
        path: str | os.PathLike[str],
        *,
        name: str = "label",
        overwrite: bool = False,
        attributes: Mapping[str, Any] | None = None,
        more: Mapping[str, Any] | None = None,
        keep: Sequence[str] | None = None,
    ) -> Any:
        """Write the labels, completely or not at all; in Parquet next to the columns.

        Parameters
        ----------
        labels : array of shape (n,)
            NumPy, or Dask and chunked like `samples`: ``model.labels_``,
            ``model.predict(table.samples)``.
        path : str, path or zarr store
            A new folder of Parquet files, which all workers must be able to reach.  A name that
            ends in .npy is a file of the labels alone, of shape (n,); one that ends in .zarr, or a
            store, a Zarr group of arrays (n,), whose names are those of the new columns.
        name : str, default="label"
            Name of the new column.
        overwrite : bool, default=False
            Replace what this method has written, and a .npy file of one integer a row; nothing
            else is ever replaced.
        attributes : mapping, default=None
            JSON values that are kept beside the rows (not in .npy); see :func:`written_labels`.
            Credentials of URLs in them are replaced by ``***``.
        more : mapping of str to dask.array.Array of shape (n,), default=None
            Further new columns by name, such as ``model.score_samples(table.samples)``.
        keep : sequence of str, default=None
            Columns of the table that Parquet files hold next to the new ones; all by default.

        Returns
        -------
        Path or zarr.Group

        Raises
        ------
        FileExistsError
            The target exists and `overwrite` is False, or daskclust has not written it.
        StoreError
            A worker cannot reach the target.
        KeyError
            The table has no column of `keep`.
        ValueError
            The table already has a column `name`, the labels have other chunks than
            `samples`, `path` is the URL of something else than Zarr, text is written to .npy or
            Zarr, `more` to .npy, or columns are to be kept elsewhere than in Parquet.

        Notes
        -----
        Cost: one task per partition.  It reads the partition, adds the labels and writes
        one file.  Columns keep their types, missing values and the index that pandas stored;
        of CSV, columns that are no features are text, as they are in the file.
        """
        output = self.output(path, name, overwrite=overwrite)
        if keep is not None:
            self.check_columns(keep)
            if not isinstance(output, LabelsFolder):
                raise ValueError(
                    f"{redact(output.place)!r} must be a folder of Parquet files to keep columns "
                    f"({', '.join(keep)}), got a file of arrays. Leave keep out."
                )
        output.check()
        said = json_text(redact_all({**(attributes or {}), "name": name}))
        if not hasattr(labels, "to_delayed"):
            labels = np.ma.filled(labels, _NONE) if np.ma.is_masked(labels) else np.asarray(labels)
            if labels.shape != (sum(self.lengths),):
                raise ValueError(
                    f"labels have shape {labels.shape}; expected one label for each of the "
                    f"{sum(self.lengths)} rows."
                )
            labels = da.from_array(labels, chunks=(self.lengths,))
        new = {name: labels, **(more or {})}
        n_parts = self.frame.npartitions
        for key, values in new.items():
            if values.npartitions != n_parts:
                raise ValueError(
                    f"{key} has {values.npartitions} chunks, the table has {n_parts} parts; "
                    "expected labels of table.samples, in their chunks."
                )
        if not isinstance(output, LabelsFolder):
            return self._write_arrays(output, new, json.loads(said))
        parts = self._parts(keep)
        columns = {key: values.to_delayed().ravel().tolist() for key, values in new.items()}
        with output.new() as partial:
            partial.mkdir()
            tasks = [
                dask.delayed(write_part)(
                    part,
                    {key: blocks[k] for key, blocks in columns.items()},
                    partial / f"part.{k:06d}.parquet",
                )
                for k, part in enumerate(parts)
            ]
            compute("the writing of labels", *tasks)
            missing = len(parts) - len(list(partial.glob("part.*.parquet")))
            if missing:
                raise ValueError(
                    f"{missing} of {len(parts)} parts written by workers are not in {str(path)!r}; "
                    "every worker must see the same folder under the same path."
                )
            mark(partial, said)
        return Path(path).absolute()

    def _write_arrays(
        self, output: Output, arrays: Mapping[str, da.Array], attributes: Mapping[str, Any]
    ) -> Any:
        """Write arrays (n,) into a ``.npy`` file or a Zarr group, one task a chunk."""
        for key, values in arrays.items():
            if values.dtype.kind not in "iuf":
                raise ValueError(
                    f"{key} has dtype {values.dtype}; expected numbers. A folder of Parquet files "
                    "may hold text."
                )
        length = sum(self.lengths)
        if isinstance(output, NpyOutput):
            if len(arrays) > 1:
                raise ValueError(f"{redact(output.place)!r} holds labels alone; expected no more=.")
            (labels,) = arrays.values()
            with output.new() as partial:
                _store([labels], [NewNpy(partial, (length,), labels.dtype)])
            return output.path
        size = max(1, *self.lengths)
        with new_group(output.place, kind=output.kind, overwrite=output.overwrite) as group:
            group.attrs.update(finite(attributes))
            targets = [
                # So that a chunk that is not there is a chunk that was not written.
                group.create_array(
                    key,
                    shape=(length,),
                    chunks=(size,),
                    dtype=values.dtype,
                    config={"write_empty_chunks": True},
                )
                for key, values in arrays.items()
            ]
            cut = [values.rechunk(size) for values in arrays.values()]
            _store(cut, [StoredArray(target) for target in targets])
            for target in targets:
                check_written(target)
        return open_store(output.place)

    def output(self, path: Any, name: str, *, overwrite: bool = False) -> Output:
        """Return what :meth:`write_labels` writes, to be checked."""
        if name in self.frame.columns:
            raise ValueError(f"The table has a column {name!r} already; pass another name=.")
        place = os.fspath(path) if isinstance(path, str | os.PathLike) else path
        if not isinstance(place, str) or place.rstrip("/").lower().endswith(".zarr"):
            return Group(place, _LABELS, overwrite=overwrite)
        if place.lower().endswith(".npy"):
            return NpyOutput(place, _LABELS, overwrite=overwrite)
        return LabelsFolder(place, name, self.files, overwrite=overwrite)


def open_table(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Any,
    *,
    columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
) -> Table:
    """Open a table in Parquet or CSV, or an array of vectors; only metadata are read.

    Parameters
    ----------
    source : str, path, list of them, table, or zarr store, its path or array
        A table is a Dask DataFrame, a pyarrow Dataset (whose fragments are read by tasks), or a
        table in memory: of pandas, polars, DuckDB, or any object with ``__arrow_c_stream__``.
        Files are Parquet (a file or a folder), or CSV if the name ends in .csv or .csv.gz: UTF-8,
        with commas and one header line.  May be a pattern with ``*``, or a URL that fsspec
        supports.  An array (n, p) of numbers in a ``.npy`` file, which tasks map, or in Zarr (a
        folder, or a URL with ``.zarr`` in it; of a group the path of the array, ``STORE/NAME``) is
        a table of one column ``embedding`` of lists.
    columns : sequence of str or str, default=None
        Feature columns; None takes all numeric columns except `label_column`.  In CSV those
        are numeric that hold nothing else within the first MiB.  A column of
        Parquet whose values are lists of p numbers each (``FixedSizeList``, or lists of one
        length), named alone, is p features, in the type in which they are stored; so is the only
        one, where no column is numeric.
    label_column : str, default=None

    Returns
    -------
    Table

    Raises
    ------
    ImportError
        The extra ``dataframe`` is not installed.
    KeyError
        A column does not exist.
    ValueError
        A feature is not numeric, or there is no feature; lists of several lengths when they are
        read; an array that is no matrix of numbers.

    Examples
    --------
    >>> import tempfile, pandas
    >>> folder = tempfile.mkdtemp()
    >>> pandas.DataFrame({"a": [1.0, 9.0], "name": ["x", "y"]}).to_csv(f"{folder}/t.csv")
    >>> open_table(f"{folder}/t.csv", columns=["a"]).samples.compute().tolist()
    [[1.0], [9.0]]
    """
    try:
        import dask.dataframe as dd
    except ImportError as error:
        raise ImportError(
            f"Tables need {error.name or 'dask.dataframe'!r}, which is not installed. Use: "
            "pip install 'daskclust[dataframe]'"
        ) from error
    if isinstance(columns, str):
        columns = [columns]
    lists: _Vectors | None = None
    files: list[Path] = []
    is_text = False
    array = stored_vectors(source)
    if array is not None:
        frame: Any = dd.from_delayed(
            [dask.delayed(as_lists)(block) for block in array.to_delayed().ravel()],
            meta=as_lists(np.empty((0, array.shape[1]), array.dtype)),
            verify_meta=False,
        )
        file = local_path(source)
        files = [] if file is None or not file.is_file() else [file]
    elif (given_frame := as_lazy_frame(source)) is not None:
        frame = given_frame
    else:
        single = isinstance(source, str | os.PathLike)
        listed: Any = [source] if single else source
        names = [os.fspath(item) for item in listed]
        if not names:
            raise ValueError("The list of files is empty; give one path at least.")
        files = [file for item in names if "://" not in item for file in _files_of(item)]
        given: Any = [file for name in names for file in matching(name)]
        if single and given == names:
            # As it is: Dask knows folders, but not all local patterns.
            is_pattern = files and not Path(names[0]).exists()
            given = [str(file) for file in files] if is_pattern else names[0]
        kind = _kind_of(names[0])
        is_text = kind != "Parquet"
        for file in files:
            if not is_text and _is_cut_off(file):
                raise OSError(
                    f"{str(file)!r} cannot be read as Parquet: it does not end as such a file "
                    "does. Is it whole?"
                )
        remote = url_options(names[0]) or None
        ranges: list[dict[str, Any]] = []

        def opened() -> Any:
            if not is_text:
                ranges.extend(item for file in files for item in _ranges_in(file))
                usual = all((item.get("start"), item.get("step")) == (0, 1) for item in ranges)
                # As Arrow has them: nothing becomes another type on the way.
                found = dd.read_parquet(
                    given,
                    storage_options=remote,
                    dtype_backend="pyarrow",
                    split_row_groups="adaptive" if usual else False,
                    blocksize=_PART,
                )
            else:
                first = given if isinstance(given, str) else given[0]
                head = Head.of(str(files[0]) if files else first, remote or {})
                for file in files[1:]:
                    head.check(str(file))
                found = head.frame(given, columns, label_column, remote or {})
            # Its columns and parts are read here, not later.
            _ = found.dtypes, found.npartitions
            return found

        try:
            frame = persistently(opened, lambda: redact(repr(source)), _retries_of(files))
        except ReadError:
            raise
        except (OSError, ValueError) as error:
            reason = "no answer in time" if unanswered(error) else redact(error).rstrip(".")
            asked = "" if isinstance(error, HeadError) else " Is the file whole?"
            raise OSError(
                f"{redact(repr(source))} cannot be read as {kind}: {reason}.{asked}"
            ) from error
        for item in ranges:
            if item.get("name") is not None:
                raise ValueError(
                    f"The index {item['name']!r} is a range of which {redact(repr(source))} stores "
                    "the ends only; expected a column. Write the file from frame.reset_index()."
                )
    known = [str(name) for name in frame.columns]
    for wanted in (*(columns or ()), *(() if label_column is None else (label_column,))):
        if wanted not in known:
            raise _no_column(wanted, known)
    if len(set(columns or ())) < len(columns or ()):
        raise ValueError(f"columns are {', '.join(columns or ())}; expected each one once.")
    kinds = {name: frame.dtypes[name] for name in known}
    hint = ""
    if columns is None:
        columns = [n for n in known if number_type(kinds[n]) and n != label_column]
        vectors = [name for name in known if _number_of(_items_of(kinds[name]))]
        if not columns and len(vectors) == 1:
            columns = vectors
        elif vectors:
            hint = f" {vectors[0]!r} has lists of numbers, which are features if named alone."
            if columns:
                warn(
                    f"{', '.join(columns[:SHOWN])} are the features, and lists of numbers are "
                    f"left out: name {vectors[0]!r} alone in columns (--columns) to use them.",
                    DaskclustWarning,
                )
    if len(columns) == 1 and label_column not in columns:
        lists = _vectors_of(frame, columns[0], files)
    for name in columns:
        if lists is None and number_type(kinds[name]) is None:
            _first_row(frame, files)
            raise ValueError(
                f"The column {name!r} is {kinds[name]}; expected numbers. {_mend(kinds[name])}"
            )
    if not columns:
        _first_row(frame, files)
        raise ValueError(f"The table has no columns of numbers among {known}; name some.{hint}")
    if label_column in columns:
        raise ValueError(f"{label_column!r} is the label column; leave it out of columns.")
    return Table(
        frame,
        tuple(columns),
        label_column,
        tuple(files),
        lists,
        is_text,
        array,
        _kinds_in(() if is_text or array is not None else files, columns, lists),
        SeenFiles(file.absolute() for file in files),
    )


def _kinds_in(
    files: Sequence[Path], columns: Sequence[str], lists: _Vectors | None
) -> tuple[np.dtype[Any], ...]:
    """Return the types of features in Parquet files, which need not be those of the first one."""
    import pandas
    import pyarrow.parquet

    found: set[np.dtype[Any]] = set()
    for file in files:
        schema = pyarrow.parquet.read_schema(file)
        for name in columns:
            if name not in schema.names:
                raise ValueError(
                    f"{str(file)!r}, of the same table, has no column {name!r}; expected the "
                    "features in each file. Leave it out of columns (--columns), or the file."
                )
            kind = pandas.ArrowDtype(schema.field(name).type)
            number = number_type(kind) if lists is None else _number_of(_items_of(kind))
            if number is None or not (lists is None or np.can_cast(number, lists.dtype)):
                raise ValueError(
                    f"The column {name!r} is {kind} in {str(file)!r}, of the same table; expected "
                    f"{'numbers' if lists is None else f'lists of {lists.dtype}'} in each file. "
                    "Write the file anew, or leave the column out of columns (--columns)."
                )
            found.add(number)
    return tuple(found)


def _store(arrays: Sequence[da.Array], targets: Sequence[Any]) -> None:
    stored = (
        da.store(array, target, lock=False, compute=False)
        for array, target in zip(arrays, targets, strict=True)
    )
    compute("the writing of labels", *stored)


def _no_column(wanted: str, known: Sequence[str]) -> KeyError:
    close = difflib.get_close_matches(wanted, known, n=1)
    shown = ", ".join(known[:SHOWN]) + (", ..." if len(known) > SHOWN else "")
    return KeyError(
        f"The table has no column {wanted!r}; it has {shown}."
        + (f" Did you mean {close[0]}?" if close else "")
    )


def _retries_of(files: Sequence[Path]) -> Retries:
    # Files of this machine fail for good where they fail, as for stores.
    return NEVER_AGAIN if files else Retries.configured()


def _files_of(path: str) -> list[Path]:
    is_pattern = any(mark in path for mark in "*?[") and not Path(path).exists()
    found = sorted(map(Path, glob.glob(path))) if is_pattern else [Path(path)]
    if not found or not found[0].exists():
        raise FileNotFoundError(f"There is no file {path!r}; give the path of an existing one.")
    if len(found) == 1 and found[0].is_dir():
        return sorted(found[0].rglob("*.parquet"))
    return [file for file in found if file.is_file()]


def _ranges_in(path: Path) -> list[dict[str, Any]]:
    """Return the ranges by which pandas numbers the rows of a Parquet file, which holds no column.

    Row groups do not tell which part of such a range is theirs.
    """
    import pyarrow.parquet

    said = (pyarrow.parquet.read_schema(path).pandas_metadata or {}).get("index_columns", [])
    return [item for item in said if isinstance(item, dict)]


def _most_rows(metadata: Any) -> int:
    """Return the most rows of adjacent row groups of a file that may be one part."""
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    most = first = size = rows = 0
    for group in groups:
        size, rows = size + group.total_byte_size, rows + group.num_rows
        while size > _PART and rows > group.num_rows:
            size, rows = size - groups[first].total_byte_size, rows - groups[first].num_rows
            first += 1
        most = max(most, rows)
    return most


def _is_cut_off(path: Path) -> bool:
    """Whether a file lacks the last bytes of Parquet: Dask looks at those of the first one only."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 4))
        return size < 12 or file.read(4) not in (b"PAR1", b"PARE")


def _first_row(frame: Any, files: Sequence[Path]) -> Any:
    """Return the first row; a table without rows is refused, for its columns have no types."""
    found = persistently(
        lambda: frame.head(1, npartitions=-1),
        lambda: "The first row of the table",
        _retries_of(files),
    )
    if not len(found):
        raise ValueError("The table has no rows; expected one at least.")
    return found


def _items_of(kind: Any) -> Any:
    """Return Arrow's type of what is in lists; None where a column has none."""
    arrow = getattr(kind, "pyarrow_dtype", None)
    is_list = hasattr(arrow, "num_fields") and not hasattr(arrow, "index_type")  # nor categories
    return getattr(arrow, "value_type", None) if is_list else None


def _mend(kind: Any) -> str:
    """Say what to do about a feature that is not a number, and which page helps."""
    if _number_of(_items_of(kind)) is not None:
        return (
            "Name it alone in columns (--columns), or leave it out. See the page how-to/embeddings."
        )
    text = str(kind)
    way = "encode its values as numbers"
    if "date" in text or "time" in text or "duration" in text:
        way = "make numbers of it, such as days since the first"
    return f"Leave it out of columns (--columns), or {way}. See the page how-to/tables."


def _number_of(items: Any) -> np.dtype[Any] | None:
    try:
        dtype = None if items is None else np.dtype(items.to_pandas_dtype())
    except NotImplementedError:
        return None
    return dtype if dtype is not None and dtype.kind in "fiu" else None


def _vectors_of(frame: Any, column: str, files: Sequence[Path]) -> _Vectors | None:
    """Return what is in a column of lists of numbers; None for any other column."""
    items = _items_of(frame.dtypes[column])
    if items is None:
        return None
    dtype = _number_of(items)
    if dtype is None:
        raise ValueError(
            f"The column {column!r} has lists of {items}; expected lists of numbers, as many in "
            "each row. See the page how-to/embeddings."
        )
    size = list_size(frame.dtypes[column].pyarrow_dtype)
    if size is None:
        lists = persistently(
            lambda: first_lists(frame[column]),
            lambda: "The first row of the table",
            _retries_of(files),
        )
        if not len(lists):
            _first_row(frame, files)  # raises if the table is empty
            raise ValueError(f"The column {column!r} must have lists, got missing values only.")
        size = len(lists.iloc[0])
    if not size:
        raise ValueError(f"The column {column!r} has empty lists; expected one number at least.")
    return _Vectors(dtype, int(size))


def _kind_of(name: str) -> str:
    """Tell a format by the ending of a name.

    >>> _kind_of("t?.csv"), _kind_of("s3://b/t.CSV.gz?v=1"), _kind_of("t.parquet")
    ('CSV', 'CSV in gz', 'Parquet')
    """
    # Of a path, it is part of a pattern.
    plain = name.lower().split("?")[0] if "://" in name else name.lower()
    kinds = {".csv": "CSV", ".csv.gz": "CSV in gz"}
    return next((kind for end, kind in kinds.items() if plain.endswith(end)), "Parquet")


def _check_length(part: Any, length: int) -> None:
    if len(part) != length:
        raise ValueError(
            f"A part of the table has {len(part)} rows, and had {length} when they were counted; "
            "expected files that stay as they are. Open the table again."
        )


def _values(
    part: Any, columns: Sequence[str], dtype: np.dtype[Any], length: int
) -> NDArray[np.floating[Any]]:
    _check_length(part, length)
    values = np.empty((length, len(columns)), dtype)
    for at, name in enumerate(columns):
        column = part[name]
        missing = {} if isinstance(column.dtype, np.dtype) else {"na_value": np.nan}
        kind = number_type(column.dtype)
        try:
            if kind is None and column.dtype != object:
                raise ValueError("no numbers")
            with np.errstate(over="ignore"):
                values[:, at] = column.to_numpy(dtype=dtype, **missing)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"The column {name!r} is {column.dtype} in a part of the table, such as "
                f"{_no_number(column)!r}; expected numbers. Make numbers of it, or leave it out of "
                "columns (--columns). See the page how-to/tables."
            ) from error
        if kind is not None and not np.can_cast(kind, dtype):
            given = column.to_numpy(dtype=np.float64, **missing)
            lost = np.isinf(values[:, at]) & ~np.isinf(given)
            if lost.any():
                raise ValueError(
                    f"The column {name!r} holds {given[lost][0]} in a part of the table, too large "
                    f"for {dtype}, the type of the features by its first part. Write all parts "
                    "in one type."
                )
    return values


def _no_number(column: Any) -> Any:
    import pandas

    present = column.dropna()
    wrong = present[pandas.to_numeric(present.astype(object), errors="coerce").isna()]
    return next(iter([*wrong.head(1), *present.head(1)]), None)


def _vector_values(part: Any, column: str, vectors: _Vectors, length: int) -> NDArray[Any]:
    _check_length(part, length)
    rows = matrix_of_lists(part[column], column, vectors.size)
    return rows.astype(vectors.dtype, copy=False)


def _rows_of(part: Any, places: Ints, columns: list[str]) -> Any:
    return part[columns].iloc[places]


def _labeled(part: Any, length: int) -> tuple[Ints, NDArray[Any]]:
    _check_length(part, length)
    places = np.flatnonzero(part.notna().to_numpy(dtype=bool))
    present = part.iloc[places]
    kind = number_type(part.dtype)
    if kind is not None and kind.kind in "iuf":
        given = present.to_numpy(dtype=kind)
        shown = ~np.isnan(given) if kind.kind == "f" else np.ones(len(given), bool)
        values = given[shown].astype(np.int64)
        if (values != given[shown]).any():
            raise _no_integers(str(part.name))
        places = places[shown]
        known = values != _NONE
    else:
        values = np.array([str(item).strip() for item in present.to_numpy(dtype=object)], object)
        known = ~np.isin(values, ("", str(_NONE), str(float(_NONE))))
    return places[known], values[known]


def _codes_in(texts: NDArray[Any], column: str) -> NDArray[Any]:
    """Return texts as codes if all of them are codes; other numbers are refused.

    >>> _codes_in(np.array(["3.0", "7"]), "c"), _codes_in(np.array(["3", "oak"]), "c")
    (array([3, 7]), array(['3', 'oak'], dtype='<U3'))
    """
    codes = [_CODE.fullmatch(text) for text in texts.tolist()]
    if all(codes):
        return np.array([int(code[1]) for code in codes if code], np.int64)
    try:
        numbers = np.array([float(text) for text in texts.tolist()])
    except ValueError:
        return texts
    if (np.isfinite(numbers) & (numbers != np.floor(numbers))).any():
        raise _no_integers(column)
    return texts


def _no_integers(column: str) -> ValueError:
    return ValueError(
        f"The label column {column!r} holds numbers that are no integers; expected codes, or text."
    )


def _distinct(part: Any, length: int) -> NDArray[Any]:
    return np.unique(_labeled(part, length)[1])


def _coded(part: Any, length: int, found: NDArray[Any], classes: NDArray[Any]) -> Ints:
    """Codes of a part: of text the places among all classes, -1 for none."""
    places, values = _labeled(part, length)
    out = np.full(length, _NONE, np.int64)
    at = np.searchsorted(found, values)
    if classes.dtype.kind != "O":
        at = (_codes_in(found, str(part.name)) if found.dtype.kind == "O" else found)[at]
    out[places] = at
    return out
