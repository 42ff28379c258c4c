"""The ensemble of PCKID, and the leading eigenvectors of its kernel."""

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
from daskclust.mixture._em import Floor, maximize, maximize_start
from daskclust.mixture.densities import Mixtures, stack_models
from daskclust.mixture.expectation import RepeatedRows, accumulate_start, features
from daskclust.mixture.reductions import GRAM, GRAM_KEPT, GramRequest

#: Batches of members whose training a checkpoint keeps, and the least that are in one.
_BATCHES, _LEAST_BATCH = 10, 4


@dataclass(frozen=True)
class Pool:
    """Rows with any value that members are trained on; the columns' means stand in at the start."""

    x: Array
    mean: Floats
    floor: Floor


class Member(NamedTuple):
    """A member of the ensemble: its number of components, its seed, and its training."""

    size: int
    seed: int
    n_rows: int
    em_iter: int
    full: bool


def draw_pool(rows: Rows, count: int, seed: int, mean: Floats, floor: Floor) -> Pool:
    """Fetch rows drawn uniformly, by their numbers: the same whatever the chunks."""
    if count >= rows.n_rows:
        numbers = np.arange(rows.n_rows)
    else:
        rng = np.random.Generator(np.random.Philox(seed))
        numbers = np.sort(rng.choice(rows.n_rows, count, replace=False))
    x = rows.take(numbers)[0]
    return Pool(x[~np.isnan(x).all(axis=1)], mean, floor)


