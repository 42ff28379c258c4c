"""The Dask configuration namespace ``daskclust``; see ``daskclust.yaml`` for the keys."""

from __future__ import annotations

from pathlib import Path

import dask.config
import yaml

__all__ = ["load_defaults"]


def load_defaults() -> None:
    """Register the package's defaults; what the user has set wins."""
    path = Path(__file__).with_name("daskclust.yaml")
    defaults = yaml.safe_load(path.read_text())
    dask.config.update_defaults(defaults)
