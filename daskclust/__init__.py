"""Distributed clustering on Dask for data sets larger than memory."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from daskclust.cluster.copkmeans import COPKMeans
from daskclust.cluster.dpmeans import DPMeans
from daskclust.cluster.kmeans import KMeans
from daskclust.cluster.mpckmeans import MPCKMeans
from daskclust.cluster.pckmeans import PCKMeans
from daskclust.cluster.pcskmeans import PCSKMeans
from daskclust.cluster.semi_supervised_kmeans import SemiSupervisedKMeans
from daskclust.cluster.sparsekmeans import SparseKMeans
from daskclust.config import load_defaults
from daskclust.constraints import pairs_from_labels
from daskclust.engine import on_iteration
from daskclust.mixture.gaussian_mixture import GaussianMixture
from daskclust.mixture.pckid import PCKID
from daskclust.prototypes.label_spreading import LabelSpreading
from daskclust.prototypes.spectral_clustering import SpectralClustering

if TYPE_CHECKING:
    from daskclust import datasets, metrics, selection
    from daskclust.cube import Cube, open_cube
    from daskclust.persistence.models import load

load_defaults()

__version__ = "0.1.0"

__all__ = [
    "PCKID",
    "COPKMeans",
    "Cube",
    "DPMeans",
    "GaussianMixture",
    "KMeans",
    "LabelSpreading",
    "MPCKMeans",
    "PCKMeans",
    "PCSKMeans",
    "SemiSupervisedKMeans",
    "SparseKMeans",
    "SpectralClustering",
    "__version__",
    "datasets",
    "load",
    "metrics",
    "on_iteration",
    "open_cube",
    "pairs_from_labels",
    "selection",
]

# Imported when first asked for: Zarr and scipy.stats would double the time of the import.
_LATE = {
    "Cube": "daskclust.cube",
    "load": "daskclust.persistence.models",
    "open_cube": "daskclust.cube",
}
_LATE_MODULES = ("datasets", "metrics", "selection")


def __getattr__(name: str) -> Any:
    if name in _LATE_MODULES:
        return import_module(f"daskclust.{name}")
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)


def __dir__() -> list[str]:
    return __all__