def train_member(pool: Pool, member: Member) -> Mixtures:
    """Train one member: one k-means iteration from random rows (Section 3.1), then Algorithm 1.

    Missing values are the columns' means for the start only.
    """
    rng = np.random.Generator(np.random.Philox(member.seed))
    x = pool.x[np.sort(rng.choice(len(pool.x), member.n_rows, replace=False))]
    filled = np.where(np.isnan(x), pool.mean.astype(x.dtype), x)
    centers = filled[rng.choice(len(x), member.size, replace=False)].astype(np.float64)
    labels = nearest(filled, centers)[0]
    shares = (labels == np.arange(member.size)[:, None]).astype(np.float64)
    high, low = accumulate_start(filled, shares, centers, pool.mean, full=member.full)
    origin = centers if member.full else np.broadcast_to(pool.mean, centers.shape)
    mixtures = maximize_start(high + low, origin, pool.mean, pool.floor, full=member.full)
    # Once for all iterations: many are short.
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
    """Train each member in a task, where the passes over X run; return them as one stack.

    With a checkpoint, members are trained and saved in a few batches, and an interrupted fit trains
    only the missing batches.
    """
    size = len(members)
    if saves_stages():
        size = max(_LEAST_BATCH, -(-len(members) // _BATCHES))
    trained = []
    for at in range(0, len(members), size):
        batch = members[at : at + size]

        def make(batch: list[Member] = batch) -> _Trained:
            stack = stack_models(map_independent(X, "member", train_member, pool, batch))
            return _Trained(**stack.arrays)

        d = sum(member.size for member in batch)
        found = saved_stage(f"members from {at}", _Trained, make, d=d, p=rows.n_features)
        trained.append(Mixtures(**vars(found), sizes=tuple(member.size for member in batch)))
    return stack_models(trained)


SOLVERS = ("auto", "gram", "kernel", "randomized")
#: Columns of the basis beyond those wanted.
OVERSAMPLING = 10
#: Most features for the Gram matrix, and most rows for the kernel matrix, on the client.
_MOST_FEATURES, _MOST_ROWS = 1000, 3000
#: Bytes of features that are kept between passes at most, whatever room there is.
_MOST_KEPT = 2**31
#: Turn of the leading eigenvectors, as a sine, that may be left when power iterations end.
_TURN = 1e-3
#: Rows of the pool that are looked at first, power iterations on them, and the turn that may be
#: left by these: below what other rows bring.
_POOL_ROWS, _ON_POOL, _TURN_ON_POOL = 2**15, 30, 1e-4
#: Eigenvalues over the largest that single and double precision can tell from nothing.
_NOTHING = {4: 1e-7, 8: 1e-13}
#: How much more work an exact answer is worth than power iterations.
_EXACT = 60.0
#: Work of an exponential and of the rest of a softmax, in multiply-adds.
_SOFTMAX_WORK = 30.0


@dataclass(frozen=True)
class SpectrumState:
    """The ensemble and what is known of its kernel's eigenvectors.

    ``basis`` (D, l) is orthonormal, the eigenvectors in feature space at the end; ``values`` (l,)
    are eigenvalues of the kernel matrix, largest first; ``n_iter`` counts power iterations so far.
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
            # Kernels go through the components by these.
            raise ValueError(f"sizes sum to {self.sizes.sum()}, not {len(self.weights)}")

    @property
    def mixtures(self) -> Mixtures:
        return Mixtures(self.weights, self.means, self.covariances, tuple(self.sizes.tolist()))


def choose_solver(n: int, d: int, p: int, width: int, n_iter: int, kept: bool) -> str:
    """Choose the way of least work, exact ones preferred, for a basis of ``width``."""
    made = n * d * (3.0 * p + _SOFTMAX_WORK)
    times = 1 if kept else n_iter
    work = {"randomized": times * made + _EXACT * 2.0 * n_iter * n * d * width}
    if d <= _MOST_FEATURES:
        work["gram"] = made + float(n) * d * d + 4.0 * d**3
    if n <= _MOST_ROWS:
        work["kernel"] = made + float(n) * n * d + 4.0 * n**3
    return min(work, key=lambda name: work[name])


def pool_basis(
    x: Array, mixtures: Mixtures, shift: Floats, n_wanted: int, width: int, seed: int
) -> Floats:
    """Find the basis (D, width) from which power iterations on all rows begin, by some on a few."""
    rows, dtype = open_rows(x[:: -(-len(x) // _POOL_ROWS)]), np.dtype(np.float32)
    draws = np.random.Generator(np.random.Philox(seed))
    drawn = draws.standard_normal((len(mixtures.weights), width))
    basis = np.asarray(qr(drawn, mode="economic")[0])
    for _ in range(_ON_POOL):
        image = rows.reduce(GRAM, GramRequest(mixtures, shift, basis, dtype))
        basis, _, _, left = _turned(basis, image, n_wanted)
        if left <= _TURN_ON_POOL:
            break
    return basis


def _turned(basis: Floats, image: Floats, n_wanted: int) -> tuple[Floats, Floats, float, float]:
    """Make a power iteration, of ``image``, the matrix times the basis.

    Returns the next basis, the Ritz values of this one (largest first), the sine of the largest
    angle by which the leading directions turn, and an estimate of what is left of it: iterations
    shrink it by the ratio of the first value beyond the basis, at most the last Ritz value, to the
    last one that is wanted.
    """
    core = basis.T @ image
    values, turn = eigh((core + core.T) / 2.0)
    values, turn = np.maximum(values[::-1], 0.0), turn[:, ::-1]
    following = qr(image @ turn, mode="economic")[0]
    lead = basis @ turn[:, :n_wanted]
    sine = float(np.linalg.norm(lead - following @ (following.T @ lead), 2))
    last = values[n_wanted - 1]
    return following, values, sine, sine * float(values[-1] / last) if last > 0 else sine


def _eigenpairs(basis: Floats, image: Floats, count: int, least: float) -> tuple[Floats, Floats]:
    """Return the leading eigenvectors and values of a matrix, by its product with a basis.

    Those of its Nystrom approximation ``Y (B' Y)^-1 Y'`` (Tropp et al. 2017), with Y the product:
    they lie in the span of Y, as after one more power iteration, and take no further pass.
    """
    core = basis.T @ image
    values, turn = eigh((core + core.T) / 2.0)
    used = values > least * values[-1]
    if used.sum() < count:
        # Fewer directions than wanted: any others complete them, with the eigenvalue 0.
        return basis @ turn[:, ::-1][:, :count], np.maximum(values[::-1][:count], 0.0)
    vectors, lengths, _ = svd(image @ turn[:, used] / np.sqrt(values[used]), full_matrices=False)
    return vectors[:, :count], lengths[:count] ** 2


def _oriented(basis: Floats) -> Floats:
    """Turn each vector such that its largest entry is positive."""
    at = np.abs(basis).argmax(axis=0)
    return np.asarray(basis * np.where(basis[at, np.arange(basis.shape[1])] < 0, -1.0, 1.0))


def _leading(matrix: Floats, count: int) -> tuple[Floats, Floats]:
    """Return the vectors of the largest eigenvalues, and these, none negative."""
    n = len(matrix)
    values, vectors = eigh(matrix, subset_by_index=[max(0, n - count), n - 1])
    return vectors[:, ::-1], np.maximum(values[::-1], 0.0)


@dataclass
class Spectrum(DataAlone):
    """The passes that find ``n_wanted`` eigenvectors; one :meth:`step` is one iteration.

    ``n_iter`` are power iterations of ``"randomized"`` at most; ``begin`` trains the ensemble;
    ``kmeans_seed`` is that of the clustering that follows.
    """

    kind: ClassVar[type[SpectrumState]] = SpectrumState

    rows: Rows
    shift: Floats
    solver: str
    n_wanted: int
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
        """Make one iteration: the only one, unless the solver is ``"randomized"``."""
        n_models = len(state.sizes)
        if self.solver == "randomized":
            return self._power(state, n_models)
        if self.solver == "gram":
            matrix = self.rows.reduce(GRAM, self._request(state, None))
            basis, values = _leading(matrix, self.n_wanted)
        else:
            basis, values = self._kernel_matrix(state)
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

    def _request(self, state: SpectrumState, basis: Floats | None) -> GramRequest:
        return GramRequest(state.mixtures, self.shift, basis, self.dtype)

    def _kernel_matrix(self, state: SpectrumState) -> tuple[Floats, Floats]:
        x = self.rows.take(np.arange(self.rows.n_rows))[0]
        phi = features(x, state.mixtures, self.shift)
        vectors, values = _leading(phi.T @ phi, self.n_wanted)
        basis = phi @ vectors
        length = np.linalg.norm(basis, axis=0)
        # Eigenvalues that are 0 have no direction in feature space.
        basis = np.divide(basis, length, out=np.zeros_like(basis), where=length > 1e-12 * length[0])
        return basis, values

    def _power(self, state: SpectrumState, n_models: int) -> Step[SpectrumState]:
        """One power iteration with QR; the last also finds the eigenvectors.  One pass."""
        rows = self.rows
        size = self.dtype.itemsize * len(state.basis)
        room = rows.can_keep(size) and size * rows.n_rows <= _MOST_KEPT
        image = rows.reduce(
            GRAM_KEPT if room else GRAM, self._request(state, state.basis), self._carry
        )
        basis, values, sine, left = _turned(state.basis, image, self.n_wanted)
        finished = left <= _TURN or state.n_iter + 1 == self.n_iter
        if finished:
            self._carry = Carry()
            least = _NOTHING[self.dtype.itemsize]
            basis, values = _eigenpairs(state.basis, image, self.n_wanted, least)
            basis = _oriented(basis)
        after = replace(state, basis=basis, values=values / n_models, n_iter=state.n_iter + 1)
        return self._step(after, sine, finished)
