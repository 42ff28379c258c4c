"""Views: scaled copies of the features in which rows are compared, found from a sample.

Each view is centered, turned to at most :data:`MAX_DIMENSIONS` principal components, and scaled to
a total variance of 1, so that distances in different views can be compared.

Three kinds of views take missing values.  ``"mean"`` replaces them by the means of the columns, so
that rows with the same missing columns are near each other; these often have the same origin.
``"mixture"`` replaces them by conditional means under a Gaussian mixture, which depend less on the
missing columns.  Both continue as ``"standard"``.  ``"pckid"`` consists of coordinates of a
probabilistic cluster kernel, which needs no replacement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.estimator.validation import check_choice
from daskclust.core.kernels.blas import one_blas_thread
from daskclust.core.kernels.projection import noise_whitening, project_rows, unit_rows
from daskclust.core.persistence.schema import Array as Stored
from daskclust.core.persistence.schema import Choice, Fields, OneOf, Several
from daskclust.mixture.densities import Mixtures
from daskclust.mixture.expectation import impute, project
from daskclust.mixture.gaussian_mixture import GaussianMixture
from daskclust.mixture.pckid import PCKID

#: Kinds of views that take missing values.
MISSING_VALUE_VIEWS = ("mean", "mixture", "pckid")
#: Views of ``"auto"`` side by side in one space, if values are missing.  The means of columns would
#: move rows together that have only their missing columns in common.
_JOINED = ("mixture", "pckid")
#: Kinds of views.
VIEWS = ("raw", "standard", "angle", "whitened", *MISSING_VALUE_VIEWS)
#: Kinds of views in which rows are scaled to length 1.
_UNIT_VIEWS = ("angle", "whitened")
#: Number of components of the mixture, and maximum number of rows that train it and the kernel.
_COMPONENTS, _TRAINING_ROWS = 8, 10_000
#: Parameters of the kernel: initializations Q, maximum number of components G, and coordinates.
_INITIALIZATIONS, _MAX_COMPONENTS, _COORDINATES = 10, 15, 15
#: Maximum number of principal components of a view.
MAX_DIMENSIONS = 30
#: Fraction of the largest variance below which directions are omitted.
_NEGLIGIBLE = 1e-12
#: Fraction of the squared mean below which variances are rounding errors.
_ROUNDING = 1e-28
#: Units of ``"standard"``: this fraction of the range, up to this number of standard deviations.
_RANGE_FRACTION, _MAX_DEVIATIONS = 1 / 4, 3.0
#: Number of rows of the sample that are processed at a time.
_SLICE = 8192


@dataclass(frozen=True)
class SampleRows:
    """Some rows, in an order that does not depend on chunks; weights are positive.

    ``neighbors`` are pairs of adjacent pixels, both of shape (pairs, p).
    """

    x: Array
    weight: Floats
    neighbors: tuple[Array, Array] | None = None


@dataclass(frozen=True)
class MeanFill:
    """Replacement of missing values by the ``means`` (p,) of the columns."""

    means: Floats

    def __call__(self, x: Array) -> Floats:
        """Return complete rows in float64."""
        wide = x.astype(np.float64)
        return np.where(np.isnan(wide), self.means, wide)


@dataclass(frozen=True)
class MixtureFill:
    """Replacement of missing values by conditional means under a diagonal Gaussian mixture.

    ``center`` (p,) is a point near the data, from which differences are computed.
    """

    center: Floats
    weights: Floats
    means: Floats
    variances: Floats

    def __call__(self, x: Array) -> Floats:
        """Return complete rows in float64."""
        mixture = Mixtures(self.weights, self.means, self.variances, (len(self.weights),))
        filled: Floats = impute(x.astype(np.float64), mixture, self.center)
        return filled


@dataclass(frozen=True)
class KernelCoordinates:
    """Coordinates of rows under the kernel of :class:`PCKID`.

    Rows are scaled to ``(x - center) * scale``.  The mixtures have ``sizes`` components, D in
    total.  ``basis`` (D, d) maps posteriors to coordinates.
    """

    center: Floats
    scale: Floats
    weights: Floats
    means: Floats
    variances: Floats
    sizes: Ints
    basis: Floats

    def __call__(self, x: Array) -> Floats:
        """Return the coordinates (n, d)."""
        sizes = tuple(self.sizes.tolist())
        mixtures = Mixtures(self.weights, self.means, self.variances, sizes)
        origin = np.zeros(len(self.center))
        scaled = (x.astype(np.float64) - self.center) * self.scale
        return project(scaled, mixtures, origin, self.basis)


Completion = MeanFill | MixtureFill | KernelCoordinates


@dataclass(frozen=True)
class View:
    """One view of rows: ``(rows - center) @ matrix``; ``kind`` is one of :data:`VIEWS`.

    ``completion`` replaces rows with missing values by complete rows or coordinates first, and is
    None for kinds that need complete rows.
    """

    kind: str
    center: Floats
    matrix: Floats
    completion: Completion | None = None

    def __call__(self, x: Array) -> Floats:
        rows = x if self.completion is None else self.completion(x)
        return project_rows(rows, self.kind in _UNIT_VIEWS, self.center, self.matrix)

    def restore(self, z: Floats) -> Floats:
        """Return points of the view as rows; NaN for ``"pckid"``, where points are not rows."""
        if isinstance(self.completion, KernelCoordinates):
            return np.full((len(z), len(self.completion.center)), np.nan)
        rows: Floats = self.center + z @ np.linalg.pinv(self.matrix)
        return rows

    def check(self, n_features: int) -> None:
        """Raise ValueError unless the parts of the view belong to its kind."""
        kinds = {"mean": MeanFill, "mixture": MixtureFill, "pckid": KernelCoordinates}
        expected = kinds.get(self.kind, type(None))
        if type(self.completion) is not expected:
            raise ValueError(f"the view {self.kind!r} must have a {expected.__name__}")
        if isinstance(self.completion, KernelCoordinates):
            n_features = self.completion.basis.shape[1]
        if len(self.center) != n_features:
            raise ValueError(
                f"the view {self.kind!r} must have {n_features} columns, got {len(self.center)}"
            )


@dataclass(frozen=True)
class Space:
    """One view, or several views side by side; it is sent to the workers."""

    views: tuple[View, ...]

    @property
    def takes_missing(self) -> bool:
        return all(view.kind in MISSING_VALUE_VIEWS for view in self.views)

    @property
    def n_dimensions(self) -> int:
        return sum(view.matrix.shape[1] for view in self.views)

    def __call__(self, x: Array) -> Floats:
        """Return the rows in the space (n, n_dimensions); the bits do not depend on blocks."""
        parts = [view(x) for view in self.views]
        return parts[0] if len(parts) == 1 else np.hstack(parts)

    def restore(self, z: Floats) -> Floats:
        """Return points of the space as rows of the first view (their length is lost)."""
        return self.views[0].restore(z[:, : self.views[0].matrix.shape[1]])

    def alone(self) -> list[Space]:
        return [Space((view,)) for view in self.views]

    def check(self, n_features: int, *nodes: Floats) -> None:
        """Raise ValueError unless the numbers of columns of views and nodes agree."""
        for view in self.views:
            view.check(n_features)
        for points in nodes:
            if points.shape[1] != self.n_dimensions:
                raise ValueError(
                    f"nodes must have {self.n_dimensions} columns, got {points.shape[1]}"
                )


_COMPLETION = OneOf(
    {
        MeanFill: Fields({"means": Stored("p")}),
        MixtureFill: Fields(
            {
                "center": Stored("p"),
                "weights": Stored("f", low=0),
                "means": Stored("f p"),
                "variances": Stored("f p", low=0),
            }
        ),
        KernelCoordinates: Fields(
            {
                "center": Stored("p"),
                "scale": Stored("p", low=0),
                "weights": Stored("D", low=0),
                "means": Stored("D p"),
                "variances": Stored("D p", low=0),
                "sizes": Stored("e", kind="i", low=1, total="D"),
                "basis": Stored("D w"),
            }
        ),
    },
    optional=True,
)
_VIEW = OneOf(
    {
        View: Fields(
            {
                "kind": Choice(VIEWS),
                "center": Stored("w"),
                "matrix": Stored("w q"),
                "completion": _COMPLETION,
            }
        )
    }
)
#: Entry of a :class:`Space`.
SPACE = OneOf({Space: Fields({"views": Several(_VIEW)})})


def check_views(views: Any, *, is_cube: bool) -> tuple[str, ...]:
    """Return the kinds of the views."""
    if isinstance(views, str) and views == "auto":
        return ("raw", "angle", "whitened") if is_cube else ("standard",)
    kinds = (views,) if isinstance(views, str) else tuple(views)
    for kind in kinds:
        check_choice(kind, "views", ("auto", *VIEWS) if isinstance(views, str) else VIEWS)
    if not kinds or len(set(kinds)) < len(kinds):
        raise ValueError(f"views must be one or more different kinds of {VIEWS}, got {views!r}.")
    if "whitened" in kinds and not is_cube:
        raise ValueError(
            "views='whitened' needs a Cube, because adjacent pixels estimate the noise. "
            "Pass the Cube itself as X, or use views='standard'."
        )
    return kinds


def _float_rows(x: Array, unit: bool) -> Floats:
    return unit_rows(x) if unit else x.astype(np.float64)


def _moments(x: Array, weight: Floats, unit: bool) -> tuple[Floats, Floats]:
    """Return the weighted mean and covariance of rows, or of the rows scaled to length 1."""
    total = weight.sum()
    # Slices keep temporary arrays small.
    slices = [slice(start, start + _SLICE) for start in range(0, len(x), _SLICE)]
    mean: Floats = sum(weight[s] @ _float_rows(x[s], unit) for s in slices) / total
    scatter = np.zeros((x.shape[1],) * 2)
    for s in slices:
        centered = _float_rows(x[s], unit) - mean
        scatter += (centered * weight[s, None]).T @ centered
    return mean, scatter / total


def _components(scatter: Floats, mean: Floats) -> Floats:
    """Return the leading principal components (p, d), scaled to a total variance of 1."""
    values, vectors = np.linalg.eigh(scatter)
    total = values[values > 0].sum()
    if not total > _ROUNDING * (mean @ mean):
        # All rows are equal except for rounding.
        return np.zeros((len(values), 1))
    count = min(int(np.count_nonzero(values > _NEGLIGIBLE * values[-1])), MAX_DIMENSIONS)
    leading = vectors[:, ::-1][:, :count]
    peak = leading[np.abs(leading).argmax(axis=0), np.arange(count)]
    return leading * (np.where(peak < 0, -1.0, 1.0) / np.sqrt(total))


def _scale(x: Array, spread: Floats) -> Floats:
    """Return factors of the features, 0 for constant ones.

    The unit is the standard deviation, or a quarter of the range if that is larger.  So a feature
    with a few extreme values weighs less, by a factor of at most 3.
    """
    low, high = x.min(axis=0), x.max(axis=0)
    with np.errstate(over="ignore"):
        width = (high - low).astype(np.float64)
    # The range of float32 values may exceed float32.
    width = np.where(np.isfinite(width), width, high.astype(np.float64) - low)
    unit = np.clip(width * _RANGE_FRACTION, spread, _MAX_DEVIATIONS * spread)
    return np.divide(1.0, unit, out=np.zeros_like(unit), where=(width > 0) & (spread > 0))


@one_blas_thread()
def find_views(
    kinds: Sequence[str], sample: SampleRows, completions: Sequence[Completion | None] = ()
) -> Space:
    """Find views of these kinds from a sample; O(m p^2 + p^3) for m rows.

    One BLAS thread makes sums independent of the number of cores.
    """
    views = []
    for kind, completion in zip(kinds, completions or (None,) * len(kinds), strict=True):
        x = sample.x if completion is None else completion(sample.x)
        mean, scatter = _moments(x, sample.weight, kind in _UNIT_VIEWS)
        if kind in ("standard", "mean", "mixture"):
            scale = _scale(x, np.sqrt(np.diag(scatter)))[:, None]
            matrix = scale * _components(scatter * scale * scale.T, 0 * mean)
        elif kind == "whitened":
            assert sample.neighbors is not None
            white = noise_whitening(*sample.neighbors)
            matrix = white @ _components(white @ scatter @ white, white @ mean)
        else:
            matrix = _components(scatter, mean)
        views.append(View(kind, mean, matrix, completion))
    return Space(tuple(views))


def views_take_missing(views: Any) -> bool:
    """Return True if X may have missing values, according to the parameter ``views``."""
    kinds = (views,) if isinstance(views, str) else tuple(views)
    return kinds == ("auto",) or (bool(kinds) and set(kinds) <= set(MISSING_VALUE_VIEWS))


def choose_views(
    views: Any, kinds: tuple[str, ...], survey: Any, *, joined: bool
) -> tuple[str, ...]:
    """Return the kinds of views for the data, after the survey of missing values.

    ``kinds`` are those for complete rows.  ``joined`` is True for views side by side in one space.
    """
    if not survey.n_incomplete:
        return kinds
    if isinstance(views, str) and views == "auto":
        return _JOINED if joined else MISSING_VALUE_VIEWS
    complete_only = [kind for kind in kinds if kind not in MISSING_VALUE_VIEWS]
    if complete_only:
        raise ValueError(
            f"X has missing values in {survey.n_incomplete} row(s), and views={complete_only} need "
            f'complete rows. Use views="auto" or some of {MISSING_VALUE_VIEWS}.'
        )
    return kinds


def find_completions(kinds: Sequence[str], x: Array, seed: int) -> tuple[Completion | None, ...]:
    """Find completions from a sample; None for views that need complete rows."""
    rows = x[~np.isnan(x).all(axis=1)][:_TRAINING_ROWS].astype(np.float64)
    with np.errstate(invalid="ignore"):
        center, deviation = np.nanmean(rows, axis=0), np.nanstd(rows, axis=0)
    # A column without a value in the sample gets the mean 0.
    center, deviation = np.nan_to_num(center), np.nan_to_num(deviation)
    scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    rows[:, np.isnan(rows).all(axis=0)] = 0.0
    completions: list[Completion | None] = []
    for kind in kinds:
        if kind == "mean":
            completions.append(MeanFill(center))
        elif kind == "mixture":
            count = min(_COMPONENTS, len(rows))
            model = GaussianMixture(count, covariance_type="diag", random_state=seed).fit(rows)
            completions.append(
                MixtureFill(center, model.weights_, model.means_, model.covariances_)
            )
        elif kind == "pckid":
            kernel = PCKID(
                2,
                n_initializations=_INITIALIZATIONS,
                max_components=min(_MAX_COMPONENTS, max(2, len(rows) // 4)),
                embedding_dim=_COORDINATES,
                n_init=1,
                random_state=seed,
            ).fit((rows - center) * scale)
            ensemble = kernel.ensemble_
            completions.append(
                KernelCoordinates(
                    center,
                    scale,
                    ensemble.weights,
                    ensemble.means,
                    ensemble.covariances,
                    np.array(ensemble.sizes, dtype=np.int64),
                    kernel.basis_,
                )
            )
        else:
            completions.append(None)
    return tuple(completions)
