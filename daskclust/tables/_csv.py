"""CSV files: the first lines, by which the columns are known, and the parts that tasks read."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from daskclust.core.storage.redact import redact

#: Bytes of a CSV file by which its columns are known.
HEAD_BYTES = 2**20
#: About so many bytes of a file make a part.
_PART_BYTES = 64 * 10**6
#: Words for missing numbers in CSV; in columns that are no features they are text.
_MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "null", "NULL", "None", "#N/A", "<NA>")

#: Arguments of pandas' reader by which text stays what it is.
_AS_IT_IS: dict[str, Any] = {
    "keep_default_na": False,
    # Else lines of one field too many make an index of the first column.
    "index_col": False,
    "encoding": "utf-8-sig",
}


class HeadError(ValueError):
    """What is wrong with a CSV file, by its first lines or by a part."""


def _names(source: Any) -> list[str]:
    """Names of columns, as pandas has them of columns without a name and of those of one name."""
    import pandas

    return [*pandas.read_csv(source, nrows=0, index_col=False, encoding="utf-8-sig").columns]


@dataclass(frozen=True)
class Head:
    """The first lines of a CSV file: what its columns are, decided once for all parts."""

    header: list[str]
    rows: list[list[str]]

    @classmethod
    def of(cls, place: str, options: Mapping[str, Any]) -> Head:
        """Read the first MiB of a file.

        Other text than UTF-8, other separators than commas, and a line with more fields than the
        header are refused: values would then belong to other columns.
        """
        import fsspec

        # The first one of a pattern.
        with fsspec.open_files(place, "rb", compression="infer", **options)[0] as file:
            content = file.read(HEAD_BYTES)
        whole = len(content) < HEAD_BYTES
        try:
            # The last line may be cut off, and so may its last letter.
            text = (content if whole else content[: content.rindex(b"\n")]).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise HeadError(
                f"the byte {error.start} is no UTF-8. Convert it first, for example with iconv -f "
                "latin1 -t utf-8"
            ) from error
        except ValueError:
            raise HeadError("its first MiB is one line") from None
        lines = csv.reader(io.StringIO(text, newline=""))
        header = next(filter(None, lines), None)
        if header is None:
            raise HeadError("it is empty; expected a header line")
        if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
            raise HeadError(
                f"its header is {header[0]!r}, without commas; expected fields separated by commas"
            )
        rows = []
        for row in lines:
            if len(row) > len(header):
                raise HeadError(
                    f"line {lines.line_num} has {len(row)} fields, the header {len(header)}, so "
                    "which values belong to which columns cannot be told. Remove what is too much "
                    "(a comma at the end of the line?), or name it in the header"
                )
            if row:
                rows.append(row)
        return cls(_names(io.StringIO(text)), rows if whole or len(rows) < 2 else rows[:-1])

    def check(self, place: str, content: bytes | None = None) -> None:
        """Refuse another file of the table with other columns, or the same in another order."""
        try:
            found = _names(place if content is None else io.BytesIO(content))
        except ValueError as error:
            raise HeadError(f"{place!r}, of the same table: {error}") from error
        if found != self.header:
            raise HeadError(
                f"the columns of {place!r} are {found}, those of the first file {self.header}; "
                "expected the same ones in the same order"
            )

    def _is_numeric(self, at: int) -> bool:
        """Whether a column holds numbers as far as it holds anything, and one at least."""
        import pandas

        texts = (row[at].strip() for row in self.rows if at < len(row))
        present = [text for text in texts if text not in _MISSING]
        return bool(present) and not np.isnan(pandas.to_numeric(present, errors="coerce")).any()

    def frame(
        self,
        places: str | Sequence[str],
        columns: Sequence[str] | None,
        label_column: str | None,
        options: Mapping[str, Any],
    ) -> Any:
        """Return the lazy table: features are float64, all other columns text as it is."""
        import fsspec
        import pandas
        from dask.dataframe import from_map

        if columns is None:
            known = enumerate(self.header)
            columns = [n for at, n in known if n != label_column and self._is_numeric(at)]
        features = tuple(name for name in self.header if name in columns)
        parts = []
        for file in fsspec.open_files(places, "rb", compression="infer", **options):
            # A block of a compressed file cannot be found.
            size = None if file.compression else file.fs.size(file.path)
            n_parts = max(1, (size or 0) // _PART_BYTES)
            edges = [(size or 0) * k // n_parts for k in range(n_parts + 1)]
            lengths = [None] if size is None else np.diff(edges).tolist()
            # A list of file, first byte and how many, as Dask has it: errors name it.
            parts += [[file, start, n] for start, n in zip(edges, lengths, strict=False)]
        line = io.StringIO(newline="")
        csv.writer(line, lineterminator="\n").writerow(self.header)
        reader = _Reader(Head(self.header, []), features, line.getvalue().encode())
        meta = pandas.read_csv(io.BytesIO(reader.line), **reader.options)
        return from_map(
            partial(_read, reader=reader),
            parts,
            meta=meta,
            label="read-csv",
            enforce_metadata=False,
        )


@dataclass(frozen=True)
class _Reader:
    """How the parts of a table are read."""

    head: Head
    features: tuple[str, ...]
    line: bytes

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of pandas' reader."""
        features = {*self.features}
        return {
            "dtype": {n: np.float64 if n in features else str for n in self.head.header},
            "na_values": {name: _MISSING for name in features},
            **_AS_IT_IS,
        }

    def wrong_number(self, content: bytes, features: Sequence[str]) -> str | None:
        """Say which value is no number, or too large for one; None where all are numbers."""
        import pandas

        read = partial(pandas.read_csv, usecols=features, dtype=str, **_AS_IT_IS)
        texts = read(io.BytesIO(content))
        for name in features:
            text = texts[name].fillna("")
            numbers = pandas.to_numeric(text, errors="coerce").to_numpy(dtype=np.float64)
            is_wrong = np.isnan(numbers) & ~text.isin(_MISSING).to_numpy()
            is_wrong |= np.isinf(numbers) & ~text.str.contains("inf", case=False).to_numpy(bool)
            if is_wrong.any():
                row = int(np.argmax(is_wrong))
                return (
                    f"The column {name!r} holds {text.iloc[row][:40]!r} in row {row + 1}; expected "
                    f"numbers of at most {np.finfo(np.float64).max:.1e}, nothing or NA where one "
                    "is missing. Correct it, or leave the column out of columns (--columns). "
                    "See the page how-to/tables"
                )
        return None


