"""Hierarchies and density clusters, on prototypes that represent all rows."""

__all__ = ["agglomerative", "dbscan", "hdbscan"]
