"""Wrong files for the flags: one line each, before anything is computed."""

from __future__ import annotations

from pathlib import Path

import distributed
import numpy as np
import pytest
import zarr

from daskclust.app import cli

PAIRS = "fit c.npy --dims y,x,band --estimator pckmeans --n-clusters 3 --output o --must-link "


TABLE = "fit t.csv --n-clusters 2 --output "
SUGGEST = "suggest c.npy --dims y,x,band --n 2 --output "
#: Where nobody answers; credentials are not shown.
WEB = "http://u:hunter2@127.0.0.1:9/"
FIT = "fit c.npy --dims y,x,band --n-clusters 3 --output "


def _started(*_: object, **__: object) -> None:
    raise AssertionError("a cluster was started")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (PAIRS + "none.txt", "--must-link: the file 'none.txt' does not exist"),
        (PAIRS + "folder", "'folder' cannot be read as pairs"),
        (PAIRS + "word.txt", "could not convert string 'x'"),
        (
            PAIRS + "three.txt",
            "must contain integers of shape (m, 2) and at least one pair, got int64",
        ),
        (PAIRS + "void.txt", "at least one pair, got int64 of shape (0, 2)"),
        (PAIRS + "junk.npy", "'junk.npy' cannot be read as pairs"),
        (PAIRS + "open.npy", "'open.npy' cannot be read as pairs"),
        (PAIRS + "real.npy", "at least one pair, got float64 of shape (1, 2)"),
        (PAIRS + "far.txt", "must contain row numbers from 0 to 11, got 99"),
        (PAIRS + "below.txt", "must contain row numbers from 0 to 11, got -1"),
        (
            "fit c.npy --dims y,x,band --n-clusters 3 --report folder",
            "'folder' must be an HTML file, got a folder",
        ),
        ("suggest c.npy --dims y,x,band --n 2 --output void.txt/q.csv", "is not a folder"),
        ("suggest c.npy --dims y,x,band --n 2 --output c.npy", "in the same place as the cube"),
        ("inspect cut.zip", "'cut.zip' is not a complete zip file"),
        ("inspect torn.zarr", "torn.zarr' cannot be opened: its metadata are damaged"),
        ("inspect torn.npz", "torn.npz' must be a Zarr store"),
        (
            FIT + "m.png",
            "--output 'm.png' must not have the suffix of another file format: a label map",
        ),
        (
            FIT + "o --model m.pkl",
            "--model 'm.pkl' must not have the suffix of another file format",
        ),
        ("inspect c.npy", "has no names of its dimensions, so their order cannot be guessed"),
        (FIT + "o --checkpoint void.txt", "void.txt' is not a readable daskclust checkpoint"),
        (
            FIT + "o --checkpoint s3://u:hunter2@b/c",
            "checkpoint must be a path on this machine, got 's3://***@b/c'",
        ),
        (FIT + "o --checkpoint void.txt/c", "is not a folder"),
        (FIT + "memory://o", "--output 'memory://o' must not be in the memory of this process"),
        (TABLE + "o --checkpoint void.txt", "is not a readable daskclust checkpoint"),
        (TABLE + "memory://o", "--output 'memory://o' must be a folder that all workers share"),
        *(
            (
                f"{words}{more}{WEB}{name}",
                f"{flag} 'http://***@127.0.0.1:9/{name}' must not be on a web",
            )
            for words, more, flag, name in (
                (FIT, "", "--output", "o.zarr"),
                (FIT, "", "--output", "o.tif"),
                (FIT, "o --uncertainty ", "--uncertainty", "u.zarr"),
                (FIT, "o --model ", "--model", "m.zarr"),
                (FIT, "o --report ", "--report", "r.html"),
                (TABLE, "", "--output", "t.parquet"),
                (TABLE, "o --model ", "--model", "m.zarr"),
            )
        ),
        (
            FIT + "o --model simplecache::https://h/m",
            "--model 'simplecache::https://h/m' must not be",
        ),
        (SUGGEST + "s3://b/q.csv", "'s3://b/q.csv' must be a local path"),
        (SUGGEST + "q.csv --report s3://b/r.html", "--report 's3://b/r.html' is a URL"),
        ("inspect void.txt", "supported file format. Is the file complete"),
    ],
)
def test_wrong_inputs_are_one_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    message: str,
) -> None:
    if "void.txt" in words and "inspect" in words:
        pytest.importorskip("rioxarray", reason="needs the extra `raster`")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(distributed, "LocalCluster", _started)
    Path("t.csv").write_text("a,b\n" + "1,2\n3,5\n" * 5)
    np.save("c.npy", np.ones((3, 4, 2)))
    np.save("real.npy", np.array([[0.5, 1.0]]))
    Path("open.npy").write_bytes(Path("real.npy").read_bytes().replace(b"}", b"{", 1))
    Path("folder").mkdir()
    texts = {"word": "1 x", "three": "1 2 3", "void": "", "far": "0,99", "below": "-1 2"}
    for name, text in texts.items():
        Path(f"{name}.txt").write_text(text)
    for name in ("cut.zip", "torn.npz"):
        Path(name).write_bytes(b"PK\x03\x04 and nothing more")
    group = zarr.create_group("torn.zarr")
    group.create_array("cube", data=np.ones((3, 4, 2)), dimension_names=("y", "x", "band"))
    metadata = Path("torn.zarr/cube/zarr.json")
    metadata.write_text(metadata.read_text()[:100])
    Path("junk.npy").write_bytes(b"\x93NUMPY of no version")
    assert cli.main(words.split()) == 1
    out, err = capsys.readouterr()
    assert message in err
    assert err.count("\n") == 1
    assert ".." not in err
    assert "hunter2" not in err
    assert not out
