"""Saved models: equal predictions after loading, and errors for other files."""

from __future__ import annotations

import inspect
import io
import json
import os
import pickle
import shutil
import warnings
from copy import deepcopy as copy_of
from pathlib import Path
from typing import Any

import dask.array as da
import joblib
import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

import daskclust
from daskclust.core.persistence import models
from daskclust.core.persistence.models import FORMAT, fingerprint, registry
from daskclust.core.persistence.schema import Plain, saved_entries, to_json
from daskclust.exceptions import DaskclustWarning, ModelFormatError

ESTIMATORS = {
    name: value
    for name, value in ((name, getattr(daskclust, name)) for name in daskclust.__all__)
    if inspect.isclass(value) and issubclass(value, BaseEstimator)
}
#: Parameters that make a fit small, if an estimator has them.
SMALL = {
    "n_clusters": 3,
    "n_components": 3,
    "random_state": 0,
    "n_initializations": 2,
    "max_components": 3,
    "n_init": 2,
    "delta": 4.0,
    "eps": 2.0,
}
#: Attributes as long as the data, which are not saved.
AS_LONG_AS_THE_DATA = {"labels_", "probabilities_", "outlier_scores_", "core_mask_"}
METHODS = ("predict", "transform", "predict_proba", "score_samples", "kernel")


def toy() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], 20)
    X = 5.0 * np.eye(3, 4)[truth] + rng.normal(size=(60, 4))
    return X, truth


