"""Tables (Parquet, CSV, arrays) as rows for clustering, and files of labels."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import dask
import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust.config import check_choice
from daskclust.core.array_types import Floats, Ints
from daskclust.core.engine import compute, number_type, parts_read_again, working_dtype
from daskclust.core.estimator.arrow import (
    as_lazy_frame,
    is_list_type,
    list_size,
    matrix_of_lists,
)
from daskclust.core.storage.files import unanswered
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
from daskclust.core.storage.stores import local_path, open_store
from daskclust.core.warn import warn
from daskclust.exceptions import DaskclustWarning, ReadError
from daskclust.preprocessing import StandardScaler, scaler_of
from daskclust.tables import _label_columns
from daskclust.tables._arrays import SHOWN, as_lists, stored_vectors
from daskclust.tables._files import (
    FileError,
    Files,
    csv_frame,
    find_files,
    is_csv,
    parquet_frame,
    read_footers,
)
from daskclust.tables._label_columns import NO_LABEL, check_length
from daskclust.tables._writing import LabelsFolder, mark, write_part

#: Kind of the outputs that contain only labels.
_LABELS = "array of labels"


@dataclass(frozen=True)
class _Vectors:
    """Type and length of the lists of a column."""

    dtype: np.dtype[Any]
    size: int


@dataclass(frozen=True)
class TableScaling:
    """Scaling of the features: ``"none"``, or ``"standard"`` with mean and standard deviation."""

    kind: Literal["none", "standard"]
    mean: Floats | None = None
    std: Floats | None = None
    #: Scalings by a matrix exist only for scenes.
    matrix: None = None


@dataclass(frozen=True)
class Table:
    """Table of any size, opened by :func:`open_table`.

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
    #: Local files that are read; empty for URLs and frames.
    files: tuple[Path, ...] = ()
    #: Type and length of the lists, if the only feature column has lists.
    vectors: _Vectors | None = None
    #: True if all columns except features are text, as in CSV.
    is_text: bool = False
    #: Lazy array of the rows, if they are stored as an array.
    array: Any = None
    #: Number of rows of each partition, if the metadata of the files state it.
    known_lengths: tuple[int, ...] | None = None
    #: Bytes of all columns of the largest partition, if the metadata of the files state them.
    most_bytes: int | None = None
    #: State of the files when the table was opened.  Each use checks that it is the same.
    seen: SeenFiles = field(default_factory=lambda: SeenFiles(()))
    scale: Literal["none", "standard"] | StandardScaler = "none"

    @property
    def n_features(self) -> int:
        """Number of features: the number of columns, or the length of the lists."""
        return len(self.columns) if self.vectors is None else self.vectors.size

    @property
    def _stored_dtype(self) -> np.dtype[Any]:
        if self.vectors is not None:
            return self.vectors.dtype
        kinds = self.frame.dtypes
        return np.result_type(np.float32, *(number_type(kinds[name]) for name in self.columns))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of `samples`."""
        return self._stored_dtype if self.scale == "none" else working_dtype(self._stored_dtype)

    @property
    def bytes_of_files(self) -> int | None:
        """Size of the local files in bytes; None without local files."""
        return sum(file.stat().st_size for file in self.files) if self.files else None

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Number of rows of each partition.

        Metadata of Parquet files and arrays state it.  The rows of other tables are counted in one
        pass over one column.
        """
        if self.known_lengths is not None:
            return self.known_lengths
        counts = [dask.delayed(len)(partition) for partition in self._partitions([self.columns[0]])]
        return tuple(int(length) for length in compute("the count of rows", *counts))

    @property
    def largest_part(self) -> tuple[int, int, int] | None:
        """Number of rows, rows of the largest partition, and bytes of this partition in memory.

        For CSV these are estimates from the size of the files and the first MiB.  None if the
        metadata do not contain these numbers.
        """
        width = self.n_features * self.dtype.itemsize
        if self.known_lengths is not None:
            n_rows, largest = sum(self.known_lengths), max(self.known_lengths, default=0)
            file_bytes = self.most_bytes
            # Memory holds the stored columns and the values, or the values of an array.
            return (
                n_rows,
                largest,
                largest * width if file_bytes is None else file_bytes + 2 * largest * width,
            )
        size = self.bytes_of_files
        if not self.is_text or size is None or any(".gz" in file.name for file in self.files):
            return None
        with self.files[0].open("rb") as file:
            head = file.read(2**20)
        n_rows = round(size * head.count(b"\n") / max(1, len(head)))
        largest = -(-n_rows // self.frame.npartitions)
        return n_rows, largest, size // self.frame.npartitions + 2 * largest * width

    def _partitions(self, columns: Sequence[str] | None = None) -> list[Any]:
        """Return the delayed partitions of the table with some columns, with retries of reads.

        Dask would join partitions if it reads few columns.
        """
        self.seen.check()

        def delayed_partitions() -> list[Any]:
            frame = self.frame
            if columns is not None:
                chosen = frame[list(columns)]
                fewer = chosen.simplify()
                frame = fewer if fewer.npartitions == frame.npartitions else chosen
            return list(frame.to_delayed(optimize_graph=False))

        retries = NEVER_AGAIN if self.files else Retries.configured()
        partitions = persistently(delayed_partitions, lambda: "The metadata of the table", retries)
        return parts_read_again(partitions, self.files)

    @cached_property
    def samples(self) -> Any:
        """Features: a lazy Dask array (n, p) with one chunk per partition.

        The type is float32 if all columns are float32 or integers of at most 16 bits, else float64.
        A column of lists, or an array, keeps its type.  With ``scale="standard"``, integers of at
        most 16 bits and float16 become float32, and the first use takes one pass to compute the
        statistics.
        """
        scaler = self.scaler
        return self.unscaled if scaler is None else scaler.transform(self.unscaled)

    @property
    def unscaled(self) -> Any:
        """Features as they are stored: a lazy Dask array (n, p)."""
        if self.array is not None:
            return self.array
        p, dtype = self.n_features, self._stored_dtype
        blocks = [
            da.from_delayed(
                dask.delayed(_values)(partition, self.columns, dtype, length)
                if self.vectors is None
                else dask.delayed(_vector_values)(partition, self.columns[0], self.vectors, length),
                (length, p),
                meta=np.empty((0, p), dtype),
            )
            for partition, length in zip(self._partitions(self.columns), self.lengths, strict=True)
        ]
        return da.concatenate(blocks)

    @cached_property
    def scaler(self) -> StandardScaler | None:
        """Scaler of the features, or None.  With ``scale="standard"``, the first use is a pass."""
        if isinstance(self.scale, StandardScaler):
            return self.scale
        return None if self.scale == "none" else StandardScaler().fit(self.unscaled)

    @property
    def sample_scaling(self) -> TableScaling:
        """Scaling of `samples`, which a model stores."""
        scaler = self.scaler
        if scaler is None:
            return TableScaling("none")
        return TableScaling("standard", scaler.mean_, scaler.scale_)

    def scaled_as(self, scaling: Any) -> Self:
        """Return the same table with the scaling that a fitted model has stored."""
        if scaling.kind == "none":
            return replace(self, scale="none")
        if scaling.kind != "standard":
            raise ValueError(
                f"The model must be fitted with a scale that tables support, got a scene with "
                f"scale={scaling.kind!r}."
            )
        if len(scaling.mean) != self.n_features:
            raise ValueError(
                f"The table must have the {len(scaling.mean)} features of the fit, got "
                f"{self.n_features}. Use the same columns."
            )
        return replace(self, scale=scaler_of(scaling.mean, scaling.std))

    def labels(self) -> tuple[Ints, NDArray[Any]]:
        """Return the partial labels of `label_column`, as ``y=(rows, labels)``.

        Missing values, empty text and -1 mean "no label".  Only labeled rows are sent to the
        client. Cost: one pass over this column.

        Raises
        ------
        ValueError
            The table was opened without a label column.
        """
        if self.label_column is None:
            raise ValueError(
                "label_column must be set in open_table to read labels, got None. Name the column."
            )
        column = self.label_column
        tasks = self._labels_by_partition(column, _label_columns.labeled)
        labels_of_parts = compute("the reading of labels", *tasks)
        starts = np.cumsum([0, *self.lengths])
        rows = [
            positions + start
            for (positions, _), start in zip(labels_of_parts, starts, strict=False)
        ]
        labels = self._as_classes(column, np.concatenate([values for _, values in labels_of_parts]))
        return np.concatenate(rows), labels

    def known_classes(self, column: str) -> tuple[Any, dict[int, str] | None]:
        """Return the classes of a column as codes, and their names.

        Missing values, empty text and -1 mean "no class".  Cost: one pass over the column.  The
        client receives only the distinct classes.

        Returns
        -------
        codes : dask.array.Array of shape (n,)
            One chunk per partition; -1 for rows without a class.
        names : dict of int to str, or None
            Name of each code; None if the column contains codes.
        """
        self.check_columns([column])
        tasks = self._labels_by_partition(column, _label_columns.distinct)
        labels = np.concatenate(compute("the classes of a column", *tasks))
        if not len(labels):
            raise ValueError(
                f"The column {column!r} must contain a class, got only missing values, empty text "
                "or -1."
            )
        classes = np.unique(self._as_classes(column, labels))
        names = dict(enumerate(map(str, classes))) if classes.dtype.kind == "O" else None
        tasks = self._labels_by_partition(column, _label_columns.coded, np.unique(labels), classes)
        blocks = [
            da.from_delayed(task, (length,), meta=np.empty(0, np.int64))
            for task, length in zip(tasks, self.lengths, strict=True)
        ]
        return da.concatenate(blocks), names

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise KeyError for the first column that the table does not have."""
        names = [str(name) for name in self.frame.columns]
        for name in columns:
            if name not in names:
                close = difflib.get_close_matches(name, names, n=1)
                shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
                hint = f" Did you mean {close[0]}?" if close else ""
                raise KeyError(f"The table must have the column {name!r}, got {shown}.{hint}")

    def cells(self, rows: Ints, columns: Sequence[str]) -> Any:
        """Return the values of `columns` for `rows`, in the order of `rows`, as a pandas table.

        Cost: the columns are read from the partitions that contain the rows.
        """
        import pandas

        starts = np.cumsum([0, *self.lengths])
        owners = np.searchsorted(starts, rows, side="right") - 1
        numbers, partitions = np.unique(owners), self._partitions(columns)
        tables = compute(
            "the nearest rows",
            *(
                dask.delayed(_rows_of)(partitions[k], rows[owners == k] - starts[k], list(columns))
                for k in numbers
            ),
        )
        if not tables:
            return pandas.DataFrame(columns=list(columns))
        order = np.argsort(np.concatenate([np.flatnonzero(owners == k) for k in numbers]))
        return pandas.concat(tables, ignore_index=True).iloc[order].reset_index(drop=True)

    def _labels_by_partition(self, column: str, read: Any, *arguments: Any) -> list[Any]:
        return [
            dask.delayed(read)(partition[column], length, *arguments)
            for partition, length in zip(self._partitions([column]), self.lengths, strict=True)
        ]

    def _as_classes(self, column: str, labels: NDArray[Any]) -> NDArray[Any]:
        """Convert labels to codes if all of them are codes, because all columns of CSV are text."""
        if self.is_text and number_type(self.frame.dtypes[column]) is None:
            labels = _label_columns.codes_in(labels, column)
        if labels.dtype.kind == "i" and len(labels) and labels.min() < 0:
            raise ValueError(
                f"The label column {column!r} must have codes of at least 0, or -1 for no label, "
                f"got {labels.min()}."
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
        """Write labels to a new file or folder, completely or not at all.

        Parameters
        ----------
        labels : array of shape (n,)
            NumPy array, or Dask array with the chunks of `samples`: ``model.labels_``,
            ``model.predict(table.samples)``.
        path : str, path or zarr store
            Target of the labels:

            - a new folder that all workers can reach: Parquet files with the columns of the table
              and the labels;
            - a name that ends in .npy: a file of only the labels, of shape (n,);
            - a name that ends in .zarr, or a store: a Zarr group with an array (n,) for each new
              column.
        name : str, default="label"
            Name of the new column.
        overwrite : bool, default=False
            If True, replace files that this method has written, and a .npy file with one integer
            per row.  Other files are never replaced.
        attributes : mapping, default=None
            JSON values that are stored with the labels (not in .npy); see :func:`written_labels`.
            Credentials of URLs in them are replaced by ``***``.
        more : mapping of str to dask.array.Array of shape (n,), default=None
            Further new columns by name, such as ``model.score_samples(table.samples)``.
        keep : sequence of str, default=None
            Columns of the table to copy to the Parquet files.  Default: all.

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
            The table does not have a column of `keep`.
        ValueError
            The table already has a column `name`, the chunks of the labels differ from `samples`,
            `path` is a URL and not Zarr, labels for .npy or Zarr are text, `more` is used with
            .npy, or `keep` without Parquet.

        Notes
        -----
        There is one task per partition.  It reads the partition, adds the labels and writes one
        file.  Columns keep their types, missing values and the index of pandas.  Columns of CSV
        that are not features are written as text.
        """
        output = self.output(path, name, overwrite=overwrite)
        if keep is not None:
            self.check_columns(keep)
            if not isinstance(output, LabelsFolder):
                raise ValueError(
                    f"{redact(output.location)!r} must be a folder of Parquet files to keep "
                    f"columns ({', '.join(keep)}), got a file of arrays. Omit keep."
                )
        output.check()
        described = json_text(redact_all({**(attributes or {}), "name": name}))
        if not hasattr(labels, "to_delayed"):
            is_masked = np.ma.is_masked(labels)
            labels = np.ma.filled(labels, NO_LABEL) if is_masked else np.asarray(labels)
            if labels.shape != (sum(self.lengths),):
                raise ValueError(
                    f"labels must have one label for each of the {sum(self.lengths)} rows, got "
                    f"shape {labels.shape}."
                )
            labels = da.from_array(labels, chunks=(self.lengths,))
        new = {name: labels, **(more or {})}
        n_parts = self.frame.npartitions
        for key, values in new.items():
            if values.npartitions != n_parts:
                raise ValueError(
                    f"{key} must have the chunks of table.samples, {n_parts} of them, got "
                    f"{values.npartitions} chunks."
                )
        if not isinstance(output, LabelsFolder):
            return self._write_arrays(output, new, json.loads(described))
        partitions = self._partitions(keep)
        columns = {key: values.to_delayed().ravel().tolist() for key, values in new.items()}
        with output.new() as partial:
            partial.mkdir()
            tasks = [
                dask.delayed(write_part)(
                    partition,
                    {key: blocks[k] for key, blocks in columns.items()},
                    partial / f"part.{k:06d}.parquet",
                )
                for k, partition in enumerate(partitions)
            ]
            compute("the writing of labels", *tasks)
            missing = len(partitions) - len(list(partial.glob("part.*.parquet")))
            if missing:
                raise ValueError(
                    f"{str(path)!r} must be one folder for all workers, got a folder without "
                    f"{missing} of the {len(partitions)} files that workers have written. Use a "
                    "shared folder."
                )
            mark(partial, described)
        return Path(path).absolute()

    def _write_arrays(
        self, output: Output, arrays: Mapping[str, da.Array], attributes: Mapping[str, Any]
    ) -> Any:
        """Write arrays (n,) into a ``.npy`` file or a Zarr group, one task per chunk."""
        for key, values in arrays.items():
            if values.dtype.kind not in "iuf":
                raise ValueError(
                    f"{key} must have numbers, got dtype {values.dtype}. Write text to a folder of "
                    "Parquet files."
                )
        length = sum(self.lengths)
        if isinstance(output, NpyOutput):
            if len(arrays) > 1:
                raise ValueError(
                    f"more must be None for {redact(output.location)!r}, which can contain only "
                    "labels."
                )
            (labels,) = arrays.values()
            with output.new() as partial:
                _store([labels], [NewNpy(partial, (length,), labels.dtype)])
            return output.path
        size = max(1, *self.lengths)
        with new_group(output.location, kind=output.kind, overwrite=output.overwrite) as group:
            group.attrs.update(finite(attributes))
            targets = [
                # All chunks are written, so a missing chunk is an error.
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
        return open_store(output.location)

    def output(self, path: Any, name: str, *, overwrite: bool = False) -> Output:
        """Return the output of :meth:`write_labels`, to check it before a fit."""
        if name in self.frame.columns:
            raise ValueError(
                f"name must be the name of a new column, got {name!r}. Pass another name."
            )
        target = os.fspath(path) if isinstance(path, str | os.PathLike) else path
        if not isinstance(target, str) or target.rstrip("/").lower().endswith(".zarr"):
            return Group(target, _LABELS, overwrite=overwrite)
        if target.lower().endswith(".npy"):
            return NpyOutput(target, _LABELS, overwrite=overwrite)
        return LabelsFolder(target, name, self.files, overwrite=overwrite)


def open_table(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Any,
    *,
    columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    scale: Literal["none", "standard"] = "none",
) -> Table:
    """Open a table in Parquet or CSV, or an array of vectors.  Only metadata are read.

    Parameters
    ----------
    source : str, path, list of them, table, or zarr store, its path or array
        One of these:

        - Files: Parquet (a file or a folder), or CSV if the name ends in .csv or .csv.gz (UTF-8,
          with commas and one header line).  Patterns with ``*``, and URLs that fsspec supports, are
          also possible.  All files must have the same columns.
        - A Dask DataFrame, a pyarrow Dataset, or a table in memory: pandas, polars, DuckDB, or any
          object with ``__arrow_c_stream__``.
        - An array (n, p) of numbers, as a ``.npy`` file or in Zarr (a folder, a URL that contains
          ``.zarr``, or ``STORE/NAME`` for an array of a group).  It is a table with one column
          ``embedding`` of lists.
    columns : sequence of str or str, default=None
        Feature columns.  Default: all numeric columns except `label_column`.  A column of CSV is
        numeric if it contains only numbers in the first MiB.  A column of Parquet whose values are
        lists of p numbers is p features, with their stored type, if it is the only column in
        `columns`.  If no column is numeric, the only column of lists is the default.
    label_column : str, default=None
        Column of partial labels, which is not a feature.
    scale : {"none", "standard"}, default="none"
        Scaling of `samples`:

        - ``"none"``: the values as they are stored.
        - ``"standard"``: each feature minus its mean, divided by its standard deviation.  Missing
          values are ignored.  The first use of the samples takes one pass.  A model that is fitted
          to the table stores the statistics, and ``predict`` scales other tables by them.

    Returns
    -------
    Table

    Raises
    ------
    ImportError
        The extra ``dataframe`` is not installed.
    KeyError
        A column does not exist.
    OSError
        A file cannot be read, or CSV files have different columns.
    ValueError
        A feature is not numeric, or there are no features; Parquet files have different columns; an
        array is not a matrix of numbers; or lists differ in length (raised when they are read).

    See Also
    --------
    daskclust.preprocessing.StandardScaler : Scale arrays.

    Examples
    --------
    >>> import tempfile, pandas
    >>> folder = tempfile.mkdtemp()
    >>> pandas.DataFrame({"a": [1.0, 9.0], "name": ["x", "y"]}).to_csv(f"{folder}/t.csv")
    >>> open_table(f"{folder}/t.csv", columns=["a"]).samples.compute().tolist()
    [[1.0], [9.0]]
    >>> open_table(f"{folder}/t.csv", columns=["a"], scale="standard").samples.compute().tolist()
    [[-1.0], [1.0]]
    """
    try:
        import dask.dataframe as dd
    except ImportError as error:
        raise ImportError(
            f"Tables require {error.name or 'dask.dataframe'!r}, which is not installed. Use: "
            "pip install 'daskclust[dataframe]'"
        ) from error
    check_choice(scale, "scale", ("none", "standard"))
    columns = [columns] if isinstance(columns, str) else columns
    array = stored_vectors(source)
    if array is not None:
        frame: Any = dd.from_delayed(
            [dask.delayed(as_lists)(block) for block in array.to_delayed().ravel()],
            meta=as_lists(np.empty((0, array.shape[1]), array.dtype)),
            verify_meta=False,
        )
        file = local_path(source)
        facts: dict[str, Any] = {
            "files": () if file is None or not file.is_file() else (file.absolute(),),
            "array": array,
            "known_lengths": tuple(map(int, array.chunks[0])),
        }
    else:
        frame, facts = as_lazy_frame(source), {}
        if frame is None:
            frame, facts = _open_files(source, columns, label_column)
    seen = SeenFiles(facts.get("files", ()))
    table = Table(frame, (), label_column, seen=seen, scale=scale, **facts)
    return _with_features(table, columns)


def _open_files(
    source: Any, columns: Sequence[str] | None, label_column: str | None
) -> tuple[Any, dict[str, Any]]:
    """Return the lazy frame of files, and arguments of Table from their metadata."""
    listed: Any = [source] if isinstance(source, str | os.PathLike) else source
    names: list[str] = [os.fspath(name) for name in listed]
    if not names:
        raise ValueError("source must have at least one path, got an empty list.")
    shown, is_local = redact(repr(source)), all("://" not in name for name in names)

    def opened() -> tuple[Files, Any]:
        files = find_files(names)
        if is_csv(names[0]):
            return files, csv_frame(files, columns, label_column)
        return files, read_footers(files)

    try:
        retries = NEVER_AGAIN if is_local else Retries.configured()
        files, opened_table = persistently(opened, lambda: shown, retries)
    except ReadError:
        raise
    except (OSError, ValueError) as error:
        is_late = unanswered(error)
        if isinstance(error, FileNotFoundError) and not is_late:
            if is_local:
                raise
            raise FileNotFoundError(
                f"{shown} does not exist ({redact(error)}). Use the URL of an existing file."
            ) from error
        reason = "no answer in time" if is_late else redact(error).rstrip(".")
        question = "" if isinstance(error, FileError) else " Is the file complete?"
        kind = "CSV" if is_csv(names[0]) else "Parquet"
        raise OSError(f"{shown} cannot be read as {kind}: {reason}.{question}") from error
    if is_csv(names[0]):
        return opened_table, {"files": files.local, "is_text": True}
    frame, lengths, most_bytes = parquet_frame(opened_table)
    return frame, {"files": files.local, "known_lengths": lengths, "most_bytes": most_bytes}


def _with_features(table: Table, columns: Sequence[str] | None) -> Table:
    """Return the table with its feature columns: by default the numeric ones, or the lists."""
    types = dict(zip(map(str, table.frame.columns), table.frame.dtypes, strict=True))
    label_column, hint = table.label_column, ""
    table.check_columns([*(columns or ()), *([] if label_column is None else [label_column])])
    if len(set(columns or ())) < len(columns or ()):
        raise ValueError(f"columns must be distinct, got {', '.join(columns or ())}.")
    if columns is None:
        columns = [n for n, kind in types.items() if number_type(kind) and n != label_column]
        lists = [name for name, kind in types.items() if _number_of(kind)]
        if not columns and len(lists) == 1:
            columns = lists
        elif lists:
            hint = (
                f" {lists[0]!r} has lists of numbers, which are features if it is the only column."
            )
            if columns:
                warn(
                    f"{', '.join(columns[:SHOWN])} are the features, and lists of numbers are "
                    f"left out. To use them, name {lists[0]!r} alone in columns (--columns).",
                    DaskclustWarning,
                )
    if label_column in columns:
        raise ValueError(
            f"columns must not contain the label column, got {label_column!r}. Omit it."
        )
    table = replace(table, columns=tuple(columns or [*types][:1]))
    if len(columns) == 1 and _items_of(types[columns[0]]) is not None:
        return replace(table, vectors=_vectors_of(table, types[columns[0]]))
    wrong = next((name for name in columns if number_type(types[name]) is None), None)
    if columns and wrong is None:
        return table
    # Columns of a table without rows may have no types.
    if not sum(table.lengths):
        raise ValueError("The table must have at least one row, got none.")
    if wrong is None:
        raise ValueError(
            f"The table must have columns of numbers, got {[*types]}. Name columns.{hint}"
        )
    remedy = (
        "Make it the only column in columns (--columns), or omit it. See the page "
        "how-to/embeddings."
        if _number_of(types[wrong]) is not None
        else "Omit it from columns (--columns), or encode its values as numbers, for example dates "
        "as days since the first day. See the page how-to/tables."
    )
    raise ValueError(f"The column {wrong!r} must have numbers, got {types[wrong]}. {remedy}")


def _items_of(kind: Any) -> Any:
    """Return the Arrow type of the items of lists; None for columns without lists."""
    arrow = getattr(kind, "pyarrow_dtype", None)
    return getattr(arrow, "value_type", None) if is_list_type(arrow) else None


def _number_of(kind: Any) -> np.dtype[Any] | None:
    """Return the type of the numbers in lists; None for other columns."""
    items = _items_of(kind)
    try:
        dtype = None if items is None else np.dtype(items.to_pandas_dtype())
    except NotImplementedError:
        return None
    return dtype if dtype is not None and dtype.kind in "fiu" else None


def _vectors_of(table: Table, kind: Any) -> _Vectors:
    """Return type and length of the lists of the only feature column."""
    name, dtype, size = table.columns[0], _number_of(kind), list_size(kind.pyarrow_dtype)
    if dtype is None:
        raise ValueError(
            f"The column {name!r} must have lists of numbers of the same length, got lists of "
            f"{_items_of(kind)}. See the page how-to/embeddings."
        )
    if size is None:
        for partition in table._partitions([name]):
            (lists,) = compute("the first list", dask.delayed(_first_lists)(partition))
            if len(lists):
                break
        else:
            if not sum(table.lengths):
                raise ValueError("The table must have at least one row, got none.")
            raise ValueError(f"The column {name!r} must have lists, got only missing values.")
        size = len(lists.iloc[0, 0])
    if not size:
        raise ValueError(
            f"The column {name!r} must have lists of at least one number, got empty lists."
        )
    return _Vectors(dtype, int(size))


def _first_lists(partition: Any) -> Any:
    return partition.dropna().head(1)


def _store(arrays: Sequence[da.Array], targets: Sequence[Any]) -> None:
    stored = (
        da.store(array, target, lock=False, compute=False)
        for array, target in zip(arrays, targets, strict=True)
    )
    compute("the writing of labels", *stored)


def _values(partition: Any, columns: Sequence[str], dtype: np.dtype[Any], length: int) -> Floats:
    check_length(partition, length)
    values = np.empty((length, len(columns)), dtype)
    for position, name in enumerate(columns):
        column = partition[name]
        kind = number_type(column.dtype)
        try:
            if kind is None and column.dtype != object:
                raise ValueError("no numbers")
            is_narrow = kind is not None and np.can_cast(kind, dtype)
            wide = column.to_numpy(dtype=dtype if is_narrow else np.float64, na_value=np.nan)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"The column {name!r} must have numbers, got {column.dtype} in a partition of the "
                f"table, such as {_first_text(column)!r}. Convert the column, or omit it from "
                "columns (--columns). See the page how-to/tables."
            ) from error
        with np.errstate(over="ignore"):
            values[:, position] = wide
        lost = False if is_narrow else np.isinf(values[:, position]) & ~np.isinf(wide)
        if np.any(lost):
            raise ValueError(
                f"The column {name!r} must have the type of its first partition, {dtype}, got the "
                f"larger number {wide[lost][0]} in a partition. Write all partitions with the same "
                "type."
            )
    return values


def _first_text(column: Any) -> Any:
    """Return the first value that is not a number."""
    import pandas

    present = column.dropna()
    wrong = present[pandas.to_numeric(present.astype(object), errors="coerce").isna()]
    return next(iter([*wrong.head(1), *present.head(1)]), None)


def _vector_values(partition: Any, column: str, vectors: _Vectors, length: int) -> NDArray[Any]:
    check_length(partition, length)
    rows = matrix_of_lists(partition[column], column, vectors.size)
    return rows.astype(vectors.dtype, copy=False)


def _rows_of(partition: Any, positions: Ints, columns: list[str]) -> Any:
    return partition[columns].iloc[positions]
