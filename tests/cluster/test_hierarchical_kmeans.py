"""K-means in levels: results by definition, for any chunks, and removal of temporary files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client
from sklearn.exceptions import ConvergenceWarning

import daskclust
from daskclust import HierarchicalKMeans, KMeans
from daskclust.cluster import hierarchical_kmeans, level_fit
from daskclust.cluster.level_sizes import choose_parents, distribute_children
from daskclust.core.estimator.fit_loop import draw_seeds
from daskclust.core.storage.atomic_write import hidden_sibling
from daskclust.core.storage.shuffle_files import GroupedRows
from daskclust.exceptions import CheckpointError, StoreError


def rows(n: int = 3000, p: int = 6, k: int = 40, seed: int = 0, dtype: str = "float16"):
    rng = np.random.default_rng(seed)
    centers = 8 * rng.normal(size=(k, p))
    return (centers[rng.integers(0, k, n)] + rng.normal(size=(n, p))).astype(dtype)


X = rows()


def same(one: HierarchicalKMeans, other: HierarchicalKMeans) -> None:
    np.testing.assert_array_equal(one.labels_, other.labels_)
    np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
    np.testing.assert_array_equal(one.parents_, other.parents_)
    np.testing.assert_array_equal(one.counts_, other.counts_)
    np.testing.assert_allclose(one.inertia_, other.inertia_, rtol=1e-12)


@pytest.mark.parametrize("n_probe", [1, 2, "all"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_it_is_what_its_definition_says(n_probe, metric):
    """Two refinements equal to those of a plain loop over all rows."""
    given = {"n_probe": n_probe, "metric": metric, "random_state": 0}
    before = HierarchicalKMeans((5, 6), refine=0, **given).fit(X)
    after = HierarchicalKMeans((5, 6), refine=1, **given).fit(X)
    z = X.astype(np.float64)
    if metric == "cosine":
        z /= np.linalg.norm(z, axis=1, keepdims=True)
    means = before.cluster_centers_.astype(float)
    for leaf in np.unique(before.labels_):
        means[leaf] = z[before.labels_ == leaf].mean(axis=0)
    if metric == "cosine":
        means /= np.linalg.norm(means, axis=1, keepdims=True)
    np.testing.assert_allclose(after.cluster_centers_, means, rtol=1e-5, atol=1e-6)
    gaps = ((z[:, None] - after.cluster_centers_) ** 2).sum(axis=2)
    parents = ((z[:, None] - after.level_centers_[0]) ** 2).sum(axis=2)
    probe = 5 if n_probe == "all" else n_probe
    nearest = np.argsort(parents, axis=1)[:, :probe]
    allowed = (after.parents_[None, :, None] == nearest[:, None, :]).any(axis=2)
    gaps[~allowed] = np.inf
    assert (gaps.argmin(axis=1) == after.labels_).mean() > 0.999  # but for rounding
    np.testing.assert_allclose(after.inertia_, gaps.min(axis=1).sum(), rtol=1e-5)
    np.testing.assert_array_equal(after.counts_, np.bincount(after.labels_, minlength=30))
    assert after.score(X) == -after.inertia_
    assert after.inertia_ <= before.inertia_


def test_attributes():
    model = HierarchicalKMeans((5, 6), random_state=0).fit(X)
    assert model.cluster_centers_.shape == (30, 6)
    assert model.cluster_centers_.dtype == np.float32
    assert (np.diff(model.parents_) >= 0).all()
    assert set(model.parents_) == set(range(5))
    root, leaves = model.level_centers_
    assert root.shape == (5, 6)
    np.testing.assert_array_equal(leaves, model.cluster_centers_)
    parents = KMeans(5, max_iter=25, random_state=0).fit(X)
    np.testing.assert_array_equal(root, parents.cluster_centers_)
    np.testing.assert_array_equal(model.predict(X, level=0), parents.labels_)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(model.predict(X, level=1), model.labels_)
    assert model.transform(X[:4]).shape == (4, 30)
    assert model.counts_.sum() == len(X)
    for level in (2, 1.0):
        with pytest.raises(ValueError, match="level must be between 0"):
            model.predict(X, level=level)


@pytest.mark.parametrize("n_clusters", [7, (7, 1), (7,)])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_one_level_is_kmeans(n_clusters, metric):
    model = HierarchicalKMeans(n_clusters, metric=metric, random_state=3).fit(X)
    flat = KMeans(7, metric=metric, max_iter=25, random_state=3).fit(X)
    np.testing.assert_array_equal(model.labels_, flat.labels_)
    np.testing.assert_array_equal(model.cluster_centers_, flat.cluster_centers_.astype(np.float32))
    assert (model.inertia_, model.n_iter_) == (flat.inertia_, flat.n_iter_)
    assert model.score(X) == pytest.approx(flat.score(X), rel=1e-12)


def test_an_integer_chooses_the_levels():
    X = rows(4000, 3)
    model = HierarchicalKMeans(1000, max_iter=3, random_state=0).fit(X)
    assert len(model.level_centers_[0]) == choose_parents(1000) == 8
    assert len(model.cluster_centers_) == 1000


def test_every_level_is_grouped_and_clustered_in_the_same_way():
    """Three levels by their definition: parts are fits of the rows nearest to a parent."""
    given = {"max_iter": 9, "refine": 0, "random_state": 4}
    model = HierarchicalKMeans((4, 3, 5), n_probe="all", **given).fit(X)
    root, middle, leaves = model.level_centers_
    assert [len(level) for level in (root, middle, leaves)] == [4, 12, 60]
    np.testing.assert_array_equal(
        middle, HierarchicalKMeans((4, 3), n_probe="all", **given).fit(X).cluster_centers_
    )
    nearest = ((X[:, None].astype(float) - middle) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(model.predict(X, level=1), nearest)
    sizes = np.bincount(model.parents_, minlength=12)
    np.testing.assert_array_equal(
        sizes, distribute_children(60, np.bincount(nearest).astype(float), np.bincount(nearest))
    )
    seeds = np.random.SeedSequence(draw_seeds(4, 1)[0]).generate_state(16)[4:]
    for m in range(12):
        part = KMeans(int(sizes[m]), max_iter=9, random_state=int(seeds[m])).fit(X[nearest == m])
        np.testing.assert_array_equal(
            leaves[model.parents_ == m], part.cluster_centers_.astype(np.float32)
        )
    few = HierarchicalKMeans((4, 3, 5), n_probe=2, random_state=0).fit(X)
    assert few.inertia_ < HierarchicalKMeans((4, 3), random_state=0).fit(X).inertia_
    np.testing.assert_array_equal(few.predict(X, level=-1), few.labels_)
    np.testing.assert_array_equal(few.predict(X, level=-3), few.predict(X, level=0))


def test_spans_of_parents_change_nothing(monkeypatch):
    expected = HierarchicalKMeans((4, 3, 5), random_state=0).fit(X)
    monkeypatch.setattr("daskclust.cluster.level_refinement.MAX_SPANS", 3)
    model = HierarchicalKMeans((4, 3, 5), random_state=0).fit(X)
    np.testing.assert_allclose(model.cluster_centers_, expected.cluster_centers_, rtol=1e-6)
    np.testing.assert_array_equal(model.counts_, expected.counts_)


@pytest.mark.parametrize("chunks", [300, (1, 2998, 1)])
@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_chunks_and_schedulers_change_nothing(chunks, scheduler):
    expected = HierarchicalKMeans((5, 2, 3), max_cluster_size=140, random_state=0).fit(X)
    with dask.config.set(scheduler=scheduler):
        lazy = da.from_array(X, chunks=(chunks, -1))
        model = HierarchicalKMeans((5, 2, 3), max_cluster_size=140, random_state=0).fit(lazy)
        assert isinstance(model.labels_, da.Array)
        same(model, expected)


def test_workers_change_nothing(client: Client):
    expected = HierarchicalKMeans((5, 6), random_state=0).fit(X)
    model = HierarchicalKMeans((5, 6), random_state=0).fit(da.from_array(X, chunks=(700, -1)))
    same(model, expected)


def test_weights_are_repetitions_and_zero_is_absence():
    X = rows(400, 3, 9)
    weight = np.random.default_rng(0).integers(0, 3, len(X))
    weighted = HierarchicalKMeans((3, 2), random_state=0).fit(X, sample_weight=weight)
    assert weighted.counts_.sum() == weight.sum()
    scored = weighted.score(X, sample_weight=weight)
    assert scored == pytest.approx(weighted.score(np.repeat(X, weight, axis=0)), rel=1e-12)
    heavy = np.where(np.arange(len(X)) < 200, 1, 0)
    model = HierarchicalKMeans((3, 2), random_state=0).fit(X, sample_weight=heavy)
    assert model.counts_.sum() == 200
    assert model.inertia_ == pytest.approx(-model.score(X[:200]), rel=1e-12)


@pytest.mark.filterwarnings("ignore:\\d+ of \\d+ leaves are empty")
@pytest.mark.parametrize("refine", [0, 2])
def test_no_cluster_is_larger_than_it_may_be(refine):
    model = HierarchicalKMeans((5, 6), max_cluster_size=60, refine=refine, random_state=0).fit(X)
    counts = np.bincount(model.labels_, minlength=len(model.cluster_centers_))
    assert counts.max() <= 60
    np.testing.assert_array_equal(counts, model.counts_)
    assert len(model.parents_) == len(model.cluster_centers_) > 30
    # Rows that are all the same cannot be divided.
    twins = np.repeat(np.arange(6.0), 10)[:, None]
    with pytest.warns(UserWarning, match="distinct"):
        found = HierarchicalKMeans((2, 4), max_cluster_size=5, random_state=0).fit(twins)
    assert set(np.bincount(found.labels_)) <= {0, 10}


def test_more_probes_and_refinement_cost_no_inertia():
    found = [
        HierarchicalKMeans((10, 4), n_probe=n_probe, refine=refine, random_state=0).fit(X).inertia_
        for n_probe, refine in ((1, 0), (4, 1), ("all", 5))
    ]
    assert found[0] >= found[1] >= found[2]
    flat = KMeans(40, random_state=0).fit(X).inertia_
    assert found[2] < 1.2 * flat


def test_save_and_load(tmp_path: Path):
    for n_clusters in ((5, 6), (3, 2, 5), 7):
        model = HierarchicalKMeans(n_clusters, random_state=0).fit(X)
        path = tmp_path / f"{n_clusters}.zarr"
        model.save(path)
        loaded = daskclust.load(path)
        assert loaded.get_params() == model.get_params()
        np.testing.assert_array_equal(loaded.predict(X), model.labels_)
        np.testing.assert_array_equal(loaded.predict(X, level=0), model.predict(X, level=0))
        assert loaded.cluster_centers_.dtype == np.float32
        np.testing.assert_array_equal(loaded.parents_, model.parents_)
        assert loaded.inertia_ == model.inertia_


@pytest.mark.parametrize("n_clusters", [(3, 3), (3, 1, 3)])
def test_fewer_rows_of_weight_than_leaves_are_told(tmp_path: Path, n_clusters):
    weight = np.zeros(len(X))
    weight[:5] = 1
    model = HierarchicalKMeans(n_clusters, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"\(5\) found smaller than n_clusters \(9\)"):
        model.fit(X, sample_weight=weight)
    assert len(model.cluster_centers_) == 5
    assert model.inertia_ < 1e-9
    model.save(tmp_path / "m.zarr")
    loaded = daskclust.load(tmp_path / "m.zarr")
    np.testing.assert_array_equal(loaded.predict(X[:5]), model.predict(X[:5]))


class Stop(Exception):
    pass


@pytest.mark.parametrize("stop_after", [1, 6, 11])
def test_a_fit_goes_on_from_its_checkpoint(tmp_path: Path, monkeypatch, stop_after):
    monkeypatch.setattr(level_fit, "_BATCH", 2)
    given = {"max_iter": 3, "refine": 2, "random_state": 0}
    expected = HierarchicalKMeans((5, 2, 3), **given).fit(X)
    path = tmp_path / "fit.checkpoint"

    def stop(record):
        if record["iteration"] == stop_after:
            raise Stop

    with daskclust.on_iteration(stop), pytest.raises(Stop):
        HierarchicalKMeans((5, 2, 3), checkpoint=path, **given).fit(X)
    assert [item.name for item in tmp_path.iterdir()] == [path.name]
    model = HierarchicalKMeans((5, 2, 3), checkpoint=path, **given).fit(X)
    same(model, expected)
    # Grouping the rows again does not count as a pass of the fit.
    assert [r["passes"] for r in model.history_] == [r["passes"] for r in expected.history_]
    # Nor does a fit that is over leave what a killed one has left.
    asked = [sys.executable, "-c", "import os; print(os.getpid())"]
    gone = int(subprocess.run(asked, capture_output=True, check=True).stdout)
    name = hidden_sibling(tmp_path / "daskclust-rows", "partial").name
    (tmp_path / name.replace(f"-{os.getpid()}-", f"-{gone}-")).mkdir()
    same(HierarchicalKMeans((5, 2, 3), checkpoint=path, **given).fit(X), expected)
    with pytest.raises(CheckpointError):
        HierarchicalKMeans((5, 2, 3), checkpoint=path, **{**given, "random_state": 1}).fit(X)
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch):
    HierarchicalKMeans((5, 6), spill=tmp_path / "new", random_state=0).fit(X)
    assert not list((tmp_path / "new").iterdir())
    with dask.config.set({"temporary-directory": str(tmp_path)}):
        HierarchicalKMeans((5, 6), random_state=0).fit(X)
    HierarchicalKMeans((5, 6), spill="memory://spilled", random_state=0).fit(X)

    def full(self, part, groups, records):
        raise OSError(28, os.strerror(28), f"{self.folder}/{part}.rows")

    model = HierarchicalKMeans((5, 6), spill=tmp_path / "full", random_state=0)
    monkeypatch.setattr(GroupedRows, "write", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/full/.*\.rows'"):
        model.fit(X)
    assert not hasattr(model, "labels_")
    assert not list((tmp_path / "full").iterdir())
    assert sorted(item.name for item in tmp_path.iterdir()) == ["full", "new"]


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@pytest.mark.parametrize("n_clusters", [(10, 10), (3, 4, 5), 100])
def test_empty_leaves_are_named(n_clusters, tmp_path: Path):
    rows = (np.arange(3000) % 30).astype(float)[:, None]
    with pytest.warns(
        ConvergenceWarning, match=r"\d+ of \d+ leaves are empty: \d+, .*empty_leaves_"
    ):
        model = HierarchicalKMeans(n_clusters, random_state=0).fit(rows)
    found = np.unique(model.labels_)
    assert len(found) == 30
    expected = np.setdiff1d(np.arange(len(model.cluster_centers_)), found)
    np.testing.assert_array_equal(model.empty_leaves_, expected)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(daskclust.load(tmp_path / "model").empty_leaves_, expected)
    assert not len(HierarchicalKMeans((3, 4), random_state=0).fit(rows).empty_leaves_)


def test_parents_with_few_rows():
    """A far row is a parent of its own, and has one child."""
    X = np.concatenate([rows(300, 2, 4, dtype="float32"), np.full((1, 2), 1e4, np.float32)])
    model = HierarchicalKMeans((5, 6), random_state=0).fit(X)
    own = model.labels_[-1]
    assert (model.parents_ == model.parents_[own]).sum() == 1
    assert len(model.cluster_centers_) == 30
    np.testing.assert_array_equal(model.cluster_centers_[own], X[-1])


def test_as_many_leaves_as_rows():
    X = rows(60, 2, 9, dtype="float32")
    model = HierarchicalKMeans((6, 10), random_state=0).fit(X)
    assert model.inertia_ == pytest.approx(0, abs=1e-8)
    assert sorted(model.labels_) == list(range(60))


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"n_clusters": ()}, "must be an integer or a tuple"),
        ({"n_clusters": (2, 0)}, "n_clusters must be an integer >= 1, got 0"),
        ({"n_clusters": (100, 31)}, "n_clusters=3100 must be at most n_samples=3000"),
    ],
)
def test_bad_parameters_are_named(given, match):
    with pytest.raises(ValueError, match=match):
        HierarchicalKMeans(**{"n_clusters": (5, 6), **given}).fit(X)


@pytest.mark.parametrize(("n_clusters", "refine"), [((5, 6), 1), ((5, 2, 3), 0)])
def test_rows_of_zeros_are_absent_under_cosine(n_clusters, refine):
    """They took leaves, and rounding chose where they were counted."""
    zeros = X.copy()
    zeros[::10] = 0
    given = {"metric": "cosine", "refine": refine, "random_state": 0}
    model = HierarchicalKMeans(n_clusters, **given).fit(zeros)
    there = np.arange(len(X)) % 10 > 0
    counts = np.bincount(model.labels_[there], minlength=30)
    np.testing.assert_array_equal(model.counts_, counts)
    assert (model.labels_[::10] == 0).all()
    assert model.score(zeros) == pytest.approx(-model.inertia_, rel=1e-12)
    assert model.score(zeros[::10]) == 0
    left_out = HierarchicalKMeans(n_clusters, **given).fit(X, sample_weight=there)
    np.testing.assert_array_equal(left_out.cluster_centers_, model.cluster_centers_)
    bound = HierarchicalKMeans(n_clusters, max_cluster_size=60, **given).fit(zeros)
    counts = np.bincount(bound.labels_[there], minlength=len(bound.counts_))
    np.testing.assert_array_equal(counts, bound.counts_)
    assert counts.max() <= 60


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize("n_probe", [1, 2, "all"])
def test_predict_names_bad_values_of_any_block_and_looks_at_none_twice(
    metric, value, n_probe, monkeypatch
):
    given = {"metric": metric, "n_probe": n_probe, "random_state": 0}
    model = HierarchicalKMeans((5, 2, 3), **given).fit(X)
    bad = X.copy()
    bad[1503, 2] = value
    kind = "NaN" if np.isnan(value) else "infinity"
    for level in range(3):
        found = model.predict(da.from_array(bad, chunks=(500, -1)), level=level)
        with pytest.raises(ValueError, match=f"{kind}: the first at row 1503, column 2"):
            found.compute(scheduler="synchronous")
    with pytest.raises(ValueError, match="row 1503"):
        model.score(bad)

    def looked(*args, **kwargs):
        raise AssertionError

    monkeypatch.setattr(hierarchical_kmeans, "check_block", looked)
    np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.parametrize("kind", ["parent is a file", "a file", "not to be written", "default"])
def test_a_folder_that_cannot_be_made_is_named_before_any_pass(tmp_path: Path, kind):
    file = tmp_path / "file"
    file.touch()
    places = {"parent is a file": file / "x", "a file": file, "default": file / "y"}
    spill = places.get(kind, Path("/proc/nobody/rows"))
    used = {"temporary-directory": str(spill)} if kind == "default" else {}
    passes: list[object] = []
    model = HierarchicalKMeans((5, 6), spill=None if kind == "default" else spill, random_state=0)
    with (
        dask.config.set(used),
        daskclust.on_iteration(passes.append),
        pytest.raises(StoreError, match="Cannot create or write") as caught,
    ):
        model.fit(da.from_array(X, chunks=(500, -1)).map_blocks(unread, dtype=X.dtype))
    assert repr(str(spill)) in str(caught.value)
    assert "spill=" in str(caught.value)
    assert not passes
    assert list(tmp_path.iterdir()) == [file]
    # One level needs no such folder.
    with dask.config.set(used):
        HierarchicalKMeans(7, spill=model.spill, random_state=0).fit(X)


def unread(block):
    # Dask calls functions with empty rows to infer their output type.
    assert not len(block), "the rows were read"
    return block


@pytest.mark.parametrize(
    ("spill", "kind", "match"),
    [
        ("", ValueError, "spill must be the path or URL of a folder, or None, got ''"),
        ("s3://", ValueError, "spill must be the path or URL of a folder, or None, got 's3://'"),
        (5, TypeError, "spill must be the path or URL of a folder, or None, got 5"),
        (b"x", TypeError, "spill must be the path or URL of a folder, or None, got b'x'"),
        ("s4://x/y", ValueError, "Protocol not known: s4"),
        ("https://host/x", ValueError, "can only be read"),
    ],
)
def test_what_is_no_place_is_named_before_any_pass(spill, kind, match):
    lazy = da.from_array(X, chunks=(500, -1)).map_blocks(unread, dtype=X.dtype)
    with pytest.raises(kind, match=match):
        HierarchicalKMeans((5, 6), spill=spill, random_state=0).fit(lazy)


@pytest.mark.parametrize(("scale", "offset"), [(1e39, 0), (1e-60, 0), (1, 1e9)])
def test_leaves_of_float32_are_fine_enough_or_refused(scale, offset):
    """Leaves would be infinite, all zero, or all the same."""
    far = scale * rows(dtype="float64") + offset
    with pytest.raises(ValueError, match="must not be finer than float32"):
        HierarchicalKMeans((5, 6)).fit(far)
    # If float32 is fine enough, the offset does not change the result.
    same = HierarchicalKMeans((5, 6), random_state=0)
    near = same.fit(rows(dtype="float64")).inertia_
    assert same.fit(rows(dtype="float64") + 1e5).inertia_ == pytest.approx(near, rel=1e-3)


def test_shares_are_exact():
    for total, mass, most in (
        (10, [1, 1, 1], [99, 99, 99]),
        (10, [1, 0, 1e9], [99, 99, 99]),
        (10, [5, 5, 5], [1, 2, 99]),
        (10, [5, 5, 5], [1, 2, 3]),
        (3, [1, 5, 9], [9, 9, 9]),
    ):
        sizes = distribute_children(total, np.array(mass, float), np.array(most))
        assert sizes.sum() == min(total, sum(most))
        assert (sizes >= 1).all()
        assert (sizes <= most).all()
