"""Constrained and sparse k-means: constrained rows, one iteration, its variants."""
