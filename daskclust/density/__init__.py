"""Hierarchies and density clusters, on prototypes that sum up all rows."""
