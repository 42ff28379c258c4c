"""The members of PCKID: mixtures of different sizes, each trained on rows of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from daskclust._types import Array, Floats
from daskclust.engine import Rows, map_independent
from daskclust.kernels.blas import one_blas_thread
from daskclust.kernels.mixtures.densities import Mixtures, stack_models
from daskclust.kernels.mixtures.expectation import RepeatedRows, accumulate_start
from daskclust.kernels.nearest.assign import nearest
from daskclust.mixture._em import Floor, maximize, maximize_start

#: Batches of members whose training a checkpoint keeps, and the least that are in one.
_BATCHES, _LEAST_BATCH = 10, 4


@dataclass(frozen=True)
class Pool:
    """Rows that members are trained on.

    Parameters
    ----------
    x : ndarray of shape (m, p), float32 or float64
        NaN where a value is missing; rows without any value are left out.
    mean : ndarray of shape (p,), float64
        Of the columns of all data: stands for missing values at the start.
    """

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
    """Train one member: the start of Section 3.1 of the paper, then EM (Algorithm 1).

    Missing values are the columns' means for the start only.  Rows drawn at random
    are the centers of one k-means iteration; the clusters' means, covariances and
    shares are the first parameters.
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


def train_members(X: Any, rows: Rows, pool: Pool, members: list[Member]) -> Mixtures:
    """Train all members, a task each, where the passes over X run; return them as one stack.

    Where a checkpoint keeps what is trained, in a few batches, of which a later process
    trains only those that are missing; at the end of each, some workers wait for others.
    """
    size = len(members)
    if rows.log is not None:
        size = max(_LEAST_BATCH, -(-len(members) // _BATCHES))
    batches = [members[at : at + size] for at in range(0, len(members), size)]
    return stack_models([_train_batch(X, rows, pool, batch) for batch in batches])


def _train_batch(X: Any, rows: Rows, pool: Pool, members: list[Member]) -> Mixtures:
    def make() -> dict[str, Array]:
        return stack_models(map_independent(X, "member", train_member, pool, members)).arrays

    sizes = tuple(member.size for member in members)
    d, p = sum(sizes), rows.n_features
    shapes = {
        "weights": (d,),
        "means": (d, p),
        "covariances": (d, p, p) if members[0].full else (d, p),
    }
    question = ["members", [list(member) for member in members]]
    return Mixtures(**rows.kept(question, make, shapes), sizes=sizes)