def fitted(name: str, X: Any = None, **params: Any) -> Any:
    kind = ESTIMATORS[name]
    known = kind().get_params()
    model = kind(**{key: value for key, value in {**SMALL, **params}.items() if key in known})
    values, truth = toy()
    if name == "DBSCAN":  # takes no more features
        values, X = values[:, :3], None if X is None else X[:, :3]
    y = np.where(np.arange(60) % 5 == 0, truth, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(values if X is None else X, y)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_loaded_model_is_the_saved_one(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    model.save(tmp_path / "m.zarr")
    loaded = daskclust.load(tmp_path / "m.zarr")
    assert type(loaded) is type(model)
    assert fingerprint(loaded) == fingerprint(model)
    assert_same_params(model, loaded)
    public = {n for n in vars(model) if n.endswith("_") and not n.startswith("_")}
    # An embedding is one of the rows, but for the estimators on prototypes.
    long = AS_LONG_AS_THE_DATA | ({"embedding_"} if name == "PCKID" else set())
    assert public - long == {n for n in vars(loaded) if n.endswith("_")}
    for attribute in public - long:
        assert_equal(getattr(loaded, attribute), getattr(model, attribute))
    X = np.random.default_rng(1).normal(size=(50, 4)) + toy()[0][:50]
    assert_same_results(model, loaded, X)
    assert_same_results(model, loaded, X.astype(np.float32))
    assert_same_results(model, loaded, da.from_array(X, chunks=(17, 4)))
    # The loaded one is an estimator like any other.
    values, y = toy()
    assert type(loaded.fit(values[:, : model.n_features_in_], y)) is type(model)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_pickle_and_joblib_leave_lazy_results_behind(name: str) -> None:
    values, _ = toy()
    # Rows that would dominate the pickle if they were dragged along.
    X = da.from_array(values, chunks=(20, 4)).map_blocks(np.copy, dtype=float)
    model = fitted(name, X)
    for copy in (pickle.loads(pickle.dumps(model)), through_joblib(model)):
        assert not [n for n, value in vars(copy).items() if hasattr(value, "__dask_graph__")]
        assert_same_results(model, copy, values)


def through_joblib(model: Any) -> Any:
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_model_without_results_of_rows_says_why(name: str, tmp_path: Path) -> None:
    model = fitted(name, da.from_array(toy()[0], chunks=(20, 4)))
    lazy = {n for n, value in vars(model).items() if n[0] != "_" and hasattr(value, "dask")}
    assert "labels_" in lazy
    model.save(tmp_path / "m.zarr")
    copies = pickle.loads(pickle.dumps(model)), daskclust.load(tmp_path / "m.zarr")
    for without in (*copies, copy_of(model)):
        for attribute in lazy:
            remedy = "predict" if attribute == "labels_" and name != "DBSCAN" else "Fit again"
            with pytest.raises(AttributeError, match=f"no {attribute}. Results .* {remedy}"):
                getattr(without, attribute)
        with pytest.raises(AttributeError, match="no attribute 'others_'"):
            getattr(without, "others_")  # noqa: B009
    with pytest.raises(AttributeError, match="no attribute 'labels_'"):
        getattr(ESTIMATORS[name](), "labels_")  # noqa: B009


def assert_same_params(a: Any, b: Any) -> None:
    left, right = a.get_params(), b.get_params()
    assert left.keys() == right.keys()
    for key in left:
        assert_equal(right[key], left[key])


def assert_equal(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        assert_array_equal(found, expected)
    elif isinstance(expected, list):
        assert to_json(found) == to_json(expected)
    else:
        assert found == expected


def assert_same_results(a: Any, b: Any, X: Any) -> None:
    X = X[:, : a.n_features_in_]
    for method in METHODS:
        if hasattr(a, method):
            assert_array_equal(
                np.asarray(getattr(b, method)(X)), np.asarray(getattr(a, method)(X)), strict=True
            )


@pytest.mark.parametrize("metric", ["cosine", "mahalanobis"])
def test_metrics(metric: str, tmp_path: Path) -> None:
    values, _ = toy()
    values = np.hstack([values, values[:, :1]])  # singular: q < p
    model = daskclust.KMeans(3, metric=metric, random_state=0).fit(values)
    model.save(tmp_path / "m.zarr")
    assert_same_results(model, daskclust.load(tmp_path / "m.zarr"), values)


def test_feature_names_and_odd_parameters(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    values, _ = toy()
    X = pandas.DataFrame(values, columns=["a", "b", "c", "ü"])
    model = daskclust.KMeans(3, init=values[:3], tol=np.float32(0.5), max_iter=np.int64(7)).fit(X)
    model.save(str(tmp_path / "m.zarr"))
    loaded = daskclust.load(str(tmp_path / "m.zarr"))
    assert loaded.feature_names_in_.tolist() == ["a", "b", "c", "ü"]
    assert_array_equal(loaded.init, values[:3])
    assert loaded.tol == 0.5
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(X.rename(columns={"a": "z"}))


def first_rows(X: Any, n_clusters: int, random_state: Any) -> Any:
    return X[:n_clusters]


def test_parameters_that_are_code_are_left_out(tmp_path: Path) -> None:
    model = daskclust.KMeans(3, init=first_rows, random_state=np.random.default_rng(0))
    model.set_params(checkpoint=tmp_path / "fit.npz").fit(toy()[0])
    model.save(tmp_path / "m.zarr")
    with pytest.warns(DaskclustWarning, match=r"\['init', 'random_state'\]"):
        loaded = daskclust.load(tmp_path / "m.zarr")
    assert loaded.init == "k-means||"
    assert loaded.random_state is None
    assert loaded.checkpoint is None
    assert_same_results(model, loaded, toy()[0])


def test_an_unfitted_model_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        daskclust.KMeans().save(tmp_path / "m.zarr")
    assert not list(tmp_path.iterdir())


def test_registry_is_every_exported_estimator() -> None:
    assert registry() == ESTIMATORS
    assert {"KMeans", "PCSKMeans"} <= registry().keys()
    assert isinstance(saved_entries(daskclust.KMeans)["history_"], Plain)


# Writing


def test_only_models_are_replaced(tmp_path: Path) -> None:
    model = fitted("KMeans")
    scene = tmp_path / "scene.zarr"
    zarr.create_group(scene).create_array("cube", shape=(2, 2, 2), dtype="f4")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError):
            model.save(scene, overwrite=overwrite)
    assert "cube" in zarr.open_group(scene, mode="r")
    model.save(tmp_path / "m.zarr")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        model.save(tmp_path / "m.zarr")
    other = fitted("KMeans", n_clusters=2)
    other.save(tmp_path / "m.zarr", overwrite=True)
    assert daskclust.load(tmp_path / "m.zarr").n_clusters == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.zarr", "scene.zarr"]


def test_a_crash_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted("KMeans")
    model.save(tmp_path / "m.zarr")
    before = {p: p.read_bytes() for p in (tmp_path / "m.zarr").rglob("*") if p.is_file()}

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("daskclust.core.storage.atomic_write.put_in_place", fail)
    for name in ("m.zarr", "new.zarr"):
        with pytest.raises(OSError, match="disk full"):
            fitted("KMeans", n_clusters=2).save(tmp_path / name, overwrite=True)
    after = {p: p.read_bytes() for p in (tmp_path / "m.zarr").rglob("*") if p.is_file()}
    assert before == after
    assert [path.name for path in tmp_path.iterdir()] == ["m.zarr"]


# Files that are not models


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fitted("PCSKMeans", sparsity=1.5).save(tmp_path / "m.zarr")
    return tmp_path / "m.zarr"


def refused(folder: Path, match: str = "not a valid daskclust model") -> None:
    with pytest.raises(ModelFormatError, match=match) as caught:
        daskclust.load(folder)
    assert str(folder) in str(caught.value)


def edit(folder: Path, change: Any) -> None:
    """Change the header and make its checksum right again, as a forger would."""
    file = folder / "zarr.json"
    whole = json.loads(file.read_text())
    meta = whole["attributes"]["daskclust_model"]
    change(meta)
    group = zarr.open_group(folder, mode="r")
    arrays = {name: np.asarray(array[...]) for name, array in group.arrays()}
    meta["digest"] = models._digest(meta, arrays)
    file.write_text(json.dumps(whole))


def put(folder: Path, name: str, values: Any) -> None:
    """Replace an array, in the form in which models have them."""
    values = np.asarray(values)
    shutil.rmtree(folder / name, ignore_errors=True)
    array = zarr.open_group(folder, mode="a").create_array(
        name,
        shape=values.shape,
        chunks=tuple(max(1, n) for n in values.shape),
        dtype=values.dtype,
        compressors=None,
        config={"write_empty_chunks": True},
    )
    array[...] = values
    edit(folder, lambda meta: None)


def test_what_is_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist; use the path"):
        daskclust.load(tmp_path / "none")
    (tmp_path / "file").write_bytes(pickle.dumps("code"))
    (tmp_path / "empty").mkdir()
    zarr.create_group(tmp_path / "group")
    zarr.create_array(tmp_path / "array", shape=(2,), dtype="f4")
    for name in ("file", "empty", "group", "array"):
        refused(tmp_path / name)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda m: m.update(format=FORMAT + 1), "newer"),
        (lambda m: m.update(format="1"), "format '1'"),
        (lambda m: m.pop("params"), "keys"),
        (lambda m: m.update(estimator="os.system"), "class 'os.system' is unknown"),
        (lambda m: m.update(estimator=["KMeans"]), "is unknown"),
        (lambda m: m.update(estimator="KMeans"), "parameters lack"),
        (lambda m: m.update(state=[]), "header"),
        (lambda m: m["params"].pop("tol"), r"lack \['tol'\]"),
        (lambda m: m["params"].update(checkpoint="/etc/passwd"), "checkpoint"),
        (lambda m: m["params"].update(max_iter=-1), "parameters are invalid"),
        (
            lambda m: m["params"].update(tol={"$float": "0.5"}),
            r"is not a valid daskclust model: \{'\$float': '0\.5'\} must be inf, -inf",
        ),
        (lambda m: m["state"].pop("objective_"), r"lacks \['objective_'\]"),
        (lambda m: m["state"].update(predict=None), r"unknown \['predict'\]"),
        (
            lambda m: m["state"].update(objective_={"$float": "nan"}),
            "is not a valid daskclust model: objective_ must be finite, got nan",
        ),
        (
            lambda m: m["state"].update(objective_="1"),
            "is not a valid daskclust model: objective_ must be float, got '1'",
        ),
        (
            lambda m: m["state"].update(n_iter_=1.5),
            "is not a valid daskclust model: n_iter_ must be int, got",
        ),
        (
            lambda m: m["state"].update(n_iter_=True),
            "is not a valid daskclust model: n_iter_ must be int, got",
        ),
        (lambda m: m["state"].update(n_features_in_=3), "p = 3"),
        (lambda m: m["state"].update(n_features_in_=0), "at least 1"),
        (
            lambda m: m["state"].update(feature_names_in_=["a"]),
            "is not a valid daskclust model: feature_names_in_ must have 4 items, got",
        ),
        (lambda m: m["state"].update(feature_names_in_=[1, 2, 3, 4]), "list of strings"),
        (
            lambda m: m["state"].update(history_={}),
            "is not a valid daskclust model: history_ must be a list",
        ),
        (lambda m: m["state"].update(_metric={"kind": "Popen", "fields": {}}), "Popen"),
        (
            lambda m: m["state"].update(_metric={"kind": "Whitened", "fields": {}}),
            "must have the fields",
        ),
        (
            lambda m: m["state"].update(contradicting_pairs_=None),
            "is not a valid daskclust model: contradicting_pairs_ must have columns",
        ),
        (lambda m: m["state"].update(contradicting_pairs_={"kind": ["x"]}), "one length"),
    ],
)
def test_forged_headers(folder: Path, change: Any, match: str) -> None:
    edit(folder, change)
    refused(folder, match)


