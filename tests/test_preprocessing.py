"""The lazy scaler."""

from __future__ import annotations

import pickle
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import sklearn.preprocessing
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.pipeline import make_pipeline

import daskclust
from daskclust.preprocessing import StandardScaler

NAN = np.nan


def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(501, 4)) * [1, 30, 1, 1e-3] + [0, 5, 7, 1e3]
    x[:, 2] = 7
    x[rng.random(x.shape) < 0.2] = NAN
    return x


def same(a: StandardScaler, b: StandardScaler) -> None:
    for name in ("mean_", "var_", "scale_", "n_samples_seen_"):
        assert_array_equal(getattr(a, name), getattr(b, name))


def test_statistics_by_hand() -> None:
    x = np.array([[1.0, 2.0, NAN], [3.0, NAN, NAN], [5.0, 2.0, NAN]])
    scaler = StandardScaler().fit(x)
    assert_allclose(scaler.mean_, [3, 2, NAN])
    assert_allclose(scaler.var_, [8 / 3, 0, NAN])
    # A constant feature is not divided by 0.
    assert_allclose(scaler.scale_, [np.sqrt(8 / 3), 1, NAN])
    assert_array_equal(scaler.n_samples_seen_, [3, 2, 0])
    assert_allclose(scaler.transform(x)[:, 0], (x[:, 0] - 3) / np.sqrt(8 / 3))
    assert StandardScaler(with_std=False).fit(x).scale_ is None
    assert_allclose(StandardScaler(with_mean=False, with_std=False).fit_transform(x), x)
    weighted = StandardScaler().fit(x[:, :1], sample_weight=[1, 0, 2.5])
    assert_allclose(weighted.mean_, [13.5 / 3.5])
    assert weighted.n_samples_seen_ == 3.5


@pytest.mark.parametrize("options", [{}, {"with_mean": False}, {"with_std": False}])
def test_results_are_those_of_scikit_learn(options: dict[str, bool]) -> None:
    x = rows()
    mine = StandardScaler(**options).fit(da.from_array(x, chunks=(100, -1)))
    theirs = sklearn.preprocessing.StandardScaler(**options).fit(x)
    assert_allclose(mine.transform(x), theirs.transform(x), rtol=1e-9, atol=1e-9)
    assert_array_equal(mine.n_samples_seen_, theirs.n_samples_seen_)
    assert_allclose(mine.inverse_transform(mine.transform(x)), x)


@pytest.mark.parametrize("chunks", [(1, 4), (77, 4), (500, 4)])
def test_statistics_do_not_depend_on_chunks(chunks: tuple[int, int]) -> None:
    x = rows()
    lazy = da.from_array(x, chunks=chunks)
    whole, scaler = StandardScaler().fit(x), StandardScaler().fit(lazy)
    for name in ("mean_", "var_", "scale_", "n_samples_seen_"):
        assert_allclose(getattr(scaler, name), getattr(whole, name), rtol=1e-9)
    scaled = scaler.transform(lazy)
    assert scaled.chunks == lazy.chunks
    assert_allclose(scaled, whole.transform(x), atol=1e-9)
    assert scaler.transform(lazy.astype("float32")).dtype == np.float32


def test_batches_are_merged() -> None:
    x = rows()
    x[:20, 1] = NAN  # a batch without values of a feature
    scaler = StandardScaler()
    for batch in (x[:20], x[20:21], x[21:]):
        scaler.partial_fit(batch)
    whole = StandardScaler().fit(x)
    assert_allclose(scaler.mean_, whole.mean_, rtol=1e-12)
    assert_allclose(scaler.var_, whole.var_, rtol=1e-9, atol=1e-12)
    assert_array_equal(scaler.n_samples_seen_, whole.n_samples_seen_)
    same(scaler.fit(x), whole)


def test_an_error_changes_nothing() -> None:
    scaler = StandardScaler().fit([[1.0], [3.0]])
    for call in (scaler.fit, scaler.partial_fit):
        with pytest.raises(ValueError, match="contains infinity: the first at row 1, column 0"):
            call([[1.0], [np.inf]])
        with pytest.raises(ValueError, match="At least one sample weight must be positive"):
            call([[1.0]], sample_weight=[0.0])
    with pytest.raises(ValueError, match="2 features"):
        scaler.partial_fit([[1.0, 2.0]])
    with pytest.raises(TypeError, match="with_mean must be True or False, got 'no'"):
        StandardScaler(with_mean="no").fit([[1.0]])
    assert (scaler.mean_.tolist(), scaler.n_samples_seen_) == ([2.0], 2)


def test_a_scaler_is_saved(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    scaler = StandardScaler(with_mean=False).fit(pandas.DataFrame(rows(), columns=[*"abcd"]))
    scaler.save(tmp_path / "s.zarr")
    for other in (daskclust.load(tmp_path / "s.zarr"), pickle.loads(pickle.dumps(scaler))):
        same(other, scaler)
        assert other.get_feature_names_out().tolist() == [*"abcd"]
        assert not other.with_mean


def test_a_pipeline_stays_lazy() -> None:
    x = np.where(np.isnan(rows()), 0.0, rows())
    lazy = da.from_array(x, chunks=(100, -1))
    pipeline = make_pipeline(StandardScaler(), daskclust.KMeans(3, random_state=0))
    labels = pipeline.fit(lazy).predict(lazy)
    assert isinstance(labels, da.Array)
    assert_array_equal(labels, pipeline.fit(x).predict(x))
