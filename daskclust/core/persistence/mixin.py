"""Estimators that can be saved, loaded and pickled, and know their cube and names of classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import is_classifier

from daskclust.core.persistence.schema import (
    Array,
    Arrays,
    Choice,
    Entry,
    Names,
    Number,
    from_json,
)
from daskclust.exceptions import ModelFormatError

#: Attributes of a model: the cube that it was fitted to, and names and colors of classes.
_SCENE, NAMES, _MERGED = "_cube_data", "_class_names", "_merged_classes"
#: Those that say something of the classes of one fit, or one cut: another one has none of them.
OF_CLASSES = (NAMES, _MERGED)
_OF_CUBE = ("bands", "stored_bands", "wavelengths", "band_names", "dtype", "values", "units")


@dataclasses.dataclass(frozen=True)
class Described(Entry):
    """JSON values by name, of which all names are known."""

    names: tuple[str, ...]
    optional: bool = dataclasses.field(default=True, kw_only=True)

    def restore(self, name: str, meta: Any, arrays: Arrays, sizes: dict[str, int]) -> Any:
        """Check the names, and values that are given for each band."""
        value = from_json(meta)
        if not isinstance(value, dict) or value.keys() != set(self.names):
            raise ModelFormatError(f"{name} does not say {', '.join(self.names)}.")
        for key, item in value.items():
            kind = {"bands": int, "wavelengths": int | float, "band_names": str}.get(key)
            if kind is None or (item is None and key != "bands"):
                continue
            whole = isinstance(item, list) and all(isinstance(part, kind) for part in item)
            if not whole or len(item) != sizes.get("p", len(item)):
                raise ModelFormatError(f"{name} holds {key} that are not those of its features.")
        if "bands" in value:
            stored = value["stored_bands"]
            of_stored = type(stored) is int and all(0 <= at < stored for at in value["bands"])
            if not of_stored or len(set(value["bands"])) < len(value["bands"]):
                raise ModelFormatError(
                    f"{name} holds bands that are not those of {stored!r} stored ones, each once."
                )
        if {"names", "into"} & value.keys() and not all(
            isinstance(part, dict) and all(map(_is_entry, part.items())) for part in value.values()
        ):
            raise ModelFormatError(f"{name} holds no texts by code.")
        if not all(text.lstrip("-").isdecimal() for text in value.get("into", {}).values()):
            raise ModelFormatError(f"{name} holds no codes by code.")
        return value


def _is_entry(item: tuple[str, Any]) -> bool:
    return item[0].lstrip("-").isdecimal() and isinstance(item[1], str)


#: Entries of every model's state.
ENTRIES: Mapping[str, Entry] = {
    _SCENE: Described(_OF_CUBE),
    NAMES: Described(("names", "colors")),
    _MERGED: Described(("into",)),
}


def scene_of(model: Any) -> dict[str, Any] | None:
    """Return what the cube that a model was fitted to said of itself, if there was one."""
    return getattr(model, _SCENE, None)


def clusters_are_classes(model: Any) -> bool:
    """Whether what a fitted model predicts are the classes of labels, or clusters of them."""
    classes = getattr(model, "classes_", None)
    return classes is not None and (is_classifier(model) or hasattr(model, "cluster_classes_"))


def name_classes(
    model: Any, names: Mapping[int, str] | None, colors: Mapping[int, str] | None = None
) -> None:
    """Let a fitted model remember names and colors of its classes, or clusters, by code."""
    vars(model).pop(NAMES, None)
    said = [
        {str(int(code)): str(text) for code, text in (given or {}).items()}
        for given in (names, colors)
    ]
    if any(said):
        setattr(model, NAMES, dict(zip(("names", "colors"), said, strict=True)))


def class_names_of(model: Any) -> tuple[dict[int, str], dict[int, str]]:
    """Return the names and the colors that :func:`name_classes` gave to a model, by code."""
    said = getattr(model, NAMES, None) or {"names": {}, "colors": {}}
    names, colors = ({int(k): v for k, v in said[key].items()} for key in ("names", "colors"))
    return names, colors


def merge_classes(model: Any, into: Mapping[int, int]) -> None:
    """Let a fitted model remember which of its classes, by code, are others; {} forgets all."""
    vars(model).pop(_MERGED, None)
    if into:
        said = {str(int(code)): str(int(other)) for code, other in into.items()}
        setattr(model, _MERGED, {"into": said})


def merged_classes_of(model: Any) -> dict[int, int]:
    """Return what :func:`merge_classes` said of a model: another code by code."""
    said = getattr(model, _MERGED, None) or {"into": {}}
    return {int(code): int(other) for code, other in said["into"].items()}


def bands_for(model: Any, cube: Any) -> list[int] | None:
    """Return the bands of a cube that a model takes; None where it was not fitted to a cube."""
    data = scene_of(model)
    if data is None:
        return None
    mine: list[int] = data["bands"]
    stored = cube.stored.shape[2]
    if stored == data["stored_bands"]:
        return mine
    if len(cube.bands) == len(mine):
        # A part of the scene's bands, as the file has them or as the options say.
        found: list[int] = cube.bands.tolist()
        return found
    raise ValueError(
        f"The cube has {stored} bands, the model was fitted to {len(mine)} of "
        f"{data['stored_bands']}; expected a scene with the same bands. Leave others out with "
        "bad_bands (--bad-bands)."
    )


def check_same_data(model: Any, cube: Any) -> None:
    """Refuse a cube whose samples are in other units than a model's, or of other bands."""
    theirs = scene_of(model)
    if theirs is None:
        return
    mine = cube.described()
    for one, other, who, whom in ((mine, theirs, "cube", "model"), (theirs, mine, "model", "cube")):
        if one["values"] and not other["values"] and np.dtype(other["dtype"]).kind in "iu":
            raise ValueError(
                f"The values of the {who} are scaled ({_shown(one)}), those of the {whom} are "
                f"{other['dtype']} numbers as stored; expected data of one unit. Give the "
                "file that lacks them the attributes scale_factor and add_offset, or fit again."
            )
    if None not in (mine["units"], theirs["units"]) and mine["units"] != theirs["units"]:
        raise ValueError(
            f"The cube is in {mine['units']!r}, the model was fitted to data in "
            f"{theirs['units']!r}; expected the same unit. Convert the cube, or fit again."
        )
    if len(mine["bands"]) != len(theirs["bands"]):
        raise ValueError(
            f"The cube has {len(mine['bands'])} bands, the model was fitted to "
            f"{len(theirs['bands'])}; expected the same bands: a scene of the same sensor, or "
            "bad_bands (--bad-bands)."
        )
    _check_same_bands(mine, theirs)


