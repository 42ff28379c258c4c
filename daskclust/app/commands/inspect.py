"""``daskclust inspect``: describe a store, and give advice about it."""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import dask
import numpy as np
import zarr
from dask.utils import format_bytes

from daskclust.app.commands._cubes import grid_of, local_name, open_cube_of, paths_of
from daskclust.app.commands._tables import is_table
from daskclust.app.commands.console import Progress, counted, print_results
from daskclust.app.commands.requests import InspectRequest, UsageError
from daskclust.app.report.summary import legend_of
from daskclust.core.class_names import text_of_similar
from daskclust.core.engine import compute, number_type
from daskclust.core.persistence.mixin import class_names_of, clusters_are_classes, scene_of
from daskclust.core.storage.outputs import JOB
from daskclust.core.storage.redact import redact
from daskclust.core.storage.stores import array_of, local_path, open_store
from daskclust.scenes import open_cube, open_label_map
from daskclust.scenes.bands import as_ranges
from daskclust.scenes.formats.geotiff import LABEL_MAP, GeoTiff, is_geotiff
from daskclust.scenes.formats.opening import kind_of
from daskclust.scenes.formats.raster import envi_data_file
from daskclust.scenes.products import is_product

_SMALL, _LARGE = 2**20, 256 * 2**20
_MANY_FILES = 100_000
#: Maximum number of items of a list in text output.
_LISTED = 20


def _run(options: argparse.Namespace) -> int:
    facts = inspect(InspectRequest.of(options))
    as_text = {"table": table_as_text, "vector file": _features_as_text}
    return print_results(options, facts, as_text.get(facts["kind"], _as_text))


def inspect(options: InspectRequest) -> dict[str, Any]:
    """Describe the data at a path."""
    if options.cube is None:
        raise UsageError("CUBE is required")
    if is_table(options):
        return described_table(options)
    grid_of(options)  # Only a mosaic has these options.
    if isinstance(options.cube, str) and kind_of(options.cube) == "vector":
        return described_features(options)
    for flag in ("class_column", "scene"):
        if getattr(options, flag) is not None:
            raise ValueError(
                f"--{flag.replace('_', '-')} requires a vector file, got {redact(options.cube)!r}. "
                "Omit the option."
            )
    attributes: dict[str, Any] = {}
    node: Any = None
    is_store = isinstance(options.cube, str) and kind_of(options.cube) == "zarr"
    if is_store and not is_product(options.cube):
        node = open_store(options.cube)
        attributes = node.attrs.asdict()
    is_group = isinstance(node, zarr.Group) and options.variable is None
    labels = array_of(node, "labels") if is_group else None
    written = GeoTiff(options.cube, LABEL_MAP).written() if is_geotiff(options.cube) else None
    if "daskclust_model" in attributes:
        facts = _model(str(options.cube), attributes)
    elif labels is not None and labels.ndim == 2 and "flag_values" in labels.attrs:
        # It looks like what `Cube.write_labels` writes.
        facts = _label_map(node, labels, attributes.get(JOB))
    elif written is not None and written.kind == LABEL_MAP:
        facts = _label_map(options.cube, None, written.attributes[JOB])
    else:
        facts = _cube(options)
    return facts


