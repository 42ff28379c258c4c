"""A plugin of pytest: scikit-learn's own tests of trees and density, on these classes.

Loaded by ``test_peers.py``, in a process without this project's settings.
"""

from __future__ import annotations

from typing import Any

import pytest

import daskclust

#: Arguments of scikit-learn that say how, and not what.
_HOW = ("algorithm", "copy", "n_jobs", "leaf_size", "compute_full_tree", "memory")


class DBSCAN(daskclust.DBSCAN):
    """As scikit-learn's, with the parameter p."""

    def __init__(self, eps=0.5, *, min_samples=5, metric="euclidean", checkpoint=None, p=2):
        super().__init__(eps, min_samples=min_samples, metric=metric, checkpoint=checkpoint)
        self.p = p


def dbscan(X, eps=0.5, *, min_samples=5, sample_weight=None, **how):
    known = {key: value for key, value in how.items() if key not in _HOW}
    model = DBSCAN(eps, min_samples=min_samples, **known).fit(X, sample_weight=sample_weight)
    return model.core_sample_indices_, model.labels_


def shim(kind: type) -> Any:
    def make(*args, **params):
        return kind(*args, **{key: v for key, v in params.items() if key not in _HOW})

    return make


NAMES = {
    "test_dbscan": {"dbscan": dbscan, "DBSCAN": shim(DBSCAN)},
    "test_hdbscan": {"HDBSCAN": shim(daskclust.HDBSCAN)},
    "test_hierarchical": {"AgglomerativeClustering": shim(daskclust.AgglomerativeClustering)},
}

#: What cannot apply, by the beginnings of names, and why.
LEFT_OUT = {
    "other metrics, and distances in place of rows": """
        test_dbscan_similarity test_dbscan_sparse_precomputed test_dbscan_callable
        test_dbscan_input_not_modified[ test_dbscan_metric_params test_dbscan_balltree
        test_dbscan_input_not_modified_precomputed test_dbscan_precomputed
        test_dbscan_no_warning test_hdbscan_distance_matrix test_hdbscan_sparse_distance_matrix
        test_hdbscan_callable_metric test_hdbscan_sparse_distances test_hdbscan_cosine
        test_hdbscan_precomputed test_hdbscan_error_precomputed test_hdbscan_best_balltree
        test_hdbscan_tree_invalid_metric test_hdbscan_usable_inputs[kwargs
        test_invalid_shape_precomputed test_precomputed_connectivity
        test_agglomerative_clustering_memory_mapped""",
    "sparse rows": "test_dbscan_sparse[ test_dbscan_no_core_samples test_hdbscan_sparse[",
    "infinite and missing values, which are refused": """
        test_outlier_data test_dbscan_clustering_outlier_data""",
    "negative weights, which are refused, and core rows of weight 0": "test_weighted_dbscan",
    "which algorithm finds the same": "test_hdbscan_algorithms test_compute_full_tree",
    "attributes and methods that are not there": """
        test_dbscan_clustering test_hdbscan_centers test_labelling_distinct
        test_agglomerative_clustering_distances""",
    "the argument `copy`": "test_hdbscan_default_copy_warning",
    "neighbors given as a matrix": """
        test_agglomerative_clustering[ test_identical_points test_connectivity
        test_agglomerative_clustering_with_distance_threshold[""",
    "`compute_full_tree`, in its last lines": "test_dist_threshold_invalid_parameters",
    "198 sizes; `test_peers.py` has six": "test_hdbscan_min_cluster_size",
    "functions of scikit-learn alone, and other classes": """
        test_linkage_misc test_structured_linkage_tree test_unstructured_linkage_tree
        test_height_linkage_tree test_zero_cosine_linkage_tree test_ward_agglomeration
        test_sparse_scikit_vs_scipy test_vector_scikit_single test_mst_linkage_core
        test_ward_tree_children_order test_ward_linkage_tree test_int_float_dict
        test_n_components test_affinity_passed test_agglomeration_ward
        test_labelling_thresholding""",
}


def pytest_collection_modifyitems(items):
    unused = {start for starts in LEFT_OUT.values() for start in starts.split()}
    for item in items:
        for name, value in NAMES[item.module.__name__.rpartition(".")[2]].items():
            setattr(item.module, name, value)
        for reason, starts in LEFT_OUT.items():
            found = {start for start in starts.split() if item.name.startswith(start)}
            unused -= found
            if found:
                item.add_marker(pytest.mark.skip(reason))
    if unused:
        raise pytest.UsageError(f"no tests begin with {sorted(unused)}")
