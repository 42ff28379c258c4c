"""Values of maps: classes by their codes, clusters by their numbers, text by its place."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import daskclust
from daskclust.app.report.summary import legend_of
from daskclust.colors import class_colors
from daskclust.core.persistence.mixin import name_classes

pytestmark = pytest.mark.usefixtures("few_trees")

X = np.array([[0.0], [1.0], [20.0], [21.0], [50.0], [51.0]])


def test_clusters_are_numbers() -> None:
    model = daskclust.KMeans(3, random_state=0).fit(X)
    legend = legend_of(model)
    assert legend.codes == (0, 1, 2)
    assert legend.names == ("cluster_0", "cluster_1", "cluster_2")
    assert legend.is_of_clusters
    assert legend.encode(model.labels_) is model.labels_


def test_labels_do_not_name_the_clusters_of_constrained_estimators() -> None:
    model = daskclust.PCKMeans(3, random_state=0).fit(X, ([0, 2, 4], [5, 6, 7]))
    legend = legend_of(model, {5: "sea"})
    assert legend.codes == (0, 1, 2)
    assert legend.is_of_clusters


def test_clusters_of_no_class_follow_the_classes() -> None:
    model = daskclust.SemiSupervisedKMeans(3, random_state=0).fit(X, ([0, 2], [9, 4]))
    name_classes(model, {4: "coast", 9: "ice"}, {9: "#123456"})
    legend = legend_of(model, {4: "sea"})
    assert legend.codes == (4, 9, 10)
    assert legend.names == ("sea", "ice", "cluster_10")
    assert legend.color_by_code == {**class_colors([4, 10]), 9: "#123456"}
    assert legend.encode(model.labels_).tolist() == [9, 9, 4, 4, 10, 10]
    lazy = legend.encode(da.from_array(np.asarray(model.labels_), chunks=4))
    assert_array_equal(lazy.compute(), [9, 9, 4, 4, 10, 10])


def test_clusters_of_one_class_are_one_value() -> None:
    model = daskclust.SemiSupervisedKMeans(4, clusters_per_class=2, random_state=0)
    model.fit(X, ([0, 1, 2, 3, 4, 5], [3, 3, 3, 3, 8, 8]))
    legend = legend_of(model)
    assert legend.codes == (3, 8)
    assert legend.encode(model.labels_).tolist() == [3, 3, 3, 3, 8, 8]


@pytest.mark.parametrize("names", [["ice", "sea"], [7, 2]])
def test_classes_of_a_classifier(names: list[str] | list[int]) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(60, 2)), 9 + rng.normal(size=(60, 2))])
    model = daskclust.LabelSpreading(n_prototypes=6, random_state=0).fit(x, ([0, 60], names))
    legend = legend_of(model)
    assert len(legend.encode(model.labels_)) == 120
    if isinstance(names[0], str):
        assert (legend.codes, legend.names) == ((0, 1), ("ice", "sea"))
        assert np.unique(legend.encode(model.labels_)).tolist() == [0, 1]
    else:
        assert (legend.codes, legend.names) == ((2, 7), ("class_2", "class_7"))
        assert legend.encode(model.labels_) is model.labels_


def test_no_class_at_all() -> None:
    nothing = np.array([], dtype=np.int64)
    model = daskclust.SemiSupervisedKMeans(3, random_state=0)
    model.fit(np.arange(12.0).reshape(6, 2), (nothing, nothing))
    legend = legend_of(model)
    assert legend.codes == (0, 1, 2)
    assert legend.names == ("cluster_0", "cluster_1", "cluster_2")
    assert legend.encode(model.labels_).tolist() == np.asarray(model.labels_).tolist()
