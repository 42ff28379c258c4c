"""Tables on the command line: Parquet and CSV in, the rows with their labels out."""

from __future__ import annotations

import argparse
import glob
import time
from pathlib import Path
from typing import Any

import dask
import numpy as np
from dask.utils import format_bytes

from daskclust.commands._cubes import as_names, local_name, paths_of
from daskclust.commands._estimators import flags_of, takes_labels
from daskclust.commands._examine import look_before_fit
from daskclust.commands._jobs import effective
from daskclust.commands._outputs import JOB, TABLE, check_outputs
from daskclust.commands._plan import passes_of
from daskclust.commands._results import classes_as_text, fit_as_text, numbers_of
from daskclust.commands._resume import check_resumable, job_mark, resumable
from daskclust.commands._written import classes_of, read_legend
from daskclust.commands.console import Progress, counted, open_client
from daskclust.cube.formats.opening import kind_of
from daskclust.engine import compute
from daskclust.report.legend import Legend, legend_of
from daskclust.storage.targets import written_attributes
from daskclust.storage.urls import redact

__all__ = ["add_table_arguments", "fit_table", "is_table", "predict_table", "table_as_text"]

#: Options that are about pixels, and what they are if nobody gives them.
_OF_PIXELS = {
    **dict.fromkeys(("variable", "dims", "mask", "bad_bands", "chunks", "labels", "class_column")),
    **dict.fromkeys(("truth", "report", "uncertainty", "title")),
    **{"nodata": "auto", "incomplete": "mask", "min_observed": 0.0, "scale": "none"},
    "unlabeled": (-1,),
    "resample_labels": False,
}
#: What to do instead.
_INSTEAD = {
    "labels": "name the column of the labels with --label-column",
    "truth": "compare the labels that are written with the column yourself",
    "scale": "scale the columns before",
}


def add_table_arguments(parser: argparse.ArgumentParser, *, label_column: bool = False) -> None:
    """Add the options about the columns of a table."""
    group = parser.add_argument_group("tables", "CUBE may be a table: Parquet or CSV.")
    group.add_argument(
        "--columns",
        type=as_names,
        metavar="A,B,...",
        help="columns that are features (default: all of numbers, or those of the model)",
    )
    if label_column:
        group.add_argument(
            "--label-column",
            metavar="NAME",
            help="column of partial labels, text or codes; nothing and -1 mean none",
        )
    group.add_argument(
        "--output-column",
        default="label",
        metavar="NAME",
        help="column that --output adds (default: %(default)s)",
    )


def is_table(options: argparse.Namespace) -> bool:
    """Whether the input is a table; wrong usage ends the program."""
    paths = list(paths_of(options.cube).values())
    found = [_holds_table(path) for path in paths]
    if all(found):
        for name, unset in _OF_PIXELS.items():
            if getattr(options, name, unset) != unset:
                options.parser.error(
                    f"{redact(paths[0])!r} is a table, and --{name.replace('_', '-')} is about "
                    f"pixels; {_INSTEAD.get(name, 'leave it out')}"
                )
        return True
    for name in ("columns", "label_column"):
        if getattr(options, name, None) is not None:
            options.parser.error(
                f"--{name.replace('_', '-')} is about tables, and {redact(paths[0])!r} is none; "
                "expected Parquet or CSV"
            )
    if any(found):
        options.parser.error("some files are tables and others are not; expected one kind")
    return False


def _holds_table(path: str) -> bool:
    if kind_of(path) == "table":
        return True
    folder = Path(path)
    return "://" not in path and folder.is_dir() and any(folder.glob("*.parquet"))


