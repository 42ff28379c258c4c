"""Sphinx configuration.  Build with ``sphinx-build -W -j auto docs docs/_build/html``."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
# Kernels of pages import this checkout and `example_files`, too.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
)
os.environ["DASK_DASKCLUST__PROGRESS"] = "false"  # a progress line leaves an empty box

import daskclust  # noqa: E402


def external_names(path: Path) -> dict[str, tuple[str, str]]:
    """Write an inventory of each library in a list of names; pages are built without a network."""
    sites, entries = {}, {}
    for line in path.read_text().splitlines():
        match line.split():
            case ["library", library, site]:
                sites[library], entries[library] = site, ""
            case [name, role, page] if not name.startswith("#"):
                entries[library] += f"{name} {role} 1 {page.replace('$', name)} -\n"
    folder = Path(tempfile.mkdtemp(prefix="inventories-"))
    for library in sites:
        header = f"# Sphinx inventory version 2\n# Project: {library}\n# Version: \n# zlib\n"
        names = zlib.compress(entries[library].encode())
        (folder / library).write_bytes(header.encode() + names)
    return {library: (site, str(folder / library)) for library, site in sites.items()}


project = "daskclust"
author = "daskclust developers"
copyright = f"2026, {author}"
version = release = daskclust.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",  # formulas need no network
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "**.ipynb_checkpoints"]
root_doc = "index"
nitpicky = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 3
# GitHub's own slugs: anchors work there and here.
suppress_warnings = ["mystnb.unknown_mime_type"]

# Each build executes the pages with code cells: a cache would not notice changes of the package or
# of example_files.py.  A cell that fails ends the build.  Skip this with -D nb_execution_mode=off.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 900
nb_merge_streams = True
nb_execution_in_temp = True

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc says the types
numpydoc_show_class_members = False
numpydoc_xref_param_type = True  # types of parameters are links
numpydoc_xref_ignore = {"of", "shape", "optional", "or", "default", "lazy"}
intersphinx_mapping = external_names(Path(__file__).parent / "external_names.txt")

html_theme = "furo"
html_title = f"daskclust {release}"
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_theme_options = {
    "sidebar_hide_name": False,
    "navigation_with_keys": True,
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def unlink_files(app: object, relative_path: object, parent: str, content: list[str]) -> None:
    """Turn links in included files into links to pages, or into plain names without a page."""
    content[0] = re.sub(r"\(\.\./(\w+)/README\.md\)", r"(#/deploy/\1.md)", content[0])
    content[0] = re.sub(r"\[([^\]]+)\]\((?!https?:|#)[^)]+\)", r"`\1`", content[0])
    content[0] = content[0].replace("(#/deploy/", "(/deploy/")


def name_templates(app: object, page: str, content: list[str]) -> None:
    """Link to the pages of ``deploy``, and name its other files; on a code host all links work."""
    content[0] = re.sub(r"\(\.\./(deploy/\w+)/README\.md\)", r"(\1.md)", content[0])
    content[0] = re.sub(r"\[([^\]]+)\]\(\.\./(deploy/[^)]+)\)", r"\1 (`\2`)", content[0])


def write_commands(app: object) -> None:
    """Write a page for each command, with every flag, from the parsers of the command line."""
    from daskclust.app.cli import COMMANDS, command_parser

    folder = Path(__file__).parent / "reference" / "commands"
    folder.mkdir(exist_ok=True)
    for name, summary in COMMANDS.items():
        parser = command_parser(name)
        usage = parser.format_usage().removeprefix("usage: ").strip()
        lines = [f"# daskclust {name}", "", f"{summary[0].upper()}{summary[1:]}.", ""]
        lines += ["```text", usage, "```", ""]
        for group in parser._action_groups:
            shown = [action for action in group._group_actions if action.help != "==SUPPRESS=="]
            if shown:
                lines += [f"## {(group.title or 'arguments').capitalize()}", ""]
            for action in shown:
                entry = parser._get_formatter()._format_action_invocation(action)
                text = " ".join((action.help or "").replace("%%", "%").split())
                text = text.replace("%(default)s", str(action.default))
                lines += [f"`{entry}`", f": {text or 'No description.'}", ""]
        (folder / f"{name}.md").write_text("\n".join(lines) + "\n")


def setup(app: object) -> None:
    """Register what is done while pages are read."""
    # The extension only copies files. Without this flag, Sphinx would use one process.
    app.extensions["sphinx-mathjax-offline"].parallel_read_safe = True  # type: ignore[attr-defined]
    app.connect("builder-inited", write_commands)  # type: ignore[attr-defined]
    app.connect("include-read", unlink_files)  # type: ignore[attr-defined]
    app.connect("source-read", name_templates)  # type: ignore[attr-defined]
