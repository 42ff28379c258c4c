"""Ensemble of PCKID, and the leading eigenvectors of its kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg import eigh, qr, svd

from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.engine import Carry, Rows, map_independent, open_rows
from daskclust.core.engine.checkpoint import saved_stage, saves_stages
from daskclust.core.estimator.fit_loop import DataAlone, Step
from daskclust.core.kernels.blas import one_blas_thread
from daskclust.core.kernels.nearest.assign import nearest
from daskclust.mixture._em import Floor, maximize, maximize_initial
from daskclust.mixture.densities import Mixtures, stack_models
from daskclust.mixture.expectation import RepeatedRows, accumulate_initial, features
from daskclust.mixture.reductions import GRAM, GRAM_STORED, GramRequest

#: Number of batches of members, and minimum number of members per batch.  A checkpoint is written
#: after each batch.
_BATCHES, _MIN_BATCH = 10, 4


@dataclass(frozen=True)
class Pool:
    """Rows that train the members.  The initialization replaces missing values by `mean`."""

    x: Array
    mean: Floats
    floor: Floor


class Member(NamedTuple):
    """Member of the ensemble: number of components, seed, and parameters of the training."""

    size: int
    seed: int
    n_rows: int
    em_iter: int
    full: bool


def draw_pool(rows: Rows, count: int, seed: int, mean: Floats, floor: Floor) -> Pool:
    """Draw rows by row number, and drop rows without any value."""
    if count >= rows.n_rows:
        numbers = np.arange(rows.n_rows)
    else:
        rng = np.random.Generator(np.random.Philox(seed))
        numbers = np.sort(rng.choice(rows.n_rows, count, replace=False))
    x = rows.take(numbers)[0]
    return Pool(x[~np.isnan(x).all(axis=1)], mean, floor)


def train_member(pool: Pool, member: Member) -> Mixtures:
    """Train a member: one k-means iteration from random rows (Section 3.1), then Algorithm 1.

    Missing values are replaced by column means only in the k-means iteration.
    """
    rng = np.random.Generator(np.random.Philox(member.seed))
    x = pool.x[np.sort(rng.choice(len(pool.x), member.n_rows, replace=False))]
    filled = np.where(np.isnan(x), pool.mean.astype(x.dtype), x)
    centers = filled[rng.choice(len(x), member.size, replace=False)].astype(np.float64)
    labels = nearest(filled, centers)[0]
    resp = (labels == np.arange(member.size)[:, None]).astype(np.float64)
    high, low = accumulate_initial(filled, resp, centers, pool.mean, full=member.full)
    origin = centers if member.full else np.broadcast_to(pool.mean, centers.shape)
    mixtures = maximize_initial(high + low, origin, pool.mean, pool.floor, full=member.full)
    # One context for all iterations, because entering it takes longer than a short iteration.
    with one_blas_thread():
        rows = RepeatedRows(x, pool.mean)
        for _ in range(member.em_iter):
            mixtures = maximize(rows.sums(mixtures), mixtures, pool.mean, pool.floor)
    return mixtures


@dataclass(frozen=True)
class _Trained:
    """Parameters of some members, concatenated."""

    weights: Annotated[Floats, "f d"]
    means: Annotated[Floats, "f d p"]
    covariances: Annotated[Floats, "f d p | d p p"]


def train_members(X: Any, rows: Rows, pool: Pool, members: list[Member]) -> Mixtures:
    """Train each member in a task on the workers that hold X; return all members.

    With a checkpoint, members are saved in a few batches, and a fit that resumes trains only the
    missing batches.
    """
    size = len(members)
    if saves_stages():
        size = max(_MIN_BATCH, -(-len(members) // _BATCHES))
    trained = []
    for first in range(0, len(members), size):
        batch = members[first : first + size]

        def train_batch(batch: list[Member] = batch) -> _Trained:
            stack = stack_models(map_independent(X, "member", train_member, pool, batch))
            return _Trained(**stack.arrays)

        d = sum(member.size for member in batch)
        parameters = saved_stage(
            f"members from {first}", _Trained, train_batch, d=d, p=rows.n_features
        )
        trained.append(Mixtures(**vars(parameters), sizes=tuple(member.size for member in batch)))
    return stack_models(trained)


SOLVERS = ("auto", "gram", "kernel", "randomized")
#: Number of columns of the basis beyond the number of eigenvectors.
OVERSAMPLING = 10
#: Maximum number of features for the Gram matrix, and of rows for the kernel matrix.
_MOST_FEATURES, _MOST_ROWS = 1000, 3000
#: Maximum bytes of features stored between passes.
_MAX_STORED = 2**31
#: Power iterations end when the sine of the estimated remaining rotation of the leading
#: eigenvectors is below this number.
_MAX_ROTATION = 1e-3
#: For the initial basis: maximum number of rows of the pool, maximum number of power iterations,
#: and the sine at which they end.  The rows outside the pool have a larger effect.
_POOL_ROWS, _POOL_ITERATIONS, _MAX_POOL_ROTATION = 2**15, 30, 1e-4
#: Minimum eigenvalue as a fraction of the largest one, by bytes of the type.  Smaller eigenvalues
#: are noise.
_MIN_EIGENVALUE = {4: 1e-7, 8: 1e-13}
#: Factor on the estimated work of power iterations, so that an exact solver is preferred.
_INEXACT_FACTOR = 60.0
#: Work of an exponential and of the rest of a softmax, in multiply-adds.
_SOFTMAX_WORK = 30.0


@dataclass(frozen=True)
class SpectrumState:
    """Ensemble, and the current eigenvectors of its kernel.

    ``basis`` (D, l) is orthonormal.  At the end, its columns are the eigenvectors in feature space.
    ``values`` (l,) are eigenvalues of the kernel matrix, largest first.  ``n_iter`` is the number
    of completed power iterations.
    """

    weights: Annotated[Floats, "f d"]
    means: Annotated[Floats, "f d p"]
    covariances: Annotated[Floats, "f d p | d p p"]
    sizes: Annotated[Ints, "i m"]
    basis: Annotated[Floats, "f d l"]
    values: Annotated[Floats, "f l"]
    n_iter: Annotated[int, "i"]

    def __post_init__(self) -> None:
        if self.sizes.sum() != len(self.weights):
            # Kernels compute indices of components from the sizes.
            raise ValueError(f"sizes sum to {self.sizes.sum()}, not {len(self.weights)}")

    @property
    def mixtures(self) -> Mixtures:
        return Mixtures(self.weights, self.means, self.covariances, tuple(self.sizes.tolist()))


def choose_solver(n: int, d: int, p: int, width: int, n_iter: int, stored: bool) -> str:
    """Choose the solver with the least work.  ``width`` is the number of columns of the basis."""
    posterior_work = n * d * (3.0 * p + _SOFTMAX_WORK)
    n_evaluations = 1 if stored else n_iter
    work = {
        "randomized": n_evaluations * posterior_work
        + _INEXACT_FACTOR * 2.0 * n_iter * n * d * width
    }
    if d <= _MOST_FEATURES:
        work["gram"] = posterior_work + float(n) * d * d + 4.0 * d**3
    if n <= _MOST_ROWS:
        work["kernel"] = posterior_work + float(n) * n * d + 4.0 * n**3
    return min(work, key=lambda name: work[name])


def pool_basis(
    x: Array, mixtures: Mixtures, shift: Floats, n_vectors: int, width: int, seed: int
) -> Floats:
    """Compute the initial basis (D, width) by power iterations on rows of the pool."""
    rows, dtype = open_rows(x[:: -(-len(x) // _POOL_ROWS)]), np.dtype(np.float32)
    rng = np.random.Generator(np.random.Philox(seed))
    normal = rng.standard_normal((len(mixtures.weights), width))
    basis = np.asarray(qr(normal, mode="economic")[0])
    for _ in range(_POOL_ITERATIONS):
        image = rows.reduce(GRAM, GramRequest(mixtures, shift, basis, dtype))
        basis, _, _, remaining = _power_iteration(basis, image, n_vectors)
        if remaining <= _MAX_POOL_ROTATION:
            break
    return basis


def _power_iteration(
    basis: Floats, image: Floats, n_vectors: int
) -> tuple[Floats, Floats, float, float]:
    """Compute a power iteration from ``image``, the product of the matrix and the basis.

    Returns the next basis, the Ritz values of this basis (largest first), the sine of the largest
    rotation angle of the ``n_vectors`` leading directions, and an estimate of the remaining
    rotation.  Each iteration reduces the rotation by a factor of at most a / b.  Here a is the last
    Ritz value, and b is the Ritz value of the last leading direction.
    """
    core = basis.T @ image
    values, rotation = eigh((core + core.T) / 2.0)
    values, rotation = np.maximum(values[::-1], 0.0), rotation[:, ::-1]
    next_basis = qr(image @ rotation, mode="economic")[0]
    leading = basis @ rotation[:, :n_vectors]
    sine = float(np.linalg.norm(leading - next_basis @ (next_basis.T @ leading), 2))
    last_value = values[n_vectors - 1]
    return (
        next_basis,
        values,
        sine,
        sine * float(values[-1] / last_value) if last_value > 0 else sine,
    )


def _eigenpairs(
    basis: Floats, image: Floats, count: int, min_ratio: float
) -> tuple[Floats, Floats]:
    """Return the leading eigenvectors and eigenvalues of a matrix from its product with a basis.

    They are eigenvectors of the Nystrom approximation ``Y (B' Y)^-1 Y'`` (Tropp et al. 2017), where
    B is the basis and Y the product.  They are as accurate as after another power iteration, which
    would take another pass.
    """
    core = basis.T @ image
    values, rotation = eigh((core + core.T) / 2.0)
    used = values > min_ratio * values[-1]
    if used.sum() < count:
        # The rank is too low, so some of the directions are arbitrary and have eigenvalue 0.
        return basis @ rotation[:, ::-1][:, :count], np.maximum(values[::-1][:count], 0.0)
    vectors, singular_values, _ = svd(
        image @ rotation[:, used] / np.sqrt(values[used]), full_matrices=False
    )
    return vectors[:, :count], singular_values[:count] ** 2


def _oriented(basis: Floats) -> Floats:
    """Flip vectors whose entry of largest absolute value is negative."""
    largest = np.abs(basis).argmax(axis=0)
    return np.asarray(basis * np.where(basis[largest, np.arange(basis.shape[1])] < 0, -1.0, 1.0))


def _leading(matrix: Floats, count: int) -> tuple[Floats, Floats]:
    """Return the leading eigenvectors and eigenvalues of a positive semidefinite matrix."""
    n = len(matrix)
    values, vectors = eigh(matrix, subset_by_index=[max(0, n - count), n - 1])
    return vectors[:, ::-1], np.maximum(values[::-1], 0.0)


@dataclass
class Spectrum(DataAlone):
    """Computation of ``n_vectors`` eigenvectors; each :meth:`step` is one iteration.

    ``n_iter`` is the maximum number of power iterations for ``"randomized"``.  ``begin`` trains the
    ensemble.  ``kmeans_seed`` is the seed of the k-means in the embedding.
    """

    kind: ClassVar[type[SpectrumState]] = SpectrumState

    rows: Rows
    shift: Floats
    solver: str
    n_vectors: int
    n_iter: int
    begin: Callable[[], SpectrumState]
    kmeans_seed: int
    _carry: Carry = field(default_factory=Carry)

    @property
    def max_iter(self) -> int:
        return self.n_iter

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32 if self.solver == "randomized" else np.float64)

    def step(self, state: SpectrumState) -> Step[SpectrumState]:
        """Run one iteration.  ``"gram"`` and ``"kernel"`` need only one."""
        n_models = len(state.sizes)
        if self.solver == "randomized":
            return self._power(state, n_models)
        if self.solver == "gram":
            matrix = self.rows.reduce(GRAM, self._request(state, None))
            basis, values = _leading(matrix, self.n_vectors)
        else:
            basis, values = self._kernel_matrix(state)
        new_state = replace(state, basis=_oriented(basis), values=values / n_models, n_iter=1)
        return self._step(new_state, 0.0, True)

    def _step(self, state: SpectrumState, shift: float, finished: bool) -> Step[SpectrumState]:
        return Step(
            state,
            objective=float(state.values[: self.n_vectors].sum()),
            center_shift=shift,
            finished=finished,
            extra={"stage": "spectrum", "solver": self.solver},
        )

    def _request(self, state: SpectrumState, basis: Floats | None) -> GramRequest:
        return GramRequest(state.mixtures, self.shift, basis, self.dtype)

    def _kernel_matrix(self, state: SpectrumState) -> tuple[Floats, Floats]:
        x = self.rows.take(np.arange(self.rows.n_rows))[0]
        phi = features(x, state.mixtures, self.shift)
        vectors, values = _leading(phi.T @ phi, self.n_vectors)
        basis = phi @ vectors
        length = np.linalg.norm(basis, axis=0)
        # Eigenvectors with eigenvalue 0 have no direction in feature space.
        basis = np.divide(basis, length, out=np.zeros_like(basis), where=length > 1e-12 * length[0])
        return basis, values

    def _power(self, state: SpectrumState, n_models: int) -> Step[SpectrumState]:
        """Run a power iteration in one pass; the last iteration computes the eigenvectors."""
        rows = self.rows
        size = self.dtype.itemsize * len(state.basis)
        can_store = rows.can_keep(size) and size * rows.n_rows <= _MAX_STORED
        image = rows.reduce(
            GRAM_STORED if can_store else GRAM, self._request(state, state.basis), self._carry
        )
        basis, values, sine, remaining = _power_iteration(state.basis, image, self.n_vectors)
        finished = remaining <= _MAX_ROTATION or state.n_iter + 1 == self.n_iter
        if finished:
            self._carry = Carry()
            min_ratio = _MIN_EIGENVALUE[self.dtype.itemsize]
            basis, values = _eigenpairs(state.basis, image, self.n_vectors, min_ratio)
            basis = _oriented(basis)
        new_state = replace(state, basis=basis, values=values / n_models, n_iter=state.n_iter + 1)
        return self._step(new_state, sine, finished)
