"""Distributed clustering on Dask for data sets larger than memory."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from daskclust.cluster.kmeans import KMeans
from daskclust.cluster.pckmeans import PCKMeans
from daskclust.cluster.pcskmeans import PCSKMeans
from daskclust.cluster.sparsekmeans import SparseKMeans
from daskclust.config import load_defaults
from daskclust.constraints import pairs_from_labels
from daskclust.engine import on_iteration

if TYPE_CHECKING:
    from daskclust import datasets
    from daskclust.cube import Cube, open_cube
    from daskclust.persistence import load

load_defaults()

__version__ = "0.1.0"

__all__ = [
    "Cube",
    "KMeans",
    "PCKMeans",
    "PCSKMeans",
    "SparseKMeans",
    "__version__",
    "datasets",
    "load",
    "on_iteration",
    "open_cube",
    "pairs_from_labels",
]

# Imported when first asked for: Zarr and scipy.stats would double the time of the import.
_LATE = {
    "Cube": "daskclust.cube",
    "datasets": "daskclust.datasets",
    "load": "daskclust.persistence",
    "open_cube": "daskclust.cube",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_LATE[name])
    return module if name == "datasets" else getattr(module, name)


def __dir__() -> list[str]:
    return __all__
