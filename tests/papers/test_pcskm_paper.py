"""The experiments of notebook 02: scores, constraints and initial centers."""

from __future__ import annotations

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