def fit_table(
    options: argparse.Namespace, model: Any, pairs: dict[str, Any], progress: Progress
) -> dict[str, Any]:
    """Fit an estimator to the rows of a table, and return what became of it as JSON values."""
    import daskclust
    from daskclust.persistence.models import save

    began = time.perf_counter()
    if options.label_column is not None and not takes_labels(model):
        options.parser.error(
            f"{type(model).__name__} takes no labels, so no --label-column; name the features with "
            "--columns"
        )
    mark = job_mark(options, model.get_params(deep=False))
    table = _open(options, options.columns, options.label_column)
    replace = _check_outputs(options, table, mark, {"--model": options.model})
    check_resumable(options, mark)
    if options.dry_run:
        constrained = bool(pairs) or options.label_column is not None
        return _plan("fit", table, passes_of(model.get_params(), constrained=constrained))
    if options.output is None and options.model is None:
        options.parser.error(
            "nothing to write: give --output for the table with labels, --model, or both"
        )
    with (
        open_client(options, useful_workers=table.frame.npartitions, progress=progress) as client,
        resumable(options, model, mark, progress),
    ):
        threads = client.nthreads()
        n_workers, n_threads = len(threads), sum(threads.values())
        progress.say(f"Cluster: {counted(n_workers, 'worker')}, {counted(n_threads, 'thread')}")
        look_before_fit(client, progress)
        n = _rows_of(table, progress)
        arguments = dict(pairs)
        if takes_labels(model):
            arguments["y"] = None if options.label_column is None else _labels(table)
        with progress.task(type(model).__name__, rows=n):
            with daskclust.on_iteration(progress.iteration):
                model.fit(table.samples, **arguments)
        legend = legend_of(model)
        job = {
            "command": "fit",
            "version": daskclust.__version__,
            "estimator": type(model).__name__,
            "configuration": effective(
                options, model.get_params(deep=False), flags_of(options).keys() - {"checkpoint"}
            ),
        }
        stored = {**job, "mark": mark, "columns": list(table.columns)}
        if options.model is not None:
            with progress.task("Model"):
                stored["classes"] = classes_of(legend)
                save(model, options.model, overwrite=replace["--model"], attributes={JOB: stored})
        found = {
            **job,
            "rows": n,
            "columns": list(table.columns),
            "cluster": {"workers": len(threads), "threads": sum(threads.values())},
            **numbers_of(model),
            **_written(options, table, legend, model.labels_, stored, replace, progress),
        }
    return {**found, "seconds": time.perf_counter() - began, "outputs": _outputs(options)}


def predict_table(options: argparse.Namespace, model: Any, progress: Progress) -> dict[str, Any]:
    """Label the rows of a table by a saved model, and return what became of it."""
    import daskclust

    began = time.perf_counter()
    said = (written_attributes(options.model) or {}).get(JOB)
    said = said if isinstance(said, dict) else {}
    if "data" in said:
        raise ValueError(
            "The model was fitted to the bands of a cube; expected a cube with the same bands."
        )
    theirs = said.get("columns")
    table = _open(options, options.columns or theirs, None)
    if len(table.columns) != model.n_features_in_:
        raise ValueError(
            f"{len(table.columns)} columns are features ({', '.join(table.columns)}), the model "
            f"was fitted to {model.n_features_in_}"
            + (f" ({', '.join(theirs)})" if theirs else "")
            + "; expected as many, in the same order. Name them with --columns."
        )
    mark = job_mark(options, model.get_params(deep=False), options.model)
    replace = _check_outputs(options, table, mark, {}, {"--model": options.model})
    if options.dry_run:
        return _plan("predict", table, {})
    with open_client(options, useful_workers=table.frame.npartitions, progress=progress):
        n = _rows_of(table, progress)
        labels = model.predict(table.samples)
        legend = read_legend(said, model)
        job = {
            "command": "predict",
            "version": daskclust.__version__,
            "estimator": type(model).__name__,
            "configuration": effective(options, model.get_params(deep=False)),
        }
        stored = {**job, "mark": mark, "columns": list(table.columns)}
        found = {
            **job,
            "rows": n,
            "columns": list(table.columns),
            "n_clusters": len(legend.codes),
            **_written(options, table, legend, labels, stored, replace, progress),
        }
    return {**found, "seconds": time.perf_counter() - began, "outputs": _outputs(options)}


def _open(options: argparse.Namespace, columns: Any, label_column: str | None) -> Any:
    from daskclust.tables import open_table

    given = options.cube
    source = local_name(given) if isinstance(given, str) else [*map(local_name, given)]
    return open_table(source, columns=columns, label_column=label_column)


def _check_outputs(
    options: argparse.Namespace,
    table: Any,
    mark: str,
    more: dict[str, str | None],
    inputs: dict[str, str | None] | None = None,
) -> dict[str, bool]:
    """Refuse outputs before anything is computed."""
    from daskclust.tables import written_labels

    places = {"the table": None, **(inputs or {})}
    for path in paths_of(options.cube).values():
        # Of a pattern all files.
        found = glob.glob(path) if "*" in path else [path]
        places |= {f"the table's file {item!r}": item for item in found}
    places["--config"] = None if options.config is None else str(options.config)
    replace = check_outputs(
        {"--output": options.output, **more},
        places,
        mark=mark,
        overwrite=options.overwrite,
        kinds={"--output": TABLE, "--model": "model"},
    )
    if replace.get("--output") and not options.overwrite:
        # Its own, if it has the column that is asked for.
        written = written_labels(options.output) or {}
        replace["--output"] = written.get("name") == options.output_column
    if options.output_column in table.frame.columns:
        raise ValueError(
            f"The table has a column {options.output_column!r} already; expected a new name for "
            "that of the labels. Give one with --output-column."
        )
    if options.output is not None:
        try:
            table.check_target(options.output, options.output_column, overwrite=replace["--output"])
        except OSError as error:
            raise type(error)(f"--output {error}") from error
    return replace


