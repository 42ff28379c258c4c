"""Tables on the command line: read Parquet, CSV and arrays, and write rows with labels."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import numpy as np

from daskclust.app.commands import _outputs
from daskclust.app.commands._cubes import local_name, paths_of
from daskclust.app.commands._estimators import check_count, takes_labels
from daskclust.app.commands._fit_request import Job, check_resumable, job_mark
from daskclust.app.commands._plan import memory_of, passes_of
from daskclust.app.commands.console import Progress
from daskclust.app.commands.contradictions import OF_PIXELS, not_of_tables
from daskclust.app.commands.requests import CubeOptions, UsageError
from daskclust.app.report.page import Report
from daskclust.app.report.summary import legend_of
from daskclust.colors import Legend, name_of
from daskclust.core.engine import compute, keep_on_workers
from daskclust.core.estimator.validation import Data, scaled_as_fit, scaling_of
from daskclust.core.persistence.mixin import scene_of
from daskclust.core.storage.redact import redact
from daskclust.scenes.formats.opening import kind_of


def is_table(options: CubeOptions) -> bool:
    """Return True if the input is a table."""
    paths = list(paths_of(options.cube).values())
    are_tables = [not options.mosaic and _holds_table(path) for path in paths]
    if all(are_tables):
        for name in OF_PIXELS:
            if options.is_given(name):
                raise UsageError(not_of_tables(redact(paths[0]), name))
        return True
    for name in ("columns", "keep", "label_column", "groups"):
        if getattr(options, name, None) is not None:
            raise UsageError(
                f"--{name.replace('_', '-')} requires a table, got {redact(paths[0])!r}. Use "
                f"Parquet, CSV, or an array of two dimensions (STORE.zarr/NAME)"
            )
    if any(are_tables):
        raise UsageError("all files must be tables or all must be images, got both")
    return False


def _holds_table(path: str) -> bool:
    from daskclust.tables import holds_vectors

    return holds_columns(path) or (kind_of(path) in ("npy", "zarr") and holds_vectors(path))


def holds_columns(path: str) -> bool:
    """Return True for Parquet or CSV, by the name of the path or of the files in a folder."""
    folder = Path(path)
    if "://" not in path and folder.is_dir() and any(folder.glob("*.parquet")):
        return True
    return kind_of(path) == "table"


#: Maximum number of columns of text that reports of vectors show by default.
_SHOWN_COLUMNS = 3
#: Columns next to the labels, by the flag that names them.
_MORE_COLUMNS: dict[str, Callable[[Any, Any], Any]] = {
    "score": lambda model, X: model.score_samples(X),
    "uncertainty": _outputs.margins,
}


@dataclass(frozen=True)
class TableJob(Job):
    table: Any

    @property
    def output_paths(self) -> dict[str, str]:
        """Paths of the outputs; scores and margins are columns of the table."""
        return {k: v for k, v in super().output_paths.items() if k in ("output", "model", "report")}

    @property
    def parts(self) -> int:
        return int(self.table.frame.npartitions)

    @property
    def data(self) -> Any:
        return self.table.samples

    samples = data

    def fit(self, model: Any, **arguments: Any) -> Any:
        """Return a model fitted to rows whose columns messages can name."""
        names = np.array(feature_names(self.table), dtype=object)
        origin = {"feature_names_in_": names, **scaling_of(self.table)}
        fitted = model.fit(Data(self.data, origin=origin), **arguments)
        # Outputs use rows without names; the record of the job stores the columns.
        vars(fitted).pop("feature_names_in_", None)
        return fitted

    def groups(self, rows: Any, labels: Any) -> tuple[Any, str]:
        """Return the group of each labeled row; a row without a group is a group."""
        column = self.options.groups
        if column is None:
            return np.arange(len(rows)), "rows"
        codes, _ = self.table.known_classes(column)
        (numbers,) = compute("the groups of the labels", codes[rows])
        without_group = numbers < 0
        numbers[without_group] = numbers.max(initial=0) + 1 + np.arange(without_group.sum())
        return numbers, f"groups of {column}"

    def count(self, progress: Progress) -> int:
        with progress.task("Rows"):
            n = sum(self.table.lengths)
        if n == 0:
            raise ValueError("The table must have at least one row, got none.")
        return n

    def labels(self) -> Any:
        if self.table.label_column is None:
            return None
        rows, labels = self.table.labels()
        if not len(rows):
            raise ValueError(
                f"The column {self.table.label_column!r} must contain a label, got missing "
                "values, empty text or -1 only."
            )
        return rows, labels

    def facts(self) -> dict[str, Any]:
        table = self.table
        counts = {"rows": sum(table.lengths), "columns": list(table.columns)}
        return counts if table.vectors is None else {**counts, "features": table.n_features}

    def write(self, model: Any, labels: Any, results: dict[str, Any], progress: Progress) -> None:
        from daskclust.tables import LabelsFolder

        options, legend = self.options, legend_of(model)
        attributes = self.save(model, results, progress)
        if options.output is None and options.report is None and options.truth is None:
            return
        more = [name for name in _MORE_COLUMNS if getattr(options, name) is not None]
        # Workers hold text labels as the numbers of their classes.
        classes = None if labels.dtype.kind in "iub" else model.classes_
        if classes is not None:
            labels = labels.map_blocks(partial(np.searchsorted, classes), dtype=np.int64)
        with progress.task("Labels"):
            labels, *values = keep_on_workers(
                "the labels", labels, *(_MORE_COLUMNS[name](model, self.data) for name in more)
            )
        if classes is not None:
            labels = labels.map_blocks(partial(np.take, classes), dtype=classes.dtype)
        codes = legend.encode(labels)
        if options.output is not None:
            names = legend.by_code
            if not legend.is_of_clusters:
                # The labels are codes.
                attributes = {**attributes, "class_names": {str(k): v for k, v in names.items()}}
            are_codes = all(name == name_of(code) for code, name in names.items())
            written = codes
            target = self.table.output(options.output, options.output_column)
            if not (legend.is_of_clusters or are_codes or not isinstance(target, LabelsFolder)):
                meta = np.empty(0, object)
                written = codes.map_blocks(_named, names=names, dtype=object, meta=meta)
            elif legend.noise is not None:  # noise is -1 in a table
                written = da.where(codes == legend.noise, -1, codes)
            with progress.task("Table"):
                self.table.write_labels(
                    written,
                    options.output,
                    name=options.output_column,
                    overwrite=self.replace["--output"],
                    attributes=attributes,
                    more={
                        getattr(options, name): rows
                        for name, rows in zip(more, values, strict=True)
                    },
                    keep=options.keep,
                )
        with progress.task("Summary"):
            counts: Counter[int] = Counter()
            parts = [dask.delayed(_count)(block) for block in codes.to_delayed().ravel()]
            for counts_of_part in compute("the sizes of the classes", *parts):
                counts.update(counts_of_part)
            _outputs.add_classes(results, legend, [counts[code] for code in legend.codes], "rows")
            for item in results["classes"]:
                if item["code"] == legend.noise:
                    item["code"] = -1  # as in the table
            class_maps = {}
            for name, column in (("labels", self.table.label_column), ("truth", options.truth)):
                if column is not None:
                    classes, meanings = self.table.known_classes(column)
                    by_name = meanings is not None
                    class_maps[name] = classes, SimpleNamespace(meanings=meanings, by_name=by_name)
            class_maps = _outputs.without_training_labels(class_maps, model)
            _outputs.add_agreements(results, class_maps, codes, None, legend, model)
        if options.report is not None:
            self._write_report(model, labels, legend, results, progress)

    def _write_report(
        self, model: Any, labels: Any, legend: Legend, results: dict[str, Any], progress: Progress
    ) -> None:
        from daskclust.app.report import write_table_report

        with progress.task("Profiles"):
            profiles, rules = explained_table(model, self.table, self.options, labels)
        codes = legend.encode(profiles.labels)
        names = [legend.by_code[int(code)] for code in codes]
        if not isinstance(rules, str):
            new_names = dict(zip(profiles.names, names, strict=True))
            renamed = [replace(rule, cluster=new_names[rule.cluster]) for rule in rules.rules]
            rules = replace(rules, rules=renamed, names=[new_names[name] for name in rules.names])
        with progress.task("Report"):
            write_table_report(
                Report(self.options.report, overwrite=self.replace["--report"]),
                model=model,
                legend=legend,
                results=results,
                agreement=_outputs.agreements_in(results),
                profiles=replace(profiles, labels=codes, names=names),
                rules=rules,
                title=self.title_of(model),
                job=self.mark,
            )


def feature_names(table: Any) -> list[str]:
    """Return the names of the features; items of lists are numbered."""
    columns, n = list(table.columns), table.n_features
    return columns if len(columns) == n else [f"{columns[0]}[{j}]" for j in range(n)]


def explained_table(
    model: Any,
    table: Any,
    options: Any,
    labels: Any = None,
    *,
    of_vectors: bool = False,
) -> tuple[Any, Any]:
    """Return profiles, with cells of the nearest rows, and rules of the clusters of a table.

    Single values of vectors are explained if `of_vectors`.
    """
    from sklearn.pipeline import make_pipeline

    from daskclust.explain import explained

    names, are_vectors = feature_names(table), table.vectors is not None and not of_vectors
    # With the scaler as a step of the model, profiles are in the units of the columns.
    model = model if table.scaler is None else make_pipeline(table.scaler, model)
    profiles, rules = explained(model, table.unscaled, names, labels, are_vectors=are_vectors)
    shown = options.keep
    if shown is None and profiles.are_vectors:
        others = {*table.columns, table.label_column, getattr(options, "truth", None)}
        kinds = table.frame.dtypes
        texts = [name for name in map(str, kinds.index) if "str" in str(kinds[name])]
        shown = [name for name in texts if name not in others][:_SHOWN_COLUMNS]
    if shown:
        rows = profiles.nearest_rows[profiles.nearest_rows >= 0]
        profiles = replace(profiles, nearest_cells=table.cells(rows, shown))
    return profiles, rules


def open_table_job(options: Any, model: Any, pairs: dict[str, Any] | None = None) -> TableJob:
    """Open the table of a fit (with `pairs`) or a prediction, and check the request."""
    fits = pairs is not None
    label_column = options.label_column if fits else None
    if label_column is not None and not takes_labels(model):
        raise UsageError(
            f"{type(model).__name__} does not support --label-column. Name the features with "
            "--columns"
        )
    _outputs.check_margin(options, model)
    params = model.get_params(deep=False)
    mark = job_mark(options, params, None if fits else options.model)
    if fits:
        table = _open(options, options.columns, label_column, options.truth, options.groups)
    else:
        table = table_for(options, model)
    replace = _check_outputs(options, table, mark, {} if fits else {"--model": options.model})
    passes: dict[str, int | None] = {}
    if fits:
        check_resumable(options, mark)
        if table.known_lengths is not None and sum(table.known_lengths):
            check_count(params, sum(table.known_lengths), "rows")
        passes = passes_of(params, constrained=bool(pairs) or label_column is not None)
    counted, scaled = table.known_lengths is not None, table.scale == "standard"
    passes = {"count_rows": int(not counted), "scale": int(scaled), **passes}
    passes |= {"write_labels": 1, "count_labels": 1}
    memory: dict[str, Any] = dict.fromkeys(("peak_memory_a_worker", "temporary_bytes", "fits"))
    if table.largest_part is not None:
        n_rows, largest, read = table.largest_part
        memory = memory_of(
            options,
            params if fits else None,
            (n_rows, table.n_features),
            table.dtype,
            block_rows=largest,
            n_blocks=table.frame.npartitions,
            read=read,
        )
    plan = {
        "columns": list(table.columns),
        "label_column": table.label_column,
        "dtype": str(table.dtype),
        "parts": table.frame.npartitions,
        "bytes_of_files": table.bytes_of_files,
        "rows_estimated": table.is_text,
        "passes": passes,
        "passes_at_most": sum(count for count in passes.values() if count is not None),
        **memory,
    }
    return TableJob(options, fits, plan, pairs or {}, mark, replace, table)


def table_for(options: Any, model: Any) -> Any:
    """Open a table with the columns that a saved model was fitted to."""
    job = _outputs.job_of(options.model)
    if scene_of(model) is not None:
        raise ValueError(
            "The model was fitted to the bands of a cube. Use a cube with the same bands."
        )
    # A model that was fitted to a DataFrame in Python stores the names itself.
    expected = job.get("columns") or [*map(str, getattr(model, "feature_names_in_", ()))]
    table = _open(options, options.columns or expected or None, None)
    is_reordered = list(table.columns) != expected and sorted(table.columns) == sorted(expected)
    if is_reordered or table.n_features != model.n_features_in_:
        raise ValueError(
            f"The table must have the {model.n_features_in_} columns of the model in their order"
            + (f" ({', '.join(expected)})" if expected else "")
            + f", got {table.n_features} ({', '.join(table.columns)}). Name them with --columns."
        )
    return scaled_as_fit(model, table)


def without_names(model: Any) -> Any:
    """Return a copy of the model for rows without names; :func:`table_for` checks the columns."""
    other = copy(model)
    vars(other).pop("feature_names_in_", None)
    return other


def _open(options: Any, columns: Any, label_column: str | None, *excluded: str | None) -> Any:
    """Open the table; the columns `excluded` (truth, groups) cannot be features."""
    from daskclust.tables import open_table

    source = local_name(options.cube)
    opened = partial(
        open_table, source, label_column=label_column, scale=getattr(options, "scale", "none")
    )
    table = opened(columns=columns)
    features = [name for name in table.columns if name not in excluded]
    if columns is not None and len(features) < len(table.columns):
        wrong = next(name for name in table.columns if name in excluded)
        raise ValueError(
            f"The column {wrong!r} must not be in --columns, because it contains the truth or the "
            f"groups."
        )
    if columns is None and len(features) < len(table.columns):
        table = opened(columns=features)
    return table


def _check_outputs(
    options: Any, table: Any, mark: str, inputs: dict[str, str | None]
) -> dict[str, bool]:
    from daskclust.tables import LabelsFolder

    for path in paths_of(options.cube).values():
        # A pattern stands for all files that match it.
        files = glob.glob(path) if "*" in path else [path]
        inputs |= {f"the table's file {item!r}": item for item in files}
    inputs["--config"] = None if options.config is None else str(options.config)
    if options.truth is not None and options.truth not in table.frame.columns:
        raise KeyError(
            f"--truth must be a column of the table, got {options.truth!r}. The columns are "
            f"{', '.join(map(str, table.frame.columns))}."
        )
    new: list[str] = []
    for flag in ("output_column", "score", "uncertainty"):
        name, shown = getattr(options, flag), f"--{flag.replace('_', '-')}"
        if name is None:
            continue
        is_default = not options.is_given(flag)
        if not is_default and str(options.output).lower().endswith(".npy"):
            raise ValueError(
                f"{shown} {name!r} requires --output with columns, got a .npy file, which contains "
                "only labels. Use a Zarr store (.zarr) or a folder of Parquet files."
            )
        if flag != "output_column" and options.output is None:
            raise ValueError(f"{shown} {name!r} is a column of the output and requires --output.")
        if name in table.frame.columns or name in new:
            raise ValueError(
                f"{shown} must be a new name, got {name!r}, which is a column of the table. Use "
                f"another name."
            )
        new.append(name)
    if options.keep is not None:
        table.check_columns(options.keep)
        if options.output is not None and not isinstance(
            table.output(options.output, options.output_column), LabelsFolder
        ):
            raise ValueError(
                f"--keep needs --output as a folder of Parquet files, got "
                f"{redact(options.output)!r}. Omit it."
            )
    outputs = {
        flag: output
        for flag, output in _outputs.outputs_of(options).items()
        if flag in ("--output", "--model", "--report") and flag not in inputs
    }
    if options.output is not None:
        outputs["--output"] = table.output(options.output, options.output_column)
    return _outputs.check_outputs(options, inputs, mark, outputs)


def _named(codes: Any, *, names: dict[int, str]) -> Any:
    present, positions = np.unique(codes, return_inverse=True)
    # Rows without a label have no name.
    return np.array([names.get(code) for code in present.tolist()], dtype=object)[positions]


def _count(codes: Any) -> dict[int, int]:
    present, counts = np.unique(codes, return_counts=True)
    return dict(zip(present.tolist(), counts.tolist(), strict=True))
