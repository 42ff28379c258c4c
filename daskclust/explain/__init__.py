"""Explanations of clusters: profiles, rules, and changes since the fit."""

from daskclust.explain._drift import Drift, drift, match_clusters
from daskclust.explain._profiles import Profiles, profiles
from daskclust.explain._rules import Rules, explained, rules
from daskclust.explain._seams import TileDrift, tile_drift

__all__ = [
    "Drift",
    "Profiles",
    "Rules",
    "TileDrift",
    "drift",
    "explained",
    "match_clusters",
    "profiles",
    "rules",
    "tile_drift",
]
