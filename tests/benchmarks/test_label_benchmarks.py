"""The benchmarks of labels run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from labels import Data, calibration_error
from when_labels_help import METHODS, RESULTS, SETS, add, measure

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def test_results_are_those_of_known_sets_and_methods() -> None:
    for record in json.loads(RESULTS.read_text())["results"]:
        assert record["set"] in SETS
        assert record["method"] in METHODS
        assert -0.5 < record["ari"] <= 1
        assert record["draws"] >= 1


def test_methods_are_measured_on_a_small_set(data_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "results.json"
    records = list(measure(Data("wine", data_dir), "wine", ["k-means", "1-NN", "SVM"], 1))
    add(target, records)
    add(target, records[:1])
    # k-means takes no labels: once, the others for each amount; without and with noise.
    assert len(json.loads(target.read_text())["results"]) == len(records) == 2 * (1 + 2 * 2)


def test_calibration_by_hand() -> None:
    proba = np.array([[0.9, 0.1], [0.05, 0.95], [0.55, 0.45], [0.52, 0.48]])
    right = np.array([True, False, True, False])
    # (0.9 - 1 + 0.95) / 4 of the best bin, (0.55 - 1 + 0.52) / 4 of another.
    assert calibration_error(proba, right) == pytest.approx(0.2125 + 0.0175)
