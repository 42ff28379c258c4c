"""Estimators that can be saved, loaded and pickled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from daskclust.persistence.origin import ENTRIES
from daskclust.persistence.schema import Array, Choice, Entry, Names, Number

__all__ = ["Saveable"]


class Saveable:
    """Mixin of every estimator, to save, load, pickle and continue it."""

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "n_features_in_": Number(int, low=1, dim="p"),
        "feature_names_in_": Names("p", optional=True),
        # How the samples of a cube are scaled that is handed to `predict`.
        "_cube_scale": Choice(("none", "standard", "unit", "whitened"), optional=True),
        "_cube_mean": Array("p", optional=True),
        "_cube_std": Array("p", optional=True),
        "_cube_matrix": Array("p", "p", optional=True),
        **ENTRIES,
    }
    #: Parameters that may differ where a checkpoint is continued.
    _resumes_with: ClassVar[tuple[str, ...]] = ()
    #: Values of parameters that are other names of one.
    _synonyms: ClassVar[Mapping[str, Mapping[str, str]]] = {}

    def save(self, path: Any, *, overwrite: bool = False) -> None:
        """Save the fitted model as a Zarr group.

        Parameters
        ----------
        path : str, path or zarr store
            Folder to write, usually ``*.zarr``; or a URL that fsspec supports.
        overwrite : bool, default=False
            Replace a saved model.  Anything else is never replaced.

        Raises
        ------
        NotFittedError
            The estimator is not fitted.
        FileExistsError
            `path` exists, and `overwrite` is False or `path` is not a saved model.

        See Also
        --------
        daskclust.load : Load a saved model.

        Notes
        -----
        Parameters and fitted attributes are saved with a checksum: arrays uncompressed,
        everything else as JSON; no pickle.  Not saved are attributes as long as the data
        (``labels_``), parameters that can only be restored by running code (callables,
        random generators), and ``checkpoint``, which would write a file.  A local folder
        appears under its name only when it is complete.

        Examples
        --------
        >>> import tempfile, pathlib, numpy as np, daskclust
        >>> X = np.array([[0.0], [1.0], [10.0], [11.0]])
        >>> model = daskclust.KMeans(2, random_state=0).fit(X)
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.zarr"
        >>> model.save(path)
        >>> bool((daskclust.load(path).predict(X) == model.predict(X)).all())
        True
        """
        # Not at the top: Zarr takes as long to import as all the rest.
        from daskclust.persistence.models import save

        save(self, path, overwrite=overwrite)

    def _check_loaded(self) -> None:
        """Raise ValueError where parameters and state of a loaded model contradict each other."""

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the model without lazy results, which would drag the data along."""
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if not _is_lazy(value)}


def _is_lazy(value: Any) -> bool:
    return hasattr(value, "__dask_graph__")
