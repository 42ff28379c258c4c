"""Gaussian mixtures for incomplete data, and kernels that are computed from them."""

__all__ = ["gaussian_mixture", "pckid"]
