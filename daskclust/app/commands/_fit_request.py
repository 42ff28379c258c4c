"""Steps of a fit or a prediction, for the rows of a cube or a table."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import re
import threading
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from daskclust.app.commands._choice import ChoiceByPairs
from daskclust.app.commands._cubes import name_of_cube
from daskclust.app.commands._estimators import takes_labels
from daskclust.app.commands._outputs import OUTPUTS, check_writable, numbers_of, output_paths, paint
from daskclust.app.commands.console import Progress, counted, did_you_mean, open_client
from daskclust.app.commands.doctor import examine
from daskclust.app.commands.requests import UsageError
from daskclust.app.report.page import Report, marked_page
from daskclust.app.report.summary import legend_of, n_clusters_of
from daskclust.colors import name_of
from daskclust.core.array_types import Array, Bools, Ints
from daskclust.core.engine import check_checkpoint, compute
from daskclust.core.storage.atomic_write import remove_stale
from daskclust.core.storage.outputs import JOB, json_text, lock_outputs
from daskclust.core.storage.redact import redact_all
from daskclust.core.storage.stores import local_path

#: Maximum number of training and test rows of the baselines, and number of trees of the forest.
_MAX_ROWS, _TREES = 100_000, 100
#: Seconds that a fit waits for the answers of its cluster about versions and memory.
_PATIENCE = 15.0


def check_hold_out(options: Any, model: Any) -> None:
    if options.hold_out is not None and not takes_labels(model):
        raise UsageError(
            f"--hold-out requires an estimator that accepts labels, got {type(model).__name__}. "
            f"Use for example label-spreading"
        )
    if options.hold_out_by == "tiles" and not options.mosaic:
        raise UsageError("--hold-out-by tiles requires --mosaic")
    if options.hold_out_by == "tiles" and options.overlap == "mean":
        raise UsageError(
            "--hold-out-by tiles does not support --overlap mean, because a mean mixes the values "
            "of several tiles. Use --overlap first or last."
        )


@dataclass(frozen=True)
class HoldOut:
    """Labels split into `y` for the fit, and held-out `rows` with `labels`.

    `unit` is the kind of group, such as fields: `n_held_out` of `n_groups` groups are held out, and
    `groups` are the groups of the held-out rows. Classes with a single group are `not_held_out`.
    """

    y: tuple[Ints, Array]
    rows: Ints
    labels: Array
    groups: Ints
    unit: str
    n_groups: int
    n_held_out: int
    not_held_out: list[str]

    def evaluated(self, model: Any, job: Any, legend: Any) -> dict[str, Any]:
        """Return scores of the fit and of other methods on the held-out labels, as JSON values."""
        from daskclust.metrics import accuracy_report, clustering_accuracy

        scores: dict[str, Any] = {
            "unit": self.unit,
            "groups": self.n_groups,
            "groups_held_out": self.n_held_out,
            "rows": len(self.rows),
            "not_held_out": self.not_held_out,
        }
        # Predict only these rows, not all rows of their blocks.
        labels = model.predict(job.samples[self.rows])
        (labels,) = compute("the held-out labels", labels)
        codes = np.asarray(legend.encode(labels))
        if not legend.classes:
            _, true_codes = np.unique(self.labels, return_inverse=True)
            scores["best_matching_accuracy"] = clustering_accuracy(true_codes, codes)
        else:
            truth = self.labels.astype(str)
            if self.labels.dtype.kind in "iub":
                truth = np.array([name_of(c, legend.by_code) for c in self.labels.tolist()])
            names = np.array([legend.by_code[c] for c in codes.tolist()])
            report = accuracy_report(truth, names, groups=self.groups)
            scores |= {
                "accuracy": report.overall,
                "accuracy_interval": report.overall_interval.tolist(),
                "independent_units": report.n_units,
                "kappa": None if np.isnan(report.kappa) else report.kappa,
                "by_class": [
                    {"class": name, **{k: None if v != v else v for k, v in line.items()}}
                    for name, line in report.to_frame().iloc[:, :5].to_dict(orient="index").items()
                ],
            }
        if job.options.baseline:
            scores["baselines"] = self._baselines(job.samples, job.options.seed)
        return scores

    def _baselines(self, samples: Any, seed: int) -> dict[str, Any]:
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.impute import SimpleImputer
        from sklearn.neighbors import KNeighborsClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        rng = np.random.default_rng(seed)

        def sample(rows: Ints, labels: Array) -> tuple[Ints, Array]:
            if len(rows) <= _MAX_ROWS:
                return rows, labels
            drawn = np.sort(rng.choice(len(rows), _MAX_ROWS, replace=False))
            return rows[drawn], labels[drawn]

        (fitted, labels), (tested, truth) = sample(*self.y), sample(self.rows, self.labels)
        X, X_test = compute("the rows of the labels", samples[fitted], samples[tested])
        X, X_test = (np.asarray(values, dtype=np.float64) for values in (X, X_test))
        fill = SimpleImputer(keep_empty_features=True)
        scores: dict[str, Any] = {"rows_learned_from": len(fitted), "rows": len(tested)}
        forest = RandomForestClassifier(_TREES, random_state=seed)
        for name, steps in {
            "1-NN, standardized": (fill, StandardScaler(), KNeighborsClassifier(1)),
            f"random forest, {_TREES} trees": (fill, forest),
        }.items():
            scores[name] = float(make_pipeline(*steps).fit(X, labels).score(X_test, truth))
        return scores


def hold_out(
    rows: Ints, labels: Array, groups: Ints, share: float, *, unit: str, seed: int
) -> HoldOut:
    """Hold out a fraction of the groups of each class: at least one group, and never all.

    Tiles contain several classes, so the fraction is drawn from all tiles. A tile is not held out
    if a class would have no label left for the fit.

    >>> labels, groups = np.array(["a", "a", "a", "a", "b"]), np.array([0, 0, 1, 1, 2])
    >>> split = hold_out(np.arange(5), labels, groups, 0.5, unit="fields", seed=0)
    >>> len(split.rows), split.n_held_out, split.not_held_out
    (2, 1, ['b'])
    """
    rng = np.random.default_rng(seed)
    held_out: Bools = np.zeros(len(rows), bool)
    not_held_out = []
    if unit == "tiles":
        held_out = _drawn_tiles(labels, groups, share, rng)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        class_groups = np.unique(groups[members])
        if len(class_groups) < 2:
            not_held_out.append(str(label))
            continue
        if unit == "tiles":
            continue
        count = int(np.clip(round(share * len(class_groups)), 1, len(class_groups) - 1))
        chosen = rng.choice(class_groups, count, replace=False)
        held_out[members[np.isin(groups[members], chosen)]] = True
    # A group is held out completely, with all its classes.
    held_out = np.isin(groups, groups[held_out])
    remaining = set(np.unique(labels[~held_out]).tolist())
    lost = sorted(set(np.unique(labels).tolist()) - remaining)
    if lost:
        raise ValueError(
            f"--hold-out must leave a label of each class for the fit, got none of {lost[0]!r}, "
            f"whose {unit} also contain other classes. Use groups of one class, or a smaller "
            f"fraction."
        )
    if not held_out.any():
        raise ValueError(
            f"--hold-out requires a class with labels in at least two {unit}, got at most one for "
            f"each class. Label more {unit}."
        )
    n_groups, n_held_out = (len(np.unique(numbers)) for numbers in (groups, groups[held_out]))
    y = rows[~held_out], labels[~held_out]
    return HoldOut(
        y,
        rows[held_out],
        labels[held_out],
        groups[held_out],
        unit,
        n_groups,
        n_held_out,
        not_held_out,
    )


def _drawn_tiles(labels: Array, tiles: Ints, share: float, rng: np.random.Generator) -> Bools:
    candidates = np.unique(tiles)
    if len(candidates) < 2:
        raise ValueError(
            f"--hold-out-by tiles needs labels in at least two tiles, got {len(candidates)}. Label "
            "more tiles, or use --hold-out-by fields."
        )
    held_out: Bools = np.zeros(len(labels), bool)
    n_classes, n_left = len(np.unique(labels)), max(1, round(share * len(candidates)))
    for tile in rng.permutation(candidates).tolist():
        extended = held_out | (tiles == tile)
        if n_left and len(np.unique(labels[~extended])) == n_classes:
            held_out, n_left = extended, n_left - 1
    return held_out


def fields_of(lines: Ints, columns: Ints, labels: Array) -> Ints:
    """Return the field of each labeled pixel: pixels of one class that touch, corners included.

    >>> fields_of(np.array([0, 1, 1, 5]), np.array([0, 1, 2, 5]), np.array([3, 3, 4, 3])).tolist()
    [0, 0, 1, 2]
    """
    width = int(columns.max()) + 3
    keys = (lines + 1) * width + columns + 1
    order = np.argsort(keys)
    ordered = keys[order]
    pairs = []
    for step in (1, width - 1, width, width + 1):
        positions = np.minimum(np.searchsorted(ordered, keys + step), len(keys) - 1)
        neighbors = order[positions]
        touching = np.flatnonzero((keys[neighbors] == keys + step) & (labels[neighbors] == labels))
        pairs.append(np.stack([touching, neighbors[touching]]))
    first, second = np.concatenate(pairs, axis=1)
    links = coo_array((np.ones(len(first), bool), (first, second)), shape=(len(keys),) * 2)
    fields: Ints = connected_components(links, directed=False)[1].astype(np.int64)
    return fields


@dataclass(frozen=True)
class Job:
    """A fit or a prediction whose inputs and outputs have been opened and checked.

    `plan` is the estimated cost. `pairs` are arguments of ``fit``. `replace` is True for the flag
    of each output that may be replaced. A job of a cube or a table also has `parts`, the maximum
    number of workers that it can use, and `data`, the rows that a model is fitted to. It can
    `count` its rows, read their `labels`, return `facts` for the results, and `write` the requested
    outputs.
    """

    options: Any
    fits: bool
    plan: dict[str, Any]
    pairs: dict[str, Any]
    mark: str
    replace: dict[str, bool]

    @property
    def data(self) -> Any:
        """The rows that a model is fitted to."""
        raise NotImplementedError

    @property
    def output_paths(self) -> dict[str, str]:
        """Paths of the outputs for the results, without the model of a prediction."""
        paths = output_paths(self.options).items()
        return {k: v for k, v in paths if self.fits or k != "model"}

    def fit(self, model: Any, **arguments: Any) -> Any:
        """Return a model fitted to the data."""
        return model.fit(self.data, **arguments)

    def title_of(self, model: Any) -> str:
        """Return the requested title of the report, or a title with the name of the file."""
        name = name_of_cube(self.options.cube)
        return self.options.title or f"{type(model).__name__} of {name}"

    def name(self, model: Any) -> None:
        """Store the names and colors of the labeled classes in a fitted model."""

    def save(
        self, model: Any, results: Mapping[str, Any], progress: Progress, **more: Any
    ) -> dict[str, Any]:
        """Save the model if it is requested; return the attributes of all outputs."""
        from daskclust.core.persistence.models import save

        names = ("command", "version", "estimator", "configuration", "columns")
        common = {name: results[name] for name in names if name in results}
        attributes = {JOB: {"mark": self.mark, **common, **more}}
        replace = self.replace.get("--model")
        if replace is not None:
            with progress.task("Model"):
                save(model, self.options.model, overwrite=replace, attributes=attributes)
        return attributes


#: Flags that exclude each other. One of them on the command line replaces all of them in the file.
_EXCLUSIVE = ("--local", "--scheduler", "--scheduler-file")
#: Options of running and reporting, which are not part of the identity of a job.
_NOT_CONFIGURATION = {
    *("config", "dry_run", "overwrite"),
    *("set", "n_clusters"),  # parameters of the estimator
}


def with_file(options: argparse.Namespace) -> argparse.Namespace:
    """Return the options, with the options of the job file as defaults."""
    parser = options.parser
    if options.config is not None:
        try:
            job = _read(options.config)
        except (ValueError, yaml.YAMLError) as error:
            parser.error(f"{str(options.config)!r} cannot be read: {' '.join(str(error).split())}")
        flags, positional = _as_flags(options, job)
        files = [] if options.cube is not None else positional
        words = [*flags, *files, *options.arguments]
        options = parser.parse_args(words, argparse.Namespace(**vars(options)))
    return options


def _read(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise ValueError("the file does not exist")
    text = path.read_text(encoding="utf-8-sig")
    ending = path.suffix.lower()
    if ending not in (".toml", ".yaml", ".yml", ".json"):
        raise ValueError("its name must end in .toml, .yaml, .yml or .json")
    job = tomllib.loads(text) if ending == ".toml" else yaml.safe_load(text)
    if not isinstance(job, dict):
        raise ValueError("it must contain keys with values")
    return job


def _as_flags(options: argparse.Namespace, job: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    parser, path = options.parser, options.config
    actions = {name: action for action in parser.actions for name in action.option_strings}
    chosen_here = any(word.split("=")[0] in _EXCLUSIVE for word in options.arguments)
    flags: list[str] = []
    positional: list[str] = []
    for key, value in job.items():
        name = "--" + str(key).replace("_", "-")
        if name == "--set" and isinstance(value, dict):
            flags += [
                f"--set={parameter}={_as_text(setting)}" for parameter, setting in value.items()
            ]
            continue
        if name in ("--cube", "--mosaic"):
            if positional:
                parser.error(f"{str(path)!r} must have the key cube or the key mosaic, got both")
            positional = [str(item) for item in (value if isinstance(value, list) else [value])]
            if name == "--mosaic":
                positional.insert(0, name)
            continue
        if name not in actions or name in ("--config", "--help"):
            hint = did_you_mean(name, [flag for flag in actions if flag.startswith("--")])
            parser.error(f"{str(path)!r} has the unknown key {key!r}.{hint.replace('--', '')}")
        if name in _EXCLUSIVE and chosen_here:
            continue
        if value is None and not _takes_null(actions[name]):
            continue
        if actions[name].nargs == 0 or (actions[name].nargs == "?" and isinstance(value, bool)):
            if not isinstance(value, bool):
                parser.error(f"{str(path)!r}: {key} must be true or false, got {value!r}")
            flags += [name] if value else []
        else:
            # After "=", so that values that begin with a dash are not parsed as flags.
            flags.append(f"{name}={_as_text(value)}")
    return flags, positional


def _takes_null(action: argparse.Action) -> bool:
    """Return True if null is a value of an option, and not a missing value."""
    try:
        return callable(action.type) and action.type("null") in (None, ())
    except (ValueError, argparse.ArgumentTypeError):
        return False


def _as_text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, list):
        simple = all(isinstance(item, str | int | float) for item in value)
        return ",".join(map(str, value)) if simple else json.dumps(value)
    return str(value)


def effective(options: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a job, as JSON values without credentials.

    `params` are all parameters of the estimator.
    """
    configuration: dict[str, Any] = {
        name: value
        for name, value in sorted(vars(options).items())
        if name not in _NOT_CONFIGURATION and value is not None
    }
    # A requested checkpoint is an option.
    configuration["parameters"] = {name: params[name] for name in params if name != "checkpoint"}
    plain: dict[str, Any] = redact_all(json.loads(json_text(configuration, default=str)))
    return plain


