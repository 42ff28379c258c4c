"""Trimmed k-means: the worked example of CONTRIBUTING.md.

Cuesta-Albertos, Gordaliza & Matrán (1997), Trimmed k-means, Annals of Statistics: the share
``trim`` of the rows that lie farthest from their centers does not move them, so outliers do not.

A kernel, a reduction, and a thin estimator.  In the package they would be three modules:
``kernels/trimmed.py``, ``reduction/trimmed.py`` and ``cluster/trimmedkmeans.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from daskclust.core.engine import Rows
from daskclust.core.estimator.base import BaseClusterer
from daskclust.core.estimator.fit_loop import FirstPass, OpenData, Step, draw_seeds, fit, row_labels
from daskclust.core.estimator.parameters import COMMON, COUNT, NOT_NEGATIVE, Constraints, Interval
from daskclust.core.estimator.transforms import EUCLIDEAN
from daskclust.core.estimator.validation import Data, check_enough_rows
from daskclust.core.kernels.compensated import sum_terms
from daskclust.core.kernels.nearest.assign import label_sums, nearest
from daskclust.core.persistence.schema import Entry, Number
from daskclust.reduction import Field, Partial, Reduction, RowBlock

Float = NDArray[np.float64]

# 1. The kernel: what is computed on one block of rows.

#: Bins of squared distances: the leading 16 bits of a double, of which the sign is 0.
N_BINS = 2**15


def bins_of(squared: Float) -> NDArray[np.int64]:
    """Bins of squared distances; farther rows are never in an earlier bin.

    The bits of doubles that are not negative sort as the doubles do.  A bin is
    6 % of the squared distance wide, wherever it lies.
    """
    return squared.view(np.int64) >> 48


def trimmed_statistics(
    x: NDArray[Any], weight: Float, centers: Float, last_bin: int
) -> tuple[Float, Float]:
    """Sums of the rows near enough to their centers, and where all rows lie.

    Parameters
    ----------
    x : ndarray of shape (n, p)
    weight : ndarray of shape (n,), float64
    centers : ndarray of shape (k, p), float64
    last_bin : int
        Of the squared distances that count.

    Returns
    -------
    stats : ndarray of shape (k, p + 2), float64
        Sums, weights and squared distances by cluster.
    histogram : ndarray of shape (N_BINS,), float64
        Weight of the rows in each bin of squared distances.

    Notes
    -----
    O(n k p).
    """
    labels, distances = nearest(x, centers)
    squared = distances.astype(np.float64)
    bins = bins_of(squared)
    kept = np.where(bins <= last_bin, weight, 0.0)
    sums, weights = label_sums(x, kept, labels.astype(np.int64), len(centers))
    inertia = np.bincount(labels, kept * squared, len(centers))
    return np.column_stack([sums, weights, inertia]), np.bincount(bins, weight, N_BINS)


# 2. The reduction: how the kernel's results are merged, as data.


class TrimmedState(NamedTuple):
    """What a pass is told."""

    centers: Float
    last_bin: int


class TrimmedStatistics(NamedTuple):
    """What a pass brings home."""

    sums: Float
    weights: Float
    inertia: float
    histogram: Float


def _fields(state: TrimmedState) -> Mapping[str, Field]:
    k, p = state.centers.shape
    return {"stats": Field((2, k, p + 2), "sum"), "histogram": Field((2, N_BINS), "sum")}


def _block(rows: RowBlock, state: TrimmedState) -> Partial:
    weight = np.ones(len(rows.x)) if rows.weight is None else rows.weight
    # Chunk by chunk, so that sums do not show which chunks were joined.
    found = [trimmed_statistics(rows.x[at], weight[at], *state) for at in rows.slices()]
    stats, histograms = zip(*found, strict=True)
    return {"stats": sum_terms(stats), "histogram": sum_terms(histograms)}


def _finalize(partial: Partial, state: TrimmedState) -> TrimmedStatistics:
    stats, p = partial["stats"][0], state.centers.shape[1]
    inertia = float(stats[:, p + 1].sum())
    return TrimmedStatistics(stats[:, :p], stats[:, p], inertia, partial["histogram"][0])


TRIMMED = Reduction("trimmed", _fields, _block, _finalize)


# 3. The estimator: parameters, docstring, and the passes to make.

#: Rows drawn for the start; runs on them, and steps of each run.
SAMPLE, STARTS, STEPS = 1000, 10, 10


def last_bin_of(histogram: Float, trim: float) -> int:
    """Return the first bin up to which there is the weight that is to count."""
    below = np.cumsum(histogram)
    return int(np.searchsorted(below, (1.0 - trim) * below[-1]))


def moved(centers: Float, sums: Float, weights: Float) -> Float:
    """Return the means of the rows that count; a cluster without any stays where it is."""
    means = np.divide(sums, weights[:, None], out=centers.copy(), where=weights[:, None] > 0)
    return np.asarray(means)


def start_on_sample(sample: Float, k: int, trim: float, seed: int) -> Float:
    """Return the best of some runs on a few rows: starts that spread out would find outliers."""
    rng, weight = np.random.default_rng(seed), np.ones(len(sample))
    best, least = sample[:k], np.inf
    for _ in range(STARTS):
        centers = sample[rng.permutation(len(sample))[:k]]
        for _ in range(STEPS):
            histogram = trimmed_statistics(sample, weight, centers, 0)[1]
            last = last_bin_of(histogram, trim)
            stats = trimmed_statistics(sample, weight, centers, last)[0]
            centers = moved(centers, stats[:, :-2], stats[:, -2])
        if stats[:, -1].sum() < least:
            best, least = centers, stats[:, -1].sum()
    return best


@dataclass(frozen=True)
class FitState:
    """Where a fit stands: what is checkpointed."""

    #: What a checkpoint must hold: k centers of p features, and a whole number.
    centers: Annotated[Float, "f k p"]
    last_bin: Annotated[int, "i"]


@dataclass(frozen=True)
class Problem:
    """What does not change during a fit."""

    kind: ClassVar[type[FitState]] = FitState

    rows: Rows
    sample: Float
    n_clusters: int
    trim: float
    seed: int
    tolerance: float
    max_iter: int

    @property
    def sizes(self) -> Mapping[str, int]:
        """Return the sizes of a state that the rows do not tell."""
        return {"k": self.n_clusters}

    def identity(self) -> Mapping[str, Any]:
        """Return nothing: data and parameters are all that a checkpoint belongs to."""
        return {}

    def begin(self) -> FitState:
        """Start from a sample; one pass finds how far the rows lie."""
        centers = start_on_sample(self.sample, self.n_clusters, self.trim, self.seed)
        return FitState(centers, self.look(centers, N_BINS)[1])

    def look(self, centers: Float, last_bin: int) -> tuple[TrimmedStatistics, int]:
        """Make a pass; return what it found, and the last bin of rows that are to count."""
        found = self.rows.reduce(TRIMMED, TrimmedState(centers, last_bin))
        return found, last_bin_of(found.histogram, self.trim)

    def step(self, state: FitState) -> Step[FitState]:
        """Move each center to the mean of its rows that count; the bins are those found before."""
        found, last_bin = self.look(state.centers, state.last_bin)
        centers = moved(state.centers, found.sums, found.weights)
        shift = float(((centers - state.centers) ** 2).sum())
        return Step(
            FitState(centers, last_bin),
            objective=found.inertia,
            center_shift=float(np.sqrt(shift)),
            finished=shift <= self.tolerance and last_bin == state.last_bin,
        )


class TrimmedKMeans(BaseClusterer):
    """K-means whose centers the farthest rows do not move.

    Parameters
    ----------
    n_clusters : int, default=8
    trim : float, default=0.1
        Share of the weight of all rows that is left out, in [0, 1): at most so much,
        and less by no more than what lies in one bin of distances, 3 % wide.
    max_iter : int, default=300
    tol : float, default=1e-4
        Squared shift of all centers at which the fit ends, times the mean variance.
    random_state : int, RandomState, Generator or None, default=None
    checkpoint : path-like, default=None

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, p), float64
    radius_ : float
        Rows farther than this from their center are left out.
    inertia_ : float
        Sum of squared distances of the rows that count.
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Nearest center of every row.
    n_iter_, history_
        As of :class:`daskclust.KMeans`.

    Notes
    -----
    *Passes*: 1 to look at the data and draw a sample, 1 an iteration and 2 more.  *To the client*:
    O(k p) and 256 KiB of histogram.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0], [1000.0]])
    >>> model = TrimmedKMeans(2, trim=1 / 7, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.ravel().tolist())
    [1.0, 11.0]
    """

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "inertia_": Number(low=0),
        "radius_": Number(low=0),
    }
    #: May differ where a checkpoint is continued.
    _resumes_with: ClassVar[tuple[str, ...]] = ("max_iter",)

    _parameter_constraints: ClassVar[Constraints] = {
        "n_clusters": [COUNT],
        "trim": [Interval(Real, 0, 1)],
        "max_iter": [COUNT],
        "tol": [NOT_NEGATIVE],
        **COMMON,
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        trim: float = 0.1,
        max_iter: int = 300,
        tol: float = 1e-4,
        random_state: Any = None,
        checkpoint: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.trim = trim
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.checkpoint = checkpoint

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Find the clusters.

        Parameters
        ----------
        X : array-like or dask.array.Array of shape (n, p)
        y : ignored
        sample_weight : array-like or dask.array.Array of shape (n,), optional
        """
        return fit(self, X, sample_weight)

    def _read(self, data: Data) -> None:
        check_enough_rows(data, self.n_clusters)

    def _first_pass(self, data: Data, read: None) -> FirstPass:
        return FirstPass(seeds=draw_seeds(self.random_state, 1), n_picks=SAMPLE)

    def _problem(self, data: OpenData, read: None) -> Problem:
        drawn = data.survey.picks[0]
        sample = np.ascontiguousarray(drawn["x"][drawn["row"] >= 0], dtype=np.float64)
        tolerance = float(self.tol * data.survey.variance.mean())
        trim, k = float(self.trim), int(self.n_clusters)
        return Problem(data.rows, sample, k, trim, data.seeds[0], tolerance, int(self.max_iter))

    def _finish(
        self, data: OpenData, problem: Problem, state: FitState, history: list[dict[str, Any]]
    ) -> None:
        self._metric = EUCLIDEAN
        self._centers = self.cluster_centers_ = state.centers
        self.inertia_ = problem.look(state.centers, state.last_bin)[0].inertia
        # The next bin begins where the last one ends.
        self.radius_ = float(np.sqrt(np.array((state.last_bin + 1) << 48).view(np.float64)))
        self.n_iter_ = len(history)
        self.history_ = history
        self.labels_ = row_labels(data, self._row_function(data.rows.dtype))
