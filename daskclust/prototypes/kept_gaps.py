"""Views of incomplete rows as attributes of a fitted estimator: what a saved model holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daskclust.kernels.mixtures.densities import Mixtures
from daskclust.persistence.schema import Array, Entry
from daskclust.prototypes.gaps import GapView

__all__ = ["GAP_ENTRIES", "check_gaps", "keep_gaps", "kept_gaps"]

#: Kinds of views: of these the mixture is kept under a prefix, the last has none; 0 takes no gaps.
_OF_KERNEL, _MEANS = 2, 3
_PREFIXES = {1: "_fill", _OF_KERNEL: "_kernel"}
#: Of the mixture, of the ensemble, and the order of the two.
GAP_ENTRIES: Mapping[str, Entry] = {
    "_gap_kinds": Array("v", kind="i", low=0, high=_MEANS, optional=True),
    "_gap_center": Array("p", optional=True),
    "_gap_scale": Array("p", low=0, optional=True),
    "_fill_weights": Array("f", low=0, optional=True),
    "_fill_means": Array("f", "p", optional=True),
    "_fill_variances": Array("f", "p", low=0, optional=True),
    "_kernel_weights": Array("D", low=0, optional=True),
    "_kernel_means": Array("D", "p", optional=True),
    "_kernel_variances": Array("D", "p", low=0, optional=True),
    "_kernel_sizes": Array("e", kind="i", low=1, total="D", optional=True),
    "_kernel_basis": Array("D", "b", optional=True),
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
    return tuple(_restored(estimator, int(kind)) for kind in estimator._gap_kinds)


def _restored(estimator: Any, kind: int) -> GapView | None:
    if not kind:
        return None
    if kind == _MEANS:
        return GapView(estimator._gap_center, estimator._gap_scale)
    weights, means, variances = (
        getattr(estimator, f"{_PREFIXES[kind]}_{name}")
        for name in ("weights", "means", "variances")
    )
    sizes: tuple[int, ...] = (len(weights),)
    basis = None
    if kind == _OF_KERNEL:
        sizes = tuple(int(size) for size in estimator._kernel_sizes)
        basis = estimator._kernel_basis
    return GapView(
        estimator._gap_center,
        estimator._gap_scale,
        Mixtures(weights, means, variances, sizes),
        basis,
    )
