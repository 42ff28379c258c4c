"""What the command line asks for, how it helps, and what it says to slips of the pen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from daskclust.app import cli

Said = Callable[..., tuple[int, str, str]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Run the command line; nothing here comes as far as a cube."""

    def call(*words: str) -> tuple[int, str, str]:
        code = cli.main(list(words))
        captured = capsys.readouterr()
        return code, captured.out, " ".join(captured.err.split())

    return call


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "fit a.zarr --cluster 6",
            "unrecognized arguments: --cluster. Did you mean --n-clusters?",
        ),
        ("fit a.zarr --ouput=m.tif", "Did you mean --output?"),
        ("fit a.zarr --random-state 3", "--random-state. Did you mean --seed?"),
        ("fit t.csv --truth-column c", "--truth-column. Did you mean --truth?"),
        ("predict a.zarr --modle m", "Did you mean --model?"),
        ("inspect a.zarr --jsn", "Did you mean --json?"),
        ("fit --n-clusters 3 a.zarr --seed 3 b.zarr", "List all files together"),
        ("inspect a.zarr --nodata x", "argument --nodata: 'x' is not a number, auto or none"),
        ("fit a.zarr --seed x", "argument --seed: 'x' is not a whole number"),
        ("inspect a.zarr --sample 0", "argument --sample: 0 is less than 1"),
        ("fit a.zarr --n-clusters 3 --output=", "--output is empty"),
        ("fit a.zarr --n-clusters 3 --output m.tif --checkpoint=", "--checkpoint is empty"),
        ("predict a.zarr --model= --output m.tif", "--model is empty"),
        ("fti a.zarr", "COMMAND must be one of demo, fit, predict"),
        ("fti a.zarr", "Did you mean fit?"),
        ("fit a.zarr --estimator k-means", "Did you mean kmeans?"),
        ("fit a.zarr --scale standrad", "Did you mean standard?"),
        ("fit a.zarr --n-clusters 3 --set sparsity=2", "PCSKMeans, SparseKMeans have sparsity."),
        ("fit a.zarr --n-clusters 3 --set init_round=2", "Did you mean init_rounds?"),
        ("fit a.zarr --output l.zarr", "KMeans requires the number of clusters: --n-clusters K"),
        ("fit a.zarr --estimator pckid --output l.zarr", "PCKID requires the number of clusters"),
        ("fit a.zarr --estimator gaussianmixture --output l.zarr", "--n-clusters K"),
        ("fit a.zarr --estimator dpmeans --output l.zarr", "--set delta=VALUE, or an approximate"),
        (
            "fit CUBE --n-clusters 3",
            "at least one output is required: --output for the label map, --model",
        ),
        ("fit CUBE --n-clusters 3 --json --title Any", "at least one output is required"),
        (
            "predict a.zarr --model m.zarr",
            "one output is required: --output, --unc",
        ),
        ("fit a.zarr --estimator label-spreading --model m", "requires labels: use --labels"),
        (
            "fit a.zarr --estimator spectral --n-clusters 3 --uncertainty u.tif",
            "--uncertainty requires an estimator with centers or probabilities",
        ),
        (
            "fit a.zarr --estimator pckid --n-clusters 3 --uncertainty u",
            "gaussianmixture or label-spreading, got PCKID",
        ),
    ],
)
def test_wrong_usage_says_what_to_do(said: Said, tmp_path: Path, words: str, message: str) -> None:
    np.save(tmp_path / "cube.npy", np.ones((3, 4, 2)))
    words = words.replace("CUBE", f"{tmp_path / 'cube.npy'} --dims y,x,band")
    code, out, err = said(*words.split())
    assert code == 2
    assert err.startswith("usage: daskclust")
    assert message in err
    assert not out


@pytest.mark.parametrize("suffix", [".toml", ".yaml"])
def test_job_files_take_all_options_and_know_slips(said: Said, tmp_path: Path, suffix: str) -> None:
    between = " = " if suffix == ".toml" else ": "
    job = tmp_path / f"job{suffix}"

    def write(**options: str) -> None:
        job.write_text("".join(f"{k}{between}'{v}'\n" for k, v in options.items()))

    write(n_cluster="3")
    code, _, err = said("fit", "a.zarr", "--config", str(job))
    assert code == 2
    assert "unknown key 'n_cluster'. Did you mean n-clusters?" in err
    # Everything is checked as flags are: here the last check before the cube.
    write(n_clusters="3", uncertainty="u.tif", estimator="spectral")
    code, _, err = said("fit", "a.zarr", "--config", str(job))
    assert code == 2
    assert "got SpectralClustering" in err
    write(n_clusters="3", uncertainty="u.tif", checkpoint="c.npz", scale="angle")
    code, _, err = said("fit", str(tmp_path / "none.zarr"), "--config", str(job))
    assert code == 1
    assert "does not exist" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fit a.parquet --smooth --output x", "'a.parquet' is a table, and --smooth is for pixels"),
        ("fit a.tif --baseline --output x.tif", "--baseline requires held-out labels"),
        ("fit a.tif --hold-out 0.3 --output x.tif", "--hold-out requires --labels"),
        ("predict a.tif --model m --class-column=c --output x.tif", "requires --truth"),
        ("suggest a.tif --resample-labels --output q.csv", "--resample-labels requires --labels"),
    ],
)
def test_contradictions_are_told_before_anything_is_imported(words: str, message: str) -> None:
    program = (
        "import sys; from daskclust.app import cli; code = cli.main(sys.argv[1:]); "
        "assert not {'numba', 'zarr', 'distributed'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words.split()], capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    assert message in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    "words",
    [
        ["fit", "c.npy", "--output", "o", "--nodata", "s3://bob:hunter2@b/x?sig=hunter2"],
        ["fit", "c.npy", "--output", "o", "--config", "s3://bob:hunter2@b/x?sig=hunter2"],
        ["s3://bob:hunter2@b/x?sig=hunter2"],
    ],
)
def test_wrong_usage_shows_no_credentials(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    err = capsys.readouterr().err
    assert "hunter2" not in err
    assert "***" in err


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--memory-limit", "1e400", "is not a size"),
        ("--local", "99999999999999999999", "use at most 1024"),
        ("--set", "init=nan", "init must be the name"),
        ("--set", "init=0", "init must be the name"),
        ("--set", "tol", "must be NAME=VALUE"),
        ("--set", "random_state=3", "use --seed"),
    ],
)
def test_values_that_cannot_be(
    flag: str, value: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["fit", "c.npy", "--output", "o", "--n-clusters", "3", flag, value]) == 2
    assert message in capsys.readouterr().err


def test_a_home_behind_an_equals_sign(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shells expand what stands alone only: a folder called ~ would be made here."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (home / "map.zarr").mkdir()
    (home / "map.zarr" / "mine").write_text("")
    np.save(tmp_path / "s.npy", np.zeros((4, 4, 2)))
    words = ("s.npy", "--dims=y,x,band", "--n-clusters", "2", "--output=~/map.zarr", "--dry-run")
    code, _, err = said("fit", *words)
    assert code == 1
    assert f"{str(home / 'map.zarr')!r} exists already" in err
    assert not (tmp_path / "~").exists()
