"""DBSCAN of data of any size, exactly, for up to three features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin

from daskclust._choices import check_choice
from daskclust._types import Array, Floats
from daskclust.engine import is_dask, make_rows
from daskclust.estimator.fitting import FirstPass, OpenData, draw_seeds, fit
from daskclust.estimator.inputs import Data
from daskclust.estimator.parameters import check_integer, check_real
from daskclust.kernels.density_cells import MOST_CELLS
from daskclust.persistence.saveable import Saveable
from daskclust.persistence.schema import Entry, Number, Plain
from daskclust.storage.grouped import TemporaryFolder
from daskclust.trees.boxes import BoxesProblem, BoxesState, RowClusters

Metric = Literal["euclidean", "haversine"]

#: Rows of a box, about: what a task holds at once, with some 150 bytes for each and its margin.
_ROWS_A_BOX = {1: 2**19, 2: 2**19, 3: 2**17}
#: Rows that are drawn to cut space into boxes.
_SAMPLE = 2**16


@dataclass(frozen=True)
class _Sphere:
    """Points of the globe as unit vectors, whose distance is the chord."""

    n_columns: ClassVar[int] = 3

    def __call__(self, x: Array) -> Floats:
        """Return (x, y, z) of (latitude, longitude) in radians."""
        latitude, longitude = x.astype(np.float64).T
        for name, angle, most in (
            ("latitude", latitude, np.pi / 2),
            ("longitude", longitude, 2 * np.pi),
        ):
            size = np.abs(angle).max(initial=0.0)
            if size > most * (1.0 + 1e-6):
                raise ValueError(
                    f"A {name} of X is {size:g}; expected at most {most:.4f} radians. "
                    "metric='haversine' takes columns (latitude, longitude) in radians: "
                    "np.deg2rad(X)."
                )
        return np.column_stack(
            [
                np.cos(latitude) * np.cos(longitude),
                np.cos(latitude) * np.sin(longitude),
                np.sin(latitude),
            ]
        )


class DBSCAN(Saveable, ClusterMixin, BaseEstimator):
    """DBSCAN of data of any size, exactly, for up to three features.

    Rows are sorted into boxes of space, each with the rows around it, in a temporary folder;
    boxes are clustered one by one, and clusters that share a core row are joined.

    Parameters
    ----------
    eps : float, default=0.5
        Largest distance of neighbors.
    min_samples : int, default=5
        Weight of the neighbors of a core row, itself included.
    metric : {"euclidean", "haversine"}, default="euclidean"
        ``"haversine"``: X has the columns latitude and longitude in radians, and ``eps`` is an
        angle in radians: kilometers by 6371.
    checkpoint : path-like, default=None
        File that holds the state of the fit, with the sorted rows in a folder beside it; a fit
        started again with the same data and parameters does not sort them again.

    Attributes
    ----------
    labels_ : ndarray or dask.array.Array of shape (n,), int32
        Cluster of each row, -1 for noise; clusters are numbered by their first core row.  Lazy,
        and chunked like X, for Dask input.
    core_mask_ : ndarray or dask.array.Array of shape (n,), bool
        Whether each row is a core row.  Lazy for Dask input.
    n_clusters_ : int
    n_features_in_ : int
        Number of features p.
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns, where X has names.
    history_ : list of dict
        One record each of the sorting and the clustering; ``objective`` is the number of rows
        in the fullest box, then that of clusters.

    Raises
    ------
    ValueError
        For NaN or infinity in X (naming the first), more than three features, and parameters
        out of range; where ``eps`` is so small beside the range of the data that float64 hardly
        tells neighbors, or so large that one box holds more rows than a task can.
    StoreError
        If a worker does not see the temporary folder.
    CheckpointError
        If the checkpoint is damaged or belongs to other data or parameters.

    See Also
    --------
    HDBSCAN : Clusters of different density, for any number of features.

    Notes
    -----
    The clusters are scikit-learn's, with the same numbers: a border row belongs to the first of
    the clusters that it borders on.

    *Passes*: 1 to check the data, 1 that sorts the rows; then each row is read once or a little
    more, with its box.  ``labels_`` take none: they read ``12`` bytes a row.  *On disk*:
    ``8 + p itemsize`` bytes a row, and the same again for rows within ``2 eps`` of another box,
    in Dask's ``temporary-directory``, else that of the system; on several machines it has to be
    a folder that all of them see.  It is removed at the end; of Dask input, with the last of
    the model and its lazy labels: keep one of them until the labels are computed.
    *Memory* of a worker thread: some 150 bytes for each of 524 288 rows (131 072 of three
    features), in a denser box more.  *To the client*: cells along the faces of boxes.  Time is
    linear in the number of rows, unless most lie within ``eps`` of many others in several sparse
    cells.

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

    def _check_parameters(self) -> None:
        check_real(self.eps, "eps", 0.0, boundaries="neither")
        check_integer(self.min_samples, "min_samples", 1)
        check_choice(self.metric, "metric", get_args(Metric))

    def _check_features(self, n_features: int) -> None:
        if self.metric == "haversine" and n_features != 2:
            raise ValueError(
                f"X has {n_features} features; metric='haversine' takes 2, latitude and longitude."
            )
        if n_features > 3:
            raise ValueError(
                f"X has {n_features} features; DBSCAN takes at most 3, where boxes of space have "
                "few neighbors. Use HDBSCAN, or fewer features."
            )

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Find the clusters.

        Parameters
        ----------
        X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube of shape (n, p)
            Rows to cluster, p at most 3.
        y : ignored
        sample_weight : array-like or dask.array.Array of shape (n,), optional
            Weights of the rows, as neighbors.

        Returns
        -------
        self
        """
        return fit(self, X, sample_weight)

    def fit_predict(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Fit and return ``labels_``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored
        **params
            Other arguments of ``fit``.

        Returns
        -------
        labels : ndarray or dask.array.Array of shape (n_samples,), int32
        """
        return self.fit(X, y, **params).labels_

    def _read(self, data: Data) -> bool:
        """Return whether rows have weights."""
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
        if np.isfinite(survey.idle).any():  # rows of weight 0 are rows
            low, high = np.minimum(low, -survey.idle), np.maximum(high, survey.idle)
        extent = float((high - low).max())
        if not extent / eps < MOST_CELLS:
            raise ValueError(
                f"eps={self.eps} is too small beside the range of X, {extent:g}: expected more "
                f"than {extent / MOST_CELLS:g}, below which float64 hardly tells neighbors from "
                "others."
            )
        picks = survey.picks[0]
        sample = picks["x"][picks["row"] >= 0].astype(np.float64)
        x_type = np.dtype(np.float64) if self.metric == "haversine" else data.rows.dtype
        record: list[Any] = [("row", "i8"), ("x", x_type.str, (p,))]
        if read:
            record.append(("weight", "f8"))
        share = _ROWS_A_BOX[p] * len(sample) / data.rows.n_rows
        return BoxesProblem(
            X=data.X,
            rows=data.rows,
            sample=sample,
            rows_a_box=max(share, 1.0),
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
        found = problem.clusters(state)
        self.n_clusters_ = found.n_clusters
        lengths = data.rows.lengths
        if not is_dask(data.X):
            self.labels_, self.core_mask_ = found.whole(sum(lengths))
            problem.folder.remove()
            return
        for name, kind in (("labels_", np.int32), ("core_mask_", np.bool_)):
            of_rows = partial(_block_of, clusters=found, core=kind is np.bool_)
            self.__dict__[name] = make_rows(lengths, of_rows, dtype=kind, name="dbscan")

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what this estimator takes."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


def _block_of(x: Array, start: int, clusters: RowClusters, core: bool) -> Array:
    return clusters.of_block(start, len(x))[int(core)]