@pytest.mark.parametrize(
    ("name", "values", "match"),
    [
        ("feature_weights_", [0.5, np.nan, 0.5, 0.5], "NaN or infinity"),
        ("feature_weights_", [0.5, -0.5, 0.5, 0.5], "below 0"),
        ("feature_weights_", [0.5, 0.5, 0.5], r"must have shape \(p\).*got \(3,\)"),
        ("feature_weights_", [1, 0, 0, 0], "dtype int64"),
        (
            "cluster_centers_",
            np.zeros((3, 5)),
            r"is not a valid daskclust model: cluster_centers_ must have shape \(k, p\)",
        ),
        ("_centers", np.zeros((2, 4)), "k = 3"),
        ("_centers", np.zeros((3, 2)), "is not a valid daskclust model: _metric must have p = q"),
        ("contradicting_pairs_.i", [0], "columns of one length"),
        (
            "contradicting_pairs_.i",
            [0.0],
            r"is not a valid daskclust model: contradicting_pairs_\.i must be a column of",
        ),
        ("stranger", [0.0], "unknown arrays"),
    ],
)
def test_forged_arrays(folder: Path, name: str, values: Any, match: str) -> None:
    put(folder, name, values)
    refused(folder, match)


def test_huge_declared_sizes_are_never_allocated(folder: Path) -> None:
    file = folder / "cluster_centers_" / "zarr.json"
    meta = json.loads(file.read_text())
    meta["shape"] = [10**9, 4]
    file.write_text(json.dumps(meta))
    refused(folder, "another layout than")
    meta["chunk_grid"]["configuration"]["chunk_shape"] = [10**9, 4]
    file.write_text(json.dumps(meta))
    refused(folder, "declares 32000000000 bytes")
    # A sparse file: long, but not on the disk.
    with (folder / "cluster_centers_" / "c" / "0" / "0").open("r+b") as chunk:
        chunk.truncate(32 * 10**9)
    refused(folder, "max_bytes")


