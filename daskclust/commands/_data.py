"""What data a model was fitted to, and whether others are of the same kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["bands_of_model", "check_same_data", "described", "read_scaling"]


def described(cube: Any) -> dict[str, Any]:
    """Describe the data of a cube as JSON values, to be saved with a model.

    Parameters
    ----------
    cube : Cube

    Returns
    -------
    dict
        Bands used and stored, wavelengths, and how samples are made of stored numbers.
    """
    named = cube.wavelengths
    units = cube.attributes.get("units")
    return {
        "bands": cube.bands.tolist(),
        "stored_bands": cube.stored.shape[2],
        "wavelengths": None if named is None else named.tolist(),
        "dtype": str(cube.stored.dtype),
        "values": cube.values,
        "units": units if isinstance(units, str) else None,
    }


def _data(job: Any) -> dict[str, Any]:
    data = job.get("data") if isinstance(job, dict) else None
    return data if isinstance(data, dict) else {}


def read_scaling(job: Any) -> Any:
    """Return the scale by which a model's rows were made, from the job saved with it.

    Raises
    ------
    ValueError
        Rows were whitened: only a cube handed to the model itself is made so again.
    """
    scaling = job.get("scaling") if isinstance(job, dict) else None
    if isinstance(scaling, list) and len(scaling) == 2:
        return tuple(scaling)
    scale = job.get("scale", "none") if isinstance(job, dict) else "none"
    if scale == "whitened":
        raise ValueError(
            "The model was fitted with --scale whitened; expected one of none, standard, unit or "
            "angle here. Fit again with one of these."
        )
    return scale if scale in ("none", "unit", "angle") else "none"


def bands_of_model(job: Any, open_plain: Callable[[], Any]) -> Any:
    """Return the bands of a cube that a model takes; None where the options decide.

    Parameters
    ----------
    job : dict or None
        Saved with the model.
    open_plain : callable() -> Cube
        Opens the cube with the bands of the options.

    Raises
    ------
    ValueError
        The cube has another number of bands.
    """
    data = _data(job)
    if not data:
        return None
    cube = open_plain()
    mine, stored = data["bands"], cube.stored.shape[2]
    if stored == data["stored_bands"]:
        return mine
    if len(cube.bands) == len(mine):
        # A part of the scene's bands, as the file has them or as the options say.
        return cube.bands.tolist()
    raise ValueError(
        f"The cube has {stored} bands, the model was fitted to {len(mine)} of "
        f"{data['stored_bands']}; expected a scene with the same bands. Leave others out with "
        "--bad-bands."
    )


def check_same_data(job: Any, cube: Any) -> None:
    """Refuse a cube whose samples are in other units, or of other wavelengths, than a model's.

    Raises
    ------
    ValueError
    """
    data = _data(job)
    if not data:
        return
    mine, theirs = described(cube), data
    for one, other, who, whom in (
        (mine, theirs, "cube", "model"),
        (theirs, mine, "model", "cube"),
    ):
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
    if None in (mine["wavelengths"], theirs["wavelengths"]):
        return
    here, there = np.array(mine["wavelengths"]), np.array(theirs["wavelengths"])
    if here.shape != there.shape or len(here) < 2:
        return
    # Half of the step to the nearer neighbor: beyond it, another band is meant.
    steps = np.abs(np.diff(there))
    room = np.minimum(np.append(steps, np.inf), np.insert(steps, 0, np.inf)) / 2
    wrong = np.flatnonzero(np.abs(here - there) > np.maximum(room, 1.0))
    if len(wrong):
        at = int(wrong[0])
        raise ValueError(
            f"Band {cube.bands[at]} of the cube lies at {here[at]:g} nm, that of the model at "
            f"{there[at]:g} nm; expected a scene with the same bands."
        )


def _shown(data: dict[str, Any]) -> str:
    return ", ".join(
        f"{key} {'one a band' if isinstance(value, list) else f'{value:g}'}"
        for key, value in data["values"].items()
    )
