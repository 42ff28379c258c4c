"""Partial labels in every form that users have them in, for every estimator that takes them."""

from __future__ import annotations

import warnings

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from daskclust import COPKMeans, MPCKMeans, PCKMeans, PCSKMeans, SemiSupervisedKMeans
from daskclust.core.estimator.partial_labels import known_labels, read_labels
from daskclust.exceptions import ConstraintError

RNG = np.random.default_rng(0)
TRUTH = RNG.integers(3, size=60)
X = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])[TRUTH] + RNG.normal(size=(60, 2))
Y = np.where(np.arange(60) % 4 == 0, TRUTH, -1)
KNOWN = np.flatnonzero(Y >= 0)
NAMES = np.array(["ash", "elm", "oak"])
TEXT = np.where(Y >= 0, NAMES[Y], None)

ESTIMATORS = [
    kind(3, random_state=0)
    for kind in (SemiSupervisedKMeans, PCKMeans, MPCKMeans, PCSKMeans, COPKMeans)
]
BY_ESTIMATOR = pytest.mark.parametrize("model", ESTIMATORS, ids=lambda m: type(m).__name__)
#: All estimators use one reader of labels: the forms are tested with one of labels, one of pairs.
BY_TWO = pytest.mark.parametrize("model", ESTIMATORS[:2], ids=lambda m: type(m).__name__)

NUMBERS = {
    "int8": Y.astype(np.int8),
    "list": Y.tolist(),
    "whole floats": Y.astype(float),
    "column": Y[:, None],
    "masked": np.ma.masked_array(np.abs(Y), Y < 0),
    "masked floats": np.ma.masked_array(np.where(Y < 0, np.nan, Y), Y < 0),
    "series": pd.Series(Y, index=np.arange(60)[::-1]),
    "nullable series": pd.Series(np.where(Y < 0, None, Y), dtype="Int64"),
    "objects": np.where(Y < 0, None, Y),
    "xarray": xr.DataArray(Y, dims="row"),
    "dask": da.from_array(Y, chunks=17),
    "dask, masked": da.from_array(np.ma.masked_array(np.abs(Y), Y < 0), chunks=17),
    "dask nullable series": dd.from_pandas(
        pd.Series(np.where(Y < 0, None, Y), dtype="Int64"), npartitions=3
    ),
    "dask series": dd.from_pandas(pd.Series(Y), npartitions=3),
    "pair": (KNOWN, Y[KNOWN]),
    "pair, any order": (KNOWN[::-1].tolist(), Y[KNOWN][::-1].tolist()),
    "pair, masked": (np.arange(60), np.ma.masked_array(np.abs(Y), Y < 0)),
    "pair with none": (np.arange(60), Y),
}
NAMED = {
    "text with None": TEXT,
    "text with -1": np.where(Y >= 0, NAMES[Y], "-1"),
    "list of both": [-1 if name is None else name for name in TEXT],
    "masked": np.ma.masked_array(NAMES[Y], Y < 0),
    "series": pd.Series(TEXT),
    "string series": pd.Series(TEXT, dtype="string"),
    "categories": pd.Series(TEXT).astype("category"),
    "dask": da.from_array(TEXT, chunks=17),
    "dask series": dd.from_pandas(pd.Series(TEXT), npartitions=3),
    "dask categories": dd.from_pandas(pd.Series(TEXT).astype("category"), npartitions=3),
    "pair": (KNOWN, TEXT[KNOWN]),
    "pair, masked": (np.arange(60), np.ma.masked_array(NAMES[Y], Y < 0)),
}


def fit(model, data, y):
    with warnings.catch_warnings(), dask.config.set(scheduler="sync"):
        warnings.simplefilter("ignore")
        return model.fit(data, y)


@pytest.mark.parametrize("form", NUMBERS)
def test_numbers_of_classes_in_every_form(form):
    labels = read_labels(NUMBERS[form], 60)
    np.testing.assert_array_equal(labels.rows, KNOWN)
    np.testing.assert_array_equal(labels.codes, Y[KNOWN])
    np.testing.assert_array_equal(labels.classes, [0, 1, 2])
    assert labels.classes.dtype == np.int64


@pytest.mark.parametrize("form", NAMED)
def test_names_of_classes_in_every_form(form):
    labels = read_labels(NAMED[form], 60)
    np.testing.assert_array_equal(labels.rows, KNOWN)
    np.testing.assert_array_equal(labels.codes, Y[KNOWN])
    np.testing.assert_array_equal(labels.classes, NAMES)


def test_no_labels_at_all():
    for y in (None, np.full(60, -1), ([], []), np.full(60, None)):
        labels = read_labels(y, 60)
        assert (len(labels.rows), labels.n_classes, len(labels.classes)) == (0, 0, 0)


