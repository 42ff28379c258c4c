"""Tables on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dask.distributed import Client, LocalCluster
from helpers import spawned
from numpy.testing import assert_array_equal

import daskclust
from daskclust import HierarchicalKMeans, KMeans, LabelSpreading
from daskclust.app.commands._plan import passes_of
from daskclust.tables import Table, open_table, written_labels

pytestmark = pytest.mark.usefixtures("few_trees")

pandas = pytest.importorskip("pandas", reason="needs the extra `dataframe`")
pytest.importorskip("pyarrow", reason="needs the extra `dataframe`")

Said = Callable[..., tuple[int, str, str]]
KINDS = ["wheat", "maize", "water"]


@pytest.fixture
def frame() -> pandas.DataFrame:
    rng = np.random.default_rng(0)
    blob = np.arange(90) % 3
    return pandas.DataFrame(
        {
            "a": rng.normal(size=90) + 9 * blob,
            "b": (rng.normal(size=90) * 10 + 90 * blob).astype("int16"),
            "id": np.arange(90),
            "species": [KINDS[k] if i < 12 else None for i, k in enumerate(blob)],
        }
    )


@pytest.fixture
def parts(frame: pandas.DataFrame, tmp_path: Path) -> Path:
    """A folder of two files."""
    folder = tmp_path / "parts"
    folder.mkdir()
    for k in range(2):
        frame[45 * k : 45 * k + 45].to_parquet(folder / f"{k}.parquet", index=False)
    return folder


def test_fit_and_predict_by_the_labels_of_a_column(
    said: Said, frame: pandas.DataFrame, parts: Path, tmp_path: Path, address: str
) -> None:
    options = ("--columns", "a,b", "--json", "--scheduler", address)
    code, out, err = said(
        *("fit", parts, *options, "--label-column", "species"),
        *("--estimator", "label-spreading", "--output", "out.parquet", "--model", "m.zarr"),
    )
    assert code == 0, err
    found = json.loads(out)
    assert (found["rows"], found["columns"]) == (90, ["a", "b"])
    assert [item["name"] for item in found["classes"]] == sorted(KINDS)
    assert sum(found["sizes"]) == 90
    rows = np.arange(12)
    values = frame[["a", "b"]].to_numpy(float)
    wanted = LabelSpreading(random_state=0).fit(values, (rows, frame.species[:12].to_numpy()))
    written = pandas.read_parquet(tmp_path / "out.parquet")
    assert_array_equal(written.label, wanted.labels_)
    assert_array_equal(written.id, frame.id)
    # The model selects its columns from any table, in its own order.
    frame[["species", "b", "a"]].to_csv(tmp_path / "t.csv", index=False)
    code, out, err = said(
        *("predict", "t.csv", "--model", "m.zarr", "--scheduler", address),
        *("--output", "p.parquet", "--output-column", "class"),
    )
    assert code == 0, err
    assert "Rows      90 labeled" in out
    assert "wheat" in out
    assert_array_equal(pandas.read_parquet(tmp_path / "p.parquet")["class"], written.label)
    for words, message in (
        (
            ("t.csv", "--columns", "a"),
            "must have the 2 columns of the model in their order (a, b), got 1 (a)",
        ),
        (("t.csv",), "p.parquet' exists already"),
        (("cube.npy", "--dims", "y,x,band"), "fitted to the columns ['a', 'b'] of a table"),
    ):
        np.save(tmp_path / "cube.npy", np.ones((3, 4, 2)))
        code, out, err = said("predict", *words, "--model", "m.zarr", "--output", "p.parquet")
        assert (code, err.count("\n")) == (1, 1)
        assert message in err


def test_a_model_of_a_frame_finds_its_columns_by_name(
    said: Said, frame: pandas.DataFrame, tmp_path: Path, address: str
) -> None:
    model = KMeans(3, random_state=0).fit(frame[["a", "b"]])
    model.save(tmp_path / "m.zarr")
    frame[["b", "a"]].to_parquet(tmp_path / "t.parquet", index=False)
    words = ("predict", "t.parquet", "--model", "m.zarr", "--scheduler", address)
    code, _, err = said(*words, "--output", "out.parquet")
    assert code == 0, err
    assert_array_equal(
        pandas.read_parquet(tmp_path / "out.parquet").label, np.asarray(model.labels_)
    )
    code, _, err = said(*words, "--output", "o2.parquet", "--columns", "b,a")
    assert code == 1
    assert "the 2 columns of the model in their order (a, b), got 2 (b, a)" in err


def test_clusters_of_a_csv_file(
    said: Said, frame: pandas.DataFrame, tmp_path: Path, address: str
) -> None:
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_csv(tmp_path / "packed.csv.gz", index=False)
    words = ("fit", "packed.csv.gz", "--columns", "a,b", "--n-clusters", 3, "--model", "m")
    assert said(*words, "--scheduler", address)[1].startswith("Rows      90 clustered")
    words = ("fit", "t.csv", "--columns", "a,b", "--n-clusters", 3, "--output", "o")
    code, out, err = said(*words, "--scheduler", address)
    assert code == 0, err
    assert out.startswith("Rows      90 clustered by 2 columns\n")
    wanted = KMeans(3, random_state=0).fit(frame[["a", "b"]].to_numpy(float)).labels_
    assert_array_equal(pandas.read_parquet(tmp_path / "o").label, wanted)
    assert said(*words, "--scheduler", address, "--overwrite")[0] == 0


def test_labels_of_the_same_job_are_its_own(
    said: Said, frame: pandas.DataFrame, parts: Path, tmp_path: Path, address: str
) -> None:
    model = KMeans(3, random_state=0).fit(frame[["a", "b"]].to_numpy(float))
    model.save("m.zarr")
    table = open_table(parts, columns=["a", "b"])
    table.write_labels(table.samples[:, 1].astype(int), "mine", attributes={"daskclust_job": 3})
    for words in (("fit", parts, "--n-clusters", 3), ("predict", parts, "--model", "m.zarr")):
        words = (*words, "--columns", "a,b", "--scheduler", address, "--output", words[0])
        for _ in range(2):
            code, _, err = said(*words)
            assert code == 0, err
            assert_array_equal(pandas.read_parquet(words[-1]).label, model.labels_)
        # Of another job, of another column, of the other command, and somebody's own.
        others = (
            ("--columns", "b,a"),
            ("--output-column", "class"),
            ("--output", {"fit": "predict", "predict": "fit"}[words[0]]),
            ("--output", "mine"),
        )
        for more in others[: None if words[0] == "predict" else 2]:
            code, _, err = said(*words, *more)
            assert (code, err.count("\n")) == (1, 1)
            assert "exists already" in err
            assert_array_equal(pandas.read_parquet(words[-1]).label, model.labels_)
    Path("mine", "_daskclust.txt").write_text("labels by daskclust\n[1]\n")
    assert written_labels("mine") is None


def test_truth_scores_and_a_report(
    said: Said, frame: pandas.DataFrame, tmp_path: Path, address: str
) -> None:
    pytest.importorskip("matplotlib")
    frame["truth"] = [KINDS[k] if i % 5 else "" for i, k in enumerate(np.arange(90) % 3)]
    frame.loc[frame.index[20:26], "truth"] = "water"
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = ("--scheduler", address, "--truth", "truth", "--json")
    code, out, err = said(
        *("fit", "t.csv", "--columns", "a,b", "--estimator", "label-spreading", *words),
        *("--label-column", "species", "--output", "o", "--score", "normal", "--model", "m.zarr"),
        *("--uncertainty", "margin", "--report", "r.html"),
    )
    assert code == 0, err
    found = json.loads(out)
    written = pandas.read_parquet(tmp_path / "o")
    # Only rows not used in the fit are a test of it.
    known = (frame.truth != "") & frame.species.isna()
    agreed = found["agreement_with_truth"]
    assert agreed["compared_by"] == "name"
    assert agreed["pixels"] == known.sum()
    assert agreed["accuracy"] == (written.label == frame.truth)[known].mean()
    for item in agreed["by_class"]:
        right = ((written.label == item["class"]) & (frame.truth == item["class"]))[known].sum()
        assert item["producers"] == right / (frame.truth[known] == item["class"]).sum()
        assert item["users"] == right / (written.label[known] == item["class"]).sum()
    assert found["agreement_with_labels"]["used_by_fit"]
    assert found["outputs"] == {"output": "o", "model": "m.zarr", "report": "r.html"}
    model = daskclust.load(tmp_path / "m.zarr")
    values = frame[["a", "b"]].to_numpy(float)
    np.testing.assert_allclose(written.normal, model.score_samples(values), rtol=1e-6)
    np.testing.assert_allclose(written.margin, model.margin(values), rtol=1e-6)
    page = (tmp_path / "r.html").read_text()
    assert f"{agreed['accuracy']:.4f}" in page
    assert "Differences between the clusters" in page
    assert ">rows</th>" in page
    assert "pixels" not in page
    code, out, err = said("predict", "t.csv", "--model", "m.zarr", *words)
    assert code == 0, err
    known = frame.truth != ""
    agreed = json.loads(out)["agreement_with_truth"]
    assert agreed["accuracy"] == (written.label == frame.truth)[known].mean()
    # Two classes exchanged are wrong, however well they match.
    frame["truth"] = frame.truth.replace({KINDS[0]: KINDS[1], KINDS[1]: KINDS[0]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    code, out, err = said("predict", "t.csv", "--model", "m.zarr", *words)
    assert code == 0, err
    exchanged = json.loads(out)["agreement_with_truth"]["accuracy"]
    assert exchanged == (written.label == frame.truth)[known].mean() < agreed["accuracy"]
    # Columns of numbers that contain the truth are not features.
    frame["truth"] = np.arange(90) % 3
    frame[["a", "b", "truth"]].to_parquet(tmp_path / "n.parquet")
    code, out, err = said(
        "fit", "n.parquet", "--n-clusters", 3, "--output", "p", *words, "--truth", "truth"
    )
    assert code == 0, err
    found = json.loads(out)
    assert found["columns"] == ["a", "b"]
    assert found["agreement_with_truth"]["compared_by"] == "matching"


def test_a_table_is_described(said: Said, frame: pandas.DataFrame, parts: Path) -> None:
    code, out, err = said("inspect", parts, "--json", "--full")
    assert code == 0, err
    found = json.loads(out)
    assert (found["rows"], found["parts"]) == (90, 2)
    columns = {item["name"]: item for item in found["columns"]}
    for name in ("a", "b", "id"):
        for key, value in (("min", frame[name].min()), ("max", frame[name].max())):
            assert columns[name][key] == value
        np.testing.assert_allclose(columns[name]["mean"], frame[name].mean())
        np.testing.assert_allclose(columns[name]["std"], frame[name].std(ddof=0))
    assert columns["species"]["values"] == sorted(KINDS)
    assert columns["species"]["share_missing"] == frame.species.isna().mean()
    assert not columns["species"]["is_feature"]
    assert found["advice"][0].startswith("id: increases from row to row")
    code, out, err = said("inspect", parts)
    assert "maize, water, wheat  (no feature)" in out


def test_empty_text_is_missing_as_it_is_of_labels(said: Said, tmp_path: Path) -> None:
    table = pandas.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "kind": ["oak", None, " ", "elm"]})
    table.to_csv(tmp_path / "t.csv", index=False)
    table["soil"] = pandas.Categorical(["clay", "sand", "clay", "sand"])
    table.to_parquet(tmp_path / "t.parquet", index=False)
    for name in ("t.csv", "t.parquet"):
        code, out, err = said("inspect", name, "--json")
        assert code == 0, err
        kind = json.loads(out)["columns"][1]
        assert kind["share_missing"] == 0.5
        assert kind["values"] == ["elm", "oak"]
    assert re.search(r"soil +category +0.0% +clay, sand", said("inspect", "t.parquet")[1])


@pytest.mark.filterwarnings("always::daskclust.exceptions.DaskclustWarning")
def test_a_table_of_vectors_is_described_and_clustered(
    said: Said, tmp_path: Path, address: str
) -> None:
    pa, parquet_files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float16)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 3)
    table = pa.table({"id": np.arange(40), "embedding": vectors})
    parquet_files.write_table(table, tmp_path / "t.parquet")
    code, out, err = said("inspect", "t.parquet")
    assert code == 0, err
    assert "embedding  list[3]          0.0%  many values  (no feature)" in out
    assert "name 'embedding' alone in columns (--columns)" in err
    code, out, err = said("inspect", "t.parquet", "--json")
    assert json.loads(out)["columns"][1]["values"] is None
    words = ("t.parquet", "--columns", "embedding", "--n-clusters", 3, "--output", "o")
    code, out, err = said("fit", *words, "--scheduler", address)
    assert code == 0, err
    assert out.startswith("Rows      40 clustered by 3 values of embedding\n")
    assert "warning" not in err
    labels = KMeans(3, random_state=0).fit(x).labels_
    assert_array_equal(pandas.read_parquet("o")["label"], labels)


def test_a_dry_run_computes_nothing(said: Said, parts: Path) -> None:
    words = (
        "fit",
        parts,
        "--columns",
        "a,b",
        "--n-clusters",
        3,
        "--set",
        "max_iter=7",
        "--dry-run",
    )
    code, out, _ = said(*words)
    assert code == 0
    assert "Columns   a, b as float32" not in out
    assert "Columns   a, b as float64" in out
    assert "Table     2 parts" in out
    plan = json.loads(said(*words, "--json")[1])
    assert plan["passes"]["iterations_at_most"] == 7
    assert not [p for p in parts.parent.iterdir() if p != parts]


def vectors_in(folder: Path, n: int, p: int) -> None:
    """Write a table of vectors, four files."""
    import pyarrow
    import pyarrow.parquet

    folder.mkdir()
    rng = np.random.default_rng(0)
    for k in range(4):
        rows = rng.normal(size=(n // 4, p)) + 3 * rng.integers(9, size=(n // 4, 1))
        flat = pyarrow.array(rows.astype(np.float32).ravel())
        lists = pyarrow.FixedSizeListArray.from_arrays(flat, p)
        table = pyarrow.table({"embedding": lists})
        pyarrow.parquet.write_table(table, folder / f"{k}.parquet")


def test_a_table_that_does_not_fit_is_refused_before_workers_start(
    said: Said, parts: Path, tmp_path: Path
) -> None:
    words = ("fit", parts, "--columns", "a,b", "--n-clusters", 3, "--memory-limit", "200MB")
    code, _, err = said(*words, "--output", tmp_path / "labels.parquet")
    assert code == 1
    assert "A worker would require about" in err
    assert "a table of smaller parts" in err
    assert "--chunks" not in err
    assert not (tmp_path / "labels.parquet").exists()


@pytest.mark.filterwarnings("default:A worker would require")
def test_rows_of_csv_are_an_estimate_which_only_warns(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "1.5,2.5\n0.5,3.5\n" * 500)
    words = ("fit", tmp_path / "t.csv", "--n-clusters", 2, "--output", tmp_path / "labels.parquet")
    plan = json.loads(said(*words, "--dry-run", "--json")[1])
    assert plan["rows_estimated"] is True
    assert "a worker (the number of rows is estimated)" in said(*words, "--dry-run")[1]
    # Of a first line that is shorter than all others, the estimate of a large file is too large.
    monkeypatch.setattr(Table, "largest_part", (10**9, 10**9, 10**11))
    code, _, err = said(*words)
    assert code == 0
    assert "which is estimated from the first lines" in err
    assert "If workers run out of memory: Use fewer and larger workers" in err
    assert len(pandas.read_parquet(tmp_path / "labels.parquet")) == 1000


def test_a_dry_run_tells_memory_and_temporary_files(said: Said, tmp_path: Path) -> None:
    vectors_in(tmp_path / "t", 4000, 64)
    words = ("fit", tmp_path / "t", "--n-clusters", 1600, "--local", 2, "--dry-run")
    one = json.loads(said(*words, "--json")[1])
    assert one["temporary_bytes"] == 0
    assert one["workers"] == 2
    assert one["fits"] is True
    levels = (*words, "--estimator", "hierarchical-kmeans")
    two = json.loads(said(*levels, "--json", "--set", "refine=0")[1])
    # A record is a row, its number and its weight.
    assert two["temporary_bytes"] == 4000 * (64 * 4 + 16)
    assert json.loads(said(*levels, "--json")[1])["temporary_bytes"] > two["temporary_bytes"]
    assert two["peak_memory_a_worker"] >= one["peak_memory_a_worker"] > 350e6
    text = said(*levels)[1]
    assert "Memory    about" in text
    assert "in temporary files" in text
    text = said(*words, "--memory-limit", "200MB")[1]
    assert "does NOT fit" in text
    assert "Disk" not in text
    (tmp_path / "t.csv").write_text("a,b\n" + "1.5,2.5\n" * 1000)
    csv = ("fit", tmp_path / "t.csv", "--n-clusters", 3, "--dry-run", "--json")
    assert json.loads(said(*csv)[1])["peak_memory_a_worker"] > 350e6


def peak_memory() -> int:
    """Bytes that this process held at most; 0 where the system does not tell."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def test_workers_hold_no_more_than_their_plan_says(said: Said, tmp_path: Path) -> None:
    """Kernels that a worker loads or compiles count, and so does Parquet in a small table."""
    n_clusters = 200
    vectors_in(tmp_path / "t", 20_000, 64)
    words = ("fit", tmp_path / "t", "--estimator", "hierarchical-kmeans")
    words += ("--n-clusters", n_clusters)
    plan = json.loads(said(*words, "--local", 1, "--dry-run", "--json")[1])
    with (
        spawned(),  # what a worker imports is counted
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        given = (
            "--set",
            "max_iter=2",
            "--set",
            "refine=1",
            "--output",
            tmp_path / "labels.parquet",
        )
        code, _, err = said(*words, *given, "--scheduler", cluster.scheduler_address)
        assert code == 0, err
        found = max(client.run(peak_memory).values())
    if not found:
        pytest.skip("peaks of processes are read from /proc")
    assert found <= plan["peak_memory_a_worker"] < 2 * found


@pytest.mark.parametrize(
    ("n_clusters", "more", "below"),
    [(8, {}, 0), ((5, 6), {}, 2), ((4, 2, 3), {}, 3), ((5, 6), {"max_cluster_size": 60}, 50)],
)
def test_the_passes_of_levels_are_foreseen(n_clusters: object, more: dict, below: int) -> None:
    """The start of the first level and the passes after it were left out."""
    x = np.random.default_rng(0).normal(size=(3000, 4)).astype(np.float32)
    model = HierarchicalKMeans(n_clusters, max_iter=4, random_state=0, **more).fit(x)
    plan = passes_of(model.get_params(), constrained=False)
    assert plan["levels_below"] == below
    made = model.history_[-1]["passes"]
    assert plan["start"] > 0
    assert made <= sum(filter(None, plan.values()))
    if not more:
        other = plan["iterations_at_most"] - model.n_iter_
        # A start may take fewer, and KMeans measures once more.
        assert made >= sum(filter(None, plan.values())) - other - plan["start"] - 1


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            "parts --columns a,bb",
            1,
            "must have the column 'bb', got a, b, id, species. Did you mean b?",
        ),
        ("parts --columns a,species", 1, "The column 'species' must have numbers"),
        ("parts --columns a,a", 1, "columns must be distinct, got a, a"),
        ("parts --columns a --label-column species", 2, "KMeans does not support --label-column"),
        ("parts --columns a --smooth 0.5", 2, "--smooth is for pixels"),
        (
            "parts --columns a --score s",
            1,
            "'s' is a column of the output and requires",
        ),
        ("parts --columns a --output o --score id", 1, "--score must be a new name"),
        ("parts --columns a,id --output o --truth id", 1, "contains the truth or the groups"),
        (
            "parts --columns a --output o --truth kind",
            1,
            "--truth must be a column of the table, got 'kind'",
        ),
        ("parts --labels few.tif", 2, "name the column of the labels with --label-column"),
        ("parts --columns a", 2, "at least one output is required"),
        ("parts --columns a --output parts/o", 1, "in the same place as the table's file"),
        (
            "parts --columns a --output o --output-column id",
            1,
            "--output-column must be a new name",
        ),
        (
            "parts --columns a --output s3://bucket/o",
            1,
            "must be a folder that all workers share, got a URL",
        ),
        ("parts --columns a --output taken", 1, "--output"),
        ("parts --columns a --output taken --overwrite", 1, "was not written by daskclust"),
        (
            "parts --columns a,b --n-clusters 91 --output o",
            1,
            "must be at most 90, the number of rows, got 91",
        ),
        ("parts --columns a --scale unit --output o", 1, "scale must be"),
        ("nothing.parquet --output o", 1, "nothing.parquet' does not exist"),
        ("cut.parquet --output o", 1, "cut.parquet' cannot be read as Parquet"),
        ("cut --output o", 1, "1.parquet' cannot be read as Parquet"),
        ("heads.csv --output o", 1, "The table must have at least one row"),
        ("void.csv --output o", 1, "cannot be read as CSV"),
        ("cube.npy --columns a --output o", 2, "cube.npy'. Use Parquet, CSV"),
        ("cube.npy parts --output o", 2, "all files must be tables or all must be images"),
    ],
)
def test_wrong_inputs_are_one_line(
    said: Said, parts: Path, tmp_path: Path, words: str, code: int, message: str
) -> None:
    whole = (parts / "0.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:-20])
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "0.parquet").write_bytes(whole)
    (tmp_path / "cut" / "1.parquet").write_bytes(whole[:-20])
    (tmp_path / "taken").mkdir()
    (tmp_path / "heads.csv").write_text("a,b\n")
    (tmp_path / "void.csv").write_text("")
    np.save(tmp_path / "cube.npy", np.ones((3, 4, 2)))
    before = sorted(tmp_path.rglob("*"))
    found, out, err = said("fit", "--n-clusters", 3, *words.split())
    assert (found, out) == (code, "")
    assert message in " ".join(err.split())
    assert ".." not in err.strip()[-3:]
    assert code == 2 or err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_fit_names_the_column_of_a_missing_value(
    said: Said, frame: pandas.DataFrame, address: str
) -> None:
    frame.assign(a=frame["a"].where(frame["id"] != 7)).to_parquet("t.parquet")
    options = ("--n-clusters", 3, "--model", "m.zarr", "--scheduler", address)
    code, _, err = said("fit", "t.parquet", "--columns", "b,a", *options)
    assert code == 1
    assert "the first at row 7, column 1 ('a')" in err


