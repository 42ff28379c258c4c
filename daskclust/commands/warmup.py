"""``daskclust warmup``: compile the kernels ahead, for an image or before a node takes work."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from daskclust.commands.console import Progress, tell

#: Rows, features and clusters of the fits: each choice of the kernels occurs.
_ROWS, _SHAPES = 300, ((3, 3), (20, 10), (40, 60))


def add_command(commands: Any) -> None:
    parser = commands.add_parser(
        "warmup",
        description="Compile the kernels of all estimators by fits of a few hundred rows, and say "
        "where they are kept: beside the package, or below NUMBA_CACHE_DIR. Run it when an image "
        "is built or a node starts, so that the first fit does not wait. Exit code 1 where "
        "nothing can be kept.",
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")


def _fits(x: Any, k: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Fits that between them reach all kernels."""
    import daskclust as d

    n = len(x)
    few = np.full(n, -1)
    few[: 4 * k] = np.arange(4 * k) % k
    pairs = {"must_link": [[0, 1], [2, 3]], "cannot_link": [[0, 2], [1, 4]]}
    missing = x.copy()
    missing[::3, 0] = np.nan
    common: dict[str, Any] = {"random_state": 0, "max_iter": 3}
    weight = np.ones(n)

    def fitted(model: Any, data: Any, *args: Any, **more: Any) -> Callable[[], Any]:
        def run() -> Any:
            model.fit(data, *args, **more)
            return model.predict(data)

        return run

    yield "KMeans", fitted(d.KMeans(k, **common), x)
    yield (
        "KMeans, weighted",
        fitted(d.KMeans(k, init="k-means++", **common), x, sample_weight=weight),
    )
    yield "SemiSupervisedKMeans", fitted(d.SemiSupervisedKMeans(k, **common), x, few)
    yield "SparseKMeans", fitted(d.SparseKMeans(k, **common), x)
    yield "PCKMeans", fitted(d.PCKMeans(k, **common), x, few, **pairs)
    yield "MPCKMeans", fitted(d.MPCKMeans(k, **common), x, **pairs)
    yield "PCSKMeans", fitted(d.PCSKMeans(k, **common), x, few, **pairs)
    yield "COPKMeans", fitted(d.COPKMeans(k, **common), x, **pairs)
    yield "DPMeans", fitted(d.DPMeans(n_clusters_hint=k, max_iter=3), x)
    yield "LabelSpreading", fitted(d.LabelSpreading(random_state=0), x, few)
    for kind in ("diag", "full"):
        mixture = d.GaussianMixture(2, covariance_type=kind, **common)
        yield f"GaussianMixture, {kind}", fitted(mixture, missing)
    for init in ("maximin", "dkm++", "robin"):
        yield f"start {init}", fitted(d.KMeans(k, init=init, **common), x)
    ensemble = d.PCKID(2, n_initializations=2, max_components=3, n_init=2, random_state=0)
    yield "PCKID", fitted(ensemble, missing)


def _kernels() -> dict[str, Any]:
    """Compiled functions of the package, by name."""
    found = {}
    for name, module in list(sys.modules.items()):
        if not name.startswith("daskclust.kernels"):
            continue
        for key, value in vars(module).items():
            if hasattr(value, "py_func") and hasattr(value, "stats"):
                found[f"{name}.{key}"] = value
    return found


def warm_up(progress: Progress) -> dict[str, Any]:
    """Compile the kernels and return what became of it, as JSON values."""
    began = time.perf_counter()
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        # A few hundred rows of noise seldom converge.
        warnings.simplefilter("ignore")
        for dtype in (np.float32, np.float64):
            for p, k in _SHAPES:
                x = rng.normal(size=(_ROWS, p)).astype(dtype)
                with progress.task(f"{np.dtype(dtype).name}, {p} features, {k} clusters"):
                    for _, run in _fits(x, k):
                        run()
    stats = [kernel.stats for kernel in _kernels().values()]
    folders = sorted({found.cache_path for found in stats if found.cache_path})
    return {
        "command": "warmup",
        "kernels": len(stats),
        "compiled": sum(sum(found.cache_misses.values()) for found in stats),
        "from_cache": sum(sum(found.cache_hits.values()) for found in stats),
        "folders": folders,
        "seconds": time.perf_counter() - began,
    }


def _as_text(found: dict[str, Any]) -> list[str]:
    return [
        f"Kernels   {found['compiled']} compiled, {found['from_cache']} were there, in "
        f"{found['seconds']:.1f} s",
        *(f"Kept in   {folder}" for folder in found["folders"]),
    ]


def _run(options: argparse.Namespace) -> int:
    found = warm_up(Progress())
    tell(options, found, _as_text)
    if found["folders"]:
        return 0
    print(
        "daskclust: error: compiled kernels cannot be kept: neither the package's folder nor the "
        "home can be written to. Set NUMBA_CACHE_DIR to a folder that can.",
        file=sys.stderr,
    )
    return 1
