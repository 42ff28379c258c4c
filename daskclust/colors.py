"""Names and colors of classes and scenes, which are the same in pictures, reports and maps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from colorsys import hsv_to_rgb
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats, Ints

__all__ = [
    "NODATA_COLOR",
    "NOISE_COLOR",
    "N_DISTINCT",
    "Legend",
    "class_colors",
    "drawn",
    "label_colors",
    "name_of",
    "positions_of_names",
    "require_matplotlib",
    "rgb_bands",
    "stretch",
]

# The colors of Okabe and Ito, which can be distinguished with any color vision, and a few more.
_COLORS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#f0e442",
    "#332288",
    "#999933",
    "#882255",
    "#44aa99",
    "#aaaaaa",
)
#: Number of colors that can be distinguished with any color vision.
N_DISTINCT = len(_COLORS)
#: Color of pixels without data or class.
NODATA_COLOR = "#1a1a1a"
#: Color of rows without a cluster.
NOISE_COLOR = "#bdbdbd"
#: Wavelengths of red, green and blue light in nm, for color composites.
_RGB = (660.0, 550.0, 470.0)
#: Step on the color wheel (as a fraction) between further colors, so that successive colors differ.
_GOLDEN = 0.618034


def label_colors(count: int) -> list[str]:
    """Return a color for each label, as ``#rrggbb``.

    The first twelve colors can be distinguished with any color vision.  Further colors are spread
    over the color wheel.

    >>> label_colors(2), len(set(label_colors(40)))
    (['#0072b2', '#e69f00'], 40)
    """
    return [_color(code) for code in range(count)]


def class_colors(codes: Iterable[int]) -> dict[int, str]:
    """Return the color of each code, which is the color of the label with this number.

    >>> class_colors([1, 0, -2])
    {1: '#e69f00', 0: '#0072b2', -2: '#1a1a1a'}
    """
    return {int(code): _color(int(code)) if code >= 0 else NODATA_COLOR for code in codes}


def _color(code: int) -> str:
    if code < len(_COLORS):
        return _COLORS[code]
    red, green, blue = hsv_to_rgb(
        code * _GOLDEN % 1.0, (0.45, 0.7, 0.95)[code % 3], 0.9 - code % 2 * 0.25
    )
    return f"#{int(255 * red):02x}{int(255 * green):02x}{int(255 * blue):02x}"


def name_of(code: int, names: Mapping[int, str] | None = None, kind: str = "class") -> str:
    """Return the name of a code, or its kind and number if it has no name.

    >>> name_of(7, {7: "wheat"}), name_of(3), name_of(3, kind="cluster")
    ('wheat', 'class_3', 'cluster_3')
    """
    return (names or {}).get(code, f"{kind}_{code}")


def positions_of_names(names: Sequence[str], requested: Sequence[str]) -> list[int]:
    """Return the position of each requested name among ``names``, or -1; positions are distinct.

    CF attributes cannot contain blanks in names.  So ``a_b`` also matches ``a b``, unless there is
    an exact match.

    >>> names = ["dry soil", "dry_soil", "old wood"]
    >>> positions_of_names(names, ["dry_soil", "dry soil", "old_wood"])
    [1, 0, 2]
    """
    positions: list[int] = [-1] * len(requested)
    for plain in (str, lambda name: "_".join(name.split())):
        by_name = {
            plain(name): position
            for position, name in enumerate(names)
            if position not in positions
        }
        for position, name in enumerate(requested):
            if positions[position] < 0:
                positions[position] = by_name.pop(plain(name), -1)
    return positions


@dataclass(frozen=True)
class Legend:
    """Ascending values (codes) of a label map, with their names and colors (``#rrggbb``).

    `keys` are the ascending labels of the model, and `values` the code of each label.  They are
    None if labels are codes.  `classes` are the codes of classes and of clusters with a name.
    `codes_are_given` is True if the codes are those of the labels, and False if they were assigned
    to classes that are text.  `noise` is the code of rows without a cluster.
    """

    codes: tuple[int, ...]
    names: tuple[str, ...]
    colors: tuple[str, ...]
    keys: NDArray[Any] | None = None
    values: Ints | None = None
    classes: frozenset[int] = frozenset()
    codes_are_given: bool = True
    noise: int | None = None

    @classmethod
    def of(
        cls,
        codes: Iterable[int],
        names: Mapping[int, str] | None = None,
        colors: Mapping[int, str] | None = None,
        *,
        kind: str = "cluster",
    ) -> Legend:
        """Return the legend of ascending codes.  Codes without a name or color get default ones.

        >>> Legend.of([0, 7], {7: "wheat"}).names
        ('cluster_0', 'wheat')
        """
        numbers = tuple(int(code) for code in codes)
        painted = {**class_colors(numbers), **(colors or {})}
        return cls(
            numbers,
            tuple(name_of(code, names, kind) for code in numbers),
            tuple(painted[code] for code in numbers),
        )

    def of_labels(self, keys: NDArray[Any], values: NDArray[Any]) -> Legend:
        """Return this legend for a model whose labels ``keys`` differ from the codes ``values``."""
        if np.array_equal(keys, values):
            return self
        return replace(self, keys=keys, values=values.astype(np.int64))

    def encode(self, labels: Any) -> Any:
        """Convert labels of the model to codes of the map; lazy for Dask arrays."""
        if self.keys is None:
            return labels
        if hasattr(labels, "map_blocks"):
            return labels.map_blocks(_look_up, keys=self.keys, values=self.values, dtype=np.int64)
        return _look_up(np.asarray(labels), keys=self.keys, values=self.values)

    @property
    def is_of_clusters(self) -> bool:
        """True if all names are default names of clusters."""
        numbers = (name_of(code, kind="cluster") for code in self.codes)
        items = zip(self.codes, self.names, numbers, strict=True)
        return all(name == number or code == self.noise for code, name, number in items)

    @property
    def by_code(self) -> dict[int, str]:
        """Names by code."""
        return dict(zip(self.codes, self.names, strict=True))

    @property
    def color_by_code(self) -> dict[int, str]:
        """Colors by code."""
        return dict(zip(self.codes, self.colors, strict=True))


def _look_up(labels: NDArray[Any], *, keys: Any, values: Any) -> Ints:
    if not len(labels):
        return np.empty(labels.shape, np.int64)
    codes: Ints = values[np.searchsorted(keys, labels)]
    return codes


def rgb_bands(n_bands: int, wavelengths: Floats | None) -> NDArray[np.intp]:
    """Return the bands nearest to red, green and blue light, or spread over the cube."""
    if wavelengths is None:
        return np.linspace(n_bands - 1, 0, 3).astype(np.intp)
    return np.array([np.abs(wavelengths - light).argmin() for light in _RGB])


def stretch(picture: Array) -> Array:
    """Stretch each band of a picture (y, x, 3) between its 2nd and 98th percentile."""
    values = np.asarray(picture, dtype=float)
    if np.isnan(values).all():
        return np.full(values.shape, 0.1)
    low, high = np.nanpercentile(values, [2, 98], axis=(0, 1))
    values = np.clip((values - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
    return np.nan_to_num(values, nan=0.1)


def require_matplotlib() -> None:
    """Raise ImportError if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "Pictures require matplotlib, which is not installed. Use: pip install "
            "'daskclust[plot]'"
        ) from error


def drawn(
    labels: Array, colors: Sequence[str], codes: Sequence[int] | None = None
) -> tuple[Ints, NDArray[np.uint8]]:
    """Return the positions of labels in a table of colors, and this table of RGB values.

    `colors` belong to the labels 0, 1, ..., or to the ascending `codes`.  Labels below 0 have
    position 0, a dark color.

    >>> places, table = drawn(np.array([[7, -1]]), ["#0072b2", "#e69f00"], [0, 7])
    >>> places.tolist(), table[places].tolist()
    ([[2, 0]], [[[230, 159, 0], [26, 26, 26]]])
    """
    index = labels if codes is None else np.searchsorted(codes, labels)
    table = np.array([list(bytes.fromhex(color[1:])) for color in (NODATA_COLOR, *colors)])
    return np.where(labels < 0, 0, index + 1), table.astype(np.uint8)
