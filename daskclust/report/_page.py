"""The page: HTML with everything inside, and a policy that lets nothing in."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence
from importlib.resources import files

from daskclust.report.written import START, mark_tag

__all__ = ["Page", "escape"]

# Whatever a title or an attribute may smuggle in: no script runs but ours, nothing is fetched.
_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'none'; "
    "script-src 'sha256-{hash}'"
)


def escape(text: object) -> str:
    """Return text as it may stand in a page."""
    return html.escape(str(text), quote=True)


class Page:
    """A page that grows from the top."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[str] = [f"<h1>{escape(title)}</h1>"]
        self._data: list[str] = []

    def lead(self, text: str) -> None:
        """Add a line below the title."""
        self._parts.append(f'<p class="lead">{escape(text)}</p>')

    def facts(self, facts: Sequence[tuple[str, str]]) -> None:
        """Add numbers with what they are."""
        tiles = "".join(
            f'<div class="fact"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
            for value, name in facts
        )
        self._parts.append(f'<section class="facts">{tiles}</section>')

    def section(self, heading: str, body: str) -> None:
        """Add a section; `body` is HTML."""
        self._parts.append(f"<section><h2>{escape(heading)}</h2>{body}</section>")

    def pair(self, *parts: tuple[str, str]) -> None:
        """Add sections side by side; bodies are HTML."""
        inner = "".join(
            f"<section><h2>{escape(heading)}</h2>{body}</section>" for heading, body in parts
        )
        self._parts.append(f'<div class="two">{inner}</div>')

    def data(self, name: str, text: str) -> None:
        """Add data for the script, as JSON; nothing in it can end the element."""
        safe = text.replace("<", "\\u003c")
        self._data.append(f'<script type="application/json" id="{name}">{safe}</script>')

    def details(self, heading: str, rows: Sequence[tuple[str, str]]) -> None:
        """Add a table that opens on demand."""
        body = "".join(
            f"<tr><th>{escape(key)}</th><td><code>{escape(value)}</code></td></tr>"
            for key, value in rows
        )
        self._parts.append(
            f"<section><details><summary>{escape(heading)}</summary><table>{body}</table>"
            "</details></section>"
        )

    def html(self, job: str = "") -> str:
        """Return the whole page; `job` marks whose it is."""
        folder = files("daskclust.report")
        style = folder.joinpath("style.css").read_text(encoding="utf-8")
        script = folder.joinpath("map.js").read_text(encoding="utf-8") if self._data else ""
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
        scripts = "\n".join(self._data) + (f"\n<script>{script}</script>\n" if script else "")
        return (
            f"{START}{mark_tag(job)}"
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY.format(hash=digest)}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(self._title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
            f"<main>\n{''.join(part + chr(10) for part in self._parts)}"
            "<footer>One file, nothing loaded from elsewhere.</footer>\n</main>\n"
            f"{scripts}</body>\n</html>\n"
        )
