"""Scores of clusterings, on arrays of any size.

Scores of agreement compare two label vectors by their contingency table, in one pass.  Other scores
compare rows with the means of their clusters, in O(n k).  NumPy and Dask arrays may be mixed.  No
array as long as the data reaches the client.
"""

from daskclust.metrics._agreement import (
    FEW_UNITS,
    AccuracyReport,
    accuracy_of_counts,
    accuracy_report,
    adjusted_rand_score,
    agreement_scores,
    ari_of_table,
    clustering_accuracy,
    contingency_table,
    match_labels,
    normalized_mutual_info_score,
    pairwise_f_score,
    scores_of_table,
    warn_of_few_units,
    wilson_interval,
)
from daskclust.metrics._centroid import (
    CentroidScores,
    calinski_harabasz_score,
    centroid_scores,
    davies_bouldin_score,
    silhouette_score,
    simplified_silhouette_score,
)
from daskclust.metrics._information import (
    adjusted_mutual_info_score,
    completeness_score,
    fowlkes_mallows_score,
    homogeneity_score,
    v_measure_score,
)

__all__ = [
    "FEW_UNITS",
    "AccuracyReport",
    "CentroidScores",
    "accuracy_of_counts",
    "accuracy_report",
    "adjusted_mutual_info_score",
    "adjusted_rand_score",
    "agreement_scores",
    "ari_of_table",
    "calinski_harabasz_score",
    "centroid_scores",
    "clustering_accuracy",
    "completeness_score",
    "contingency_table",
    "davies_bouldin_score",
    "fowlkes_mallows_score",
    "homogeneity_score",
    "match_labels",
    "normalized_mutual_info_score",
    "pairwise_f_score",
    "scores_of_table",
    "silhouette_score",
    "simplified_silhouette_score",
    "v_measure_score",
    "warn_of_few_units",
    "wilson_interval",
]
