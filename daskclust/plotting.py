"""Plots of label maps, spectra, weights and fits, with matplotlib (an optional dependency)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from sklearn.utils.validation import check_is_fitted

from daskclust.colors import (
    N_DISTINCT,
    drawn,
    label_colors,
    require_matplotlib,
    rgb_bands,
    stretch,
)
from daskclust.core.array_types import Array, Floats, Ints
from daskclust.metrics import match_labels

__all__ = [
    "draw_bands",
    "draw_confusion",
    "draw_cuts",
    "draw_history",
    "draw_label_map",
    "draw_profiles",
    "draw_seconds",
    "draw_selection",
    "draw_sizes",
    "draw_spectra",
    "label_colors",
    "new_figure",
    "own_axes",
    "rgb_bands",
    "rgb_composite",
    "stretch",
]


def new_figure(**options: Any) -> Any:
    """Return a matplotlib figure that needs no display.

    Parameters
    ----------
    **options
        Arguments of ``matplotlib.figure.Figure``.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(**options)
    FigureCanvasAgg(figure)
    return figure


def draw_label_map(
    label_map: ArrayLike,
    ax: Any = None,
    *,
    n_labels: int | None = None,
    like: ArrayLike | None = None,
    title: str | None = None,
) -> Any:
    """Draw a map of labels with a color per label; pixels without data (-1) are nearly black.

    Parameters
    ----------
    label_map : array of shape (y, x), int
        Labels from 0.
    ax : matplotlib Axes, optional
        Axes to draw into.  Default: axes of a new figure.
    n_labels : int, default=None
        Number of labels.  Maps drawn with the same number have the same colors.  None uses the
        largest label of the map.
    like : array of shape (y, x), int, default=None
        Another map, such as the true classes.  Each cluster gets the color of the class that it
        matches (Hungarian method).
    title : str, default=None
        Title of the plot.

    Returns
    -------
    matplotlib Axes
    """
    ax = own_axes(ax)
    labels = np.asarray(label_map)
    if like is not None:
        labels = _renumbered(labels, np.asarray(like))
    codes, table = drawn(labels, label_colors(max(int(labels.max()) + 1, n_labels or 0)))
    ax.imshow(table[codes], interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    _finish(ax, title, ())
    return ax


def _renumbered(labels: Array, truth: Array) -> Ints:
    out = np.full(labels.shape, -1, dtype=np.int64)
    valid = labels >= 0
    overlap = valid & (truth >= 0)
    numbers = np.arange(int(labels.max(initial=-1)) + 1)
    if overlap.any():
        matched = match_labels(truth[overlap].astype(np.int64), labels[overlap].astype(np.int64))
        numbers = np.concatenate(
            [matched, matched.max() + 1 + np.arange(len(numbers) - len(matched))]
        )
    out[valid] = numbers[labels[valid]]
    return out


def rgb_composite(values: Array, wavelengths: Floats | None) -> Array:
    """Return a color image of a cube, from the bands nearest to red, green and blue light.

    Parameters
    ----------
    values : ndarray of shape (y, x, band)
        Values; NaN for missing data.
    wavelengths : ndarray of shape (band,) or None
        Wavelengths in nm; None uses bands spread over the cube.

    Returns
    -------
    ndarray of shape (y, x, 3)
        Values from 0 to 1, stretched between the 2nd and 98th percentile of each band.
    """
    return stretch(values[:, :, rgb_bands(values.shape[2], wavelengths)])


def draw_bands(
    weights: ArrayLike,
    ax: Any = None,
    *,
    wavelengths: ArrayLike | None = None,
    informative: ArrayLike | None = None,
    title: str | None = None,
) -> Any:
    """Draw feature weights over wavelength.

    Parameters
    ----------
    weights : array of shape (p,)
        Weights of the features.
    ax : matplotlib Axes, optional
        Axes to draw into.  Default: axes of a new figure.
    wavelengths : array of shape (p,), default=None
        Wavelengths in nm; None uses the numbers of the features.
    informative : array of shape (p,), bool, default=None
        Features to shade, such as those that are known to separate the classes.
    title : str, default=None
        Title of the plot.

    Returns
    -------
    matplotlib Axes
    """
    ax = own_axes(ax)
    w = np.asarray(weights, dtype=float)
    x = np.arange(len(w)) if wavelengths is None else np.asarray(wavelengths, dtype=float)
    width = float(np.median(np.diff(x))) if len(x) > 1 else 1.0
    if informative is not None:
        edges = np.flatnonzero(np.diff(np.asarray(informative, bool), prepend=False, append=False))
        for i, (first, end) in enumerate(edges.reshape(-1, 2)):
            ends = x[first] - width / 2, x[end - 1] + width / 2
            label = None if i else "informative"
            ax.axvspan(*ends, color="#f2d9a6", lw=0, zorder=0, label=label)
    is_used = w > 0
    ax.bar(x[is_used], w[is_used], width=0.8 * width, color="#0072b2", label="weight")
    ax.plot(
        x[~is_used], np.zeros(int((~is_used).sum())), "|", color="#999999", ms=5, label="weight 0"
    )
    ax.set_xlim(x[0] - width, x[-1] + width)
    ax.set_ylim(0, 1.12 * max(w.max(), 1e-12))
    ax.set_xlabel("feature" if wavelengths is None else "wavelength (nm)")
    ax.set_ylabel("feature weight")
    ax.legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1, 1), fontsize="small")
    _finish(ax, title)
    return ax