def test_scaled_columns_are_scaled_alike_in_predict_and_explained_in_their_units(
    said: Said, frame: pandas.DataFrame, parts: Path, address: str
) -> None:
    options = ("--columns", "a,b", "--scheduler", address)
    words = ("--n-clusters", 3, "--scale", "standard", "--model", "m.zarr", "--output", "o")
    code, _, err = said("fit", parts, *options, *words)
    assert code == 0, err
    values = frame[["a", "b"]].to_numpy(float)
    scaled = (values - values.mean(axis=0)) / values.std(axis=0)
    wanted = KMeans(3, random_state=0).fit(scaled).labels_
    assert_array_equal(pandas.read_parquet("o").label, wanted)
    code, _, err = said(
        "predict", parts / "1.parquet", *options, "--model", "m.zarr", "--output", "p"
    )
    assert code == 0, err
    assert_array_equal(pandas.read_parquet("p").label, wanted[45:])
    code, _, err = said("explain", "m.zarr", parts, *options, "--output", "e.json")
    assert code == 0, err
    found = json.loads(Path("e.json").read_text())["clusters"][0]
    of_cluster = values[wanted == 0]
    for at, name in enumerate("ab"):
        np.testing.assert_allclose(found["features"][name]["mean"], of_cluster[:, at].mean())
    # The report of a fit with classes, too.
    code, _, err = said(
        *("fit", parts, *options, "--scale", "standard", "--label-column", "species"),
        *("--estimator", "semisupervisedkmeans", "--n-clusters", 3, "--report", "r.html"),
    )
    assert code == 0, err
    means = frame[["a", "b"]].groupby(np.arange(90) % 3).mean()
    page = Path("r.html").read_text()
    assert "wheat" in page
    assert f"{means['b'][2]:.4g}" in page
