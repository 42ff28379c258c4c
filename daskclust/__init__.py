"""Distributed clustering on Dask for data sets larger than memory."""

from daskclust.cluster.kmeans import KMeans
from daskclust.cluster.pcskmeans import PCSKMeans
from daskclust.config import load_defaults
from daskclust.constraints import pairs_from_labels
from daskclust.engine import on_iteration

load_defaults()

__version__ = "0.1.0"

__all__ = ["KMeans", "PCSKMeans", "__version__", "on_iteration", "pairs_from_labels"]
