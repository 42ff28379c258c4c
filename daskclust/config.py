"""The Dask configuration namespace ``daskclust``; see ``daskclust.yaml`` for the keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.config
import yaml

__all__ = ["load_defaults", "setting"]


def load_defaults() -> None:
    """Register the package's defaults; what the user has set wins."""
    path = Path(__file__).with_name("daskclust.yaml")
    defaults = yaml.safe_load(path.read_text())
    dask.config.update_defaults(defaults)


def setting(name: str) -> Any:
    """Return what is set for ``daskclust.<name>`` at this moment.

    Examples
    --------
    >>> setting("persist")
    'auto'
    """
    return dask.config.get(f"daskclust.{name}")
