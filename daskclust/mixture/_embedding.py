"""Results of PCKID once its ensemble is trained: coordinates, clusters, kernel values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskclust._types import Array, Floats
from daskclust.engine import as_matrix
from daskclust.estimator.values import check_block
from daskclust.kernels.mixtures.densities import Mixtures
from daskclust.kernels.mixtures.ensemble import kernel_block, project
from daskclust.kernels.nearest.assign import nearest
from daskclust.reduction import RowBlock

__all__ = ["Embedding", "Kernel"]


@dataclass(frozen=True)
class Embedding:
    """Coordinates of a block's rows, or their clusters; travels to workers.

    Parameters
    ----------
    shift : ndarray of shape (p,), float64
    basis : ndarray of shape (D, d), float64
        Eigenvectors over the square root of the number of models.
    row_dtype : dtype
        That rows are converted to, and of the coordinates.
    dtype : dtype
        Of the posteriors.
    centers : ndarray of shape (k, d), float64, optional
        Ask for the nearest of them.
    """

    mixtures: Mixtures
    shift: Floats
    basis: Floats
    row_dtype: Any
    dtype: Any
    centers: Floats | None = None

    def __call__(self, x: Array, start: int) -> Array:
        """Return one result a row."""
        x = as_matrix(x, self.row_dtype)
        check_block(x, start, missing=True)
        found = project(x, self.mixtures, self.shift, self.basis, self.dtype)
        if self.centers is None:
            return found.astype(self.row_dtype, copy=False)
        return nearest(found.astype(self.row_dtype, copy=False), self.centers)[0]

    def of_rows(self, rows: RowBlock) -> Array:
        """Return the results of a block as the engine hands it out."""
        return self(rows.x, rows.runs[0][0])


@dataclass(frozen=True)
class Kernel:
    """Kernel values between two blocks; travels to workers."""

    mixtures: Mixtures
    shift: Floats

    def __call__(self, x: Array, y: Array) -> Floats:
        """Return the kernel between all pairs of rows."""
        blocks = [as_matrix(rows, np.dtype(np.float64)) for rows in (x, y)]
        for rows in blocks:
            check_block(rows, 0, missing=True)
        return kernel_block(blocks[0], blocks[1], self.mixtures, self.shift)
