"""Array types for annotations, and the notation for their axes."""

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

    A form has one name per axis; axes with the same name must have the same length.  Return None if
    no form matches the shape and the known lengths.

    >>> named_axes("k p | k p p", (3, 2, 2), {"k": 3}), named_axes("k k", (3, 2), {})
    ({'k': 3, 'p': 2}, None)
    """
    for form in forms.split("|"):
        axes, lengths = form.split(), dict(sizes)
        if len(axes) == len(shape) and all(
            lengths.setdefault(axis, length) == length
            for axis, length in zip(axes, shape, strict=True)
        ):
            return lengths
    return None
