"""Mixture models and kernels made of them, for incomplete data."""
