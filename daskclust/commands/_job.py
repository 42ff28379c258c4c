"""A fit or a prediction, of a cube or of a table: the same steps over the rows of either.

A job has opened and checked all that it reads and writes.  It has a `plan` (what it would
cost), a `mark`, `replace` (flags of outputs), `pairs` (arguments of ``fit``), `parts` (more
workers have nothing to do) and `data` (what a model is fitted to).  It can `count` its rows,
read their `labels`, tell `facts` for the results, and `write` what was asked for.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import yaml

from daskclust.commands._estimators import flags_of, takes_labels
from daskclust.commands._hold_out import hold_out
from daskclust.commands._written import OUTPUTS, check_writable, numbers_of, paint
from daskclust.commands.console import Progress, counted, did_you_mean, open_client
from daskclust.commands.doctor import look_before_fit
from daskclust.commands.signals import last_words
from daskclust.engine import check_checkpoint
from daskclust.report.legend import legend_of
from daskclust.storage.atomic import remove_stale, reserved
from daskclust.storage.stores import local_path
from daskclust.storage.urls import redact_all

#: Only one of these may be given: flags take the place of all that the file says.
_EXCLUSIVE = ("--local", "--scheduler", "--scheduler-file")
#: Not part of a job: how it is run and told about.
_NOT_CONFIGURATION = {"run", "parser", "arguments", "config", "json", "dry_run", "overwrite"}


def add_job_arguments(parser: argparse.ArgumentParser) -> Any:
    group = parser.add_argument_group("run")
    group.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="read options from a TOML or YAML file (keys are the names of flags); flags win",
    )
    group.add_argument(
        "--dry-run",
        action="store_true",
        help="print passes, tasks, bytes and memory; compute nothing",
    )
    group.add_argument("--json", action="store_true", help="print results as JSON")
    group.add_argument(
        "--overwrite", action="store_true", help="replace earlier outputs of this command"
    )
    return group


def with_file(
    parser: argparse.ArgumentParser, options: argparse.Namespace, argv: Sequence[str]
) -> argparse.Namespace:
    """Return the options with those of the job file under them; `argv` follows the command."""
    if options.config is None:
        return options
    try:
        job = _read(options.config)
    except (ValueError, yaml.YAMLError) as error:
        parser.error(f"{str(options.config)!r} cannot be read: {' '.join(str(error).split())}")
    flags, positional = _as_flags(parser, options.config, job, argv)
    given = [] if options.cube is not None else positional
    # Behind "=", so that values that begin with a dash are no flags.
    return parser.parse_args([*flags, *given, *argv], argparse.Namespace(**vars(options)))


def _read(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise ValueError("there is no such file")
    text = path.read_text(encoding="utf-8")
    if path.suffix.lower() == ".toml":
        return tomllib.loads(text)
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        raise ValueError("its name must end in .toml, .yaml, .yml or .json")
    job = yaml.safe_load(text)
    if not isinstance(job, dict):
        raise ValueError("it holds no keys with values")
    return job


def _as_flags(
    parser: argparse.ArgumentParser, path: Path, job: Mapping[str, Any], argv: Sequence[str]
) -> tuple[list[str], list[str]]:
    actions = {name: action for action in parser._actions for name in action.option_strings}
    chosen_here = any(word.split("=")[0] in _EXCLUSIVE for word in argv)
    flags: list[str] = []
    positional: list[str] = []
    for key, value in job.items():
        name = "--" + str(key).replace("_", "-")
        if name == "--cube":
            positional = [str(item) for item in (value if isinstance(value, list) else [value])]
            continue
        if name not in actions or name in ("--config", "--help"):
            hint = did_you_mean(name, [flag for flag in actions if flag.startswith("--")])
            parser.error(f"{str(path)!r} has the unknown key {key!r}.{hint.replace('--', '')}")
        if name in _EXCLUSIVE and chosen_here:
            continue
        if actions[name].nargs == 0:
            if not isinstance(value, bool):
                parser.error(f"{str(path)!r}: {key} is {value!r}; expected true or false")
            flags += [name] if value else []
        else:
            flags.append(f"{name}={_as_text(value)}")
    return flags, positional


def _as_text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, list):
        simple = all(isinstance(item, str | int | float) for item in value)
        return ",".join(map(str, value)) if simple else json.dumps(value)
    return str(value)


def effective(
    options: argparse.Namespace, params: Mapping[str, Any], without: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the configuration that a job ran with, as JSON values without credentials.

    `params` are all parameters of the estimator; `without` are flags that `params` stands for.
    """
    skipped = _NOT_CONFIGURATION.union(without)
    found = {
        name: _plain(value)
        for name, value in sorted(vars(options).items())
        if name not in skipped and value is not None
    }
    # A checkpoint, if one was asked for, is an option.
    parameters = {name: _plain(value) for name, value in params.items() if name != "checkpoint"}
    plain: dict[str, Any] = redact_all({**found, "parameters": parameters})
    return plain


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)


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
    # Only of maps that are smoothed, and of bands that are named by what was given.
    more = ("smooth", "min_pixels", "wavelengths")
    found |= {name: job[name] for name in more if job.get(name)}
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
    path = checkpoint_path(options, mark)
    if options.checkpoint is None or path is None:
        return
    # As it was given: a path would lose a slash of a URL.
    check_checkpoint(options.checkpoint if "://" in options.checkpoint else path)
    check_writable("--checkpoint", options.checkpoint, path)


