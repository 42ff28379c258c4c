"""Going on after a run that was ended: what makes a job the same, and where its state lies."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from daskclust.commands._job_files import effective
from daskclust.commands._outputs import OUTPUTS, check_writable
from daskclust.commands.console import Progress
from daskclust.commands.signals import last_words
from daskclust.engine import check_checkpoint
from daskclust.storage.atomic import remove_stale, reserved
from daskclust.storage.stores import local_path
from daskclust.storage.urls import redact_all

__all__ = ["alone", "check_resumable", "checkpoint_path", "job_mark", "resumable"]

#: Options that decide what a job computes, besides the parameters of the estimator.  How it is
#: run, told about, and compared with the truth makes it no other.
_COMPUTED_BY = (
    "cube",
    "variable",
    "dims",
    "nodata",
    "mask",
    "bad_bands",
    "chunks",
    "scale",
    "incomplete",
    "min_observed",
    "labels",
    "class_column",
    "resample_labels",
    "unlabeled",
    "must_link",
    "must_link_weight",
    "cannot_link",
    "cannot_link_weight",
    "estimator",
    "seed",
)
_PLACES = ("cube", "mask", "labels", "must_link", "cannot_link")


def job_mark(
    options: argparse.Namespace, params: Mapping[str, Any], model: str | None = None
) -> str:
    """Return 16 digits that are the same for the same job, however and wherever it is run."""
    job = effective(options, params)
    found: dict[str, Any] = {name: job.get(name) for name in (*_COMPUTED_BY, "parameters")}
    # Only of jobs on tables.
    found |= {name: job[name] for name in ("columns", "label_column") if job.get(name)}
    # Only of jobs that keep labels apart.
    found |= {name: job[name] for name in ("hold_out", "groups") if job.get(name)}
    # Only of maps that are smoothed.
    found |= {name: job[name] for name in ("smooth", "min_pixels") if job.get(name)}
    for name in _PLACES:
        if job.get(name) is not None:
            given = job[name]
            found[name] = [*map(_whole, given)] if isinstance(given, list) else _whole(given)
    # A signature that was renewed makes no other job.
    text = json.dumps(redact_all({**found, "model": model and _whole(model)}), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _whole(place: str) -> str:
    local = local_path(place)
    return place if local is None else str(local)


def checkpoint_path(options: argparse.Namespace, mark: str) -> Path | None:
    """Return the file that was asked for, or one beside the first local output."""
    if options.checkpoint is not None:
        path = Path(options.checkpoint).absolute()
        return path / "daskclust-checkpoint.npz" if path.is_dir() else path
    output = _first_output(options)
    return None if output is None else output.with_name(f".{output.name}.{mark}.checkpoint.npz")


def check_resumable(options: argparse.Namespace, mark: str) -> None:
    """Refuse a checkpoint that cannot be read or written, before a cluster is started."""
    path = checkpoint_path(options, mark)
    if options.checkpoint is None or path is None:
        return
    # As it was given: a path would lose a slash of a URL.
    check_checkpoint(options.checkpoint if "://" in options.checkpoint else path)
    check_writable("--checkpoint", options.checkpoint, path)


def alone(
    options: argparse.Namespace, outputs: Iterable[str], mark: str | None = None
) -> AbstractContextManager[None]:
    """Keep the outputs, and the checkpoint of a fit, for this process.

    Two runs would compute the same, or for one place, and the second learn it at its end.

    Parameters
    ----------
    options : Namespace
    outputs : iterable of str
        Flags of what is written.
    mark : str, optional
        Of a fit.
    """
    given = (local_path(getattr(options, flag[2:].replace("-", "_"))) for flag in outputs)
    places = [place for place in given if place is not None]
    state = None if mark is None else checkpoint_path(options, mark)
    return reserved(places if state is None else [state, *places])


def _first_output(options: argparse.Namespace) -> Path | None:
    for name in (getattr(options, output) for output in OUTPUTS):
        local = None if name is None else local_path(name)
        if local is not None:
            return local
    return None


@contextmanager
def resumable(
    options: argparse.Namespace, model: Any, mark: str, progress: Progress
) -> Iterator[None]:
    """Let the fit leave its state behind where it is ended, and clean up when all is done."""
    path = checkpoint_path(options, mark)
    if path is None or "checkpoint" not in model.get_params(deep=False):
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    model.set_params(checkpoint=str(path))
    if path.is_file():
        progress.say(f"Going on from the checkpoint {str(path)!r}")
    said = False

    def say() -> None:
        nonlocal said
        if path.exists() and not said:
            said = True
            progress.say(
                f"The state of the last iteration is in {str(path)!r}; the same command goes on "
                "from there."
            )

    with last_words(say):
        try:
            yield
        except BaseException:
            say()
            raise
    remove_stale(path)
    if options.checkpoint is None:
        path.unlink(missing_ok=True)
        _remove_others(options)


def _remove_others(options: argparse.Namespace) -> None:
    """Remove the states of jobs that would have written what this one has written."""
    output = _first_output(options)
    if output is None:
        return
    name = re.escape(output.name)
    ours = re.compile(rf"\.{name}\.([0-9a-f]{{8}}){{1,2}}\.checkpoint\.npz")
    for item in output.parent.iterdir():
        if ours.fullmatch(item.name):
            item.unlink(missing_ok=True)
            remove_stale(item)
