"""Mixin of estimators: saving, loading and pickling; stored facts about cubes and classes."""

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

#: Attributes of a model: description of its cube, names and colors of classes, merged classes.
_SCENE, NAMES, _MERGED = "_cube_data", "_class_names", "_merged_classes"
#: Attributes that describe the classes of a fit or a cut.  The next fit or cut removes them.
OF_CLASSES = (NAMES, _MERGED)
_OF_CUBE = ("bands", "stored_bands", "wavelengths", "band_names", "dtype", "values", "units")


@dataclasses.dataclass(frozen=True)
class Described(Entry):
    """Dictionary of JSON values with a fixed set of names."""

    names: tuple[str, ...]
    optional: bool = dataclasses.field(default=True, kw_only=True)

    def restore(self, name: str, meta: Any, arrays: Arrays, sizes: dict[str, int]) -> Any:
        """Check the names, and the values of the bands."""
        value = from_json(meta)
        if not isinstance(value, dict) or value.keys() != set(self.names):
            raise ModelFormatError(f"{name} must have the keys {', '.join(self.names)}.")
        for key, item in value.items():
            kind = {"bands": int, "wavelengths": int | float, "band_names": str}.get(key)
            if kind is None or (item is None and key != "bands"):
                continue
            valid = isinstance(item, list) and all(isinstance(element, kind) for element in item)
            if not valid or len(item) != sizes.get("p", len(item)):
                raise ModelFormatError(
                    f"{name} must have {key} that match the features of the model."
                )
        if "bands" in value:
            stored = value["stored_bands"]
            of_stored = type(stored) is int and all(0 <= band < stored for band in value["bands"])
            if not of_stored or len(set(value["bands"])) < len(value["bands"]):
                raise ModelFormatError(
                    f"{name} must have distinct bands below the number of stored bands, got "
                    f"{stored!r} stored bands."
                )
        if {"names", "into"} & value.keys() and not all(
            isinstance(element, dict) and all(map(_is_entry, element.items()))
            for element in value.values()
        ):
            raise ModelFormatError(f"{name} must map codes to strings.")
        if not all(text.lstrip("-").isdecimal() for text in value.get("into", {}).values()):
            raise ModelFormatError(f"{name} must map codes to codes.")
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
    """Return the description of the cube that a model was fitted to, or None."""
    return getattr(model, _SCENE, None)


def clusters_are_classes(model: Any) -> bool:
    """Return True if a fitted model predicts classes of labels, or clusters assigned to them."""
    classes = getattr(model, "classes_", None)
    return classes is not None and (is_classifier(model) or hasattr(model, "cluster_classes_"))


def name_classes(
    model: Any, names: Mapping[int, str] | None, colors: Mapping[int, str] | None = None
) -> None:
    """Store names and colors of classes or clusters, by code, in a fitted model."""
    vars(model).pop(NAMES, None)
    tables = [
        {str(int(code)): str(text) for code, text in (mapping or {}).items()}
        for mapping in (names, colors)
    ]
    if any(tables):
        setattr(model, NAMES, dict(zip(("names", "colors"), tables, strict=True)))


def class_names_of(model: Any) -> tuple[dict[int, str], dict[int, str]]:
    """Return the names and the colors that :func:`name_classes` stored in a model, by code."""
    tables = getattr(model, NAMES, None) or {"names": {}, "colors": {}}
    names, colors = ({int(k): v for k, v in tables[key].items()} for key in ("names", "colors"))
    return names, colors


def merge_classes(model: Any, into: Mapping[int, int]) -> None:
    """Store class codes and the codes that replace them in a fitted model; {} removes all."""
    vars(model).pop(_MERGED, None)
    if into:
        codes = {str(int(code)): str(int(target)) for code, target in into.items()}
        setattr(model, _MERGED, {"into": codes})


def merged_classes_of(model: Any) -> dict[int, int]:
    """Return the class codes that :func:`merge_classes` stored, with their new codes."""
    stored = getattr(model, _MERGED, None) or {"into": {}}
    return {int(code): int(target) for code, target in stored["into"].items()}


