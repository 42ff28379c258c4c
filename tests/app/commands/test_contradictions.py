"""What the words of a command line tell before anything is imported."""

import argparse
import subprocess
import sys

import pytest

from daskclust.app.cli import COMMANDS, command_parser
from daskclust.app.commands.contradictions import missing_file
from daskclust.core.persistence.models import registry


def test_estimators_of_the_parser_are_those_of_the_package():
    (estimators,) = (
        action for action in command_parser("fit").actions if action.dest == "estimator"
    )
    for name in registry():
        assert estimators.type(name) == name.lower()
    with pytest.raises(argparse.ArgumentTypeError):
        estimators.type("Cube")


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
        ("fit nosuch.tif --n-clusters 3", "does not exist"),
    ],
)
def test_mistakes_are_answered_before_numpy_is_imported(words, message):
    done = without_numpy("code = cli.main()", *words.split())
    assert done.returncode in (1, 2)
    assert message in done.stderr


def test_help_is_shown_before_numpy_is_imported():
    loop = "[cli.main([word, '--help'][word == '--help' :]) for word in sys.argv[1:]]"
    done = without_numpy(f"code = max({loop})", "--help", *COMMANDS)
    assert done.returncode == 0, done.stderr


def without_numpy(run: str, *words: str) -> subprocess.CompletedProcess[str]:
    code = (
        f"import sys; from daskclust.app import cli; {run}; "
        "assert not {'numpy', 'numba', 'dask.array'} & set(sys.modules); sys.exit(code)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )
