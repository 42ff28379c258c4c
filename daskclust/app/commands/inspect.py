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
    found = inspect(InspectRequest.of(options))
    as_text = {"table": table_as_text, "vector file": _features_as_text}
    return print_results(options, found, as_text.get(found["kind"], _as_text))


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
        found = _model(str(options.cube), attributes)
    elif labels is not None and labels.ndim == 2 and "flag_values" in labels.attrs:
        # It looks like what `Cube.write_labels` writes.
        found = _label_map(node, labels, attributes.get(JOB))
    elif written is not None and written.kind == LABEL_MAP:
        found = _label_map(options.cube, None, written.attributes[JOB])
    else:
        found = _cube(options)
    return found


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


def _label_map(place: Any, array: zarr.Array[Any] | None, job: Any) -> dict[str, Any]:
    """Describe a label map; `array` holds the labels of a Zarr store."""
    opened = open_label_map(place)
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
    source, place = cube.stored, cube.georeference
    array = source.array
    paths = list(paths_of(options.cube).values())
    blocks = cube.blocks.count
    read = blocks if options.full else min(blocks, options.sample)
    numbers = np.unique(np.linspace(0, blocks - 1, read).astype(np.int64)).tolist()
    with Progress().task(f"Looking at {read} of {blocks} blocks"):
        valid, empty = cube.survey_blocks(numbers)
        pixels = sum(cube.blocks.pixels_of(number) for number in numbers)
    axes = dict(zip(("y", "x", "band"), source.order, strict=True))
    shape = {name: source.shape[place] for place, name in enumerate(axes)}
    if array is None:
        # Pixels are rows there: blocks are what is read.
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
    found: dict[str, Any] = {
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
        "georeferenced": bool(place.attributes or place.group_attributes or place.coordinates),
        "crs": cube.pixel_grid.crs_name,
        "files": len(paths)
        if array is None
        else math.prod(-(-size // unit[name]) for name, size in shape.items()),
    }
    unit_bytes = math.prod(unit.values()) * source.values.dtype.itemsize
    found["advice"] = advice(found, unit_bytes=unit_bytes)
    return found


def advice(found: Mapping[str, Any], *, unit_bytes: int) -> list[str]:
    """Return advice on faster reads and safer use of a cube.

    `found` is the output of ``inspect --json``, `unit_bytes` the size of an uncompressed shard or
    chunk.
    """
    out = []
    unit = found["shards"] or found["chunks"]
    n_bands = found["dimensions"]["band"]
    if unit["band"] < n_bands:
        parts = -(-n_bands // unit["band"])
        out.append(
            f"Bands are cut into {parts} chunks, so that a block reads {parts} files: rechunk to "
            "all bands in one chunk."
        )
    side = max(1, int((32 * 2**20 / (n_bands * np.dtype(found["dtype"]).itemsize)) ** 0.5))
    wanted = f"about {side} x {side} pixels with all bands"
    if unit_bytes < _SMALL and found["blocks"] > 1:
        out.append(
            f"Chunks hold {format_bytes(unit_bytes)}: each costs a task and a file. Rechunk to "
            f"{wanted}, or open with larger --chunks."
        )
    if unit_bytes > _LARGE:
        out.append(
            f"Chunks hold {format_bytes(unit_bytes)}, of which a worker needs two or three: "
            f"rechunk to {wanted}."
        )
    if found["files"] > _MANY_FILES:
        out.append(f"{found['files']} files: use shards, or larger chunks.")
    if found["wavelengths"] is None:
        out.append(
            "No wavelengths: add an array 'wavelength' (band) with units nm next to the cube, so "
            "that reports name the bands by it."
            if found["format"] == "zarr"
            else "No wavelengths: reports use the band names of the file, or numbers."
        )
    if not found["nodata"] and not found["nan_is_nodata"]:
        out.append(
            "Integers without a nodata attribute: if some value means no data, pass --nodata or "
            "set _FillValue."
        )
    if found["bands_without_data"]:
        text = as_ranges(found["bands_without_data"])
        out.append(
            f"Bands {text} hold no data"
            + ("" if found["share_is_exact"] else " in the blocks read")
            + f": a fit leaves out those without any. --bad-bands {text} says so beforehand."
        )
    if found["share_without_data"] == 1.0:
        out.append("No valid pixel was found: check --nodata, --bad-bands and --mask.")
    return out


def _as_text(found: Mapping[str, Any]) -> list[str]:
    if found["kind"] != "cube":
        lines = [found["kind"].capitalize()]
        for key, value in found.items():
            if key == "job" and value is not None:
                # The complete job is in the output of --json; the text is a summary.
                value = _job_as_text(value)
            if isinstance(value, list) and len(value) > _LISTED:
                value = f"{value[0]} ... {value[-1]} ({len(value)} in all)"
            if key != "kind":
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                lines.append(f"  {key}: {text}")
        return lines
    version, wave, out = found["zarr_format"], found["wavelengths"], found["bands_left_out"]

    def sizes(key: str) -> str:
        return " x ".join(f"{name} {size}" for name, size in found[key].items())

    kind = found["format"] if version is None else f"Zarr v{version}"
    cube = [found["variable"] or "array", kind]
    cube += [sizes("dimensions"), found["dtype"], format_bytes(found["bytes"])]
    if found["bytes_stored"] is not None:
        cube.append(f"{format_bytes(found['bytes_stored'])} stored")
    nodata = ", ".join(f"{value:g}" for value in found["nodata"]) or "none"
    values = [
        f"{key} {'one a band' if isinstance(value, list) else format(value, 'g')}"
        for key, value in found["values"].items()
    ]
    place = "coordinates without a coordinate system"
    return [
        f"Cube      {', '.join(cube)}",
        f"Chunks    {sizes('chunks')}"
        + (f", shards {sizes('shards')}" if found["shards"] else "")
        + f"; {counted(found['blocks'], 'block')} of "
        f"{found['block'][0]} x {found['block'][1]} pixels",
        f"Bands     {found['bands']}"
        + (f" ({out} bad ones left out)" if out else "")
        + (", no wavelengths" if wave is None else f", {wave[0]:g} to {wave[1]:g} nm"),
        f"No data   {found['share_without_data']:.1%} of pixels"
        + ("" if found["share_is_exact"] else " (of a sample)")
        + (", those that --mask hides among them" if found.get("mask") else "")
        + f"; values {nodata}"
        + (" and NaN" if found["nan_is_nodata"] else ""),
        f"Values    {', '.join(values) or 'as stored'}",
        f"Place     {found['crs'] or (place if found['georeferenced'] else 'not georeferenced')}",
        *(f"Advice    {text}" for text in found["advice"]),
    ]


def _job_as_text(job: Mapping[str, Any]) -> str:
    if job["command"] == "compare":
        return f"compare of {job['first']} and {job['second']}"
    return f"{job['command']} of {job['estimator']}, daskclust {job['version']}"


def described_features(options: InspectRequest) -> dict[str, Any]:
    """Describe a vector file, and its overlap with the scene."""
    from daskclust.scenes.formats.features import describe_features

    scene = None if options.scene is None else open_cube(local_name(options.scene)).pixel_grid
    found = describe_features(
        local_name(options.cube), class_column=options.class_column, scene=scene
    )
    found["advice"] = []
    if found["class_column"] is None:
        found["advice"].append(
            "Several columns may contain the classes. Name the right one with --class-column."
        )
    else:
        similar = text_of_similar(item["name"] for item in found["classes"])
        found["advice"] += [similar] if similar else []
        missing = found["features"] - sum(item["features"] for item in found["classes"])
        if missing:
            found["advice"].append(f"{counted(missing, 'feature')} without a class label nothing.")
    if found["crs"] is None:
        found["advice"].append(
            "No coordinate system: assign one, for example with ogr2ogr -a_srs, so that the "
            "features can be placed in a scene."
        )
    if found["scene"] is not None and not (found["scene"]["inside"] + found["scene"]["partly"]):
        found["advice"].append("All features are outside the scene: check both coordinate systems.")
    return found


def _area(square_meters: float) -> str:
    is_large = square_meters >= 1e6
    return f"{square_meters / (1e6 if is_large else 1e4):.4g} {'km2' if is_large else 'ha'}"


def _features_as_text(found: Mapping[str, Any]) -> list[str]:
    kinds = ", ".join(f"{count} {kind}" for kind, count in found["geometries"].items())
    area = found["square_meters"]
    lines = [
        f"Features  {found['features']} ({kinds})" + ("" if area is None else f", {_area(area)}"),
        f"Place     {found['crs'] or 'no coordinate system'}"
        + (
            ""
            if found["bounds"] is None
            else ", x {:.10g} to {:.10g}, y {:.10g} to {:.10g}".format(
                *(found["bounds"][at] for at in (0, 2, 1, 3))
            )
        ),
        f"Columns   {', '.join(found['columns']) or 'none'}",
    ]
    if found["classes"] is not None:
        lines.append(f"Classes   {len(found['classes'])}, in the column {found['class_column']}")
        width = max(len(item["name"]) for item in found["classes"])
        for item in found["classes"]:
            size = item["square_meters"]
            lines.append(
                f"          {item['name']:<{width}}  {counted(item['features'], 'feature'):>14}"
                + ("" if size is None else f"  {_area(size):>12}")
            )
    if found["scene"] is not None:
        inside, partly, outside = (found["scene"][key] for key in ("inside", "partly", "outside"))
        lines.append(f"Scene     {inside} features inside, {partly} partly, {outside} outside")
    return lines + [f"Advice    {text}" for text in found["advice"]]


#: Different values that are listed of a column, and parts that are many.
_MOST_LISTED, _MANY_PARTS = 12, 10_000
#: Ratio of the deviations of features from which the one outweighs the other.
_UNLIKE = 30.0


def described_table(options: InspectRequest) -> dict[str, Any]:
    """Describe a table by some of its parts, or by all with ``--full``."""
    from daskclust.tables import open_table

    table = open_table(local_name(options.cube))
    n_parts = table.frame.npartitions
    read = n_parts if options.full else min(n_parts, options.sample)
    chosen = np.unique(np.linspace(0, n_parts - 1, read).astype(np.int64)).tolist()
    with Progress().task(f"Looking at {read} of {n_parts} parts"):
        rows = sum(table.lengths)
        parts = table.frame.to_delayed(optimize_graph=False)
        told = compute("a look at the table", *(dask.delayed(_look)(parts[i]) for i in chosen))
    seen = sum(table.lengths[i] for i in chosen)
    columns = []
    for at, name in enumerate(map(str, table.frame.columns)):
        found = _merged([part[at] for part in told], seen)
        is_feature = name in table.columns
        dtype = str(table.frame.dtypes.iloc[at]).removesuffix("[pyarrow]")
        columns.append({"name": name, "dtype": dtype, "is_feature": is_feature, **found})
    out: dict[str, Any] = {
        "kind": "table",
        "rows": rows,
        "parts": n_parts,
        "rows_seen": seen,
        "bytes_of_files": table.bytes_of_files,
        "columns": columns,
    }
    out["advice"] = _advice(out)
    return out


def _look(part: Any) -> list[dict[str, Any]]:
    from pandas.api.types import is_string_dtype

    found = []
    for name in part.columns:
        column = part[name]
        kind = number_type(column.dtype)
        here = column[column.notna()]
        if is_string_dtype(here.dtype):
            # Empty text is a missing value, as in labels: CSV files have no other missing values.
            here = here[here.astype(object).str.strip() != ""]
        told: dict[str, Any] = {"missing": int(len(column) - len(here)), "moments": None}
        if kind is not None and kind.kind in "iuf":
            values = here.to_numpy(dtype=np.float64)
            values = values[np.isfinite(values)]
            told["missing"] = len(column) - len(values)
            if len(values):
                mean = values.mean()
                told["moments"] = (float(len(values)), mean, ((values - mean) ** 2).sum())
                told["bounds"] = values.min(), values.max()
                steps = np.diff(values)
                told["is_ordered"] = bool((steps > 0).all() and (values == values.round()).all())
        try:
            distinct = here.unique()[: _MOST_LISTED + 1]
            told["values"] = [item.item() if hasattr(item, "item") else item for item in distinct]
        except (TypeError, NotImplementedError):  # lists
            told["values"] = [None] * (_MOST_LISTED + 1)
        found.append(told)
    return found


def _merged(parts: Sequence[Mapping[str, Any]], seen: int) -> dict[str, Any]:
    values = {item: None for part in parts for item in part["values"]}
    few = len(values) <= _MOST_LISTED and None not in values
    out: dict[str, Any] = {
        "share_missing": sum(part["missing"] for part in parts) / max(1, seen),
        "values": sorted(map(str, values)) if few else None,
    }
    known = [part for part in parts if part["moments"] is not None]
    if known:
        weights, means, squares = np.array([part["moments"] for part in known]).T
        mean = float(weights @ means / weights.sum())
        spread = squares.sum() + weights @ (means - mean) ** 2
        out |= {
            "min": float(min(part["bounds"][0] for part in known)),
            "max": float(max(part["bounds"][1] for part in known)),
            "mean": mean,
            "std": float(spread / weights.sum()) ** 0.5,
            "is_row_number": not few and all(part["is_ordered"] for part in known),
        }
    return out


def _advice(found: Mapping[str, Any]) -> list[str]:
    features = [item for item in found["columns"] if item["is_feature"]]
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
    apart = {item["name"]: item["std"] for item in features if item.get("std")}
    if len(apart) > 1:
        wide, thin = max(apart, key=apart.__getitem__), min(apart, key=apart.__getitem__)
        if apart[wide] > _UNLIKE * apart[thin]:
            out.append(
                f"{wide} varies {apart[wide] / apart[thin]:,.0f} times as much as {thin}, and "
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
    if found["parts"] > _MANY_PARTS:
        out.append(f"{found['parts']} parts: each costs a task. Join files to some 50 MB each.")
    return out


def _type_in_short(dtype: str) -> str:
    """Return a short name of an Arrow type, of about a dozen characters.

    >>> _type_in_short("fixed_size_list<element: halffloat>[256]"), _type_in_short("int16")
    ('list[256]', 'int16')
    >>> _type_in_short("dictionary<values=string, indices=int8, ordered=0>")
    'category'
    """
    return re.sub(r"^dictionary<.*>", "category", re.sub(r"^(?:\w*_)?list<.*>", "list", dtype))


def table_as_text(found: Mapping[str, Any]) -> list[str]:
    size = found["bytes_of_files"]
    is_sample = found["rows_seen"] < found["rows"]
    lines = [
        f"Table     {found['rows']} rows x {len(found['columns'])} columns in "
        f"{counted(found['parts'], 'part')}"
        + ("" if size is None else f", {format_bytes(size)}")
        + (f"; columns as in {found['rows_seen']} of the rows" if is_sample else "")
    ]
    width = max(6, *(len(item["name"]) for item in found["columns"]))
    heads = "  ".join(f"{head:>11}" for head in ("min", "mean", "max"))
    lines.append(f"          {'column':<{width}}  {'type':<12}  missing  {heads}")
    for item in found["columns"]:
        text = f"          {item['name']:<{width}}  {_type_in_short(item['dtype'])[:12]:<12}  "
        text += f"{item['share_missing']:>7.1%}  "
        if "min" in item:
            text += "  ".join(f"{item[key]:>11.5g}" for key in ("min", "mean", "max"))
        elif item["values"]:
            text += ", ".join(item["values"])
        else:
            text += "many values"
        lines.append(text.rstrip() + ("" if item["is_feature"] else "  (no feature)"))
    return lines + [f"Advice    {text}" for text in found["advice"]]
