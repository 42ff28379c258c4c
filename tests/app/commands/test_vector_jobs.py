"""Arrays of vectors on the command line: ``.npy`` and Zarr in, labels beside them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal

import daskclust
from daskclust import KMeans, open_table

pandas = pytest.importorskip("pandas", reason="needs the extra `dataframe`")
pytest.importorskip("pyarrow", reason="needs the extra `dataframe`")

Said = Callable[..., tuple[int, str, str]]


def vectors(dtype: str = "int8") -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.normal(size=(90, 4)) * 4 + 40 * (np.arange(90) % 3)[:, None] - 40).astype(dtype)


def put(name: str, x: np.ndarray) -> str:
    """Write an array where a name says, and return the path of the array."""
    if name.endswith(".npy"):
        np.save(name, x)
        return name
    group = zarr.create_group(name, overwrite=True)
    # Fewer columns a chunk than there are: rows are whole all the same.
    group.create_array("vectors", shape=x.shape, chunks=(40, 3), dtype=x.dtype)[:] = x
    return f"{name}/vectors"


def labels_in(name: str) -> np.ndarray:
    if name.endswith(".npy"):
        return np.load(name, mmap_mode="r")
    if name.endswith(".zarr"):
        return zarr.open_group(name, mode="r")["label"][:]
    found = pandas.read_parquet(name)
    assert list(found.columns) == ["embedding", "label"]
    assert_array_equal(np.stack(found["embedding"]), vectors())
    return found["label"].to_numpy()


@pytest.mark.parametrize(
    ("source", "target"), [("v.npy", "out.npy"), ("v.npy", "out"), ("v.zarr", "out.zarr")]
)
def test_fit_predict_inspect_and_explain(
    said: Said, address: str, source: str, target: str
) -> None:
    x = vectors()
    path = put(source, x)
    scheduler = ("--scheduler", address)
    words = (path, "--n-clusters", 3, "--output", target, "--model", "m.zarr", *scheduler)
    code, out, err = said("fit", *words)
    assert code == 0, err
    assert out.startswith("Rows      90 clustered by 4 values of embedding\n")
    labels = KMeans(3, random_state=0).fit(x).labels_
    assert labels_in(target).shape == (90,)
    assert_array_equal(labels_in(target), labels)
    assert daskclust.load("m.zarr").n_features_in_ == 4
    code, out, err = said("fit", *words, "--seed", 1)
    assert (code, err.count("\n")) == (1, 1)
    assert "exists already" in err
    again = ("predict", path, "--model", "m.zarr", "--output", target, *scheduler)
    code, out, err = said(*again, "--overwrite")
    assert code == 0, err
    assert_array_equal(labels_in(target), labels)
    code, out, err = said("inspect", path, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["kind"], found["rows"]) == ("table", 90)
    assert found["columns"][0]["dtype"] == "fixed_size_list<item: int8>[4]"
    code, out, err = said("explain", "m.zarr", path, *scheduler)
    assert code == 0, err
    assert "embedding[" in out


@pytest.mark.parametrize("dtype", ["float16", "uint8", "int16", ">f4"])
@pytest.mark.parametrize("source", ["v.npy", "v.zarr"])
def test_types_stay_as_they_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.abs(vectors("i2")).astype(dtype)
    table = open_table(put(source, x))
    assert table.dtype == table.samples.dtype == np.dtype(dtype).newbyteorder("=")
    assert table.samples.numblocks[1] == 1
    assert_array_equal(table.samples, x)
    assert_array_equal(np.stack(table.frame.compute()["embedding"]), x)


def test_rows_by_columns_and_several_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskclust.tables._arrays._TASK_BYTES", 100)
    x = vectors()
    np.save(tmp_path / "f.npy", np.asfortranarray(x))
    table = open_table(tmp_path / "f.npy")
    assert len(table.lengths) == 4
    labels = KMeans(3, random_state=0).fit(table.samples).labels_
    for name in ("l.npy", "l.zarr", "l"):
        table.write_labels(labels, tmp_path / name)
        assert_array_equal(
            labels_in(str(tmp_path / name)), KMeans(3, random_state=0).fit(x).labels_
        )
    store = zarr.storage.MemoryStore()
    zarr.create_array(store, shape=x.shape, chunks=(25, 4), dtype=x.dtype)[:] = x
    assert_array_equal(open_table(store).samples, x)
    target = zarr.storage.MemoryStore()
    more = {"other": labels + 0.5}
    group = table.write_labels(labels, target, name="cluster", more=more, attributes={"of": "me"})
    assert group.attrs["of"] == "me"
    assert_array_equal(group["cluster"][:] + 0.5, group["other"][:])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "one.npy --output o.npy",
            "must have numbers of shape (n, p), one vector per row, got shape (90,) and dtype int8",
        ),
        ("three.npy --output o", "on the command line --dims y,x,band"),
        ("cut.npy --output o.npy", "cut.npy' cannot be read as a numeric array"),
        ("fields.npy --output o.npy", "must have numbers of shape (n, p), one vector per row"),
        ("none.npy --output o.npy", "must have at least one row and one value, got shape (0, 4)"),
        ("gone.npy --output o", "does not exist"),
        ("v.npy --columns a --output o.npy", "must have the column 'a', got embedding"),
        ("v.npy --n-clusters 91 --output o.npy", "must be at most 90, the number of rows, got 91"),
        ("v.npy --output v.npy", "in the same place as"),
        ("v.npy --output one.npy", "exists already"),
        ("v.npy --output fields.npy --overwrite", "was not written by daskclust"),
        ("v.npy --output s3://u:hunter2@b/o.npy", "'s3://***@b/o.npy' must be a local"),
        ("v.npy --output o.npy --score s", "got a .npy file, which contains only labels"),
        ("v.npy --output o.npy --output-column c", "got a .npy file, which contains only labels"),
        ("z.zarr --output o", "pass the path of the array, STORE/NAME"),
        ("z.zarr/image --output o.npy", "got an image with the dimensions y, x"),
        ("z.zarr/scaled --output o.npy", "got the attribute scale_factor = 0.5"),
        ("z.zarr/gaps --output o.npy", "got the attribute _FillValue = -128"),
    ],
)
def test_wrong_arrays_are_one_line(said: Said, tmp_path: Path, words: str, message: str) -> None:
    x = vectors()
    put("v.npy", x)
    np.save("one.npy", x[:, 0])
    np.save("three.npy", np.ones((3, 4, 2)))
    np.save("fields.npy", np.zeros((9, 2), "i1,i1"))
    np.save("none.npy", x[:0])
    Path("cut.npy").write_bytes(Path("v.npy").read_bytes()[:-20])
    group = zarr.create_group("z.zarr")
    for name, names, attributes in (
        ("image", ("y", "x"), {}),
        ("scaled", None, {"scale_factor": 0.5}),
        ("gaps", ("row", "value"), {"_FillValue": -128}),
    ):
        group.create_array(
            name, data=x, dimension_names=names, attributes=attributes, chunks=(40, 4)
        )
    before = sorted(tmp_path.rglob("*"))
    code, out, err = said("fit", "--n-clusters", 3, *words.split())
    assert (code, out) == (1, "")
    assert message in " ".join(err.split())
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_that_changes_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "v.npy"
    np.save(path, vectors())
    table = open_table(path)
    np.save(path, vectors("int16"))
    with pytest.raises(
        OSError, match=r"if the file was changed, open it again|open it again if it was changed"
    ):
        KMeans(3, random_state=0).fit(table.samples)
