"""The commands on a cube: what is written, what is refused, what is said before and after."""

from __future__ import annotations

import io
import json
import os
import re
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import zarr
from distributed import LocalCluster
from distributed.versions import error_message
from helpers import small_scene, write_labels
from numpy.testing import assert_array_equal

import daskclust
from daskclust.app import cli
from daskclust.app.commands import doctor
from daskclust.app.commands._plan import check_memory
from daskclust.app.commands.console import Progress
from daskclust.core.storage.atomic_write import reserved
from daskclust.core.storage.stored_array import StoredArray
from daskclust.exceptions import MemoryPlanError

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    truth = small_scene(folder)
    few = np.where(np.arange(50) % 7 == 0, truth, -1)
    few[np.arange(40) % 5 > 0] = -1
    write_labels(folder / "few.zarr", few)
    return folder


@pytest.fixture
def run(
    folder: Path,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Any:
    """Run a command on the shared cluster; paths `S` and `F` stand for the scene and labels."""
    monkeypatch.chdir(tmp_path)

    def call(command: str, *more: str, cluster: bool = True) -> tuple[int, str, str]:
        words = command.split()
        words = [
            str(folder / {"S": "scene.zarr", "F": "few.zarr"}.get(w, w)) if w in ("S", "F") else w
            for w in words
        ]
        code = cli.main([*words, *more, *(["--scheduler", address] if cluster else [])])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def labels_in(path: str | Path) -> np.ndarray:
    return zarr.open_group(path, mode="r")["labels"][:]


def test_fit_then_predict(run: Any, folder: Path, tmp_path: Path) -> None:
    code, out, err = run(
        "fit S --estimator pcskmeans --n-clusters 3 --set sparsity=2.5 --labels F --scale standard "
        "--output out/l.zarr --model m.zarr --json",
        f"--truth={folder / 'scene.zarr'}::truth",
    )
    assert code == 0, err
    found = json.loads(out)
    scene = daskclust.open_cube(folder / "scene.zarr", scale="standard")
    assert found["pixels"] == {"valid": scene.n_valid, "masked": scene.n_masked}
    assert sum(found["sizes"]) == scene.n_valid
    assert found["agreement_with_truth"]["ari"] > 0.5
    truth, labels = found["agreement_with_truth"], found["agreement_with_labels"]
    assert labels["used_by_fit"]
    assert not truth["used_by_fit"]
    # What was told is not asked for.
    assert truth["pixels"] + labels["pixels"] == scene.n_valid
    assert np.sum(truth["counts"]) == truth["pixels"]
    config = found["configuration"]
    assert config["parameters"]["sparsity"] == 2.5
    assert config["parameters"]["random_state"] == 0
    assert config["seed"] == 0
    # The same by hand.
    y = scene.rows_of(folder / "few.zarr")
    by_hand = daskclust.PCSKMeans(3, sparsity=2.5, random_state=0).fit(scene.samples, y)
    written = zarr.open_group(tmp_path / "out" / "l.zarr", mode="r")
    assert_array_equal(written["labels"][:], scene.to_map(by_hand.labels_).compute())
    assert written.attrs["daskclust_job"]["configuration"] == config
    assert "Valid pixels" in err
    assert not err.count("\033")
    model = daskclust.load(tmp_path / "m.zarr")
    assert_array_equal(model.cluster_centers_, by_hand.cluster_centers_)

    # Another scene is scaled as the first was.
    code, out, err = run("predict S --model m.zarr --output p.zarr --chunks 16x16")
    assert code == 0, err
    assert "p.zarr" in out
    expected = scene.to_map(by_hand.predict(scene.samples)).compute()
    assert_array_equal(labels_in(tmp_path / "p.zarr"), expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.zarr", "out", "p.zarr"]

    scene.write_labels(by_hand.labels_, tmp_path / "own.zarr")
    maps = [(name, "label map") for name in ("p.zarr", "out/l.zarr", "own.zarr")]
    for name, kind in (("m.zarr", "model"), *maps):
        code, out, err = run(f"inspect {name} --json", cluster=False)
        assert code == 0, err
        assert json.loads(out)["kind"] == kind
    assert run("inspect m.zarr", cluster=False)[1].startswith("Model\n")


@pytest.mark.skipif(os.name == "nt", reason="files are not locked there")
@pytest.mark.parametrize(
    ("words", "taken"),
    [
        ("suggest c.npy --dims y,x,band --output q.csv", "q.csv"),
        ("suggest c.npy --dims y,x,band --output q.csv --report r.html", "r.html"),
        ("label c.npy --dims y,x,band --no-browser --output m.zarr", "c_labels.geojson"),
        ("label c.npy --dims y,x,band --no-browser --output m.zarr", "m_margin.zarr"),
        ("compare a.zarr a.zarr --output d.zarr", "d.zarr"),
        ("explain k.zarr t.csv --columns a,b --output e.json", "e.json"),
        ("demo --output d", "d"),
    ],
)
def test_every_command_keeps_its_places(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    taken: str,
) -> None:
    """Answers of a second page replaced those of the first; others learned it when all was done."""
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(40, 2))
    np.save("c.npy", rows.reshape(8, 5, 2))
    cube = daskclust.open_cube("c.npy", dims=("y", "x", "band"))
    cube.write_labels(np.arange(40) % 2, "a.zarr", n_clusters=2)
    daskclust.KMeans(2, random_state=0).fit(rows).save("k.zarr")
    np.savetxt("t.csv", rows, delimiter=",", header="a,b", comments="")
    before = sorted(tmp_path.iterdir())
    with reserved([tmp_path / taken]):
        assert cli.main([*words.split()]) == 1
    assert f"{taken}' is being written by process {os.getpid()}" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("fit none.zarr --n-clusters 3 --output l.zarr", "does not exist"),
        ("fit S --n-clusters 3 --variable other --output l.zarr", "No array 'other' in the store"),
        ("fit S --n-clusters 3 --dims a,b,c --output l.zarr", "not one each of y, x and band"),
        ("fit S --n-clusters 3 --nodata none --mask scene.zarr --output l.zarr", "does not exist"),
        ("fit S --n-clusters 3 --bad-bands 0-11 --output l.zarr", "drops all 12 bands"),
        (
            "fit S --n-clusters 3 --estimator pckmeans --labels none.zarr --output l.zarr",
            "does not exist",
        ),
        ("fit coop://pigeon --n-clusters 3 --output l.zarr", "fsspec package"),
        ("fit S --n-clusters 3 --output S", "in the same place as the cube"),
        ("fit S --n-clusters 3 --output a.zarr --model a.zarr/b", "in the same place as --output"),
        (
            "fit S --n-clusters 3000 --output l.zarr",
            "--n-clusters must be at most 2000, the number of pixels, got 3000",
        ),
        ("fit S --n-clusters 3 --output file/l.zarr", "is not a folder"),
        ("predict S --model S --output l.zarr", "ModelFormatError"),
        ("predict S --model none --output l.zarr", "does not exist; use the path"),
        ("inspect none.zarr", "does not exist"),
    ],
)
def test_failures_lose_nothing(
    run: Any, tmp_path: Path, folder: Path, arguments: str, message: str
) -> None:
    (tmp_path / "file").write_text("")
    before = labels_digest(folder)
    code, out, err = run(arguments, cluster=not arguments.startswith("inspect"))
    assert code == 1, err
    last = err.splitlines()[-1]
    assert last.startswith("daskclust: error: ")
    if message != "ModelFormatError":
        assert message in last
    assert not out
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert labels_digest(folder) == before


