"""Files of tables: search for files, and lazy frames of Parquet and CSV."""

from __future__ import annotations

import csv
import glob
import io
import os
import re
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dask.utils import natural_sort_key

from daskclust.core.estimator.arrow import frame_of_pieces, pieces_of
from daskclust.core.storage.files import matching
from daskclust.core.storage.redact import redact
from daskclust.core.storage.stores import url_options

#: Number of bytes of a CSV file that are read to find the numeric columns.
_HEAD_BYTES = 2**20
#: Approximate number of bytes of a CSV file that one task reads.
_PART_BYTES = 64 * 10**6
#: Maximum number of bytes of a line of CSV.
_LINE_BYTES = 2**26
#: Number of threads that read the metadata of Parquet files.
_THREADS = 16
#: Words for missing numbers in the feature columns of CSV.  In other columns they are text.
_MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "null", "NULL", "None", "#N/A", "<NA>")
#: Suffixes of Parquet files in folders.
_PARQUET = (".parquet", ".parq", ".pq")


class FileError(ValueError):
    """Error about a file, with a message that includes the remedy."""


@dataclass(frozen=True)
class Files:
    """Files of one table: `paths` in a file system of fsspec.

    `folder` is the folder if the user has passed one.  `local` are absolute paths; empty for URLs.
    """

    system: Any
    paths: list[str]
    folder: str | None
    local: tuple[Path, ...]


def is_csv(name: str) -> bool:
    """Return True for the name of a CSV file, without the query of a URL.

    >>> is_csv("t?.csv"), is_csv("s3://b/t.CSV.gz?v=1"), is_csv("t.parquet")
    (True, True, False)
    """
    plain = name.lower().split("?")[0] if "://" in name else name.lower()
    return plain.endswith((".csv", ".csv.gz"))


def find_files(names: Sequence[str]) -> Files:
    """Return the files of a table from paths, URLs, folders or patterns."""
    import fsspec

    remote = ["://" in name for name in names]
    if any(remote) and not all(remote):
        raise FileError("all files must be local, or all must be URLs, got both")
    folder = None
    if any(remote):
        matched = [name for pattern in names for name in matching(pattern)]
        systems = [fsspec.core.url_to_fs(name, **url_options(names[0])) for name in matched]
        system, paths = systems[0][0], [path for _, path in systems]
        if len(paths) == 1:
            if "*" in paths[0]:
                paths = sorted(system.glob(paths[0]))
            elif not is_csv(names[0]) and system.isdir(paths[0]):
                folder = paths[0]
                paths = [path for path in system.find(folder) if path.endswith(_PARQUET)]
                paths.sort(key=natural_sort_key)
    else:
        system = fsspec.filesystem("file")
        paths = [path for name in names for path in _local(name)]
        folder = os.path.abspath(names[0]) if len(names) == 1 and Path(names[0]).is_dir() else None
    if not paths:
        raise FileNotFoundError(
            f"{redact(names[0])!r} must have files of a table, got none. Pass the path of a table."
        )
    local = () if any(remote) else tuple(map(Path, paths))
    return Files(system, paths, folder, local)


def _local(name: str) -> list[str]:
    """Return the absolute paths of the files for a path, a folder or a pattern."""
    path = Path(name)
    if path.is_dir():
        matches = [str(file) for file in path.rglob("*") if file.name.endswith(_PARQUET)]
        return [os.path.abspath(file) for file in sorted(matches, key=natural_sort_key)]
    is_pattern = any(mark in name for mark in "*?[") and not path.exists()
    matches = sorted(glob.glob(name)) if is_pattern else [name]
    if not matches or not Path(matches[0]).exists():
        raise FileNotFoundError(
            f"The file {name!r} does not exist. Use the path of an existing file."
        )
    return [os.path.abspath(file) for file in matches if Path(file).is_file()]


# Parquet


def read_footers(files: Files) -> Any:
    """Read the metadata of all files, and return the files as a Dataset."""
    import pyarrow.dataset
    from pyarrow.fs import FSSpecHandler, LocalFileSystem, PyFileSystem

    hive = pyarrow.dataset.HivePartitioning.discover(infer_dictionary=True)
    system = LocalFileSystem() if files.local else PyFileSystem(FSSpecHandler(files.system))
    try:
        dataset = pyarrow.dataset.dataset(
            files.paths,
            format="parquet",
            filesystem=system,
            partitioning=None if files.folder is None else hive,
            partition_base_dir=files.folder,
        )
    except pyarrow.ArrowInvalid as error:
        raise _not_parquet(files.paths[0], error) from error
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(_read_footer, dataset.get_fragments()))
    return dataset


