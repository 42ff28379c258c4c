"""Views: spaces in which rows are compared, found from a sample of the rows.

Each view is centered, turned to at most :data:`MAX_DIMENSIONS` principal components,
and scaled so that its total variance is 1; distances in different views compare.

Three views take missing values.  ``"mean"`` puts the mean of the column in their place,
``"mixture"`` the conditional mean under a Gaussian mixture, and both go on as ``"standard"``: the
first keeps rows with the same gaps together, which tells where and when they were seen, the second
makes as little as it can of the gaps.  ``"pckid"`` are coordinates of a probabilistic cluster
kernel of standardized rows, whose posteriors need no value filled in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskclust.core.array_types import Array, Bools, Floats
from daskclust.core.estimator.validation import check_choice
from daskclust.core.kernels.blas import one_blas_thread
from daskclust.core.kernels.projection import noise_whitening, project_rows, unit_rows
from daskclust.core.persistence.schema import Array as Stored
from daskclust.core.persistence.schema import Entry
from daskclust.mixture.densities import Mixtures
from daskclust.mixture.expectation import impute, project
from daskclust.mixture.gaussian_mixture import GaussianMixture
from daskclust.mixture.pckid import PCKID

#: Views that take missing values.
GAP_VIEWS = ("mean", "mixture", "pckid")
#: Of these, what "auto" takes side by side in one space: there, means of columns draw rows
#: together that have nothing in common but their gaps (worth having beside labels only).
_JOINED = ("mixture", "pckid")
#: Components of the mixture, and rows by which it and the kernel are trained at most.
_COMPONENTS, _TRAINED = 8, 10_000
#: Initializations Q, most components G and coordinates of the kernel.
_INITIALIZATIONS, _MOST, _COORDINATES = 10, 15, 15


@dataclass(frozen=True)
class GapView:
    """Complete rows in the place of incomplete ones; travels to the workers.

    For the kernel, rows become ``(x - center) * scale``, and ``basis`` (D, d) makes coordinates of
    them; for the mixture, ``center`` is a point amid the data; without ``mixtures`` it is what is
    filled in.
    """

    center: Floats
    scale: Floats
    mixtures: Mixtures | None = None
    basis: Floats | None = None

    @property
    def n_columns(self) -> int:
        """Columns of the result."""
        return len(self.center) if self.basis is None else self.basis.shape[1]

    def __call__(self, x: Array) -> Floats:
        """Return the rows in float64, without gaps."""
        wide = x.astype(np.float64)
        if self.mixtures is None:
            return np.where(np.isnan(wide), self.center, wide)
        if self.basis is None:
            filled: Floats = impute(wide, self.mixtures, self.center)
            return filled
        origin = np.zeros(len(self.center))
        return project((wide - self.center) * self.scale, self.mixtures, origin, self.basis)


VIEWS = ("raw", "standard", "angle", "whitened", *GAP_VIEWS)
#: Principal components that a view keeps at most.
MAX_DIMENSIONS = 30
#: Directions whose variance is below this share of the largest carry no information.
_NEGLIGIBLE = 1e-12
#: Variances below this share of the squared mean are rounding.
_ROUNDING = 1e-28
#: Units of ``"standard"``: a range of so many, but no more than so many standard deviations.
_WIDTH, _LIMIT = 4.0, 3.0
#: Rows of the sample that are handled at a time.
_SLICE = 8192


@dataclass(frozen=True)
class SampleRows:
    """Some of the rows, in an order that does not depend on chunks; weights are positive.

    ``neighbors`` are horizontally and vertically adjacent pixels, of shape (pairs, p).
    """

    x: Array
    weight: Floats
    neighbors: tuple[Array, Array] | None = None


@dataclass(frozen=True)
class Space:
    """One view, or several side by side, of a block of rows; travels to the workers.

    Rows are scaled to length 1 first where ``units`` (v,) says so.  Columns of ``matrices`` (v, p,
    q) beyond the dimensions of a view are 0.  ``gaps`` make complete rows of incomplete ones.
    """

    units: Bools
    centers: Floats
    matrices: Floats
    gaps: tuple[GapView | None, ...] = ()

    @property
    def takes_gaps(self) -> bool:
        return bool(self.gaps) and all(gap is not None for gap in self.gaps)

    @property
    def n_dimensions(self) -> int:
        return int(len(self.units) * self.matrices.shape[2])

    def __call__(self, x: Array) -> Floats:
        """Return the rows in the space, (n, v q): the same bits in whatever block."""
        gaps = self.gaps or (None,) * len(self.units)
        parts = []
        for unit, center, matrix, gap in zip(
            self.units, self.centers, self.matrices, gaps, strict=True
        ):
            rows = x if gap is None else gap(x)
            p = rows.shape[1]
            parts.append(project_rows(rows, bool(unit), center[:p], matrix[:p]))
        return parts[0] if len(parts) == 1 else np.hstack(parts)

    def restore(self, z: Floats) -> Floats:
        """Return points of the space as rows of the first view's kind (lengths stay lost)."""
        matrix, q = self.matrices[0], self.matrices.shape[2]
        found: Floats = self.centers[0] + z[:, :q] @ np.linalg.pinv(matrix)
        gap = self.gaps[0] if self.gaps else None
        if gap is None:
            return found
        p = len(gap.center)
        if gap.basis is not None:
            # Coordinates of a kernel are those of no row.
            return np.full((len(z), p), np.nan)
        return found[:, :p]

    def alone(self) -> list[Space]:
        return [
            Space(
                self.units[v : v + 1],
                self.centers[v : v + 1],
                self.matrices[v : v + 1],
                self.gaps[v : v + 1],
            )
            for v in range(len(self.units))
        ]


