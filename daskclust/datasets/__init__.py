"""Synthetic data with a known truth, of any size, independent of chunks."""

from daskclust.datasets._blobs import make_gaussian_mixture, make_sparse_blobs
from daskclust.datasets._hyperspectral import HyperspectralCube, make_hyperspectral_cube
from daskclust.datasets._missing import remove_values

__all__ = [
    "HyperspectralCube",
    "make_gaussian_mixture",
    "make_hyperspectral_cube",
    "make_sparse_blobs",
    "remove_values",
]