def _read_footer(fragment: Any) -> None:
    import pyarrow

    try:
        fragment.ensure_complete_metadata()
    except pyarrow.ArrowInvalid as error:
        raise _not_parquet(fragment.path, error) from error


def _not_parquet(path: str, error: BaseException) -> FileError:
    reason = _first_line(error).rpartition("': ")[2]
    return FileError(f"{redact(path)!r} cannot be read as Parquet: {reason}")


def parquet_frame(dataset: Any) -> tuple[Any, tuple[int, ...], int]:
    """Return a lazy frame of Parquet files, rows per partition, and bytes of the largest one."""
    import pyarrow

    schema = dataset.schema
    for fragment in dataset.get_fragments():
        file_schema, where = fragment.physical_schema, repr(redact(fragment.path))
        additional = {*file_schema.names} - {*schema.names}
        if additional:
            raise ValueError(
                f"{where} must have the columns of the first file of the table, got an additional "
                f"column {min(additional)!r}."
            )
        for item in (file_schema.pandas_metadata or {}).get("index_columns", []):
            if isinstance(item, dict) and item.get("name") is not None:
                raise ValueError(
                    f"The index {item['name']!r} of {where} must be stored as a column, got only "
                    "the ends of a range. Write the file from frame.reset_index()."
                )
        try:
            schema = pyarrow.unify_schemas([schema, file_schema], promote_options="permissive")
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
            raise ValueError(
                f"{where} must have the data types of the first file of the table, got "
                f"{_first_line(error)}. Write the files with the same types."
            ) from error
    pieces = pieces_of(dataset)
    groups = [piece.row_groups for piece in pieces]
    lengths = tuple(sum(group.num_rows for group in groups_of_piece) for groups_of_piece in groups)
    most_bytes = max(
        sum(group.total_byte_size for group in groups_of_piece) for groups_of_piece in groups
    )
    return frame_of_pieces(schema, pieces), lengths, most_bytes


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0].rstrip(".")


# CSV


def _header_of(content: bytes) -> tuple[list[str], int, list[list[str]]]:
    """Return the names of the columns, the lines of the header, and the rows below it.

    The text must be UTF-8 with commas, and no row may have more fields than the header: its values
    would belong to other columns.
    """
    import pandas

    is_complete = len(content) < _HEAD_BYTES
    try:
        # The last line, and the last character in it, may be incomplete.
        text = (content if is_complete else content[: content.rindex(b"\n")]).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(
            f"the byte {error.start} is not UTF-8. Convert the file first, for example with iconv "
            "-f latin1 -t utf-8"
        ) from error
    except ValueError:
        raise FileError("its first MiB is one line") from None
    lines = csv.reader(io.StringIO(text, newline=""))
    header = next(filter(None, lines), None)
    if header is None:
        raise FileError("it must have a header line, got an empty file")
    n_lines = lines.line_num
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise FileError(
            f"its header must have fields separated by commas, got {header[0]!r}; write the file "
            "with commas"
        )
    rows = []
    for row in lines:
        if len(row) > len(header):
            raise FileError(
                f"line {lines.line_num} must have at most {len(header)} fields, as the header, got "
                f"{len(row)}. Remove fields (a comma at the end of the line?), or name them in the "
                "header"
            )
        rows.append(row)
    # pandas chooses names for columns without a name and for repeated names.
    names = [*pandas.read_csv(io.StringIO(text), nrows=0, index_col=False).columns]
    return names, n_lines, rows if is_complete else rows[:-1]


def _is_numeric(texts: Collection[str]) -> bool:
    """Return True if all texts except missing values are numbers, and there is at least one."""
    import pyarrow

    present = {text.strip() for text in texts}.difference(_MISSING)
    try:
        pyarrow.array([*present], pyarrow.string()).cast(pyarrow.float64())
    except pyarrow.ArrowInvalid:
        return False
    return bool(present)


