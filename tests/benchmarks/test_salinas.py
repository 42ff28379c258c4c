"""The comparison on Salinas-A, with two seeds."""

from __future__ import annotations

import numpy as np
import pytest
import salinas


@pytest.mark.skipif(not salinas.find_scene().is_file(), reason="the test data are not here")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_compares_all_methods_with_two_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    salinas.main(["--seeds", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| method | bands | ARI | NMI | pairwise F |"
    assert len(lines) == 2 + 2 * 6
    assert "PCSKMeans, 1 % labels, s = 7.1 | standardized" in "\n".join(lines)


def test_draws_one_percent_of_each_class_and_at_least_one() -> None:
    classes = np.repeat([1, 10, 11], [400, 1340, 20])
    drawn = salinas.draw_labels(classes, seed=0)
    assert np.unique(classes[drawn], return_counts=True)[1].tolist() == [4, 13, 1]
    assert (np.diff(drawn) > 0).all()
    assert (salinas.draw_labels(classes, seed=0) == drawn).all()
    assert not np.array_equal(salinas.draw_labels(classes, seed=1), drawn)
