"""``daskclust compare``: compare two label maps."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from daskclust.app.commands._cubes import local_name, store_and_variable
from daskclust.app.commands._fit_request import digest
from daskclust.app.commands._outputs import check_outputs, output_paths
from daskclust.app.commands._tables import holds_columns
from daskclust.app.commands.console import Progress, ending, open_client, print_results
from daskclust.app.commands.requests import CompareRequest, UsageError
from daskclust.app.report.page import Report
from daskclust.core.storage.outputs import JOB, lock_outputs
from daskclust.core.storage.redact import redact
from daskclust.core.storage.stores import local_path
from daskclust.scenes.formats.geotiff import LABEL_MAP, map_at
from daskclust.scenes.label_map import compare_maps

#: Maximum number of transitions that are printed.
_LISTED = 10


def _run(options: argparse.Namespace) -> int:
    return print_results(options, compare(CompareRequest.of(options)), _as_text)


def compare(options: CompareRequest) -> dict[str, Any]:
    """Compare two label maps, write the outputs of the request, and return the results."""
    from daskclust.scenes import open_label_map

    began = time.perf_counter()
    progress = Progress()
    names = (options.first, options.second)
    stores = [store_and_variable(name) for name in names]
    for store, _ in stores:
        if holds_columns(store):
            raise UsageError(
                f"{redact(store)!r} must be a label map (Zarr, GeoTIFF, NetCDF or .npy), got a "
                "table. To compare the clusters of a table with one of its columns, use predict "
                "--truth COLUMN"
            )
    shown = [redact(str(local_path(name) or name)) for name in names]
    mark = digest(["compare", *shown, options.match, options.resample])
    inputs = {"SECOND": stores[1][0], "FIRST": stores[0][0]}
    replace = check_outputs(options, inputs, mark)
    old, new = (open_label_map(local_name(store), variable=name) for store, name in stores)
    match = options.match
    models = {_model_of(store) for store, _ in stores}
    if match == "auto" and len(models) == 1 and None not in models:
        match = "code"
    with (
        lock_outputs([options.output, options.report]),
        open_client(options, useful_workers=old.values.npartitions, progress=progress),
    ):
        with progress.task("Comparison"):
            changes = compare_maps(old, new, match=match, resample=options.resample)
        results = _as_json(options, changes)
        if options.output is not None:
            with progress.task("Map of the changes"):
                job = {
                    "mark": mark,
                    **{key: results[key] for key in ("command", "first", "second")},
                }
                changes.changed.write(
                    options.output, overwrite=replace["--output"], attributes={JOB: job}
                )
        if options.report is not None:
            from daskclust.app.report.sections import changed_page

            title = options.title or " and ".join(Path(redact(store)).name for store, _ in stores)
            with progress.task("Report"):
                output = Report(options.report, overwrite=replace["--report"])
                output.write(changed_page(title, old, changes, mark))
    return results | {"seconds": time.perf_counter() - began, "outputs": output_paths(options)}


def _model_of(store: str) -> str | None:
    """Return the fingerprint of the model that made a map, or None if it is not stored."""
    written = map_at(store, LABEL_MAP).written()
    return None if written is None else written.job.get("model_mark")


def _as_json(options: CompareRequest, changes: Any) -> dict[str, Any]:
    legend, pixels, areas = changes.legend, changes.pixels, changes.square_meters

    def sizes(name: str, which: Any) -> dict[str, Any]:
        numbers: dict[str, Any] = {f"{name}pixels": int(pixels[which].sum())}
        if areas is not None:
            numbers[f"{name}square_meters"] = float(areas[which].sum())
        return numbers

    return {
        "command": "compare",
        "first": redact(options.first),
        "second": redact(options.second),
        "compared_by": changes.compared_by,
        "unchanged": changes.unchanged,
        "pixels": int(pixels.sum()),
        "only_in_first": changes.only_old,
        "only_in_second": changes.only_new,
        "classes": [
            {
                "code": code,
                "name": name,
                "color": color,
                "second_code": changes.new_codes.get(code),
                "second_name": changes.new_names.get(code),
                **sizes("first_", i),
                **sizes("second_", np.s_[:, i]),
                **sizes("kept_", (i, i)),
            }
            for i, (code, name, color) in enumerate(
                zip(legend.codes, legend.names, legend.colors, strict=True)
            )
        ],
        "transitions": [
            {
                "code": i,
                "from": legend.names[a],
                "to": legend.names[b],
                **sizes("", (a, b)),
            }
            for i, (a, b) in enumerate(changes.transitions(), start=1)
        ],
    }


def _as_text(results: dict[str, Any]) -> list[str]:
    by = results["compared_by"].replace("overlap", "the pixels that classes share")
    lines = [
        f"Pixels    {results['pixels']} in both maps, {results['only_in_first']} in the first "
        f"only, {results['only_in_second']} in the second only",
        f"Unchanged {results['unchanged']:.1%}, classes compared by {by}",
    ]
    if results["only_in_first"] or results["only_in_second"]:
        lines.append(f"{'':<10}The following numbers are about the pixels in both maps.")
    shown = [
        f"{item['name']} = {item['second_name']}"
        if item["second_name"] not in (None, item["name"], item["name"].removesuffix(" (new)"))
        else item["name"]
        for item in results["classes"]
    ]
    width = max(5, *map(len, shown))
    has_area = "first_square_meters" in results["classes"][0]
    unit, key, scale = ("km2", "square_meters", 1e6) if has_area else ("pixels", "pixels", 1)
    lines.append(
        f"{'':<10}{'class':<{width}}  {'first ' + unit:>13}  {'second ' + unit:>13}    kept"
    )
    for name, item in zip(shown, results["classes"], strict=True):
        first, second, kept = (
            item[f"{prefix}_{key}"] / scale for prefix in ("first", "second", "kept")
        )
        share = f"{kept / first:>6.1%}" if first else "     -"
        lines.append(f"{'':<10}{name:<{width}}  {first:>13.6g}  {second:>13.6g}  {share}")
    transitions = results["transitions"]
    for i, item in enumerate(transitions[:_LISTED]):
        text = f"{item['from']} -> {item['to']}: {item[key] / scale:.6g} {unit}"
        lines.append(f"{'' if i else 'Changes':<10}{text}")
    if len(transitions) > _LISTED:
        lines.append(f"{'':<10}and {len(transitions) - _LISTED} more")
    return lines + ending(results)
