"""Loading takes bounded time and memory for any file, and never ends in anything but an answer."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import zarr
from helpers import counts_of
from numpy.testing import assert_array_equal
from test_persistence import ESTIMATORS, edit, fitted, put, refused, toy

import daskclust
from daskclust.exceptions import ModelFormatError

pytestmark = pytest.mark.usefixtures("few_trees")

#: Arrays of a graph with one more labeled node than the other graphs of its view.
LARGER_GRAPH = {"nodes": (19, 4), "probabilities": (19, 3), "unreached": np.zeros(19, bool)}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    # DBSCAN has no new rows, only those of its fit.
    for name in (name for name, kind in ESTIMATORS.items() if hasattr(kind, "predict")):
        fitted(name).save(folder / f"{name}.zarr")
    fitted("KMeans", metric="mahalanobis").save(folder / "whitened.zarr")
    fitted("GaussianMixture", covariance_type="diag").save(folder / "diagonal.zarr")
    fitted("PCKID", covariance_type="full").save(folder / "full.zarr")
    return folder


def mutate(models: Path, first: int, last: int) -> dict[str, int]:
    """Run the program that changes models, in a child with bounded memory."""
    program = Path(__file__).with_name("mutations.py")
    return counts_of(program, models, first, last, seconds=60 + 5 * (last - first))


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded and measured as on Linux")
@pytest.mark.system
def test_changed_models_predict_or_are_refused(models: Path) -> None:
    counts = mutate(models, 0, 30)
    # A program that could not fail would refuse, or accept, everything.
    assert counts["refused"] > 10
    assert counts["predicts"] > 2


@pytest.mark.slow
@pytest.mark.timeout(6000)  # a thousand changes, of which each may take five seconds
@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded and measured as on Linux")
@pytest.mark.parametrize("part", range(int(os.environ.get("DASKCLUST_MUTATIONS", "10"))))
def test_many_changed_models(models: Path, part: int) -> None:
    mutate(models, 1000 * (part + 1), 1000 * (part + 2))


@pytest.mark.parametrize(
    ("estimator", "arrays", "match"),
    [
        ("KMeans", {"cluster_centers_": (0, 4), "_centers": (0, 4)}, "must have values"),
        ("PCKID", {"_sizes": [1, 1]}, r"must sum to D = .*got 2"),
        ("PCKID", {"_sizes": [2**62, 2**62, 2**62, 2**62]}, r"must sum to D = .*got \d{19,}"),
        (
            "LabelSpreading",
            {"_posterior.views.0.graphs.0.unreached": np.zeros(5, bool)},
            "is not a valid daskclust model:.*must have shape.*k",
        ),
        (
            "LabelSpreading",
            {"_posterior.views.0.graphs.0.probabilities": (9, 2)},
            "must have shape.*c",
        ),
        (
            "LabelSpreading",
            {f"_posterior.views.0.graphs.0.{name}": value for name, value in LARGER_GRAPH.items()},
            "must have the same number of labeled nodes",
        ),
        (
            "GaussianMixture",
            {"covariances_": -np.ones((3, 4, 4))},
            "is not a valid daskclust model: covariances_ must be positive definite",
        ),
        ("GaussianMixture", {"covariances_": np.zeros((3, 4))}, "must have positive variances"),
        ("GaussianMixture", {"covariances_": np.ones((3, 4))}, "contradicts itself"),
        ("GaussianMixture", {"weights_": np.zeros(3)}, "weights_ must sum to 1, got a sum of 0"),
        ("KMeans", {"_centers": np.full((3, 4), 1e160)}, "must not have values beyond"),
        (
            "SemiSupervisedKMeans",
            {"cluster_classes_": [0, 1, 99]},
            r"must contain all \d+ classes, got \[0, 1, 99\]",
        ),
        ("SemiSupervisedKMeans", {"cluster_classes_": [0, -2, 1]}, "must not have values below -1"),
        (
            "SpectralClustering",
            {"_vote.clusters": [2**62] * 72},
            r"is not a valid daskclust model: _vote.clusters must have shape \(t\) with",
        ),
        (
            "SemiSupervisedKMeans",
            {"cluster_classes_": [0, 1]},
            r"must have shape \(k\).*got \(2,\)",
        ),
    ],
)
def test_arrays_are_tied_to_each_other(
    models: Path, tmp_path: Path, estimator: str, arrays: dict[str, object], match: str
) -> None:
    folder = shutil.copytree(models / f"{estimator}.zarr", tmp_path / "m.zarr")
    for name, values in arrays.items():
        put(folder, name, np.zeros(values) if isinstance(values, tuple) else np.asarray(values))
    refused(folder, match)


def test_views_are_tied_to_what_they_need(tmp_path: Path) -> None:
    folder = tmp_path / "m.zarr"
    X = np.where(np.random.default_rng(0).random((60, 4)) < 0.1, np.nan, toy()[0])
    fitted("LabelSpreading", X, views=("mixture",)).save(folder)

    def kind(meta: dict, name: str) -> None:
        posterior = meta["state"]["_posterior"]["fields"]["views"][0]["fields"]
        posterior["space"]["fields"]["views"][0]["fields"]["kind"] = name

    edit(folder, lambda meta: kind(meta, "pckid"))
    refused(folder, "the view 'pckid' must have a KernelCoordinates")
    edit(folder, lambda meta: kind(meta, "sharp"))
    refused(folder, "kind must be one of")


def test_an_earlier_format_is_named(tmp_path: Path) -> None:
    fitted("KMeans").save(tmp_path / "m.zarr")
    edit(tmp_path / "m.zarr", lambda meta: meta.update(format=1))
    refused(tmp_path / "m.zarr", "its format 1 belongs to an earlier version")


def test_metadata_are_measured_before_they_are_parsed(tmp_path: Path) -> None:
    folder = tmp_path / "m.zarr"
    fitted("KMeans").save(folder)
    array = folder / "_centers" / "zarr.json"
    content = array.read_text()
    array.write_text(content + " " * 2**17)
    refused(folder, "must have at most 65536 bytes")
    array.write_text(content)
    header = folder / "zarr.json"
    content = header.read_text()
    with header.open("a") as file:
        file.truncate(2**25 + 1)  # takes no room on the disk
    refused(folder, "must have at most 33554432 bytes")
    header.write_text(content)
    daskclust.load(folder)


def test_other_stores_are_measured_too(tmp_path: Path) -> None:
    model = fitted("KMeans")
    model.save(tmp_path / "m.zarr")
    with zipfile.ZipFile(tmp_path / "good.zip", "w") as archive:
        for file in sorted(path for path in (tmp_path / "m.zarr").rglob("*") if path.is_file()):
            archive.write(file, file.relative_to(tmp_path / "m.zarr"))
    loaded = daskclust.load(zarr.storage.ZipStore(tmp_path / "good.zip", mode="r"))
    assert_array_equal(loaded.predict(toy()[0]), model.predict(toy()[0]))
    # Little on the disk, much when unpacked.
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zarr.json", b" " * 2**26)
    assert (tmp_path / "bomb.zip").stat().st_size < 2**17
    with pytest.raises(ModelFormatError, match="must have at most 33554432 bytes"):
        daskclust.load(zarr.storage.ZipStore(tmp_path / "bomb.zip", mode="r"))
    with zipfile.ZipFile(tmp_path / "crowd.zip", "w") as archive:
        for number in range(1001):
            archive.writestr(f"f{number}", b"")
    with pytest.raises(ModelFormatError, match="more than 1000 files"):
        daskclust.load(zarr.storage.ZipStore(tmp_path / "crowd.zip", mode="r"))
    url = "memory://models/m.zarr"
    model.save(url, overwrite=True)
    assert_array_equal(daskclust.load(url).cluster_centers_, model.cluster_centers_)
    with pytest.raises(ModelFormatError, match="max_bytes=10"):
        daskclust.load(url, max_bytes=10)


@pytest.mark.parametrize(
    ("estimator", "parameters", "match"),
    [
        *(
            (
                name,
                {"n_clusters": 10**12},
                "is not a valid daskclust model: it contradicts itself: n_clusters must be",
            )
            for name in ("KMeans", "SemiSupervisedKMeans", "PCKMeans", "PCSKMeans", "PCKID")
        ),
        (
            "HierarchicalKMeans",
            {"n_clusters": 10**12},
            "levels must have 250000, 1000000000000 centers",
        ),
        ("HierarchicalKMeans", {"n_clusters": [3, 2]}, "gives 6 leaves, got 3"),
        (
            "HierarchicalKMeans",
            {"n_clusters": [3, 2, 2]},
            "levels must have 3, 6, 12 centers, .*, got 3, 3",
        ),
        (
            "SpectralClustering",
            {"n_clusters": 10**12},
            "is not a valid daskclust model: it contradicts itself: n_clusters must be",
        ),
        (
            "AgglomerativeClustering",
            {"n_clusters": 7},
            "is not a valid daskclust model: it contradicts itself: n_clusters must be",
        ),
        ("AgglomerativeClustering", {"n_clusters": 10**12}, "parameters are invalid"),
        (
            "GaussianMixture",
            {"n_components": 10**12},
            "is not a valid daskclust model: it contradicts itself: n_components must be",
        ),
        ("GaussianMixture", {"means_init": [[0.0] * 9] * 3}, "means_init"),
        ("PCKID", {"max_components": 2}, "max_components=2 allow 2 mixtures"),
        ("KMeans", {"init": [[0.0] * 9] * 3}, r"must have shape \(3, 4\).*Save"),
        ("SparseKMeans", {"sparsity": 1e9}, "sparsity"),
    ],
)
def test_parameters_are_tied_to_arrays(
    tmp_path: Path, estimator: str, parameters: dict[str, object], match: str
) -> None:
    folder = tmp_path / "m.zarr"
    fitted(estimator).save(folder)
    edit(folder, lambda meta: meta["params"].update(parameters))
    refused(folder, match)


@pytest.mark.parametrize("bands", [[0, 1, 2, 99], [0, 1, 1, 2], [0, 1, 2, -1]])
def test_bands_are_tied_to_the_stored_ones(tmp_path: Path, bands: list[int]) -> None:
    model = fitted("KMeans")
    model._cube_data = {
        "bands": [0, 1, 2, 5],
        "stored_bands": 6,
        "wavelengths": None,
        "band_names": None,
        "dtype": "float64",
        "values": {},
        "units": None,
    }
    model.save(tmp_path / "m.zarr")
    daskclust.load(tmp_path / "m.zarr")
    edit(tmp_path / "m.zarr", lambda meta: meta["state"]["_cube_data"].update(bands=bands))
    refused(tmp_path / "m.zarr", "must have distinct bands below the number of stored bands")


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    model = fitted("KMeans").set_params(n_clusters=7)
    with pytest.raises(
        ValueError, match="n_clusters must be 3, the number of clusters of the fit, got"
    ):
        model.save(tmp_path / "m.zarr")
    assert not (tmp_path / "m.zarr").exists()
