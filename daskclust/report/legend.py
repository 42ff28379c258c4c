"""What the values of a label map mean: classes by their own codes, names and colors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from daskclust._types import Ints
from daskclust.colors import class_colors

__all__ = ["Legend", "legend_of"]


@dataclass(frozen=True)
class Legend:
    """The values of a label map, ascending, with a name and a color each.

    Attributes
    ----------
    codes : tuple of int
        Values in the map.
    names : tuple of str
    colors : tuple of str
        As ``#rrggbb``.
    keys : ndarray or None
        Labels of the model, ascending; None if they are the values themselves.
    values : ndarray of int or None
        Value of each of the `keys`.
    """

    codes: tuple[int, ...]
    names: tuple[str, ...]
    colors: tuple[str, ...]
    keys: NDArray[Any] | None = None
    values: Ints | None = None

    def encode(self, labels: Any) -> Any:
        """Turn labels of the model into values of the map; lazy for Dask arrays."""
        if self.keys is None:
            return labels
        if isinstance(labels, da.Array):
            return da.map_blocks(
                _looked_up, labels, keys=self.keys, values=self.values, dtype=np.int64
            )
        return _looked_up(np.asarray(labels), keys=self.keys, values=self.values)

    @property
    def is_of_clusters(self) -> bool:
        """Whether all names are numbers of clusters."""
        pairs = zip(self.codes, self.names, strict=True)
        return all(name == f"cluster_{code}" for code, name in pairs)

    @property
    def by_code(self) -> dict[int, str]:
        """Names by value."""
        return dict(zip(self.codes, self.names, strict=True))

    @property
    def color_by_code(self) -> dict[int, str]:
        """Colors by value."""
        return dict(zip(self.codes, self.colors, strict=True))


def _looked_up(labels: NDArray[Any], *, keys: Any, values: Any) -> Ints:
    if not len(labels):
        return np.empty(labels.shape, np.int64)
    found: Ints = values[np.searchsorted(keys, labels)]
    return found


def legend_of(
    model: Any,
    names: Mapping[int, str] | None = None,
    colors: Mapping[int, str] | None = None,
) -> Legend:
    """Return the map values, names and colors of a fitted model's labels.

    Parameters
    ----------
    model : estimator
        Fitted.
    names, colors : mapping of int to str, optional
        By class code; or by cluster number, if clusters are not classes.

    Returns
    -------
    Legend
        For a classifier, and for clusters that are classes, the values are the codes of
        the classes (0, 1, ... if classes are text).  Clusters of the same class share a
        value.  Clusters without a class get values above the largest code.  For all other
        estimators the values are the numbers of the clusters.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> y = ([0, 2], [3, 7])
    >>> model = daskclust.SemiSupervisedKMeans(2).fit(np.array([[0.0], [1], [9]]), y)
    >>> legend = legend_of(model, {3: "water", 7: "wheat"})
    >>> legend.encode(model.labels_).tolist(), legend.names
    ([3, 3, 7], ('water', 'wheat'))
    """
    classes = getattr(model, "classes_", None)
    owners = getattr(model, "cluster_classes_", None)
    if classes is None or not (is_classifier(model) or owners is not None):
        k = n_clusters_of(model)
        return _named(range(k), names, colors, "cluster")
    is_text = classes.dtype.kind not in "iub"
    codes = np.arange(len(classes)) if is_text else classes.astype(np.int64)
    known = {int(c): str(v) for c, v in zip(codes, classes, strict=True)} if is_text else {}
    known |= {int(code): str(name) for code, name in (names or {}).items()}
    if owners is None:
        legend = _named(codes.tolist(), known, colors, "class")
        return _keyed(legend, classes, codes) if is_text else legend
    owners = np.asarray(owners)
    values = np.zeros(len(owners), dtype=np.int64)
    free = owners < 0
    values[~free] = codes[owners[~free]]
    values[free] = (codes.max() if len(codes) else -1) + 1 + np.arange(free.sum())
    for code in values[free].tolist():
        known.setdefault(code, f"cluster_{code}")
    legend = _named(np.unique(values).tolist(), known, colors, "class")
    return _keyed(legend, np.arange(len(values)), values)


def n_clusters_of(model: Any) -> int:
    """Return the number of clusters that a fitted model has found."""
    for name in ("cluster_centers_", "means_"):
        centers = getattr(model, name, None)
        if centers is not None:
            return len(centers)
    if not hasattr(model, "n_clusters"):
        return len(model.classes_)
    return int(getattr(model, "n_clusters_", None) or model.n_clusters)


def _named(
    codes: Any, names: Mapping[int, str] | None, colors: Mapping[int, str] | None, kind: str
) -> Legend:
    numbers = tuple(int(code) for code in codes)
    given = names or {}
    painted = {**class_colors(numbers), **(colors or {})}
    return Legend(
        numbers,
        tuple(given.get(code, f"{kind}_{code}") for code in numbers),
        tuple(painted[code] for code in numbers),
    )


def _keyed(legend: Legend, keys: NDArray[Any], values: NDArray[Any]) -> Legend:
    if np.array_equal(keys, values):
        return legend
    return Legend(legend.codes, legend.names, legend.colors, keys, values.astype(np.int64))
