"""The README's commands and examples are what they seem."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import daskclust

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """Fenced blocks of the README in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def test_opens_with_two_commands_that_set_up_everything() -> None:
    demo, tests = (block.strip() for block in blocks("sh")[:2])
    for command in (demo, tests):
        assert "\n" not in command
        assert command.startswith("python3.11 -m venv .venv && .venv/bin/pip install ")
    assert demo.endswith("&& .venv/bin/daskclust demo")
    assert "&& .venv/bin/python -m pytest" in tests
    assert README.index(tests) < README.index("## ")


@pytest.mark.skipif(not (ROOT / ".ci").is_dir(), reason="no .ci here, as in a source release")
def test_ci_runs_the_test_command_literally() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    lines = script.read_text().splitlines()
    assert lines[0].startswith("#!")
    assert "set -euo pipefail" in lines
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands[-1] == blocks("sh")[1].strip()
    assert sum("pytest" in line for line in commands) == 1
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_markers_of_the_test_commands_are_complementary() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    short = re.search(r'-m "([^"]+)"', blocks("sh")[1])
    long = re.search(r'-m "([^"]+)"    # on an idle machine', contributing)
    assert short is not None
    assert long is not None
    assert short[1] == "not slow and not benchmark"
    assert long[1] == "slow or benchmark"


def test_examples_run_and_print_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    examples = blocks("python")
    assert examples
    names: dict[str, Any] = {}
    for number, example in enumerate(examples):
        exec(compile(example, f"README.md, example {number + 1}", "exec"), names)
    assert capsys.readouterr().out == "".join(blocks("text"))


def test_links_and_names_exist() -> None:
    targets = [t for t in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in t]
    assert {"ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"} <= set(targets)
    for target in targets:
        # Notebooks and pages are left out of source releases.
        folder = Path(target).parts[0]
        if folder in ("notebooks", "docs", "deploy") and not (ROOT / folder).is_dir():
            continue
        assert (ROOT / target).is_file(), target
    for name in ("LabelSpreading", "KMeans", "datasets"):
        assert name in daskclust.__all__
        assert name in README