def _with_breaks(bands: Array | None, x: Any, values: Any) -> tuple[Any, Any]:
    if bands is None:
        return x, values
    breaks = np.flatnonzero(np.diff(bands) > 1) + 1
    return np.insert(x, breaks, np.nan), np.insert(values, breaks, np.nan)


def draw_spectra(
    centers: ArrayLike,
    ax: Any = None,
    *,
    wavelengths: ArrayLike | None = None,
    bands: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    colors: Sequence[str] | None = None,
    spread: ArrayLike | None = None,
    title: str | None = None,
) -> Any:
    """Draw the spectrum of each cluster, in the colors of the label map.

    Parameters
    ----------
    centers : array of shape (k, p)
        Spectra.
    ax : matplotlib Axes, optional
        Axes to draw into.  Default: axes of a new figure.
    wavelengths : array of shape (p,), default=None
        Wavelengths in nm; None uses the numbers of the bands.
    bands : array of shape (p,), int, default=None
        Numbers of the bands.  Lines are interrupted at missing numbers.
    names : sequence of str, default=None
        Names of the clusters.  Default: their numbers.
    colors : sequence of str, default=None
        Colors of the clusters.  Default: the colors of the label map.
    spread : array of shape (k, p), default=None
        Standard deviations, drawn as a shaded area.
    title : str, default=None
        Title of the plot.

    Returns
    -------
    matplotlib Axes
    """
    ax = own_axes(ax)
    values = np.asarray(centers, dtype=float)
    band_numbers = None if bands is None else np.asarray(bands)
    x = np.arange(values.shape[1]) if band_numbers is None else band_numbers
    x = np.asarray(x if wavelengths is None else wavelengths, dtype=float)
    for i, color in enumerate(label_colors(len(values)) if colors is None else colors):
        positions, line = _with_breaks(band_numbers, x, values[i])
        if spread is not None:
            _, width = _with_breaks(band_numbers, x, np.asarray(spread, dtype=float)[i])
            ax.fill_between(positions, line - width, line + width, color=color, alpha=0.12, lw=0)
        ax.plot(positions, line, color=color, lw=1.6)
    ax.set_xlim(x.min(), x.max() if len(x) > 1 else x.min() + 1)
    ax.set_xlabel("band" if wavelengths is None else "wavelength (nm)")
    ax.set_ylabel("value")
    _finish(ax, title)
    if len(values) <= 2 * N_DISTINCT:
        legend = ax.legend(
            ax.lines[-len(values) :],
            [str(i) for i in range(len(values))],
            frameon=False,
            ncols=max(1, len(values) // 8 + 1),
            fontsize="small",
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
        )
        # Set names afterwards, because matplotlib omits labels that begin with "_".
        for text, name in zip(legend.get_texts(), names or (), strict=False):
            text.set_text(_escape_dollars(name))
    return ax


def draw_sizes(
    sizes: ArrayLike,
    ax: Any = None,
    *,
    names: Sequence[str] | None = None,
    title: str | None = None,
) -> Any:
    """Draw the number of rows of each cluster.

    Parameters
    ----------
    sizes : array of shape (k,), int
        Numbers of rows.
    ax : matplotlib Axes, optional
        Axes to draw into.  Default: axes of a new figure.
    names : sequence of str, default=None
        Names of the clusters.  Default: their numbers.
    title : str, default=None
        Title of the plot.

    Returns
    -------
    matplotlib Axes
    """
    ax = own_axes(ax)
    counts = np.asarray(sizes, dtype=float)
    labels = [str(i) if names is None else _escape_dollars(names[i]) for i in range(len(counts))]
    positions = np.arange(len(counts))
    ax.barh(positions, counts, color=label_colors(len(counts)), height=0.75)
    total = max(counts.sum(), 1.0)
    for i, count in enumerate(counts):
        ax.annotate(
            f" {count / total:.1%}", (count, i), va="center", fontsize="small", color="#555555"
        )
    ax.set_yticks(positions, labels)
    ax.invert_yaxis()
    ax.margins(x=0.15)
    ax.set_xlabel("pixels")
    _finish(ax, title)
    return ax


def draw_history(
    history: Sequence[Mapping[str, Any]], ax: Any = None, *, title: str | None = None
) -> Any:
    """Draw the objective of each iteration; dotted lines separate rounds of feature weights.

    Parameters
    ----------
    history : list of dict
        ``history_`` of a fitted model.
    ax : matplotlib Axes, optional
        Axes to draw into.  Default: axes of a new figure.
    title : str, default=None
        Title of the plot.

    Returns
    -------
    matplotlib Axes
    """
    ax = own_axes(ax)
    records = [record for record in history if record.get("objective") is not None]
    x = [record["iteration"] for record in records]
    rounds = [record.get("round") for record in records]
    y = np.array([record["objective"] for record in records], dtype=float)
    # Do not connect rounds, because their objectives have different units.
    starts = [i for i in range(1, len(records)) if rounds[i] != rounds[i - 1]]
    size = 3.5 if len(x) < 60 else 0
    for members in np.split(np.arange(len(records)), starts):
        ax.plot(np.asarray(x)[members], y[members], color="#0072b2", marker="o", ms=size, lw=1.5)
    for i in starts:
        ax.axvline(x[i] - 0.5, color="#bbbbbb", ls=":", lw=1)
    if len(y) and (y > 0).all() and y.max() > 50 * y.min():
        ax.set_yscale("log")
    ax.set_xlabel("iteration")
    ax.set_ylabel("objective")
    ax.xaxis.get_major_locator().set_params(integer=True)
    _finish(ax, title)
    return ax


def draw_seconds(
    history: Sequence[Mapping[str, Any]], ax: Any = None, *, title: str | None = None
) -> Any:
    """Draw the seconds of each iteration.

    Parameters
    ----------
    history : list of dict
        ``history_`` of a fitted model.
    ax : matplotlib Axes, optional
        Axes to draw into.  Default: axes of a new figure.
    title : str, default=None
        Title of the plot.

    Returns
    -------
    matplotlib Axes
    """
    ax = own_axes(ax)
    x = [record["iteration"] for record in history]
    ax.bar(x, [record.get("seconds") or 0.0 for record in history], color="#56b4e9", width=0.9)
    ax.set_xlabel("iteration")
    ax.set_ylabel("seconds")
    ax.xaxis.get_major_locator().set_params(integer=True)
    _finish(ax, title)
    return ax


def draw_confusion(
    counts: ArrayLike,
    ax: Any = None,
    *,
    classes: Sequence[Any],
    clusters: Sequence[Any],
    title: str | None = None,
) -> Any:
    """Draw how the rows of each class are distributed over the clusters.

    Parameters
    ----------
    counts : array of shape (classes, clusters), int
        Numbers of rows.
    ax : matplotlib Axes, optional
        Axes to draw into.  Default: axes of a new figure.
    classes, clusters : sequence
        Names of classes and clusters.  Clusters that have the name of a class are on the diagonal.
        Without such clusters, the order of the clusters maximizes the diagonal.
    title : str, default=None
        Title of the plot.

    Returns
    -------
    matplotlib Axes
    """
    ax = own_axes(ax)
    counts_as_floats = np.asarray(counts, dtype=float)
    names = list(clusters)
    matched = [names.index(name) for name in classes if name in names]
    if not matched:
        rows, columns = linear_sum_assignment(counts_as_floats, maximize=True)
        matched = columns[np.argsort(rows)].tolist()
    order = [*matched, *sorted(set(range(counts_as_floats.shape[1])) - set(matched))]
    fractions = counts_as_floats / np.maximum(counts_as_floats.sum(axis=1, keepdims=True), 1.0)
    fractions = fractions[:, order]
    ax.imshow(fractions, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    if fractions.size <= 400:
        for (i, j), fraction in np.ndenumerate(fractions):
            if fraction >= 0.005:
                _write_cell(ax, j, i, f"{fraction:.0%}", is_dark=fraction > 0.55)
    ax.set_xticks(range(len(order)), [_escape_dollars(clusters[j]) for j in order])
    ax.set_yticks(range(len(classes)), [_escape_dollars(name) for name in classes])
    ax.set_xlabel("cluster")
    ax.set_ylabel("class")
    ax.tick_params(length=0)
    _finish(ax, title, ax.spines)
    return ax


def draw_profiles(
    differences: ArrayLike,
    ax: Any = None,
    *,
    features: Sequence[str],
    clusters: Sequence[str],
    title: str | None = "Standardized difference from the rest",
) -> Any:
    """Draw how the features of each cluster differ from the features of the rest.

    Parameters
    ----------
    differences : array of shape (k, p)
        Standardized differences.
    ax : matplotlib Axes, optional
        Axes to draw into.  Default: axes of a new figure.
    features, clusters : sequence of str
        Names of the features and of the clusters.
    title : str, default=None
        Title of the plot.

    Returns
    -------
    matplotlib Axes
    """
    ax = own_axes(ax)
    table = np.asarray(differences, dtype=float).T
    shown = np.clip(np.nan_to_num(table, posinf=9.0, neginf=-9.0), -3.0, 3.0)
    ax.imshow(shown, cmap="RdBu_r", vmin=-3.0, vmax=3.0, aspect="auto")
    if table.size <= 400:
        for (j, i), value in np.ndenumerate(table):
            if np.isfinite(value):
                text = f"{value:.1f}".replace("-0.0", "0.0")
                _write_cell(ax, i, j, text, is_dark=abs(value) > 1.8)
    are_long = max(len(name) for name in clusters) > 4
    ax.set_xticks(
        range(len(clusters)),
        [_escape_dollars(name) for name in clusters],
        rotation=45 if are_long else 0,
        ha="right" if are_long else "center",
    )
    ax.set_yticks(range(len(features)), [_escape_dollars(name) for name in features])
    ax.set_xlabel("cluster")
    ax.tick_params(length=0)
    _finish(ax, title, ax.spines)
    return ax


def _write_cell(ax: Any, x: int, y: int, text: str, *, is_dark: bool) -> None:
    color = "white" if is_dark else "#333333"
    ax.text(x, y, text, ha="center", va="center", fontsize="small", color=color)


def _escape_dollars(name: object) -> str:
    r"""Return a name as text with escaped ``$``, which would begin a formula.

    >>> print(_escape_dollars("price in $"))
    price in \$
    """
    return str(name).replace("$", r"\$")


def _finish(ax: Any, title: str | None, hidden: Iterable[str] = ("top", "right")) -> None:
    for side in hidden:
        ax.spines[side].set_visible(False)
    if title is not None:
        ax.set_title(title, loc="left", fontsize="medium")


def own_axes(ax: Any, figsize: tuple[float, float] = (5.0, 3.2)) -> Any:
    """Return these axes, or axes of a new pyplot figure, which pyplot can save."""
    if ax is not None:
        return ax
    require_matplotlib()
    from matplotlib import pyplot

    return pyplot.subplots(figsize=figsize, layout="constrained")[1]


def draw_selection(selection: Any, ax: Any = None) -> Any:
    """Draw scores over a grid with standard errors, and mark both choices.

    Parameters
    ----------
    selection : daskclust.selection.Selection
        Scores to draw.
    ax : matplotlib Axes, optional
        Axes to draw into.  Default: axes of a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError
        If `selection` is not a selection.
    """
    if not hasattr(selection, "one_se_index"):
        raise TypeError(
            f"selection must be a Selection, got {type(selection).__name__}. Use "
            "draw_selection(selection, ax)."
        )
    ax = own_axes(ax)
    scores = selection.scores
    errors = np.nan_to_num(selection.standard_errors, nan=0.0)
    # Names have no order, so no line connects them.
    are_names = selection.grid.dtype.kind == "U"
    grid = np.arange(len(scores)) if are_names else selection.grid
    style = "." if are_names else ".-"
    ax.errorbar(grid, scores, yerr=errors, fmt=style, color=label_colors(1)[0], capsize=2.0)
    marks = [(selection.best_index, "o", "best")]
    if selection.one_se_index != selection.best_index:
        marks.append((selection.one_se_index, "s", "one standard error"))
    for (index, marker, text), color in zip(marks, label_colors(3)[1:], strict=False):
        entry = f"{text}: {selection.grid[index] if are_names else f'{grid[index]:.4g}'}"
        shape = {"ms": 9.0, "mfc": "none", "mew": 2.0, "color": color}
        ax.plot(grid[index], scores[index], marker, label=entry, **shape)
    ax.set(xlabel=selection.parameter, ylabel=selection.criterion)
    if are_names:
        ax.set_xticks(grid, selection.grid, rotation=30, ha="right")
    elif grid.dtype.kind in "iu":
        ax.locator_params(axis="x", integer=True)
    ax.legend(frameon=False)
    return ax


def draw_cuts(model: Any, ax: Any = None, *, most: int = 12) -> Any:
    """Draw the heights of the cuts of a tree into 2, 3, ... clusters.

    A large step down from k to k + 1 clusters indicates that k is a good number of clusters.

    Parameters
    ----------
    model : HDBSCAN or AgglomerativeClustering
        Fitted model.  An ``HDBSCAN`` must be fitted with ``n_clusters``.
    ax : matplotlib Axes, optional
        Axes to draw into.  Default: axes of a new figure.
    most : int, default=12
        Largest number of clusters.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError
        If `model` does not have ``cut_table``.
    ValueError
        If `model` is an ``HDBSCAN`` that was fitted without ``n_clusters``.

    Examples
    --------
    >>> import numpy as np, daskclust
    >>> X = np.concatenate([np.arange(20.0), 50 + np.arange(20.0), 80 + np.arange(20.0)])
    >>> ax = draw_cuts(daskclust.HDBSCAN(n_clusters=2).fit(X[:, None]), most=5)
    >>> ax.lines[0].get_ydata()
    array([31., 11.,  3.,  3.])
    """
    if not hasattr(model, "cut_table"):
        raise TypeError(
            f"model must be a fitted HDBSCAN or AgglomerativeClustering, got "
            f"{type(model).__name__}. Other estimators do not have a tree to cut."
        )
    cuts = model.cut_table(most)
    ax = own_axes(ax)
    ax.plot(
        [cut.n_clusters for cut in cuts],
        [cut.height for cut in cuts],
        ".-",
        color=label_colors(1)[0],
    )
    ax.set(xlabel="n_clusters", ylabel="height")
    ax.set_ylim(bottom=0.0)
    ax.locator_params(axis="x", integer=True)
    return ax


def dendrogram(model: Any, ax: Any = None, *, n_leaves: int = 30, title: str | None = None) -> Any:
    """Draw the top of the tree of an ``AgglomerativeClustering``.

    Parameters
    ----------
    model : AgglomerativeClustering
        Fitted model.
    ax : matplotlib Axes, optional
        Axes to draw into.  Default: axes of a new figure.
    n_leaves : int, default=30
        Number of branches to show; each is labeled with its number of rows.
    title : str, default=None
        Title of the plot.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError
        For an estimator without a tree of merges.
    ValueError
        For a tree with one leaf.

    Examples
    --------
    >>> import numpy as np, daskclust
    >>> model = daskclust.AgglomerativeClustering(2).fit(np.array([[0.0], [1.0], [9.0]]))
    >>> ax = dendrogram(model)
    >>> ax.get_ylabel()
    'height'
    """
    from scipy.cluster.hierarchy import dendrogram as layout

    if not hasattr(type(model), "n_leaves_"):
        raise TypeError(
            f"model must be a fitted AgglomerativeClustering, got a {type(model).__name__}."
        )
    check_is_fitted(model)
    if model.n_leaves_ < 2:
        raise ValueError("The tree must have at least two leaves, got one. Fit more distinct rows.")
    ax = own_axes(ax)
    tree = np.array(model.linkage_)
    heights = tree[:, 2]
    is_finite = np.isfinite(heights)
    # Draw forbidden merges, whose heights are infinite, above all other merges.
    heights[~is_finite] = 1.2 * heights[is_finite].max(initial=1.0)
    m, shown = len(tree) + 1, min(int(n_leaves), len(tree) + 1)
    k = model.n_clusters_
    weights = np.concatenate([model.leaf_weights_, np.zeros(m - 1)])
    colors = label_colors(k)
    shades = [colors[code] for code in model._codes]
    for i, (a, b) in enumerate(tree[:, :2].astype(int)):
        weights[m + i] = weights[a] + weights[b]
        shades.append(shades[a] if i < m - k else "#777777")
    layout_ = layout(
        tree, p=shown, truncate_mode="lastp", no_plot=True, link_color_func=shades.__getitem__
    )
    for x, y, color in zip(
        layout_["icoord"], layout_["dcoord"], layout_["color_list"], strict=True
    ):
        ax.plot(x, y, color=color, lw=1.2)
    if 1 < k < m:
        cut = (heights[m - k] + heights[m - k - 1]) / 2
        ax.axhline(cut, color="#bbbbbb", ls=":", lw=1.2)
        ax.annotate(
            f"{k} clusters",
            (0.99, cut),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="center",
            fontsize="small",
            bbox={"fc": "white", "ec": "none", "pad": 1.5},
        )
    positions = 5.0 + 10.0 * np.arange(len(layout_["leaves"]))
    ax.set_xticks(positions, [f"{weights[leaf]:g}" for leaf in layout_["leaves"]], rotation=90)
    marks = [shades[leaf] for leaf in layout_["leaves"]]
    ax.scatter(positions, np.zeros(shown), c=marks, s=12, clip_on=False, zorder=3)
    ax.tick_params(axis="x", labelsize="small", length=0)
    ax.set_xlabel("rows")
    ax.set_ylabel("height")
    ax.set_ylim(bottom=0.0)
    _finish(ax, title)
    return ax


def condensed_tree(model: Any, ax: Any = None, *, title: str | None = None) -> Any:
    """Draw the condensed tree of an ``HDBSCAN``: number of rows of each cluster by density.

    Parameters
    ----------
    model : HDBSCAN
        Fitted model.
    ax : matplotlib Axes, optional
        Axes to draw into.  Default: axes of a new figure.
    title : str, default=None
        Title of the plot.

    Returns
    -------
    matplotlib Axes
        The width of a cluster at a density (1 / distance) is its number of rows.  Selected clusters
        are in color.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    ax = own_axes(ax)
    tree = model.condensed_tree_
    m = len(model.leaf_weights_)
    finite = tree["lambda_val"][np.isfinite(tree["lambda_val"])]
    top = finite.max(initial=0.0) or 1.0
    births, sizes = {m: 0.0}, {m: float(model.leaf_weights_.sum())}
    children: dict[int, list[int]] = {}
    for line in tree[tree["child"] >= m]:
        births[int(line["child"])] = min(float(line["lambda_val"]), top)
        sizes[int(line["child"])] = float(line["child_size"])
        children.setdefault(int(line["parent"]), []).append(int(line["child"]))
    parents = {child: parent for parent, records in children.items() for child in records}
    chosen = _selected_clusters(model, tree, m)
    colors = label_colors(max(model.n_clusters_, 1))
    starts = {m: 0.0}
    for cluster in sorted(births):
        offset = starts[cluster]
        for child in sorted(children.get(cluster, []), key=lambda c: -sizes[c]):
            starts[child] = offset
            offset += sizes[child]
        records = tree[tree["parent"] == cluster]
        records = records[np.argsort(records["lambda_val"], kind="stable")]
        density = np.minimum(np.append(births[cluster], records["lambda_val"]), top)
        width = sizes[cluster] - np.append(0.0, np.cumsum(records["child_size"]))
        label, start = chosen.get(cluster, -1), starts[cluster]
        color = "#cccccc" if label < 0 else colors[label]
        ax.fill_betweenx(density, start, start + width, step="post", color=color, lw=0)
        if label >= 0 and label != chosen.get(parents.get(cluster, -1)):
            anchor = start + sizes[cluster] / 2, births[cluster]
            ax.annotate(str(label), anchor, ha="center", va="bottom", fontsize="small")
    ax.set_ylim(top, 0.0)
    ax.set_xlabel("rows")
    ax.set_ylabel("density (1 / distance)")
    _finish(ax, title)
    return ax


def _selected_clusters(model: Any, tree: Any, m: int) -> dict[int, int]:
    """Return the labels of the selected clusters of a condensed tree and their descendants."""
    points = tree[tree["child"] < m]
    labels: dict[int, int] = {}
    parents = {int(c): int(p) for c, p in zip(tree["child"], tree["parent"], strict=True)}
    births = {int(c): b for c, b in zip(tree["child"], tree["lambda_val"], strict=True)}
    for child, cluster in zip(points["child"].tolist(), points["parent"].tolist(), strict=True):
        label = int(model._labels[child])
        # Move up while the parent is within the selected cluster.
        while label >= 0 and cluster not in labels:
            labels[cluster] = label
            if cluster == m or not births[cluster] > model._births[label]:
                break
            cluster = parents[cluster]
    return labels
