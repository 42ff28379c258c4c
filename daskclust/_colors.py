"""Colors of labels: the same in pictures, in maps for GIS and in reports."""

from __future__ import annotations

from colorsys import hsv_to_rgb

__all__ = ["label_colors", "rgb_of"]

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

#: Turn of the color wheel from one further color to the next: never near the last ones.
_GOLDEN = 0.618034


def label_colors(count: int) -> list[str]:
    """Return a color for each label, as ``#rrggbb``.

    The first twelve are told apart with any color vision; further ones are spread
    over the color wheel.

    Examples
    --------
    >>> label_colors(2), len(set(label_colors(40)))
    (['#0072b2', '#e69f00'], 40)
    """
    out = list(_COLORS[:count])
    for i in range(len(out), count):
        red, green, blue = hsv_to_rgb(
            i * _GOLDEN % 1.0, (0.45, 0.7, 0.95)[i % 3], 0.9 - i % 2 * 0.25
        )
        out.append(f"#{int(255 * red):02x}{int(255 * green):02x}{int(255 * blue):02x}")
    return out


def rgb_of(color: str) -> tuple[int, int, int]:
    """Return red, green and blue of ``#rrggbb``.

    Examples
    --------
    >>> rgb_of("#0072b2")
    (0, 114, 178)
    """
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