def check_views(views: Any, *, is_cube: bool) -> tuple[str, ...]:
    """Return the names of the views."""
    if isinstance(views, str) and views == "auto":
        return ("raw", "angle", "whitened") if is_cube else ("standard",)
    names = (views,) if isinstance(views, str) else tuple(views)
    for name in names:
        check_choice(name, "views", ("auto", *VIEWS) if isinstance(views, str) else VIEWS)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"views={views!r}; expected one or more different names of {VIEWS}.")
    if "whitened" in names and not is_cube:
        raise ValueError(
            "views='whitened' needs a Cube: noise is estimated from adjacent pixels. "
            "Pass the Cube itself as X, or use views='standard'."
        )
    return names


def _moments(x: Array, weight: Floats, unit: bool) -> tuple[Floats, Floats]:
    """Weighted mean and covariance of rows, or of the rows scaled to length 1."""

    def seen(part: slice) -> Floats:
        return unit_rows(x[part]) if unit else x[part].astype(np.float64)

    total = weight.sum()
    # Some rows at a time: what is made of them in passing stays small.
    slices = [slice(start, start + _SLICE) for start in range(0, len(x), _SLICE)]
    mean: Floats = sum(weight[s] @ seen(s) for s in slices) / total
    scatter = np.zeros((x.shape[1],) * 2)
    for s in slices:
        centered = seen(s) - mean
        scatter += (centered * weight[s, None]).T @ centered
    return mean, scatter / total


def _components(scatter: Floats, mean: Floats) -> Floats:
    """Leading principal components, scaled to a total variance of 1; (p, d)."""
    values, vectors = np.linalg.eigh(scatter)
    total = values[values > 0].sum()
    if not total > _ROUNDING * (mean @ mean):
        # All rows are the same but for rounding: they are one point.
        return np.zeros((len(values), 1))
    kept = vectors[:, ::-1][:, : np.count_nonzero(values > _NEGLIGIBLE * values[-1])]
    kept = kept[:, :MAX_DIMENSIONS]
    peak = kept[np.abs(kept).argmax(axis=0), np.arange(kept.shape[1])]
    return kept * (np.where(peak < 0, -1.0, 1.0) / np.sqrt(total))


