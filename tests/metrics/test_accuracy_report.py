"""Accuracy by class, against scikit-learn and by hand."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import cohen_kappa_score, confusion_matrix, precision_recall_fscore_support

from daskclust.exceptions import DaskclustWarning
from daskclust.metrics import accuracy_report, clustering_accuracy, wilson_interval


def _labels():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 5, 3000)
    labels = np.where(rng.random(3000) < 0.7, truth, rng.integers(0, 6, 3000))
    return truth, labels


def test_equals_scikit_learn():
    truth, labels = _labels()
    found = accuracy_report(truth, labels)
    users, producers, f1, _ = precision_recall_fscore_support(truth, labels, zero_division=np.nan)
    np.testing.assert_allclose(found.users, users)
    np.testing.assert_allclose(found.producers[:5], producers[:5])
    np.testing.assert_allclose(found.f1[:5], f1[:5])
    assert np.isnan(found.producers[5])
    assert found.overall == np.mean(truth == labels)
    assert np.isclose(found.kappa, cohen_kappa_score(truth, labels))
    np.testing.assert_array_equal(found.confusion, confusion_matrix(truth, labels))
    frame = found.to_frame()
    assert frame.attrs["overall"] == found.overall
    assert frame.loc[2, "truth"] == (truth == 2).sum()
    assert frame.loc[2, "users"] == found.users[2]
    assert "Overall accuracy" in found._repr_html_()


def test_chunks_and_text_do_not_matter():
    truth, labels = _labels()
    whole = accuracy_report(truth, labels)
    lazy = accuracy_report(da.from_array(truth, chunks=700), da.from_array(labels, chunks=1000))
    np.testing.assert_array_equal(lazy.confusion, whole.confusion)
    names = np.array(["ash", "beech", "elm", "fir", "oak", "pine"])
    text = accuracy_report(names[truth], names[labels].astype(object))
    assert text.classes == names.tolist()
    np.testing.assert_array_equal(text.confusion, whole.confusion)
    some = np.where(np.arange(3000) % 7, names[truth].astype(object), None)
    want = accuracy_report(some, names[labels])
    for lazy, other in ((da.from_array(some, chunks=700), names[labels]), (some, None)):
        other = da.from_array(names[labels], chunks=1000) if other is None else other
        found = accuracy_report(lazy, other)
        assert found.classes == want.classes
        np.testing.assert_array_equal(found.confusion, want.confusion)
    with pytest.raises(ValueError, match="got text in truth only"):
        accuracy_report(some, da.from_array(labels.astype(object), chunks=1000))
    gaps = np.where(np.arange(3000) % 7, truth, np.nan)
    nullable = pd.Series(np.where(np.arange(3000) % 7, truth, None), dtype="Int64")
    for given in (gaps, nullable, gaps.astype(object), np.ma.masked_invalid(gaps)):
        for truths in (given, da.from_array(np.ma.asanyarray(given), chunks=700)):
            found = accuracy_report(truths, labels)
            np.testing.assert_array_equal(found.confusion, want.confusion)


def test_two_exchanged_classes_are_wrong():
    truth = np.array([0] * 50 + [1] * 50 + [2] * 10)
    exchanged = np.array([1, 0, 2])[truth]
    assert clustering_accuracy(truth, exchanged) == 1.0
    found = accuracy_report(truth, exchanged)
    assert found.overall == 10 / 110
    assert found.producers.tolist() == [0.0, 0.0, 1.0]


def test_rows_without_a_class_are_left_out_and_without_a_label_wrong():
    truth = np.array([0, 0, 1, 1, -1, -1])
    labels = np.array([0, -1, 1, 0, 0, 1])
    found = accuracy_report(truth, labels)
    assert found.n == 4
    assert found.overall == 0.5
    assert found.producers.tolist() == [0.5, 0.5]
    assert found.users.tolist() == [0.5, 1.0]
    text = accuracy_report(
        np.array(["a", "a", "b", "b", None, ""], dtype=object),
        np.array(["a", "", "b", "a", "a", "b"]),
    )
    np.testing.assert_array_equal(text.to_frame(), found.to_frame())


def test_wilson_by_hand():
    # 10 of 10: low bound n / (n + z^2).
    np.testing.assert_allclose(wilson_interval(10, 10), [10 / (10 + 1.959964**2), 1.0])
    assert np.isnan(wilson_interval(0, 0)).all()


def test_kinds_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match="got text in truth only"):
        accuracy_report(np.array(["a", "b"]), [0, 1])
    with pytest.raises(ValueError, match="must have a class in common"):
        accuracy_report([0, 1], [5, 6])
    with pytest.raises(ValueError, match="truth must have a class"):
        accuracy_report([-1, -1], [0, 1])
    with pytest.raises(ValueError, match="must have the same length"):
        accuracy_report([0, 1], [0, 1, 1])
    with pytest.raises(ValueError, match="cannot be sorted"):
        accuracy_report(np.array(["a", 1], dtype=object), ["a", "b"])


def _fields(n_fields: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fields of one class, of which four fifths are right and the others in part."""
    rng = np.random.default_rng(seed)
    right = np.where(rng.random(n_fields) < 0.8, 1.0, rng.uniform(0.4, 1, n_fields))
    sizes = rng.integers(50, 600, n_fields)
    groups, truth = np.repeat(np.arange(n_fields), sizes), np.repeat(np.arange(n_fields) % 4, sizes)
    labels = np.where(rng.random(len(groups)) < right[groups], truth, (truth + 1) % 4)
    return truth, labels, groups


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::daskclust.exceptions.DaskclustWarning")
def test_intervals_are_those_of_independent_groups():
    true = np.mean(np.equal(*_fields(20_000, 99)[:2]))
    covered = []
    for seed in range(40):
        truth, labels, groups = _fields(25, seed)
        found = accuracy_report(truth, labels, groups=groups)
        assert found.n_units == 25
        assert found.to_frame().attrs["n_units"] == 25
        intervals = found.overall_interval, accuracy_report(truth, labels).overall_interval
        covered.append([low <= true <= high for low, high in intervals])
    grouped, of_rows = np.mean(covered, axis=0)
    assert grouped >= 0.8
    assert of_rows <= 0.4


