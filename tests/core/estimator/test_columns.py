"""Tables with columns that are not numbers: messages name the column and the page that helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import daskclust

pandas = pytest.importorskip("pandas", reason="needs the extra `dataframe`")
arrow = pytest.importorskip("pyarrow", reason="needs the extra `dataframe`")

xarray = pytest.importorskip("xarray", reason="needs the extra `xarray`")

import pyarrow.dataset  # noqa: E402
import pyarrow.parquet  # noqa: E402, F401
from dask.dataframe import from_map, from_pandas, read_parquet  # noqa: E402

N = 12
VECTORS = np.arange(2.0 * N).reshape(N, 2)
A = pandas.DataFrame({"a": np.arange(float(N))})
LIST = arrow.list_(arrow.float64())
DAYS = pandas.date_range("2020", periods=N)


def fit(X):
    return daskclust.KMeans(2, random_state=0).fit(X)


def lazy(frame):
    return from_pandas(frame, npartitions=2)


TABLES = {
    "text": (
        A.assign(b=["West"] * N),
        "'b' must contain numbers, got text, such as 'West'.*OneHotEncoder.*tables",
    ),
    "text for Arrow": (
        arrow.Table.from_pandas(A.assign(b=["West"] * N)),
        "'b' must contain numbers, got text, such as 'West'.*how-to/tables",
    ),
    "categories": (
        A.assign(b=pandas.Categorical(["West"] * N)),
        "'b' must contain numbers, got categories, such as 'West'.*OneHotEncoder",
    ),
    "dates": (
        A.assign(b=DAYS),
        "'b' must contain numbers, got dates or times.*days since the first.*how-to/tables",
    ),
    "dates alone": (pandas.DataFrame({"b": DAYS}), "'b' must contain numbers, got dates"),
    "zones": (A.assign(b=DAYS.tz_localize("UTC")), "'b' must contain numbers, got dates"),
    "durations": (A.assign(b=DAYS - DAYS[0]), "'b' must contain numbers, got dates"),
    "dates for Arrow": (
        arrow.Table.from_pandas(A.assign(b=DAYS)),
        "'b' must contain numbers, got dates",
    ),
    "lists": (
        A.assign(b=list(VECTORS)),
        "The column 'b' must contain numbers, got lists",
    ),
    "lists for Arrow": (
        arrow.table({"a": np.arange(float(N)), "b": VECTORS.tolist()}),
        "The column 'b' must contain numbers, got lists",
    ),
    "lists of text": (
        pandas.Series([["a"]] * N, name="b"),
        "The column 'b' must contain lists of numbers, got lists of string",
    ),
    "lists of several lengths": (
        pandas.Series([[1.0, 2.0]] * (N - 1) + [[1.0]], name="b"),
        f"'b' must contain lists of numbers, 2 per list, got 1 numbers in row {N - 1}",
    ),
    "a missing list": (
        arrow.table({"b": [[1.0], None]}),
        "The column 'b' must contain lists of numbers, 1 per list, got",
    ),
    "a missing value in a list": (
        arrow.table({"b": [[1.0], [None]]}),
        "lists of numbers, got missing",
    ),
    "lazy text": (
        lazy(A.assign(b=["West"] * N)),
        "'b' must contain numbers, got text.*OneHotEncoder.*how-to/tables",
    ),
    "lazy dates": (lazy(A.assign(b=DAYS)), "'b' must contain numbers, got dates"),
    "lazy categories": (
        lazy(A.assign(b=pandas.Categorical(["West"] * N))),
        "'b' must contain numbers, got categories.*how-to/tables",
    ),
    "a lazy column of lists": (
        lazy(pandas.DataFrame({"b": list(VECTORS)}))["b"],
        "'b' must contain numbers, got text or lists.*how-to/embeddings",
    ),
    "a lazy column": (lazy(A)["a"], r"Dask Series 'a'. Use X.to_frame\(\)"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_column_that_is_no_number_is_named(kind: str) -> None:
    X, message = TABLES[kind]
    with pytest.raises(ValueError, match=message):
        fit(X)


def _vectors(folder: Path) -> dict[str, Any]:
    """One column of vectors in all containers that hold one."""
    lists, rows = arrow.table({"b": VECTORS.tolist()}), VECTORS.shape[1]
    fixed = arrow.table({"b": arrow.FixedSizeListArray.from_arrays(VECTORS.ravel(), rows)})
    for at in range(2):
        part = fixed.slice(at * N // 2, N // 2)
        arrow.parquet.write_table(part, folder / f"{at}.parquet", row_group_size=5)
    objects = pandas.DataFrame({"b": list(VECTORS)})
    with dask.config.set({"dataframe.convert-string": False}):
        lazy_objects = lazy(objects)
    lazy_arrow = read_parquet(folder, dtype_backend="pyarrow")
    return {
        "table of lists": lists,
        "table of arrays": fixed,
        "chunks": lists["b"],
        "array": fixed["b"].combine_chunks(),
        "pandas": objects,
        "pandas series": objects["b"],
        "pandas with Arrow types": fixed.to_pandas(types_mapper=pandas.ArrowDtype),
        "stream": fixed.to_reader(),
        "dataset": arrow.dataset.dataset(folder),
        "dask": lazy_arrow,
        "dask series": lazy_arrow["b"],
        "dask objects": lazy_objects,
        "dask series of objects": lazy_objects["b"],
    }


@pytest.mark.filterwarnings("ignore::daskclust.exceptions.PerformanceWarning")
def test_a_column_of_vectors_is_a_matrix(tmp_path: Path) -> None:
    labels = fit(VECTORS).labels_
    for name, X in _vectors(tmp_path).items():
        np.testing.assert_array_equal(fit(X).labels_, labels, err_msg=name)


@pytest.mark.filterwarnings("ignore::daskclust.exceptions.PerformanceWarning")
def test_tables_of_numbers_from_arrow_keep_their_names(tmp_path: Path) -> None:
    table = arrow.table({"a": VECTORS[:, 0], "b": VECTORS[:, 1]})
    arrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=5)
    for X in (table, table.to_reader(), arrow.dataset.dataset(tmp_path)):
        model = fit(X)
        assert list(model.feature_names_in_) == ["a", "b"]
        np.testing.assert_array_equal(model.labels_, fit(VECTORS).labels_)


@pytest.mark.filterwarnings("ignore::daskclust.exceptions.PerformanceWarning")
def test_files_of_a_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups are read together up to a size; columns of the folders' names are features."""
    table = arrow.table({"a": VECTORS[:, 0], "b": VECTORS[:, 1], "c": [0, 1] * (N // 2)})
    arrow.dataset.write_dataset(
        table, tmp_path / "parts", format="parquet", partitioning=["c"],
        partitioning_flavor="hive", max_rows_per_group=2, max_rows_per_file=N,
    )  # fmt: skip
    dataset = arrow.dataset.dataset(tmp_path / "parts", partitioning="hive")
    rows = np.concatenate([table.to_pandas().to_numpy()[at::2] for at in range(2)])
    for size, n_blocks in ((2**25, 2), (1, 2 * -(-N // 4))):
        monkeypatch.setattr("daskclust.core.estimator.arrow._PIECE_BYTES", size)
        model = fit(dataset)
        assert model.labels_.numblocks == (n_blocks,)
        np.testing.assert_array_equal(model.labels_, fit(rows).labels_)
    for number, columns in enumerate((["a", "b"], ["a"])):
        arrow.parquet.write_table(table.select(columns), tmp_path / f"{number}.parquet")
    other = arrow.dataset.dataset([tmp_path / "0.parquet", tmp_path / "1.parquet"])
    with pytest.raises(ValueError, match=r"1\.parquet' has no column 'b'"):
        fit(other)


def test_the_length_of_lists_is_read_from_one_partition() -> None:
    reads: list[int] = []

    def part(number: int) -> Any:
        reads.append(number)
        rows = VECTORS[number * 4 : number * 4 + 4] if number else VECTORS[:0]
        column = pandas.arrays.ArrowExtensionArray(arrow.array(rows.tolist(), LIST))
        return pandas.DataFrame({"b": column})

    frame = from_map(part, range(3), meta=part(0))
    model = fit(VECTORS)
    reads.clear()
    with dask.config.set(scheduler="sync"):
        model.predict(frame)
    assert reads == [0, 1]


def test_datasets_and_scanners_in_memory() -> None:
    table = arrow.table({"a": VECTORS[:, 0], "b": VECTORS[:, 1]})
    dataset = arrow.dataset.dataset(table)
    for X in (dataset, dataset.scanner(), pandas.DataFrame(VECTORS, columns=["samples", "frame"])):
        np.testing.assert_array_equal(fit(X).labels_, fit(VECTORS).labels_)


def test_a_filtered_dataset_is_refused(tmp_path: Path) -> None:
    arrow.parquet.write_table(arrow.table({"a": VECTORS[:, 0]}), tmp_path / "a.parquet")
    filtered = arrow.dataset.dataset(tmp_path).filter(arrow.dataset.field("a") > 0)
    with pytest.raises(ValueError, match=r"without a filter.*X\.to_table\(\)"):
        fit(filtered)


def test_a_stream_that_was_read_is_refused() -> None:
    stream = arrow.table({"a": VECTORS[:, 0]}).to_reader()
    fit(stream)
    with pytest.raises(ValueError, match="A stream can be read only once"):
        fit(stream)


def test_polars_and_duckdb() -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = polars.DataFrame({"a": VECTORS[:, 0], "b": VECTORS[:, 1]})
    vectors = polars.DataFrame({"b": VECTORS.tolist()})
    labels = fit(VECTORS).labels_
    for X in (frame, frame.lazy(), vectors, vectors.lazy(), vectors["b"]):
        np.testing.assert_array_equal(fit(X).labels_, labels)
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    np.testing.assert_array_equal(fit(duckdb.sql("select * from frame")).labels_, labels)


class _Vectors:
    """A column of vectors, as a polars Series of arrays is one."""

    name = "b"

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.shape = (len(values),)
        self.ndim = 1

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values)

    def to_numpy(self) -> np.ndarray:
        return self.values


@pytest.mark.parametrize("container", [_Vectors, xarray.DataArray])
def test_a_matrix_in_a_container_is_no_column_of_lists(container: Any) -> None:
    model = fit(container(VECTORS))
    np.testing.assert_array_equal(model.labels_, fit(VECTORS).labels_)
    with pytest.raises(ValueError, match="X has 1 features, but KMeans is expecting 2"):
        model.predict(container(VECTORS[:, :1]))


def test_a_lazy_data_array_stays_lazy() -> None:
    read = []

    def block(block_id: tuple[int, int] = (0, 0)) -> np.ndarray:
        read.append(block_id)
        return VECTORS[block_id[0] * 6 :][:6]

    chunks = ((6, 6), (2,))
    array = da.map_blocks(block, chunks=chunks, dtype=float, meta=np.empty((0, 0)))
    model = fit(VECTORS)
    labels = model.predict(xarray.DataArray(array))
    assert not read
    assert labels.chunks == chunks[:1]
    np.testing.assert_array_equal(labels.compute(), model.labels_)


def test_columns_of_objects_and_nullable_types_that_are_numbers_are_taken() -> None:
    labels = fit(A).labels_
    for X in (A.astype(object), A.convert_dtypes(), A.astype("float64[pyarrow]")):
        np.testing.assert_array_equal(fit(X).labels_, labels)


def test_predict_names_columns() -> None:
    both = A.assign(b=1.0 - A["a"])
    for model in (
        fit(both),
        daskclust.HDBSCAN(3, allow_single_cluster=True).fit(both),
        daskclust.DPMeans(5.0).fit(both),
    ):
        with pytest.raises(ValueError, match="'b' must contain numbers, got text, such as 'x'"):
            model.predict(A.assign(b="x"))
        with pytest.raises(ValueError, match=r"NaN: the first at row 0, column 1 \('b'\)"):
            model.predict(A.assign(b=np.nan))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, r"NaN: the first at row 0, column 1 \('b'\)"),
        (np.inf, r"infinity: the first at row 0, column 1 \('b'\)"),
        (1e200, r"Column 1 \('b'\) of X has absolute values up to 1e\+200; squared"),
    ],
)
def test_fit_names_the_column_of_an_unusable_value(value: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(A.assign(b=value))


def test_profiles_refuse_dates() -> None:
    with pytest.raises(ValueError, match="'since' must contain numbers, got dates or times"):
        daskclust.explain.profiles(fit(A), A.assign(since=DAYS))
