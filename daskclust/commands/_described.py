"""What ``daskclust inspect`` says of a table: its columns, and what to heed before a fit."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import dask
import numpy as np
from dask.utils import format_bytes

from daskclust.commands._cubes import local_name
from daskclust.commands.console import Progress, counted
from daskclust.engine import compute, number_type

__all__ = ["described_table", "table_as_text"]

#: Different values that are listed of a column, and parts that are many.
_LISTED, _MANY_PARTS = 12, 10_000
#: Ratio of the deviations of features from which the one outweighs the other.
_UNLIKE = 30.0


def described_table(options: argparse.Namespace) -> dict[str, Any]:
    """Describe a table by some of its parts, or by all with ``--full``."""
    from daskclust.tables import open_table

    given = options.cube
    table = open_table(local_name(given) if isinstance(given, str) else [*map(local_name, given)])
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
    """Describe the columns of a part."""
    found = []
    for name in part.columns:
        column = part[name]
        kind = number_type(column.dtype)
        here = column[column.notna()]
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
            distinct = here.unique()[: _LISTED + 1]
            told["values"] = [item.item() if hasattr(item, "item") else item for item in distinct]
        except TypeError:  # lists
            told["values"] = [None] * (_LISTED + 1)
        found.append(told)
    return found


def _merged(parts: Sequence[Mapping[str, Any]], seen: int) -> dict[str, Any]:
    """Join what was found of one column."""
    values = {item: None for part in parts for item in part["values"]}
    few = len(values) <= _LISTED and None not in values
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
            f"{', '.join(numbered)}: rises from row to row, as numbers of rows do. It says nothing "
            "of them: name the features with --columns."
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
                "decides distances alone: scale the columns, or take label-spreading, which does."
            )
    missing = [item["name"] for item in features if item["share_missing"] > 0]
    if missing:
        out.append(
            f"{', '.join(missing)}: values are missing; see --missing partial, label-spreading and "
            "gaussianmixture."
        )
    coded = [
        item["name"] for item in features if item["values"] and item["dtype"].startswith(("i", "u"))
    ]
    if coded:
        out.append(
            f"{', '.join(coded)}: few whole numbers. If these are codes of classes, they are no "
            "features: leave them out with --columns, or use --label-column or --truth."
        )
    if found["parts"] > _MANY_PARTS:
        out.append(f"{found['parts']} parts: each costs a task. Join files to some 50 MB each.")
    return out


def table_as_text(found: Mapping[str, Any]) -> str:
    """Write what was found for people."""
    size = found["bytes_of_files"]
    is_sample = found["rows_seen"] < found["rows"]
    lines = [
        f"Table     {found['rows']} rows x {len(found['columns'])} columns in "
        f"{counted(found['parts'], 'part')}"
        + ("" if size is None else f", {format_bytes(size)}")
        + (f"; columns as in {found['rows_seen']} of the rows" if is_sample else ""),
    ]
    width = max(6, *(len(item["name"]) for item in found["columns"]))
    heads = "  ".join(f"{head:>11}" for head in ("min", "mean", "max"))
    lines.append(f"          {'column':<{width}}  {'type':<12}  missing  {heads}")
    for item in found["columns"]:
        text = f"          {item['name']:<{width}}  {item['dtype'][:12]:<12}  "
        text += f"{item['share_missing']:>7.1%}  "
        if "min" in item:
            text += "  ".join(f"{item[key]:>11.5g}" for key in ("min", "mean", "max"))
        elif item["values"]:
            text += ", ".join(item["values"])
        else:
            text += "many values"
        lines.append(text.rstrip() + ("" if item["is_feature"] else "  (no feature)"))
    lines += [f"Advice    {text}" for text in found["advice"]]
    return "\n".join(lines)
