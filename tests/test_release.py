"""A release: built as users get it, installed on its own, and told alike everywhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

import daskclust

ROOT = Path(__file__).resolve().parents[1]


def run(*words: str, cwd: Path) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel and the source release."""
    folder = tmp_path_factory.mktemp("dist")
    for kind in ("wheel", "sdist"):
        run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder), cwd=ROOT)
    return folder


def test_the_version_is_one() -> None:
    version = daskclust.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", version)
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()
    if (ROOT / "CITATION.cff").is_file():  # not part of a source release
        assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"daskclust", f"daskclust-{daskclust.__version__}.dist-info"}
    assert {"daskclust/py.typed", "daskclust/daskclust.yaml"} <= set(names)
    assert not [name for name in names if name.endswith((".nbi", ".nbc", ".pyc"))]


def test_descriptions_can_be_shown_by_a_package_index(built: Path) -> None:
    files = [str(path) for path in built.iterdir()]
    assert len(files) == 2
    run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=ROOT)
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"daskclust-{daskclust.__version__}.dist-info/METADATA").decode()
    description = metadata.partition("\n\n")[2]
    assert description.startswith("# daskclust")
    assert "LabelSpreading" in description
    assert not re.findall(r"\]\((?!https?:|#)[^)]*\)", description), "dead links"


@pytest.mark.parametrize("kind", ["*.whl", pytest.param("*.tar.gz", marks=pytest.mark.slow)])
def test_what_is_built_can_be_installed_and_runs(built: Path, kind: str, tmp_path: Path) -> None:
    (archive,) = built.glob(kind)
    target = tmp_path / "site"
    flags = ("--quiet", "--no-deps", "--no-build-isolation", "--no-compile")
    pip = (sys.executable, "-m", "pip", "install", *flags)
    run(*pip, "--target", str(target), str(archive), cwd=tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(target)!r})\n"
        "import daskclust, pathlib\n"
        f"assert pathlib.Path(daskclust.__file__).is_relative_to({str(target)!r})\n"
        "import dask; assert dask.config.get('daskclust.persist') == 'auto'\n"
        "from daskclust.app.cli import main\n"
        "main(['--version'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert daskclust.__version__ in done.stdout, done.stderr


def test_a_source_release_holds_package_and_tests_and_no_notebooks(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
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
