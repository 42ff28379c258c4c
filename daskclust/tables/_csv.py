"""The first lines of a CSV file, by which its columns are known."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Bytes of a CSV file by which its columns are known.
HEAD_BYTES = 2**20
#: Words for missing numbers in CSV; in columns that are no features they are text.
_MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "null", "NULL", "None", "#N/A", "<NA>")


class HeadError(ValueError):
    """The first lines of a CSV file say what is wrong with it."""


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

    def check(self, place: str) -> None:
        """Refuse another file of the table with other columns, or the same in another order."""
        try:
            found = _names(place)
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

    def options(self, columns: Sequence[str] | None, label_column: str | None) -> dict[str, Any]:
        """Return arguments of pandas' reader: features are float64, all others text as it is."""
        if columns is None:
            known = enumerate(self.header)
            columns = [n for at, n in known if n != label_column and self._is_numeric(at)]
        features = {name for name in columns if name in self.header}
        return {
            "dtype": {name: np.float64 if name in features else str for name in self.header},
            "na_values": {name: _MISSING for name in features},
            "keep_default_na": False,
            # Else lines of one field too many make an index of the first column.
            "index_col": False,
            "encoding": "utf-8-sig",
        }