#: Options that decide the results of a job, in addition to the parameters of the estimator.
#: Options for the cluster, the report and the truth do not change them.
_COMPUTED_BY = (
    "cube variable dims nodata mask bad_bands chunks scale incomplete min_observed labels "
    "class_column resample_labels unlabeled must_link cannot_link estimator seed"
).split()
#: Further options of this kind, which are part of the mark of a job only if they are given.
_COMPUTED_WITH = (
    "columns label_column hold_out hold_out_by groups smooth min_pixels wavelengths exclude "
    "choose_by_pairs weights mosaic assets crs resolution region resampling overlap skip_damaged"
).split()
_PATHS = ("cube", "mask", "exclude", "labels", "must_link", "cannot_link")


def job_mark(options: Any, params: Mapping[str, Any], model: str | None = None) -> str:
    """Return 16 digits that identify a job, on any machine and for any way to run it."""
    job = effective(options, params)
    identity: dict[str, Any] = {name: job.get(name) for name in (*_COMPUTED_BY, "parameters")}
    identity |= {name: job[name] for name in _COMPUTED_WITH if job.get(name)}
    for name in _PATHS:
        path = job.get(name)
        if path is not None:
            identity[name] = [*map(_absolute, path)] if isinstance(path, list) else _absolute(path)
    # Signatures in URLs may be renewed, so they are not part of the mark.
    return digest(redact_all({**identity, "model": model and _absolute(model)}))


def digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def _absolute(path: str) -> str:
    local = local_path(path)
    return path if local is None else str(local)


def checkpoint_path(options: Any, mark: str) -> Path | None:
    """Return the requested file, or a file next to the first local output."""
    if options.checkpoint is not None:
        path = Path(options.checkpoint).absolute()
        return path / "daskclust-checkpoint.npz" if path.is_dir() else path
    output = _first_output(options)
    return None if output is None else output.with_name(f".{output.name}.{mark}.checkpoint.npz")


def check_resumable(options: Any, mark: str) -> None:
    path = checkpoint_path(options, mark)
    if options.checkpoint is None or path is None:
        return
    # As it was given: a path would lose a slash of a URL.
    check_checkpoint(options.checkpoint if "://" in options.checkpoint else path)
    check_writable("--checkpoint", options.checkpoint, path)


def _first_output(options: Any) -> Path | None:
    targets = (getattr(options, output) for output in OUTPUTS)
    return next(
        filter(None, (local_path(target) for target in targets if target is not None)), None
    )


@contextmanager
def _resumable(job: Any, model: Any, progress: Progress) -> Iterator[None]:
    """Keep the checkpoint if the fit is interrupted, and remove it at the end."""
    options = job.options
    path = checkpoint_path(options, job.mark)
    if path is None or "checkpoint" not in model.get_params(deep=False):
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    model.set_params(checkpoint=str(path))
    if path.is_file():
        progress.say(f"Resuming from the checkpoint {str(path)!r}")
    try:
        yield
    except BaseException:
        if path.exists():
            progress.say(
                f"The state of the last iteration is in {str(path)!r}; the same command resumes "
                "from it."
            )
        raise
    remove_stale(path)
    output = _first_output(options)
    if options.checkpoint is not None or output is None:
        return
    # Also remove the checkpoints of other jobs with the same output.
    name = re.escape(output.name)
    checkpoint_name = re.compile(rf"\.{name}\.([0-9a-f]{{8}}){{1,2}}\.checkpoint\.npz")
    for file in output.parent.iterdir():
        if checkpoint_name.fullmatch(file.name):
            file.unlink(missing_ok=True)
            remove_stale(file)