def _scale(x: Array, spread: Floats) -> Floats:
    """Return what features are multiplied by; 0 for constant ones.

    The inverse of the standard deviation, or of a quarter of the range where that is more: a
    feature whose spread is the work of a few extreme values weighs less, by a factor of 3 at most.
    """
    low, high = x.min(axis=0), x.max(axis=0)
    with np.errstate(over="ignore"):
        width = (high - low).astype(np.float64)
    # That of float32 may be beyond float32.
    width = np.where(np.isfinite(width), width, high.astype(np.float64) - low)
    unit = np.clip(width / _WIDTH, spread, _LIMIT * spread)
    return np.divide(1.0, unit, out=np.zeros_like(unit), where=(width > 0) & (spread > 0))


def find_views(
    names: Sequence[str], sample: SampleRows, gaps: Sequence[GapView | None] = ()
) -> Space:
    """Find the parameters of views, by their names, from a sample; O(m p^2 + p^3) for m rows.

    With one BLAS thread: so the sums are the same with however many cores.
    """
    units, centers, matrices = [], [], []
    with one_blas_thread():
        for name, gap in zip(names, gaps or (None,) * len(names), strict=True):
            x, unit = sample.x, name in ("angle", "whitened")
            if gap is not None:
                # Rows that are filled in have features of different units, coordinates have not.
                x, name = gap(x), "standard" if gap.basis is None else "raw"
            mean, scatter = _moments(x, sample.weight, unit)
            if name == "standard":
                scale = _scale(x, np.sqrt(np.diag(scatter)))[:, None]
                matrix = scale * _components(scatter * scale * scale.T, 0 * mean)
            elif name == "whitened":
                assert sample.neighbors is not None
                white = noise_whitening(*sample.neighbors)
                matrix = white @ _components(white @ scatter @ white, white @ mean)
            else:
                matrix = _components(scatter, mean)
            units.append(unit)
            centers.append(mean)
            matrices.append(matrix)
    width = max(matrix.shape[1] for matrix in matrices)
    # Kernels may have more coordinates than there are features.
    p = max(map(len, centers))
    return Space(
        np.array(units),
        np.stack([np.pad(center, (0, p - len(center))) for center in centers]),
        np.stack([np.pad(m, ((0, p - len(m)), (0, width - m.shape[1]))) for m in matrices]),
        tuple(gaps),
    )


def takes_gaps(views: Any) -> bool:
    """Whether X may miss values, as far as the parameter ``views`` tells."""
    names = (views,) if isinstance(views, str) else tuple(views)
    return names == ("auto",) or (bool(names) and set(names) <= set(GAP_VIEWS))


def views_of_gaps(
    views: Any, names: tuple[str, ...], survey: Any, *, joined: bool
) -> tuple[str, ...]:
    """Return the views to be used, once it is known whether values are missing.

    ``names`` are the ``views`` asked for, of complete rows; ``joined``: side by side, in one space.
    """
    if not survey.n_incomplete:
        return names
    if isinstance(views, str) and views == "auto":
        return _JOINED if joined else GAP_VIEWS
    needy = [name for name in names if name not in GAP_VIEWS]
    if needy:
        raise ValueError(
            f"X misses values in {survey.n_incomplete} row(s), and views={needy} need complete "
            f'rows; use views="auto" or some of {GAP_VIEWS}.'
        )
    return names


