"""What is read, not run: style, types, and what a source release holds."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
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


def test_a_source_release_holds_package_and_tests_and_no_notebooks(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (archive,) = tmp_path.iterdir()
    with tarfile.open(archive) as content:
        names = {name.partition("/")[2] for name in content.getnames()}
    assert {
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "README.md",
        "daskclust/__init__.py",
        "daskclust/daskclust.yaml",
        "daskclust/py.typed",
        "pyproject.toml",
        "tests/conftest.py",
        "tests/test_static.py",
    } <= names
    top = {name.split("/")[0] for name in names}
    assert not top & {"notebooks", ".ci", "daskclust-demo"}
    # Tests of what is left out are left out with it.
    assert not {name for name in names if "notebook" in name or name.startswith("tests/papers")}
    # The scenes of `load_slovenia` are 0.4 MB of it.
    assert archive.stat().st_size < 7.5 * 2**18
