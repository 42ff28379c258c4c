"""Figures of pages that no block of code shows are those of fits, code and other pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from helpers import nearly
from sklearn.base import clone

import daskclust
from daskclust.testing import CountingScheduler

ROOT = Path(__file__).resolve().parents[2]
PAIRS = {"must_link": [[0, 1]]}
#: Estimators of the table of passes, by what they are given.
GIVEN = {
    "KMeans": {},
    "SparseKMeans": {},
    "PCSKMeans": {},
    "PCKMeans": PAIRS,
    "MPCKMeans": PAIRS,
    "COPKMeans": PAIRS,
    "SemiSupervisedKMeans": {"y": ([0], [1])},
    "LabelSpreading": {"y": (np.arange(30), np.arange(30) % 3)},
    "AgglomerativeClustering": {},
    "HDBSCAN": {},
    "DBSCAN": {},
}


def table_of_passes() -> dict[str, str]:
    """What "Which estimator?" tells of passes, by name."""
    page = (ROOT / "docs" / "which-estimator.md").read_text()
    lines = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([^|]*) \|", page, re.MULTILINE)
    return {name: told for names, told in lines for name in re.findall(r"\w+", names)}


def fit_of(name: str, n_rows: int) -> tuple[Any, int]:
    """Fit an estimator to so many rows; return it and the passes but iterations."""
    X, truth = daskclust.datasets.make_sparse_blobs(
        n_rows, n_informative=4, n_uninformative=2, random_state=0
    )
    # Two rows of a cluster come first.
    order = np.argsort(truth, kind="stable")
    options = {"n_clusters": 3, "random_state": 0}
    if name in ("LabelSpreading", "HDBSCAN"):
        del options["n_clusters"]
    if name in ("AgglomerativeClustering", "HDBSCAN"):
        options["n_prototypes"] = 200
    if name == "DBSCAN":
        X, options = X[:, :3], {"eps": 1.0}
    model, scheduler = getattr(daskclust, name)(**options), CountingScheduler()
    with dask.config.set({"scheduler": scheduler, "daskclust.persist": False}):
        model.fit(da.from_array(X[order], chunks=(n_rows // 4, -1)), **GIVEN[name])
    if not model.history_:
        return model, scheduler.calls
    iterates = "iterations" in table_of_passes()[name]
    return model, model.history_[-1]["passes"] - (len(model.history_) if iterates else 0)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", GIVEN)
def test_passes_are_those_of_the_table(name: str) -> None:
    told = table_of_passes()[name]
    iterates = "iterations" in told
    # More rows than the sample of an initialization.
    model, passes = fit_of(name, 10_000 if iterates else 2000)
    free = range(11 if "at most 10 without pairs" in told else 1)
    first = re.match(r"\d+", told)
    assert first is not None
    assert passes - int(first[0]) in free
    if iterates:
        page = (ROOT / "docs" / "which-estimator.md").read_text()
        assert "Seven of the 8 or 9 passes" in page
        assert "8192 rows, or 20 rows per cluster, a single pass does" in page
        _, fewer = fit_of(name, 8192)
        assert fewer - int(first[0]) + 7 - 1 in free
    if name == "PCSKMeans":
        paper = clone(model).set_params(init="k-means||", penalty="distance")
        X = np.random.default_rng(0).normal(size=(10_000, 6))
        paired = paper.fit(da.from_array(X, chunks=(2500, -1)), **PAIRS)
        assert f", {paired.history_[0]['passes'] - 1} with pairs" in told


def test_keys_and_defaults_of_the_configuration() -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    told = dict(re.findall(r"^\| `([a-z-]+)` \| ([^|]*) \|", page, re.MULTILINE))
    assert set(told) == set(dask.config.get("daskclust"))
    for key, value in dask.config.get("daskclust").items():
        shown = {None: "null", True: "true", False: "false"}.get(value, str(value))
        assert told[key] == shown, key


def test_what_may_differ_when_a_fit_is_resumed() -> None:
    page = (ROOT / "docs" / "how-to" / "resume.md").read_text()
    told: dict[str, set[str]] = {}
    for names, parameters in re.findall(r"^\| (`[^|]*) \| (`[^|]*) \|$", page, re.MULTILINE):
        told |= {key: set(re.findall(r"\w+", parameters)) for key in re.findall(r"\w+", names)}
    kinds = {name: getattr(daskclust, name) for name in daskclust.__all__}
    resumed = {
        name: set(kind._resumes_with)
        for name, kind in kinds.items()
        if "checkpoint" in getattr(kind, "_get_param_names", list)()
    }
    assert len(resumed) > 10
    assert told == {name: names for name, names in resumed.items() if names}


def test_pages_tell_the_same() -> None:
    """What one page takes from another; of the source run and file see the tests of that page."""

    def figures(page: str, pattern: str) -> tuple[str, ...]:
        found = re.search(pattern, (ROOT / page).read_text(), re.DOTALL)
        assert found is not None, (page, pattern)
        return found.groups()

    first = "docs/tutorials/first-map.md"
    held = figures(first, r"accuracy ([\d.]+) .*?1-NN, standardized: ([\d.]+) .*?: ([\d.]+) on")
    told = figures(
        "docs/gallery.md", r"accuracy of ([\d.]+), 1-NN ([\d.]+), a random forest ([\d.]+)\.\n"
    )
    assert told == tuple(f"{float(value):.2f}" for value in held)
    assert figures(first, r"on (\d+) of (\d+) fields") == figures(
        "docs/gallery.md", r"With (\d+) of (\d+) fields"
    )
    assert figures(first, r"\n +built +(\d+)") == figures(first, r"of built only (\d+) labels")


def test_kmeans_of_jasper_ridge(data_dir: Path) -> None:
    path = data_dir / "data" / "hsi_jasper_ridge.npz"
    if not path.is_file():
        pytest.skip("the data are not here")
    page = (ROOT / "docs" / "gallery.md").read_text()
    told = re.search(
        r"reaches ([\d.]+) on.*?, ([\d.]+) on .*?([\d.]+) on whitened .*?\. Three values",
        page,
        re.DOTALL,
    )
    assert told is not None
    with np.load(path) as arrays:
        image, truth = arrays["cube"], arrays["gt"].ravel()
    for scale, figure in zip(("none", "angle", "whitened"), told.groups(), strict=True):
        cube = daskclust.open_cube(image, dims=("y", "x", "band"), scale=scale)
        for seed in range(3):
            labels = daskclust.KMeans(4, random_state=seed).fit(cube).labels_.compute()
            found = daskclust.metrics.adjusted_rand_score(truth, labels)
            assert nearly(figure, f"{found}")


def clusterers() -> list[str]:
    """Names of all estimators that find clusters, or spread labels."""
    names = [name for name in daskclust.__all__ if isinstance(getattr(daskclust, name), type)]
    return [name for name in names if hasattr(getattr(daskclust, name), "fit")]


@pytest.mark.parametrize("page", ["missing-values.md", "which-estimator.md"])
def test_pages_that_compare_estimators_name_all(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    tables = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    assert len(clusterers()) > 12
    assert not [name for name in clusterers() if not re.search(rf"\b{name}\b", tables)]


def test_estimators_refuse_missing_values_as_the_page_says() -> None:
    page = (ROOT / "docs" / "missing-values.md").read_text()
    refusing = re.findall(r"^\| (.*) \| an error \|$", page, re.MULTILINE)
    names = re.findall(r"\w+", " ".join(refusing))
    assert len(names) == 7
    X = np.random.default_rng(0).normal(size=(20, 3))
    X[3, 1] = np.nan
    for name in names:
        with pytest.raises(ValueError, match=r"NaN: the first at row 3, column 1"):
            getattr(daskclust, name)().fit(X)
