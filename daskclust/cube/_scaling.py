"""How valid pixels become samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from daskclust._types import Array, Bools, Floats
from daskclust.kernels.projection import project_rows

__all__ = ["Scaling"]


@dataclass(frozen=True)
class Scaling:
    """How valid rows become samples.

    ``kind`` is ``"none"``, ``"unit"`` (each row divided by its Euclidean norm),
    ``"standard"`` (each band minus its `mean`, divided by its `std`) or ``"whitened"``
    (each row divided by its norm, then times `matrix`).
    """

    kind: Literal["none", "standard", "unit", "whitened"]
    dtype: np.dtype[Any]
    mean: Floats | None = None
    std: Floats | None = None
    matrix: Floats | None = None

    def of_bands(self, keep: Bools) -> Scaling:
        """Return the same for some of the bands."""
        if self.mean is None or self.std is None:
            return self
        return replace(self, mean=self.mean[keep], std=self.std[keep])

    @property
    def is_by_value(self) -> bool:
        """Whether a sample is made of one stored value alone."""
        return self.kind in ("none", "standard")

    def __call__(self, rows: Array, *, narrow: bool = True) -> Array:
        """Scale `rows` (n, p), in float64; not `narrow`, they need not be of `dtype` already."""
        if self.kind == "standard":
            assert self.mean is not None
            assert self.std is not None
            wide = (rows - self.mean) / self.std
            return wide.astype(self.dtype) if narrow else wide
        if not narrow and self.kind == "none":
            return rows
        if self.kind == "whitened":
            assert self.matrix is not None
            origin = np.zeros(len(self.matrix))
            return project_rows(rows.astype(np.float64), True, origin, self.matrix).astype(
                self.dtype
            )
        if self.kind == "unit":
            wide = rows.astype(np.float64)
            norm = np.sqrt(np.nansum(wide * wide, axis=1, keepdims=True))
            norm[norm == 0.0] = 1.0  # a row of zeros has no direction: it stays zero
            return (wide / norm).astype(self.dtype)
        return rows.astype(self.dtype, copy=False)
