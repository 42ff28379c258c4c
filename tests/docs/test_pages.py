"""The documentation: every block of code runs, every command works, and the pages build."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import dask
import pytest
from helpers import nearly, spread_by_less

import daskclust
from daskclust.app import cli

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
#: Code cells, too, and hidden ones that write files; lines that begin with a colon are options.
FENCE = re.compile(
    r"^```(python|console|text|\{code-cell\})[^\n]*\n(?::[^\n]*\n)*(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def blocks(path: Path) -> list[tuple[str, str]]:
    """Return language and text of the blocks of a page that users may run."""
    return [block for block in fences(path) if block[0] != "text"]


def fences(path: Path) -> list[tuple[str, str]]:
    """Return language and text of all blocks of a page, those that show an output among them."""
    return [(match[1], match[2]) for match in FENCE.finditer(path.read_text())]


def commands(text: str) -> list[list[str]]:
    """Split the lines of a terminal into commands; output is left out."""
    joined = text.replace("\\\n", " ")
    lines = [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
    return [shlex.split(line, comments=True) for line in lines]


#: Pages with a cluster, or with several fits of label spreading.
SLOW = {
    "how-to/asking.md",
    "how-to/uncertainty.md",
    "tutorials/cluster.md",
    "tutorials/first-map.md",
    "tutorials/scene-to-change.md",
}
#: Patterns of numbers in the text of pages, and expressions for their values.
STATED = {
    "tutorials/few-labels.md": [(r"label (\d+) pixels", "len(y[0])")],
    "tutorials/table.md": [
        (r"features (\d+) to \d+ have weights", "np.flatnonzero(sparse.feature_weights_)[0]"),
        (r"features \d+ to (\d+) have weights", "np.flatnonzero(sparse.feature_weights_)[-1]"),
        (
            r"K-means reaches about a (third)",
            "{0.33: 'third', 0.34: 'third'}[round(scores['KMeans'], 2)]",
        ),
        (r"a third, sparse k-means (\d)", "f\"{scores['SparseKMeans']:g}\""),
    ],
}
PAGES = sorted(
    path.relative_to(DOCS).as_posix()
    for path in DOCS.rglob("*.md")
    if not {"_build", "generated", "commands"} & {*path.parts} and blocks(path)
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of the pages."""
    for package in ("rasterio", "xarray", "pyogrio", "pandas", "pyarrow", "h5netcdf"):
        pytest.importorskip(package, reason=f"{package} writes files of the pages")
    folder = tmp_path_factory.mktemp("files")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(str(DOCS / "example_files.py"))["write_all"](folder)
    return folder