def _model(path: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    import daskclust

    model = daskclust.load(path)
    scene = scene_of(model)
    return {
        "kind": "model",
        "estimator": type(model).__name__,
        "n_features": model.n_features_in_,
        "n_iter": getattr(model, "n_iter_", None),
        "classes": _classes_of(model),
        "bands": None if scene is None else len(scene["bands"]),
        "band_names": None if scene is None else scene["band_names"],
        "wavelengths": None if scene is None else scene["wavelengths"],
        "columns": (attributes.get(JOB) or {}).get("columns"),
        "parameters": {key: _plain(value) for key, value in model.get_params().items()},
    }


def _classes_of(model: Any) -> list[str] | None:
    """Return the names of a model's classes or named clusters, or their codes as text."""
    if not clusters_are_classes(model) and not class_names_of(model)[0]:
        return None  # a file may say any number of clusters
    legend = legend_of(model)
    return [legend.by_code[code] for code in sorted(legend.classes)] or None


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _label_map(source: Any, array: zarr.Array[Any] | None, job: Any) -> dict[str, Any]:
    """Describe a label map; `array` holds the labels of a Zarr store."""
    opened = open_label_map(source)
    codes = sorted(opened.names)
    if array is None:
        stored: dict[str, Any] = {"chunks": [max(sizes) for sizes in opened.values.chunks]}
    else:
        stored = {"chunks": list(array.chunks), "dtype": str(array.dtype)}
    return {
        "kind": "label map",
        "shape": list(opened.shape),
        **stored,
        "flag_values": codes,
        "classes": [opened.names[code] for code in codes],
        "crs": opened.grid.crs_name,
        "job": job,
    }


def _cube(options: InspectRequest) -> dict[str, Any]:
    cube = open_cube_of(options)
    source, position = cube.stored, cube.georeference
    array = source.array
    paths = list(paths_of(options.cube).values())
    blocks = cube.blocks.count
    read = blocks if options.full else min(blocks, options.sample)
    numbers = np.unique(np.linspace(0, blocks - 1, read).astype(np.int64)).tolist()
    with Progress().task(f"Reading {read} of {blocks} blocks"):
        valid, empty = cube.survey_blocks(numbers)
        pixels = sum(cube.blocks.pixels_of(number) for number in numbers)
    axes = dict(zip(("y", "x", "band"), source.order, strict=True))
    shape = {name: source.shape[position] for position, name in enumerate(axes)}
    if array is None:
        # Other formats are read in blocks of the cube.
        chunks = {"y": cube.chunks[0][0], "x": cube.chunks[1][0], "band": shape["band"]}
        shards = None
    else:
        chunks, shards = (
            sizes and {name: int(sizes[axis]) for name, axis in axes.items()}
            for sizes in (array.chunks, array.shards)
        )
    unit = shards or chunks
    stored = None
    local = [path for path in map(local_path, paths) if path is not None]
    if len(local) == len(paths):
        # The header of an ENVI file holds no values.
        files = [envi_data_file(p) if p.suffix.lower() == ".hdr" else p for p in local]
        stored = (
            sum(path.stat().st_size for path in files)
            if array is None
            else int(array.nbytes_stored())
        )
    named = cube.wavelengths
    facts: dict[str, Any] = {
        "kind": "cube",
        "variable": "" if array is None else array.path,
        "format": kind_of(paths[0]) if array is None else "zarr",
        "zarr_format": None if array is None else array.metadata.zarr_format,
        "dimensions": shape,
        "dimension_names": list(cube.dimension_names),
        "dtype": str(source.dtype),
        "values": cube.values,
        "chunks": chunks,
        "shards": shards,
        "blocks": blocks,
        "block": [cube.chunks[0][0], cube.chunks[1][0]],
        "bytes": source.nbytes,
        "bytes_stored": stored,
        "bands": cube.shape[2],
        "bands_left_out": source.shape[2] - cube.shape[2],
        # If all pixels are masked, single bands are not the cause.
        "bands_without_data": empty.tolist() if valid else [],
        "wavelengths": None if named is None else [float(named.min()), float(named.max())],
        "nodata": [float(value) for value in cube.nodata],
        "nan_is_nodata": source.dtype.kind == "f",
        "share_without_data": 1 - valid / pixels,
        "share_is_exact": read == blocks,
        "mask": None if options.mask is None else redact(options.mask),
        "georeferenced": bool(
            position.attributes or position.group_attributes or position.coordinates
        ),
        "crs": cube.pixel_grid.crs_name,
        "files": len(paths)
        if array is None
        else math.prod(-(-size // unit[name]) for name, size in shape.items()),
    }
    unit_bytes = math.prod(unit.values()) * source.values.dtype.itemsize
    facts["advice"] = advice(facts, unit_bytes=unit_bytes)
    return facts


def advice(facts: Mapping[str, Any], *, unit_bytes: int) -> list[str]:
    """Return advice on faster reads and safer use of a cube.

    `facts` is the output of ``inspect --json``, and `unit_bytes` the size of an uncompressed shard
    or chunk.
    """
    out = []
    unit = facts["shards"] or facts["chunks"]
    n_bands = facts["dimensions"]["band"]
    if unit["band"] < n_bands:
        parts = -(-n_bands // unit["band"])
        out.append(
            f"Bands are cut into {parts} chunks, so that a block reads {parts} files: rechunk to "
            "all bands in one chunk."
        )
    side = max(1, int((32 * 2**20 / (n_bands * np.dtype(facts["dtype"]).itemsize)) ** 0.5))
    wanted = f"about {side} x {side} pixels with all bands"
    if unit_bytes < _SMALL and facts["blocks"] > 1:
        out.append(
            f"Chunks hold {format_bytes(unit_bytes)}: each costs a task and a file. Rechunk to "
            f"{wanted}, or open with larger --chunks."
        )
    if unit_bytes > _LARGE:
        out.append(
            f"Chunks hold {format_bytes(unit_bytes)}, of which a worker needs two or three: "
            f"rechunk to {wanted}."
        )
    if facts["files"] > _MANY_FILES:
        out.append(f"{facts['files']} files: use shards, or larger chunks.")
    if facts["wavelengths"] is None:
        out.append(
            "No wavelengths: add an array 'wavelength' (band) with units nm next to the cube, so "
            "that reports name the bands by it."
            if facts["format"] == "zarr"
            else "No wavelengths: reports use the band names of the file, or numbers."
        )
    if not facts["nodata"] and not facts["nan_is_nodata"]:
        out.append(
            "Integers without a nodata attribute: if some value means no data, pass --nodata or "
            "set _FillValue."
        )
    if facts["bands_without_data"]:
        text = as_ranges(facts["bands_without_data"])
        out.append(
            f"Bands {text} hold no data"
            + ("" if facts["share_is_exact"] else " in the blocks read")
            + f": a fit excludes bands without data. Use --bad-bands {text} to exclude these bands."
        )
    if facts["share_without_data"] == 1.0:
        out.append("No valid pixel was found: check --nodata, --bad-bands and --mask.")
    return out


def _as_text(facts: Mapping[str, Any]) -> list[str]:
    if facts["kind"] != "cube":
        lines = [facts["kind"].capitalize()]
        for key, value in facts.items():
            if key == "job" and value is not None:
                # The complete job is in the output of --json; the text is a summary.
                value = _job_as_text(value)
            if isinstance(value, list) and len(value) > _LISTED:
                value = f"{value[0]} ... {value[-1]} ({len(value)} in all)"
            if key != "kind":
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                lines.append(f"  {key}: {text}")
        return lines
    version, wave, n_excluded = (
        facts["zarr_format"],
        facts["wavelengths"],
        facts["bands_left_out"],
    )

    def sizes(key: str) -> str:
        return " x ".join(f"{name} {size}" for name, size in facts[key].items())

    kind = facts["format"] if version is None else f"Zarr v{version}"
    cube = [facts["variable"] or "array", kind]
    cube += [sizes("dimensions"), facts["dtype"], format_bytes(facts["bytes"])]
    if facts["bytes_stored"] is not None:
        cube.append(f"{format_bytes(facts['bytes_stored'])} stored")
    nodata = ", ".join(f"{value:g}" for value in facts["nodata"]) or "none"
    values = [
        f"{key} {'one a band' if isinstance(value, list) else format(value, 'g')}"
        for key, value in facts["values"].items()
    ]
    no_system = "coordinates without a coordinate system"
    return [
        f"Cube      {', '.join(cube)}",
        f"Chunks    {sizes('chunks')}"
        + (f", shards {sizes('shards')}" if facts["shards"] else "")
        + f"; {counted(facts['blocks'], 'block')} of "
        f"{facts['block'][0]} x {facts['block'][1]} pixels",
        f"Bands     {facts['bands']}"
        + (f" ({n_excluded} bad bands excluded)" if n_excluded else "")
        + (", no wavelengths" if wave is None else f", {wave[0]:g} to {wave[1]:g} nm"),
        f"No data   {facts['share_without_data']:.1%} of pixels"
        + ("" if facts["share_is_exact"] else " (of a sample)")
        + (", including pixels that --mask excludes" if facts.get("mask") else "")
        + f"; values {nodata}"
        + (" and NaN" if facts["nan_is_nodata"] else ""),
        f"Values    {', '.join(values) or 'as stored'}",
        "Place     "
        f"{facts['crs'] or (no_system if facts['georeferenced'] else 'not georeferenced')}",
        *(f"Advice    {text}" for text in facts["advice"]),
    ]


def _job_as_text(job: Mapping[str, Any]) -> str:
    if job["command"] == "compare":
        return f"compare of {job['first']} and {job['second']}"
    return f"{job['command']} of {job['estimator']}, daskclust {job['version']}"


def described_features(options: InspectRequest) -> dict[str, Any]:
    """Describe a vector file, and its overlap with the scene."""
    from daskclust.scenes.formats.features import describe_features

    scene = None if options.scene is None else open_cube(local_name(options.scene)).pixel_grid
    facts = describe_features(
        local_name(options.cube), class_column=options.class_column, scene=scene
    )
    facts["advice"] = []
    if facts["class_column"] is None:
        facts["advice"].append(
            "Several columns may contain the classes. Name the right one with --class-column."
        )
    else:
        similar = text_of_similar(item["name"] for item in facts["classes"])
        facts["advice"] += [similar] if similar else []
        missing = facts["features"] - sum(item["features"] for item in facts["classes"])
        if missing:
            facts["advice"].append(f"{counted(missing, 'feature')} without a class are ignored.")
    if facts["crs"] is None:
        facts["advice"].append(
            "No coordinate system: assign one, for example with ogr2ogr -a_srs, so that the "
            "features can be placed in a scene."
        )
    if facts["scene"] is not None and not (facts["scene"]["inside"] + facts["scene"]["partly"]):
        facts["advice"].append("All features are outside the scene: check both coordinate systems.")
    return facts


def _area(square_meters: float) -> str:
    is_large = square_meters >= 1e6
    return f"{square_meters / (1e6 if is_large else 1e4):.4g} {'km2' if is_large else 'ha'}"


def _features_as_text(facts: Mapping[str, Any]) -> list[str]:
    kinds = ", ".join(f"{count} {kind}" for kind, count in facts["geometries"].items())
    area = facts["square_meters"]
    lines = [
        f"Features  {facts['features']} ({kinds})" + ("" if area is None else f", {_area(area)}"),
        f"Place     {facts['crs'] or 'no coordinate system'}"
        + (
            ""
            if facts["bounds"] is None
            else ", x {:.10g} to {:.10g}, y {:.10g} to {:.10g}".format(
                *(facts["bounds"][i] for i in (0, 2, 1, 3))
            )
        ),
        f"Columns   {', '.join(facts['columns']) or 'none'}",
    ]
    if facts["classes"] is not None:
        lines.append(f"Classes   {len(facts['classes'])}, in the column {facts['class_column']}")
        width = max(len(item["name"]) for item in facts["classes"])
        for item in facts["classes"]:
            size = item["square_meters"]
            lines.append(
                f"          {item['name']:<{width}}  {counted(item['features'], 'feature'):>14}"
                + ("" if size is None else f"  {_area(size):>12}")
            )
    if facts["scene"] is not None:
        inside, partly, outside = (facts["scene"][key] for key in ("inside", "partly", "outside"))
        lines.append(f"Scene     {inside} features inside, {partly} partly, {outside} outside")
    return lines + [f"Advice    {text}" for text in facts["advice"]]


#: Maximum number of distinct values that are listed for a column, and number of parts of a table
#: above which advice is given.
_MAX_VALUES, _MANY_PARTS = 12, 10_000
#: Ratio of the standard deviations of two features above which advice is given.
_UNLIKE = 30.0


def described_table(options: InspectRequest) -> dict[str, Any]:
    """Describe a table by some of its parts, or by all with ``--full``."""
    from daskclust.tables import open_table

    table = open_table(local_name(options.cube))
    n_parts = table.frame.npartitions
    read = n_parts if options.full else min(n_parts, options.sample)
    chosen = np.unique(np.linspace(0, n_parts - 1, read).astype(np.int64)).tolist()
    with Progress().task(f"Reading {read} of {n_parts} parts"):
        rows = sum(table.lengths)
        parts = table.frame.to_delayed(optimize_graph=False)
        described = compute(
            "parts of the table", *(dask.delayed(_statistics)(parts[i]) for i in chosen)
        )
    n_seen = sum(table.lengths[i] for i in chosen)
    columns = []
    for column, name in enumerate(map(str, table.frame.columns)):
        statistics = _merged([columns_of_part[column] for columns_of_part in described], n_seen)
        is_feature = name in table.columns
        dtype = str(table.frame.dtypes.iloc[column]).removesuffix("[pyarrow]")
        columns.append({"name": name, "dtype": dtype, "is_feature": is_feature, **statistics})
    out: dict[str, Any] = {
        "kind": "table",
        "rows": rows,
        "parts": n_parts,
        "rows_seen": n_seen,
        "bytes_of_files": table.bytes_of_files,
        "columns": columns,
    }
    out["advice"] = _advice(out)
    return out


def _statistics(part: Any) -> list[dict[str, Any]]:
    from pandas.api.types import is_string_dtype

    statistics = []
    for name in part.columns:
        column = part[name]
        kind = number_type(column.dtype)
        present = column[column.notna()]
        if is_string_dtype(present.dtype):
            # Empty text is a missing value, as in labels: CSV files have no other missing values.
            present = present[present.astype(object).str.strip() != ""]
        of_column: dict[str, Any] = {"missing": int(len(column) - len(present)), "moments": None}
        if kind is not None and kind.kind in "iuf":
            values = present.to_numpy(dtype=np.float64)
            values = values[np.isfinite(values)]
            of_column["missing"] = len(column) - len(values)
            if len(values):
                mean = values.mean()
                of_column["moments"] = (float(len(values)), mean, ((values - mean) ** 2).sum())
                of_column["bounds"] = values.min(), values.max()
                steps = np.diff(values)
                of_column["is_ordered"] = bool(
                    (steps > 0).all() and (values == values.round()).all()
                )
        try:
            distinct = present.unique()[: _MAX_VALUES + 1]
            of_column["values"] = [
                item.item() if hasattr(item, "item") else item for item in distinct
            ]
        except (TypeError, NotImplementedError):  # lists
            of_column["values"] = [None] * (_MAX_VALUES + 1)
        statistics.append(of_column)
    return statistics


def _merged(parts: Sequence[Mapping[str, Any]], seen: int) -> dict[str, Any]:
    values = {item: None for described in parts for item in described["values"]}
    few = len(values) <= _MAX_VALUES and None not in values
    out: dict[str, Any] = {
        "share_missing": sum(described["missing"] for described in parts) / max(1, seen),
        "values": sorted(map(str, values)) if few else None,
    }
    numeric = [described for described in parts if described["moments"] is not None]
    if numeric:
        weights, means, squares = np.array([described["moments"] for described in numeric]).T
        mean = float(weights @ means / weights.sum())
        spread = squares.sum() + weights @ (means - mean) ** 2
        out |= {
            "min": float(min(described["bounds"][0] for described in numeric)),
            "max": float(max(described["bounds"][1] for described in numeric)),
            "mean": mean,
            "std": float(spread / weights.sum()) ** 0.5,
            "is_row_number": not few and all(described["is_ordered"] for described in numeric),
        }
    return out


def _advice(facts: Mapping[str, Any]) -> list[str]:
    features = [item for item in facts["columns"] if item["is_feature"]]
    out = []
    numbered = [item["name"] for item in features if item.get("is_row_number")]
    if numbered:
        out.append(
            f"{', '.join(numbered)}: increases from row to row, probably a row number. Choose "
            "the features with --columns."
        )
    constant = [item["name"] for item in features if item.get("std") == 0]
    if constant:
        out.append(f"{', '.join(constant)}: the same value in all rows read; leave it out.")
    spreads = {item["name"]: item["std"] for item in features if item.get("std")}
    if len(spreads) > 1:
        wide, thin = max(spreads, key=spreads.__getitem__), min(spreads, key=spreads.__getitem__)
        if spreads[wide] > _UNLIKE * spreads[thin]:
            out.append(
                f"{wide} varies {spreads[wide] / spreads[thin]:,.0f} times as much as {thin}, and "
                "decides distances alone: scale the columns (--scale standard), or use "
                "label-spreading, which scales them."
            )
    missing = [item["name"] for item in features if item["share_missing"] > 0]
    if missing:
        out.append(
            f"{', '.join(missing)}: values are missing; see --set missing=partial, label-spreading "
            "and gaussianmixture."
        )
    coded = [
        item["name"] for item in features if item["values"] and item["dtype"].startswith(("i", "u"))
    ]
    if coded:
        out.append(
            f"{', '.join(coded)}: few whole numbers. If these are codes of classes, omit "
            "them with --columns, or use --label-column or --truth."
        )
    if facts["parts"] > _MANY_PARTS:
        out.append(f"{facts['parts']} parts: each costs a task. Join files to about 50 MB each.")
    return out


def _type_in_short(dtype: str) -> str:
    """Return a short name of an Arrow type, of about a dozen characters.

    >>> _type_in_short("fixed_size_list<element: halffloat>[256]"), _type_in_short("int16")
    ('list[256]', 'int16')
    >>> _type_in_short("dictionary<values=string, indices=int8, ordered=0>")
    'category'
    """
    return re.sub(r"^dictionary<.*>", "category", re.sub(r"^(?:\w*_)?list<.*>", "list", dtype))


def table_as_text(facts: Mapping[str, Any]) -> list[str]:
    size = facts["bytes_of_files"]
    is_sample = facts["rows_seen"] < facts["rows"]
    lines = [
        f"Table     {facts['rows']} rows x {len(facts['columns'])} columns in "
        f"{counted(facts['parts'], 'part')}"
        + ("" if size is None else f", {format_bytes(size)}")
        + (f"; columns as in {facts['rows_seen']} of the rows" if is_sample else "")
    ]
    width = max(6, *(len(item["name"]) for item in facts["columns"]))
    heads = "  ".join(f"{head:>11}" for head in ("min", "mean", "max"))
    lines.append(f"          {'column':<{width}}  {'type':<12}  missing  {heads}")
    for item in facts["columns"]:
        text = f"          {item['name']:<{width}}  {_type_in_short(item['dtype'])[:12]:<12}  "
        text += f"{item['share_missing']:>7.1%}  "
        if "min" in item:
            text += "  ".join(f"{item[key]:>11.5g}" for key in ("min", "mean", "max"))
        elif item["values"]:
            text += ", ".join(item["values"])
        else:
            text += "many values"
        lines.append(text.rstrip() + ("" if item["is_feature"] else "  (no feature)"))
    return lines + [f"Advice    {text}" for text in facts["advice"]]
