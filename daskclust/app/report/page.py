"""The page of a report: marks of daskclust's files, pictures, and HTML."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from daskclust import plotting
from daskclust._version import __version__
from daskclust.colors import drawn, rgb_bands, stretch
from daskclust.core.array_types import Array, Floats
from daskclust.core.engine import compute
from daskclust.core.storage.files import is_folder_at_url, read_start, write_whole
from daskclust.core.storage.outputs import JOB, Output, Written
from daskclust.core.storage.redact import redact

#: First bytes of each report, with which a configuration file cannot begin.
START = (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="generator" content="daskclust">\n'
)
_MARK = re.compile(r'<meta name="daskclust-job" content="([0-9a-f]*)">\n')


def _start(job: str) -> str:
    return f'{START}<meta name="daskclust-job" content="{job}">\n'


def marked_page(page: str, job: str) -> str:
    """Return a page of another program with the marks of a report of daskclust."""
    return _start(job) + page.partition("<head>")[2]


class Report(Output):
    """One HTML file; its head marks it as written by daskclust, and names the job."""

    def __init__(self, location: Any, *, overwrite: bool = False) -> None:
        super().__init__(location, "report", overwrite=overwrite)

    def check_location(self) -> None:
        super().check_location()
        if is_folder_at_url(self.location) if self.path is None else self.path.is_dir():
            # On some file systems, the report would hide the files of the folder.
            raise FileExistsError(f"{redact(self.location)!r} must be an HTML file, got a folder.")

    def exists(self) -> bool:
        return read_start(self.location, 0) is not None

    def written(self) -> Written | None:
        """Return the job of the report.

        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "job.yaml"
        >>> _ = path.write_text("title: by daskclust")
        >>> Report(path).written() is None
        True
        """
        try:
            start = read_start(self.location, len(START) + 200)
        except (IsADirectoryError, NotADirectoryError, PermissionError):
            return None
        head = (start or b"").decode("utf-8", errors="replace")
        mark = _MARK.match(head, len(START)) if head.startswith(START) else None
        return None if mark is None else Written(self.kind, {JOB: {"mark": mark.group(1)}})

    def write(self, page: str) -> None:
        write_whole(self.location, page.encode("utf-8"), check=self.check)


#: Maximum stored bytes of a cube that is read again for a color picture of the scene.
_PHOTO_BYTES = 512 * 2**20


def svg(
    draw: Callable[..., None],
    size: tuple[float, float],
    heights: tuple[float, ...] = (1.0,),
    *,
    name: str,
) -> Markup:
    """Let `draw` draw on axes, and return the picture as an ``<svg>`` element.

    `size` is in inches, `heights` are relative heights of axes, one below the other over the same
    x. `name` describes the picture for screen readers.
    """
    figure = plotting.new_figure(figsize=size, layout="constrained")
    import matplotlib

    # Text stays text, so that it can be searched and has the font of the page.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "daskclust"}):
        grid = {"height_ratios": heights}
        draw(*figure.subplots(len(heights), 1, sharex=True, squeeze=False, gridspec_kw=grid)[:, 0])
        out = io.StringIO()
        no_metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(out, format="svg", transparent=True, metadata=no_metadata)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    # Black becomes the text color of the page.
    text = text.replace("#000000", "currentColor")
    # Maximum width, and minimum width at which text has 8 px.
    width = f"max-width:{110 * size[0]:.0f}px;--least:{72 * size[0]:.0f}px"
    about = f'role="img" aria-label="{escape(name)}" style="{width}"'
    text = text.replace("<svg", f"<svg {about}", 1)
    # Identifiers are unique in a page, so each picture has a prefix.
    mark = f"p{abs(hash(text)) % 16**8:08x}-"
    return Markup(re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{mark}", text))


def map_png(label_map: Array, colors: Sequence[str], codes: Sequence[int] | None = None) -> str:
    """Return a label map as the data URL of a PNG; labels above 254 share colors."""
    from PIL import Image

    indices, table = drawn(label_map, colors, codes)
    image = Image.fromarray(np.where(indices > 0, (indices - 1) % 254 + 1, 0).astype(np.uint8))
    image.putpalette(table[:255].tobytes())
    return _address(image, "PNG", optimize=True)


def photo_of(cube: Any, step: int, shown: Any) -> Floats | None:
    """Read every `step`-th pixel of a scene in colors; return None if the scene is too large.

    `shown` is a mask of these pixels, lazy or not: True for pixels with data.
    """
    if cube.stored.nbytes > _PHOTO_BYTES:
        return None
    bands = cube.bands[rgb_bands(cube.shape[2], cube.wavelengths)]
    small = cube.stored_bands(bands.tolist())[::step, ::step]
    values, has_data = compute("a picture of the scene", small, shown)
    picture = np.ma.getdata(values).astype(float)
    picture[~has_data] = np.nan
    return stretch(picture)


def photo_jpeg(picture: Array) -> str:
    """Return a picture (y, x, 3) of values from 0 to 1 as the data URL of a JPEG."""
    from PIL import Image

    return _address(Image.fromarray(np.asarray(255 * picture).astype(np.uint8)), "JPEG", quality=85)


def _address(image: Any, kind: str, **options: Any) -> str:
    out = io.BytesIO()
    image.save(out, format=kind, **options)
    text = base64.b64encode(out.getvalue()).decode("ascii")
    return f"data:image/{kind.lower()};base64,{text}"


# If a text contains HTML by mistake, only our script runs, and nothing is fetched.
_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'none'; "
    "script-src 'sha256-{hash}'"
)

_TEMPLATES = Environment(
    loader=PackageLoader("daskclust.app.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters["breakable"] = lambda text: escape(text).replace("_", Markup("_<wbr>"))


def render(template: str, **values: Any) -> Markup:
    """Render a template of this package; values other than Markup are escaped."""
    return Markup(_TEMPLATES.get_template(f"{template}.html").render(values))


@dataclass(frozen=True)
class Column:
    """Column of a table in a page, with one text and maybe one color per row.

    `kind` is ``"head"`` for names of rows, ``"number"`` or ``"text"``.
    """

    head: str
    texts: Sequence[object]
    kind: str = "number"
    colors: Sequence[str] = ()


class Page:
    """Contents of a page, in their order."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[tuple[str, Any]] = []
        self._data: list[tuple[str, Markup]] = []

    def lead(self, text: str) -> None:
        """Add a line below the title."""
        self._parts.append(("lead", text))

    def written(self, text: str) -> None:
        """Add a line below the title that ends with the time and the version."""
        self.lead(
            f"{text}Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by daskclust {__version__}."
        )

    def facts(self, facts: Sequence[tuple[str, str]]) -> None:
        self._parts.append(("facts", facts))

    def section(self, heading: str, template: str, **values: Any) -> None:
        """Add a section with a template of this package."""
        self._parts.append(("sections", [(heading, render(template, **values))]))

    def figure(self, heading: str, picture: Markup, **values: Any) -> None:
        """Add a section with a picture; `values` are values of the template."""
        self._parts.append(("sections", [(heading, figure(picture, **values))]))

    def pair(self, *sections: tuple[str, Markup]) -> None:
        """Add sections side by side."""
        self._parts.append(("sections", sections))

    def data(self, name: str, json: str) -> None:
        """Add data for the script, escaped so that no text ends the element."""
        self._data.append((name, Markup(json.replace("<", "\\u003c"))))

    def details(self, heading: str, rows: Sequence[tuple[str, str]]) -> None:
        """Add a table that opens on demand."""
        self._parts.append(("details", (heading, rows)))

    def html(self, job: str = "") -> str:
        """Return the complete page; `job` is the mark of its job."""
        folder = files("daskclust.app.report")
        style = folder.joinpath("style.css").read_text(encoding="utf-8")
        script = folder.joinpath("map.js").read_text(encoding="utf-8") if self._data else ""
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
        return render(
            "page",
            start=Markup(_start(job)),
            policy=Markup(_POLICY.format(hash=digest)),
            title=self._title,
            style=Markup(style),
            parts=self._parts,
            data=self._data,
            script=Markup(script),
        )


def figure(
    picture: Markup, *, wide: bool = False, caption: str = "", after: str | Markup = ""
) -> Markup:
    """Return a picture with a caption; `after` is the HTML below it."""
    return render("figure", picture=picture, wide=wide, caption=caption, after=after)
