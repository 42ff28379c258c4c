"""Tables (Parquet, CSV) as rows for clustering, and labels written beside the rows."""

from __future__ import annotations

import difflib
import glob
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from numpy.typing import NDArray

from daskclust._types import Ints
from daskclust.engine import compute, parts_read_again
from daskclust.exceptions import ReadError
from daskclust.storage.atomic import discard, hidden_sibling, naming, put_in_place, remove_stale
from daskclust.storage.files import matching, unanswered, url_options
from daskclust.storage.processes import unseen
from daskclust.storage.reads import NEVER_AGAIN, Retries, persistently
from daskclust.storage.urls import redact, redact_all

__all__ = ["Table", "open_table", "written_labels"]

_MARK = "_daskclust.txt"
_FIRST_LINE = "labels by daskclust"
#: Files of a folder of labels.
_OURS = re.compile(rf"part\.\d+\.parquet|{re.escape(_MARK)}")
#: Characters of what is said there, which describes a job.
_MOST_SAID = 2**20
#: Columns that a message names.
_SHOWN = 30


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

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of `samples`."""
        kinds = [np.dtype(kind) for kind in self.frame[list(self.columns)].dtypes]
        return np.result_type(np.float32, *kinds)

    @property
    def bytes_of_files(self) -> int | None:
        """Size of the local files in bytes; None where there are none."""
        return sum(file.stat().st_size for file in self.files) if self.files else None

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Number of rows of each partition; counted once, by one pass over a single column."""
        parts = [dask.delayed(len)(part) for part in self._parts([self.columns[0]])]
        return tuple(int(length) for length in compute("the count of rows", *parts))

    def _parts(self, columns: Sequence[str] | None = None) -> list[Any]:
        """Return the parts of some columns, delayed: always the same parts of the files.

        Dask's optimization binds parts together where few columns are read, so that parts of
        different columns would no longer be the same rows; here only columns are left out.

        Reads that fail in a way that may pass are made again, of metadata here and of rows
        in tasks.
        """

        def parts() -> list[Any]:
            frame = self.frame
            if columns is not None:
                chosen = frame[list(columns)]
                fewer = chosen.simplify()
                frame = fewer if fewer.npartitions == frame.npartitions else chosen
            return list(frame.to_delayed(optimize_graph=False))

        found = persistently(parts, lambda: "The metadata of the table", _retries_of(self.files))
        return parts_read_again(found)

    @cached_property
    def samples(self) -> Any:
        """The features: a lazy Dask array (n, p), one chunk per partition.

        float32 where all columns are float32 or integers of up to 16 bits, else float64.
        """
        p = len(self.columns)
        blocks = [
            da.from_delayed(
                dask.delayed(_values)(part, self.columns, self.dtype, length),
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
        parts = [
            dask.delayed(_labeled)(part[column], length)
            for part, length in zip(self._parts([column]), self.lengths, strict=True)
        ]
        found = compute("the reading of labels", *parts)
        starts = np.cumsum([0, *self.lengths])
        rows = [places + start for (places, _), start in zip(found, starts, strict=False)]
        return np.concatenate(rows), np.concatenate([values for _, values in found])

    def write_labels(
        self,
        labels: Any,
        path: str | os.PathLike[str],
        *,
        name: str = "label",
        overwrite: bool = False,
        attributes: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write all columns and the labels as a folder of Parquet files, completely or not at all.

        Parameters
        ----------
        labels : dask.array.Array of shape (n,)
            Chunked like `samples`: ``model.labels_``, ``model.predict(table.samples)``.
        path : str or path
            A new folder, which all workers must be able to reach.
        name : str, default="label"
            Name of the new column.
        overwrite : bool, default=False
            Replace a folder that this method has written; nothing else is ever replaced.
        attributes : mapping, default=None
            JSON values that are kept beside the rows; see :func:`written_labels`.
            Credentials of URLs in them are replaced by ``***``.

        Raises
        ------
        FileExistsError
            The folder exists and `overwrite` is False, or daskclust has not written it.
        ValueError
            The table already has a column `name`, the labels have other chunks than
            `samples`, or `path` is a URL.

        Notes
        -----
        Cost: one task per partition.  It reads the partition, adds the labels and writes
        one file.
        """
        self.check_target(path, name, overwrite=overwrite)
        said = json.dumps(redact_all({**(attributes or {}), "name": name}))
        target = Path(path).absolute()
        blocks, parts = labels.to_delayed().ravel().tolist(), self._parts()
        if len(blocks) != len(parts):
            raise ValueError(
                f"labels have {len(blocks)} chunks, the table has {len(parts)} parts; expected the "
                "labels of table.samples, in their chunks."
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = hidden_sibling(target, "partial")
        partial.mkdir()
        try:
            tasks = [
                dask.delayed(_write_part)(part, block, name, partial / f"part.{k:06d}.parquet")
                for k, (part, block) in enumerate(zip(parts, blocks, strict=True))
            ]
            with naming(target):
                compute("the writing of labels", *tasks)
            missing = len(parts) - len(list(partial.glob("part.*.parquet")))
            if missing:
                raise ValueError(
                    f"{missing} of {len(parts)} parts written by workers are not in {str(path)!r}; "
                    "every worker must see the same folder under the same path."
                )
            (partial / _MARK).write_text(f"{_FIRST_LINE}\n{said}\n", encoding="utf-8")
            # Checked again: writing may have taken hours.
            self.check_target(path, name, overwrite=overwrite)
            put_in_place(partial, target)
            remove_stale(target)
        finally:
            discard(partial)
        return target

    def check_target(self, path: str | os.PathLike[str], name: str, *, overwrite: bool) -> None:
        """Raise where :meth:`write_labels` would refuse to write; nothing is computed."""
        if "://" in os.fspath(path):
            raise ValueError(
                f"{redact(path)!r} is a URL; expected a local folder, or one that workers share."
            )
        target = Path(path).absolute()
        if name in self.frame.columns:
            raise ValueError(f"The table has a column {name!r} already; pass another name=.")
        if not target.exists():
            return
        if not overwrite:
            raise FileExistsError(
                f"{str(target)!r} exists already; choose another name or pass overwrite=True "
                "(--overwrite)."
            )
        if not (target / _MARK).is_file():
            raise FileExistsError(
                f"{str(target)!r} was not written by daskclust; overwrite replaces labels written "
                "by daskclust only. Choose another name, or remove it yourself."
            )
        if any(target in file.absolute().parents for file in self.files):
            raise FileExistsError(
                f"{str(target)!r} holds the table itself; write the labels elsewhere."
            )
        added = sorted(item.name for item in target.iterdir() if not _OURS.fullmatch(item.name))
        if added:
            raise FileExistsError(
                f"{str(target)!r} also holds {added[0]!r}, which daskclust did not write. Choose "
                "another name, or remove it yourself."
            )


def open_table(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Any,
    *,
    columns: Sequence[str] | None = None,
    label_column: str | None = None,
) -> Table:
    """Open a table in Parquet or CSV; only metadata are read.

    Parameters
    ----------
    source : str, path, list of them, or dask.dataframe.DataFrame
        Parquet (a file or a folder), or CSV if the name ends in .csv.  May be a pattern
        with ``*``, or a URL that fsspec supports.
    columns : sequence of str, default=None
        Feature columns; None takes all numeric columns except `label_column`.
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
        A feature is not numeric, or there is no feature.

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
    if hasattr(source, "to_dask_array"):
        frame: Any = source
        files: list[Path] = []
    else:
        single = isinstance(source, str | os.PathLike)
        listed: Any = [source] if single else source
        names = [os.fspath(item) for item in listed]
        if not names:
            raise ValueError("The list of files is empty; give one path at least.")
        files = [file for item in names if "://" not in item for file in _files_of(item)]
        given: Any = [file for name in names for file in matching(name)]
        if single and given == names:
            # As it is: Dask knows folders and local patterns.
            given = names[0]
        is_text = names[0].lower().split("?")[0].endswith(".csv")
        for file in files:
            if not is_text and _is_cut_off(file):
                raise OSError(
                    f"{str(file)!r} cannot be read as Parquet: it does not end as such a file "
                    "does. Is it whole?"
                )
        read = dd.read_csv if is_text else dd.read_parquet

        def opened() -> Any:
            found = read(given, storage_options=url_options(names[0]) or None)
            # What it says of its columns and parts is read here, not later.
            _ = found.dtypes, found.npartitions
            return found

        try:
            frame = persistently(opened, lambda: redact(repr(source)), _retries_of(files))
        except ReadError:
            raise
        except (OSError, ValueError) as error:
            reason = "no answer in time" if unanswered(error) else redact(error)
            kind = "CSV" if is_text else "Parquet"
            raise OSError(
                f"{redact(repr(source))} cannot be read as {kind}: {reason}. Is the file whole?"
            ) from error
    known = [str(name) for name in frame.columns]
    for wanted in (*(columns or ()), *(() if label_column is None else (label_column,))):
        if wanted not in known:
            close = difflib.get_close_matches(wanted, known, n=1)
            shown = ", ".join(known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
            raise KeyError(
                f"The table has no column {wanted!r}; it has {shown}."
                + (f" Did you mean {close[0]}?" if close else "")
            )
    if len(set(columns or ())) < len(columns or ()):
        raise ValueError(f"columns are {', '.join(columns or ())}; expected each one once.")
    kinds = {name: frame.dtypes[name] for name in known}
    if columns is None:
        columns = [n for n in known if _is_number(kinds[n]) and n != label_column]
    for name in columns:
        if not _is_number(kinds[name]):
            _check_rows(frame, files)
            raise ValueError(
                f"The column {name!r} is {kinds[name]}; expected numbers. Leave it out of columns "
                "(--columns), or make numbers of it."
            )
    if not columns:
        _check_rows(frame, files)
        raise ValueError(f"The table has no columns of numbers among {known}; name some.")
    if label_column in columns:
        raise ValueError(f"{label_column!r} is the label column; leave it out of columns.")
    return Table(frame, tuple(columns), label_column, tuple(files))


def written_labels(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the attributes of a folder that :meth:`Table.write_labels` has written.

    Returns
    -------
    dict or None
        With ``"name"``, that of the column of the labels; None for anything else.

    Examples
    --------
    >>> written_labels("s3://bucket/labels") is None
    True
    """
    try:
        with open(Path(path) / _MARK, encoding="utf-8") as file:
            first, said = file.readline(_MOST_SAID), file.readline(_MOST_SAID)
        found = json.loads(said) if first.rstrip("\n") == _FIRST_LINE else None
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _retries_of(files: Sequence[Path]) -> Retries:
    # Files of this machine fail for good where they fail, as for stores.
    return NEVER_AGAIN if files else Retries.configured()


def _files_of(path: str) -> list[Path]:
    """Local files that a path or pattern means."""
    found = sorted(map(Path, glob.glob(path))) if "*" in path else [Path(path)]
    if not found or not found[0].exists():
        raise FileNotFoundError(f"There is no file {path!r}; give the path of an existing one.")
    if len(found) == 1 and found[0].is_dir():
        return sorted(found[0].rglob("*.parquet"))
    return [file for file in found if file.is_file()]


def _is_cut_off(path: Path) -> bool:
    """Whether a file lacks the last bytes of Parquet: Dask looks at those of the first one only."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 4))
        return size < 12 or file.read(4) not in (b"PAR1", b"PARE")


def _check_rows(frame: Any, files: Sequence[Path]) -> None:
    """Raise for a table without rows: its columns have no types."""

    def first() -> Any:
        return frame.head(1, npartitions=-1)

    if not len(persistently(first, lambda: "The first row of the table", _retries_of(files))):
        raise ValueError("The table has no rows; expected one at least.")


def _is_number(kind: Any) -> bool:
    return isinstance(kind, np.dtype) and kind.kind in "iufb"


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
    values: NDArray[Any] = part[list(columns)].to_numpy(dtype=dtype)
    return values


def _labeled(part: Any, length: int) -> tuple[Ints, NDArray[Any]]:
    """Places of the labels of a part, and these."""
    _check_length(part, length)
    known = part.notna().to_numpy()
    if part.dtype.kind in "iuf":
        known = known & (part.to_numpy() != -1)
        values = part.to_numpy()[known].astype(np.int64)
        if (values != part.to_numpy()[known]).any():
            raise ValueError(f"The label column {part.name!r} holds numbers that are no integers.")
    else:
        text = part.astype(str).str.strip()
        known = known & (text != "").to_numpy(dtype=bool)
        values = text.to_numpy(dtype=object)[known]
    return np.flatnonzero(known), values


def _write_part(part: Any, labels: NDArray[Any], name: str, path: Path) -> None:
    if len(part) != len(labels):
        raise ValueError(
            f"A part of the table has {len(part)} rows but got {len(labels)} labels; expected the "
            "labels of table.samples."
        )
    if not path.parent.is_dir():
        raise unseen(repr(str(path.parent)), who="which the client made")
    part.assign(**{name: labels}).to_parquet(path, index=False)