def run_command(words: list[str], address: str) -> None:
    assert words[0] == "daskclust", f"only daskclust is run here, not {words[0]}"
    arguments = words[1:]
    if (
        arguments[0] in ("fit", "predict", "suggest", "compare", "explain")
        and "--help" not in arguments
    ):
        arguments += ["--scheduler", address]
    try:
        code = cli.main(arguments)
    except SystemExit as end:
        code = end.code
    assert code in (0, None), shlex.join(words)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow if page in SLOW else ()) for page in PAGES],
)
def test_blocks_run(
    page: str,
    files: Path,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "files"
    monkeypatch.syspath_prepend(DOCS)
    if "import example_files" in (DOCS / page).read_text():
        folder.mkdir()
    else:
        shutil.copytree(files, folder)
    monkeypatch.chdir(folder)
    names: dict[str, object] = {"__name__": "__main__"}
    output, page_blocks = "", fences(DOCS / page)
    if all(language != "text" for language, _ in page_blocks):  # no output depends on it
        spread_by_less(monkeypatch)
    for number, (language, text) in enumerate(page_blocks, 1):
        if language == "text":
            assert_shown(text, output)
            continue
        if language != "console":
            exec(compile(text, f"{page}, block {number}", "exec"), names)
        else:
            for words in commands(text):
                run_command(words, address)
        output = capsys.readouterr().out
    for pattern, expression in STATED.get(page, ()):
        shown = re.search(pattern, (DOCS / page).read_text())
        assert shown is not None, pattern
        assert_shown(shown[1], str(eval(expression, names)))


def assert_shown(text: str, output: str) -> None:
    """Check that the output contains each line of a page, ignoring line breaks and file names."""
    printed = output.split()
    for line in map(str.split, text.splitlines()):
        if line and line[0] != "Written":
            assert any(
                all(map(nearly, line, printed[at : at + len(line)]))
                for at in range(len(printed) - len(line) + 1)
            ), f"{' '.join(line)!r} is not in\n{output}"


def test_commands_of_the_readme_run(
    files: Path,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its Python runs in ``tests/test_readme.py``."""
    shutil.copytree(files, tmp_path / "files")
    monkeypatch.chdir(tmp_path / "files")
    spread_by_less(monkeypatch)
    terminal = [text for language, text in blocks(ROOT / "README.md") if language == "console"]
    readme_commands = [words for text in terminal for words in commands(text)]
    assert len(readme_commands) >= 2
    for words in readme_commands:
        run_command(words, address)
    capsys.readouterr()


@pytest.mark.slow  # the pages of the whole interface; what they show runs above
def test_pages_build_without_warnings(tmp_path: Path) -> None:
    """This checks references, links and docstrings, and executes all pages with code cells."""
    for package in ("sphinx", "myst_nb", "furo", "numpydoc"):
        pytest.importorskip(package, reason=f"{package} builds the pages (extra `docs`)")
    source = tmp_path / "docs"
    shutil.copytree(DOCS, source, ignore=shutil.ignore_patterns("_build", "generated"))
    # Pages include files of the folder above, and the configuration imports the package from it.
    for name in ("daskclust", "CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "deploy"):
        (tmp_path / name).symlink_to(ROOT / name)
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "-j", "auto", "--keep-going", "docs", "html"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    html = (tmp_path / "html" / "index.html").read_text()
    assert "daskclust" in html


def test_figures_have_text_alternatives() -> None:
    for path in DOCS.rglob("*.md"):
        if "_build" in path.parts:
            continue
        text = path.read_text()
        for match in re.finditer(r"!\[([^\]]*)\]\(", text):
            assert match[1].strip(), f"{path.name}: a picture without a text"
        for block in re.findall(r"```\{(?:figure|image)\}.*?```", text, re.DOTALL):
            assert ":alt:" in block, f"{path.name}: a picture without a text"


def test_the_page_of_the_configuration_has_all_keys() -> None:
    page = (DOCS / "reference" / "configuration.md").read_text()
    documented = dict(re.findall(r"^\| `([a-z-]+)` \| ([^|]*) \|", page, re.MULTILINE))
    shown = {None: "null", True: "true", False: "false"}
    defaults = dask.config.get("daskclust").items()
    assert documented == {key: shown.get(value, str(value)) for key, value in defaults}


def test_the_page_of_resuming_has_all_parameters_that_may_differ() -> None:
    page = (DOCS / "how-to" / "resume.md").read_text()
    documented: dict[str, set[str]] = {}
    for names, parameters in re.findall(r"^\| (`[^|]*) \| (`[^|]*) \|$", page, re.MULTILINE):
        documented |= {
            key: set(re.findall(r"\w+", parameters)) for key in re.findall(r"\w+", names)
        }
    kinds = {name: getattr(daskclust, name) for name in daskclust.__all__}
    resumed = {name: set(getattr(kind, "_resumes_with", ())) for name, kind in kinds.items()}
    assert documented == {name: names for name, names in resumed.items() if names}


@pytest.mark.parametrize("page", ["missing-values.md", "which-estimator.md"])
def test_pages_that_compare_estimators_name_all(page: str) -> None:
    lines = (DOCS / page).read_text().splitlines()
    tables = "\n".join(line for line in lines if line.startswith("|"))
    kinds = {name: getattr(daskclust, name) for name in daskclust.__all__}
    names = [n for n, kind in kinds.items() if isinstance(kind, type) and hasattr(kind, "fit")]
    assert len(names) > 12
    assert not [name for name in names if not re.search(rf"\b{name}\b", tables)]
