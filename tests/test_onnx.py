"""Labels of exported models equal those of predict."""

from __future__ import annotations

import numpy as np
import pytest

import daskclust
from daskclust.onnx import to_onnx

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
CENTERS = 6 * RNG.normal(size=(5, 4))
LABELS = RNG.integers(0, 5, 400)
X = CENTERS[LABELS] + RNG.normal(size=(400, 4)) + 1000.0
NEAR = X - 1000.0


def labels_of(exported, rows):
    session = runtime.InferenceSession(exported.SerializeToString())
    return session.run(["label"], {"X": rows})[0]


def models():
    given = {"random_state": 0}
    yield daskclust.KMeans(5, **given).fit(X), X
    yield daskclust.KMeans(5, metric="mahalanobis", **given).fit(X), X
    directions = np.concatenate([NEAR, np.zeros((1, 4)), 1e3 * NEAR[:9]])
    yield daskclust.KMeans(5, metric="cosine", **given).fit(directions), directions
    noise = np.concatenate([NEAR, RNG.normal(size=(400, 6))], axis=1)
    yield daskclust.SparseKMeans(5, **given).fit(noise), noise
    pairs = {"must_link": [[0, 1]], "cannot_link": [[2, 3]]}
    yield daskclust.PCSKMeans(5, **given).fit(noise, **pairs), noise
    yield daskclust.MPCKMeans(5, **given).fit(NEAR, **pairs), NEAR
    yield daskclust.DPMeans(30.0).fit(NEAR), NEAR
    y = np.where(RNG.random(400) < 0.1, LABELS, -1)
    yield daskclust.SemiSupervisedKMeans(5, **given).fit(NEAR, y), NEAR


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_labels_equal_those_of_predict(dtype):
    for model, rows in models():
        rows = rows.astype(dtype)
        labels = labels_of(to_onnx(model, dtype=dtype), rows)
        assert labels.dtype == np.int64
        np.testing.assert_array_equal(labels, model.predict(rows), err_msg=repr(model))
        assert len(np.unique(labels)) > 1


def test_labels_by_hand():
    model = daskclust.KMeans(2, init=np.array([[0.0, 0.0], [4.0, 0.0]]), max_iter=1)
    model.fit(np.array([[0.0, 0.0], [4.0, 0.0]]))
    rows = np.array([[1.9, 5.0], [2.1, -5.0], [2.0, 0.0]], np.float32)
    # At equal distances, the lowest label wins.
    assert labels_of(to_onnx(model), rows).tolist() == [0, 1, 0]
    assert labels_of(to_onnx(model), rows[:0]).tolist() == []


def test_models_that_cannot_be_exported_are_refused():
    for model in (
        daskclust.HierarchicalKMeans((2, 2), random_state=0).fit(NEAR),
        daskclust.GaussianMixture(2, random_state=0).fit(NEAR),
    ):
        with pytest.raises(TypeError, match=f"nearest center .*got {type(model).__name__}"):
            to_onnx(model)
    with pytest.raises(ValueError, match='missing="partial"'):
        to_onnx(daskclust.KMeans(2, missing="partial", random_state=0).fit(NEAR))
    with pytest.raises(ValueError, match="dtype"):
        to_onnx(daskclust.KMeans(2, random_state=0).fit(NEAR), dtype="float16")
    for scale in (1e30, 1e-25):
        model = daskclust.KMeans(2, random_state=0).fit(scale * NEAR)
        with pytest.raises(ValueError, match="that float32 can represent"):
            to_onnx(model)
        to_onnx(model, dtype="float64")
    to_onnx(daskclust.KMeans(1, random_state=0).fit(NEAR))
    with pytest.raises(ValueError, match="not fitted"):
        to_onnx(daskclust.KMeans(2))
