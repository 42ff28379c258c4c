"""Parquet and CSV as rows, and labels written next to them."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pandas = pytest.importorskip("pandas", reason="needs the extra `dataframe`")
pytest.importorskip("pyarrow", reason="needs the extra `dataframe`")

import dask  # noqa: E402
import fsspec  # noqa: E402
from dask.dataframe import from_map, read_parquet  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402
from fsspec.implementations.local import LocalFileSystem  # noqa: E402
from helpers import within  # noqa: E402

from daskclust import KMeans, SemiSupervisedKMeans  # noqa: E402
from daskclust.core.storage.retry import Retries, persistently  # noqa: E402
from daskclust.exceptions import ClusterError, DaskclustWarning, ReadError  # noqa: E402
from daskclust.tables import _files, open_table  # noqa: E402


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
    frame[:40].to_csv(tmp_path / "0.csv", index=False)
    frame[40:].to_csv(tmp_path / "1.csv", index=False)
    sources = (
        parquet,
        f"file://{parquet}/*.parquet",
        sorted(parquet.iterdir()),
        tmp_path / "t.csv",
        [f"{tmp_path}/0.csv", f"{tmp_path}/1.csv"],
        [f"file://{tmp_path}/0.csv", f"file://{tmp_path}/1.csv"],
    )
    for source in sources:
        table = open_table(source)
        assert table.columns == ("a", "b")
        assert_array_equal(KMeans(3, random_state=0).fit(table.samples).labels_, wanted)


class Unreliable(LocalFileSystem):
    """Local files, of which every request fails the first time it is made in a process."""

    protocol = "unreliable"
    made: set = set()  # noqa: RUF012
    failed = 0
    #: Part of the names of files whose requests always fail.
    lost = ""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.removeprefix("unreliable://"))

    def _fail(self, what: str, path: Any) -> None:
        request = (what, os.fspath(path))
        if request not in Unreliable.made or (Unreliable.lost and Unreliable.lost in request[1]):
            Unreliable.made.add(request)
            Unreliable.failed += 1
            raise ConnectionResetError("503: slow down")

    def _open(self, path: str, *words: Any, **options: Any) -> Any:
        self._fail("open", path)
        return super()._open(path, *words, **options)

    def info(self, path: str, **options: Any) -> Any:
        self._fail("info", path)
        return super().info(path, **options)

    def ls(self, path: str, *words: Any, **options: Any) -> Any:
        self._fail("ls", path)
        return super().ls(path, *words, **options)


def begin(lost: str = "") -> None:
    fsspec.register_implementation("unreliable", Unreliable, clobber=True)
    Unreliable.made, Unreliable.failed, Unreliable.lost = set(), 0, lost


def failed() -> int:
    return Unreliable.failed


@pytest.fixture
def unreliable(request: pytest.FixtureRequest) -> Iterator[Callable[..., Callable[[], int]]]:
    """Let requests fail where tasks run; what that returns counts how many have."""
    client = request.getfixturevalue("client") if request.param == "cluster" else None

    def start(lost: str = "") -> Callable[[], int]:
        begin("" if client else lost)
        if client is None:
            return failed
        client.run(begin, lost)
        return lambda: sum(client.run(failed).values())

    # A read makes several requests, each of which fails once.
    options = {"daskclust.read-backoff": "1ms", "daskclust.read-retries": 9}
    with dask.config.set(options if client else {**options, "scheduler": "threads"}):
        yield start
        start()


@pytest.mark.parametrize(
    ("kind", "unreliable"), [("parquet", "cluster"), ("csv", "threads")], indirect=["unreliable"]
)
def test_reads_that_fail_now_and_then_change_nothing(
    kind: str, unreliable: Callable[..., Callable[[], int]], frame: pandas.DataFrame, tmp_path: Path
) -> None:
    for k in range(3):
        part = frame[30 * k : 30 * k + 30]
        if kind == "csv":
            part.to_csv(tmp_path / f"{k}.csv", index=False)
        else:
            part.to_parquet(tmp_path / f"{k}.parquet", index=False)
    values = frame[["a", "b"]].to_numpy(dtype=float)
    model = KMeans(3, random_state=0).fit(values)
    unreliable()
    table = open_table(f"unreliable://{tmp_path}/*.{kind}", label_column="crop")
    assert failed() > 1
    assert table.lengths == (30, 30, 30)
    for work, expected in (
        (lambda: table.labels()[1].tolist(), frame.crop[:12].tolist()),
        (lambda: KMeans(3, random_state=0).fit(table.samples).labels_, model.labels_),
        (lambda: model.predict(table.samples), model.labels_),
        (lambda: table.samples.compute(), values),
        (lambda: table.write_labels(model.predict(table.samples), tmp_path / "out"), None),
    ):
        count = unreliable()
        found = work()
        if expected is not None:
            assert_array_equal(found, expected)
        assert count() >= 3
    written = pandas.read_parquet(tmp_path / "out")
    assert_array_equal(written.label, model.labels_)
    assert_array_equal(written.a, frame.a)


@pytest.mark.parametrize(
    ("kind", "unreliable"), [("parquet", "cluster"), ("csv", "threads")], indirect=["unreliable"]
)
def test_a_part_that_cannot_be_read_is_named(
    kind: str, unreliable: Callable[..., Callable[[], int]], frame: pandas.DataFrame, tmp_path: Path
) -> None:
    place = f"unreliable://{tmp_path}/t.{kind}"
    unreliable()
    if kind == "csv":
        frame.to_csv(tmp_path / "t.csv", index=False)
        source, named = place, r"read-csv-\w+' of '.*t\.csv' from byte 0"
    else:
        frame.to_parquet(tmp_path / "t.parquet", index=False, row_group_size=45)
        source = persistently(lambda: read_parquet(place, split_row_groups=1), str, Retries(9))
        named = r"read_parquet-\w+' of '.*t\.parquet', row groups \[\d\]"
    opened = open_table(source)
    # Computed: lazy ones read the file, too, by ten tries, and may be the first to fail.
    labels = KMeans(3, random_state=0).fit(opened.samples).labels_.compute()
    unreliable(lost=f"t.{kind}")
    with dask.config.set({"daskclust.read-retries": 2}):
        # One that has not counted its rows.
        table = replace(opened)
        for work in (
            lambda: table.lengths,
            lambda: table.write_labels(labels, tmp_path / "out"),
        ):
            with pytest.raises(ReadError) as error:
                work()
            text = str(error.value)
            assert re.match(rf"chunk \(\d,\) of '{named} could not be read in 3 tries over", text)
            assert ("by the worker tcp://" in text) == (dask.config.get("scheduler") != "threads")
            assert "\n" not in text
    assert [path.name for path in tmp_path.iterdir()] == [f"t.{kind}"]


def test_labels_of_a_column(frame: pandas.DataFrame, parquet: Path) -> None:
    table = open_table(parquet, columns=["a", "b"], label_column="crop")
    rows, labels = table.labels()
    assert_array_equal(rows, np.arange(12))
    assert labels.tolist() == frame.crop[:12].tolist()
    model = SemiSupervisedKMeans(3, random_state=0).fit(table.samples, (rows, labels))
    assert model.classes_.tolist() == ["maize", "water", "wheat"]
    with pytest.raises(ValueError, match="label_column must be set in open_table"):
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
    with pytest.raises(FileExistsError, match=r"also contains 'notes\.txt'"):
        table.write_labels(model.labels_, tmp_path / "out", overwrite=True)
    assert notes.read_text() == "mine"
    with pytest.raises(FileExistsError, match="was not written by daskclust"):
        table.write_labels(model.labels_, parquet, overwrite=True)
    with pytest.raises(ValueError, match="name must be the name of a new column, got 'a'"):
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
        LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
        Client(cluster),
        dask.config.set({"daskclust.worker-timeout": "1s"}),
    ):
        for work in (
            table.labels,
            lambda: table.write_labels(model.labels_, tmp_path / "out"),
        ):
            with pytest.raises(ClusterError, match=r"no workers for \d"):
                within(300, work)
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
@pytest.mark.parametrize("fitted", [False, True])
def test_a_file_that_changes_after_it_was_opened_is_an_error(
    frame: pandas.DataFrame, tmp_path: Path, name: str, fitted: bool
) -> None:
    def write(rows: pandas.DataFrame, path: Path) -> None:
        rows.to_parquet(path) if name == "t.parquet" else rows.to_csv(path, index=False)

    write(frame, tmp_path / name)
    table = open_table(tmp_path / name)
    fit = KMeans(2, random_state=0).fit
    lazy = fit(table.samples).labels_ if fitted else None
    write(frame[: len(frame) // 2], tmp_path / f"other_{name}")
    (tmp_path / f"other_{name}").replace(tmp_path / name)
    with (
        dask.config.set({"daskclust.read-retries": 0}),
        pytest.raises(
            OSError, match=r"if the file was changed, open it again|open it again if it was changed"
        ),
    ):
        fit(table.samples) if lazy is None else lazy.compute(scheduler="sync")


def test_one_of_very_many_files_that_changes_is_an_error(tmp_path: Path) -> None:
    for number in range(70):
        (tmp_path / f"{number}.csv").write_text(f"x,y\n1,2\n{number},4\n")
    table = open_table(tmp_path / "*.csv")
    (tmp_path / "41.csv").write_text("x,y\n1,2\n99,4\n")
    with pytest.raises(
        OSError,
        match=r"41\.csv'.*if the file was changed, open it again|open it again if it was changed",
    ):
        KMeans(2, random_state=0).fit(table.samples)


def test_a_later_csv_file_without_a_header_is_named(tmp_path: Path) -> None:
    places = [tmp_path / "0.csv", tmp_path / "1.csv"]
    places[0].write_text("x,y\n1,2\n")
    for wrong in (b"", "x,\xfc\n1,2\n".encode("latin1")):
        places[1].write_bytes(wrong)
        with pytest.raises(OSError, match=r"1\.csv', of the same table: "):
            open_table(places)


def test_csv_files_with_other_columns_are_refused(tmp_path: Path) -> None:
    """Their values were taken for those of the columns of the first file."""
    first = pandas.DataFrame({"a": [1.0, 2.0], "b": [10.0, 20.0]})
    first.to_csv(tmp_path / "0.csv", index=False)
    places = [str(tmp_path / name) for name in ("0.csv", "1.csv")]
    for other in (first[["b", "a"]], first.rename(columns={"b": "c"})):
        other.to_csv(tmp_path / "1.csv", index=False)
        for source in (places, tmp_path / "*.csv"):
            with pytest.raises(OSError, match=r"columns of .*1\.csv.* in the same order"):
                open_table(source)
        with (
            pytest.raises(ValueError, match=r"columns of '.*1\.csv' .* in the same order"),
            dask.config.set(scheduler="sync"),
        ):
            open_table([f"file://{place}" for place in places]).samples.compute()
    first[::-1].to_csv(tmp_path / "1.csv", index=False)
    assert_array_equal(open_table(places).samples[:, 0], [1, 2, 2, 1])


def test_csv_columns_without_a_name_or_of_one_name_stay_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",a,id,id\n007,1,008,009\n010,2,011,012\n")
    table = open_table(tmp_path / "t.csv", columns=["a"])
    written = table.write_labels(table.samples[:, 0].astype(int), tmp_path / "o")
    found = pandas.read_parquet(written)
    assert found["Unnamed: 0"].tolist() == ["007", "010"]
    assert found["id"].tolist() == ["008", "011"]
    assert found["id.1"].tolist() == ["009", "012"]


@pytest.mark.parametrize("kind", ["fixed", "list"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_a_column_of_lists_is_as_many_features(tmp_path: Path, kind: str, dtype: str) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet_files = pytest.importorskip("pyarrow.parquet")
    X = (10 * np.random.default_rng(0).normal(size=(70, 4))).astype(dtype)
    for k, x in enumerate((X[:40], X[40:])):
        flat = pa.array(x.ravel())
        lists = (
            pa.FixedSizeListArray.from_arrays(flat, 4)
            if kind == "fixed"
            else pa.ListArray.from_arrays(np.arange(0, len(flat) + 1, 4, np.int32), flat)
        )
        crops = pa.array(["a", None] * (len(x) // 2))
        table = pa.table({"id": pa.array(range(len(x))), "embedding": lists, "crop": crops})
        parquet_files.write_table(table, tmp_path / f"{k}.parquet")
    table = open_table(tmp_path, columns="embedding", label_column="crop")
    assert table.columns == ("embedding",)
    assert (table.n_features, table.dtype) == (4, np.dtype(dtype))
    assert_array_equal(table.samples.compute(), X)
    assert_array_equal(table.labels()[0], np.arange(0, 70, 2))
    model = KMeans(3, random_state=0).fit(table.samples)
    assert_array_equal(model.labels_, KMeans(3, random_state=0).fit(X).labels_)
    out = table.write_labels(model.labels_, tmp_path / "out")
    written = pandas.read_parquet(out)
    assert_array_equal(written["label"], model.labels_)
    assert_array_equal(np.stack(written["embedding"]), X)


def test_lists_of_several_lengths_are_refused(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet_files = pytest.importorskip("pyarrow.parquet")
    bad = {
        "short": [[1.0, 2.0], [1.0]],
        "none": [[1.0, 2.0], None],
        "gap": [[1.0, 2.0], [1.0, None]],
        "text": [["a"], ["b"]],
        "empty": [[], []],
    }
    kinds = {"text": pa.list_(pa.string())}
    table = {
        name: pa.array(values, kinds.get(name, pa.list_(pa.float32())))
        for name, values in bad.items()
    }
    parquet_files.write_table(pa.table(table), tmp_path / "t.parquet")
    for name, match in {
        "short": "The column 'short' must contain lists of numbers, 2 per list, got",
        "none": "got no list in row 1",
        "gap": "got missing values in lists",
    }.items():
        with pytest.raises(ValueError, match=match):
            open_table(tmp_path / "t.parquet", columns=name).samples.compute()
    with pytest.raises(ValueError, match="lists of string"):
        open_table(tmp_path / "t.parquet", columns="text")
    with pytest.raises(ValueError, match="empty lists"):
        open_table(tmp_path / "t.parquet", columns="empty")
    with pytest.raises(ValueError, match=r"must have numbers, got .*Make it the only column"):
        open_table(tmp_path / "t.parquet", columns=["short", "gap"])


def test_lists_of_numbers_that_are_left_out_are_told(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet_files = pytest.importorskip("pyarrow.parquet")
    vectors, words = pa.array([[1.0, 2.0], [3.0, 4.0]]), pa.array([["a"], ["b"]])
    columns = {"id": pa.array([1, 2]), "words": words, "embedding": vectors}
    parquet_files.write_table(pa.table(columns), tmp_path / "t.parquet")
    told = r"^id are the features, .* left out\. To use them, name 'embedding' alone"
    with pytest.warns(DaskclustWarning, match=told):
        table = open_table(tmp_path / "t.parquet")
    assert table.columns == ("id",)
    # No warning if the column is named; lists of text are never features.
    del columns["embedding"]
    parquet_files.write_table(pa.table(columns), tmp_path / "words.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error", DaskclustWarning)
        assert open_table(tmp_path / "t.parquet", columns="embedding").n_features == 2
        assert open_table(tmp_path / "words.parquet").columns == ("id",)
    # Without numeric columns, the only column of lists is the default.
    columns = {"text": pa.array(["a", "b"]), "embedding": vectors}
    parquet_files.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert open_table(tmp_path / "t.parquet").columns == ("embedding",)
    columns["image"] = vectors
    parquet_files.write_table(pa.table(columns), tmp_path / "t.parquet")
    with pytest.raises(
        ValueError, match=r"must have columns of numbers.* 'embedding' has lists of num"
    ):
        open_table(tmp_path / "t.parquet")


@pytest.mark.parametrize("wrong", ["oops", "0x10", '"1,5"', "TRUE"])
@pytest.mark.parametrize("part_bytes", [64 * 10**6, 500])
def test_what_is_no_number_in_a_csv_column_is_named(
    wrong: str, part_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_files, "_PART_BYTES", part_bytes)
    for k in range(2):
        lines = [f"{i},x{i},{i}.5" for i in range(200)]
        lines[150] = f"1,x,{wrong}" if k else lines[150]
        (tmp_path / f"{k}.csv").write_text("a,name,b\n" + "\n".join(lines) + "\n")
    table = open_table(tmp_path / "*.csv", columns=["a", "b"])
    assert (table.frame.npartitions > 2) == (part_bytes == 500)
    text = re.escape(wrong.strip('"')[:40])
    for work in (
        table.samples.sum().compute,
        # Without it the rows can be counted by another column.
        lambda: table.write_labels(table.samples[:, 0].astype(int), tmp_path / "out"),
    ):
        with (
            pytest.raises(
                ValueError,
                match=rf"1\.csv'.* column 'b' must contain numbers.*NA.*got '{text}' in line \d+ ",
            ),
            dask.config.set(scheduler="sync"),
        ):
            work()
    with dask.config.set(scheduler="sync"):
        assert len(open_table(tmp_path / "*.csv", columns=["a"]).samples.compute()) == 400


def test_infinite_values_of_csv_are_the_estimators_to_refuse(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n1\ninf\n-Infinity\n1e400\n")
    table = open_table(tmp_path / "t.csv")
    assert_array_equal(table.samples[:, 0], [1, np.inf, -np.inf, np.inf])
    with pytest.raises(ValueError, match="X contains infinity: the first at row 1"):
        KMeans(2).fit(table)


def test_types_of_later_parquet_files(tmp_path: Path) -> None:
    def opened(later: Any) -> Any:
        first.to_parquet(tmp_path / "0.parquet")
        later.to_parquet(tmp_path / "1.parquet")
        return open_table(tmp_path, columns=["a"])

    first = pandas.DataFrame({"a": np.float32([1, 2])})
    wide = opened(pandas.DataFrame({"a": [1e300]})).samples
    assert wide.dtype == np.float64
    assert wide.compute().ravel().tolist() == [1, 2, 1e300]
    for values in (["3", "oops"], pandas.to_datetime(["2020-01-01", "2020-01-02"])):
        with pytest.raises(ValueError, match=r"1\.parquet' must have the data types .*Field a has"):
            opened(pandas.DataFrame({"a": values}))
    with pytest.raises(
        ValueError, match=r"1\.parquet' must have the columns of the first file.* 'b'"
    ):
        opened(pandas.DataFrame({"b": [1.0]}))
    first = first.assign(b=1)
    with pytest.raises(ValueError, match=r"1\.parquet' has no column 'b'"):
        opened(pandas.DataFrame({"a": [1.0]}))
    first = pandas.DataFrame({"a": [np.int8([1, 2])]})
    wide = opened(pandas.DataFrame({"a": [[300.5, 2.0]]})).samples
    assert_array_equal(wide, [[1, 2], [300.5, 2]])


@pytest.mark.parametrize(
    ("values", "match"),
    [
        (["oops"], r"column 'a' must have numbers, got .* such as 'oops'"),
        (
            [2.0, 1e300],
            r"column 'a' must have the type of its first partition, float32, .* 1e\+300",
        ),
    ],
)
def test_parts_of_other_types_than_their_frame(values: list[Any], match: str) -> None:
    """Frames of other libraries may have partitions of other types."""
    frame = from_map(
        lambda values: pandas.DataFrame({"a": values}),
        [np.float32([1]), values],
        meta=pandas.DataFrame({"a": np.float32([])}),
        enforce_metadata=False,
    )
    with pytest.raises(ValueError, match=match), dask.config.set(scheduler="sync"):
        open_table(frame).samples.compute()


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskclust.core.estimator.arrow._PIECE_BYTES", 2**14)


def grouped(tmp_path: Path, frame: pandas.DataFrame, rows: int) -> Path:
    """Write a file whose row groups have `rows` rows."""
    frame.to_parquet(tmp_path / "grouped.parquet", row_group_size=rows)
    return tmp_path / "grouped.parquet"


def many_rows(n: int = 20_000) -> pandas.DataFrame:
    rng = np.random.default_rng(0)
    return pandas.DataFrame(
        {
            "z": rng.random(n),
            "a": rng.random(n).astype("float32"),
            "text": [f"d{i}" if i % 7 else None for i in range(n)],
            "kind": pandas.Categorical.from_codes(rng.integers(0, 3, n), ["w", "k", "b"]),
            "day": pandas.date_range("2020", periods=n, freq="h"),
            "whole": pandas.array([None if i % 5 == 0 else i for i in range(n)], dtype="Int64"),
        }
    )


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    ("rows", "lengths"),
    # Groups of 1000 and 100 rows of two columns have some 12 and 1.5 kB; parts up to 16.
    [(1000, (1000,) * 20), (100, (1000,) * 20), (20_000, (20_000,))],
)
def test_a_file_is_split_by_row_groups_and_small_ones_are_joined(
    tmp_path: Path, rows: int, lengths: tuple[int, ...]
) -> None:
    frame = many_rows()[["z", "a"]]
    path = grouped(tmp_path, frame, rows)
    table = open_table(path)
    assert table.lengths == lengths
    assert table.largest_part[:2] == (len(frame), max(lengths))
    assert_array_equal(table.samples.compute(), frame.to_numpy())


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("index", ["none", "step", "text", "two", "numbers"])
def test_rows_names_and_columns_are_those_of_a_file_that_is_one_part(
    tmp_path: Path, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = many_rows(4000)
    frame = {
        "none": frame,
        "step": frame.set_axis(pandas.RangeIndex(10, 10 + 2 * len(frame), 2)),
        "text": frame.set_index("text"),
        "two": frame.set_index(["text", "day"]),
        "numbers": frame.set_axis(np.random.default_rng(0).permutation(len(frame))),
    }[index]
    path = grouped(tmp_path, frame, 500)
    written = []
    for size in (2**14, 2**40):
        monkeypatch.setattr("daskclust.core.estimator.arrow._PIECE_BYTES", size)
        table = open_table(path, columns=["z", "a"])
        # A range that is not 0, 1, ... is stored for the file, and not by row group.
        assert (table.frame.npartitions > 1) == (size == 2**14 and index != "step")
        out = table.write_labels(np.arange(len(frame)), tmp_path / f"out{size}")
        written.append(pandas.read_parquet(out))
    pandas.testing.assert_frame_equal(*written)
    assert_array_equal(written[0]["label"], np.arange(len(frame)))
    pandas.testing.assert_index_equal(written[0].index, frame.index, exact=False)


def test_the_name_of_a_range_is_not_lost_in_silence(tmp_path: Path) -> None:
    path = grouped(tmp_path, many_rows(100).rename_axis("customer"), 10)
    with pytest.raises(ValueError, match=r"'customer' .* a range.*frame.reset_index\(\)"):
        open_table(path)


@pytest.mark.usefixtures("small_parts")
def test_labels_of_a_fit_do_not_depend_on_row_groups(tmp_path: Path, client: Client) -> None:
    frame = many_rows(6000)[["z", "a"]]
    wanted = KMeans(4, random_state=0).fit(frame.to_numpy(dtype=np.float64)).labels_
    table = open_table(grouped(tmp_path, frame, 1000))
    assert table.samples.numblocks == (6, 1)
    assert_array_equal(KMeans(4, random_state=0).fit(table.samples).labels_, wanted)


@pytest.mark.usefixtures("small_parts")
def test_columns_may_be_left_out_beside_labels(tmp_path: Path) -> None:
    frame = many_rows(3000)
    table = open_table(grouped(tmp_path, frame, 1000), columns=["z", "a"])
    out = table.write_labels(np.arange(3000), tmp_path / "out", keep=["text", "whole"])
    found = pandas.read_parquet(out)
    assert found.columns.tolist() == ["text", "whole", "label"]
    assert found["text"].tolist()[1:3000:999] == frame["text"].tolist()[1:3000:999]
    with pytest.raises(KeyError, match=r"must have the column 'txt'.*Did you mean text"):
        table.write_labels(np.arange(3000), tmp_path / "o", keep=["txt"])
    with pytest.raises(ValueError, match="folder of Parquet files to keep columns"):
        table.write_labels(np.arange(3000), tmp_path / "o.npy", keep=["text"])
    rows = np.array([2500, 3, 1001, 3])
    cells = table.cells(rows, ["whole", "text"])
    assert cells["text"].fillna("").tolist() == frame["text"].fillna("").to_numpy()[rows].tolist()
    assert cells["whole"].fillna(-1).tolist() == [-1, 3, 1001, 3]


def _types(path: Path) -> None:
    pandas.DataFrame(
        {
            "a": np.arange(9.0),
            "kind": pandas.Categorical(["x", "y", "z"] * 3),
            "day": pandas.date_range("2020", periods=9),
            "vector": [[1.0, 2.0]] * 9,
            "tags": [["p"]] * 9,
        }
    ).to_parquet(path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            ["a", "kind"],
            "'kind' must have numbers, got dictionary.*encode its values as numbers.*how-to/tables",
        ),
        (
            ["kind"],
            "'kind' must have numbers, got dictionary.*encode its values as numbers.*how-to/tables",
        ),
        (
            ["day"],
            "'day' must have numbers, got timestamp.*days since the first day.*how-to/tables",
        ),
        (
            ["a", "vector"],
            "'vector' must have numbers, got list.*Make it the only column.*how-to/embeddings",
        ),
        (["tags"], "'tags' must have lists of numbers.*lists of string.*how-to/embeddings"),
    ],
)
def test_advice_for_a_column_that_is_no_number(
    tmp_path: Path, columns: list[str], message: str
) -> None:
    _types(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=message):
        open_table(tmp_path / "t.parquet", columns=columns)


def test_advice_to_name_a_column_alone_can_be_followed(tmp_path: Path) -> None:
    _types(tmp_path / "t.parquet")
    assert open_table(tmp_path / "t.parquet", columns=["vector"]).samples.shape == (9, 2)
