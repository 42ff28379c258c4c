"""``daskclust explain``: describe each cluster of a saved model on data."""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from daskclust.app.commands._cubes import open_cube_of, paths_of
from daskclust.app.commands._outputs import check_outputs, refuse_model_of_table
from daskclust.app.commands._tables import (
    explained_table,
    feature_names,
    is_table,
    table_for,
    without_names,
)
from daskclust.app.commands.console import Progress, ending, open_client, print_results
from daskclust.app.commands.requests import ExplainRequest, UsageError
from daskclust.app.report.page import Report
from daskclust.core.storage.outputs import json_text, lock_outputs
from daskclust.core.storage.redact import redact

_KINDS = (".html", ".csv", ".json")


def _run(options: argparse.Namespace) -> int:
    began = time.perf_counter()
    found, rules = explain(ExplainRequest.of(options))

    def as_text(_: Any) -> list[str]:
        outputs = {} if options.output is None else {"output": redact(options.output)}
        seconds = time.perf_counter() - began
        return _as_text(found, rules) + ending({"seconds": seconds, "outputs": outputs})

    return print_results(options, _as_json(found, rules), as_text)


def explain(options: ExplainRequest) -> tuple[Any, Any]:
    """Write the requested output; return profiles, and rules or the reason for their absence."""
    import daskclust
    from daskclust.explain import explained

    if options.cube is None:
        raise UsageError("CUBE is required: the data that the model labels")
    _check_output(options)
    progress = Progress()
    model = daskclust.load(options.model)
    columns: list[str] | None = None
    if is_table(options):
        table, model = table_for(options, model), without_names(model)
        if options.keep is not None:
            table.check_columns(options.keep)
        columns, blocks = feature_names(table), table.frame.npartitions
    else:
        refuse_model_of_table(options.model)
        cube = open_cube_of(options, model=model)
        blocks = cube.blocks.count
    with (
        lock_outputs([options.output]),
        open_client(options, useful_workers=blocks, progress=progress),
    ):
        with progress.task("Profiles and rules"):
            if columns is None:
                found, told = explained(model, cube)
            else:
                # On a page, only nearest rows describe vectors.  Tables may contain all numbers.
                whole = not str(options.output).lower().endswith(".html")
                found, told = explained_table(model, table, options, of_vectors=whole)
        if options.output is not None:
            _write(options, type(model).__name__, found, told)
    return found, told


def _check_output(options: ExplainRequest) -> None:
    if options.output is None:
        return
    kind = Path(options.output).suffix.lower()
    if kind not in _KINDS:
        raise UsageError(
            f"--output {redact(options.output)!r} must end in {', '.join(_KINDS)}, got "
            f"{kind or 'no ending'}"
        )
    if kind == ".html" and importlib.util.find_spec("matplotlib") is None:
        raise ImportError(
            "A page requires matplotlib, which is not installed. Use: pip install 'daskclust[plot]'"
        )
    inputs = {"MODEL": options.model, **paths_of(options.cube)}
    # Of no job: an earlier one is replaced with --overwrite alone.
    check_outputs(options, inputs, "none", {"--output": _Explanation(options.output)})


class _Explanation(Report):
    """A page, or a table, in which nothing says who has written it."""

    def problem(self) -> str | None:
        return super().problem() if self.place.lower().endswith(".html") else None


def _write(options: ExplainRequest, kind: str, found: Any, told: Any) -> None:
    suffix = Path(str(options.output)).suffix.lower()
    if suffix == ".html":
        from daskclust.app.report.sections import explained_page

        text = explained_page(f"Clusters of {kind}", found, told)
    elif suffix == ".csv":
        text = found.to_frame().to_csv()
    else:
        text = json_text(_as_json(found, told), indent=2)
    _Explanation(options.output, overwrite=options.overwrite).write(text)


def _as_json(found: Any, told: Any) -> dict[str, Any]:
    clusters = []
    features = [{}] * len(found.names) if found.are_vectors else _features_of(found)
    cells = (
        None
        if found.nearest_cells is None
        else json.loads(found.nearest_cells.to_json(orient="records"))
    )
    for at, name in enumerate(found.names):
        near = found.nearest_rows[at]
        clusters.append(
            {
                "label": int(found.labels[at]),
                "name": name,
                "class": found.classes[at],
                "size": float(found.sizes[at]),
                "share": float(found.shares[at]),
                **features[at],
                "nearest_rows": near[near >= 0].tolist(),
            }
        )
        if cells is not None:
            clusters[-1]["nearest_cells"], cells = (
                cells[: (near >= 0).sum()],
                cells[(near >= 0).sum() :],
            )
        if found.pixels is not None:
            clusters[-1]["nearest_pixels"] = found.pixels[at][near >= 0].tolist()
    out: dict[str, Any] = {"command": "explain", "clusters": clusters}
    if isinstance(told, str):
        return out | {"rules_left_out": told}
    rules = [
        {
            "cluster": each.cluster,
            "rule": str(each),
            # Without the rounding of the text.
            "intervals": [interval._asdict() for interval in each.intervals],
            "rows": each.rows,
            "precision": each.precision,
        }
        for each in told.rules
    ]
    keys = ("cluster", "mostly_follows", "share")
    absent = [dict(zip(keys, found, strict=True)) for found in told.without_rule]
    return out | {"fidelity": told.fidelity, "rules": rules, "without_rule": absent}


def _features_of(found: Any) -> list[dict[str, Any]]:
    """Return what sets each cluster apart, and its features in numbers."""
    frame, p = found.to_frame(), len(found.features)
    told = []
    for at, label in enumerate(found.labels.tolist()):
        part = frame.iloc[at * p : (at + 1) * p]
        lines = part.reset_index(level="cluster", drop=True).drop(columns=["size", "share"])
        values = {
            # JSON has no NaN and no infinity.
            key: {name: float(v) if np.isfinite(v) else None for name, v in line.items()}
            for key, line in lines.to_dict(orient="index").items()
        }
        told.append({"what": found.describe(label), "features": values})
    return told


def _as_text(found: Any, told: Any) -> list[str]:
    width = max(7, *(len(name) for name in found.names))
    things = "rows" if found.pixels is None else "pixels"
    what = "nearest row" if found.are_vectors else "distinguishing features"
    lines = [f"{'cluster':<{width}}  {things:>10}  {'share':>6}  {what}"]
    for at, name in enumerate(found.names):
        text = found.spot(at, 0) if found.are_vectors else found.describe(int(found.labels[at]))
        lines.append(
            f"{name:<{width}}  {found.sizes[at]:>10,.0f}  {found.shares[at]:>6.1%}  {text}"
        )
    lines += ["", f"Advice    {found.advice}"] if found.advice else []
    if found.values_are not in (None, "value"):
        lines += ["", f"Values    {found.values_are}"]
    if found.told_apart:
        lines += ["", f"Classes   {found.told_apart}"]
    return [*lines, "", "Rules     " + str(told).replace("\n", "\n          "), ""]
