"""Distributed clustering on Dask for data sets larger than memory."""

# ruff: noqa: E402 - what follows takes a second, in which Ctrl-C is answered already
from daskclust._interrupts import answer_at_once

answer_at_once()

from importlib import import_module
from typing import TYPE_CHECKING, Any

from daskclust._version import __version__
from daskclust.config import load_defaults

if TYPE_CHECKING:
    from daskclust import datasets, explain, metrics, selection
    from daskclust.cluster.copkmeans import COPKMeans
    from daskclust.cluster.deduplicate import deduplicate
    from daskclust.cluster.dpmeans import DPMeans
    from daskclust.cluster.hierarchical_kmeans import HierarchicalKMeans
    from daskclust.cluster.kmeans import KMeans
    from daskclust.cluster.mpckmeans import MPCKMeans
    from daskclust.cluster.pckmeans import PCKMeans
    from daskclust.cluster.pcskmeans import PCSKMeans
    from daskclust.cluster.semi_supervised_kmeans import SemiSupervisedKMeans
    from daskclust.cluster.sparsekmeans import SparseKMeans
    from daskclust.constraints import pairs_from_labels
    from daskclust.cube import Cube, open_cube
    from daskclust.engine import on_iteration
    from daskclust.explain import match_clusters
    from daskclust.mixture.gaussian_mixture import GaussianMixture
    from daskclust.mixture.pckid import PCKID
    from daskclust.persistence.models import load
    from daskclust.prototypes.label_spreading import LabelSpreading
    from daskclust.prototypes.spectral_clustering import SpectralClustering
    from daskclust.trees.agglomerative import AgglomerativeClustering
    from daskclust.trees.dbscan import DBSCAN
    from daskclust.trees.hdbscan import HDBSCAN

load_defaults()

__all__ = [
    "DBSCAN",
    "HDBSCAN",
    "PCKID",
    "AgglomerativeClustering",
    "COPKMeans",
    "Cube",
    "DPMeans",
    "GaussianMixture",
    "HierarchicalKMeans",
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
    "deduplicate",
    "explain",
    "load",
    "match_clusters",
    "metrics",
    "on_iteration",
    "open_cube",
    "open_table",
    "pairs_from_labels",
    "selection",
]

# Imported when first asked for: the compiled kernels, Zarr and SciPy take seconds, in which the
# command line must already answer to Ctrl-C.
_LATE = {
    "AgglomerativeClustering": "daskclust.trees.agglomerative",
    "COPKMeans": "daskclust.cluster.copkmeans",
    "Cube": "daskclust.cube",
    "DBSCAN": "daskclust.trees.dbscan",
    "DPMeans": "daskclust.cluster.dpmeans",
    "GaussianMixture": "daskclust.mixture.gaussian_mixture",
    "HierarchicalKMeans": "daskclust.cluster.hierarchical_kmeans",
    "HDBSCAN": "daskclust.trees.hdbscan",
    "KMeans": "daskclust.cluster.kmeans",
    "LabelSpreading": "daskclust.prototypes.label_spreading",
    "MPCKMeans": "daskclust.cluster.mpckmeans",
    "PCKID": "daskclust.mixture.pckid",
    "PCKMeans": "daskclust.cluster.pckmeans",
    "PCSKMeans": "daskclust.cluster.pcskmeans",
    "SemiSupervisedKMeans": "daskclust.cluster.semi_supervised_kmeans",
    "SparseKMeans": "daskclust.cluster.sparsekmeans",
    "SpectralClustering": "daskclust.prototypes.spectral_clustering",
    "deduplicate": "daskclust.cluster.deduplicate",
    "load": "daskclust.persistence.models",
    "match_clusters": "daskclust.explain",
    "on_iteration": "daskclust.engine",
    "open_cube": "daskclust.cube",
    "open_table": "daskclust.tables",
    "pairs_from_labels": "daskclust.constraints",
}
#: Rooms of the package, as attributes without an import of their own.
_ROOMS = (
    "cluster",
    "commands",
    "constraints",
    "cube",
    "datasets",
    "engine",
    "estimator",
    "exceptions",
    "explain",
    "kernels",
    "metrics",
    "mixture",
    "persistence",
    "plotting",
    "prototypes",
    "reduction",
    "report",
    "selection",
    "starts",
    "storage",
    "testing",
    "trees",
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
