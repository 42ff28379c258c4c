"""The scripts behind the notebooks of the papers, as modules."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


@pytest.fixture(scope="module")
def paper(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """Import the script that a test module names as its ``SCRIPT``."""
    name = request.module.SCRIPT
    spec = importlib.util.spec_from_file_location(name, NOTEBOOKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Named tuples and dataclasses look their module up, and scripts import their neighbors.
    sys.modules[name] = module
    sys.path.insert(0, str(NOTEBOOKS))
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(NOTEBOOKS))
    del sys.modules[name]
