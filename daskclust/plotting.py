"""Pictures of label maps and feature weights, with matplotlib (an optional dependency)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daskclust.metrics import match_labels

__all__ = ["draw_bands", "draw_label_map", "new_figure", "rgb_composite"]

# Okabe & Ito's colours, told apart with any colour vision; then a few more.
_COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#f0e442",
    "#332288",
    "#999933",
    "#882255",
    "#44aa99",
    "#aaaaaa",
)
_NODATA = "#1a1a1a"
# Red, green and blue light in nm: what a composite shows if there are wavelengths.
_RGB = (660.0, 550.0, 470.0)


def _require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib, which is not installed. Use: pip install 'daskclust[plot]'"
        ) from error


def new_figure(**options: Any) -> Any:
    """Return a figure that belongs to no window system.

    Parameters
    ----------
    **options
        Of ``matplotlib.figure.Figure``.

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
    """Draw a map of labels, one colour a label; -1 (no data) is nearly black.

    Parameters
    ----------
    ax : matplotlib Axes
    label_map : array of shape (y, x), int
        Labels from 0; more than twelve share colours.
    n_labels : int, default=None
        Number of labels, for the same colours in several maps; None takes the map's.
    like : array of shape (y, x), int, default=None
        Another map, such as the truth: each cluster takes the colour of the class
        that it covers best (Hungarian method), since numbers of clusters mean nothing.
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
    colours = [_NODATA, *(_COLOURS[i % len(_COLOURS)] for i in range(count))]
    image = ax.imshow(
        labels,
        cmap=ListedColormap(colours),
        norm=BoundaryNorm(np.arange(-1.5, count), count + 1),
        interpolation="nearest",
    )
    _frame(ax, title)
    return image


def _renumbered(labels: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.int64]:
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


def rgb_composite(values: NDArray[Any], wavelengths: NDArray[np.float64] | None) -> NDArray[Any]:
    """Colour picture of a cube: the bands nearest to red, green and blue light.

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
    if wavelengths is None:
        bands = np.linspace(values.shape[2] - 1, 0, 3).astype(int)
    else:
        bands = np.array([np.abs(wavelengths - light).argmin() for light in _RGB])
    picture = values[:, :, bands].astype(float)
    low, high = np.nanpercentile(picture, [2, 98], axis=(0, 1))
    picture = np.clip((picture - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
    return np.nan_to_num(picture, nan=0.1)


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
        Features to shade: those known to tell classes apart.
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


def _runs(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and last index of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
    return [(int(a), int(b) - 1) for a, b in edges.reshape(-1, 2)]


def _frame(ax: Any, title: str | None) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    if title is not None:
        ax.set_title(title, loc="left", fontsize="medium")
