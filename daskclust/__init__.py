"""Distributed clustering on Dask for data sets larger than memory."""

from daskclust.cluster.kmeans import KMeans
from daskclust.config import load_defaults
from daskclust.engine import on_iteration

load_defaults()

__version__ = "0.1.0"

__all__ = ["KMeans", "__version__", "on_iteration"]
