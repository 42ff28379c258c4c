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
#: Maximum number of tiles that are printed.
_MOST_TILES = 5


def _run(options: argparse.Namespace) -> int:
    began = time.perf_counter()
    profiles, rules, drift = explain(ExplainRequest.of(options))

    def as_text(_: Any) -> list[str]:
        outputs = {} if options.output is None else {"output": redact(options.output)}
        seconds = time.perf_counter() - began
        lines = _as_text(profiles, rules) + _drift_as_text(drift)
        return lines + ending({"seconds": seconds, "outputs": outputs})

    return print_results(options, _as_json(profiles, rules, drift), as_text)


def explain(options: ExplainRequest) -> tuple[Any, Any, Any]:
    """Write the requested output; return profiles, rules and differences between tiles.

    The reason for their absence replaces missing rules.  Differences are None without a mosaic.
    """
    import daskclust
    from daskclust.explain import explained, tile_drift

    if options.cube is None:
        raise UsageError("CUBE is required: the data that the model labels")
    _check_output(options)
    progress = Progress()
    model = daskclust.load(options.model)
    columns: list[str] | None = None
    drift = None
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
                profiles, rules = explained(model, cube)
            else:
                # A page describes vectors by the nearest rows only, a table by all numbers.
                with_values = not str(options.output).lower().endswith(".html")
                profiles, rules = explained_table(model, table, options, of_vectors=with_values)
        if columns is None and cube.items is not None and len(cube.item_names) > 1:
            with progress.task("Tiles"):
                drift = tile_drift(model, cube)
        if options.output is not None:
            _write(options, type(model).__name__, profiles, rules, drift)
    return profiles, rules, drift


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
    # The file records no job, so only --overwrite replaces an earlier file.
    check_outputs(options, inputs, "none", {"--output": _Explanation(options.output)})


class _Explanation(Report):
    """A page, or a table that does not record which program wrote it."""

    def problem(self) -> str | None:
        return super().problem() if self.location.lower().endswith(".html") else None


def _write(options: ExplainRequest, kind: str, profiles: Any, rules: Any, drift: Any) -> None:
    suffix = Path(str(options.output)).suffix.lower()
    if suffix == ".html":
        from daskclust.app.report.sections import explained_page

        text = explained_page(f"Clusters of {kind}", profiles, rules)
    elif suffix == ".csv":
        text = profiles.to_frame().to_csv()
    else:
        text = json_text(_as_json(profiles, rules, drift), indent=2)
    _Explanation(options.output, overwrite=options.overwrite).write(text)


def _as_json(described: Any, rules_found: Any, drift: Any) -> dict[str, Any]:
    clusters = []
    features = [{}] * len(described.names) if described.are_vectors else _features_of(described)
    cells = (
        None
        if described.nearest_cells is None
        else json.loads(described.nearest_cells.to_json(orient="records"))
    )
    for i, name in enumerate(described.names):
        nearest = described.nearest_rows[i]
        clusters.append(
            {
                "label": int(described.labels[i]),
                "name": name,
                "class": described.classes[i],
                "size": float(described.sizes[i]),
                "share": float(described.shares[i]),
                **features[i],
                "nearest_rows": nearest[nearest >= 0].tolist(),
            }
        )
        if cells is not None:
            clusters[-1]["nearest_cells"], cells = (
                cells[: (nearest >= 0).sum()],
                cells[(nearest >= 0).sum() :],
            )
        if described.pixels is not None:
            clusters[-1]["nearest_pixels"] = described.pixels[i][nearest >= 0].tolist()
    out: dict[str, Any] = {"command": "explain", "clusters": clusters}
    if drift is not None:
        out["tiles"] = json.loads(drift.to_frame().to_json(orient="records"))
    if isinstance(rules_found, str):
        return out | {"rules_left_out": rules_found}
    rules = [
        {
            "cluster": rule.cluster,
            "rule": str(rule),
            # Unlike the text, the intervals are not rounded.
            "intervals": [interval._asdict() for interval in rule.intervals],
            "rows": rule.rows,
            "precision": rule.precision,
        }
        for rule in rules_found.rules
    ]
    keys = ("cluster", "mostly_follows", "share")
    absent = [dict(zip(keys, described, strict=True)) for described in rules_found.without_rule]
    return out | {"fidelity": rules_found.fidelity, "rules": rules, "without_rule": absent}


def _features_of(profiles: Any) -> list[dict[str, Any]]:
    """Return the distinguishing features of each cluster, as text and in numbers."""
    frame, p = profiles.to_frame(), len(profiles.features)
    descriptions = []
    for i, label in enumerate(profiles.labels.tolist()):
        block = frame.iloc[i * p : (i + 1) * p]
        lines = block.reset_index(level="cluster", drop=True).drop(columns=["size", "share"])
        values = {
            # JSON has no NaN and no infinity.
            key: {name: float(v) if np.isfinite(v) else None for name, v in line.items()}
            for key, line in lines.to_dict(orient="index").items()
        }
        descriptions.append({"what": profiles.describe(label), "features": values})
    return descriptions


def _drift_as_text(drift: Any) -> list[str]:
    """Return lines on the tiles that differ most from their neighbors."""
    if drift is None:
        return []
    table = drift.to_frame().dropna(subset="distance").head(_MOST_TILES)
    lines = ["Tiles     whose clusters differ most from those of their neighbors (0 to 1)"]
    for name, distance in zip(table["tile"], table["distance"], strict=True):
        lines.append(f"          {distance:.3f}  {name}")
    return [*lines, ""] if len(lines) > 1 else []


def _as_text(profiles: Any, rules: Any) -> list[str]:
    width = max(7, *(len(name) for name in profiles.names))
    things = "rows" if profiles.pixels is None else "pixels"
    what = "nearest row" if profiles.are_vectors else "distinguishing features"
    lines = [f"{'cluster':<{width}}  {things:>10}  {'share':>6}  {what}"]
    for i, name in enumerate(profiles.names):
        text = (
            profiles.spot(i, 0)
            if profiles.are_vectors
            else profiles.describe(int(profiles.labels[i]))
        )
        lines.append(
            f"{name:<{width}}  {profiles.sizes[i]:>10,.0f}  {profiles.shares[i]:>6.1%}  {text}"
        )
    lines += ["", f"Advice    {profiles.advice}"] if profiles.advice else []
    if profiles.values_are not in (None, "value"):
        lines += ["", f"Values    {profiles.values_are}"]
    if profiles.told_apart:
        lines += ["", f"Classes   {profiles.told_apart}"]
    return [*lines, "", "Rules     " + str(rules).replace("\n", "\n          "), ""]
