"""Profiles of clusters: distinguishing features, statistics and typical rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.engine import Carry
from daskclust.core.estimator.validation import as_percent, dominant_feature
from daskclust.core.kernels.moments import merge_moments
from daskclust.exceptions import MemoryPlanError
from daskclust.explain._labeled_rows import NO_LABEL, NOISE, Labeled, open_labeled
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

#: Quantiles computed for each feature.
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
#: Minimum and maximum number of bins per feature; target and maximum number of all histogram cells.
_BINS, _CELLS, _MAX_CELLS = (64, 4096), 2**20, 2**26
#: For data with more than `_MANY_ROWS` rows, whose histograms should fit a cache: minimum number of
#: bins, and number of cells per feature that fit.
_MANY_ROWS, _MIN_MANY_ROWS_BINS, _CACHED_CELLS = 2**17, 384, 2**13
#: Number of sampled rows per bin.
_ROWS_PER_BIN = 8
#: Maximum and minimum number of sampled rows, maximum number of sampled values, and sampled rows
#: per cluster.
_ROWS, _MIN_ROWS, _VALUES, _MIN_ROWS_PER_CLUSTER = 16384, 4096, 2**22, 64
#: Number of nearest rows per cluster, and maximum number of characters of a table cell.
_NEAREST, _MAX_CHARACTERS = 5, 160
#: Attributes that are arrays with one entry per cluster.
_ARRAYS_BY_CLUSTER = (
    "labels sizes shares missing means deviations rest_means lows highs quantiles differences aucs "
    "auc_errors nearest_rows nearest_distances"
).split()
#: Fixed seed of the sample, so that profiles are reproducible.
_SEED = 20


def sample_labeled(
    data: Labeled, n_rows: int = _ROWS, n_per_label: int = _MIN_ROWS_PER_CLUSTER
) -> LabelSample:
    """Compute the moments of each label, and draw rows of each label, in one pass."""
    count = min(n_rows, max(_VALUES // len(data.features), 2048))
    share = min(1.0, count / max(data.rows.n_rows, 1))
    request = LabelSampleRequest(
        len(data.features), _SEED, share, n_per_label, data.ignored, data.row_labels
    )
    carry = Carry()
    result = data.reduce(LABEL_SAMPLE, request, carry)
    if not len(result.labels):
        raise ValueError("At least one row must have a label, got none.")
    data.check_range(result.rows["x"][result.rows["key"] <= share])
    sample: LabelSample = result._replace(label_cache=carry)
    return sample


def _n_bins(k: int, p: int, n_rows: int) -> int:
    max_bins = _BINS[1]
    if n_rows > _MANY_ROWS:
        max_bins = min(max_bins, max(_MIN_MANY_ROWS_BINS, _CACHED_CELLS // k))
    return int(np.clip(_CELLS // (k * p), _BINS[0], max_bins))


def _rows_of_bins(data: Labeled) -> int:
    if not data.n_clusters:
        return _ROWS
    n_bins = _n_bins(data.n_clusters, len(data.features), data.rows.n_rows)
    return int(np.clip(_ROWS_PER_BIN * n_bins, _MIN_ROWS, _ROWS))


def _rest(moments: Floats) -> Floats:
    """Return the moments of all other rows, for each label.

    Moments are merged from both ends, because differences of sums would be inexact.
    """
    k = moments.shape[1]
    before, after = np.zeros_like(moments), np.zeros_like(moments)
    for c in range(1, k):
        before[:, c] = merge_moments(before[:, c - 1], moments[:, c - 1])
        after[:, k - 1 - c] = merge_moments(after[:, k - c], moments[:, k - c])
    return merge_moments(before, after)


def _deviations(moments: Floats) -> Floats:
    weight, _, squares = moments
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(squares / weight)


def _difference(cluster: Floats, rest: Floats) -> Floats:
    """Return the difference of the means, divided by the root of the mean of the variances."""
    width = np.sqrt((_deviations(cluster) ** 2 + _deviations(rest) ** 2) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        out = np.where(cluster[1] == rest[1], 0.0, (cluster[1] - rest[1]) / width)
    return np.where((cluster[0] > 0) & (rest[0] > 0), out, np.nan)


def _short(cell: Any) -> str:
    r"""Return the text of a table cell in one line, shortened to 160 characters.

    >>> _short("a\nb"), len(_short("x" * 999))
    ('a b', 160)
    """
    text = " ".join(str(cell).split())
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 4]} ..."


@dataclass(frozen=True, repr=False)
class Profiles:
    """Description of each cluster, compared with the rest of the rows.

    Attributes
    ----------
    labels : ndarray of shape (k,), int64
        Labels that occur, sorted.
    names : list of str
        Names of the clusters.
    features : list of str
        Names of the features.  A category has a feature ``column = level`` for each level, whose
        mean is the fraction of rows with this level.
    sizes, shares : ndarray of shape (k,), float64
        Number of rows of each cluster, and their fraction of all rows.
    missing : ndarray of shape (k, p)
        Number of missing values.
    means, deviations : ndarray of shape (k, p)
        Means and standard deviations (divisor n) of the observed values.
    rest_means : ndarray of shape (k, p)
        Means of the rows of all other clusters.
    lows, highs : ndarray of shape (k, p)
        Minimum and maximum.
    quantiles : ndarray of shape (k, p, 5)
        Quantiles at 5, 25, 50, 75 and 95 %.
    differences : ndarray of shape (k, p)
        Mean minus the mean of the rest, divided by the root of the mean of the two variances.  The
        rest are the rows of all other clusters.
    aucs, auc_errors : ndarray of shape (k, p)
        Probability that a row of the cluster has a larger value than a row of the rest (a tie
        counts half), and the maximum error of this probability due to the bins.
    nearest_rows : ndarray of shape (k, 5), int64
        Numbers of the rows nearest to the center, nearest first; -1 if there are fewer rows.
    nearest_distances : ndarray of shape (k, 5), float64
        Distances of these rows.
    pixels : ndarray of shape (k, 5, 2), int64, or None
        Line and column of these rows, if X is a cube.
    coordinates : ndarray of shape (k, 5, 2), float64, or None
        x and y of these rows, in the coordinate system of the cube.
    wavelengths : ndarray of shape (p,), or None
        Wavelengths of the features of a cube.
    feature_weights : ndarray of shape (p,), or None
        Feature weights of a sparse model.
    values_are : str or None
        Name and unit of the values of a cube, as scaled for the fit.
    classes : list of (str or None), or None
        Class of each cluster, for models with classes.
    advice : str
        Advice to scale the features if one feature has nearly all the variance, else empty.
    are_vectors : bool
        True if the rows are vectors, such as embeddings, whose single values have no meaning.
    nearest_cells : pandas.DataFrame or None
        Additional columns of the nearest rows, ordered by cluster and distance.
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
        """Return a table with a line for each cluster and feature.

        Returns
        -------
        pandas.DataFrame
            Indexed by ``cluster`` (its label, or its name if labels are text) and
            ``feature``; columns ``size``, ``share``, ``missing``, ``mean``, ``std``, ``min``,
            ``q05`` ... ``q95``, ``max``, ``rest_mean``, ``difference``, ``auc``, ``auc_error``,
            and ``weight`` for sparse models.

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
        return any(
            name != str(label) for name, label in pairs if (name, label) != (NOISE, NO_LABEL)
        )

    @property
    def n_clusters(self) -> int:
        """Number of clusters that occur, without noise."""
        return len(self.labels) - ((NOISE, NO_LABEL) in zip(self.names, self.labels, strict=True))

    def nearest(self, label: Any = None, *, text: Any = None) -> Any:
        """Return the rows nearest to the center of each cluster, or of one cluster.

        Parameters
        ----------
        label : int or str, optional
            Label or name of a cluster.  Default: all clusters.
        text : array-like, Series or Dask array of length n, optional
            Text (or other values) of the rows of X, in their order.

        Returns
        -------
        pandas.DataFrame
            Columns ``cluster``, ``row``, ``distance``; for a cube also ``line``, ``column``,
            ``x`` and ``y``; the columns of `nearest_cells`; and ``text``, if passed.

        Raises
        ------
        ValueError
            For a cluster that does not occur, and if ``text`` has fewer values than rows.

        Examples
        --------
        >>> import numpy as np, daskclust
        >>> X = np.array([[0.0], [0.1], [0.3], [5.0]])
        >>> model = daskclust.KMeans(2, random_state=0).fit(X)
        >>> profiles = daskclust.explain.profiles(model, X)
        >>> profiles.nearest(0, text=["one", "two", "three", "four"])["text"].tolist()
        ['two', 'one', 'three']
        """
        import pandas

        keys = np.array(self.names if self._are_named else self.labels.tolist())
        present = self.nearest_rows >= 0
        if label is not None:
            present[np.arange(len(keys)) != self._position(label)] = False
        columns: dict[str, Any] = {
            "cluster": np.repeat(keys, present.sum(axis=1)),
            "row": self.nearest_rows[present],
            "distance": self.nearest_distances[present],
        }
        if self.pixels is not None and self.coordinates is not None:
            columns["line"], columns["column"] = self.pixels[present].T
            columns["x"], columns["y"] = self.coordinates[present].T
        frame = pandas.DataFrame(columns)
        if self.nearest_cells is not None:
            cells = self.nearest_cells[present[self.nearest_rows >= 0]].reset_index(drop=True)
            frame = frame.join(cells, rsuffix="_")
        if text is not None:
            frame["text"] = _values_at(text, columns["row"])
        return frame

    def distinguishing(self, label: Any, count: int = 5) -> list[str]:
        """Return the features that distinguish a cluster best, ordered by AUC.

        Parameters
        ----------
        label : int or str
            Label or name of the cluster.
        count : int, default=5
            Number of features.

        Returns
        -------
        list of str
            Names of the features.

        Raises
        ------
        ValueError
            For a cluster that does not occur.
        """
        return [self.features[j] for j in self._ranked(self._position(label))[:count]]

    def _position(self, label: Any) -> int:
        if label in self.names:
            return self.names.index(label)
        matches: Ints = np.flatnonzero(self.labels == label)
        if isinstance(label, str) or not len(matches):
            raise ValueError(f"label must be in {self.names}, got {label!r}.")
        return int(matches[0])

    def _ranked(self, position: int) -> list[int]:
        auc_ranks = np.nan_to_num(np.abs(self.aucs[position] - 0.5), nan=-1.0).round(6)
        gaps = np.nan_to_num(np.abs(self.differences[position]), nan=-1.0)
        return [int(j) for j in np.lexsort((-gaps, -auc_ranks))]

    def describe(self, label: Any, count: int = 3) -> str:
        """Describe in one line how a cluster differs from the rest.

        Parameters
        ----------
        label : int or str
            Label or name of the cluster.
        count : int, default=3
            Number of features to mention.

        Returns
        -------
        str
        """
        position = self._position(label)
        if len(self.labels) == 1:
            return "the only cluster"
        phrases = []
        for j in self._ranked(position)[:count]:
            if np.isnan(self.aucs[position, j]):  # the cluster or the rest has no values
                continue
            level = "high" if self.aucs[position, j] > 0.5 else "low"
            phrases.append(
                f"{self.features[j]} {level} ({self.means[position, j]:.4g}, rest "
                f"{self.rest_means[position, j]:.4g}; AUC {self.aucs[position, j]:.3f})"
            )
        return "; ".join(phrases) or "no feature has values both here and in the rest"

    def of(self, indices: Sequence[int]) -> Profiles:
        """Return the profiles of the clusters at these indices, in this order."""
        positions = list(indices)
        present = self.nearest_rows >= 0
        starts = np.append(0, np.cumsum(present.sum(axis=1)))
        cells = self.nearest_cells
        if cells is not None:
            chosen = [np.arange(starts[i], starts[i + 1]) for i in positions]
            cells = cells.iloc[[*np.concatenate([[], *chosen]).astype(int)]].reset_index(drop=True)
        return replace(
            self,
            names=[self.names[i] for i in positions],
            classes=None if self.classes is None else [self.classes[i] for i in positions],
            pixels=None if self.pixels is None else self.pixels[positions],
            coordinates=None if self.coordinates is None else self.coordinates[positions],
            nearest_cells=cells,
            **{name: getattr(self, name)[positions] for name in _ARRAYS_BY_CLUSTER},
        )

    def plot(self, ax: Any = None, colors: Sequence[str] | None = None) -> Any:
        """Draw mean spectra with deviations for scenes, and a heat map for other data.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw into.  Default: axes of a new figure.
        colors : sequence of k str, optional
            Colors of the clusters.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        width = 9.0 if self.are_spectra else max(6.0, 2.5 + 0.5 * min(len(self.labels), 24))
        ax = own_axes(ax, (width, 4.2 if self.are_spectra else 1.4 + 0.26 * self._n_shown))
        if self.are_spectra:
            draw_spectra(
                self.means,
                ax,
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
            self.differences[:, shown],
            ax,
            features=[self.features[j] for j in shown],
            clusters=self.names,
        )
        return ax

    @property
    def are_spectra(self) -> bool:
        """True if the features are ascending wavelengths, so that means are spectra."""
        return self.wavelengths is not None and bool((np.diff(self.wavelengths) > 0).all())

    @property
    def _n_shown(self) -> int:
        return min(len(self.features), 40)

    @property
    def worst_auc_error(self) -> str:
        """Largest of ``auc_errors``, rounded up to one digit."""
        worst = float(np.nan_to_num(self.auc_errors).max(initial=0.0))
        shown = f"{worst:.1g}"
        if float(shown) < worst:
            shown = f"{float(shown) + 10.0 ** np.floor(np.log10(worst)):.1g}"
        return shown

    def _repr_html_(self) -> str:
        align_right, align_left = ' style="text-align:right"', " style='text-align:left'"
        lines = []
        for position, label in enumerate(self.labels):
            present = np.flatnonzero(self.nearest_rows[position] >= 0)
            nearest_texts = [self.spot(position, int(i)) for i in present]
            lines.append(
                f"<tr><td>{escape(self.names[position])}</td><td{align_right}>{self.sizes[position]:,.0f}</td>"
                f"<td{align_right}>{self.shares[position]:.1%}</td>"
                + (
                    ""
                    if self.are_vectors
                    else f"<td{align_left}>{escape(self.describe(label))}</td>"
                )
                + f"<td{align_left}>"
                + ("<br>" if self.nearest_cells is not None else ", ").join(
                    map(escape, nearest_texts)
                )
                + "</td></tr>"
            )
        things = "Rows" if self.pixels is None else "Pixels"
        spots = "Nearest rows" if self.pixels is None else "Nearest pixels (line, column)"
        features_title = () if self.are_vectors else ("Distinguishing features",)
        head = "".join(
            f"<th>{title}</th>" for title in ("Cluster", things, "Share", *features_title, spots)
        )
        worst = self.worst_auc_error
        note = f"AUC against the rest, error at most {worst}." if float(worst) else "AUC are exact."
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
        """Sentence that names the classes with several clusters, or an empty text."""
        counts = Counter(name for name in self.classes or () if name is not None)
        several = [f"{name} has {count}" for name, count in counts.items() if count > 1]
        return (
            f"Clusters of one class are shown separately: {', '.join(several)}." if several else ""
        )

    def spot(self, position: int, i: int) -> str:
        """Return a text for the i-th nearest row or pixel of a cluster."""
        if self.pixels is None:
            row = str(self.nearest_rows[position, i])
            if self.nearest_cells is None:
                return row
            first = int((self.nearest_rows[:position] >= 0).sum())
            cells = self.nearest_cells.iloc[first + i].tolist()
            return ": ".join([row, " | ".join(_short(cell) for cell in cells)])
        line, column = self.pixels[position, i]
        return f"({line}, {column})"


