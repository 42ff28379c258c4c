"""Pictures of label maps, spectra, weights and fits, with matplotlib (an optional dependency)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment

from daskclust._types import Array, Bools, Floats, Ints
from daskclust.colors import N_DISTINCT, NODATA_COLOR, label_colors, rgb_bands, stretch
from daskclust.metrics import match_labels

__all__ = [
    "draw_bands",
    "draw_confusion",
    "draw_history",
    "draw_label_map",
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


def _require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib, which is not installed. Use: pip install 'daskclust[plot]'"
        ) from error


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
        Without matplotlib.
    """
    _require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(**options)
    FigureCanvasAgg(figure)
    return figure


def draw_label_map(
    ax: Any,
    label_map: ArrayLike,
    *,
    n_labels: int | None = None,
    like: ArrayLike | None = None,
    title: str | None = None,
) -> Any:
    """Draw a map of labels, one color a label; -1 (no data) is nearly black.

    Parameters
    ----------
    ax : matplotlib Axes
    label_map : array of shape (y, x), int
        Labels from 0.
    n_labels : int, default=None
        Number of labels; None takes that of the map.  Maps drawn with the same number
        have the same colors.
    like : array of shape (y, x), int, default=None
        Another map, such as the true classes.  Each cluster gets the color of the class
        that it matches best (Hungarian method), because cluster numbers are arbitrary.
    title : str, default=None

    Returns
    -------
    matplotlib image
    """
    _require_matplotlib()
    from matplotlib.colors import BoundaryNorm, ListedColormap

    labels = np.asarray(label_map)
    if like is not None:
        labels = _renumbered(labels, np.asarray(like))
    count = max(1, int(labels.max()) + 1, n_labels or 0)
    colors = [NODATA_COLOR, *label_colors(count)]
    image = ax.imshow(
        labels,
        cmap=ListedColormap(colors),
        norm=BoundaryNorm(np.arange(-1.5, count), count + 1),
        interpolation="nearest",
    )
    _frame(ax, title)
    return image


def _renumbered(labels: Array, truth: Array) -> Ints:
    """Give the clusters of a map the numbers of the classes they cover; -1 stays."""
    out = np.full(labels.shape, -1, dtype=np.int64)
    valid = labels >= 0
    both = valid & (truth >= 0)
    numbers = np.arange(int(labels.max(initial=-1)) + 1)
    if both.any():
        found = match_labels(truth[both].astype(np.int64), labels[both].astype(np.int64))
        numbers = np.concatenate([found, found.max() + 1 + np.arange(len(numbers) - len(found))])
    out[valid] = numbers[labels[valid]]
    return out


def rgb_composite(values: Array, wavelengths: Floats | None) -> Array:
    """Return a color picture of a cube: the bands nearest to red, green and blue light.

    Parameters
    ----------
    values : ndarray of shape (y, x, band)
        NaN where there are no data.
    wavelengths : ndarray of shape (band,) or None
        In nm; None takes bands spread over the cube.

    Returns
    -------
    ndarray of shape (y, x, 3)
        From 0 to 1, each band stretched between its 2nd and 98th percentile.
    """
    return stretch(values[:, :, rgb_bands(values.shape[2], wavelengths)])


def draw_bands(
    ax: Any,
    weights: ArrayLike,
    *,
    wavelengths: ArrayLike | None = None,
    informative: ArrayLike | None = None,
    title: str | None = None,
) -> None:
    """Draw feature weights over wavelength.

    Parameters
    ----------
    ax : matplotlib Axes
    weights : array of shape (p,)
    wavelengths : array of shape (p,), default=None
        In nm; None numbers the features.
    informative : array of shape (p,), bool, default=None
        Features to shade, such as those that are known to separate the classes.
    title : str, default=None
    """
    w = np.asarray(weights, dtype=float)
    x = np.arange(len(w)) if wavelengths is None else np.asarray(wavelengths, dtype=float)
    width = float(np.median(np.diff(x))) if len(x) > 1 else 1.0
    if informative is not None:
        for i, (first, last) in enumerate(_runs(np.asarray(informative, dtype=bool))):
            ax.axvspan(
                x[first] - width / 2,
                x[last] + width / 2,
                color="#f2d9a6",
                lw=0,
                zorder=0,
                label="informative" if i == 0 else None,
            )
    used = w > 0
    ax.bar(x[used], w[used], width=0.8 * width, color="#0072b2", label="weight")
    ax.plot(x[~used], np.zeros(int((~used).sum())), "|", color="#999999", ms=5, label="weight 0")
    ax.set_xlim(x[0] - width, x[-1] + width)
    ax.set_ylim(0, 1.12 * max(w.max(), 1e-12))
    ax.set_xlabel("feature" if wavelengths is None else "wavelength (nm)")
    ax.set_ylabel("feature weight")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1, 1), fontsize="small")
    if title is not None:
        ax.set_title(title, loc="left", fontsize="medium")