def alone(
    options: argparse.Namespace, outputs: Iterable[str], mark: str | None = None
) -> AbstractContextManager[None]:
    """Keep the outputs (flags), and the checkpoint of a fit with this mark, for this process.

    Two runs would compute the same, or for one place, and the second learn it at its end.
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


def run_fit(
    options: argparse.Namespace, model: Any, job: Any, progress: Progress, began: float
) -> dict[str, Any]:
    """Fit a model, write what was asked for, and return what became of it as JSON values."""
    with (
        alone(options, job.replace, job.mark),
        open_client(options, useful_workers=job.parts, progress=progress) as client,
    ):
        return fit_by(client, options, model, job, progress, began)


def fit_by(
    client: Any, options: argparse.Namespace, model: Any, job: Any, progress: Progress, began: float
) -> dict[str, Any]:
    """Do what :func:`run_fit` does, on a cluster that is there."""
    import daskclust

    with resumable(options, model, job.mark, progress):
        threads = client.nthreads()
        cluster = {"workers": len(threads), "threads": sum(threads.values())}
        progress.say(
            f"Cluster: {counted(cluster['workers'], 'worker')}, "
            f"{counted(cluster['threads'], 'thread')}"
        )
        look_before_fit(client, progress)
        n = job.count(progress)
        arguments, apart = dict(job.pairs), None
        if takes_labels(model):
            # An estimator that cannot do without labels says so itself.
            arguments["y"] = y = job.labels()
            if options.hold_out is not None:
                with progress.task("Labels kept apart"):
                    rows, labels = y
                    groups, unit = job.groups(rows, labels)
                    share, number = options.hold_out, options.seed
                    apart = hold_out(rows, labels, groups, share, unit=unit, seed=number)
                arguments["y"] = apart.y
        with progress.task(type(model).__name__, rows=n):
            with daskclust.on_iteration(progress.iteration):
                model.fit(job.data, **arguments)
        flags = flags_of(options).keys() - {"checkpoint"}
        found = _record("fit", options, model, flags)
        found |= {**job.facts("fit"), "cluster": cluster, **numbers_of(model)}
        job.name(model)
        if options.colors is not None:
            paint(model, options.colors)
        if apart is not None:
            # In the place of the agreement with labels, of which the fit has seen most.
            with progress.task("Accuracy on labels kept apart"):
                found["held_out"] = apart.judged(
                    model, job, legend_of(model), baseline=options.baseline, seed=options.seed
                )
        job.write(model, model.labels_, found, progress)
    return _ended(found, job.places, began)


def run_predict(
    options: argparse.Namespace, model: Any, job: Any, progress: Progress, began: float
) -> dict[str, Any]:
    with (
        alone(options, job.replace),
        open_client(options, useful_workers=job.parts, progress=progress),
    ):
        job.count(progress)
        found = _record("predict", options, model)
        found |= {**job.facts("predict"), "n_clusters": len(legend_of(model).codes)}
        job.write(model, model.predict(job.data), found, progress)
    return _ended(found, job.places, began)


def _record(command: str, options: argparse.Namespace, model: Any, *flags: Any) -> dict[str, Any]:
    import daskclust

    return {
        "command": command,
        "version": daskclust.__version__,
        "estimator": type(model).__name__,
        "configuration": effective(options, model.get_params(deep=False), *flags),
    }


def _ended(found: dict[str, Any], places: dict[str, str], began: float) -> dict[str, Any]:
    if found["command"] == "predict":
        places = {name: place for name, place in places.items() if name != "model"}
    return {**found, "seconds": time.perf_counter() - began, "outputs": places}
