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
#: Names of the files in a folder of labels.
_OURS = re.compile(rf"part\.\d+\.parquet|{re.escape(_MARK)}")
#: Maximum number of characters of a line of the file that marks a folder.
_MAX_DESCRIPTION = 2**20


class LabelsFolder(Output):
    """Folder of Parquet files with labels, and a file that marks the folder as written here."""

    def __init__(
        self, location: str, column: str, sources: Sequence[Path] = (), *, overwrite: bool = False
    ) -> None:
        super().__init__(location, "folder of labels", overwrite=overwrite)
        self.column, self.sources = column, sources

    def check_location(self) -> None:
        if "://" in self.location:
            raise ValueError(
                f"{redact(self.location)!r} must be a folder that all workers share, got a URL. "
                "Use a local path or a path of a shared file system."
            )

    def written(self) -> Written | None:
        attributes = written_labels(self.location)
        if attributes is None:
            return None
        return Written(self.kind, attributes, tuple(filter(_OURS.fullmatch, self.names())))

    def is_of(self, job: str) -> bool:
        """Return True if the job has written labels of this name to the folder."""
        output = self.written()
        return (
            super().is_of(job) and output is not None and output.attributes["name"] == self.column
        )

    def problem(self) -> str | None:
        """Return the reason why the folder cannot be written, or None."""
        holds_table = any(self.path in file.absolute().parents for file in self.sources)
        return super().problem() or ("holds the table itself" if holds_table else None)


def written_labels(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the attributes of a folder that :meth:`Table.write_labels` has written, or None.

    The attribute ``"name"`` is the name of the column of labels.

    >>> written_labels("s3://bucket/labels") is None
    True
    """
    try:
        with open(Path(path) / _MARK, encoding="utf-8") as file:
            first, description = file.readline(_MAX_DESCRIPTION), file.readline(_MAX_DESCRIPTION)
        attributes = json.loads(description) if first.rstrip("\n") == _FIRST_LINE else None
    except (OSError, ValueError, RecursionError):
        return None
    return attributes if isinstance(attributes, dict) else None


def mark(folder: Path, description: str) -> None:
    """Write the description that :func:`written_labels` reads into a folder."""
    (folder / _MARK).write_text(f"{_FIRST_LINE}\n{description}\n", encoding="utf-8")


def write_part(partition: Any, columns: Mapping[str, NDArray[Any]], path: Path) -> None:
    for labels in columns.values():
        if len(partition) != len(labels):
            raise ValueError(
                f"labels must have the chunks of table.samples, got {len(labels)} labels for a "
                f"partition of {len(partition)} rows."
            )
    if not path.parent.is_dir():
        raise unseen(repr(str(path.parent)), who="which the client made")
    import pyarrow
    import pyarrow.parquet

    try:
        # The index is also stored, unless it only numbers the rows.
        table = pyarrow.Table.from_pandas(partition.assign(**columns))
    except pyarrow.ArrowException as error:
        raise ValueError(
            f"A column of the table cannot be written as Parquet: {error}. Omit the column, or "
            "convert it."
        ) from error
    # pandas cannot read the description of Arrow types that it writes.
    description = json.loads(table.schema.metadata[b"pandas"])
    for column in description["columns"]:
        if column["numpy_type"].endswith("[pyarrow]"):
            column["numpy_type"] = "object"
    pyarrow.parquet.write_table(
        table.replace_schema_metadata({"pandas": json.dumps(description)}), path
    )