def bands_for(model: Any, cube: Any) -> list[int] | None:
    """Return the bands of a cube that a model uses, or None if it was not fitted to a cube."""
    data = scene_of(model)
    if data is None:
        return None
    model_bands: list[int] = data["bands"]
    stored = cube.stored.shape[2]
    if stored == data["stored_bands"]:
        return model_bands
    if len(cube.bands) == len(model_bands):
        # The cube has a subset of the bands of the scene.
        cube_bands: list[int] = cube.bands.tolist()
        return cube_bands
    raise ValueError(
        f"The cube must have the bands of the model, got {stored} bands; the model was fitted to "
        f"{len(model_bands)} of {data['stored_bands']}. Exclude other bands with "
        "bad_bands (--bad-bands)."
    )


def check_same_data(model: Any, cube: Any) -> None:
    """Raise ValueError if units or bands of a cube and a model differ."""
    theirs = scene_of(model)
    if theirs is None:
        return
    mine = cube.described()
    for scaled, unscaled, who, whom in (
        (mine, theirs, "cube", "model"),
        (theirs, mine, "model", "cube"),
    ):
        if scaled["values"] and not unscaled["values"] and np.dtype(unscaled["dtype"]).kind in "iu":
            raise ValueError(
                "The data of the cube and the model must have the same unit, but the values of "
                f"the {who} are scaled ({_shown(scaled)}) and those of the {whom} are stored "
                f"{unscaled['dtype']} numbers. Add the attributes scale_factor and add_offset to "
                "the other file, or fit again."
            )
    if None not in (mine["units"], theirs["units"]) and mine["units"] != theirs["units"]:
        raise ValueError(
            f"The data of the cube and the model must have the same unit, got {mine['units']!r} "
            f"and {theirs['units']!r}. Convert the cube, or fit again."
        )
    if len(mine["bands"]) != len(theirs["bands"]):
        raise ValueError(
            f"The cube must have the {len(theirs['bands'])} bands of the model, got "
            f"{len(mine['bands'])}. Use a scene of the same sensor, or exclude bands with "
            "bad_bands (--bad-bands)."
        )
    _check_same_bands(mine, theirs)