def test_groups_of_one_row_have_the_interval_of_independent_rows():
    truth, labels = _labels()
    found = accuracy_report(truth, labels, groups=np.arange(len(truth)))
    for name in ("overall_interval", "producers_interval", "users_interval"):
        alone = getattr(accuracy_report(truth, labels), name)
        np.testing.assert_allclose(getattr(found, name), alone, atol=0.015)


@pytest.mark.filterwarnings("ignore::daskclust.exceptions.DaskclustWarning")
def test_groups_that_are_all_right_say_no_more_than_as_many_rows():
    truth = np.repeat(np.arange(4) % 2, 500)
    found = accuracy_report(truth, truth, groups=np.repeat(np.arange(4), 500))
    np.testing.assert_allclose(found.overall_interval, wilson_interval(4, 4))
    np.testing.assert_allclose(found.producers_interval, [wilson_interval(2, 2)] * 2)
    assert "4 independent units" in repr(found)


def test_lazy_groups_of_text_are_the_same():
    truth, labels, groups = _fields(30, 0)
    expected = accuracy_report(truth, labels, groups=groups)
    names = np.array([f"field {number:02d}" for number in range(30)])[groups]
    n = len(truth)
    found = accuracy_report(
        da.from_array(truth, chunks=700),
        da.from_array(labels, chunks=n),
        groups=da.from_array(names, chunks=1000),
    )
    np.testing.assert_array_equal(found.confusion, expected.confusion)
    np.testing.assert_array_equal(found.users_interval, expected.users_interval)
    some = np.where(np.arange(n) % 5, truth, -1)
    known = some >= 0
    np.testing.assert_array_equal(
        accuracy_report(some, labels, groups=groups).overall_interval,
        accuracy_report(truth[known], labels[known], groups=groups[known]).overall_interval,
    )


def test_few_groups_are_warned_of():
    truth, labels, groups = _fields(19, 0)
    with pytest.warns(DaskclustWarning, match="is based on 19 independent units"):
        accuracy_report(truth, labels, groups=groups)
    with pytest.raises(
        ValueError, match="groups and truth must have the same length, got 3 and 6138"
    ):
        accuracy_report(truth, labels, groups=[1, 2, 3])
