"""Pictures of a report as text that goes into the page: SVG, and PNG in base64."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskclust import plotting

__all__ = ["map_png", "photo_png", "svg"]

_NODATA = (0x1A, 0x1A, 0x1A)


def svg(
    draw: Callable[..., None], size: tuple[float, float], heights: tuple[float, ...] = (1.0,)
) -> str:
    """Let `draw` draw on axes, and return the picture as an ``<svg>`` element.

    Parameters
    ----------
    draw : callable(*axes)
    size : tuple of float
        Width and height in inches.
    heights : tuple of float
        Relative heights of the axes, one below the other over the same x.
    """
    figure = plotting.new_figure(figsize=size, layout="constrained")
    import matplotlib

    # Text stays text: it can be searched, and takes the fonts of the page.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "daskclust"}):
        grid = {"height_ratios": heights}
        draw(*figure.subplots(len(heights), 1, sharex=True, squeeze=False, gridspec_kw=grid)[:, 0])
        out = io.StringIO()
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(out, format="svg", transparent=True, metadata=nothing)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    # Names are those of the whole page; those of several pictures must not be mixed up.
    mark = f"p{abs(hash(text)) % 16**8:08x}-"
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{mark}", text)


def _png(image: Any) -> str:
    out = io.BytesIO()
    image.save(out, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode("ascii")


def map_png(label_map: NDArray[Any], n_labels: int) -> str:
    """Return a label map as the address of a PNG with one color a label; -1 is dark.

    Labels beyond 254 share colors, since such a PNG has 256.
    """
    from PIL import Image

    colors = [
        tuple(int(color[i : i + 2], 16) for i in (1, 3, 5))
        for color in plotting.label_colors(min(n_labels, 254))
    ]
    shown = np.where(label_map < 0, 0, label_map % 254 + 1).astype(np.uint8)
    image = Image.fromarray(shown)
    image.putpalette([part for color in (_NODATA, *colors) for part in color])
    return _png(image)


def photo_png(picture: NDArray[Any]) -> str:
    """Return a picture (y, x, 3) of values from 0 to 1 as the address of a PNG."""
    from PIL import Image

    return _png(Image.fromarray(np.asarray(255 * picture).astype(np.uint8)))
