"""Clustering from xarray: ``import daskclust.xarray`` adds ``.daskclust`` to its objects.

A separate import registers the accessor, as with ``rioxarray``.  ``import daskclust``
loads no optional package, and the order of imports does not matter.

>>> import numpy as np, xarray
>>> import daskclust, daskclust.xarray
>>> scene = xarray.DataArray(
...     np.random.default_rng(0).random((4, 20, 30)), dims=("band", "y", "x"))
>>> labels = scene.daskclust.fit_predict(daskclust.KMeans(3, random_state=0))
>>> labels.dims, labels.shape
(('y', 'x'), (20, 30))
"""

from __future__ import annotations

from typing import Any

try:
    import xarray
except ImportError as error:
    raise ImportError("xarray is not installed. Use: pip install 'daskclust[xarray]'") from error

from daskclust.colors import name_of
from daskclust.core.persistence.mixin import class_names_of
from daskclust.scenes import Cube, open_cube

__all__ = ["ClusterAccessor"]


@xarray.register_dataset_accessor("daskclust")
@xarray.register_dataarray_accessor("daskclust")
class ClusterAccessor:
    """Fit and predict on an ``xarray.DataArray`` or ``Dataset`` of y, x and band.

    Parameters
    ----------
    item : xarray.DataArray or xarray.Dataset
        Dimensions y, x and band in any order, optionally with dates; or a Dataset whose
        variables are the bands.  Lazy data stay lazy.

    Examples
    --------
    >>> import numpy as np, xarray, daskclust.xarray
    >>> scene = xarray.DataArray(np.zeros((2, 3, 4)), dims=("band", "y", "x"))
    >>> scene.daskclust.cube()
    <Cube 3 x 4 pixels, 2 bands, 1 x 1 blocks>
    """

    def __init__(self, item: Any) -> None:
        self._item = item

    def cube(self, **options: Any) -> Cube:
        """Open the object as a cube.

        Parameters
        ----------
        **options
            Parameters of :func:`daskclust.open_cube`: ``scale``, ``nodata``, ``bad_bands``, ...
        """
        return open_cube(self._item, **options)

    def fit_predict(self, estimator: Any, y: Any = None, **options: Any) -> Any:
        """Fit an estimator to the valid pixels, and return its labels as an image.

        Parameters
        ----------
        estimator : estimator of daskclust
            Fitted in place.
        y : array of shape (y, x), str or path, (rows, labels) or array of shape (n,), default=None
            Partial labels.  Either an image of labels, or a path to one (all forms that
            :meth:`daskclust.Cube.rows_of` reads); or labels of the valid pixels, in any
            form that the estimator's ``fit`` takes.
        **options
            Parameters of :func:`daskclust.open_cube`.

        Returns
        -------
        xarray.DataArray of shape (y, x)
            Lazy labels with the coordinates and the coordinate system of the object, -1
            where pixels are not valid (``encoding["_FillValue"]``).  Text labels become
            the codes 0, 1, ..., and the attribute ``flag_meanings`` holds their names.
            If clusters are classes and the image `y` has ``flag_meanings``, the result
            has these names, too.

        Raises
        ------
        ValueError
            A parameter that ``open_cube`` or ``fit`` does not accept.

        Notes
        -----
        Passes over the data: those of the fit, and one to count valid pixels where values
        may be missing.  Computing the result is one more.

        Examples
        --------
        >>> import numpy as np, xarray, daskclust, daskclust.xarray
        >>> scene = xarray.DataArray(
        ...     [[[0.0, 9.0], [0.5, np.nan]]], dims=("band", "y", "x"), coords={"x": [10, 40]})
        >>> found = scene.daskclust.fit_predict(daskclust.KMeans(2, random_state=0))
        >>> bool(found[0, 0] == found[1, 0]), int(found[1, 1]), found.x.values.tolist()
        (True, -1, [10, 40])
        """
        cube = self.cube(**options)
        estimator.fit(cube, *(() if y is None else (y,)))
        return self._image(cube, estimator, estimator.labels_)

    def predict(self, model: Any, **options: Any) -> Any:
        """Predict the label of each valid pixel with a fitted model, and return an image.

        Parameters
        ----------
        model : fitted estimator of daskclust
        **options
            Parameters of :func:`daskclust.open_cube`.

        Returns
        -------
        xarray.DataArray of shape (y, x)
            Lazy labels with the coordinates and the coordinate system of the object, -1
            where pixels are not valid (``encoding["_FillValue"]``).  Text labels become
            codes, named by ``flag_meanings``.

        Examples
        --------
        >>> import numpy as np, xarray, daskclust, daskclust.xarray
        >>> model = daskclust.KMeans(2, random_state=0).fit(np.array([[0.0], [9.0]]))
        >>> scene = xarray.DataArray([[[0.0, 9.0], [9.0, 9.0]]], dims=("band", "y", "x"))
        >>> found = scene.daskclust.predict(model).values
        >>> bool(found[0, 0] != found[0, 1]), bool((found[1] == found[0, 1]).all())
        (True, True)
        """
        cube = self.cube(**options)
        return self._image(cube, model, model.predict(cube))

    @staticmethod
    def _image(cube: Cube, model: Any, labels: Any) -> Any:
        classes = getattr(model, "classes_", None)
        owners = getattr(model, "cluster_classes_", None)
        names, _ = class_names_of(model)
        if classes is not None and owners is not None:
            # Clusters that are classes are named by them.
            codes = classes.tolist()
            named = [name_of(c, names) if isinstance(c, int) else str(c) for c in codes]
            names = {
                cluster: named[owner] if owner >= 0 else name_of(cluster, kind="cluster")
                for cluster, owner in enumerate(owners)
            }
        return cube.label_map(labels, classes=classes, class_names=names or None).to_xarray()
