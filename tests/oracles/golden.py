"""Reading the published program's results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .pcskm_reference import EMPTY

__all__ = ["DATA_SETS", "Case", "cases", "edge_cases", "load", "sparse_cases"]

Case = tuple[str, dict[str, Any]]

DATA_SETS = ("fisheriris", "digits048_data1", "TTSCST")


def load(data_dir: Path, name: str) -> dict[str, Any]:
    """All arrays of one file; skips the test where it is absent."""
    path = data_dir / "golden" / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"{path.name} is not among the test data")
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def _fields(golden: dict[str, Any], case: str) -> dict[str, Any]:
    prefix = f"{case}__"
    return {
        key.removeprefix(prefix): value for key, value in golden.items() if key.startswith(prefix)
    }


def cases(data_dir: Path, name: str, *algorithms: str) -> Iterator[Case]:
    """Every case of these algorithms on a data set: inputs and expected outputs."""
    golden = load(data_dir, name)
    none = np.empty((0, 2), dtype=np.int64)
    for case in golden["case_names"].tolist():
        parts = case.split("__")
        if parts[1] not in algorithms:
            continue
        given = _fields(golden, case)
        given["X"] = golden["X"]
        given["must_link"] = golden.get(f"{parts[2]}_must_link", none)
        given["cannot_link"] = golden.get(f"{parts[2]}_cannot_link", none)
        yield case, given


def sparse_cases(data_dir: Path, name: str) -> Iterator[Case]:
    """Every usable SKM and PCSKM case of a data set: inputs and expected outputs."""
    for case, given in cases(data_dir, name, "skm", "pcskm"):
        if int(given["status"]) != EMPTY:
            yield case, given


def edge_cases(data_dir: Path) -> Iterator[Case]:
    """Every edge case: inputs, limits and expected outputs."""
    golden = load(data_dir, "edge_cases")
    for case in golden["case_names"].tolist():
        yield case, _fields(golden, case)