def test_negative_numbers_but_minus_one_name_classes_unless_they_imply_pairs():
    labels = read_labels(np.array([-7, -1, 3, -7]), 4)
    np.testing.assert_array_equal(labels.classes, [-7, 3])
    np.testing.assert_array_equal(labels.codes, [0, 1, 0])
    with pytest.raises(
        ConstraintError, match="Labels must be >= 0, or -1 for an unlabeled row, got -7 in row 0"
    ):
        labels.without_negative()


def test_rows_out_of_range_and_more_classes_than_allowed():
    with pytest.raises(
        ConstraintError, match=r"y must have one label per row of X \(59 rows\).*got shape \(60,\)"
    ):
        read_labels(Y, 59)
    with pytest.raises(ConstraintError, match=r"Row numbers of y must be in \[0, 60\), got 60"):
        read_labels(([60], [0]), 60)
    with pytest.raises(
        ConstraintError, match="y must have at most n_clusters=2 classes, got 3, because each class"
    ):
        read_labels(Y, 60, max_classes=2)


@BY_ESTIMATOR
@pytest.mark.parametrize("form", ["masked", "dask, masked"])
def test_every_estimator_reads_numbers(model, form):
    want = fit(model, X, Y)
    np.testing.assert_array_equal(want.classes_, [0, 1, 2])
    labels, centers = want.labels_.copy(), want.cluster_centers_.copy()
    found = fit(model, X, NUMBERS[form])
    np.testing.assert_array_equal(found.labels_, labels)
    np.testing.assert_array_equal(found.cluster_centers_, centers)


@BY_ESTIMATOR
@pytest.mark.parametrize("form", ["text with None", "dask categories", "pair, masked"])
def test_every_estimator_reads_names(model, form):
    want = fit(model, X, Y)
    labels, centers = want.labels_.copy(), want.cluster_centers_.copy()
    found = fit(model, X, NAMED[form])
    np.testing.assert_array_equal(found.classes_, NAMES)
    np.testing.assert_array_equal(found.labels_, labels)
    np.testing.assert_array_equal(found.cluster_centers_, centers)


@BY_TWO
@pytest.mark.parametrize(
    ("y", "message"),
    [
        (Y >= 0, "dtype bool"),
        (
            np.where(Y < 0, np.inf, Y),
            "integers or strings, and -1 or NaN for unlabeled rows, got inf",
        ),
        (Y + 0.5, "must contain integers or strings"),
        (np.array([*["a"] * 59, 3.5], object), "only integers or only strings"),
        (Y[:-1], r"y must have one label per row of X \(60 rows\).*got shape \(59,\)"),
        (([3, 5, 3], [0, 1, 1]), "several for row 3"),
        (([-1, 4], [0, 1]), "Row numbers of y must be in .*got -1"),
    ],
)
def test_every_estimator_refuses_with_the_same_words(model, y, message):
    with pytest.raises(ConstraintError, match=message):
        fit(model, X, y)


@BY_TWO
def test_missing_values_are_no_label(model):
    floats = np.where(Y < 0, np.nan, Y)
    some = pd.Series(np.where(Y < 0, None, Y), dtype="Int64")
    names = pd.Series(np.where(Y < 0, None, Y.astype(str)), dtype=object)
    expected = np.asarray(fit(model, X, Y).labels_)
    for y in (
        floats,
        floats.astype(np.float32)[:, None],
        floats.tolist(),
        floats.astype(object),
        pd.Series(floats),
        pd.DataFrame({"crop": floats}),
        some,
        some.astype("Float64"),
        some.astype(object),
        some.astype("category"),
        da.from_array(floats, chunks=17),
        da.from_array(floats.astype(object), chunks=17),
        xr.DataArray(da.from_array(floats, chunks=17), dims="row"),
        np.ma.masked_invalid(floats),
        (np.arange(60), floats),
        (np.arange(60), pd.Series(floats)),
    ):
        np.testing.assert_array_equal(fit(model, X, y).labels_, expected)
    of_names = [
        np.asarray(fit(model, X, y).labels_)
        for y in (names, names.astype("string"), names.astype("category"))
    ]
    for found in of_names[1:]:
        np.testing.assert_array_equal(found, of_names[0])


@pytest.mark.parametrize("dtype", [str, bytes, object])
def test_an_empty_text_is_no_class(dtype: type) -> None:
    y = np.array(["oak", "", "elm", "-1"]).astype(dtype)
    with pytest.raises(ConstraintError, match="y must not contain an empty string"):
        known_labels(y)
