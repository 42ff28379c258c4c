"""The notebooks run from top to bottom; their committed outputs are whole, with pictures."""

from __future__ import annotations

import itertools
import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from helpers import nearly
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
    # Long fits show a bar, and which fits are long is a matter of the machine.
    monkeypatch.setenv("DASK_DASKCLUST__PROGRESS", "False")
    # Said where the folder is slow.
    monkeypatch.setenv("PYTHONWARNINGS", "ignore:Creating scratch directories:UserWarning")
    # A kernel `python3` installed elsewhere would be another Python.
    monkeypatch.setenv("JUPYTER_PATH", str(Path(sys.prefix) / "share" / "jupyter"))


#: A record of the log of Dask's schedulers, workers and nannies: what they find slow, mostly.
REMARK = re.compile(r"\d{4}-\d\d-\d\d [\d:,.]+ - (distributed|bokeh)[\w.]* - (INFO|WARNING) - ")


def complaints(notebook):
    """Lines that cells wrote to stderr, apart from remarks on the speed of this machine."""
    texts = [
        output.text
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output.output_type == "stream" and output.name == "stderr"
    ]
    return [line for text in texts for line in text.splitlines() if not REMARK.match(line)]


def test_remarks_on_speed_are_no_complaints_and_all_else_is():
    remarks = [
        "2026-01-02 03:04:05,678 - distributed.nanny - WARNING - Worker process still alive after "
        "4.0 seconds, killing",
        "2026-01-02 03:04:05,678 - distributed.core - INFO - Event loop was unresponsive",
    ]
    wrong = [
        "2026-01-02 03:04:05,678 - distributed.worker - ERROR - Compute Failed",
        "2026-01-02 03:04:05,678 - daskclust - WARNING - something",
        "cell.py:3: PerformanceWarning: X has 2 chunks",
    ]
    text = "\n".join([remarks[0], wrong[0], remarks[1], *wrong[1:]])
    output = nbformat.v4.new_output("stream", name="stderr", text=text)
    cells = [nbformat.v4.new_code_cell(outputs=[output]), nbformat.v4.new_markdown_cell()]
    assert complaints(nbformat.v4.new_notebook(cells=cells)) == wrong


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_whole_with_pictures(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in cells]
    outputs = [output for cell in cells for output in cell.outputs]
    assert counts == list(range(1, len(cells) + 1)), "run it from top to bottom"
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    assert [o for o in outputs if "image/png" in o.get("data", {})]


def _runs(path):
    """The smallest runs each time; the others take a quarter of a minute each."""
    marks = () if path.stem == "07_asking" else pytest.mark.slow
    return pytest.param(path, id=path.stem, marks=marks)


def executed(path, folder):
    """The notebook, run from top to bottom in a folder; errors in cells raise."""
    notebook = nbformat.read(path, as_version=4)
    # The limits are for cells that hang, not for slow machines.
    client = NotebookClient(
        notebook,
        timeout=1000,
        startup_timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": folder}},
    )
    client.execute()
    assert complaints(notebook) == []
    keep = os.environ.get("DASKCLUST_KEEP_NOTEBOOKS")
    if keep:
        nbformat.write(notebook, Path(keep) / path.name)
    return notebook


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("path", [_runs(path) for path in NOTEBOOKS])
@pytest.mark.usefixtures("kernel_environment")
def test_runs(path, tmp_path):
    executed(path, tmp_path)


#: What is of a machine, not of the code: seconds, bytes, processes, and where an object lies.
OF_THE_MACHINE = re.compile(r"^(Time|Memory|Tasks|Reads) .*|\d+ [kM]B$|0x[0-9a-f]+")


def shown(notebook):
    """Lines of text that a notebook shows, cell by cell, but for what is of the machine."""
    texts = [
        "".join(
            output.text if output.output_type == "stream" else output.data.get("text/plain", "")
            for output in cell.outputs
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    return [
        [OF_THE_MACHINE.sub("", " ".join(line.split())) for line in text.splitlines()]
        for text in texts
    ]


def test_lines_of_the_machine_are_left_out_and_others_compared():
    texts = ["Time      90.8 s\nARI 0.500, of 5348", "Time      3 s\nARI 0.501, of 5348"]
    cells = [
        nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("stream", text=text)])
        for text in texts
    ]
    one, other = (shown(nbformat.v4.new_notebook(cells=[cell])) for cell in cells)
    assert one == [["", "ARI 0.500, of 5348"]]
    assert all(map(nearly, one[0], other[0]))
    assert not nearly(one[0][1], "ARI 0.551, of 5348")


@pytest.mark.slow  # as large as they are committed: five minutes some of them
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.usefixtures("kernel_environment")
def test_committed_outputs_are_those_of_a_run(path, tmp_path, data_dir, monkeypatch):
    monkeypatch.delenv("DASKCLUST_NOTEBOOKS")
    monkeypatch.setenv("DASKCLUST_TEST_DATA", str(data_dir))
    committed, found = shown(nbformat.read(path, as_version=4)), shown(executed(path, tmp_path))
    differing = [
        f"cell {number}:\n- {one}\n+ {other}"
        for number, cells in enumerate(zip(committed, found, strict=True), 1)
        for one, other in itertools.zip_longest(*cells, fillvalue="(no line)")
        if not nearly(one, other)
    ]
    assert not differing, "\n".join(differing)
