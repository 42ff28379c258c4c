"""Clustering along the data: graphs between prototypes, and labels that travel along them."""
