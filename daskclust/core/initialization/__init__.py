"""Initialization of centers, and the suggested price of a cluster for DP-means."""
