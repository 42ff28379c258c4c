"""Label spreading on a graph that is kept: the same as the estimator, where the sample is all."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

from daskclust import LabelSpreading, open_cube
from daskclust.app.labeling.incremental import SampleGraph, _Nearest
from daskclust.semisupervised.active_learning import open_for_questions
from daskclust.semisupervised.predict import sharpened


def _scene(height: int = 30, width: int = 24) -> np.ndarray:
    """Four fields with noise, of five bands."""
    rng = np.random.default_rng(5)
    fields = (np.arange(height)[:, None] >= height // 2) * 2 + (np.arange(width) >= width // 2)
    centers = rng.random((4, 5)) * 4 + 1
    return centers[fields] + rng.normal(0, 0.4, (height, width, 5))


ROWS = np.array([3, 20, 100, 350, 380, 500, 700, 719])
CODES = np.array([0, 1, 0, 1, 2, 3, 3, 3])


@pytest.mark.parametrize("chunks", [(30, 24, 5), (11, 7, 5)])
def test_the_posterior_is_that_of_the_estimator(chunks):
    image = _scene()
    cube = open_cube(da.from_array(image, chunks=chunks), dims=("y", "x", "band"))
    graph = SampleGraph.of(open_for_questions(cube, None), 3)
    x = image.reshape(-1, 5)
    # Twice: the graph is not worn by use.
    graph.spread(x[ROWS[:2]], CODES[:2], 2)
    posterior = graph.spread(x[ROWS], CODES, 4)
    few = np.full(image.shape[:2], -1)
    few.flat[ROWS] = CODES
    model = LabelSpreading(random_state=3, classifier=None).fit(cube, cube.rows_of(few))
    wanted = model.predict_proba(x)
    np.testing.assert_allclose(posterior.by_graph(x), wanted, rtol=0, atol=1e-9)
    # Labels that are left out make the probabilities more certain, and keep their order.
    exponent = posterior.weights[0]
    np.testing.assert_allclose(posterior(x), sharpened(wanted, exponent), rtol=0, atol=1e-6)


def test_labels_of_equal_pixels_and_of_one_class():
    image = _scene()
    cube = open_cube(image, dims=("y", "x", "band"))
    graph = SampleGraph.of(open_for_questions(cube, None), 0)
    x = image.reshape(-1, 5)
    only = graph.spread(x[[4, 4]], np.array([0, 0]), 1)(x)
    assert only.shape == (720, 1)
    assert (only == 1).all()
    both = graph.spread(x[[4, 4, 700]], np.array([0, 1, 1]), 2)(x)
    assert np.isfinite(both).all()


@pytest.mark.parametrize("count", [1, 2])
def test_further_nodes_among_the_nearest_are_those_of_a_search_among_all(count):
    rng = np.random.default_rng(1)
    z, nodes, further = (rng.integers(0, 6, (n, 2)).astype(float) for n in (200, 7, 4))
    found = _Nearest.of(z, nodes, count).with_further(_Nearest.of(z, further, count), len(nodes))
    whole = _Nearest.of(z, np.concatenate([nodes, further]), count)
    np.testing.assert_array_equal(found, whole.nodes)
