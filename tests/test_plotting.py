"""Pictures: what is drawn, not how it looks."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import daskclust
from daskclust import plotting
from daskclust.colors import drawn


@pytest.fixture
def ax():
    return plotting.new_figure().add_subplot()


def pixels(labels):
    """Return the colors that a map is drawn in."""
    places, table = drawn(np.array(labels), plotting.label_colors(4))
    return table[places]


def test_label_map_has_a_color_each_and_one_for_nothing(ax) -> None:
    (image,) = plotting.draw_label_map([[0, 1], [-1, 2]], ax).images
    assert len(np.unique(image.get_array().reshape(-1, 3), axis=0)) == 4


def test_clusters_take_the_colors_of_their_classes(ax) -> None:
    truth = np.array([[0, 0, 1], [1, 2, -1]])
    (image,) = plotting.draw_label_map([[2, 2, 0], [0, 1, -1]], ax, like=truth, n_labels=3).images
    np.testing.assert_array_equal(image.get_array(), pixels(truth))


def test_clusters_without_any_class_are_drawn(ax) -> None:
    (image,) = plotting.draw_label_map([[0, 1], [3, -1]], ax, like=[[0, -1], [-1, -1]]).images
    np.testing.assert_array_equal(image.get_array(), pixels([[0, 1], [3, -1]]))
    plotting.draw_label_map([[-1, -1]], ax, like=[[-1, -1]])


def test_bands_shade_runs_of_informative_ones(ax) -> None:
    informative = np.array([True, False, True, True])
    plotting.draw_bands(
        [0.5, 0, 0.5, 0.1], ax, wavelengths=[400, 500, 600, 700], informative=informative
    )
    spans = sorted((p.get_x(), p.get_x() + p.get_width()) for p in ax.patches[:2])
    assert spans == [(350, 450), (550, 750)]
    assert len(ax.patches) == 2 + 3
    plotting.draw_bands([0.0], ax)


def test_composite_takes_the_bands_nearest_to_red_green_and_blue() -> None:
    cube = np.random.default_rng(0).random((4, 5, 6))
    cube[0, 0] = np.nan
    picture = plotting.rgb_composite(cube, np.array([400, 470, 550, 660, 800, 900.0]))
    assert picture.shape == (4, 5, 3)
    assert picture.min() >= 0
    assert picture.max() <= 1
    red = cube[..., 3][np.isfinite(cube[..., 3])]
    assert np.corrcoef(red, picture[..., 0].ravel()[1:])[0, 1] > 0.9
    assert plotting.rgb_composite(cube, None).shape == (4, 5, 3)


def test_without_matplotlib_the_remedy_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'daskclust\[plot\]'"):
        plotting.new_figure()


def test_names_that_begin_with_an_underscore_are_in_the_legend():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    ax = figure.subplots()
    plotting.draw_spectra(np.arange(6.0).reshape(2, 3), ax, names=["_roof", "lake"])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["_roof", "lake"]


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """Return a function that saves the current figure of pyplot, and returns how much is drawn."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.close("all")
    yield lambda: _share_drawn(pyplot, tmp_path / "picture.png")
    pyplot.close("all")


def _share_drawn(pyplot, path):
    pyplot.savefig(path)
    return (pyplot.imread(path)[..., :3].min(axis=-1) < 0.99).mean()


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax: plotting.draw_label_map([[0, 1]], ax),
        lambda ax: plotting.draw_bands([0.5, 0.0], ax),
        lambda ax: plotting.draw_spectra([[0.5, 0.0]], ax),
        lambda ax: plotting.draw_sizes([3, 4], ax),
        lambda ax: plotting.draw_history([{"iteration": 1, "objective": 2.0}], ax),
        lambda ax: plotting.draw_seconds([{"iteration": 1, "seconds": 2.0}], ax),
        lambda ax: plotting.draw_confusion([[3]], ax, classes=["a"], clusters=["a"]),
        lambda ax: plotting.draw_profiles([[3.0]], ax, features=["a"], clusters=["a"]),
    ],
)
def test_functions_draw_into_axes_or_a_new_figure_and_return_the_axes(draw, ax, saved):
    assert draw(ax) is ax
    new = draw(None)
    assert new is not ax
    assert saved() > 0.01


X = np.array([[0.0, 5.0], [1.0, 6.0], [9.0, 5.5], [10.0, 5.0]])


def test_heights_of_cuts_are_drawn() -> None:
    X = np.repeat([[0.0], [50.0], [80.0]], 20, axis=0) + np.tile(np.arange(20.0), 3)[:, None]
    for model in (daskclust.HDBSCAN(n_clusters=2), daskclust.AgglomerativeClustering(2)):
        ax = plotting.draw_cuts(model.fit(X), most=6)
        cuts = model.cut_table(6)
        assert_array_equal(ax.lines[0].get_xdata(), [cut.n_clusters for cut in cuts])
        assert_array_equal(ax.lines[0].get_ydata(), [cut.height for cut in cuts])
    with pytest.raises(ValueError, match="n_clusters"):
        plotting.draw_cuts(daskclust.HDBSCAN().fit(X))
    with pytest.raises(TypeError, match="KMeans"):
        plotting.draw_cuts(daskclust.KMeans(2))


def test_pyplot_saves_a_dendrogram(saved) -> None:
    plotting.dendrogram(daskclust.AgglomerativeClustering(2).fit(X))
    assert saved() > 0.01