def _rows_of(table: Any, progress: Progress) -> int:
    with progress.task("Rows"):
        n = sum(table.lengths)
    if n == 0:
        raise ValueError("The table has no rows; expected one at least.")
    return n


def _labels(table: Any) -> Any:
    rows, labels = table.labels()
    if not len(rows):
        raise ValueError(
            f"The column {table.label_column!r} holds no label; expected one at least. Nothing, "
            "empty text and -1 mean none."
        )
    return rows, labels


def _written(
    options: argparse.Namespace,
    table: Any,
    legend: Legend,
    labels: Any,
    stored: dict[str, Any],
    replace: dict[str, bool],
    progress: Progress,
) -> dict[str, Any]:
    """Write the table with labels, and count the rows of each class."""
    if options.output is None:
        return {}
    codes = legend.encode(labels)
    named = None if legend.is_of_clusters else _names_of(legend)
    with progress.task("Table"):
        table.write_labels(
            codes if named is None else _as_text(codes, named),
            options.output,
            name=options.output_column,
            overwrite=replace["--output"],
            attributes={JOB: stored},
        )
    with progress.task("Summary"):
        counts: dict[int, int] = {}
        parts = [dask.delayed(_count)(block) for block in codes.to_delayed().ravel()]
        for part in compute("the sizes of the classes", *parts):
            for code, size in part.items():
                counts[code] = counts.get(code, 0) + size
    sizes = [counts.get(code, 0) for code in legend.codes]
    return {
        "sizes": sizes,
        "classes": [
            {"code": code, "name": name, "rows": size}
            for code, name, size in zip(legend.codes, legend.names, sizes, strict=True)
        ],
    }


def _names_of(legend: Legend) -> dict[int, str] | None:
    """Return the names to write: None where classes are codes themselves."""
    if all(name == f"class_{code}" for code, name in legend.by_code.items()):
        return None
    return legend.by_code


def _as_text(codes: Any, names: dict[int, str]) -> Any:
    return codes.map_blocks(_named, names=names, dtype=object, meta=np.empty(0, object))


def _named(codes: Any, *, names: dict[int, str]) -> Any:
    found, places = np.unique(codes, return_inverse=True)
    # What has no label has no name.
    return np.array([names.get(code) for code in found.tolist()], dtype=object)[places]


def _count(codes: Any) -> dict[int, int]:
    return dict(zip(*(part.tolist() for part in np.unique(codes, return_counts=True)), strict=True))


def _outputs(options: argparse.Namespace) -> dict[str, str]:
    wanted = ("output",) if options.run.__module__.endswith("predict") else ("output", "model")
    return {n: redact(getattr(options, n)) for n in wanted if getattr(options, n) is not None}


def _plan(command: str, table: Any, passes: dict[str, int | None]) -> dict[str, Any]:
    passes = {"count_rows": 1, **passes, "write_labels": 1, "count_labels": 1}
    return {
        "command": command,
        "dry_run": True,
        "columns": list(table.columns),
        "label_column": table.label_column,
        "dtype": str(table.dtype),
        "parts": table.frame.npartitions,
        "bytes_of_files": table.bytes_of_files,
        "passes": passes,
        "passes_at_most": sum(count for count in passes.values() if count is not None),
    }


def table_as_text(found: dict[str, Any]) -> str:
    """Write a plan, or results, for people."""
    if "dry_run" in found:
        stored = found["bytes_of_files"]
        passes = ", ".join(
            f"{name.replace('_', ' ')} {'?' if count is None else count}"
            for name, count in found["passes"].items()
            if count != 0
        )
        label = found["label_column"]
        return "\n".join(
            [
                f"Table     {found['parts']} parts"
                + ("" if stored is None else f", {format_bytes(stored)}"),
                f"Columns   {', '.join(found['columns'])} as {found['dtype']}"
                + ("" if label is None else f"; labels {label}"),
                f"Passes    at most {found['passes_at_most']}: {passes}",
            ]
        )
    if found["command"] == "fit":
        return fit_as_text(found)
    return "\n".join(
        [
            f"Rows      {found['rows']} labeled",
            *classes_as_text(found),
            f"Time      {found['seconds']:.1f} s",
            f"Written   {', '.join(found['outputs'].values())}",
        ]
    )
