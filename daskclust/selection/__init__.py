"""Choosing how many clusters, how sparse, and what a cluster may cost.

All fits over a grid advance together and share each pass over the data; reference
data are made row by row where they are needed, and neither stored nor read.
"""

from daskclust.selection._delta import suggest_delta
from daskclust.selection._gain import ExpectedGain, expected_gain
from daskclust.selection._labels import suggest_labels
from daskclust.selection._n_clusters import choose_n_clusters
from daskclust.selection._pairs import suggest_pairs
from daskclust.selection._result import Selection
from daskclust.selection._sparsity import choose_sparsity

__all__ = [
    "ExpectedGain",
    "Selection",
    "choose_n_clusters",
    "choose_sparsity",
    "expected_gain",
    "suggest_delta",
    "suggest_labels",
    "suggest_pairs",
]