def _with_gaps(bands: Array | None, x: Any, values: Any) -> tuple[Any, Any]:
    """Break a line where bands are left out."""
    if bands is None:
        return x, values
    at = np.flatnonzero(np.diff(bands) > 1) + 1
    return np.insert(x, at, np.nan), np.insert(values, at, np.nan)


def draw_spectra(
    ax: Any,
    centers: ArrayLike,
    *,
    wavelengths: ArrayLike | None = None,
    bands: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    colors: Sequence[str] | None = None,
    spread: ArrayLike | None = None,
    title: str | None = None,
) -> None:
    """Draw the spectrum of each cluster, in the colors of the label map.

    Parameters
    ----------
    ax : matplotlib Axes
    centers : array of shape (k, p)
    wavelengths : array of shape (p,), default=None
        In nm; None numbers the bands.
    bands : array of shape (p,), int, default=None
        Numbers of the bands kept.  Lines are interrupted where bands were dropped.
    names : sequence of str, default=None
        Names of the clusters; their numbers by default.
    colors : sequence of str, default=None
        Colors of the clusters; those of the label map by default.
    spread : array of shape (k, p), default=None
        Standard deviations, drawn as a shaded area.
    title : str, default=None
    """
    values = np.asarray(centers, dtype=float)
    kept = None if bands is None else np.asarray(bands)
    x = np.arange(values.shape[1]) if kept is None else kept
    x = np.asarray(x if wavelengths is None else wavelengths, dtype=float)
    for i, color in enumerate(label_colors(len(values)) if colors is None else colors):
        name = str(i) if names is None else _plain(names[i])
        at, line = _with_gaps(kept, x, values[i])
        if spread is not None:
            _, width = _with_gaps(kept, x, np.asarray(spread, dtype=float)[i])
            ax.fill_between(at, line - width, line + width, color=color, alpha=0.12, lw=0)
        ax.plot(at, line, color=color, lw=1.6, label=name)
    ax.set_xlim(x.min(), x.max() if len(x) > 1 else x.min() + 1)
    ax.set_xlabel("band" if wavelengths is None else "wavelength (nm)")
    ax.set_ylabel("value")
    _open_frame(ax, title)
    if len(values) <= 2 * N_DISTINCT:
        ax.legend(
            frameon=False,
            ncols=max(1, len(values) // 8 + 1),
            fontsize="small",
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
        )


def draw_sizes(
    ax: Any, sizes: ArrayLike, *, names: Sequence[str] | None = None, title: str | None = None
) -> None:
    """Draw the number of rows of each cluster.

    Parameters
    ----------
    ax : matplotlib Axes
    sizes : array of shape (k,), int
    names : sequence of str, default=None
    title : str, default=None
    """
    counts = np.asarray(sizes, dtype=float)
    labels = [str(i) if names is None else _plain(names[i]) for i in range(len(counts))]
    at = np.arange(len(counts))
    ax.barh(at, counts, color=label_colors(len(counts)), height=0.75)
    total = max(counts.sum(), 1.0)
    for i, count in enumerate(counts):
        ax.annotate(
            f" {count / total:.1%}", (count, i), va="center", fontsize="small", color="#555555"
        )
    ax.set_yticks(at, labels)
    ax.invert_yaxis()
    ax.margins(x=0.15)
    ax.set_xlabel("pixels")
    _open_frame(ax, title)


def draw_history(
    ax: Any, history: Sequence[Mapping[str, Any]], *, title: str | None = None
) -> None:
    """Draw the objective of each iteration; dotted lines mark new rounds of feature weights.

    Parameters
    ----------
    ax : matplotlib Axes
    history : list of dict
        ``history_`` of a fitted model.
    title : str, default=None
    """
    records = [record for record in history if record.get("objective") is not None]
    x = [record["iteration"] for record in records]
    rounds = [record.get("round") for record in records]
    y = np.array([record["objective"] for record in records], dtype=float)
    # Objectives of different rounds are in different units: no line joins them.
    starts = [i for i in range(1, len(records)) if rounds[i] != rounds[i - 1]]
    for part in np.split(np.arange(len(records)), starts):
        ax.plot(
            np.asarray(x)[part],
            y[part],
            color="#0072b2",
            marker="o",
            ms=3.5 if len(x) < 60 else 0,
            lw=1.5,
        )
    for i in starts:
        ax.axvline(x[i] - 0.5, color="#bbbbbb", ls=":", lw=1)
    if len(y) and (y > 0).all() and y.max() > 50 * y.min():
        ax.set_yscale("log")
    ax.set_xlabel("iteration")
    ax.set_ylabel("objective")
    ax.xaxis.get_major_locator().set_params(integer=True)
    _open_frame(ax, title)


def draw_seconds(
    ax: Any, history: Sequence[Mapping[str, Any]], *, title: str | None = None
) -> None:
    """Draw how long each iteration took.

    Parameters
    ----------
    ax : matplotlib Axes
    history : list of dict
        ``history_`` of a fitted model.
    title : str, default=None
    """
    x = [record["iteration"] for record in history]
    ax.bar(x, [record.get("seconds") or 0.0 for record in history], color="#56b4e9", width=0.9)
    ax.set_xlabel("iteration")
    ax.set_ylabel("seconds")
    ax.xaxis.get_major_locator().set_params(integer=True)
    _open_frame(ax, title)


def draw_confusion(
    ax: Any,
    counts: ArrayLike,
    *,
    classes: Sequence[Any],
    clusters: Sequence[Any],
    title: str | None = None,
) -> None:
    """Draw how the rows of each class are distributed over the clusters.

    Parameters
    ----------
    ax : matplotlib Axes
    counts : array of shape (classes, clusters), int
    classes, clusters : sequence
        Names.  Clusters are ordered such that the diagonal is large.
    title : str, default=None
    """
    table = np.asarray(counts, dtype=float)
    matched_rows, matched = linear_sum_assignment(table, maximize=True)
    order = [*matched[np.argsort(matched_rows)], *sorted(set(range(table.shape[1])) - set(matched))]
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1.0)
    shares = shares[:, order]
    ax.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    if shares.size <= 400:
        for (i, j), share in np.ndenumerate(shares):
            if share >= 0.005:
                ax.text(
                    j,
                    i,
                    f"{share:.0%}",
                    ha="center",
                    va="center",
                    fontsize="small",
                    color="white" if share > 0.55 else "#333333",
                )
    ax.set_xticks(range(len(order)), [_plain(clusters[j]) for j in order])
    ax.set_yticks(range(len(classes)), [_plain(name) for name in classes])
    ax.set_xlabel("cluster")
    ax.set_ylabel("class")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    if title is not None:
        ax.set_title(title, loc="left", fontsize="medium")