def profiles(model: Any, X: Any, y: Any = None) -> Profiles:
    """Describe each cluster: statistics, distinguishing features and typical rows.

    Use it to find out what the rows of a cluster, or of a class, have in common.

    Parameters
    ----------
    model : fitted estimator, or None
        Model whose ``predict`` returns the clusters.
    X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube of shape (n, p)
        Rows; NaN for missing values if the model accepts them.  A table may have more columns than
        the model uses.  Each level of a category (or of a pandas text column) is a feature.
    y : array-like or dask.array.Array of shape (n,), optional
        Labels that replace the predictions of the model, such as true classes: whole numbers (for
        NumPy also text), -1 for rows to ignore.

    Returns
    -------
    Profiles

    Raises
    ------
    ValueError
        For infinity, for text columns of a Dask table with unknown levels, and without model and y.
    MemoryPlanError
        For more than 2**20 clusters times features.

    Warns
    -----
    DaskclustWarning
        If most rows are outside the range of the data of the fit.

    Notes
    -----
    *Passes*: 2.  The first pass computes moments, and draws up to 16 384 rows and at least 64 rows
    of each cluster.  The second pass computes histograms, whose edges are quantiles of the sample.
    Both passes predict the labels of a lazy X, unless X fits into memory.  *To the client*: the
    sample, and the histograms of about 2**20 cells in total.

    *Bins*: 64 to 4096 per feature.  For more than 2**17 rows, the maximum is 2**13 divided by the
    number of clusters, but at least 384.

    Means, deviations and ranges are exact.  Quantiles and AUC are computed from the histograms.
    They are exact for features with few different values.  For other features the error of an AUC
    is at most ``auc_errors``: half the fraction of pairs that are in one bin, among the pairs of a
    row of the cluster and a row of the rest.

    Distances to centers use the metric and the feature weights of the model.  For models without
    centers, and with `y`, they are distances to the means, and features are divided by their
    standard deviations.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> from daskclust.explain import profiles
    >>> X = np.array([[0.0, 5.0], [1.0, 5.0], [9.0, 5.0], [10.0, 5.0]])
    >>> model = daskclust.KMeans(n_clusters=2, random_state=0).fit(X)
    >>> result = profiles(model, X)
    >>> result.sizes, result.distinguishing(0, 1)
    (array([2., 2.]), ['x0'])
    """
    data = open_labeled(model, X, y)
    return profiles_of(data, sample_labeled(data, _rows_of_bins(data)))


