"""What is read, not run: style, types, and names that other files import."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

#: As in .pre-commit-config.yaml.
CHECKS = {
    "ruff-check": ["ruff", "check", "."],
    "ruff-format": ["ruff", "format", "--check", "."],
    "mypy": ["mypy"],
}


@pytest.mark.parametrize("name", CHECKS)
def test_code_passes(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *CHECKS[name]], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


#: Also in programs that are texts of others, in pages and notebooks.
IMPORTS = re.compile(
    r"from (daskclust[\w.]*) import (\([^)]*\)|[\w, ]+)|import (daskclust\.[\w.]+)"
)


def imported(path: Path) -> set[tuple[str, ...]]:
    """Names of daskclust that a file imports: of a module and perhaps of what it holds."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        text = "\n".join(chain.from_iterable(cell["source"] for cell in json.loads(text)["cells"]))
    found: set[tuple[str, ...]] = set()
    for module, names, alone in IMPORTS.findall(re.sub(" *#.*", "", text)):
        found.add((alone or module,))
        found |= {
            (module, name.split()[0]) for name in names.strip("()").split(",") if name.strip()
        }
    return found


def test_imports_of_scripts_pages_and_notebooks_are_up_to_date() -> None:
    # Most of them are run by slow tests alone.
    folders = ("benchmarks", "deploy", "docs", "examples", "notebooks", "tests")
    files = chain(ROOT.glob("*.md"), *(ROOT.glob(f"{folder}/**/*.*") for folder in folders))
    texts = [path for path in files if path.suffix in (".ipynb", ".md", ".py", ".sh", ".sbatch")]
    stale = []
    for path in texts:
        for name in imported(path):
            try:
                if len(name) == 2 and hasattr(import_module(name[0]), name[1]):
                    continue
                import_module(".".join(name))
            except ModuleNotFoundError as error:
                if str(error.name).startswith("daskclust"):  # not an option that is missing
                    stale.append((path.relative_to(ROOT).as_posix(), *name))
    assert len(texts) > 100
    assert stale == []


def test_hooks_run_the_same_checks() -> None:
    path = ROOT / ".pre-commit-config.yaml"
    if not path.is_file():
        pytest.skip("no hooks here, as in a source release")
    yaml = pytest.importorskip("yaml")
    (local,) = yaml.safe_load(path.read_text())["repos"]
    hooks = {hook["id"]: hook for hook in local["hooks"]}
    assert set(hooks) == set(CHECKS)
    for name, command in CHECKS.items():
        words = hooks[name]["entry"].split()
        assert words[:3] == [".venv/bin/python", "-m", command[0]]
        # A hook is handed the files that changed, and repairs what it can.
        assert set(words[3:]) - {"--fix"} == set(command[1:]) - {".", "--check"}


def test_linters_are_bounded_so_that_a_release_of_theirs_breaks_nothing() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounded = [need for need in project["optional-dependencies"]["test"] if "<" in need]
    assert {need.split(">=")[0] for need in bounded} >= {"ruff", "mypy"}
