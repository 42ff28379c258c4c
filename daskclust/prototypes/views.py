"""Views: spaces in which rows are compared, found from a sample of the rows.

Each view is centered, turned to at most :data:`MAX_DIMENSIONS` principal components,
and scaled so that its total variance is 1; distances in different views compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskclust._types import Array, Bools, Floats
from daskclust.estimator.parameters import check_choice
from daskclust.kernels.blas import one_blas_thread
from daskclust.kernels.projection import noise_whitening, project_rows, unit_rows
from daskclust.prototypes.gaps import GAP_VIEWS, GapView

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
    """Return the names of the views.

    ValueError for unknown names, repeated ones, none at all, and ``"whitened"`` without a cube.
    """
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


def _slices(length: int) -> Iterator[slice]:
    """Cut so many rows up, so that what is made of them in passing stays small."""
    for start in range(0, length, _SLICE):
        yield slice(start, start + _SLICE)


def _moments(x: Array, weight: Floats, unit: bool) -> tuple[Floats, Floats]:
    """Weighted mean and covariance of rows, or of the rows scaled to length 1."""

    def seen(part: slice) -> Floats:
        return unit_rows(x[part]) if unit else x[part].astype(np.float64)

    total = weight.sum()
    mean: Floats = sum(weight[s] @ seen(s) for s in _slices(len(x))) / total
    scatter = np.zeros((x.shape[1],) * 2)
    for s in _slices(len(x)):
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


def _scale(spread: Floats, width: Floats) -> Floats:
    """Return what features are multiplied by; 0 for constant ones.

    The inverse of the standard deviation, or of a quarter of the range where that is more,
    up to three standard deviations: a feature whose spread is the work of a few extreme
    values weighs less, by a factor of 3 at most.
    """
    unit = np.clip(width / _WIDTH, spread, _LIMIT * spread)
    return np.divide(1.0, unit, out=np.zeros_like(unit), where=(width > 0) & (spread > 0))


def _width(x: Array) -> Floats:
    low, high = x.min(axis=0), x.max(axis=0)
    with np.errstate(over="ignore"):
        width = (high - low).astype(np.float64)
    # That of float32 may be beyond float32.
    return np.where(np.isfinite(width), width, high.astype(np.float64) - low)


def _view(name: str, sample: SampleRows) -> tuple[bool, Floats, Floats]:
    if name in ("raw", "standard"):
        mean, scatter = _moments(sample.x, sample.weight, unit=False)
        if name == "raw":
            return False, mean, _components(scatter, mean)
        scale = _scale(np.sqrt(np.diag(scatter)), _width(sample.x))
        return False, mean, scale[:, None] * _components(scatter * scale[:, None] * scale, 0 * mean)
    mean, scatter = _moments(sample.x, sample.weight, unit=True)
    if name == "angle":
        return True, mean, _components(scatter, mean)
    assert sample.neighbors is not None
    one, other = sample.neighbors
    whitening = noise_whitening(one, other)
    return True, mean, whitening @ _components(whitening @ scatter @ whitening, whitening @ mean)


def _gap_view(gap: GapView, sample: SampleRows) -> tuple[bool, Floats, Floats]:
    """Rows that are filled in have features of different units, coordinates have not."""
    filled = replace(sample, x=gap(sample.x), neighbors=None)
    return _view("standard" if gap.basis is None else "raw", filled)


def find_views(
    names: Sequence[str], sample: SampleRows, gaps: Sequence[GapView | None] = ()
) -> Space:
    """Find the parameters of views, by their names, from a sample.

    Cost O(m p^2 + p^3) for m rows, on the client, with one BLAS thread: so the sums are
    the same on whatever machine the client runs with however many cores.
    """
    with one_blas_thread():
        found = [
            _gap_view(gap, sample) if gap else _view(name, sample)
            for name, gap in zip(names, gaps or (None,) * len(names), strict=True)
        ]
    width = max(matrix.shape[1] for _, _, matrix in found)
    # Kernels may have more coordinates than there are features.
    p = max(len(center) for _, center, _ in found)
    matrices = [
        np.pad(matrix, ((0, p - len(matrix)), (0, width - matrix.shape[1])))
        for _, _, matrix in found
    ]
    return Space(
        np.array([unit for unit, _, _ in found]),
        np.stack([np.pad(center, (0, p - len(center))) for _, center, _ in found]),
        np.stack(matrices),
        tuple(gaps),
    )