def labels_digest(folder: Path) -> int:
    return sum(path.stat().st_mtime_ns for path in folder.rglob("*"))


def test_a_scene_without_valid_pixels(run: Any, tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "empty.zarr")
    group.create_array(
        "cube",
        data=np.full((4, 4, 2), -9, np.int16),
        dimension_names=("y", "x", "band"),
        attributes={"_FillValue": -9},
    )
    code, _, err = run("fit empty.zarr --n-clusters 2 --output l.zarr")
    assert code == 1
    assert "All 16 pixels are masked, by nodata (-9, NaN)" in err
    assert "No valid pixel" in run("inspect empty.zarr", cluster=False)[1]


def test_outputs_of_others_are_kept(run: Any, tmp_path: Path) -> None:
    (tmp_path / "thesis.html").write_text("ten years")
    zarr.create_group(tmp_path / "precious.zarr")
    for flag, name in (("report", "thesis.html"), ("output", "precious.zarr")):
        code, _, err = run(f"fit S --n-clusters 3 --{flag} {name}")
        assert code == 1
        assert "--overwrite" in err
        code, _, err = run(f"fit S --n-clusters 3 --{flag} {name} --overwrite")
        assert code == 1
        assert "was not written by daskclust" in err
    assert (tmp_path / "thesis.html").read_text() == "ten years"


