"""Folders of Parquet files with labels next to the rows."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from daskclust.core.storage.outputs import Output, Written
from daskclust.core.storage.redact import redact
from daskclust.core.storage.retry import unseen

_MARK = "_daskclust.txt"
_FIRST_LINE = "labels by daskclust"
#: Files of a folder of labels.
_OURS = re.compile(rf"part\.\d+\.parquet|{re.escape(_MARK)}")
#: Maximum number of characters of the description of a job.
_MOST_SAID = 2**20


class LabelsFolder(Output):
    """A folder of Parquet files with a file that marks it; it contains no file of the table."""

    def __init__(
        self, place: str, column: str, sources: Sequence[Path] = (), *, overwrite: bool = False
    ) -> None:
        super().__init__(place, "folder of labels", overwrite=overwrite)
        self.column, self.sources = column, sources

    def check_place(self) -> None:
        if "://" in self.place:
            raise ValueError(
                f"{redact(self.place)!r} is a URL; expected a local folder, or one that workers "
                "share."
            )

    def written(self) -> Written | None:
        attributes = written_labels(self.place)
        if attributes is None:
            return None
        return Written(self.kind, attributes, tuple(filter(_OURS.fullmatch, self.names())))

    def is_of(self, job: str) -> bool:
        """Return True if the job has written labels of this name to the folder."""
        found = self.written()
        return super().is_of(job) and found is not None and found.attributes["name"] == self.column

    def problem(self) -> str | None:
        """Return the reason why the folder cannot be written, or None."""
        holds_table = any(self.path in file.absolute().parents for file in self.sources)
        return super().problem() or ("holds the table itself" if holds_table else None)


def written_labels(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the attributes of a folder that :meth:`Table.write_labels` has written, or None.

    Its ``"name"`` is that of the column of the labels.

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


def mark(folder: Path, said: str) -> None:
    """Write the description that :func:`written_labels` reads into a folder."""
    (folder / _MARK).write_text(f"{_FIRST_LINE}\n{said}\n", encoding="utf-8")


def write_part(part: Any, columns: Mapping[str, NDArray[Any]], path: Path) -> None:
    for labels in columns.values():
        if len(part) != len(labels):
            raise ValueError(
                f"A partition of the table has {len(part)} rows but got {len(labels)} labels; "
                "expected the labels of table.samples."
            )
    if not path.parent.is_dir():
        raise unseen(repr(str(path.parent)), who="which the client made")
    import pyarrow
    import pyarrow.parquet

    try:
        # With its index, unless the index numbers the rows.
        table = pyarrow.Table.from_pandas(part.assign(**columns))
    except pyarrow.ArrowException as error:
        raise ValueError(
            f"A column of the table cannot be written as Parquet: {error}. Leave it out of the "
            "table, or convert it."
        ) from error
    # pandas cannot read its own description of Arrow types.
    said = json.loads(table.schema.metadata[b"pandas"])
    for column in said["columns"]:
        if column["numpy_type"].endswith("[pyarrow]"):
            column["numpy_type"] = "object"
    pyarrow.parquet.write_table(table.replace_schema_metadata({"pandas": json.dumps(said)}), path)
