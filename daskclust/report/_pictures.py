"""Pictures of a report as text that goes into the page: SVG, and PNG in base64."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskclust import plotting
from daskclust._types import Array, Floats
from daskclust.colors import NODATA_COLOR, rgb_bands, stretch
from daskclust.engine import compute

__all__ = ["map_png", "photo_jpeg", "photo_of", "svg"]

#: Stored bytes up to which a cube is read once more, for a color picture of the scene.
_PHOTO_BYTES = 512 * 2**20


def svg(
    draw: Callable[..., None],
    size: tuple[float, float],
    heights: tuple[float, ...] = (1.0,),
    *,
    name: str,
) -> str:
    """Let `draw` draw on axes, and return the picture as an ``<svg>`` element.

    `size` is in inches, `heights` are relative heights of axes, one below the other over the same
    x. `name` says what the picture shows, for readers who do not see it.
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
    # Black is whatever the page writes in.
    text = text.replace("#000000", "currentColor")
    text = text.replace("<svg", f'<svg role="img" aria-label="{html.escape(name)}"', 1)
    # Names are those of the whole page; those of several pictures must not be mixed up.
    mark = f"p{abs(hash(text)) % 16**8:08x}-"
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{mark}", text)


def map_png(label_map: Array, colors: Sequence[str]) -> str:
    """Return a label map as the address of a PNG with the color of each label; -1 is dark.

    Labels beyond 254 share colors, since such a PNG has 256.
    """
    from PIL import Image

    palette = [bytes.fromhex(color[1:]) for color in (NODATA_COLOR, *colors[:254])]
    shown = np.where(label_map < 0, 0, label_map % 254 + 1).astype(np.uint8)
    image = Image.fromarray(shown)
    image.putpalette([part for color in palette for part in color])
    return _address(image, "PNG", optimize=True)


def photo_of(cube: Any, step: int, shown: Any) -> Floats | None:
    """Read every `step`-th pixel of a scene in colors; None of a scene that is too large.

    `shown` are the pixels read that have data; it may be lazy.
    """
    if cube.stored.nbytes > _PHOTO_BYTES:
        return None
    bands = cube.bands[rgb_bands(cube.shape[2], cube.wavelengths)]
    small = cube.stored_bands(bands.tolist())[::step, ::step]
    found, kept = compute("a picture of the scene", small, shown)
    picture = np.ma.getdata(found).astype(float)
    picture[~kept] = np.nan
    return stretch(picture)


def photo_jpeg(picture: Array) -> str:
    """Return a picture (y, x, 3) of values from 0 to 1 as the address of a JPEG."""
    from PIL import Image

    return _address(Image.fromarray(np.asarray(255 * picture).astype(np.uint8)), "JPEG", quality=85)


def _address(image: Any, kind: str, **options: Any) -> str:
    out = io.BytesIO()
    image.save(out, format=kind, **options)
    text = base64.b64encode(out.getvalue()).decode("ascii")
    return f"data:image/{kind.lower()};base64,{text}"
