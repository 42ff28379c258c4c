"""Choice of the number of clusters, of sparsity and of estimators; suggestion of rows to label.

All fits of a grid share their passes over the data.  Reference data are generated on the workers.
"""

from daskclust.selection._by_pairs import choose_by_pairs
from daskclust.selection._grid import Selection
from daskclust.selection._labels import ExpectedGain, expected_gain, suggest_labels
from daskclust.selection._n_clusters import choose_n_clusters, suggest_delta
from daskclust.selection._pairs import suggest_pairs
from daskclust.selection._sparsity import choose_sparsity
from daskclust.selection._stability import Stability, stability

__all__ = [
    "ExpectedGain",
    "Selection",
    "Stability",
    "choose_by_pairs",
    "choose_n_clusters",
    "choose_sparsity",
    "expected_gain",
    "stability",
    "suggest_delta",
    "suggest_labels",
    "suggest_pairs",
]