def _has_bokeh() -> bool:
    return importlib.util.find_spec("bokeh") is not None


@contextmanager
def _reporting(client: Any, job: Any) -> Iterator[None]:
    """Write Dask's performance report if it is requested and the job succeeds.

    The scheduler draws it.
    """
    target = job.options.performance
    if target is None:
        yield
        return
    if not client.run_on_scheduler(_has_bokeh):
        raise ValueError(
            "--performance requires bokeh on the machine of the scheduler; install it there."
        )
    from distributed import performance_report

    with TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        report = performance_report(str(file), mode="inline")
        report.__enter__()
        yield
        report.__exit__(None, None, None)
        page = marked_page(file.read_text(encoding="utf-8"), job.mark)
    Report(target, overwrite=job.replace["--performance"]).write(page)


def run(model: Any, job: Any, progress: Progress, began: float) -> dict[str, Any]:
    """Run a job on a cluster, with locked outputs, and return the results as JSON values."""
    options = job.options
    state = checkpoint_path(options, job.mark) if job.fits else None
    with (
        lock_outputs([state, *(getattr(options, flag[2:]) for flag in job.replace)]),
        open_client(options, useful_workers=job.parts, progress=progress) as client,
        _reporting(client, job),
    ):
        if job.fits:
            return fit_by(client, model, job, progress, began)
        job.count(progress)
        results = {**_record(job, model), "n_clusters": n_clusters_of(model)}
        job.write(model, model.predict(job.data), results, progress)
    return {**results, "seconds": time.perf_counter() - began, "outputs": job.output_paths}


