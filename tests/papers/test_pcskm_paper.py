"""The experiments behind notebook 02: protocol, caching, what is read off the results."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from oracles.golden import DATA_SETS, load

import daskclust
from daskclust.metrics import pairwise_f_score

SCRIPT = "pcskm_paper"


@pytest.fixture(scope="module")
def results(paper: ModuleType, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("results")
    few = [task for task in paper.toy_tasks() if task.level != 10]
    assert paper.run_all(few, folder, n_workers=1) == 0
    return paper.Results.of(folder), few, folder


def test_the_f_score_is_that_of_the_metrics(paper: ModuleType) -> None:
    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 40):
        truth, labels = rng.integers(0, 4, n), rng.integers(0, 3, n)
        assert paper.pair_f(truth, labels) == pytest.approx(pairwise_f_score(truth, labels))


@pytest.mark.parametrize("name", DATA_SETS)
def test_the_f_score_is_the_published_programs(
    data_dir: Path, paper: ModuleType, name: str
) -> None:
    golden = load(data_dir, name)
    held_out = np.setdiff1d(np.arange(len(golden["y"])), golden["train_idx"])
    for case in golden["case_names"].tolist():
        if case.startswith("case__") and np.isfinite(golden[f"{case}__f_heldout"]):
            labels = golden[f"{case}__labels"][held_out]
            found = paper.pair_f(golden["y"][held_out], labels)
            assert found == pytest.approx(float(golden[f"{case}__f_heldout"]), abs=1e-12)


def test_constraints_are_as_many_as_in_the_paper(paper: ModuleType) -> None:
    y = np.repeat([0, 1, 2], 50)
    train = np.flatnonzero(np.arange(150) % 10)
    for kind, level, n_must, n_cannot in [
        ("both", 1, 46, 46),
        ("both", 10, 453, 453),
        ("must", 1, 91, 0),
        ("cannot", 10, 0, 905),
    ]:
        must, cannot = paper.constraints(y, train, kind, level, [1, 2])
        assert (len(must), len(cannot)) == (n_must, n_cannot)
        assert np.isin(np.concatenate([must, cannot]), train).all()
        assert (y[must[:, 0]] == y[must[:, 1]]).all()
        assert (y[cannot[:, 0]] != y[cannot[:, 1]]).all()
        again, _ = paper.constraints(y, train, kind, level, [1, 2])
        np.testing.assert_array_equal(must, again)


def test_the_grid_of_bounds(paper: ModuleType) -> None:
    assert [len(paper.bounds(p)) for p in (4, 10, 16, 18, 34)] == [5, 11, 15, 16, 24]


def test_runs_are_kept_and_not_made_again(results, paper: ModuleType) -> None:
    found, few, folder = results
    assert sum(cell.repetitions for cell in found.cells.values()) == len(set(few))
    first = folder / few[0].file
    first.write_text(json.dumps({**json.loads(first.read_text()), "seconds": 1e6}))
    assert paper.run_all(few, folder, n_workers=1) == 0
    assert paper.Results.of(folder).seconds > 1e6
    first.unlink()
    assert paper.run_all(few, folder, n_workers=1, max_seconds=-1) == 1
    assert paper.run_all(few, folder, n_workers=1) == 0


@pytest.mark.slow
def test_runs_are_the_same_in_processes(results, paper: ModuleType, tmp_path: Path) -> None:
    _, few, folder = results
    task = next(task for task in few if task.method == "PCKM")
    assert paper.run_all([task], tmp_path, n_workers=2) == 0
    here, there = (json.loads((f / task.file).read_text()) for f in (folder, tmp_path))
    assert here["test"] == there["test"]


def test_what_is_read_off_the_results(results, paper: ModuleType) -> None:
    found, _, _ = results
    cell = found.family("PCSKM", "fisheriris", "dkm++", "both", 1)
    assert cell.n_runs == 10
    assert 0.7 < cell.honest <= cell.each <= 1
    assert 0.8 < cell.mean <= cell.each
    compared = paper.compare_with_published(found)
    assert {c["method"] for c in compared} >= {"LKM", "SKM", "PCKM", "PCSKM"}
    assert all(c["within"] for c in compared)
    # Uninformative features come last.
    assert max(found.cell("PCSKM", "blobs_3_7", "dkm++", "both", 1).weights[3:]) < 0.01
    study = paper.compare_scores(found)
    assert study[0]["PCSKM scaled"].collapsed == 0 < study[0]["PCSKM Eq. 15"].collapsed
    assert len(list(paper.summarize_scores(study))) == 2


def test_what_came_out_is_kept(results, paper: ModuleType, tmp_path: Path) -> None:
    found, _, _ = results
    found.write(tmp_path / "some.json")
    kept = paper.Results.read(tmp_path / "some.json")
    assert kept.describe() == found.describe()
    assert kept.levels == found.levels == [1, 5]
    assert kept.cells.keys() == found.cells.keys()
    for key, cell in found.cells.items():
        np.testing.assert_allclose(kept.cells[key].all, cell.all, atol=1e-5)
        np.testing.assert_allclose(kept.cells[key].weights, cell.weights, atol=1e-5)


def test_plain_methods_start_from_pairs(paper: ModuleType, data_dir: Path) -> None:
    """ "Seeding" gives k-means its centers, and no constraint."""
    golden = load(data_dir, "TTSCST")
    x, must = golden["X"], golden["c1_must_link"]
    model, _ = paper.fit(
        paper.make("LKM", 3, None, "neighborhoods"), x, must_link=must, must_link_weight=1e-12
    )
    plain = daskclust.KMeans(3, init=golden["c1_init_seeding"], tol=0).fit(x)
    np.testing.assert_array_equal(model.labels_, plain.labels_)
    assert paper.cell_of("LKM", "seeding", "both", 3) == ("seeding", "both", 3)
    assert paper.cell_of("LKM", "robin", "both", 3) == ("robin", "none", 0)


def test_runs_that_collapse_are_left_out(paper: ModuleType) -> None:
    """As in the published means: the best s is that of the runs that are left."""
    test = [[0.5, 0.9], [0.7, 0.4], [0.6, 0.2]]

    def kept(*collapsed: list[bool]) -> tuple[float, int]:
        record = {"method": "PCSKM Eq. 15", "repetition": 0, "test": test, "collapsed": collapsed}
        found = paper.result_of([record], [])
        assert (found.mean, found.n_runs) == (pytest.approx(0.6), 3)
        return round(found.kept_mean, 6), found.kept

    assert kept([False, False], [False, False], [False, False]) == (0.6, 3)
    assert kept([False, False], [False, False], [False, True]) == (0.65, 2)
    assert kept([True, False], [False, True], [False, True]) == (0.65, 2)
    assert kept([True, True], [True, True], [True, False])[1] == 0


def test_paired_tests(results, paper: ModuleType) -> None:
    found, _, _ = results
    tests = {line["method"]: line for line in paper.wilcoxon(found)}
    # Iris from two starts, and 1 % of the pairs.
    assert tests["PCKM"]["cases"] == tests["PCKM"]["better"] == 2
    assert set(tests) == {"LKM", "SKM", "PCKM", "MPCKM"}


def test_the_table_comes_first(paper: ModuleType) -> None:
    table = paper.table_tasks(2)
    assert paper.paper_tasks(1, 2)[: len(table)] == table
    assert {task.repetition for task in table} == {0, 1}
    iris = [task for task in table if task.data == "fisheriris"]
    assert sum(task.method == "PCSKM Eq. 15" for task in iris) == 2 * 11
    # From two starts without constraints, and from three numbers of them.
    assert sum(task.method == "LKM" for task in iris) == 2 * (2 + 3)
    few = paper.paper_tasks(1, 0, levels=[3])
    assert {task.level for task in few} == {0, 3}
