"""Types of arrays, as annotations name them, and the language of their axes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def named_axes(
    forms: str, shape: tuple[int, ...], sizes: Mapping[str, int]
) -> dict[str, int] | None:
    """Match a shape with forms such as ``"k p | k p p"``; return the lengths of all axes by name.

    A form is a name for each axis; axes of one name are equally long. None: no form goes with the
    lengths that are known.

    >>> named_axes("k p | k p p", (3, 2, 2), {"k": 3}), named_axes("k k", (3, 2), {})
    ({'k': 3, 'p': 2}, None)
    """
    for form in forms.split("|"):
        axes, found = form.split(), dict(sizes)
        if len(axes) == len(shape) and all(
            found.setdefault(axis, length) == length
            for axis, length in zip(axes, shape, strict=True)
        ):
            return found
    return None
