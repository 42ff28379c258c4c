"""Leading eigenvectors of a kernel of explicit features, by the cheapest of three ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, qr

from daskclust.engine import Rows, Step
from daskclust.estimator.fitting import DataAlone
from daskclust.kernels.mixtures.densities import Mixtures
from daskclust.kernels.mixtures.ensemble import features
from daskclust.reduction.ensemble import GRAM, GRAM_KEPT, GramRequest

__all__ = ["SOLVERS", "Spectrum", "SpectrumState", "choose_solver", "random_basis"]

Float = NDArray[np.float64]

SOLVERS = ("auto", "gram", "kernel", "randomized")
#: Columns of the basis beyond those wanted.
OVERSAMPLING = 10
#: Most features for the Gram matrix, and most rows for the kernel matrix, on the client.
_MOST_FEATURES, _MOST_ROWS = 1000, 3000
#: Bytes of features that are kept between passes at most, whatever room there is.
_MOST_KEPT = 2**31
#: How much more work an exact answer is worth than power iterations.
_EXACT = 60.0
#: Work of an exponential and of the rest of a softmax, in multiply-adds.
_SOFTMAX_WORK = 30.0


@dataclass(frozen=True)
class SpectrumState:
    """The ensemble and what is known of its kernel's eigenvectors.

    Attributes
    ----------
    weights, means, covariances, sizes : ndarray
        Of the ensemble, as in :class:`daskclust.kernels.mixtures.densities.Mixtures`.
    basis : ndarray of shape (D, l), float64
        Orthonormal; the eigenvectors in feature space at the end.
    values : ndarray of shape (l,), float64
        Eigenvalues of the kernel matrix, largest first.
    n_iter : int
        Power iterations so far.
    """

    shapes: ClassVar[Mapping[str, str]] = {
        "weights": "f d",
        "means": "f d p",
        "covariances": "f d p | f d p p",
        "sizes": "i m",
        "basis": "f d l",
        "values": "f l",
        "n_iter": "i",
    }

    weights: Float
    means: Float
    covariances: Float
    sizes: NDArray[np.int64]
    basis: Float
    values: Float
    n_iter: int

    def __post_init__(self) -> None:
        if self.sizes.sum() != len(self.weights):
            # Kernels go through the components by these.
            raise ValueError(f"sizes sum to {self.sizes.sum()}, not {len(self.weights)}")

    @property
    def mixtures(self) -> Mixtures:
        """The ensemble."""
        return Mixtures(self.weights, self.means, self.covariances, tuple(self.sizes.tolist()))


def choose_solver(n: int, d: int, p: int, width: int, n_iter: int, kept: bool) -> str:
    """Choose the way of least work, exact ones preferred: n rows, d features, a basis of ``width``.

    Examples
    --------
    >>> choose_solver(1000, 13920, 500, 12, 4, True)
    'kernel'
    >>> choose_solver(3000, 13920, 20, 12, 4, True)
    'kernel'
    >>> choose_solver(10**6, 100, 20, 12, 4, False)
    'gram'
    >>> choose_solver(10**6, 13920, 20, 12, 4, False)
    'randomized'
    """
    made = n * d * (3.0 * p + _SOFTMAX_WORK)
    times = 1 if kept else n_iter + 1
    work = {"randomized": times * made + _EXACT * 2.0 * (n_iter + 1) * n * d * width}
    if d <= _MOST_FEATURES:
        work["gram"] = made + float(n) * d * d + 4.0 * d**3
    if n <= _MOST_ROWS:
        work["kernel"] = made + float(n) * n * d + 4.0 * n**3
    return min(work, key=lambda name: work[name])


def random_basis(d: int, width: int, seed: int) -> Float:
    """Return an orthonormal basis of a random subspace."""
    rng = np.random.Generator(np.random.Philox(seed))
    return np.asarray(qr(rng.standard_normal((d, width)), mode="economic")[0])


def _oriented(basis: Float) -> Float:
    """Turn each vector such that its largest entry is positive."""
    at = np.abs(basis).argmax(axis=0)
    return np.asarray(basis * np.where(basis[at, np.arange(basis.shape[1])] < 0, -1.0, 1.0))


def _leading(matrix: Float, count: int) -> tuple[Float, Float]:
    """Return the vectors of the largest eigenvalues, and these, none negative."""
    n = len(matrix)
    values, vectors = eigh(matrix, subset_by_index=[max(0, n - count), n - 1])
    return vectors[:, ::-1], np.maximum(values[::-1], 0.0)


@dataclass
class Spectrum(DataAlone):
    """The passes that find the eigenvectors; one :meth:`step` is one iteration.

    Parameters
    ----------
    rows : Rows
    shift : ndarray of shape (p,), float64
    solver : {"gram", "kernel", "randomized"}
    n_wanted : int
        Eigenvectors.
    n_iter : int
        Power iterations of ``"randomized"``.
    begin : callable() -> SpectrumState
        Trains the ensemble.
    kmeans_seed : int
        Of the clustering that follows.
    """

    kind: ClassVar[type[SpectrumState]] = SpectrumState

    rows: Rows
    shift: Float
    solver: str
    n_wanted: int
    n_iter: int
    begin: Callable[[], SpectrumState]
    kmeans_seed: int
    _carry: Any = None

    @property
    def max_iter(self) -> int:
        """Return one more than power iterations: the last turns the basis only."""
        return self.n_iter + 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the posteriors."""
        return np.dtype(np.float32 if self.solver == "randomized" else np.float64)

    def step(self, state: SpectrumState) -> Step[SpectrumState]:
        """Make one iteration: the only one, unless the solver is ``"randomized"``."""
        n_models = len(state.sizes)
        if self.solver == "randomized":
            return self._power(state, n_models)
        basis, values = (self._gram if self.solver == "gram" else self._kernel_matrix)(state)
        after = replace(state, basis=_oriented(basis), values=values / n_models, n_iter=1)
        return self._step(after, 0.0, True)

    def _step(self, state: SpectrumState, shift: float, finished: bool) -> Step[SpectrumState]:
        return Step(
            state,
            objective=float(state.values[: self.n_wanted].sum()),
            center_shift=shift,
            finished=finished,
            extra={"stage": "spectrum", "solver": self.solver},
        )

    def _request(self, state: SpectrumState, basis: Float | None) -> GramRequest:
        return GramRequest(state.mixtures, self.shift, basis, self.dtype)

    def _gram(self, state: SpectrumState) -> tuple[Float, Float]:
        matrix = self.rows.reduce(GRAM, self._request(state, None))
        return _leading(matrix, self.n_wanted)

    def _kernel_matrix(self, state: SpectrumState) -> tuple[Float, Float]:
        x = self.rows.take(np.arange(self.rows.n_rows))[0]
        phi = features(x, state.mixtures, self.shift)
        vectors, values = _leading(phi.T @ phi, self.n_wanted)
        basis = phi @ vectors
        length = np.linalg.norm(basis, axis=0)
        # Eigenvalues that are 0 have no direction in feature space.
        basis = np.divide(basis, length, out=np.zeros_like(basis), where=length > 1e-12 * length[0])
        return basis, values

    def _power(self, state: SpectrumState, n_models: int) -> Step[SpectrumState]:
        """One power iteration with QR, or the Rayleigh-Ritz step that ends them: one pass."""
        rows = self.rows
        size = self.dtype.itemsize * len(state.basis)
        room = rows.can_keep(size) and size * rows.n_rows <= _MOST_KEPT
        image, self._carry = rows.scan(
            GRAM_KEPT if room else GRAM, self._request(state, state.basis), self._carry
        )
        values, turn = eigh(state.basis.T @ image)
        values, turn = np.maximum(values[::-1], 0.0) / n_models, turn[:, ::-1]
        if state.n_iter == self.n_iter:
            # Only now: the sums of a pass are those of its basis.
            basis = _oriented(state.basis @ turn[:, : self.n_wanted])
            self._carry = None
            after = replace(state, basis=basis, values=values[: self.n_wanted])
            return self._step(after, 0.0, True)
        basis = qr(image @ turn, mode="economic")[0]
        lead = state.basis @ turn[:, : self.n_wanted]
        # Sine of the largest angle between the leading directions before and after.
        sine = float(np.linalg.norm(lead - basis @ (basis.T @ lead), 2))
        after = replace(state, basis=basis, values=values, n_iter=state.n_iter + 1)
        return self._step(after, sine, False)