def test_labels_of_another_shape_or_place(run: Any, tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "small.zarr")
    group.create_array("labels", data=np.zeros((3, 3), np.int8), dimension_names=("y", "x"))
    code, _, err = run(
        "fit S --n-clusters 3 --estimator pckmeans --labels small.zarr --output l.zarr"
    )
    assert code == 1
    assert "the shape of the image, (40, 50), got (3, 3)" in err
    assert not (tmp_path / "l.zarr").exists()


def test_pairs_from_files(run: Any, tmp_path: Path) -> None:
    (tmp_path / "must.csv").write_text("0, 1\n2, 3\n")
    np.save(tmp_path / "cannot.npy", np.array([[0, 4]]))
    code, out, err = run(
        "fit S --estimator pckmeans --n-clusters 2 --must-link must.csv --cannot-link cannot.npy "
        "--output l.zarr --json"
    )
    assert code == 0, err
    assert json.loads(out)["violations"] >= 0
    (tmp_path / "must.csv").write_text("a b\n")
    code, _, err = run("fit S --n-clusters 3 --estimator pckmeans --must-link must.csv")
    assert code == 1


def test_an_estimator_chosen_by_pairs(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates = (("PCKMeans", {}), ("KMeans", {"max_iter": 1}))
    monkeypatch.setattr("daskclust.selection._by_pairs._DEFAULT", candidates)
    rows = np.arange(40).reshape(20, 2)
    np.save(tmp_path / "must.npy", rows[:10])
    np.save(tmp_path / "cannot.npy", rows[10:])
    words = (
        "fit S --choose-by-pairs --n-clusters 3 --must-link must.npy --cannot-link cannot.npy "
        "--output l.zarr --model m.zarr"
    )
    code, out, err = run(f"{words} --json")
    assert code == 0, err
    found = json.loads(out)
    names = [one["candidate"] for one in found["candidates"]]
    assert sorted(names) == ["KMeans(max_iter=1)", "PCKMeans"]
    (chosen,) = (one["candidate"] for one in found["candidates"] if one["chosen"])
    assert found["estimator"] == chosen.partition("(")[0]
    assert found["configuration"]["choose_by_pairs"] is True
    model = daskclust.load(tmp_path / "m.zarr")
    assert type(model).__name__ == found["estimator"]
    # The same job may replace its outputs, and says the scores in words.
    code, out, err = run(words)
    assert code == 0, err
    assert "  chosen" in out
    assert "+-" in out


# Before and while


def test_a_dry_run_computes_nothing(run: Any, tmp_path: Path, folder: Path) -> None:
    code, out, _ = run(
        "fit S --n-clusters 3 --set max_iter=20 --output l.zarr --dry-run --json --local 2",
        cluster=False,
    )
    assert code == 0
    plan = json.loads(out)
    assert plan["passes"]["iterations_at_most"] == 20
    # Survey, start (5 rounds, a sample, and the rows far from it), iterations, labels.
    assert plan["passes_at_most"] == 1 + 1 + (5 + 2) + 20 + 1 + 1
    assert plan["blocks"] == 4
    assert plan["bytes_a_pass"] == 40 * 50 * 12 * 4
    assert plan["fits"] is True
    assert plan["peak_memory_a_worker"] > 300e6
    # All maps are written in one pass; the profiles of a report take two.
    maps = "--output l.zarr --uncertainty u.zarr --score s.zarr"
    for more, count in ((maps, 0), ("--report r.html", 2), (f"{maps} --report r.html", 2)):
        words = f"fit S --n-clusters 3 --set max_iter=20 {more} --dry-run --json --local 2"
        other = json.loads(run(words, cluster=False)[1])
        assert other["passes_at_most"] == plan["passes_at_most"] + count
    code, out, _ = run("fit S --n-clusters 3 --dry-run --memory-limit 200MB", cluster=False)
    assert code == 0
    assert "does NOT fit" in out
    code, out, _ = run("fit S --n-clusters 3 --dry-run")
    assert code == 0
    assert "a worker" in out
    assert not list(tmp_path.iterdir())
    # The same job is refused before a cluster is started.
    code, _, err = run("fit S --n-clusters 3 --memory-limit 200MB", cluster=False)
    assert code == 1
    assert "--chunks" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--labels none.zarr", "The Zarr store"),
        ("--truth S::none", "No array 'none'"),
        ("--truth S::wavelength", "must have the shape of the image, (40, 50), got (12,)"),
        ("--class-column crop", "--class-column requires --labels or --truth; add the labels"),
        ("--resample-labels", "--resample-labels requires --labels or --truth"),
        ("--mask none.zarr", "The Zarr store"),
        ("--mask F", "mask must be bool, True where a pixel is excluded, got dtype int16"),
        ("--estimator pckmeans --must-link none.csv", "the file 'none.csv' does not exist"),
        ("--output S", "in the same place as the cube"),
        ("--output F --labels F", "in the same place as --labels"),
        ("--report job.yaml --config job.yaml --overwrite", "in the same place as --config"),
        ("--report notes.html --overwrite", "was not written by daskclust"),
        ("--output memory://taken/here", "exists already"),
        ("--output memory://taken/here --overwrite", "was not written by daskclust"),
        ("--model floats.zarr --overwrite", "was not written by daskclust"),
    ],
)
def test_inputs_and_outputs_are_checked_before_a_cluster_starts(
    run: Any,
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    message: str,
) -> None:
    def start(*_: Any, **__: Any) -> None:
        raise AssertionError("a cluster was started")

    monkeypatch.setattr("distributed.LocalCluster", start)
    group = zarr.create_group(tmp_path / "floats.zarr")
    group.create_array("x", data=np.zeros((40, 50)), dimension_names=("y", "x"))
    (tmp_path / "job.yaml").write_text("title: by daskclust\n")
    (tmp_path / "notes.html").write_text("<!doctype html><p>made with daskclust")
    zarr.create_group("memory://taken/here", overwrite=True)
    arguments = arguments.replace("S::", f"{folder / 'scene.zarr'}::")
    before = sorted(path.name for path in tmp_path.iterdir())
    code, out, err = run(f"fit S --n-clusters 3 {arguments}", cluster=False)
    assert code == (2 if "requires" in message else 1), err
    assert message in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not out
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.slow
def test_a_job_is_the_same_however_it_is_run(run: Any, folder: Path, tmp_path: Path) -> None:
    from daskclust.app.commands._estimators import make_estimator
    from daskclust.app.commands._fit_request import job_mark

    def mark(*words: str) -> str:
        scene = str(folder / "scene.zarr")
        options = cli._parser(["fit"]).parse_args(["fit", scene, "--n-clusters", "3", *words])
        return job_mark(options, make_estimator(options).get_params(deep=False))

    same = mark()
    for words in (
        ("--local", "3"),
        ("--scheduler", "tcp://a:1"),
        ("--scheduler-file", "x"),
        ("--memory-limit", "1GB"),
        ("--title", "T"),
        ("--report", "r.html"),
        ("--performance", "p.html"),
        ("--json",),
        ("--overwrite",),
        ("--model", "m.zarr"),
        ("--truth", "t.zarr"),
        ("--checkpoint", "c.npz"),
    ):
        assert mark(*words) == same, words
    others = [
        ("--n-clusters", "4"),
        ("--seed", "1"),
        ("--scale", "unit"),
        ("--bad-bands", "0"),
        ("--nodata", "3"),
        ("--chunks", "4x4"),
        ("--labels", "l.zarr"),
        ("--set", "tol=0.5"),
        ("--estimator", "sparsekmeans"),
    ]
    assert len({same, *(mark(*words) for words in others)}) == len(others) + 1
    # What the job has written is its own; another's is not.
    words = "fit S --n-clusters 3 --output l.zarr --model m.zarr --report r.html"
    assert run(words)[0] == 0
    code, _, err = run(f"{words} --title Again")
    assert code == 0, err
    code, _, err = run(f"{words} --seed 1")
    assert code == 1
    assert "--output" in err
    assert run(f"{words} --seed 1 --overwrite")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["l.zarr", "m.zarr", "r.html"]