def find_gap_views(names: Sequence[str], x: Array, seed: int) -> tuple[GapView | None, ...]:
    """Find the parameters of views from a sample; None for views that need complete rows."""
    some = x[~np.isnan(x).all(axis=1)][:_TRAINED].astype(np.float64)
    with np.errstate(invalid="ignore"):
        center, deviation = np.nanmean(some, axis=0), np.nanstd(some, axis=0)
    # A column that the sample does not have is left at its mean, which is unknown: 0.
    center, deviation = np.nan_to_num(center), np.nan_to_num(deviation)
    scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    some[:, np.isnan(some).all(axis=0)] = 0.0
    found: list[GapView | None] = []
    for name in names:
        if name == "mean":
            found.append(GapView(center, scale))
        elif name == "mixture":
            count = min(_COMPONENTS, len(some))
            model = GaussianMixture(count, covariance_type="diag", random_state=seed).fit(some)
            mixture = Mixtures(model.weights_, model.means_, model.covariances_, (count,))
            found.append(GapView(center, scale, mixture))
        elif name == "pckid":
            kernel = PCKID(
                2,
                n_initializations=_INITIALIZATIONS,
                max_components=min(_MOST, max(2, len(some) // 4)),
                embedding_dim=_COORDINATES,
                n_init=1,
                random_state=seed,
            ).fit((some - center) * scale)
            found.append(GapView(center, scale, kernel.ensemble_, kernel.basis_))
        else:
            found.append(None)
    return tuple(found)


#: Of the mixture, of the ensemble, and the order of the two.
GAP_ENTRIES: Mapping[str, Entry] = {
    "_gap_kinds": Stored("v", kind="i", low=0, high=3, optional=True),
    "_gap_center": Stored("p", optional=True),
    "_gap_scale": Stored("p", low=0, optional=True),
    "_fill_weights": Stored("f", low=0, optional=True),
    "_fill_means": Stored("f p", optional=True),
    "_fill_variances": Stored("f p", low=0, optional=True),
    "_kernel_weights": Stored("D", low=0, optional=True),
    "_kernel_means": Stored("D p", optional=True),
    "_kernel_variances": Stored("D p", low=0, optional=True),
    "_kernel_sizes": Stored("e", kind="i", low=1, total="D", optional=True),
    "_kernel_basis": Stored("D b", optional=True),
}
#: By kind of view, the attributes of what it is made of, in that order; 0 takes no gaps.
_OF_KIND = {
    0: [],
    1: [name for name in GAP_ENTRIES if name.startswith(("_gap_c", "_gap_s", "_fill"))],
    2: [name for name in GAP_ENTRIES if name.startswith(("_gap_c", "_gap_s", "_kernel"))],
    3: ["_gap_center", "_gap_scale"],
}
_KINDS = {len(names): kind for kind, names in _OF_KIND.items()}


def keep_gaps(estimator: Any, gaps: Sequence[GapView | None]) -> None:
    """Set the attributes; none where no view takes missing values."""
    for name in GAP_ENTRIES:
        vars(estimator).pop(name, None)
    if all(gap is None for gap in gaps):
        return
    kinds = []
    for gap in gaps:
        values = [] if gap is None else [gap.center, gap.scale]
        if gap is not None and gap.mixtures is not None:
            values += gap.mixtures.arrays.values()
            if gap.basis is not None:
                values += [np.array(gap.mixtures.sizes, dtype=np.int64), gap.basis]
        kinds.append(_KINDS[len(values)])
        vars(estimator).update(zip(_OF_KIND[kinds[-1]], values, strict=True))
    estimator._gap_kinds = np.array(kinds)


def check_gaps(estimator: Any) -> None:
    """Raise ValueError where views of a loaded model lack what they need."""
    for kind in getattr(estimator, "_gap_kinds", np.zeros(0, int)).tolist():
        missing = sorted(set(_OF_KIND[kind]) - set(vars(estimator)))
        if missing:
            raise ValueError(f"a view with missing values lacks {missing}")


def kept_gaps(estimator: Any) -> tuple[GapView | None, ...]:
    """Return the views that :func:`keep_gaps` took apart."""
    found: list[GapView | None] = []
    for kind in getattr(estimator, "_gap_kinds", np.zeros(0, int)).tolist():
        if not kind:
            found.append(None)
            continue
        center, scale, *of_mixtures = (vars(estimator)[name] for name in _OF_KIND[kind])
        gap = GapView(center, scale)
        if of_mixtures:
            weights, means, variances, *of_kernel = of_mixtures
            sizes, basis = of_kernel or (np.array([len(weights)]), None)
            mixtures = Mixtures(weights, means, variances, tuple(sizes.tolist()))
            gap = GapView(center, scale, mixtures, basis)
        found.append(gap)
    return tuple(found)
