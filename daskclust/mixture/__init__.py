"""Mixture models and kernels made of them, for incomplete data."""

__all__ = ["gaussian_mixture", "pckid"]
