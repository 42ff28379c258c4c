"""Problem and state of a fit on prototypes: views, prototypes, and counts of edges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import zip_longest
from typing import Annotated, Any

import numpy as np

from daskclust.cluster.lloyd import MIN_CACHED_COORDINATES, MIN_CACHED_FEATURES
from daskclust.core.array_types import Array, Floats, Ints
from daskclust.core.engine import Rows, open_rows, side_by_side
from daskclust.core.engine.checkpoint import saved_stage
from daskclust.core.engine.threads import cpu_threads, threads_pay
from daskclust.core.estimator.fit_loop import Step
from daskclust.core.initialization.steps import relocate_empty
from daskclust.core.kernels.compensated import add_pairs
from daskclust.core.kernels.draws import draw_apart
from daskclust.core.kernels.nearest.assign import SEGMENT, accumulate
from daskclust.core.kernels.nearest.bounds import Kept, Moves, accumulate_kept, moves_of
from daskclust.core.kernels.pair_counts import PairCounts
from daskclust.core.kernels.rng import draw_numbers
from daskclust.core.reduction import Clusters
from daskclust.core.reduction.connectivity import (
    CONNECTIVITY,
    Connections,
    Connectivity,
    merge_connections,
)
from daskclust.core.reduction.contract import RowBlock
from daskclust.semisupervised.feature_views import (
    MISSING_VALUE_VIEWS,
    Completion,
    SampleRows,
    Space,
    View,
    find_completions,
    find_views,
)

#: Number of rows of the sample, or this number per prototype if that is more.
SAMPLE_ROWS, ROWS_PER_PROTOTYPE = 2**16, 64
#: Number of rows that are counted for the graph, or this number per prototype if that is more.
COUNTED_ROWS, COUNTED_PER_PROTOTYPE = 2**18, 256
#: Minimum number of rows of the data per prototype.
_MIN_ROWS = 10
#: Number of prototypes for 200 to 500 rows, and number of rows per prototype for 100 to 200 rows.
_FEW_PROTOTYPES, _FEWEST_ROWS = 50, 4
#: Tolerance of k-means: squared shift of all prototypes, as a fraction of the mean variance.
_TOLERANCE = 1e-4


def count_prototypes(wanted: int, n_rows: int) -> int:
    """Return the number of prototypes, at most a tenth of the rows.

    For 100 to 500 rows the limit is 50 instead, and at most a fourth of the rows.

    >>> count_prototypes(400, 200), count_prototypes(400, 100), count_prototypes(400, 1000)
    (50, 25, 100)
    """
    few = min(n_rows // _FEWEST_ROWS, _FEW_PROTOTYPES) if n_rows >= 100 else 0
    return min(wanted, max(n_rows // _MIN_ROWS, few, 2), n_rows)


def sample_size(n_prototypes: int) -> int:
    """Return the number of rows of a sample for prototypes."""
    return max(SAMPLE_ROWS, ROWS_PER_PROTOTYPE * n_prototypes)


def draw_sample(rows: Rows, cube: Any, n_prototypes: int, seed: int) -> SampleRows:
    """Draw rows for prototypes; from a cube pixels, and neighbors of some of them.  One pass.

    The sample of a cube ignores sample weights, because views and prototypes need no exact weights.
    """
    count = sample_size(n_prototypes)
    if cube is not None:
        x, neighbors = cube.sample_pixels(count, seed)
        return SampleRows(x, np.ones(len(x)), neighbors)
    values, weight = rows.take(draw_numbers(rows.n_rows, count, seed))
    is_present = weight > 0
    if not is_present.any():
        raise ValueError(
            f"sample_weight must be positive for some of the {len(weight)} rows of the sample, got "
            "0 for all. Remove rows of weight 0."
        )
    return SampleRows(values[is_present], weight[is_present])


@dataclass
class _Part:
    """Rows that one thread compares with centers, and their cache from the last iteration."""

    x: Array
    weight: Floats
    kept: Kept | None = None

    def sums(self, centers: Floats, shift: Floats, moves: Moves | None) -> tuple[Floats, Floats]:
        ends = np.append(np.arange(SEGMENT, len(self.x), SEGMENT), len(self.x))
        options: Any = {"weight": self.weight, "shift": shift, "segments": ends}
        if centers.shape[1] < MIN_CACHED_FEATURES or centers.size < MIN_CACHED_COORDINATES:
            return accumulate(self.x, centers, **options)
        statistics, self.kept = accumulate_kept(
            self.x, centers, kept=self.kept, moves=moves, **options
        )
        return statistics


@dataclass(frozen=True)
class Prototypes:
    """Prototypes of one space, and the number of k-means iterations."""

    centers: Annotated[Floats, "f m q"]
    n_iter: Annotated[int, "i"]


def find_prototypes(z: Floats, weight: Floats, count: int, max_iter: int, seed: int) -> Prototypes:
    """Find up to ``count`` different prototypes by k-means++ and Lloyd's algorithm.

    The prototypes are sorted lexicographically.  The initialization and each of the ``n_iter``
    iterations take O(m k q) time.  If there are at most ``count`` rows, these are the prototypes.
    """
    if len(z) <= count:
        return Prototypes(np.unique(z, axis=0), 0)
    uniforms = np.random.Generator(np.random.Philox(seed)).random(min(count, len(z)))
    # The sample is in memory, so k-means++ is faster than k-means||.
    centers = z[draw_apart(z, weight, len(uniforms), uniforms)]
    # Single precision suffices, because prototypes need no exact position.
    x = np.ascontiguousarray(z, dtype=np.float32)
    mean = weight @ x / weight.sum()
    tolerance = _TOLERANCE * float(weight @ ((x - mean) ** 2).mean(axis=1) / weight.sum())
    n_parts = cpu_threads() if threads_pay(*x.shape) else 1
    # Threads process whole segments of the sums, so that the result is the same for any number.
    size = -(-len(x) // (n_parts * SEGMENT)) * SEGMENT
    parts = [_Part(x[s : s + size], weight[s : s + size]) for s in range(0, len(x), size)]
    zeros = np.zeros((len(centers), x.shape[1] + 2))
    moves, n_iter, moved = None, 0, np.inf
    while moved > tolerance and n_iter < max_iter:
        partials = side_by_side([partial(part.sums, centers, mean, moves) for part in parts])
        stats, _ = reduce(add_pairs, partials, (zeros, zeros))
        clusters = Clusters(stats[:, :-2], stats[:, -2])
        if (clusters.counts <= 0).any():
            clusters = relocate_empty(open_rows(x, weight), centers, clusters, shift=mean)
        means = clusters.means(centers)
        moves, moved = moves_of(centers, means, mean, x.dtype), ((means - centers) ** 2).sum()
        centers, n_iter = means, n_iter + 1
    return Prototypes(np.unique(centers, axis=0), n_iter)


@dataclass(frozen=True)
class PrototypeState:
    """State of a fit; arrays of several views or sets are concatenated.

    ``view_shapes`` are the shapes of the matrices of the views, ``sizes`` the numbers of prototypes
    of the sets, and ``n_iter`` is the maximum number of k-means iterations.  Keys, counts and sizes
    belong to :class:`PairCounts`; they are None before the pass that counts.
    """

    centers: Annotated[Floats, "f a"]
    matrices: Annotated[Floats, "f b"]
    view_shapes: Annotated[Ints, "i v two"]
    prototypes: Annotated[Floats, "f m"]
    sizes: Annotated[Ints, "i spaces"]
    n_iter: Annotated[int, "i"]
    near_keys: Annotated[Ints | None, "? i near"] = None
    near_counts: Annotated[Floats | None, "? f near"] = None
    near_sizes: Annotated[Ints | None, "? i spaces"] = None
    adjacent_keys: Annotated[Ints | None, "? i adjacent"] = None
    adjacent_counts: Annotated[Floats | None, "? f adjacent"] = None
    adjacent_sizes: Annotated[Ints | None, "? i spaces"] = None

    def with_counts(
        self, near: Sequence[PairCounts], adjacent: Sequence[PairCounts]
    ) -> PrototypeState:
        """Return the state with the counts of each set; a table has no adjacent pixels."""
        arrays: dict[str, Any] = {}
        for name, counts in (("near", near), ("adjacent", adjacent)):
            if counts:
                arrays[f"{name}_keys"] = np.concatenate([c.keys for c in counts])
                arrays[f"{name}_counts"] = np.concatenate([c.counts for c in counts])
                arrays[f"{name}_sizes"] = np.array([len(c.keys) for c in counts])
        return replace(self, **arrays)


def split(array: Array, sizes: Sequence[int] | Ints) -> list[Array]:
    """Split a concatenated array."""
    return np.split(array, np.cumsum(sizes)[:-1])


@dataclass(frozen=True)
class GraphCounts:
    """Counts of one set of ``n_nodes`` nodes; tables have no counts of adjacent pixels."""

    near: PairCounts
    adjacent: PairCounts | None
    n_nodes: int


@dataclass(frozen=True, kw_only=True)
class PrototypeProblem:
    """Prototypes of a sample, and one pass that counts the connections between nodes.

    ``joined`` is True for one space of all views side by side, and False for one space per view.
    ``n_sets`` is the number of sets of prototypes in each space, from different initializations.
    ``extra`` (m, p) are rows that are also nodes.
    ``known`` returns the identity of the labels and constraints for a checkpoint.
    """

    rows: Rows
    cube: Any
    weight: Any = None
    views: tuple[str, ...]
    joined: bool = False
    n_sets: int = 1
    n_prototypes: int
    n_near: int
    lloyd_iter: int
    seed: int
    extra: Array
    known: Callable[[], Mapping[str, Any]] = dict

    kind = PrototypeState
    max_iter = 1

    @property
    def sizes(self) -> Mapping[str, int]:
        return {
            "v": len(self.views),
            "spaces": self.n_sets * (1 if self.joined else len(self.views)),
        }

    # A cached_property of Python 3.11 has one lock for all instances, so fits that share passes
    # would wait for each other forever.
    @property
    def sample(self) -> SampleRows:
        """The sample; the first access takes one pass."""
        if "_sample" not in self.__dict__:
            self.__dict__["_sample"] = draw_sample(
                self.rows, self.cube, self.n_prototypes, self.seed
            )
        return self.__dict__["_sample"]

    @property
    def completions(self) -> tuple[Completion | None, ...]:
        """Completions of rows with missing values, for each view."""
        if "_completions" not in self.__dict__:
            self.__dict__["_completions"] = (
                (None,) * len(self.views)
                if set(self.views).isdisjoint(MISSING_VALUE_VIEWS)
                else find_completions(self.views, self.sample.x, self.seed)
            )
        return self.__dict__["_completions"]

    def identity(self) -> Mapping[str, Any]:
        return {"views used": list(self.views), **self.known()}

    def begin(self) -> PrototypeState:
        """Draw the sample, and find views and prototypes; one pass."""
        sample = self.sample
        space = find_views(self.views, sample, self.completions)
        further = np.random.SeedSequence(self.seed).generate_state(self.n_sets - 1)
        sets: list[Prototypes] = []
        for own in self._spaces(space)[:: self.n_sets]:
            z = own(sample.x)
            # Sorted rows make an integer weight equal to repetitions.
            order = np.lexsort(z.T[::-1])
            z, weight = z[order], sample.weight[order]
            for seed in (self.seed, *further.tolist()):
                find = partial(find_prototypes, z, weight, self.n_prototypes, self.lloyd_iter, seed)
                stage = f"prototypes {len(sets)}"
                sets.append(saved_stage(stage, Prototypes, find, q=z.shape[1]))
        return PrototypeState(
            np.concatenate([view.center for view in space.views]),
            np.concatenate([view.matrix.ravel() for view in space.views]),
            np.array([view.matrix.shape for view in space.views]),
            np.concatenate([own.centers.ravel() for own in sets]),
            np.array([len(own.centers) for own in sets]),
            max(own.n_iter for own in sets),
        )

    def _spaces(self, space: Space) -> list[Space]:
        spaces = [space] if self.joined else space.alone()
        return [own for own in spaces for _ in range(self.n_sets)]

    def spaces(self, state: PrototypeState) -> list[Space]:
        """Return the space of each set of prototypes; sets of one space follow each other."""
        centers = split(state.centers, state.view_shapes[:, 0])
        matrices = split(state.matrices, state.view_shapes.prod(axis=1))
        parts = zip(self.views, centers, matrices, state.view_shapes, self.completions, strict=True)
        views = [
            View(kind, center, matrix.reshape(shape), completion)
            for kind, center, matrix, shape, completion in parts
        ]
        return self._spaces(Space(tuple(views)))

    def prototypes(self, state: PrototypeState) -> list[Floats]:
        """Return the sets of prototypes, ordered by space."""
        widths = np.array([space.n_dimensions for space in self.spaces(state)])
        flat = split(state.prototypes, state.sizes * widths)
        return [own.reshape(-1, width) for own, width in zip(flat, widths, strict=True)]

    def nodes(self, state: PrototypeState) -> list[Floats]:
        """Return the prototypes and the further nodes of each set."""
        sets = zip(self.prototypes(state), self.spaces(state), strict=True)
        return [np.concatenate([own, space(self.extra)]) for own, space in sets]

    @property
    def fraction(self) -> float:
        """Fraction of the rows that are counted, which do not depend on chunks."""
        wanted = max(COUNTED_ROWS, COUNTED_PER_PROTOTYPE * self.n_prototypes)
        return min(1.0, wanted / self.rows.n_rows)

    def step(self, state: PrototypeState) -> Step[PrototypeState]:
        """Count the connections between nodes in one pass."""
        connectivity = Connectivity(
            tuple(self.spaces(state)),
            tuple(self.nodes(state)),
            self.n_near,
            n_shared=len(self.extra),
            fraction=self.fraction,
            seed=self.seed,
        )
        if self.cube is None:
            near: Connections = self.rows.reduce(CONNECTIVITY, connectivity)
            adjacent: Connections = ()
        else:
            near, adjacent = self.cube.count_neighbors(connectivity, self.weight)
        if self.fraction < 1:
            # Each further node connects its two nearest nodes, even if it was not drawn.
            near = merge_connections([near, connectivity.count(RowBlock(self.extra, None, ()))[0]])
        after = state.with_counts(near, adjacent)
        edges = int(sum(len(c.keys) for c in near[: self.n_sets if self.joined else None]))
        return Step(after, float(edges), 0.0, finished=True)

    def counts(self, state: PrototypeState) -> Iterator[GraphCounts]:
        """Yield the counts of each set."""
        pairs: list[Iterable[PairCounts]] = []
        for keys, counts, sizes in (
            (state.near_keys, state.near_counts, state.near_sizes),
            (state.adjacent_keys, state.adjacent_counts, state.adjacent_sizes),
        ):
            if keys is None or counts is None or sizes is None:
                pairs.append(())
            else:
                pairs.append(map(PairCounts, split(keys, sizes), split(counts, sizes)))
        for size, near, adjacent in zip_longest(state.sizes, *pairs):
            yield GraphCounts(near, adjacent, int(size) + len(self.extra))
