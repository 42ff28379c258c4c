"""Names and colors of classes, colors of scenes: the same in pictures, reports and maps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from colorsys import hsv_to_rgb
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust.core.array_types import Array, Floats, Ints

# Okabe & Ito's colors, told apart with any color vision; then a few more.
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
#: So many are told apart with any color vision.
N_DISTINCT = len(_COLORS)
#: Color of pixels without data or class.
NODATA_COLOR = "#1a1a1a"
#: Color of rows that belong to no cluster.
NOISE_COLOR = "#bdbdbd"
#: Red, green and blue light in nm: what a composite shows if there are wavelengths.
_RGB = (660.0, 550.0, 470.0)
#: Turn of the color wheel from one further color to the next: never near the last ones.
_GOLDEN = 0.618034


def label_colors(count: int) -> list[str]:
    """Return a color for each label, as ``#rrggbb``.

    The first twelve are told apart with any color vision; further ones are spread
    over the color wheel.

    >>> label_colors(2), len(set(label_colors(40)))
    (['#0072b2', '#e69f00'], 40)
    """
    return [_color(code) for code in range(count)]


def class_colors(codes: Iterable[int]) -> dict[int, str]:
    """Return the color of each code: that of the label with this number.

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
    """Return the name of a code; of one without a name its kind and number.

    >>> name_of(7, {7: "wheat"}), name_of(3), name_of(3, kind="cluster")
    ('wheat', 'class_3', 'cluster_3')
    """
    return (names or {}).get(code, f"{kind}_{code}")


def places_of_names(names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return where each wanted name stands among names, -1 for none; one to one.

    Attributes of CF have no blanks in names: ``a_b`` is ``a b`` too, where no other name is.

    >>> places_of_names(["dry soil", "dry_soil", "old wood"], ["dry_soil", "dry soil", "old_wood"])
    [1, 0, 2]
    """
    found: list[int] = [-1] * len(wanted)
    for plain in (str, lambda name: "_".join(name.split())):
        places = {plain(name): at for at, name in enumerate(names) if at not in found}
        for at, name in enumerate(wanted):
            if found[at] < 0:
                found[at] = places.pop(plain(name), -1)
    return found


@dataclass(frozen=True)
class Legend:
    """The values of a label map, ascending, with a name and a color (``#rrggbb``) each.

    `keys` are labels of the model, ascending, None if they are the values themselves; `values` is
    the value of each key. `classes` are values that are classes, or clusters with a name, not mere
    numbers. `codes_are_given`: the codes are those of the labels, and not made for classes that are
    text. `noise` is the value of rows without a cluster.
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
        """Return the legend of ascending codes, most of which may have no name and no color.

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
        """Return the same for labels of a model that are not the values themselves."""
        if np.array_equal(keys, values):
            return self
        return replace(self, keys=keys, values=values.astype(np.int64))

    def encode(self, labels: Any) -> Any:
        """Turn labels of the model into values of the map; lazy for Dask arrays."""
        if self.keys is None:
            return labels
        if hasattr(labels, "map_blocks"):
            return labels.map_blocks(_looked_up, keys=self.keys, values=self.values, dtype=np.int64)
        return _looked_up(np.asarray(labels), keys=self.keys, values=self.values)

    @property
    def is_of_clusters(self) -> bool:
        """Whether all names are numbers of clusters."""
        numbers = (name_of(code, kind="cluster") for code in self.codes)
        items = zip(self.codes, self.names, numbers, strict=True)
        return all(name == number or code == self.noise for code, name, number in items)

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
    """Raise where pictures cannot be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib, which is not installed. Use: pip install 'daskclust[plot]'"
        ) from error


def drawn(
    labels: Array, colors: Sequence[str], codes: Sequence[int] | None = None
) -> tuple[Ints, NDArray[np.uint8]]:
    """Draw a label map: ``table[places]`` are its pixels, red, green and blue.

    `colors` are of the labels 0, 1, ..., or of the ascending `codes`. Labels below 0 are dark, the
    place 0.

    >>> places, table = drawn(np.array([[7, -1]]), ["#0072b2", "#e69f00"], [0, 7])
    >>> places.tolist(), table[places].tolist()
    ([[2, 0]], [[[230, 159, 0], [26, 26, 26]]])
    """
    at = labels if codes is None else np.searchsorted(codes, labels)
    table = np.array([list(bytes.fromhex(color[1:])) for color in (NODATA_COLOR, *colors)])
    return np.where(labels < 0, 0, at + 1), table.astype(np.uint8)
