"""Distributed clustering on Dask for data sets larger than memory."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from daskclust._version import __version__ as __version__
from daskclust.config import load_defaults

if TYPE_CHECKING:
    from daskclust import datasets as datasets
    from daskclust import exceptions as exceptions
    from daskclust import explain as explain
    from daskclust import metrics as metrics
    from daskclust import plotting as plotting
    from daskclust import preprocessing as preprocessing
    from daskclust import reduction as reduction
    from daskclust import selection as selection
    from daskclust import testing as testing
    from daskclust.cluster.copkmeans import COPKMeans as COPKMeans
    from daskclust.cluster.deduplicate import deduplicate as deduplicate
    from daskclust.cluster.dpmeans import DPMeans as DPMeans
    from daskclust.cluster.hierarchical_kmeans import HierarchicalKMeans as HierarchicalKMeans
    from daskclust.cluster.kmeans import KMeans as KMeans
    from daskclust.cluster.mpckmeans import MPCKMeans as MPCKMeans
    from daskclust.cluster.pckmeans import PCKMeans as PCKMeans
    from daskclust.cluster.pcskmeans import PCSKMeans as PCSKMeans
    from daskclust.cluster.semi_supervised_kmeans import (
        SemiSupervisedKMeans as SemiSupervisedKMeans,
    )
    from daskclust.cluster.sparsekmeans import SparseKMeans as SparseKMeans
    from daskclust.core.constraints import pairs_from_labels as pairs_from_labels
    from daskclust.core.engine import on_iteration as on_iteration
    from daskclust.core.persistence.models import load as load
    from daskclust.density.agglomerative import AgglomerativeClustering as AgglomerativeClustering
    from daskclust.density.dbscan import DBSCAN as DBSCAN
    from daskclust.density.hdbscan import HDBSCAN as HDBSCAN
    from daskclust.explain import match_clusters as match_clusters
    from daskclust.mixture.gaussian_mixture import GaussianMixture as GaussianMixture
    from daskclust.mixture.pckid import PCKID as PCKID
    from daskclust.scenes import Cube as Cube
    from daskclust.scenes import open_cube as open_cube
    from daskclust.scenes import open_mosaic as open_mosaic
    from daskclust.semisupervised.label_spreading import LabelSpreading as LabelSpreading
    from daskclust.semisupervised.spectral_clustering import (
        SpectralClustering as SpectralClustering,
    )
    from daskclust.tables import open_table as open_table

load_defaults()

# Imported when first asked for: the compiled kernels, Zarr and SciPy take seconds, in which the
# command line must already answer to Ctrl-C.
_LATE = {
    "AgglomerativeClustering": "daskclust.density.agglomerative",
    "COPKMeans": "daskclust.cluster.copkmeans",
    "Cube": "daskclust.scenes",
    "DBSCAN": "daskclust.density.dbscan",
    "DPMeans": "daskclust.cluster.dpmeans",
    "GaussianMixture": "daskclust.mixture.gaussian_mixture",
    "HierarchicalKMeans": "daskclust.cluster.hierarchical_kmeans",
    "HDBSCAN": "daskclust.density.hdbscan",
    "KMeans": "daskclust.cluster.kmeans",
    "LabelSpreading": "daskclust.semisupervised.label_spreading",
    "MPCKMeans": "daskclust.cluster.mpckmeans",
    "PCKID": "daskclust.mixture.pckid",
    "PCKMeans": "daskclust.cluster.pckmeans",
    "PCSKMeans": "daskclust.cluster.pcskmeans",
    "SemiSupervisedKMeans": "daskclust.cluster.semi_supervised_kmeans",
    "SparseKMeans": "daskclust.cluster.sparsekmeans",
    "SpectralClustering": "daskclust.semisupervised.spectral_clustering",
    "deduplicate": "daskclust.cluster.deduplicate",
    "load": "daskclust.core.persistence.models",
    "match_clusters": "daskclust.explain",
    "on_iteration": "daskclust.core.engine",
    "open_cube": "daskclust.scenes",
    "open_mosaic": "daskclust.scenes",
    "open_table": "daskclust.tables",
    "pairs_from_labels": "daskclust.core.constraints",
}
__all__ = sorted(
    [
        *(*_LATE, "__version__", "datasets", "exceptions", "explain", "metrics", "onnx"),
        *("plotting", "preprocessing", "reduction", "selection", "testing"),
    ]
)

#: Folders and modules that are attributes of the package and are imported when they are used.
_PACKAGES = (
    *("app", "cluster", "colors", "config", "core", "datasets", "density", "exceptions", "explain"),
    *(
        "metrics",
        "mixture",
        "onnx",
        "plotting",
        "preprocessing",
        "reduction",
        "scenes",
        "selection",
    ),
    *("semisupervised", "tables", "testing"),
)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"daskclust.{name}")
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_LATE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
