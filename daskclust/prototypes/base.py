"""What the estimators on prototypes share: parameters, the problem, rows as nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from daskclust.engine import Rows
from daskclust.estimator.data import Data
from daskclust.estimator.fitting import FirstPass
from daskclust.estimator.parameters import check_integer
from daskclust.estimator.restarts import draw_seeds
from daskclust.persistence.saveable import Saveable
from daskclust.persistence.schema import Array, Entry, Number, Plain
from daskclust.prototypes.state import PrototypeState, split
from daskclust.prototypes.views import Space, check_views

__all__ = ["BasePrototypes", "RowNodes"]

Float = NDArray[np.float64]

#: The number of prototypes is at most the number of rows by this.
_ROWS_A_PROTOTYPE = 10


class RowNodes:
    """Different rows that become nodes, in an order of their values.

    Parameters
    ----------
    x : ndarray of shape (m, p)
    weight : ndarray of shape (m,)
        Positive.

    Attributes
    ----------
    x : ndarray of shape (k, p)
        Each once.
    node : ndarray of shape (m,), int
        Node of each row.
    weight : ndarray of shape (k,)
    """

    def __init__(self, x: NDArray[Any], weight: Float) -> None:
        if len(x):
            self.x, self.node = np.unique(x, axis=0, return_inverse=True)
            self.node = self.node.ravel()
        else:
            self.x, self.node = x, np.empty(0, np.intp)
        sums = np.bincount(self.node, weights=weight, minlength=len(self.x))
        self.weight: Float = sums.astype(np.float64)

    def sums(self, values: Float) -> Float:
        """Add the values of equal rows: (m, c) to (k, c)."""
        out = np.zeros((len(self.x), values.shape[1]))
        np.add.at(out, self.node, values)
        return out


class BasePrototypes(Saveable, BaseEstimator):
    """Base of the estimators that work on prototypes."""

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "n_iter_": Number(int, low=0),
        "history_": Plain(list),
        "prototypes_": Array("m", "p"),
        "_units": Array("v", kind="b"),
        "_view_centers": Array("v", "p"),
        "_matrices": Array("v", "p", "q"),
    }
    #: Parameters that may differ where a checkpoint is continued.
    _resumes_with: ClassVar[tuple[str, ...]] = ()
    _synonyms: ClassVar[Mapping[str, Mapping[str, str]]] = {}

    checkpoint: Any
    n_neighbors: int
    n_prototypes: int
    random_state: Any
    views: Any

    def _check_parameters(self) -> None:
        check_integer(self.n_prototypes, "n_prototypes", 1)
        check_integer(self.n_neighbors, "n_neighbors", 1)
        if self.views != "auto":
            # Whether the data are a cube is not known yet; names are checked in any case.
            check_views(self.views, is_cube=True)

    def _check_features(self, n_features: int) -> None:
        """Nothing depends on the number of features."""

    def _first_pass(self, data: Data, read: Any) -> FirstPass:
        return FirstPass(draw_seeds(self.random_state, 1))

    def _count_prototypes(self, n_rows: int, least: int) -> int:
        """Return the number of prototypes: a tenth of the rows at most."""
        return min(int(self.n_prototypes), max(n_rows // _ROWS_A_PROTOTYPE, least), n_rows)

    def _keep_spaces(self, state: PrototypeState, spaces: list[Space]) -> None:
        """Set what all estimators on prototypes have."""
        self._units, self._view_centers = state.units, state.centers
        self._matrices = state.matrices
        parts = zip(split(state.prototypes, state.sizes), spaces, strict=True)
        self.prototypes_ = np.concatenate([space.restore(own) for own, space in parts])
        self.n_iter_ = int(state.n_iter)

    @property
    def _space(self) -> Space:
        return Space(self._units, self._view_centers, self._matrices)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what this estimator takes."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


def take_rows(rows: Rows, numbers: NDArray[np.int64]) -> tuple[NDArray[Any], Float]:
    """Fetch rows by (sorted, unique) number; no pass where there are none."""
    if not len(numbers):
        return np.empty((0, rows.n_features), rows.dtype), np.empty(0)
    return rows.take(numbers)