def _check_same_bands(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Compare bands by wavelength, by name, or by number: the first that both state."""
    remedy = (
        "expected a scene with the same bands in the same order. Bring its bands to that order, "
        "for example with xarray's isel, or leave others out with bad_bands (--bad-bands)."
    )
    if None not in (mine["wavelengths"], theirs["wavelengths"]) and len(mine["bands"]) > 1:
        here, there = np.array(mine["wavelengths"]), np.array(theirs["wavelengths"])
        # Half of the step to the nearer neighbor: beyond it, another band is meant.
        steps = np.abs(np.diff(there))
        room = np.minimum(np.append(steps, np.inf), np.insert(steps, 0, np.inf)) / 2
        wrong = np.flatnonzero(np.abs(here - there) > np.maximum(room, 1.0))
        if len(wrong):
            at = int(wrong[0])
            raise ValueError(
                f"Band {mine['bands'][at]} of the cube lies at {here[at]:g} nm, that of the model "
                f"at {there[at]:g} nm; {remedy}"
            )
        return
    names, known = mine["band_names"], theirs["band_names"]
    if None not in (names, known) and len(set(known)) == len(known):
        places = {name: at for at, name in enumerate(known)}
        for at, name in enumerate(names):
            if places.get(name, at) != at:
                raise ValueError(
                    f"Band {name!r} is number {at} of the cube's, and number {places[name]} of "
                    f"the model's; {remedy}"
                )
        if not places.keys().isdisjoint(names):
            return
    if mine["stored_bands"] == theirs["stored_bands"] and mine["bands"] != theirs["bands"]:
        at = next(i for i, b in enumerate(mine["bands"]) if b != theirs["bands"][i])
        raise ValueError(
            f"Feature {at} is band {mine['bands'][at]} of the cube, and was band "
            f"{theirs['bands'][at]} of {theirs['stored_bands']} in the fit; {remedy}"
        )


def _shown(data: dict[str, Any]) -> str:
    return ", ".join(
        f"{key} {'one a band' if isinstance(value, list) else f'{value:g}'}"
        for key, value in data["values"].items()
    )


def check_count(model: Any, parameter: str, found: int, what: str = "clusters") -> None:
    """Raise ValueError where a parameter is not the number that a fit has found."""
    wanted = getattr(model, parameter)
    if wanted != found:
        raise ValueError(
            f"{parameter} is {wanted}, but the fit has {found} {what}; a parameter that is set "
            "after a fit needs another fit"
        )


class _OfRows:
    """Stands for a result of rows that a model is without, and says why; of a class, its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, model: Any, owner: type) -> Self:
        if model is None:
            return self
        if "n_features_in_" not in vars(model):
            raise AttributeError(f"{owner.__name__!r} object has no attribute {self.name!r}")
        predicts = self.name == "labels_" and hasattr(model, "predict")
        remedy = "Call predict(X)" if predicts else "Fit again"
        streams = ", and partial_fit makes none" if hasattr(model, "partial_fit") else ""
        raise AttributeError(
            f"This {owner.__name__} has no {self.name}. Results as long as the data are not "
            f"saved, lazy ones neither pickled nor copied{streams}. "
            f"{remedy}, or compute them where the model was fitted."
        )


class Saveable:
    """Mixin of every estimator, to save, load, pickle and continue it."""

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "n_features_in_": Number(int, low=1, dim="p"),
        "feature_names_in_": Names("p", optional=True),
        # How the samples of a cube are scaled that is handed to `predict`.
        "_cube_scale": Choice(("none", "standard", "unit", "whitened"), optional=True),
        "_cube_mean": Array("p", optional=True),
        "_cube_std": Array("p", optional=True),
        "_cube_matrix": Array("p p", optional=True),
        # Least and largest value of each feature in the data of the fit, and their rows.
        "_fit_low": Array("p", optional=True),
        "_fit_high": Array("p", optional=True),
        "_fit_rows": Number(int, low=1, optional=True),
        **ENTRIES,
    }
    #: Attributes as long as the data.
    _of_rows: ClassVar[tuple[str, ...]] = ("labels_",)
    #: Parameters that may differ where a checkpoint is continued.
    _resumes_with: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in cls._of_rows:
            setattr(cls, name, _OfRows(name))

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
        from daskclust.core.persistence.models import save

        save(self, path, overwrite=overwrite)

    def _check_sizes(self) -> None:
        """Raise ValueError where parameters and state of a model contradict each other."""

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the model without lazy results, which would drag the data along."""
        state: Any = super().__getstate__()
        return {
            name: value for name, value in state.items() if not hasattr(value, "__dask_graph__")
        }
