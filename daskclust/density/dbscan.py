"""Exact DBSCAN of data larger than memory.

Rows are sorted into boxes of space.  Each box is clustered in one task, and clusters of different
boxes that share core rows are joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.engine import Rows, is_dask, make_rows, map_independent
from daskclust.core.engine.private_api import hold_for_futures
from daskclust.core.estimator.fit_loop import (
    DataAlone,
    FirstPass,
    FitPredict,
    OpenData,
    Step,
    draw_seeds,
    fit,
)
from daskclust.core.estimator.parameters import CHECKPOINT, COUNT, POSITIVE, Constraints, StrOptions
from daskclust.core.estimator.validation import Data, check_rows
from daskclust.core.persistence.mixin import Saveable
from daskclust.core.persistence.schema import Entry, Number, Plain
from daskclust.core.reduction.contract import Field, Partial, Reduction, RowBlock
from daskclust.core.storage.retry import this_process
from daskclust.core.storage.shuffle_files import GroupedRows, TemporaryFolder
from daskclust.core.warn import warn
from daskclust.density.cells import (
    MOST_CELLS,
    MOST_ON_GRID,
    BoxTree,
    cluster_box,
    count_neighbors,
    grow_boxes,
)
from daskclust.density.leaves import SCALINGS, advice_on_metric
from daskclust.exceptions import StoreError

#: Maximum number of bytes that the task of a box uses for the rows of the box and its margin.
_MOST_BYTES = 2.5e9
#: Target number of bytes of a box, if each cell of the grid has only one row.
_BOX_BYTES = 8e7
#: Row of a box, its cluster within the box, and True for a core row.
_CLUSTER_RECORD = np.dtype([("row", np.int64), ("cluster", np.int32), ("core", np.bool_)])
#: Core row that is in several boxes with their margins, and its cluster within one of them.
_SHARED_RECORD = np.dtype([("row", np.int64), ("cluster", np.int32)])
#: Row, and its number of neighbors.
_COUNT_RECORD = np.dtype([("row", np.int64), ("count", np.float64)])


def _row_bytes(p: int) -> int:
    return 86 + 32 * p


@dataclass(frozen=True)
class SortRequest:
    """State of the pass that sorts rows into boxes and the margins around boxes."""

    tree: BoxTree
    margin: float
    store: GroupedRows


def _sort_fields(state: SortRequest) -> Mapping[str, Field]:
    return {"counts": Field((len(state.tree),), "count", np.int64)}


def _sort_block(rows: RowBlock, state: SortRequest) -> Partial:
    counts = np.zeros(len(state.tree), np.int64)
    for (start, _), run in zip(rows.runs, rows.slices(), strict=True):
        x = rows.x[run]
        positions, boxes = state.tree.boxes_of_rows(x, state.margin)
        records = np.empty(len(positions), state.store.dtype)
        records["row"], records["x"] = positions + start, x[positions]
        if rows.weight is not None and "weight" in (state.store.dtype.names or ()):
            records["weight"] = rows.weight[run][positions]
        if len(x):
            state.store.write(start, boxes, records)
        counts += np.bincount(boxes, minlength=len(counts))
    return {"counts": counts}


def _sort_result(partial: Partial, state: SortRequest) -> Ints:
    return np.asarray(partial["counts"])


#: Writes each row to all boxes whose margin contains it, and counts the rows of each box (boxes,).
SORT_ROWS = Reduction("sort-rows", _sort_fields, _sort_block, _sort_result)


@dataclass(frozen=True)
class _BoxTask:
    """Stores and parameters that the tasks of all boxes use."""

    tree: BoxTree
    rows: GroupedRows
    results: GroupedRows
    shared: GroupedRows
    starts: Ints
    origin: Floats
    eps: float
    min_samples: float
    margin: float


def _cluster(task: _BoxTask, box: int) -> Ints:
    """Find the clusters of a box; return the first core row of each cluster."""
    rows = task.rows.read(task.starts.tolist(), box)
    p = rows["x"].shape[1]
    low, high = (bounds[box] for bounds in task.tree.bounds(p))
    weight = rows["weight"] if "weight" in (rows.dtype.names or ()) else None
    clusters = cluster_box(
        rows["x"], rows["row"], weight, low, high, task.origin, task.eps, task.min_samples
    )
    records = np.empty(len(clusters.rows), _CLUSTER_RECORD)
    records["row"] = rows["row"][clusters.rows]
    records["cluster"], records["core"] = clusters.clusters, clusters.core
    chunks = np.searchsorted(task.starts, records["row"], side="right") - 1
    task.results.write(box, task.starts[chunks], records)
    # A core row in the margins of several boxes is written only for the box that contains it.
    _, owners = task.tree.boxes_of_rows(rows["x"][clusters.shared], 0.0)
    records = np.empty(len(owners), _SHARED_RECORD)
    records["row"], records["cluster"] = rows["row"][clusters.shared], clusters.owners
    task.shared.write(box, owners, records)
    return clusters.first_core_rows


def _pairs_that_share_core_rows(task: _BoxTask, box: int) -> Ints:
    """Return pairs of clusters (box, cluster, other box, its cluster) that share core rows."""
    own_records = task.shared.read([box], box)
    own_records = own_records[np.argsort(own_records["row"])]
    low, high = task.tree.bounds(len(task.origin))
    # Other boxes contain rows of this box only if their margins reach it.  The doubled margin
    # covers rounding errors.
    reach = 2.0 * task.margin
    is_near = ((low <= high[box] + reach) & (high >= low[box] - reach)).all(axis=1)
    pairs = []
    for other_box in np.flatnonzero(is_near).tolist():
        other_records = task.shared.read([other_box], box)
        if other_box != box and len(other_records) and len(own_records):
            position = np.minimum(
                np.searchsorted(own_records["row"], other_records["row"]), len(own_records) - 1
            )
            is_shared = (
                own_records["row"][position] == other_records["row"]
            )  # False only if margins are rounded
            clusters = np.stack(
                [own_records["cluster"][position[is_shared]], other_records["cluster"][is_shared]],
                axis=1,
            )
            pairs += [(box, int(a), other_box, int(b)) for a, b in np.unique(clusters, axis=0)]
    return np.array(pairs, np.int64).reshape(-1, 4)


def _count(task: _BoxTask, box: int) -> None:
    rows = task.rows.read(task.starts.tolist(), box)
    low, high = (bounds[box] for bounds in task.tree.bounds(rows["x"].shape[1]))
    positions, counts = count_neighbors(rows["x"], low, high, task.origin, task.eps)
    records = np.empty(len(positions), _COUNT_RECORD)
    records["row"], records["count"] = rows["row"][positions], counts
    chunks = np.searchsorted(task.starts, records["row"], side="right") - 1
    task.results.write(box, task.starts[chunks], records)


def _join_clusters(first_core_rows: list[Ints], pairs: Ints) -> Ints:
    """Return the final cluster of each cluster of a box, numbered by first core rows."""
    first = np.cumsum([0, *map(len, first_core_rows)])
    n = int(first[-1])
    a, b = (first[pairs[:, at]] + pairs[:, at + 1] for at in (0, 2))
    edges = coo_array((np.ones(len(a)), (a, b)), shape=(n, n))
    _, components = connected_components(edges, directed=False) if n else (0, np.empty(0, np.int64))
    smallest_row = np.full(n, np.iinfo(np.int64).max)
    np.minimum.at(smallest_row, components, np.concatenate(first_core_rows))
    rank = np.empty(n, np.int64)
    rank[np.argsort(smallest_row, kind="stable")] = np.arange(n)
    return np.asarray(rank[components])


@dataclass(frozen=True)
class BoxesState:
    """State of a fit: the arrays of a :class:`BoxTree`, and the results of completed steps.

    ``starts`` (c,) is the first row of each chunk of sorted rows.  ``first`` (boxes,) is the number
    of clusters in all earlier boxes.  ``numbers`` (k,) is the final cluster of each cluster of a
    box.
    """

    axis: Annotated[Ints, "i t"]
    thresholds: Annotated[Floats, "f t"]
    left: Annotated[Ints, "i t"]
    right: Annotated[Ints, "i t"]
    starts: Annotated[Ints | None, "? i c"] = None
    first: Annotated[Ints | None, "? i boxes"] = None
    numbers: Annotated[Ints | None, "? i k"] = None

    @property
    def tree(self) -> BoxTree:
        """Tree of the boxes."""
        return BoxTree(self.axis, self.thresholds, self.left, self.right)


@dataclass(frozen=True)
class BoxesProblem(DataAlone):
    """Fit in two steps: sort rows into boxes, then cluster each box.

    Tasks run on the workers that hold ``X``.  Space is split until each box contains at most
    ``rows_per_box`` rows of the sample (s, p).  ``record`` is the type of a sorted row: ``row``,
    ``x`` and, if rows have weights, ``weight``.
    """

    kind: ClassVar[type[BoxesState]] = BoxesState
    max_iter: ClassVar[int] = 2
    record_of_boxes: ClassVar[np.dtype[Any]] = _CLUSTER_RECORD

    X: Any
    rows: Rows
    sample: Floats
    rows_per_box: float
    origin: Floats
    eps: float
    min_samples: float
    record: np.dtype[Any]
    folder: TemporaryFolder

    def begin(self) -> BoxesState:
        """Split space into boxes."""
        tree = grow_boxes(self.sample, self.rows_per_box, self._margin)
        return BoxesState(tree.axis, tree.thresholds, tree.left, tree.right)

    @property
    def _margin(self) -> float:
        """Width that contains the neighbors of a box and their neighbors: just above 2 eps."""
        return 2.0 * self.eps * (1.0 + 1e-8) + 16.0 * float(np.spacing(np.abs(self.sample).max()))

    @property
    def _sorted(self) -> GroupedRows:
        return GroupedRows(self.folder.make("rows"), self.record)

    def step(self, state: BoxesState) -> Step[BoxesState]:
        """Sort the rows, or cluster the boxes of sorted rows."""
        if state.starts is None:
            state, fullest = self._sort(state)
            return Step(state, objective=float(fullest), center_shift=0.0, finished=False)
        if not self.folder.has("rows"):
            state, _ = self._sort(state)  # a resumed fit whose folder was removed
        state = self._cluster(state)
        n_clusters = 0 if state.numbers is None else int(state.numbers.max(initial=-1)) + 1
        return Step(state, objective=float(n_clusters), center_shift=0.0, finished=True)

    def _sort(self, state: BoxesState) -> tuple[BoxesState, int]:
        drawn = np.bincount(state.tree.boxes_of_rows(self.sample, self._margin)[1]).max()
        # Fail before rows are written.  The estimate from the sample is lowered by five standard
        # errors.
        self._check_fullest((drawn - 5.0 * np.sqrt(drawn)) / len(self.sample) * self.rows.n_rows)
        self.folder.drop("rows")
        counts = self.rows.reduce(SORT_ROWS, SortRequest(state.tree, self._margin, self._sorted))
        fullest = int(counts.max())
        self._check_fullest(fullest)
        return replace(state, starts=np.array(self._sorted.parts())), fullest

    def _check_fullest(self, fullest: float) -> None:
        p = self.sample.shape[1]
        max_rows = int(_MOST_BYTES / _row_bytes(p))
        if fullest > max_rows:
            raise ValueError(
                f"A box of space, including margins of twice eps={self.eps:g}, must contain at "
                f"most {max_rows} rows of {p} features, got {fullest:.0f} of {self.rows.n_rows} "
                "rows. Lower eps, so that space can be split into smaller boxes. Or use fewer "
                f"features, or a sample of at most {max_rows} rows, which always fits. HDBSCAN "
                "accepts any number of rows."
            )

    def _run_box_tasks(self, state: BoxesState, function: Any) -> list[Any]:
        """Run a task for each box.  The task writes a record for each row of the box."""
        assert state.starts is not None
        task = _BoxTask(
            state.tree,
            self._sorted,
            GroupedRows(self.folder.make("results"), self.record_of_boxes),
            GroupedRows(self.folder.make("shared"), _SHARED_RECORD),
            state.starts,
            self.origin,
            self.eps,
            self.min_samples,
            self._margin,
        )
        return map_independent(self.X, "boxes", function, task, range(len(state.tree)))

    def _cluster(self, state: BoxesState) -> BoxesState:
        first_core_rows = self._run_box_tasks(state, _cluster)
        pairs = np.concatenate(self._run_box_tasks(state, _pairs_that_share_core_rows))
        for name in ("rows", "shared"):
            self.folder.drop(name)
        first = np.cumsum([0, *map(len, first_core_rows[:-1])])
        return replace(state, first=first, numbers=_join_clusters(first_core_rows, pairs))

    def clusters(self, state: BoxesState) -> RowClusters:
        """Return the clusters of the rows of a finished fit."""
        if not self.folder.has("results"):
            state = self._cluster(self._sort(state)[0])
        assert state.starts is not None
        assert state.first is not None
        assert state.numbers is not None
        store = GroupedRows(self.folder.make("results"), self.record_of_boxes)
        return RowClusters(self.folder, store, state.starts, state.first, state.numbers)


@dataclass(frozen=True)
class RowClusters:
    """Clusters of rows, stored in a temporary folder.

    The folder is removed with the last copy of this object.  The store has one part per box, and
    one group per chunk of rows, which begins at an element of ``starts``.
    """

    folder: TemporaryFolder
    store: GroupedRows
    starts: Ints
    first: Ints
    numbers: Ints

    @property
    def n_clusters(self) -> int:
        """Number of clusters of the data."""
        return int(self.numbers.max(initial=-1)) + 1

    def __getstate__(self) -> dict[str, Any]:
        hold_for_futures(self.folder)
        return vars(self)

    def detached(self) -> RowClusters:
        """Move the results to a folder of their own, which lazy results read after the fit.

        Another fit can then use the same checkpoint.
        """
        folder = self.folder.take()
        store = GroupedRows(folder.make("results"), self.store.dtype)
        return replace(self, folder=folder, store=store)

    def records(self, start: int, size: int) -> Iterator[tuple[int, Any]]:
        """Yield each box, and its records for a run of rows."""
        if not self.folder.has("results"):
            raise StoreError(
                f"The {this_process()} must read results of rows from {str(self.folder.path)!r}, "
                "but this folder does not exist there. The process of the fit removes it when the "
                "model, its lazy results and their futures are deleted: keep a reference to one. "
                "All workers must have access to Dask's temporary-directory under the same path."
            )
        chunks = np.searchsorted(self.starts, [start, start + size - 1], side="right") - [1, 0]
        for chunk, box in product(self.starts[slice(*chunks)].tolist(), range(len(self.first))):
            box_records = self.store.read([box], chunk)
            yield (
                box,
                box_records[(box_records["row"] >= start) & (box_records["row"] < start + size)],
            )

    def labels_of_rows(self, start: int, size: int) -> tuple[Array, Bools]:
        """Return the labels of a run of rows, and the mask of its core rows."""
        labels, core = np.full(size, np.iinfo(np.int32).max, np.int32), np.zeros(size, bool)
        for box, box_records in self.records(start, size):
            positions = box_records["row"] - start
            numbers = self.numbers[self.first[box] + box_records["cluster"]]
            # A border row has a record for each of its clusters, and belongs to the first cluster.
            np.minimum.at(labels, positions, numbers.astype(labels.dtype))
            core[positions] |= box_records["core"]
        labels[labels == np.iinfo(np.int32).max] = -1
        return labels, core


@dataclass(frozen=True)
class _CountsProblem(BoxesProblem):
    """Fit in two steps: sort rows into boxes, then count the neighbors of each row."""

    record_of_boxes: ClassVar[np.dtype[Any]] = _COUNT_RECORD

    def _cluster(self, state: BoxesState) -> BoxesState:
        self._run_box_tasks(state, _count)
        self.folder.drop("rows")
        boxes = np.zeros(len(state.tree), np.int64)
        return replace(state, first=boxes, numbers=np.empty(0, np.int64))


def _counts_of_block(x: Array, start: int, clusters: RowClusters) -> Floats:
    """Return the number of neighbors of the rows from ``start`` on, one per row of x."""
    out = np.empty(len(x))
    for _, box_records in clusters.records(start, len(x)):
        out[box_records["row"] - start] = box_records["count"]
    return out


Metric = Literal["euclidean", "haversine"]
_METRICS = StrOptions(*get_args(Metric))

#: Number of rows drawn to decide where space is split.
_SAMPLE = 2**16


@dataclass(frozen=True)
class _Sphere:
    """Function that maps points of the globe to unit vectors, whose distance is the chord."""

    n_columns: ClassVar[int] = 3

    def __call__(self, x: Array) -> Floats:
        """Return (x, y, z) of (latitude, longitude) in radians."""
        latitude, longitude = x.astype(np.float64).T
        for name, angle, limit in (
            ("latitude", latitude, np.pi / 2),
            ("longitude", longitude, 2 * np.pi),
        ):
            size = np.abs(angle).max(initial=0.0)
            if size > limit * (1.0 + 1e-6):
                raise ValueError(
                    f"X must have a {name} of at most {limit:.4f} radians, got {size:g}. "
                    "metric='haversine' requires the columns latitude and longitude in radians: "
                    "pass np.deg2rad(X)."
                )
        return np.column_stack(
            [
                np.cos(latitude) * np.cos(longitude),
                np.cos(latitude) * np.sin(longitude),
                np.sin(latitude),
            ]
        )


class DBSCAN(FitPredict, Saveable, ClusterMixin, BaseEstimator):
    """Exact DBSCAN for data larger than memory.

    Use it when one distance separates all clusters from noise, and there are few features.  Rows
    are sorted into boxes of space on disk.  Each box, with the rows around it, is clustered in one
    task.  Clusters that share a core row are joined.

    Parameters
    ----------
    eps : float, default=0.5
        Maximum distance of neighbors.
    min_samples : int, default=5
        Minimum weight of the neighbors of a core row, including the row itself.
    metric : {"euclidean", "haversine"}, default="euclidean"
        Distance of two rows.

        - ``"euclidean"``: Euclidean distance.
        - ``"haversine"``: great-circle distance.  X must have the columns latitude and longitude
          in radians, and ``eps`` is an angle in radians: kilometers divided by 6371.
    checkpoint : path-like, default=None
        File for the state of the fit.  Sorted rows are stored in a folder next to it.  A fit that
        is started again with the same data and parameters resumes, and does not sort rows again.

    Attributes
    ----------
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Cluster of each row, -1 for noise; clusters are numbered by their first core row.  Lazy,
        and chunked like X, for Dask input.
    core_mask_ : ndarray or dask.array.Array of shape (n,), bool
        Mask of the core rows.  Lazy for Dask input.
    core_sample_indices_ : ndarray or dask.array.Array of shape (n_core,), int64
        Row numbers of the core rows.  For Dask input it is lazy and has an unknown length.
    n_clusters_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, if X has names.
    history_ : list of dict
        One record for sorting, with the number of rows of the fullest box as ``objective``, and
        one record for clustering, with the number of clusters.

    Raises
    ------
    ValueError
        If X has NaN or infinity (the message names the first), if parameters are out of range, if
        ``eps`` is too small for the range of the data and the precision of float64, and if a box
        with its margin has more rows than fit into a task (see Notes).
    StoreError
        If a worker cannot read the temporary folder.
    FileExistsError
        If another fit with the same checkpoint is running.
    CheckpointError
        If the checkpoint is damaged or belongs to other data or parameters.

    Warns
    -----
    ConvergenceWarning
        If all rows are noise.

    See Also
    --------
    HDBSCAN : Clusters of different density, for any number of rows.

    Notes
    -----
    Clusters and their numbers equal scikit-learn's.  A border row belongs to the first of its
    clusters.  With weights, results equal scikit-learn's without the rows of weight 0.

    *Cost.* There are 2 passes, and each box is read once.  All machines must have access to Dask's
    ``temporary-directory``, which stores ``8 + p itemsize`` bytes per row and box.  The files are
    removed with the model and its lazy results.  A worker thread uses 80 MB, or up to 2.5 GB for a
    dense box.  Time is linear in n for up to three features.  For more features it is between
    ``O(n log n)`` and ``O(n^2)``.

    *Limit.* A box has at most ``2.5e9 / (86 + 32 p)`` rows: 16 million of two features, or 6
    million of ten.  Larger data can be split only if single features have gaps of several ``eps``.
    The user guide ("Trees and density") explains how space is split.

    References
    ----------
    .. [1] Ester, M. et al. (1996). A density-based algorithm for discovering clusters in large
       spatial databases with noise. KDD.
    .. [2] Gunawan, A. (2013). A faster algorithm for DBSCAN. Master's thesis, Eindhoven
       University of Technology.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> X = np.array([[0.0, 0.0], [0.0, 0.1], [0.1, 0.0], [5.0, 5.0]])
    >>> daskclust.DBSCAN(eps=0.2, min_samples=3).fit(X).labels_
    array([ 0,  0,  0, -1], dtype=int32)
    """

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "n_clusters_": Number(int, low=0),
        "history_": Plain(list, records=True),
    }

    _finds_noise: ClassVar[bool] = True
    _of_rows: ClassVar[tuple[str, ...]] = ("labels_", "core_mask_")

    _parameter_constraints: ClassVar[Constraints] = {
        "eps": [POSITIVE],
        "min_samples": [COUNT],
        "metric": [_METRICS],
        **CHECKPOINT,
    }

    def __init__(
        self,
        eps: float = 0.5,
        *,
        min_samples: int = 5,
        metric: Metric = "euclidean",
        checkpoint: Any = None,
    ) -> None:
        self.eps = eps
        self.min_samples = min_samples
        self.metric: Any = metric
        self.checkpoint = checkpoint

    @property
    def core_sample_indices_(self) -> Any:
        """Row numbers of the core rows."""
        return np.flatnonzero(self.core_mask_)

    def _check_parameters(self) -> None:
        if isinstance(self.metric, str) and self.metric in SCALINGS.keys() - _METRICS.options:
            raise ValueError(
                f"metric must be {_METRICS}, got {self.metric!r}. For other metrics, scale the "
                f"rows and eps. {advice_on_metric(self.metric)}"
            )
        super()._check_parameters()

    def _check_features(self, n_features: int) -> None:
        if self.metric == "haversine" and n_features != 2:
            raise ValueError(
                f"X must have the 2 features latitude and longitude with metric='haversine', got "
                f"{n_features} features."
            )

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Find the clusters.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube of shape (n, p)
            Rows to cluster.
        y : ignored
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows as neighbors.  A row of weight 0 is not counted as a neighbor and,
            unlike in scikit-learn, is never a core row.  It can be a border row of a cluster.
            Cubes also accept an image (y, x) and ``"area"``; see
            :meth:`daskclust.Cube.row_weights`.

        Returns
        -------
        self
        """
        with TemporaryFolder.locked(self.checkpoint):
            return fit(self, X, sample_weight)

    def _read(self, data: Data) -> bool:
        """Check the order of latitude and longitude; return True if rows have weights."""
        names = [str(name) for name in data.origin.get("feature_names_in_", ())]
        if self.metric == "haversine" and names and names[0].lower().startswith(("lon", "lng")):
            raise ValueError(
                f"X must have the columns latitude and longitude, in this order, with "
                f"metric='haversine', got {names}. Change the order of the columns."
            )
        return data.weight is not None

    def _first_pass(self, data: Data, read: bool) -> FirstPass:
        sphere = _Sphere() if self.metric == "haversine" else None
        return FirstPass(draw_seeds(0, 1), min(_SAMPLE, int(data.rows.n_rows)), transform=sphere)

    def _problem(self, data: OpenData, read: bool) -> BoxesProblem:
        p = data.rows.n_features
        eps = float(self.eps)
        if self.metric == "haversine":
            eps = 2.0 * np.sin(min(eps, np.pi) / 2.0)
        survey = data.survey
        low, high = survey.low, survey.high
        if np.isfinite(survey.idle).any():  # rows of weight 0 have labels
            low, high = np.minimum(low, -survey.idle), np.maximum(high, survey.idle)
        extent = float((high - low).max())
        if not extent / eps < MOST_CELLS:
            raise ValueError(
                f"eps must be larger than {extent / MOST_CELLS:g} for the range of X, "
                f"{extent:g}, got {self.eps}. The precision of float64 is too low for a smaller "
                "eps. Raise eps, or remove rows that are far away."
            )
        picks = survey.picks[0]
        sample = picks["x"][picks["row"] >= 0].astype(np.float64)
        x_type = np.dtype(np.float64) if self.metric == "haversine" else data.rows.dtype
        record: list[Any] = [("row", "i8"), ("x", x_type.str, (p,))]
        if read:
            record.append(("weight", "f8"))
        cell_bytes = 4 * 5**p if p <= MOST_ON_GRID else 0
        sample_rows_per_box = (
            _BOX_BYTES / (_row_bytes(p) + cell_bytes) * len(sample) / data.rows.n_rows
        )
        return BoxesProblem(
            X=data.X,
            rows=data.rows,
            sample=sample,
            rows_per_box=max(sample_rows_per_box, 1.0),
            origin=low,
            eps=eps,
            min_samples=float(self.min_samples),
            record=np.dtype(record),
            folder=TemporaryFolder.beside(self.checkpoint),
        )

    def _finish(
        self,
        data: OpenData,
        problem: BoxesProblem,
        state: BoxesState,
        history: list[dict[str, Any]],
    ) -> None:
        self.history_ = history
        clusters = problem.clusters(state)
        self.n_clusters_ = clusters.n_clusters
        if self.n_clusters_ == 0:
            warn(
                f"All rows are noise: the weight within eps={self.eps:g} of each row is below "
                f"min_samples={self.min_samples}. Raise eps, or lower min_samples.",
                ConvergenceWarning,
            )
        lengths = data.rows.lengths
        if not is_dask(data.X):
            self.labels_, self.core_mask_ = clusters.labels_of_rows(0, sum(lengths))
            problem.folder.remove()
            return
        clusters = clusters.detached()
        for name, kind in (("labels_", np.int32), ("core_mask_", np.bool_)):
            row_function = partial(_result_of_block, clusters=clusters, core=kind is np.bool_)
            self.__dict__[name] = make_rows(lengths, row_function, dtype=kind, name="dbscan")

    def score_samples(self, X: Any) -> Any:
        """Count the rows of X within ``eps`` of each row, including the row itself.

        Rows with a higher score are in a denser region, and more normal.  The model does not
        store rows, so neighbors are counted in X, not in the rows of the fit.  For the rows of a
        fit without weights, core rows have scores of at least ``min_samples``.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube of shape (n, p)

        Returns
        -------
        scores : ndarray or dask.array.Array of shape (n,), float64
            Scores do not depend on chunks.  Lazy, and chunked like X, for Dask input.

        Raises
        ------
        ValueError, StoreError
            See ``fit``.

        Notes
        -----
        The call sorts and counts rows, with the passes and the folder of ``fit``.  A lazy result
        reads 16 bytes per row from disk.  Unlike in ``fit``, time grows with the number of
        neighbors.

        Examples
        --------
        >>> import numpy as np
        >>> import daskclust
        >>> X = np.array([[0.0, 0.0], [0.0, 0.1], [0.1, 0.0], [5.0, 5.0]])
        >>> daskclust.DBSCAN(eps=0.2, min_samples=3).fit(X).score_samples(X)
        array([3., 3., 3., 1.])
        """
        check_is_fitted(self)
        params = {**self.get_params(deep=False), "checkpoint": None}
        with TemporaryFolder.locked(None):
            return fit(_Density(**params), check_rows(self, X, reset=False)).scores_


class _Density(DBSCAN):
    """DBSCAN fit that counts neighbors and does not find clusters."""

    def _problem(self, data: OpenData, read: bool) -> BoxesProblem:
        return _CountsProblem(**vars(super()._problem(data, read)))

    def _finish(
        self,
        data: OpenData,
        problem: BoxesProblem,
        state: BoxesState,
        history: list[dict[str, Any]],
    ) -> None:
        counts, lengths = problem.clusters(state), data.rows.lengths
        if not is_dask(data.X):
            self.scores_: Any = _counts_of_block(np.empty((sum(lengths), 0)), 0, counts)
            problem.folder.remove()
            return
        row_function = partial(_counts_of_block, clusters=counts.detached())
        self.scores_ = make_rows(lengths, row_function, dtype=np.float64, name="score_samples")


def _result_of_block(x: Array, start: int, clusters: RowClusters, core: bool) -> Array:
    return clusters.labels_of_rows(start, len(x))[int(core)]
