"""The notebooks run from top to bottom; their committed outputs are whole, or there are none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture
def kernel_environment(monkeypatch, tmp_path):
    """Let the kernel find this checkout, write below `tmp_path`, and be this Python."""
    # What is computed in a notebook may lie in a script beside it.
    folders = [str(ROOT), str(ROOT / "notebooks"), os.environ.get("PYTHONPATH")]
    path = os.pathsep.join(filter(None, folders))
    monkeypatch.setenv("PYTHONPATH", path)
    # Notebooks committed with outputs of real size have a smaller one for tests.
    monkeypatch.setenv("DASKCLUST_NOTEBOOKS", "toy")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    # A kernel `python3` installed elsewhere would be another Python.
    monkeypatch.setenv("JUPYTER_PATH", str(Path(sys.prefix) / "share" / "jupyter"))


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_whole_or_without_output(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in cells]
    outputs = [output for cell in cells for output in cell.outputs]
    if any(counts):
        assert counts == list(range(1, len(cells) + 1)), "run it from top to bottom"
        assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    else:
        assert not outputs


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.usefixtures("kernel_environment")
def test_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    errors = [
        output.text
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output.output_type == "stream" and output.name == "stderr"
    ]
    assert not errors
    keep = os.environ.get("DASKCLUST_KEEP_NOTEBOOKS")
    if keep:
        nbformat.write(notebook, Path(keep) / path.name)
