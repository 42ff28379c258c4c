"""Synthetic data with a known truth, of any size, independent of chunks; and a real scene."""

from daskclust.datasets._blobs import make_gaussian_mixture, make_sparse_blobs
from daskclust.datasets._hyperspectral import HyperspectralCube, make_hyperspectral_cube
from daskclust.datasets._missing import remove_values
from daskclust.datasets._slovenia import SlovenianScenes, load_slovenia

__all__ = [
    "HyperspectralCube",
    "SlovenianScenes",
    "load_slovenia",
    "make_gaussian_mixture",
    "make_hyperspectral_cube",
    "make_sparse_blobs",
    "remove_values",
]