def test_class_names_are_text(run: Any, folder: Path, tmp_path: Path) -> None:
    source = zarr.open_group(folder / "scene.zarr", mode="r")
    truth = zarr.create_group(tmp_path / "t.zarr").create_array(
        "t",
        data=source["truth"][:],
        dimension_names=("y", "x"),
        attributes={
            "_FillValue": "Infinity",
            "flag_values": [0, 1, 2],
            "flag_meanings": r"$\frac{$ 5$ $x^2$",
        },
    )
    assert truth.shape == (40, 50)
    code, _, err = run("fit S --n-clusters 3 --truth t.zarr --report r.html")
    assert code == 0, err
    page = (tmp_path / "r.html").read_text()
    assert r"$\frac{$" in page
    assert "$x^2$" in page


@pytest.mark.parametrize("address", ["tls://127.0.0.1:9", "127.0.0.1:x"])
def test_addresses_that_lead_nowhere_are_one_line(
    run: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dask

    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        code, _, err = run(
            "fit S --n-clusters 3 --output l.zarr", "--scheduler", address, cluster=False
        )
    assert code == 1
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("daskclust: error: ")
    assert address in err or "9" in err


def test_memory_plan_is_checked() -> None:
    check_memory({"fits": None})
    with pytest.raises(MemoryPlanError, match=r"--memory-limit"):
        check_memory({"fits": False, "peak_memory_a_worker": 2e9, "memory_a_worker": 1e9})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_live_progress_on_a_terminal_and_lines_elsewhere() -> None:
    for stream in (Terminal(), io.StringIO()):
        progress = Progress(stream)
        with progress.task("KMeans", rows=1000):
            progress.iteration({"iteration": 1, "objective": 2.5, "passes": 8, "seconds": 0.5})
            progress._last = 0.0
            time.sleep(0.15)  # a bar is drawn ten times a second
            progress.iteration({"iteration": 2, "objective": 1.5, "passes": 10, "seconds": 0.5})
        text = stream.getvalue()
        assert "iteration 2, objective 1.5, pass 10, 4e+03 rows/s" in text
        assert ("\r" in text) == stream.isatty()
        stamped = re.findall(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} KMeans", text, re.MULTILINE)
        assert len(stamped) == (0 if stream.isatty() else text.count("\n"))
        assert re.search(r"KMeans: [\d.]+ s\n$", text)


# Inspect, doctor


def test_inspect_describes_a_cube(run: Any, folder: Path) -> None:
    code, out, err = run("inspect S --json --full", cluster=False)
    assert code == 0, err
    found = json.loads(out)
    truth = zarr.open_group(folder / "scene.zarr", mode="r")["truth"][:]
    assert found["share_without_data"] == pytest.approx((truth < 0).mean())
    assert found["share_is_exact"]
    assert found["dimensions"] == {"y": 40, "x": 50, "band": 12}
    assert found["chunks"] == {"y": 20, "x": 25, "band": 12}
    assert found["wavelengths"] == [400.0, 2500.0]
    assert found["nodata"] == [-9999.0]
    code, out, _ = run("inspect S --sample 1", cluster=False)
    assert "(of a sample)" in out
    assert "--mask" not in out
    assert "400 to 2500 nm" in out


def test_doctor_on_a_cluster(run: Any) -> None:
    code, out, err = run("doctor --json")
    found = json.loads(out)
    assert code == (1 if found["problems"] else 0), err
    assert len(found["workers"]) == 1
    assert found["client"]["versions"]["daskclust"]
    assert "Versions" in run("doctor")[1]


def test_doctor_names_workers_that_cannot_answer(tmp_path: Path) -> None:
    class Blind:
        def run(self, function: Any, on_error: str) -> dict[str, Any]:
            assert on_error == "return"
            return {"tcp://a": ModuleNotFoundError("No module named 'daskclust'")}

    answers, (problem,) = doctor.ask(Blind(), doctor.describe_machine)
    assert answers == {}
    assert problem.startswith("Worker tcp://a cannot be examined: ModuleNotFoundError: No module")
    assert doctor.check_output(Blind(), str(tmp_path / "map.zarr")) == [problem]


def test_doctor_names_packages_that_differ() -> None:
    mine, other = ({"packages": {"numpy": version}} for version in ("2.0", "0.1"))

    class Differing:
        def get_versions(self, check: bool, packages: list[str]) -> None:
            assert check
            assert "numpy" in packages
            warnings.warn(error_message(mine, {"tcp://a": other}, mine)["warning"], stacklevel=1)

    (problem,) = doctor.check_versions(Differing())
    assert re.search(r"numpy +\| 2\.0 +\| 2\.0 +\| 0\.1 ", problem)
    assert "Install the same versions" in problem


def test_doctor_names_what_to_change() -> None:
    worker = {
        **doctor.describe_machine(),
        "threads": 1,
        "memory_limit": 4 * 2**30,
        "memory": 2**37,
        "memory_allowed": 8 * 2**30,
        "cores": 4,
    }

    def problems(*workers: dict[str, Any]) -> list[str]:
        by_address = dict(zip("abc", workers, strict=False))
        return [*doctor.check_memory(by_address), *doctor.check_threads(by_address)]

    assert problems(worker) == []
    for change, words in (
        ({"memory_limit": 0}, "no memory limit"),
        ({"memory_limit": 2**29}, "at least 700.00 MiB per thread"),
        ({"threads": 5}, "5 worker threads on 4 cores"),
        ({"memory_allowed": 2**31}, "allows 2.00 GiB, but the memory limits"),
        ({"memory": 2**31}, "sum to 4.00 GiB: workers are killed before they spill"),
    ):
        (problem,) = problems({**worker, **change})
        assert words in problem
    # Two tasks of a job, each with a control group of its own, fit on a large machine.
    two = [{**worker, "memory_limit": 7 * 2**30, "group": name} for name in "ab"]
    assert problems(*two) == []
    (problem,) = problems(*({**w, "group": "job"} for w in two))
    assert "allows 8.00 GiB" in problem
    assert "sum to 14.00 GiB" in problem
    (problem,) = problems(*({**w, "memory": 2**33} for w in two))
    assert "allows 8.00 GiB" in problem


def test_a_fit_says_what_would_spoil_it(run: Any) -> None:
    """Workers with more memory than the machine has; the fit goes on all the same."""
    machine = psutil.virtual_memory().total
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        dashboard_address=":0",
        protocol="tcp",
        memory_limit=machine,
    ) as cluster:
        code, _, err = run(
            f"fit S --n-clusters 2 --output huge.zarr --scheduler {cluster.scheduler_address}",
            cluster=False,
        )
        assert code == 0, err
        assert "warning: Host" in err
        assert "Lower --memory-limit" in err


def test_doctor_asks_every_worker_for_a_cube_and_its_place(run: Any, tmp_path: Path) -> None:
    code, out, err = run(f"doctor S --output {tmp_path}/map.zarr --json")
    assert not [p for p in json.loads(out)["problems"] if "see" in p or "write" in p], err
    assert not list(tmp_path.iterdir())
    code, out, err = run(f"doctor S --output {tmp_path}/nowhere/map.zarr")
    assert code == 1
    assert "does not exist" in err


def test_a_process_that_sees_other_files_is_told(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "a.zarr", data=np.ones((4, 3, 2)))
    stored = StoredArray(array)
    assert doctor.reason_not_readable(stored) is None
    (tmp_path / "a.zarr").rename(tmp_path / "b.zarr")
    assert "does not see" in str(doctor.reason_not_readable(stored))
    zarr.create_array(tmp_path / "a.zarr", data=np.ones((5, 3, 2)))
    assert "sees another array" in str(doctor.reason_not_readable(stored))
    (tmp_path / "token").write_text("1")
    assert doctor.reason_not_writable(str(tmp_path / "token")) is None
    assert "does not see" in str(doctor.reason_not_writable(str(tmp_path / "b.zarr" / "token")))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zarr", "b.zarr", "token"]
