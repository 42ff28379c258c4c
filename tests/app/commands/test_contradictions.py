"""What the words of a command line tell before anything is imported."""

import subprocess
import sys

import pytest

from daskclust.app.cli import COMMANDS, command_parser
from daskclust.app.commands.contradictions import missing_file, unknown_flags


@pytest.mark.parametrize("command", COMMANDS)
def test_flags_are_those_of_the_parser(command):
    names = {name for action in command_parser(command).actions for name in action.option_strings}
    _, known = unknown_flags([command])
    assert set(known) == {name for name in names if name.startswith("--")}


def test_unknown_flags():
    assert unknown_flags(["fit", "a.tif", "--k=3", "--seed", "1"])[0] == ["--k"]
    assert unknown_flags(["fit", "a.tif", "--title", "-5"])[0] == []


def test_missing_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tif").touch()
    (tmp_path / "s.zarr").mkdir()
    assert missing_file(["fit", "a.tif", "b.tif", "--output", "c.tif"]) == "b.tif"
    assert missing_file(["predict", "model.zarr", "a.tif"]) == "model.zarr"
    for words in (
        ["a.tif", "--output", "c.tif"],
        ["s.zarr/inside"],
        ["s3://bucket/a.tif"],
        ['NETCDF:"a.nc":b'],
        ["b.tif", "--help"],
        [""],
    ):
        assert missing_file(["fit", *words]) is None
    assert missing_file(["rename", "model.zarr", "1=water"]) is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fit --n-cluster 3", "unrecognized arguments: --n-cluster. Did you mean --n-clusters?"),
        ("fit nosuch.tif --n-clusters 3", "There is no file"),
    ],
)
def test_mistakes_are_told_before_numpy_is_imported(words, message):
    code = (
        "import sys; from daskclust.app import cli; code = cli.main(); "
        "assert not {'numpy', 'numba', 'dask.array'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words.split()], capture_output=True, text=True, check=False
    )
    assert done.returncode in (1, 2)
    assert message in done.stderr
