"""Outputs: refused before anything is computed, whole or absent, marked as ours."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from daskclust.storage.atomic import new_place, remove_stale
from daskclust.storage.stores import check_protocol, local_path
from daskclust.storage.urls import redact

#: Attribute of an output that holds the job that has written it.
JOB = "daskclust_job"


class Written(NamedTuple):
    """The record that an output of daskclust holds of itself.

    `kind` is such as ``"label map"``; `members` are names in it that daskclust has written, empty
    for a file.
    """

    kind: str
    attributes: Mapping[str, Any] = {}
    members: Collection[str] = ()

    @property
    def job(self) -> dict[str, Any]:
        """The job that has written the output; empty where it does not say."""
        found = self.attributes.get(JOB)
        return found if isinstance(found, dict) else {}


class Output:
    """A place that is written whole or not at all; outputs of others are never replaced.

    The base of one class for each format. `kind` is such as ``"label map"``; with `overwrite`, an
    output of daskclust of the same kind is replaced.
    """

    #: Whether a folder without anything in it may be replaced.
    takes_empty = False

    def __init__(self, place: Any, kind: str, *, overwrite: bool = False) -> None:
        self.place, self.kind, self.overwrite = place, kind, overwrite
        #: On this machine; None elsewhere.
        self.path: Path | None = local_path(place)

    def check_place(self) -> None:
        """Raise where such an output cannot be written to this place, whatever lies there."""
        check_protocol(self.place)

    def exists(self) -> bool:
        """Whether something lies there."""
        return self.path is not None and self.path.exists()

    def written(self) -> Written | None:
        """Return what the output there says of itself; None for anything else."""
        raise NotImplementedError

    def names(self) -> set[str]:
        """Return the names inside; none of a file."""
        if self.path is None or not self.path.is_dir():
            return set()
        return {item.name for item in self.path.iterdir()}

    def is_of(self, job: str) -> bool:
        """Whether what lies there was written by the job of some mark."""
        found = self.written()
        return found is not None and found.job.get("mark") == job

    def problem(self) -> str | None:
        """Say why what lies there must not be replaced; None where it may."""
        names = self.names()
        if not names and self.takes_empty and self.path is not None and self.path.is_dir():
            return None
        found = self.written()
        if found is None:
            held = f" (it holds {min(names)!r})" if names else ""
            return f"was not written by daskclust{held}"
        if found.kind != self.kind:
            return f"is a {found.kind}"
        added = sorted(names.difference(found.members))
        return f"also holds {added[0]!r}, which daskclust did not write" if added else None

    def check(self) -> None:
        """Refuse a place that cannot be written to, or holds what must not be replaced."""
        self.check_place()
        if not self.exists():
            return
        if not self.overwrite:
            raise exists_already(self.place)
        problem = self.problem()
        if problem is not None:
            raise FileExistsError(
                f"{redact(self.place)!r} {problem}; overwrite replaces a {self.kind} written by "
                "daskclust only. Choose another name, or remove it yourself."
            )

    @contextmanager
    def new(self) -> Iterator[Path]:
        """Yield a hidden sibling of the path to write to, which is given its name at the end.

        After an exception (Ctrl-C included) the sibling is removed, and what was there
        is still there.  A folder must be made by the caller.
        """
        self.check()
        assert self.path is not None
        # Checked again: writing may have taken hours.
        with new_place(self.path, check=self.check) as partial:
            yield partial
        remove_stale(self.path)


def exists_already(place: Any) -> FileExistsError:
    """Return the error of a place that is taken."""
    return FileExistsError(
        f"{redact(place)!r} exists already; choose another name or pass overwrite=True "
        "(--overwrite)."
    )
