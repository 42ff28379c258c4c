"""Hierarchies and density clusters, on prototypes that represent all rows."""