def _warn_about_cluster(client: Any, progress: Progress) -> None:
    """Print problems of a cluster as warnings, including late answers of workers."""

    def check() -> None:
        try:
            problems = examine(client)[1]
        except Exception as error:  # the fit continues
            problems = [f"The cluster was not examined ({type(error).__name__})."]
        for problem in problems:
            progress.say(f"warning: {problem}")

    # This runs in a thread, because a stopped worker answers only when it resumes.
    thread = threading.Thread(target=check, name="daskclust-examine", daemon=True)
    thread.start()
    thread.join(_PATIENCE)


def fit_by(client: Any, model: Any, job: Any, progress: Progress, began: float) -> dict[str, Any]:
    """Fit a model on a connected cluster, as :func:`run` does."""
    import daskclust

    options = job.options
    with _resumable(job, model, progress):
        threads = client.nthreads()
        cluster = {"workers": len(threads), "threads": sum(threads.values())}
        shown = (counted(count, name.removesuffix("s")) for name, count in cluster.items())
        progress.say(f"Cluster: {', '.join(shown)}")
        _warn_about_cluster(client, progress)
        n = job.count(progress)
        arguments, held_out = dict(job.pairs), None
        if options.weights is not None:
            arguments["sample_weight"] = options.weights
        if takes_labels(model):
            # Without labels, the fit of an estimator that requires them raises an error.
            arguments["y"] = y = job.labels()
            if options.hold_out is not None:
                with progress.task("Held-out labels"):
                    rows, labels = y
                    groups, unit = job.groups(rows, labels)
                    share, seed = options.hold_out, options.seed
                    held_out = hold_out(rows, labels, groups, share, unit=unit, seed=seed)
                arguments["y"] = held_out.y
        with (
            progress.task(type(model).__name__, rows=n),
            daskclust.on_iteration(progress.iteration),
        ):
            started = time.perf_counter()
            # A choice among estimators returns the chosen estimator.
            choice, model = model, job.fit(model, **arguments)
            duration = {"fit_seconds": time.perf_counter() - started}
        results = {**_record(job, model), "cluster": cluster, **numbers_of(model), **duration}
        if isinstance(choice, ChoiceByPairs):
            results["candidates"] = choice.scores()
        job.name(model)
        if options.colors is not None:
            for problem in paint(model, options.colors):
                progress.say(f"warning: {problem}.")
        if held_out is not None:
            # This replaces the agreement with all labels, most of which the fit has used.
            with progress.task("Accuracy on held-out labels"):
                results["held_out"] = held_out.evaluated(model, job, legend_of(model))
        if job.output_paths:
            job.write(model, model.labels_, results, progress)
    return {**results, "seconds": time.perf_counter() - began, "outputs": job.output_paths}


def _record(job: Any, model: Any) -> dict[str, Any]:
    import daskclust

    return {
        "command": "fit" if job.fits else "predict",
        "version": daskclust.__version__,
        "estimator": type(model).__name__,
        "configuration": effective(job.options, model.get_params(deep=False)),
        **job.facts(),
    }
