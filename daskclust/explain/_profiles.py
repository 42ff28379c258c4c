"""Profiles of clusters: what sets each apart, and its most typical rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np

from daskclust.core.array_types import Floats, Ints
from daskclust.core.engine import Carry
from daskclust.core.estimator.validation import as_percent, dominant_feature
from daskclust.core.kernels.moments import merge_moments
from daskclust.exceptions import MemoryPlanError
from daskclust.explain._labeled_rows import NOISE, NONE, Labeled, open_labeled
from daskclust.explain.profile_kernels import choose_bins, histogram_quantiles, rank_areas
from daskclust.explain.profile_reductions import (
    LABEL_HISTOGRAMS,
    LABEL_SAMPLE,
    Histograms,
    HistogramsRequest,
    LabelSample,
    LabelSampleRequest,
)
from daskclust.plotting import draw_profiles, draw_spectra, label_colors, own_axes
from daskclust.scenes.questions import questions_of

#: Quantiles of each feature.
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
#: Bins of a feature, cells of the histograms of all, and the most of these.
_BINS, _CELLS, _MOST_CELLS = (64, 4096), 2**20, 2**26
#: Rows from which fewer bins do, but these at least; cells of a feature that stay in a near cache.
_MANY_ROWS, _FEWER_BINS, _NEAR_CELLS = 2**17, 384, 2**13
#: Drawn rows by which a bin is chosen.
_ROWS_OF_BIN = 8
#: Rows that are drawn, at most and at least, values of these at most, and rows of each cluster.
_ROWS, _FEWEST_ROWS, _VALUES, _EACH = 16384, 4096, 2**22, 64
#: Nearest rows, and characters that are shown of a cell.
_NEAREST, _SHOWN = 5, 160
#: Attributes of profiles that are arrays by cluster.
_OF_CLUSTERS = (
    "labels sizes shares missing means deviations rest_means lows highs quantiles differences aucs "
    "auc_errors nearest_rows nearest_distances"
).split()
#: Seed of the sample: profiles are the same each time.
_SEED = 20


def sample_labeled(data: Labeled, n_rows: int = _ROWS, each: int = _EACH) -> LabelSample:
    """Find the moments of each label, and draw rows, some of each label; one pass."""
    count = min(n_rows, max(_VALUES // len(data.features), 2048))
    share = min(1.0, count / max(data.rows.n_rows, 1))
    request = LabelSampleRequest(len(data.features), _SEED, share, each, data.ignored, data.of_rows)
    carry = Carry()
    found = data.reduce(LABEL_SAMPLE, request, carry)
    if not len(found.labels):
        raise ValueError("No row has a label, so there is nothing to explain; expected some.")
    data.check_range(found.rows["x"][found.rows["key"] <= share])
    sample: LabelSample = found._replace(held=carry)
    return sample


def _n_bins(k: int, p: int, n_rows: int) -> int:
    most = _BINS[1]
    if n_rows > _MANY_ROWS:
        most = min(most, max(_FEWER_BINS, _NEAR_CELLS // k))
    return int(np.clip(_CELLS // (k * p), _BINS[0], most))


def _rows_of_bins(data: Labeled) -> int:
    """Rows by which bins are chosen, where it is known of how many clusters; else all there are."""
    if not data.n_clusters:
        return _ROWS
    n_bins = _n_bins(data.n_clusters, len(data.features), data.rows.n_rows)
    return int(np.clip(_ROWS_OF_BIN * n_bins, _FEWEST_ROWS, _ROWS))


def _rest(moments: Floats) -> Floats:
    """Moments of all rows but those of each label, by merging, not by subtraction."""
    k = moments.shape[1]
    ahead, behind = np.zeros_like(moments), np.zeros_like(moments)
    for c in range(1, k):
        ahead[:, c] = merge_moments(ahead[:, c - 1], moments[:, c - 1])
        behind[:, k - 1 - c] = merge_moments(behind[:, k - c], moments[:, k - c])
    return merge_moments(ahead, behind)


def _deviations(moments: Floats) -> Floats:
    weight, _, squares = moments
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(squares / weight)


def _difference(own: Floats, rest: Floats) -> Floats:
    """Difference of the means over the root of the mean of both variances."""
    width = np.sqrt((_deviations(own) ** 2 + _deviations(rest) ** 2) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        out = np.where(own[1] == rest[1], 0.0, (own[1] - rest[1]) / width)
    return np.where((own[0] > 0) & (rest[0] > 0), out, np.nan)


def _short(cell: Any) -> str:
    r"""Return a cell of a table as one line.

    >>> _short("a\nb"), len(_short("x" * 999))
    ('a b', 160)
    """
    text = " ".join(str(cell).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]} ..."


@dataclass(frozen=True, repr=False)
class Profiles:
    """What each cluster is like, beside the rest of the rows.

    Attributes
    ----------
    labels : ndarray of shape (k,), int64
        Labels that occur, sorted.
    names : list of str
        What they are called.
    features : list of str
        Names of the features; ``column = level`` of a category, whose mean is a share.
    sizes, shares : ndarray of shape (k,), float64
        Rows of each cluster, and their share of all rows.
    missing : ndarray of shape (k, p)
        Missing values.
    means, deviations : ndarray of shape (k, p)
        Of the values that are there; deviations with divisor n.
    rest_means : ndarray of shape (k, p)
        Of all other rows.
    lows, highs : ndarray of shape (k, p)
    quantiles : ndarray of shape (k, p, 5)
        5, 25, 50, 75 and 95 %.
    differences : ndarray of shape (k, p)
        Mean less the mean of the rest, over the root of the mean of both variances.
    aucs, auc_errors : ndarray of shape (k, p)
        Probability that a row of the cluster has a larger value than a row of the rest (ties
        count half), and the largest error that the histograms allow.
    nearest_rows : ndarray of shape (k, 5), int64
        Rows nearest to the center, nearest first; -1 for none.
    nearest_distances : ndarray of shape (k, 5), float64
    pixels : ndarray of shape (k, 5, 2), int64, or None
        Line and column of these rows, where X is a cube.
    coordinates : ndarray of shape (k, 5, 2), float64, or None
        Their x and y in the coordinate system of the cube.
    wavelengths : ndarray of shape (p,), or None
    feature_weights : ndarray of shape (p,), or None
        Of a sparse model.
    values_are : str or None
        What the values of a cube are, with their unit, as the fit has scaled them.
    classes : list of (str or None), or None
        Class of each cluster, of models whose clusters are of classes.
    advice : str
        Names the feature that has nearly all of the variance, where distances of rows in other
        units would give other clusters; else empty.
    are_vectors : bool
        Whether the features are the values of vectors, whose single values mean nothing.
    nearest_cells : pandas.DataFrame or None
        Further columns of the nearest rows, cluster by cluster, nearest first.
    """

    labels: Ints
    names: list[str]
    features: list[str]
    sizes: Floats
    shares: Floats
    missing: Floats
    means: Floats
    deviations: Floats
    rest_means: Floats
    lows: Floats
    highs: Floats
    quantiles: Floats
    differences: Floats
    aucs: Floats
    auc_errors: Floats
    nearest_rows: Ints
    nearest_distances: Floats
    pixels: Ints | None
    coordinates: Floats | None
    wavelengths: Floats | None
    feature_weights: Floats | None
    values_are: str | None = None
    classes: list[str | None] | None = None
    advice: str = ""
    are_vectors: bool = False
    nearest_cells: Any = None

    def __repr__(self) -> str:
        return f"Profiles of {self.n_clusters} clusters in {len(self.features)} features"

    def to_frame(self) -> Any:
        """Return one line for each cluster and feature.

        Returns
        -------
        pandas.DataFrame
            Indexed by ``cluster`` (its label, or its name where labels are text) and
            ``feature``; columns ``size``, ``share``, ``missing``, ``mean``, ``std``, ``min``,
            ``q05`` ... ``q95``, ``max``, ``rest_mean``, ``difference``, ``auc``, ``auc_error``,
            and ``weight`` of sparse models.

        Examples
        --------
        >>> import numpy as np
        >>> from daskclust.explain import profiles
        >>> X = np.array([[0.0], [2.0], [9.0], [11.0]])
        >>> frame = profiles(None, X, [0, 0, 1, 1]).to_frame()
        >>> frame.loc[(1, "x0"), ["size", "mean", "auc"]].tolist()
        [2.0, 10.0, 1.0]
        """
        import pandas

        k, p = self.means.shape
        keys = self.names if self._are_named else self.labels.tolist()
        index = pandas.MultiIndex.from_product([keys, self.features], names=["cluster", "feature"])
        columns = {
            "size": np.repeat(self.sizes, p),
            "share": np.repeat(self.shares, p),
            "missing": self.missing.ravel(),
            "mean": self.means.ravel(),
            "std": self.deviations.ravel(),
            "min": self.lows.ravel(),
            **{
                f"q{round(100 * q):02d}": self.quantiles[..., i].ravel()
                for i, q in enumerate(QUANTILES)
            },
            "max": self.highs.ravel(),
            "rest_mean": self.rest_means.ravel(),
            "difference": self.differences.ravel(),
            "auc": self.aucs.ravel(),
            "auc_error": self.auc_errors.ravel(),
        }
        if self.feature_weights is not None:
            columns["weight"] = np.tile(self.feature_weights, k)
        return pandas.DataFrame(columns, index=index)

    @property
    def _are_named(self) -> bool:
        pairs = zip(self.names, self.labels.tolist(), strict=True)
        return any(name != str(label) for name, label in pairs if (name, label) != (NOISE, NONE))

    @property
    def n_clusters(self) -> int:
        """How many clusters occur; noise is none."""
        return len(self.labels) - ((NOISE, NONE) in zip(self.names, self.labels, strict=True))

    def nearest(self) -> Any:
        """Return the rows nearest to the center of each cluster.

        Returns
        -------
        pandas.DataFrame
            Columns ``cluster``, ``row``, ``distance``; of a cube also ``line``, ``column``,
            ``x`` and ``y``; and those of `nearest_cells`.
        """
        import pandas

        keys = np.array(self.names if self._are_named else self.labels.tolist())
        there = self.nearest_rows >= 0
        columns: dict[str, Any] = {
            "cluster": np.repeat(keys, there.sum(axis=1)),
            "row": self.nearest_rows[there],
            "distance": self.nearest_distances[there],
        }
        if self.pixels is not None and self.coordinates is not None:
            columns["line"], columns["column"] = self.pixels[there].T
            columns["x"], columns["y"] = self.coordinates[there].T
        found = pandas.DataFrame(columns)
        return found if self.nearest_cells is None else found.join(self.nearest_cells, rsuffix="_")

    def distinguishing(self, label: Any, count: int = 5) -> list[str]:
        """Name the features that set a cluster apart, those of the most telling AUC first.

        Parameters
        ----------
        label : int or str
            Label or name of the cluster.
        count : int, default=5

        Returns
        -------
        list of str

        Raises
        ------
        ValueError
            For a cluster that does not occur.
        """
        return [self.features[j] for j in self._ranked(self._place(label))[:count]]

    def _place(self, label: Any) -> int:
        if label in self.names:
            return self.names.index(label)
        found: Ints = np.flatnonzero(self.labels == label)
        if isinstance(label, str) or not len(found):
            raise ValueError(f"label={label!r} does not occur; expected one of {self.names}.")
        return int(found[0])

    def _ranked(self, at: int) -> list[int]:
        telling = np.nan_to_num(np.abs(self.aucs[at] - 0.5), nan=-1.0).round(6)
        apart = np.nan_to_num(np.abs(self.differences[at]), nan=-1.0)
        return [int(j) for j in np.lexsort((-apart, -telling))]

    def describe(self, label: Any, count: int = 3) -> str:
        """Say in one line what sets a cluster apart.

        Parameters
        ----------
        label : int or str
            Label or name of the cluster.
        count : int, default=3
            Features that are named.
        """
        at = self._place(label)
        if len(self.labels) == 1:
            return "the only cluster"
        told = []
        for j in self._ranked(at)[:count]:
            if np.isnan(self.aucs[at, j]):  # neither high nor low: one side has no values
                continue
            level = "high" if self.aucs[at, j] > 0.5 else "low"
            told.append(
                f"{self.features[j]} {level} ({self.means[at, j]:.4g}, rest "
                f"{self.rest_means[at, j]:.4g}; AUC {self.aucs[at, j]:.3f})"
            )
        return "; ".join(told) or "no feature has values both here and in the rest"

    def of(self, places: Sequence[int]) -> Profiles:
        """Return the profiles of some clusters, by their places, in another order."""
        at = list(places)
        there = self.nearest_rows >= 0
        starts = np.append(0, np.cumsum(there.sum(axis=1)))
        cells = self.nearest_cells
        if cells is not None:
            kept = [np.arange(starts[i], starts[i + 1]) for i in at]
            cells = cells.iloc[[*np.concatenate([[], *kept]).astype(int)]].reset_index(drop=True)
        return replace(
            self,
            names=[self.names[i] for i in at],
            classes=None if self.classes is None else [self.classes[i] for i in at],
            pixels=None if self.pixels is None else self.pixels[at],
            coordinates=None if self.coordinates is None else self.coordinates[at],
            nearest_cells=cells,
            **{name: getattr(self, name)[at] for name in _OF_CLUSTERS},
        )

    def plot(self, ax: Any = None, colors: Sequence[str] | None = None) -> Any:
        """Draw the profiles: spectra with their spread for scenes, else a heat map.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Of a new figure when omitted.
        colors : sequence of k str, optional
            Of the clusters.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ImportError
            Without matplotlib.
        """
        width = 9.0 if self.are_spectra else max(6.0, 2.5 + 0.5 * min(len(self.labels), 24))
        ax = own_axes(ax, (width, 4.2 if self.are_spectra else 1.4 + 0.26 * self._n_shown))
        if self.are_spectra:
            draw_spectra(
                ax,
                self.means,
                wavelengths=self.wavelengths,
                names=self.names,
                colors=label_colors(len(self.labels)) if colors is None else colors,
                spread=self.deviations,
                title="Mean and deviation of each cluster",
            )
            ax.set_ylabel(self.values_are or "value")
            return ax
        best = np.nan_to_num(np.abs(self.aucs - 0.5), nan=0.0).max(axis=0)
        shown = np.sort(np.argsort(-best, kind="stable")[: self._n_shown])
        draw_profiles(
            ax,
            self.differences[:, shown],
            features=[self.features[j] for j in shown],
            clusters=self.names,
        )
        return ax

    @property
    def are_spectra(self) -> bool:
        """Whether the features are ascending wavelengths, so that means are drawn as spectra."""
        return self.wavelengths is not None and bool((np.diff(self.wavelengths) > 0).all())

    @property
    def _n_shown(self) -> int:
        return min(len(self.features), 40)

    @property
    def worst_auc_error(self) -> str:
        """The largest of ``auc_errors`` to one digit, which is a bound: it is not rounded down."""
        worst = float(np.nan_to_num(self.auc_errors).max(initial=0.0))
        shown = f"{worst:.1g}"
        if float(shown) < worst:
            shown = f"{float(shown) + 10.0 ** np.floor(np.log10(worst)):.1g}"
        return shown

    def _repr_html_(self) -> str:
        right, left = ' style="text-align:right"', " style='text-align:left'"
        lines = []
        for at, label in enumerate(self.labels):
            there = np.flatnonzero(self.nearest_rows[at] >= 0)
            near = [self.spot(at, int(i)) for i in there]
            lines.append(
                f"<tr><td>{escape(self.names[at])}</td><td{right}>{self.sizes[at]:,.0f}</td>"
                f"<td{right}>{self.shares[at]:.1%}</td>"
                + ("" if self.are_vectors else f"<td{left}>{escape(self.describe(label))}</td>")
                + f"<td{left}>"
                + ("<br>" if self.nearest_cells is not None else ", ").join(map(escape, near))
                + "</td></tr>"
            )
        things = "Rows" if self.pixels is None else "Pixels"
        spots = "Nearest rows" if self.pixels is None else "Nearest pixels (line, column)"
        apart = () if self.are_vectors else ("What sets it apart",)
        head = "".join(f"<th>{title}</th>" for title in ("Cluster", things, "Share", *apart, spots))
        worst = self.worst_auc_error
        note = f"AUC one against the rest, to within {worst}." if float(worst) else "AUC are exact."
        note = "" if self.are_vectors else note
        if self.values_are not in (None, "value"):
            note += f" Values: {escape(str(self.values_are))}."
        note += f" {escape(self.told_apart)}" if self.told_apart else ""
        advice = f"<p><strong>Advice:</strong> {escape(self.advice)}</p>" if self.advice else ""
        return (
            f"{advice}<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
            f"<p>{note}</p>"
        )

    @property
    def told_apart(self) -> str:
        """Name the classes of several clusters, in a sentence; nothing where there are none."""
        counts = Counter(name for name in self.classes or () if name is not None)
        several = [f"{name} has {count}" for name, count in counts.items() if count > 1]
        return f"Clusters of one class are told apart: {', '.join(several)}." if several else ""

    def spot(self, at: int, i: int) -> str:
        """Return the row or pixel that is i-th nearest to a cluster, by its place, as text."""
        if self.pixels is None:
            row = str(self.nearest_rows[at, i])
            if self.nearest_cells is None:
                return row
            first = int((self.nearest_rows[:at] >= 0).sum())
            cells = self.nearest_cells.iloc[first + i].tolist()
            return ": ".join([row, " | ".join(_short(cell) for cell in cells)])
        line, column = self.pixels[at, i]
        return f"({line}, {column})"


def profiles(model: Any, X: Any, y: Any = None) -> Profiles:
    """Find what each cluster is like, and what sets it apart from the rest.

    Parameters
    ----------
    model : fitted estimator, or None
        Whose ``predict`` gives the clusters.
    X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube of shape (n, p)
        NaN where a value is missing, if the model takes that.  A table may have columns
        beside those of the fit; columns of categories (of text in pandas) are told by level.
    y : array-like or dask.array.Array of shape (n,), optional
        Labels that are explained in place of those of the model, such as a truth: whole
        numbers (for NumPy also text), -1 for rows that are left out.

    Returns
    -------
    Profiles

    Raises
    ------
    ValueError
        For infinity, text columns of a Dask table whose levels are not known, and where there
        is neither a model nor y.
    MemoryPlanError
        For more than 2**20 clusters times features.

    Warns
    -----
    DaskclustWarning
        If most rows lie outside the range of the data that the model was fitted on.

    Notes
    -----
    *Passes*: 2; the first finds moments and draws 16 384 rows (fewer of many features, and for the
    few bins of many clusters) and 64 of each cluster, the second counts histograms with the
    quantiles of the sample as edges: up to 4096 bins, from 2**17 rows on 2**13 of all clusters but
    at least 384 of each.  Labels of a lazy X are predicted in both, unless X fits into memory.  *To
    the client*: the sample and the histograms, of 2**20 cells or 64 bins a feature and cluster.

    Means, deviations and ranges are exact.  Quantiles and AUC come from the histograms: exact
    for features of few values, else AUC to within ``auc_errors``, half the share of pairs of a
    row of the cluster and one of the rest that fall into one bin.

    Rows are near a center as the model sees it (metric, weights of features); of models without
    centers, and of `y`, near the mean with features in units of their deviation.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> from daskclust.explain import profiles
    >>> X = np.array([[0.0, 5.0], [1.0, 5.0], [9.0, 5.0], [10.0, 5.0]])
    >>> model = daskclust.KMeans(n_clusters=2, random_state=0).fit(X)
    >>> found = profiles(model, X)
    >>> found.sizes, found.distinguishing(0, 1)
    (array([2., 2.]), ['x0'])
    """
    data = open_labeled(model, X, y)
    return profiles_of(data, sample_labeled(data, _rows_of_bins(data)))


def profiles_of(data: Labeled, sample: LabelSample) -> Profiles:
    """Make the second pass, and put together what both found."""
    k, p = sample.missing.shape
    if k * p * _BINS[0] > _MOST_CELLS:
        raise MemoryPlanError(
            f"Profiles of {k} clusters in {p} features take histograms of more than "
            f"{_MOST_CELLS * 8 / 2**20:.0f} MiB on each thread. Explain coarser clusters: give "
            "labels as y."
        )
    n_bins = _n_bins(k, p, data.rows.n_rows)
    # Rows of a label are sorted by key.
    rows, labels = sample.rows, sample.rows["label"]
    uniform = rows["key"] <= min(sample.share, _ROWS_OF_BIN * n_bins / data.rows.n_rows)
    kept = uniform | (np.arange(len(rows)) - np.searchsorted(labels, labels) < _EACH)
    rows, uniform = rows[kept], uniform[kept]
    bins = choose_bins(rows["x"].astype(data.rows.dtype), rows["label"], uniform, n_bins)
    total = sample.moments[:, 0]
    for c in range(1, k):
        total = merge_moments(total, sample.moments[:, c])
    means = np.where(sample.moments[0] > 0, sample.moments[1], np.nan)
    place = data.place(sample.labels, means, _deviations(total))
    weight = float(sample.weights.sum())
    request = HistogramsRequest(sample.labels, bins, place, _NEAREST, weight, data.of_rows)
    found: Histograms = data.reduce(LABEL_HISTOGRAMS, request, sample.held)
    areas, errors = rank_areas(found.counts, bins.single())
    quantiles = histogram_quantiles(found.counts, bins, sample.bounds, QUANTILES)
    rest = _rest(sample.moments)
    nearest = found.nearest
    pixels, coordinates = _pixels(data.cube, nearest["row"])
    lows, highs = np.where(sample.moments[0] > 0, sample.bounds, np.nan)
    return Profiles(
        labels=sample.labels,
        names=[data.name(int(label)) for label in sample.labels],
        features=data.features,
        sizes=sample.weights,
        shares=sample.weights / sample.weights.sum(),
        missing=sample.missing,
        means=means,
        deviations=_deviations(sample.moments),
        rest_means=np.where(rest[0] > 0, rest[1], np.nan),
        lows=lows,
        highs=highs,
        quantiles=quantiles,
        differences=_difference(sample.moments, rest),
        aucs=areas,
        auc_errors=errors,
        nearest_rows=nearest["row"],
        nearest_distances=nearest["key"],
        pixels=pixels,
        coordinates=coordinates,
        wavelengths=data.wavelengths,
        feature_weights=_weights(data.model, p),
        values_are=data.values_are,
        classes=data.classes_of(sample.labels),
        advice=_advice(data, total, sample.bounds),
    )


def _advice(data: Labeled, moments: Floats, bounds: Floats) -> str:
    """Say which feature decides distances alone, from moments (3, p) and bounds (2, k, p)."""
    if not getattr(data.model, "_depends_on_units", False):
        return ""
    varies = bounds[0].min(axis=0) < bounds[1].max(axis=0)
    found = dominant_feature(_deviations(moments) ** 2, varies)
    if found is None:
        return ""
    at, share = found
    return (
        f"{data.features[at]} has {as_percent(share)} of the variance, so that it decides the "
        "clusters almost alone. Scale the features first, unless all are in one unit."
    )


def _weights(model: Any, p: int) -> Floats | None:
    found = getattr(model, "feature_weights_", getattr(model, "metric_weights_", None))
    return None if found is None or len(found) != p else np.asarray(found, dtype=np.float64)


def _pixels(cube: Any, rows: Ints) -> tuple[Ints | None, Floats | None]:
    if cube is None:
        return None, None
    pixels = np.full((*rows.shape, 2), -1, np.int64)
    coordinates = np.full((*rows.shape, 2), np.nan)
    there = rows >= 0
    found = questions_of(cube, rows[there])
    pixels[there] = np.column_stack([found.lines, found.columns])
    coordinates[there] = np.column_stack([found.x, found.y])
    return pixels, coordinates