def test_compressed_arrays_are_refused(folder: Path) -> None:
    shutil.rmtree(folder / "cluster_centers_")
    group = zarr.open_group(folder, mode="a")
    group.create_array("cluster_centers_", shape=(3, 4), chunks=(3, 4), dtype="f8")[...] = 0.0
    refused(folder, "another layout than")


def test_links_and_odd_files_are_refused(folder: Path, tmp_path: Path) -> None:
    chunk = folder / "cluster_centers_" / "c" / "0" / "0"
    secret = tmp_path / "secret"
    chunk.rename(secret)
    chunk.symlink_to(secret)
    refused(folder, "neither a file nor a folder")
    chunk.unlink()
    os.mkfifo(chunk)
    refused(folder, "neither a file nor a folder")


@pytest.mark.parametrize("name", ["../secret", "/etc", "a/../../secret"])
def test_names_in_the_header_are_not_paths(folder: Path, name: str) -> None:
    edit(folder, lambda meta: meta["state"].update({name: None}))
    refused(folder, "unknown")


def test_nested_groups_and_crowds_are_refused(folder: Path) -> None:
    zarr.open_group(folder, mode="a").create_group("more")
    refused(folder, "must be an array")
    shutil.rmtree(folder / "more")
    for number in range(1000):
        (folder / f"f{number}").touch()
    refused(folder, "more than 1000 files")


def test_every_missing_or_truncated_file_is_noticed(folder: Path) -> None:
    for file in [path for path in folder.rglob("*") if path.is_file()]:
        content = file.read_bytes()
        file.unlink()
        refused(folder)
        for length in (0, len(content) // 2, len(content) - 1):
            file.write_bytes(content[:length])
            refused(folder)
        file.write_bytes(content)
    daskclust.load(folder)


@pytest.mark.parametrize(("often", "is_error"), [(1, False), (99, True)])
def test_a_model_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path, monkeypatch, often, is_error
):
    """A mixture of two models was reported as damaged."""
    rows = np.random.default_rng(0).normal(size=(60, 3))
    fitted = [daskclust.KMeans(k, random_state=0).fit(rows) for k in (5, 3)]
    fitted[0].save(tmp_path / "m.zarr")
    read, seen = models._read, []

    def replaced_meanwhile(group, max_bytes):
        if len(seen) < often:
            fitted[1 - len(seen) % 2].save(tmp_path / "m.zarr", overwrite=True)
        seen.append(group)
        return read(group, max_bytes)

    monkeypatch.setattr(models, "_read", replaced_meanwhile)
    if is_error:
        with pytest.raises(ModelFormatError, match="another process is writing it"):
            daskclust.load(tmp_path / "m.zarr")
    else:
        found = daskclust.load(tmp_path / "m.zarr")
        np.testing.assert_array_equal(found.cluster_centers_, fitted[1].cluster_centers_)
