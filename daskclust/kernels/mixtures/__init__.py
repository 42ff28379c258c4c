"""Kernels of Gaussian mixtures on rows with missing values."""