@dataclass(frozen=True)
class _CsvReader:
    """Function that reads a part of a CSV file, with features as float64 and the rest as text."""

    header: list[str]
    features: tuple[str, ...]

    def __call__(self, source: Any, columns: Sequence[str] | None = None) -> Any:
        """Read columns of a part of a file, given as (file, first byte, number of bytes)."""
        import pandas
        import pyarrow.csv
        from fsspec.utils import read_block

        file, start, length = source
        # Other threads may read the same file.
        with copy(file) as opened:
            content = opened.read() if length is None else read_block(opened, start, length, b"\n")
        where = redact(file.path)
        n_lines = 0 if start else self.check_header(content, where)
        shown = f"{where!r}, from byte {start} on" if start else repr(where)
        if length is not None and content.count(b'"') % 2:
            raise FileError(
                f"{shown}: A quoted value crosses the border between two parts of the file, or a "
                "quotation mark is missing. Write the table as Parquet."
            )
        if not content.strip():
            table = self.schema.empty_table().select(columns or self.header)
            return table.to_pandas(types_mapper=pandas.ArrowDtype)
        try:
            table = pyarrow.csv.read_csv(
                io.BytesIO(content),
                pyarrow.csv.ReadOptions(
                    use_threads=False,
                    block_size=min(len(content), _LINE_BYTES),
                    skip_rows=n_lines,
                    column_names=self.header,
                ),
                pyarrow.csv.ParseOptions(newlines_in_values=True),
                pyarrow.csv.ConvertOptions(
                    column_types=self.schema, null_values=_MISSING, include_columns=columns
                ),
            )
        except pyarrow.ArrowInvalid as error:
            raise FileError(f"{shown}: {self._explained(error)}") from error
        return table.to_pandas(types_mapper=pandas.ArrowDtype)

    @property
    def schema(self) -> Any:
        """Data types of all columns."""
        import pyarrow

        number, text = pyarrow.float64(), pyarrow.string()
        return pyarrow.schema([(n, number if n in self.features else text) for n in self.header])

    def check_header(self, content: bytes, where: str) -> int:
        """Return the number of header lines; raise an error if the columns differ."""
        try:
            names, n_lines, _ = _header_of(content[:_HEAD_BYTES])
        except FileError as error:
            raise FileError(f"{where!r}, of the same table: {error}") from error
        if names != self.header:
            raise FileError(
                f"the columns of {where!r} must be those of the first file, {self.header}, in the "
                f"same order, got {names}"
            )
        return n_lines

    def _explained(self, error: BaseException) -> str:
        """Return the message of a pyarrow error, with the name of the column."""
        text = _first_line(error)
        match = re.fullmatch(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion.*", text)
        if match is None:
            return f"It cannot be read as CSV: {text}."
        value = text.partition("value ")[2][:42] or text
        row = "" if match[2] is None else f" in line {match[2]} of the part"
        return (
            f"The column {self.header[int(match[1])]!r} must contain numbers, or empty fields or "
            f"NA for missing values, got {value}{row}. Correct the value, or omit the column from "
            "columns (--columns). See the page how-to/tables."
        )


def csv_frame(files: Files, columns: Sequence[str] | None, label_column: str | None) -> Any:
    """Return the lazy frame of CSV files.  The first MiB of the first file sets the types."""
    import pandas
    from dask.dataframe import from_map
    from fsspec.core import OpenFile, get_compression

    opened = [
        OpenFile(files.system, path, compression=get_compression(path, "infer"))
        for path in files.paths
    ]
    heads = []
    for file in opened if files.local else opened[:1]:
        with file as content:
            heads.append(content.read(_HEAD_BYTES))
    header, _, rows = _header_of(heads[0])
    if columns is None:
        texts = (
            [row[position] for row in rows if position < len(row)]
            for position in range(len(header))
        )
        numeric = [name for name, column in zip(header, texts, strict=True) if _is_numeric(column)]
        columns = [name for name in numeric if name != label_column]
    reader = _CsvReader(header, tuple(name for name in header if name in columns))
    for path, head in zip(files.paths, heads, strict=False):
        reader.check_header(head, path)
    sources: list[Any] = []
    for file in opened:
        # Compressed files cannot be divided.
        size = 0 if file.compression else file.fs.size(file.path)
        n_parts = max(1, size // _PART_BYTES)
        edges = [size * k // n_parts for k in range(n_parts + 1)]
        lengths = [None] if n_parts == 1 else np.diff(edges).tolist()
        # Errors name the file if its part is a list, as in the readers of Dask.
        sources += [[file, start, n] for start, n in zip(edges, lengths, strict=False)]
    return from_map(
        reader,
        sources,
        meta=reader.schema.empty_table().to_pandas(types_mapper=pandas.ArrowDtype),
        label="read-csv",
        enforce_metadata=False,
    )