def _check_same_bands(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Compare bands by wavelength, by name or by number: the first that cube and model have."""
    remedy = (
        "the cube must have the same bands in the same order. Reorder its bands, "
        "for example with xarray's isel, or exclude others with bad_bands (--bad-bands)."
    )
    if None not in (mine["wavelengths"], theirs["wavelengths"]) and len(mine["bands"]) > 1:
        wavelengths, model_wavelengths = (
            np.array(mine["wavelengths"]),
            np.array(theirs["wavelengths"]),
        )
        # The tolerance is half of the distance to the nearer band of the model.
        steps = np.abs(np.diff(model_wavelengths))
        tolerance = np.minimum(np.append(steps, np.inf), np.insert(steps, 0, np.inf)) / 2
        wrong = np.flatnonzero(np.abs(wavelengths - model_wavelengths) > np.maximum(tolerance, 1.0))
        if len(wrong):
            band = int(wrong[0])
            raise ValueError(
                f"Band {mine['bands'][band]} of the cube has {wavelengths[band]:g} nm, and the "
                f"band of the model has {model_wavelengths[band]:g} nm; {remedy}"
            )
        return
    names, model_names = mine["band_names"], theirs["band_names"]
    if None not in (names, model_names) and len(set(model_names)) == len(model_names):
        positions = {name: band for band, name in enumerate(model_names)}
        for band, name in enumerate(names):
            if positions.get(name, band) != band:
                raise ValueError(
                    f"Band {name!r} is number {band} in the cube, and number {positions[name]} in "
                    f"the model; {remedy}"
                )
        if not positions.keys().isdisjoint(names):
            return
    if mine["stored_bands"] == theirs["stored_bands"] and mine["bands"] != theirs["bands"]:
        band = next(i for i, b in enumerate(mine["bands"]) if b != theirs["bands"][i])
        raise ValueError(
            f"Feature {band} is band {mine['bands'][band]} of the cube, and was band "
            f"{theirs['bands'][band]} of {theirs['stored_bands']} in the fit; {remedy}"
        )


def _shown(data: dict[str, Any]) -> str:
    return ", ".join(
        f"{key} {'per band' if isinstance(value, list) else f'{value:g}'}"
        for key, value in data["values"].items()
    )


def check_count(model: Any, parameter: str, fitted: int, what: str = "clusters") -> None:
    """Raise ValueError if a parameter differs from the number of the fit."""
    value = getattr(model, parameter)
    if value != fitted:
        raise ValueError(
            f"{parameter} must be {fitted}, the number of {what} of the fit, got {value}; "
            "changing the parameter needs another fit"
        )


class _MissingAttribute:
    """Descriptor of an attribute that is not saved: it raises AttributeError with the reason."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, model: Any, owner: type) -> Self:
        if model is None:
            return self
        if "n_features_in_" not in vars(model):
            raise AttributeError(f"{owner.__name__!r} object has no attribute {self.name!r}")
        predicts = self.name == "labels_" and hasattr(model, "predict")
        remedy = "Call predict(X)" if predicts else "Fit again"
        partial_fit_note = (
            ", and partial_fit does not set them" if hasattr(model, "partial_fit") else ""
        )
        raise AttributeError(
            f"This {owner.__name__} has no {self.name}. Results as long as the data are not "
            f"saved, and lazy ones are not pickled or copied{partial_fit_note}. "
            f"{remedy}, or compute them where the model was fitted."
        )


class Saveable:
    """Mixin of all estimators, to save, load, pickle and resume them."""

    _saved_state: ClassVar[Mapping[str, Entry]] = {
        "n_features_in_": Number(int, low=1, dim="p"),
        "feature_names_in_": Names("p", optional=True),
        # Scaling of the samples of a cube in `predict`.
        "_cube_scale": Choice(("none", "standard", "unit", "whitened"), optional=True),
        "_cube_mean": Array("p", optional=True),
        "_cube_std": Array("p", optional=True),
        "_cube_matrix": Array("p p", optional=True),
        # Minimum and maximum of each feature in the data of the fit, and its number of rows.
        "_fit_low": Array("p", optional=True),
        "_fit_high": Array("p", optional=True),
        "_fit_rows": Number(int, low=1, optional=True),
        **ENTRIES,
    }
    #: Names of attributes that are as long as the data.
    _of_rows: ClassVar[tuple[str, ...]] = ("labels_",)
    #: Parameters that may change when a checkpoint is resumed.
    _resumes_with: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in cls._of_rows:
            setattr(cls, name, _MissingAttribute(name))

    def save(self, path: Any, *, overwrite: bool = False) -> None:
        """Save the fitted model as a Zarr group.

        Parameters
        ----------
        path : str, path or zarr store
            Folder to write, usually ``*.zarr``; or a URL that fsspec supports.
        overwrite : bool, default=False
            Replace a saved model.  Other files are never replaced.

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
        Parameters and fitted attributes are saved with a checksum: arrays without compression, and
        other values as JSON.  Pickle is not used.  The file does not contain attributes as long as
        the data (``labels_``), parameters that require code (callables, random generators), and
        ``checkpoint``.  A local folder has a hidden name until it is complete.

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
        # Imported here, because importing Zarr takes as long as all other imports.
        from daskclust.core.persistence.models import save

        save(self, path, overwrite=overwrite)

    def _check_sizes(self) -> None:
        """Raise ValueError if parameters and state of a model contradict each other."""

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the model without lazy results, whose graphs contain the data."""
        state: Any = super().__getstate__()
        return {
            name: value for name, value in state.items() if not hasattr(value, "__dask_graph__")
        }
