"""The page of a report: which files are ours, pictures in the page, its HTML."""

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
    """Return a page of another program with the marks of a report of ours."""
    return _start(job) + page.partition("<head>")[2]


class Report(Output):
    """One HTML file; its head says that it is ours, and of which job."""

    def __init__(self, location: Any, *, overwrite: bool = False) -> None:
        super().__init__(location, "report", overwrite=overwrite)

    def check_location(self) -> None:
        super().check_location()
        if is_folder_at_url(self.location) if self.path is None else self.path.is_dir():
            # Some file systems would let the report hide what is below.
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
        found = _MARK.match(head, len(START)) if head.startswith(START) else None
        return None if found is None else Written(self.kind, {JOB: {"mark": found.group(1)}})

    def write(self, page: str) -> None:
        write_whole(self.location, page.encode("utf-8"), check=self.check)


#: Stored bytes up to which a cube is read once more, for a color picture of the scene.
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
    # Black becomes the text color of the page.
    text = text.replace("#000000", "currentColor")
    # No wider than its text is readable, and where it scrolls no smaller: 8 px at least.
    width = f"max-width:{110 * size[0]:.0f}px;--least:{72 * size[0]:.0f}px"
    about = f'role="img" aria-label="{escape(name)}" style="{width}"'
    text = text.replace("<svg", f"<svg {about}", 1)
    # Names are those of the whole page; those of several pictures must not be mixed up.
    mark = f"p{abs(hash(text)) % 16**8:08x}-"
    return Markup(re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{mark}", text))


def map_png(label_map: Array, colors: Sequence[str], codes: Sequence[int] | None = None) -> str:
    """Return a label map, :func:`daskclust.colors.drawn`, as the address of a PNG.

    Labels beyond 254 share colors, since such a PNG has 256.
    """
    from PIL import Image

    places, table = drawn(label_map, colors, codes)
    image = Image.fromarray(np.where(places > 0, (places - 1) % 254 + 1, 0).astype(np.uint8))
    image.putpalette(table[:255].tobytes())
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


# For texts that are HTML in spite of all: no script runs but ours, and nothing is fetched.
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
        """Add a section with a picture; `values` are those of the template."""
        self._parts.append(("sections", [(heading, figure(picture, **values))]))

    def pair(self, *sections: tuple[str, Markup]) -> None:
        """Add sections side by side."""
        self._parts.append(("sections", sections))

    def data(self, name: str, json: str) -> None:
        """Add data for the script; no text in it can end the element."""
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
    """Return a picture with a caption; `after` is what follows it."""
    return render("figure", picture=picture, wide=wide, caption=caption, after=after)
