"""K-means, constrained k-means, DP-means, hierarchies of centers, and `deduplicate`."""

__all__ = [
    "copkmeans",
    "deduplicate",
    "dpmeans",
    "hierarchical_kmeans",
    "kmeans",
    "mpckmeans",
    "pckmeans",
    "pcskmeans",
    "semi_supervised_kmeans",
    "sparsekmeans",
]