def _plain(name: object) -> str:
    r"""Return a name as text for matplotlib, which else reads ``$`` as mathematics.

    Examples
    --------
    >>> print(_plain("price in $"))
    price in \$
    """
    return str(name).replace("$", r"\$")


def _runs(mask: Bools) -> list[tuple[int, int]]:
    """First and last index of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
    return [(int(a), int(b) - 1) for a, b in edges.reshape(-1, 2)]


def _open_frame(ax: Any, title: str | None) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    if title is not None:
        ax.set_title(title, loc="left", fontsize="medium")


def _frame(ax: Any, title: str | None) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    if title is not None:
        ax.set_title(title, loc="left", fontsize="medium")


def own_axes(ax: Any) -> Any:
    """Return these axes; without any, those of a new figure for one curve."""
    if ax is not None:
        return ax
    return new_figure(figsize=(5.0, 3.2), layout="constrained").add_subplot()


def draw_selection(ax: Any, selection: Any) -> None:
    """Draw scores over a grid with standard errors, the best and the one-standard-error value.

    Parameters
    ----------
    ax : matplotlib Axes
    selection : daskclust.selection.Selection
    """
    grid, scores = selection.grid, selection.scores
    errors = np.nan_to_num(selection.standard_errors, nan=0.0)
    ax.errorbar(grid, scores, yerr=errors, fmt=".-", color=label_colors(1)[0], capsize=2.0)
    marks = [(selection.best_index, "o", "best")]
    if selection.one_se_index != selection.best_index:
        marks.append((selection.one_se_index, "s", "one standard error"))
    for (index, marker, text), color in zip(marks, label_colors(3)[1:], strict=False):
        ax.plot(
            grid[index],
            scores[index],
            marker,
            ms=9.0,
            mfc="none",
            mew=2.0,
            color=color,
            label=f"{text}: {grid[index]:.4g}",
        )
    ax.set(xlabel=selection.parameter, ylabel=selection.criterion)
    if np.asarray(grid).dtype.kind in "iu":
        ax.locator_params(axis="x", integer=True)
    ax.legend(frameon=False)
