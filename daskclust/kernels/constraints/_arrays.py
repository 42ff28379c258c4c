"""Arguments and results of the constraint kernels, as arrays for compiled code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from daskclust._types import Array, Bools, Floats, Ints

__all__ = [
    "Bools",
    "Floats",
    "Ints",
    "Penalty",
    "Violations",
    "as_bools",
    "as_floats",
    "as_ints",
    "as_rows",
    "check_penalty",
]


Penalty = Literal["distance", "constant"]


def as_rows(x: ArrayLike) -> Array:
    """``x`` as a C-contiguous float32 or float64 matrix; copied only when it is not one."""
    array = np.asarray(x)
    if array.dtype != np.float32:
        array = array.astype(np.float64, copy=False)
    return np.ascontiguousarray(array)


def as_ints(values: ArrayLike) -> Ints:
    return np.ascontiguousarray(values, dtype=np.int64)


def as_floats(values: ArrayLike) -> Floats:
    return np.ascontiguousarray(values, dtype=np.float64)


def as_bools(values: ArrayLike) -> Bools:
    return np.ascontiguousarray(values, dtype=np.bool_)


def check_penalty(penalty: str) -> None:
    if penalty not in ("distance", "constant"):
        raise ValueError(f"penalty={penalty!r}; expected 'distance' or 'constant'.")


@dataclass(frozen=True, eq=False)
class Violations:
    """Violations of a labeling, each violated pair once, times its weight.

    Totals of explicit and implied pairs are added with ``+``.

    Attributes
    ----------
    must_link : float64 array of shape (p,)
        ``sum (x - x')_j^2`` over violated must-links: f of Eq. 15, by feature and
        without feature weights.
    cannot_link : float64 array of shape (p,)
        ``sum (Delta_j^2 - (x - x')_j^2)`` over violated cannot-links: f-bar.
    must_link_mass, cannot_link_mass : float
        Sum of the weights of the violated pairs.
    n_must_link, n_cannot_link : int
        Number of violated pairs.
    """

    must_link: Floats
    cannot_link: Floats
    must_link_mass: float
    cannot_link_mass: float
    n_must_link: int
    n_cannot_link: int

    def __add__(self, other: Violations) -> Violations:
        """Totals over both sets of pairs."""
        return Violations(
            self.must_link + other.must_link,
            self.cannot_link + other.cannot_link,
            self.must_link_mass + other.must_link_mass,
            self.cannot_link_mass + other.cannot_link_mass,
            self.n_must_link + other.n_must_link,
            self.n_cannot_link + other.n_cannot_link,
        )

    @property
    def feature_sums(self) -> Floats:
        """The term that Eq. 15 subtracts from gamma, and Eq. 12 adds to the WCSS; shape (p,)."""
        return self.must_link + self.cannot_link

    def objective(self, weights: ArrayLike, *, penalty: Penalty = "distance") -> float:
        """Penalty part of the objective (Eq. 8, 10, 13) under feature weights (p,)."""
        check_penalty(penalty)
        if penalty == "constant":
            return self.must_link_mass + self.cannot_link_mass
        return float(np.sum(as_floats(weights) * self.feature_sums))
