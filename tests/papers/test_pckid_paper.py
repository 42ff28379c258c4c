"""The PCKID paper's tables: means, their errors, and what is known of the kept runs."""

from __future__ import annotations

import pytest

SCRIPT = "pckid_paper"


def test_means_and_gains_by_hand(paper):
    results = {
        "landcover:x:2:0": {"PCKID": 0.9, "other": 0.8},
        "landcover:x:2:1": {"PCKID": 0.7, "other": 0.7},
        "labels:0.1:0": {"PCKID": 0.1},
    }
    cells = paper.cells_of(results, "landcover")
    assert cells == {("x", "2"): {"PCKID": [0.9, 0.7], "other": [0.8, 0.7]}}
    found = paper.means(results, "landcover")["x", "2"]["PCKID"]
    # Deviations of 0.1 from 0.8: 0.02 over one degree of freedom, and its half for the mean.
    assert found == pytest.approx((0.8, 0.1, 0.02**0.5, 2))
    assert str(found) == "0.800 ± 0.100"
    # The deviation of the differences 0.1 and 0 is less than that of each method's runs.
    assert paper.gain(cells["x", "2"], "PCKID", "other")[:2] == pytest.approx((0.05, 0.05))


def test_a_run_of_another_experiment_is_taken_from_there(paper):
    results = {"quadrants:0.5:7": {"PCKID": 0.96, "mean + k-means": 0.9}}
    assert paper.run("robustness", (30, 30, 7), results) == {"PCKID": 0.96}


def test_kept_runs_are_those_of_the_paper(paper):
    wanted = {":".join(map(str, (name, *arguments))) for name, arguments in paper.all_runs(30)}
    kept = paper.load_results()
    for key, scores in kept.items():
        assert key in wanted or key.startswith("landcover"), key
        assert all(0.0 <= score <= 1.0 for score in scores.values()), key
    for seed in range(30):
        same = kept.get(f"quadrants:0.5:{seed}")
        other = kept.get(f"robustness:30:30:{seed}")
        if same and other:
            assert other["PCKID"] == same["PCKID"]
