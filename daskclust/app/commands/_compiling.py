"""Compile the kernels in advance, for example while an image is built."""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import numpy as np

from daskclust.app.commands.console import Progress

#: Number of rows, and numbers of features and clusters, of the fits. Together they use all kernels.
_ROWS, _SHAPES = 300, ((3, 3), (20, 10), (40, 60))


def _fit_all(x: Any, k: int) -> None:
    """Run fits that together use all kernels."""
    import daskclust as d

    partial_labels = np.full(len(x), -1)
    partial_labels[: 4 * k] = np.arange(4 * k) % k
    pairs: dict[str, Any] = {"must_link": [[0, 1], [2, 3]], "cannot_link": [[0, 2], [1, 4]]}
    missing = x.copy()
    missing[::3, 0] = np.nan
    common: dict[str, Any] = {"random_state": 0, "max_iter": 3}

    def fit(model: Any, data: Any, *args: Any, **options: Any) -> None:
        model.fit(data, *args, **options).predict(data)

    fit(d.KMeans(k, **common), x)
    fit(d.KMeans(k, init="k-means++", **common), x, sample_weight=np.ones(len(x)))
    fit(d.SemiSupervisedKMeans(k, **common), x, partial_labels)
    fit(d.SparseKMeans(k, **common), x)
    fit(d.PCKMeans(k, **common), x, partial_labels, **pairs)
    fit(d.MPCKMeans(k, **common), x, **pairs)
    fit(d.PCSKMeans(k, **common), x, partial_labels, **pairs)
    fit(d.COPKMeans(k, **common), x, **pairs)
    fit(d.DPMeans(n_clusters_hint=k, max_iter=3), x)
    fit(d.LabelSpreading(random_state=0), x, partial_labels)
    for kind in ("diag", "full"):
        fit(d.GaussianMixture(2, covariance_type=kind, **common), missing)
    for init in ("maximin", "dkm++", "robin"):
        fit(d.KMeans(k, init=init, **common), x)
    fit(d.HierarchicalKMeans((2, 2), random_state=0), x)
    fit(d.SpectralClustering(2, n_prototypes=50, random_state=0), x)
    for linkage in ("ward", "genie"):
        fit(d.AgglomerativeClustering(2, linkage=linkage, random_state=0), x)
    for n_clusters in (None, 2):
        fit(d.HDBSCAN(n_clusters=n_clusters, random_state=0), x)
    for p in (3, 4):  # on a grid, and in a tree
        d.DBSCAN().fit(x[:, :p]).score_samples(x[:, :p])
    d.deduplicate(x, threshold=0.9, random_state=0)
    ensemble = d.PCKID(2, n_initializations=2, max_components=3, n_init=2, random_state=0)
    fit(ensemble, missing)


def _kernels() -> dict[str, Any]:
    """Return the compiled functions of the package, by name."""
    return {
        f"{name}.{key}": value
        for name, module in list(sys.modules.items())
        if name.startswith("daskclust.")
        for key, value in list(vars(module).items())
        # A function is compiled in the module that defines it, not in those that import it.
        if getattr(getattr(value, "py_func", None), "__module__", None) == name
    }


def compile_all() -> dict[str, Any]:
    """Compile the kernels by fits to a few hundred rows; return counts and folders of the cache."""
    start = time.perf_counter()
    progress = Progress()
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        # A few hundred rows of noise seldom converge.
        warnings.simplefilter("ignore")
        for dtype in (np.float32, np.float64):
            for p, k in _SHAPES:
                x = rng.normal(size=(_ROWS, p)).astype(dtype)
                with progress.task(f"{np.dtype(dtype).name}, {p} features, {k} clusters"):
                    _fit_all(x, k)
    stats = [kernel.stats for kernel in _kernels().values()]
    if not any(stat.cache_path for stat in stats):
        raise OSError(
            "Compiled kernels cannot be stored: the folder of the package and the home folder are "
            "read-only. Set NUMBA_CACHE_DIR to a folder that can be written to."
        )
    return {
        "kernels": len(stats),
        "compiled": sum(sum(stat.cache_misses.values()) for stat in stats),
        "from_cache": sum(sum(stat.cache_hits.values()) for stat in stats),
        "folders": sorted({stat.cache_path for stat in stats if stat.cache_path}),
        "seconds": time.perf_counter() - start,
    }


def as_text(counts: dict[str, Any]) -> list[str]:
    return [
        f"Kernels   {counts['compiled']} compiled, {counts['from_cache']} from the cache, in "
        f"{counts['seconds']:.1f} s",
        *(f"Cache     {folder}" for folder in counts["folders"]),
    ]