def _read(piece: Any, columns: Sequence[str] | None = None, *, reader: _Reader) -> Any:
    """Read some columns of a part; an error names the file, the column and the value."""
    import pandas
    from fsspec.utils import read_block

    file, start, length = piece
    with file as opened:
        content = opened.read() if length is None else read_block(opened, start, length, b"\n")
    place = redact(file.path)
    if start == 0:
        reader.head.check(place, content)
    else:
        content = reader.line + content
    chosen = reader.head.header if columns is None else list(columns)
    features = [name for name in reader.features if name in chosen]
    # Lines of too many fields are told where all columns are read.
    some = None if len(chosen) == len(reader.head.header) else chosen
    wrong = None
    try:
        frame = pandas.read_csv(io.BytesIO(content), usecols=some, **reader.options)
    except ValueError as error:
        with contextlib.suppress(ValueError):
            wrong = reader.wrong_number(content, features)
        wrong = wrong or f"It cannot be read as CSV: {error}"
    else:
        if any(np.isinf(frame[name].to_numpy()).any() for name in features):
            wrong = reader.wrong_number(content, features)
    if wrong is not None:
        where = f"{place!r}, from byte {start} on" if start else repr(place)
        raise HeadError(f"{where}: {wrong}.")
    return frame[chosen]
