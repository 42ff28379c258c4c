"""Profiles, rules and fits of columns in other units than they should be in."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import daskclust
from daskclust.exceptions import DaskclustWarning
from daskclust.explain import profiles, rules

OUTSIDE = "are outside the range"
DOMINANT = "of the variance"


def people(n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Return age, income and a share, and their groups, in which incomes are alike."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 3, n)
    return np.column_stack(
        [rng.normal(30 + 20 * group, 3), rng.normal(4e4, 1e4, n), rng.normal(0.3 * group, 0.05)]
    ), group


X, GROUPS = people()
SCALED = StandardScaler().fit_transform(X)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    "estimator",
    [daskclust.KMeans(3, random_state=0), daskclust.GaussianMixture(3, random_state=0)],
    ids=["kmeans", "mixture"],
)
def test_profiles_and_rules_warn_of_rows_outside_the_range_of_the_fit(estimator, lazy) -> None:
    model = estimator.fit(SCALED)
    unscaled = da.from_array(X, chunks=(100, -1)) if lazy else X
    with pytest.warns(DaskclustWarning, match=f"over 99.9 % of the rows of X {OUTSIDE}"):
        profiles(model, unscaled)
    other = SCALED.copy()
    other[:, 2] = X[:, 2] * 100
    with pytest.warns(
        DaskclustWarning, match=rf"{OUTSIDE}.* most of them in 'x2': -\d.*, and in the fit"
    ):
        rules(model, other)


def test_a_saved_model_knows_the_range_of_its_fit(tmp_path) -> None:
    pandas = pytest.importorskip("pandas")
    names = ["age", "income", "share"]
    daskclust.KMeans(3, random_state=0).fit(pandas.DataFrame(SCALED, columns=names)).save(
        tmp_path / "m.zarr"
    )
    model = daskclust.load(tmp_path / "m.zarr")
    table = pandas.DataFrame(X, columns=names)[["share", "income", "age"]].assign(extra=0.0)
    with pytest.warns(DaskclustWarning, match=f"{OUTSIDE}.* most of them in 'age'"):
        profiles(model, table)


def test_rows_of_the_same_distribution_do_not_warn() -> None:
    """In 300 features of 40 rows, nearly each new row exceeds the range of the fit somewhere."""
    rng = np.random.default_rng(1)
    model = daskclust.KMeans(2, random_state=0).fit(rng.normal(size=(40, 300)))
    profiles(model, rng.normal(size=(500, 300)))
    profiles(daskclust.KMeans(3, random_state=0).fit(SCALED[:300]), SCALED[300:])


def test_a_pipeline_and_given_labels_do_not_warn() -> None:
    pipeline = make_pipeline(StandardScaler(), daskclust.KMeans(3, random_state=0)).fit(X)
    assert profiles(pipeline, X).means[:, 0].max() > 60
    model = daskclust.KMeans(3, random_state=0).fit(SCALED)
    profiles(model, X, GROUPS)
    rules(model, X, GROUPS)


def test_partial_fit_forgets_the_range_of_the_first_batch() -> None:
    model = daskclust.KMeans(3, random_state=0).partial_fit(SCALED)
    with pytest.warns(DaskclustWarning, match=OUTSIDE):
        profiles(model, X[::-1])
    profiles(model.partial_fit(SCALED), SCALED * 100)


@pytest.mark.parametrize(
    "estimator",
    [
        daskclust.KMeans(3, random_state=0),
        daskclust.SparseKMeans(3, sparsity=1.2, random_state=0),
        daskclust.HierarchicalKMeans(3, random_state=0),
        daskclust.AgglomerativeClustering(3, n_prototypes=50, random_state=0),
        daskclust.HDBSCAN(50),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_a_fit_warns_of_a_column_with_nearly_all_of_the_variance(estimator, recwarn) -> None:
    with pytest.warns(DaskclustWarning, match=rf"Column 1 of X has over 99\.9 % {DOMINANT}"):
        estimator.fit(X)
    recwarn.clear()
    estimator.fit(SCALED)
    assert not [item for item in recwarn if DOMINANT in str(item.message)]


@pytest.mark.parametrize(
    "estimator",
    [
        daskclust.KMeans(3, metric="mahalanobis", random_state=0),
        daskclust.KMeans(3, metric="cosine", random_state=0),
        daskclust.AgglomerativeClustering(3, views="standard", random_state=0),
        daskclust.GaussianMixture(3, random_state=0),
        daskclust.MPCKMeans(3, random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.filterwarnings("error")
def test_estimators_that_scale_columns_do_not_warn_of_the_variance(estimator) -> None:
    estimator.fit(X)


@pytest.mark.filterwarnings("error")
def test_constant_columns_are_not_outweighed() -> None:
    daskclust.KMeans(2, random_state=0).fit(np.column_stack([X[:, 1], np.full(len(X), 0.1)]))


def test_the_share_of_the_variance_is_that_of_numpy() -> None:
    x = np.column_stack([SCALED[:, 0] * 15, SCALED[:, 1:]])
    share = x[:, 0].var() / x.var(axis=0).sum()
    assert 0.99 < share < 0.999
    with pytest.warns(DaskclustWarning, match=f"Column 0 of X has {100 * share:.1f} % "):
        model = daskclust.KMeans(3, random_state=0).fit(x)
    advice = profiles(model, x).advice
    assert advice.startswith(f"x0 has {100 * share:.1f} % of the variance")
    assert advice in profiles(model, x)._repr_html_()
    assert not profiles(None, x, GROUPS).advice
    model = daskclust.KMeans(3, random_state=0).fit(SCALED)
    assert not profiles(model, SCALED).advice


def test_a_scene_is_told_to_scale_its_bands() -> None:
    image = X[:, [1, 0]].reshape(20, 30, 2)
    cube = daskclust.open_cube(image, dims=("y", "x", "band"))
    with pytest.warns(DaskclustWarning, match=r"Band 0 .*open_cube\(\.\.\., scale=\"standard\"\)"):
        daskclust.KMeans(3, random_state=0).fit(cube)


def test_rules_take_labels_as_profiles_do() -> None:
    found = rules(None, SCALED, GROUPS)
    assert found.fidelity == 1.0
    assert found.names == ["0", "1", "2"]
    partial = np.where(np.arange(len(GROUPS)) < 50, -1, GROUPS)
    found = rules(None, da.from_array(SCALED, chunks=(70, -1)), da.from_array(partial, chunks=70))
    np.testing.assert_array_equal(found.counts, np.diag(np.bincount(GROUPS[50:])))
    model = daskclust.KMeans(2, random_state=0).fit(SCALED)
    found = rules(model, SCALED, np.array(["low", "mid", "top"])[GROUPS])
    assert {rule.cluster for rule in found.rules} == {"low", "mid", "top"}


def test_rules_without_model_or_with_a_number_for_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="model or y must be set"):
        rules(None, SCALED)
    with pytest.raises(TypeError, match=r"y must be one label per row, got 8\. Use max_leaves=8"):
        rules(None, SCALED, 8)