def profiles_of(data: Labeled, sample: LabelSample) -> Profiles:
    """Run the second pass, and combine the results of both passes."""
    k, p = sample.missing.shape
    if k * p * _BINS[0] > _MAX_CELLS:
        raise MemoryPlanError(
            f"Histograms must take at most {_MAX_CELLS * 8 / 2**20:.0f} MiB per thread, got more "
            f"for {k} clusters in {p} features. Use coarser clusters: pass their labels as y."
        )
    n_bins = _n_bins(k, p, data.rows.n_rows)
    # The sample is sorted by label and key.
    rows, labels = sample.rows, sample.rows["label"]
    uniform = rows["key"] <= min(sample.share, _ROWS_PER_BIN * n_bins / data.rows.n_rows)
    sampled = uniform | (
        np.arange(len(rows)) - np.searchsorted(labels, labels) < _MIN_ROWS_PER_CLUSTER
    )
    rows, uniform = rows[sampled], uniform[sampled]
    bins = choose_bins(rows["x"].astype(data.rows.dtype), rows["label"], uniform, n_bins)
    total = sample.moments[:, 0]
    for c in range(1, k):
        total = merge_moments(total, sample.moments[:, c])
    means = np.where(sample.moments[0] > 0, sample.moments[1], np.nan)
    center_distances = data.center_distances(sample.labels, means, _deviations(total))
    weight = float(sample.weights.sum())
    request = HistogramsRequest(
        sample.labels, bins, center_distances, _NEAREST, weight, data.row_labels
    )
    histograms: Histograms = data.reduce(LABEL_HISTOGRAMS, request, sample.label_cache)
    areas, errors = rank_areas(histograms.counts, bins.single())
    quantiles = histogram_quantiles(histograms.counts, bins, sample.bounds, QUANTILES)
    rest = _rest(sample.moments)
    nearest = histograms.nearest
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
    if not getattr(data.model, "_depends_on_units", False):
        return ""
    varies = bounds[0].min(axis=0) < bounds[1].max(axis=0)
    dominant = dominant_feature(_deviations(moments) ** 2, varies)
    if dominant is None:
        return ""
    feature, share = dominant
    return (
        f"{data.features[feature]} has {as_percent(share)} of the variance, so it nearly "
        "determines the clusters. Scale the features first, unless all have the same unit."
    )


def _weights(model: Any, p: int) -> Floats | None:
    weights = getattr(model, "feature_weights_", getattr(model, "metric_weights_", None))
    return None if weights is None or len(weights) != p else np.asarray(weights, dtype=np.float64)


def _values_at(text: Any, rows: Ints) -> Array:
    if hasattr(text, "to_dask_array"):
        text = text.to_dask_array(lengths=True)
    values = text if hasattr(text, "compute") else np.asarray(text)
    if values.ndim != 1 or len(values) <= rows.max(initial=-1):
        raise ValueError(f"text must have a value for each row of X, got shape {values.shape}.")
    values = values[rows]
    return np.asarray(values.compute() if hasattr(values, "compute") else values)


def _pixels(cube: Any, rows: Ints) -> tuple[Ints | None, Floats | None]:
    if cube is None:
        return None, None
    pixels = np.full((*rows.shape, 2), -1, np.int64)
    coordinates = np.full((*rows.shape, 2), np.nan)
    present = rows >= 0
    questions = questions_of(cube, rows[present])
    pixels[present] = np.column_stack([questions.lines, questions.columns])
    coordinates[present] = np.column_stack([questions.x, questions.y])
    return pixels, coordinates
