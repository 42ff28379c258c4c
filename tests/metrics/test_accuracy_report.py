"""Accuracy by class, against scikit-learn and by hand."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import cohen_kappa_score, confusion_matrix, precision_recall_fscore_support

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
    with pytest.raises(ValueError, match="truth is text and the other is not"):
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
    with pytest.raises(ValueError, match="truth is text and the other is not"):
        accuracy_report(np.array(["a", "b"]), [0, 1])
    with pytest.raises(ValueError, match="no class in common"):
        accuracy_report([0, 1], [5, 6])
    with pytest.raises(ValueError, match="holds no class"):
        accuracy_report([-1, -1], [0, 1])
    with pytest.raises(ValueError, match="of the same length"):
        accuracy_report([0, 1], [0, 1, 1])
    with pytest.raises(ValueError, match="cannot be sorted"):
        accuracy_report(np.array(["a", 1], dtype=object), ["a", "b"])
