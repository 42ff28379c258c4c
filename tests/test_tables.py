"""Parquet and CSV as rows, and labels written beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pandas = pytest.importorskip("pandas", reason="needs the extra `dataframe`")
pytest.importorskip("pyarrow", reason="needs the extra `dataframe`")

import dask  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402
from helpers import within  # noqa: E402

from daskclust import KMeans, SemiSupervisedKMeans  # noqa: E402
from daskclust.exceptions import ClusterError  # noqa: E402
from daskclust.tables import open_table  # noqa: E402


@pytest.fixture
def frame() -> pandas.DataFrame:
    rng = np.random.default_rng(0)
    blob = np.arange(90) % 3
    return pandas.DataFrame(
        {
            "a": rng.normal(size=90) + 9 * blob,
            "b": (rng.normal(size=90) * 10 + 90 * blob).astype("int16"),
            "crop": [
                ["wheat", "maize", "water"][k] if i < 12 else None for i, k in enumerate(blob)
            ],
        }
    )


@pytest.fixture
def parquet(frame: pandas.DataFrame, tmp_path: Path) -> Path:
    (tmp_path / "t").mkdir()
    for k in range(3):
        frame[30 * k : 30 * k + 30].to_parquet(tmp_path / "t" / f"{k}.parquet", index=False)
    return tmp_path / "t"


def test_parquet_and_csv_give_the_labels_of_the_values(
    frame: pandas.DataFrame, parquet: Path, tmp_path: Path
) -> None:
    frame.to_csv(tmp_path / "t.csv", index=False)
    wanted = KMeans(3, random_state=0).fit(frame[["a", "b"]].to_numpy(dtype=float)).labels_
    for path in (parquet, tmp_path / "t.csv"):
        table = open_table(path)
        assert table.columns == ("a", "b")
        assert_array_equal(KMeans(3, random_state=0).fit(table.samples).labels_, wanted)


def test_labels_of_a_column(frame: pandas.DataFrame, parquet: Path) -> None:
    table = open_table(parquet, columns=["a", "b"], label_column="crop")
    rows, labels = table.labels()
    assert_array_equal(rows, np.arange(12))
    assert labels.tolist() == frame.crop[:12].tolist()
    model = SemiSupervisedKMeans(3, random_state=0).fit(table.samples, (rows, labels))
    assert model.classes_.tolist() == ["maize", "water", "wheat"]
    with pytest.raises(ValueError, match="no label column"):
        open_table(parquet).labels()


def test_few_of_many_columns_are_the_same_parts(tmp_path: Path) -> None:
    # Dask reads several files in one task where few of the columns are wanted.
    (tmp_path / "t").mkdir()
    values = np.arange(9 * 5 * 12.0).reshape(45, 12)
    names = [f"c{k}" for k in range(12)]
    frame = pandas.DataFrame(values, columns=names).assign(k=np.arange(45) % 3)
    for k in range(9):
        frame[5 * k : 5 * k + 5].to_parquet(tmp_path / "t" / f"{k}.parquet", index=False)
    table = open_table(tmp_path / "t", columns=["c7", "c2"], label_column="k")
    assert table.lengths == (5,) * 9
    assert_array_equal(table.samples.compute(), values[:, [7, 2]])
    assert table.samples.chunks[0] == table.lengths
    assert_array_equal(table.labels()[1], frame.k)
    written = table.write_labels(table.samples[:, 0].astype(int), tmp_path / "o")
    assert_array_equal(pandas.read_parquet(written).label, values[:, 7])


def test_labels_are_written_beside_the_rows(
    frame: pandas.DataFrame, parquet: Path, tmp_path: Path
) -> None:
    table = open_table(parquet)
    model = KMeans(3, random_state=0).fit(table.samples)
    written = table.write_labels(model.labels_, tmp_path / "out")
    found = pandas.concat(pandas.read_parquet(p) for p in sorted(written.glob("part.*")))
    assert_array_equal(found.label, model.labels_.compute())
    assert_array_equal(found.a, frame.a)
    with pytest.raises(FileExistsError, match="exists already"):
        table.write_labels(model.labels_, tmp_path / "out")
    table.write_labels(model.labels_, tmp_path / "out", overwrite=True)
    again = open_table(tmp_path / "out" / "*.parquet", columns=["a", "b"])
    with pytest.raises(FileExistsError, match="holds the table itself"):
        again.write_labels(model.labels_, tmp_path / "out", name="second", overwrite=True)
    notes = tmp_path / "out" / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(FileExistsError, match=r"also holds 'notes\.txt'"):
        table.write_labels(model.labels_, tmp_path / "out", overwrite=True)
    assert notes.read_text() == "mine"
    with pytest.raises(FileExistsError, match="was not written by daskclust"):
        table.write_labels(model.labels_, parquet, overwrite=True)
    with pytest.raises(ValueError, match="column 'a' already"):
        table.write_labels(model.labels_, tmp_path / "new", name="a")

    def fail(block: np.ndarray) -> np.ndarray:
        raise RuntimeError("a worker died")

    bad = model.labels_.map_blocks(fail, dtype=int, meta=np.empty(0, int))
    with pytest.raises(RuntimeError, match="a worker died"), dask.config.set(scheduler="sync"):
        table.write_labels(bad, tmp_path / "new")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "t"]


def test_without_workers_tables_are_given_up(parquet: Path, tmp_path: Path) -> None:
    table = open_table(parquet, label_column="crop")
    model = KMeans(3, random_state=0).fit(table.samples)
    with (
        LocalCluster(n_workers=0, dashboard_address=None) as cluster,
        Client(cluster),
        dask.config.set({"daskclust.worker-timeout": "1s"}),
    ):
        for work in (
            table.labels,
            lambda: table.write_labels(model.labels_, tmp_path / "out"),
        ):
            with pytest.raises(ClusterError, match=r"no workers for \d"):
                within(60, work)
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_errors_name_what_is_wrong(parquet: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="no column 'c'; it has"):
        open_table(parquet, columns=["c"])
    with pytest.raises(ValueError, match="The column 'crop' is"):
        open_table(parquet, columns=["crop"])
    with pytest.raises(FileNotFoundError, match="There is no file"):
        open_table(tmp_path / "nothing.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(OSError, match=r"broken\.parquet' cannot be read as Parquet"):
        open_table(tmp_path / "broken.parquet")
