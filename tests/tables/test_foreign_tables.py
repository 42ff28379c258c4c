"""Tables as others write them: columns that are only passed through come out as they came in."""

from __future__ import annotations

import datetime
import gzip
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pandas = pytest.importorskip("pandas", reason="needs the extra `dataframe`")
pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `dataframe`")

import dask.dataframe as dd  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

import daskclust  # noqa: E402
from daskclust import KMeans  # noqa: E402
from daskclust.scenes.formats.opening import kind_of  # noqa: E402
from daskclust.tables import open_table  # noqa: E402


def written(table, folder: Path):
    """Write a table with labels, and return it as Arrow has it."""
    labels = np.arange(sum(table.lengths))
    return pq.read_table(table.write_labels(labels, folder / "out") / "part.000000.parquet")


def test_columns_of_parquet_come_out_as_they_came_in(tmp_path: Path) -> None:
    source = pyarrow.table(
        {
            "a": [1.0, 2.0, 3.0],
            "id": pyarrow.array([2**53 + 1, None, 5], pyarrow.int64()),
            "big": pyarrow.array([2**64 - 1, None, 0], pyarrow.uint64()),
            "gaps": pyarrow.array([float("nan"), None, 0.5]),
            "time": pyarrow.array([datetime.time(1), None, datetime.time(2)], pyarrow.time64("ns")),
            "map": pyarrow.array(
                [[("k", 1)], None, []], pyarrow.map_(pyarrow.string(), pyarrow.int64())
            ),
            "kind": pyarrow.array(["x", None, "y"]).dictionary_encode(),
            "price": pyarrow.array([1, None, 2], pyarrow.int64()).cast(pyarrow.decimal128(21, 2)),
            "flag": [True, None, False],
        }
    )
    pq.write_table(source, tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet", columns=["a", "id"])
    assert_array_equal(table.samples.compute()[:, 1], [2.0**53, np.nan, 5])
    found = written(table, tmp_path)
    assert found.drop_columns(["label"]).schema.remove_metadata() == source.schema
    for name in source.column_names:
        if name != "gaps":
            assert found[name].to_pylist() == source[name].to_pylist()
    # A missing value and NaN stay different.
    assert (found["gaps"].null_count, np.isnan(found["gaps"][0].as_py())) == (1, True)
    assert found["label"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize(
    "index",
    [
        pandas.Index([7, 5], name="key"),
        pandas.Index(["b", "a"]),
        pandas.MultiIndex.from_tuples([(1, "x"), (2, "y")], names=["k", "l"]),
        pandas.RangeIndex(2),
    ],
)
def test_an_index_that_pandas_stored_is_written(index, tmp_path: Path) -> None:
    frame = pandas.DataFrame({"a": [1.0, 9.0]}, index=index)
    frame.to_parquet(tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    assert table.columns == ("a",)
    table.write_labels(np.array([0, 1]), tmp_path / "out")
    found = pandas.read_parquet(tmp_path / "out" / "part.000000.parquet")
    assert found.index.tolist() == index.tolist()
    assert list(found.index.names) == list(index.names)


def test_text_in_csv_stays_as_it_is(tmp_path: Path) -> None:
    lines = ["a,zip,word", "1,00712,NA", "2,10,None", ",x,"]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    table = open_table(tmp_path / "t.csv", columns=["a"], label_column="word")
    assert_array_equal(table.samples.compute(), [[1.0], [2.0], [np.nan]])
    rows, labels = table.labels()
    assert (rows.tolist(), labels.tolist()) == ([0, 1], ["NA", "None"])
    found = written(table, tmp_path)
    assert found["zip"].to_pylist() == ["00712", "10", "x"]
    assert found["word"].to_pylist() == ["NA", "None", ""]


def test_codes_in_csv_are_numbers_if_all_are(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,code\n1,3\n2,-1\n3,\n4,12\n")
    rows, labels = open_table(tmp_path / "t.csv", columns=["a"], label_column="code").labels()
    assert (rows.tolist(), labels.tolist()) == ([0, 3], [3, 12])
    (tmp_path / "t.csv").write_text("a,code\n1,3\n2,-1\n3,03\n")
    rows, labels = open_table(tmp_path / "t.csv", columns=["a"], label_column="code").labels()
    assert (rows.tolist(), labels.tolist()) == ([0, 2], ["3", "03"])


def test_codes_in_csv_may_be_written_as_decimals(tmp_path: Path) -> None:
    """As pandas writes a column with gaps; other decimals were classes of text."""
    (tmp_path / "t.csv").write_text("a,c\n1,3.0\n2,\n3,7\n4,-1.0\n")
    table = open_table(tmp_path / "t.csv", label_column="c")
    rows, labels = table.labels()
    assert (rows.tolist(), labels.tolist()) == ([0, 2], [3, 7])
    codes, names = table.known_classes("c")
    assert (codes.compute().tolist(), names) == ([3, -1, 7, -1], None)
    (tmp_path / "t.csv").write_text("a,c\n1,0.25\n2,1.5\n")
    with pytest.raises(
        ValueError, match="must contain codes or text, got numbers that are not integers"
    ):
        open_table(tmp_path / "t.csv", label_column="c").labels()


def test_lines_of_more_fields_than_the_header_are_refused(tmp_path: Path) -> None:
    for end in (",", ",9"):
        (tmp_path / "t.csv").write_text(f"a,b,c\n1,2,3{end}\n4,5,6{end}\n")
        with pytest.raises(
            OSError, match="line 2 must have at most 3 fields, as the header, got 4"
        ):
            open_table(tmp_path / "t.csv", columns=["a", "b"])
    # Below the first MiB, which is not checked when the table is opened.
    lines = ["a,b", *["1,2"] * 300_000, "1,2,3"]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    table = open_table(tmp_path / "t.csv")
    with pytest.raises(ValueError, match=r"t\.csv.*Row #300002: Expected 2 columns, got 3"):
        table.samples.compute()


def test_columns_of_csv_may_change_after_the_first_lines(tmp_path: Path) -> None:
    # Dask guesses types from ten rows.
    body = [f"{k},{k},{k}" for k in range(12)] + ["0.5,,word", "7,3,4"]
    (tmp_path / "t.csv").write_text("a,b,c\n" + "\n".join(body) + "\n")
    table = open_table(tmp_path / "t.csv")
    assert table.columns == ("a", "b")
    assert_array_equal(table.samples.compute()[12:], [[0.5, np.nan], [7, 3]])
    assert written(table, tmp_path)["c"].to_pylist()[11:] == ["11", "word", "4"]


def test_csv_of_other_kinds_says_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a;b\n1;2\n")
    with pytest.raises(OSError, match=r"commas, got 'a;b'; write the file with commas"):
        open_table(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_bytes("a,Größe\n1,2\n".encode("latin-1"))
    with pytest.raises(OSError, match=r"is not UTF-8\. .* utf-8\.$"):
        open_table(tmp_path / "t.csv")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b\n1,x\n2,y\n"))
    assert_array_equal(open_table(tmp_path / "t.csv.gz").samples.compute(), [[1], [2]])
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfa,b\n1,x\n2,y\n")
    assert open_table(tmp_path / "t.csv").columns == ("a",)


@pytest.mark.parametrize("pattern", ["part?.csv", "part[12].csv", "*.csv", "part#1.csv"])
def test_patterns_are_patterns(pattern: str, tmp_path: Path) -> None:
    for name in ("part1", "part2", "part#1"):
        (tmp_path / f"{name}.csv").write_text("a,b\n1,2\n3,4\n")
    table = open_table(tmp_path / pattern)
    assert len(table.samples.compute()) == 2 * len(list(tmp_path.glob(pattern)))
    assert kind_of(str(tmp_path / pattern)) == "table"


def test_labels_of_numpy_are_written(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"a": np.arange(6.0)})
    for k in range(2):
        frame[3 * k : 3 * k + 3].to_parquet(tmp_path / f"{k}.parquet", index=False)
    table = open_table([tmp_path / f"{k}.parquet" for k in range(2)])
    table.write_labels(np.arange(6), tmp_path / "out")
    assert pandas.read_parquet(tmp_path / "out").label.tolist() == list(range(6))
    with pytest.raises(ValueError, match=r"one label for each of the 6 rows, got shape \(5,\)"):
        table.write_labels(np.arange(5), tmp_path / "more")


@pytest.mark.filterwarnings("ignore:X has chunks of unknown length")
@pytest.mark.parametrize("kind", ["nullable", "arrow", "mixed"])
def test_frames_of_dask_are_taken_as_those_of_pandas(kind: str) -> None:
    frame = pandas.DataFrame({"a": np.arange(12) % 4 * 9.0, "b": np.arange(12) % 2 == 0})
    wanted = KMeans(2, random_state=0).fit(frame.astype(float).to_numpy()).labels_
    if kind == "nullable":
        frame = frame.convert_dtypes(dtype_backend="numpy_nullable")
    elif kind == "arrow":
        frame = frame.convert_dtypes(dtype_backend="pyarrow")
    lazy = dd.from_pandas(frame, npartitions=3)
    assert_array_equal(KMeans(2, random_state=0).fit(lazy).labels_.compute(), wanted)
    assert_array_equal(KMeans(2, random_state=0).fit(frame).labels_, wanted)
    assert open_table(lazy).columns == ("a", "b")


@pytest.mark.filterwarnings("ignore:X has chunks of unknown length")
def test_missing_values_of_frames_are_nan() -> None:
    frame = pandas.DataFrame({"a": pandas.array([1, None, 9] * 4, dtype="Int64"), "b": 1.5})
    lazy = dd.from_pandas(frame, npartitions=2)
    model = KMeans(2, random_state=0, missing="partial").fit(lazy)
    assert len(model.labels_.compute()) == 12
    with pytest.raises(ValueError, match="NaN"):
        KMeans(2, random_state=0).fit(lazy)


def test_negative_codes_are_refused_as_everywhere(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"a": [1.0, 2.0, 3.0], "y": [3, -1, -5]})
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    with pytest.raises(ValueError, match=r"'y' must have codes of at least 0, .* got -5"):
        open_table(tmp_path / "t.parquet", label_column="y").labels()


def test_tables_of_other_libraries_are_opened(tmp_path: Path) -> None:
    """Lists are features; only a Dataset stays on disk."""
    import pyarrow.dataset

    lists = [[float(i), -float(i)] for i in range(9)]
    table = pyarrow.table({"name": [f"n{i}" for i in range(9)], "v": lists})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    dataset = pyarrow.dataset.dataset(tmp_path)
    for source in (dataset, table, table.to_reader(), table.to_pandas()):
        opened = open_table(source)
        assert opened.columns == ("v",)
        np.testing.assert_array_equal(opened.samples, lists)
    model = KMeans(2, random_state=0)
    assert_array_equal(model.fit(open_table(dataset)).labels_, model.fit(lists).labels_)
    frame = pandas.DataFrame({0: np.arange(9.0), "kind": [1, "x", None] * 3})
    assert open_table(frame, columns=["0"]).samples.shape == (9, 1)
    with pytest.raises(TypeError, match="must be a table, got one column"):
        open_table(table["v"])


def test_line_breaks_in_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f'{i},"one\ntwo, ""three"" {i}"' for i in range(200)]
    (tmp_path / "t.csv").write_text("a,text\n" + "\n".join(lines) + "\n")
    table = open_table(tmp_path / "t.csv")
    assert_array_equal(table.samples[:, 0], np.arange(200))
    assert written(table, tmp_path)["text"].to_pylist()[7] == 'one\ntwo, "three" 7'
    # A part of the file that ends in quotes is not read as other rows.
    monkeypatch.setattr("daskclust.tables._files._PART_BYTES", 500)
    with pytest.raises(
        ValueError,
        match=r"t\.csv.*(quoted value crosses the border|'a' must contain numbers.*got 'two)",
    ):
        open_table(tmp_path / "t.csv").samples.compute()


def test_lines_of_fewer_fields_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(ValueError, match=r"Row #3: Expected 2 columns, got 1"):
        open_table(tmp_path / "t.csv").samples.compute()


def test_folders_named_by_values_are_categories(tmp_path: Path) -> None:
    for year in (2020, 2021):
        (tmp_path / "t" / f"year={year}").mkdir(parents=True)
        frame = pandas.DataFrame({"a": [year + 0.5, 1.0]})
        frame.to_parquet(tmp_path / "t" / f"year={year}" / "0.parquet", index=False)
    table = open_table(tmp_path / "t")
    assert table.columns == ("a",)
    assert_array_equal(table.samples[:, 0], [2020.5, 1, 2021.5, 1])
    assert table.frame["year"].compute().tolist() == [2020, 2020, 2021, 2021]


def test_a_table_is_standardized_as_in_the_fit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"a": rng.normal(size=90), "b": 1000 * rng.normal(size=90)})
    frame.loc[3, "a"] = np.nan
    for k in range(3):
        frame[30 * k : 30 * k + 30].to_parquet(tmp_path / f"{k}.parquet", index=False)
    table = open_table(tmp_path, scale="standard")
    x = frame.to_numpy()
    scaled = (x - np.nanmean(x, axis=0)) / np.nanstd(x, axis=0)
    np.testing.assert_allclose(table.samples, scaled, rtol=1e-12)
    model = KMeans(3, missing="partial", random_state=0).fit(table)
    model.save(tmp_path / "m.zarr")
    # Another table is scaled by the statistics of the fit, however it is opened.
    for scale in ("none", "standard"):
        other = open_table(tmp_path / "1.parquet", scale=scale)
        for kind in (model, daskclust.load(tmp_path / "m.zarr")):
            assert_array_equal(kind.predict(other), np.asarray(model.labels_)[30:60])
    with pytest.raises(ValueError, match="scale must be"):
        open_table(tmp_path, scale="unit")
    with pytest.raises(ValueError, match="must have the 2 features of the fit, got 1"):
        model.predict(open_table(tmp_path, columns=["a"]))
    plain = KMeans(3, missing="partial", random_state=0).fit(open_table(tmp_path))
    assert_array_equal(plain.predict(table), plain.labels_)


def test_files_without_rows_and_urls_without_files(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"a": [1.0, 2.0]})
    for name, rows in (("0", frame[:0]), ("1", frame)):
        pq.write_table(pyarrow.Table.from_pandas(rows), tmp_path / f"{name}.parquet")
    assert_array_equal(open_table(tmp_path).samples, [[1], [2]])
    assert open_table(tmp_path / "0.parquet").samples.shape == (0, 1)
    with pytest.raises(FileNotFoundError, match=r"'memory://gone\.parquet' does not exist"):
        open_table("memory://gone.parquet")
    with pytest.raises(OSError, match="all files must be local, or all must be URLs"):
        open_table([tmp_path / "1.parquet", "memory://gone.parquet"])
