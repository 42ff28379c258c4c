"""Distributed clustering on Dask for data sets larger than memory."""

# ruff: noqa: E402 - what follows takes a second, in which Ctrl-C is answered already
from daskclust._interrupts import answer_at_once

answer_at_once()

from importlib import import_module
from typing import TYPE_CHECKING, Any

from daskclust._version import __version__
from daskclust.config import load_defaults

if TYPE_CHECKING:
    from daskclust import datasets, metrics, selection
    from daskclust.cluster.copkmeans import COPKMeans
    from daskclust.cluster.dpmeans import DPMeans
    from daskclust.cluster.kmeans import KMeans
    from daskclust.cluster.mpckmeans import MPCKMeans
    from daskclust.cluster.pckmeans import PCKMeans
    from daskclust.cluster.pcskmeans import PCSKMeans
    from daskclust.cluster.semi_supervised_kmeans import SemiSupervisedKMeans
    from daskclust.cluster.sparsekmeans import SparseKMeans
    from daskclust.constraints import pairs_from_labels
    from daskclust.cube import Cube, open_cube
    from daskclust.engine import on_iteration
    from daskclust.mixture.gaussian_mixture import GaussianMixture
    from daskclust.mixture.pckid import PCKID
    from daskclust.persistence.models import load
    from daskclust.prototypes.label_spreading import LabelSpreading
    from daskclust.prototypes.spectral_clustering import SpectralClustering

load_defaults()

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

# Imported when first asked for: the compiled kernels, Zarr and SciPy take seconds, in which the
# command line must already answer to Ctrl-C.
_LATE = {
    "COPKMeans": "daskclust.cluster.copkmeans",
    "Cube": "daskclust.cube",
    "DPMeans": "daskclust.cluster.dpmeans",
    "GaussianMixture": "daskclust.mixture.gaussian_mixture",
    "KMeans": "daskclust.cluster.kmeans",
    "LabelSpreading": "daskclust.prototypes.label_spreading",
    "MPCKMeans": "daskclust.cluster.mpckmeans",
    "PCKID": "daskclust.mixture.pckid",
    "PCKMeans": "daskclust.cluster.pckmeans",
    "PCSKMeans": "daskclust.cluster.pcskmeans",
    "SemiSupervisedKMeans": "daskclust.cluster.semi_supervised_kmeans",
    "SparseKMeans": "daskclust.cluster.sparsekmeans",
    "SpectralClustering": "daskclust.prototypes.spectral_clustering",
    "load": "daskclust.persistence.models",
    "on_iteration": "daskclust.engine",
    "open_cube": "daskclust.cube",
    "pairs_from_labels": "daskclust.constraints",
}
#: Rooms of the package, as attributes without an import of their own.
_ROOMS = (
    *("cluster", "commands", "constraints", "cube", "datasets", "engine", "estimator"),
    *(
        "exceptions",
        "kernels",
        "metrics",
        "mixture",
        "persistence",
        "plotting",
        "prototypes",
        "reduction",
    ),
    *("report", "selection", "starts", "storage", "testing"),
)


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"daskclust.{name}")
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_LATE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
