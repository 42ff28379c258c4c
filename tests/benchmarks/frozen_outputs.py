"""Outputs of fits over all estimators and inputs, to compare two states of the package.

Write them in one checkout and compare in the other:

    python tests/benchmarks/frozen_outputs.py write before.json
    python tests/benchmarks/frozen_outputs.py compare before.json

Each output is kept as a digest of its bytes. `compare` lists the outputs that differ and exits
with 1 if there are any. Only the public API is used, so that files may move in between.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd

import daskclust as dc

RNG = np.random.default_rng(0)
TRUTH = RNG.integers(4, size=2400)
X = RNG.normal(size=(4, 6))[TRUTH] * 4 + RNG.normal(size=(2400, 6))
GAPS = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
LABELS = np.where(RNG.random(2400) < 0.03, TRUTH, -1)
PAIRS = dict(
    zip(
        ("must_link", "cannot_link"),
        dc.pairs_from_labels(LABELS, n_pairs=40, random_state=0),
        strict=True,
    )
)
WEIGHTS = RNG.integers(1, 4, 2400).astype(float)
IMAGE = X.reshape(40, 60, 6).astype(np.float32)

ATTRIBUTES = ("labels_", "cluster_centers_", "inertia_", "objective_", "means_", "weights_",
              "covariances_", "feature_weights_", "children_", "probabilities_",
              "lower_bound_")  # fmt: skip


def digest(value: Any) -> str:
    array = np.ascontiguousarray(np.asarray(value))
    head = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.sha256(head + array.tobytes()).hexdigest()[:16]


def fits() -> dict[str, Callable[[Any], Any]]:
    """Return one fit for each estimator and kind of supervision."""
    return {
        "KMeans": lambda x: dc.KMeans(4, random_state=0).fit(x),
        "KMeans weights": lambda x: dc.KMeans(9, random_state=0).fit(x, sample_weight=WEIGHTS),
        "KMeans ++": lambda x: dc.KMeans(4, init="k-means++", random_state=1).fit(x),
        "KMeans cosine": lambda x: dc.KMeans(4, metric="cosine", random_state=0).fit(x),
        "SemiSupervisedKMeans": lambda x: dc.SemiSupervisedKMeans(4, random_state=0).fit(x, LABELS),
        "SparseKMeans": lambda x: dc.SparseKMeans(4, random_state=0).fit(x),
        "PCKMeans": lambda x: dc.PCKMeans(4, random_state=0).fit(x, **PAIRS),
        "PCSKMeans": lambda x: dc.PCSKMeans(4, random_state=0).fit(x, **PAIRS),
        "PCSKMeans labels": lambda x: dc.PCSKMeans(4, random_state=0).fit(x, LABELS),
        "MPCKMeans": lambda x: dc.MPCKMeans(4, random_state=0).fit(x, **PAIRS),
        "COPKMeans": lambda x: dc.COPKMeans(4, random_state=0).fit(x, **PAIRS),
        "DPMeans": lambda x: dc.DPMeans(delta=60.0).fit(x),
        "HierarchicalKMeans": lambda x: dc.HierarchicalKMeans(60, random_state=0).fit(x),
        "GaussianMixture": lambda x: dc.GaussianMixture(4, random_state=0).fit(x),
        "PCKID": lambda x: dc.PCKID(4, n_init=2, random_state=0).fit(x),
        "LabelSpreading": lambda x: dc.LabelSpreading(random_state=0).fit(x, LABELS),
        "SpectralClustering": lambda x: dc.SpectralClustering(4, random_state=0).fit(x),
        "AgglomerativeClustering": lambda x: dc.AgglomerativeClustering(4, random_state=0).fit(x),
        "HDBSCAN": lambda x: dc.HDBSCAN(random_state=0).fit(x),
        "DBSCAN": lambda x: dc.DBSCAN(eps=0.8, min_samples=5).fit(x[:, :3]),
    }  # fmt: skip


ON_GAPS = (
    "KMeans",
    "PCSKMeans",
    "GaussianMixture",
    "PCKID",
    "LabelSpreading",
    "SpectralClustering",
)


def of_model(model: Any, x: Any) -> dict[str, str]:
    found = {}
    for name in ATTRIBUTES:
        value = getattr(model, name, None)
        if value is not None:
            found[name] = digest(value)
    for name in ("predict", "transform", "predict_proba"):
        if hasattr(model, name) and (name == "predict" or type(model).__name__ != "DBSCAN"):
            part = x[:, : model.n_features_in_]
            found[name] = digest(getattr(model, name)(part))
    return found


def of_arrays() -> Iterator[tuple[str, dict[str, str]]]:
    lazy = da.from_array(X, chunks=(700, 6))
    for name, fit in fits().items():
        yield f"array {name}", of_model(fit(X), X)
        yield f"dask {name}", of_model(fit(lazy), lazy)
        if name in ON_GAPS:
            yield f"gaps {name}", of_model(fit_gaps(name), GAPS)


def fit_gaps(name: str) -> Any:
    known = {"LabelSpreading": {"y": LABELS}, "PCSKMeans": PAIRS}.get(name, {})
    model = getattr(dc, name)(random_state=0)
    if "missing" in model.get_params():
        model.set_params(missing="partial")
    if "n_clusters" in model.get_params():
        model.set_params(n_clusters=4)
    return model.fit(GAPS, **known)


def of_scenes(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    import rasterio

    path = folder / "scene.tif"
    with rasterio.open(
        path, "w", driver="GTiff", height=40, width=60, count=6, dtype="float32", nodata=-9999,
        crs="EPSG:32633", transform=rasterio.Affine(10, 0, 500000, 0, -10, 5100000),
    ) as target:  # fmt: skip
        image = IMAGE.copy()
        image[:3, :5] = -9999
        target.write(image.transpose(2, 0, 1))
    cube = dc.open_cube(str(path))
    for name in ("KMeans", "PCKMeans", "GaussianMixture", "HDBSCAN"):
        model = getattr(dc, name)(random_state=0)
        model.set_params(
            **{k: 4 for k in ("n_clusters", "n_components") if k in model.get_params()}
        )
        model.fit(cube.samples)
        yield f"scene {name}", {"labels_": digest(model.labels_)}
        for form in ("tif", "zarr"):
            target = str(folder / f"{name}.{form}")
            cube.write_labels(model.labels_, target)
            yield f"map {form} {name}", of_map(target)


def of_map(path: str) -> dict[str, str]:
    if path.endswith(".tif"):
        import rasterio

        with rasterio.open(path) as source:
            place = [*source.transform[:6], source.nodata]
            return {"values": digest(source.read(1)), "place": digest(np.array(place, float)),
                    "crs": source.crs.to_string()}  # fmt: skip
    import zarr

    group = zarr.open_group(path, mode="r")
    return {
        name: digest(array[...]) for name, array in group.arrays() if array.dtype.kind in "biuf"
    }


def of_tables(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    table = pd.DataFrame(X, columns=list("abcdef"))
    table.to_parquet(folder / "t.parquet", row_group_size=500)
    table.to_csv(folder / "t.csv", index=False)
    for form in ("parquet", "csv"):
        opened = dc.open_table(str(folder / f"t.{form}"))
        yield f"table {form}", of_model(dc.KMeans(4, random_state=0).fit(opened.samples), X)
    yield "frame", of_model(dc.KMeans(4, random_state=0).fit(table), table.to_numpy())


def outputs() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as name:
        parts = (of_arrays(), of_scenes(Path(name)), of_tables(Path(name)))
        for part in parts:
            for key, value in part:
                found[key] = value
                print(key, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=["write", "compare"])
    parser.add_argument("path", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = outputs()
    if options.action == "write":
        options.path.write_text(json.dumps(found, indent=1))
        return 0
    before = json.loads(options.path.read_text())
    differ = [
        f"{key}: {name}"
        for key in sorted(before.keys() | found.keys())
        for name in sorted(before.get(key, {}).keys() | found.get(key, {}).keys())
        if before.get(key, {}).get(name) != found.get(key, {}).get(name)
    ]
    print(f"{len(found)} cases, {len(differ)} outputs differ", *differ, sep="\n")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())
