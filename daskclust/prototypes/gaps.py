"""Views of rows with missing values: filled in by means or a mixture, or placed by PCKID.

All are found from the sample, as views are.  ``"mean"`` puts the mean of the column in the
place of what is missing, ``"mixture"`` the conditional mean under a Gaussian mixture, and both
go on as ``"standard"``: the first keeps rows with the same gaps together, which tells where
and when they were seen, the second makes as little as it can of the gaps.  ``"pckid"``
are coordinates of a probabilistic cluster kernel, whose posteriors need no value filled in,
of rows scaled by the mean and the deviation of what is observed.  A complete row is one like
any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskclust._types import Array, Floats
from daskclust._warnings import warn
from daskclust.estimator.fitting import misses_values
from daskclust.estimator.inputs import check_survey
from daskclust.exceptions import MissingValuesWarning
from daskclust.kernels.mixtures.densities import Mixtures
from daskclust.kernels.mixtures.posteriors import impute, project
from daskclust.mixture.gaussian_mixture import GaussianMixture
from daskclust.mixture.pckid import PCKID
from daskclust.persistence.schema import Array as Stored
from daskclust.persistence.schema import Entry
from daskclust.reduction.survey import PartialSurvey

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

    For the kernel, rows become ``(x - center) * scale``; for the mixture, ``center`` is a point
    amid the data; else what is filled in.  ``mixtures`` is one model, or an ensemble; None for the
    means of the columns.  ``basis`` (D, d) is that of the kernel's coordinates; None for
    conditional means.
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


def takes_gaps(views: Any) -> bool:
    """Whether X may miss values, as far as the parameter ``views`` tells."""
    names = (views,) if isinstance(views, str) else tuple(views)
    return names == ("auto",) or (bool(names) and set(names) <= set(GAP_VIEWS))


def check_survey_of_gaps(survey: PartialSurvey) -> None:
    """Raise for what no view can use; warn of rows without any value."""
    check_survey(survey)
    if survey.n_unobserved:
        warn(
            f"{survey.n_unobserved} row(s) of X have no value at all, the first is row "
            f"{survey.first_unobserved}: nothing can be said of them. Their margin is 0 and their "
            "classes are equally likely; SpectralClustering labels them -1.",
            MissingValuesWarning,
        )


def views_of_gaps(
    views: Any, names: tuple[str, ...], survey: Any, *, joined: bool
) -> tuple[str, ...]:
    """Return the views to be used, once it is known whether values are missing.

    ``names`` are the ``views`` asked for, of complete rows; ``joined`` views count side by side, in
    one space.  ValueError if values are missing, and a view that was asked for needs complete rows.
    """
    if not misses_values(survey):
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
    """Find the parameters of views from a sample; None for views that need complete rows.

    The sample has an order that does not depend on chunks; at most 10 000 of its rows are used.
    """
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


#: Kinds of views: of these the mixture is kept under a prefix, the last has none; 0 takes no gaps.
_OF_KERNEL, _MEANS = 2, 3
_PREFIXES = {1: "_fill", _OF_KERNEL: "_kernel"}
#: Of the mixture, of the ensemble, and the order of the two.
GAP_ENTRIES: Mapping[str, Entry] = {
    "_gap_kinds": Stored("v", kind="i", low=0, high=_MEANS, optional=True),
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


def _kind(gap: GapView | None) -> int:
    if gap is None:
        return 0
    if gap.mixtures is None:
        return _MEANS
    return 1 if gap.basis is None else _OF_KERNEL


def keep_gaps(estimator: Any, gaps: Sequence[GapView | None]) -> None:
    """Set the attributes; none where no view takes missing values."""
    for name in GAP_ENTRIES:
        vars(estimator).pop(name, None)
    if all(gap is None for gap in gaps):
        return
    kinds = [_kind(gap) for gap in gaps]
    estimator._gap_kinds = np.array(kinds)
    for gap, kind in zip(gaps, kinds, strict=True):
        if gap is None:
            continue
        estimator._gap_center, estimator._gap_scale = gap.center, gap.scale
        if gap.mixtures is None:
            continue
        prefix, mixtures = _PREFIXES[kind], gap.mixtures
        setattr(estimator, f"{prefix}_weights", mixtures.weights)
        setattr(estimator, f"{prefix}_means", mixtures.means)
        setattr(estimator, f"{prefix}_variances", mixtures.covariances)
        if gap.basis is not None:
            estimator._kernel_sizes = np.array(mixtures.sizes, dtype=np.int64)
            estimator._kernel_basis = gap.basis


def check_gaps(estimator: Any) -> None:
    """Raise ValueError where views of a loaded model lack what they need."""
    for kind in set(vars(estimator).get("_gap_kinds", np.zeros(0, int)).tolist()) - {0}:
        names = ["_gap_center", "_gap_scale"]
        prefix = _PREFIXES.get(kind)
        if prefix is not None:
            names += [f"{prefix}_{name}" for name in ("weights", "means", "variances")]
        if kind == _OF_KERNEL:
            names += ["_kernel_sizes", "_kernel_basis"]
        missing = sorted(set(names) - set(vars(estimator)))
        if missing:
            raise ValueError(f"a view with missing values lacks {missing}")


def kept_gaps(estimator: Any) -> tuple[GapView | None, ...]:
    """Return the views that :func:`keep_gaps` took apart."""
    if not hasattr(estimator, "_gap_kinds"):
        return ()
    found: list[GapView | None] = []
    for kind in estimator._gap_kinds.tolist():
        gap = GapView(estimator._gap_center, estimator._gap_scale)
        if kind in _PREFIXES:
            weights, means, variances = (
                getattr(estimator, f"{_PREFIXES[kind]}_{name}")
                for name in ("weights", "means", "variances")
            )
            sizes: tuple[int, ...] = (len(weights),)
            if kind == _OF_KERNEL:
                sizes = tuple(estimator._kernel_sizes.tolist())
                gap = replace(gap, basis=estimator._kernel_basis)
            gap = replace(gap, mixtures=Mixtures(weights, means, variances, sizes))
        found.append(gap if kind else None)
    return tuple(found)
