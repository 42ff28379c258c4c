"""``daskclust demo``: a synthetic scene, clustered from a few labels, on the public API."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from daskclust import plotting
from daskclust.app.commands import console
from daskclust.app.commands.requests import DemoRequest
from daskclust.core.storage.outputs import Output, Written, json_text, lock_outputs
from daskclust.datasets import make_hyperspectral_cube
from daskclust.metrics import agreement_scores

SCENE, LABELS, PICTURE, REPORT = "scene.zarr", "labels.zarr", "picture.png", "report.json"
_N_CLASSES, _LABELS_PER_CLASS = 7, 5
_SCENE = {"n_classes": _N_CLASSES, "contrast": 0.5, "chunks": (64, 64)}


class _Folder(Output):
    """A folder of this command, recognized by its report."""

    takes_empty = True

    def written(self) -> Written | None:
        try:
            json.loads((Path(self.location) / REPORT).read_text())["command"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return Written(self.kind, members=(SCENE, LABELS, PICTURE, REPORT))


def _run(options: argparse.Namespace) -> int:
    return console.print_results(options, demo(DemoRequest.of(options)), _as_text)


def demo(options: DemoRequest) -> dict[str, Any]:
    """Run the demo, and return its report."""
    output = _Folder(Path(options.output).resolve(), "demo", overwrite=options.overwrite)
    with lock_outputs([output.location]), output.new() as folder:
        folder.mkdir()
        report = {"command": "demo", "output": str(output.location), **_compute(options, folder)}
        (folder / REPORT).write_text(json_text(report, indent=2) + "\n")
    return report


def _compute(options: DemoRequest, folder: Path) -> dict[str, Any]:
    import daskclust

    progress, (rows, columns, bands) = console.Progress(), options.size
    with console.open_client(options, rows * columns // 64**2 + 1, progress) as client:
        seed, n_workers = options.seed, len(client.nthreads())
        progress.say(f"Cluster: {n_workers} workers, dashboard {client.dashboard_link}")
        with progress.task("Scene"):
            # A fifth of the bands separate classes; the others have ten times their noise.
            scene_options: dict[str, Any] = {**_SCENE, "shape": (rows, columns), "n_bands": bands}
            scene_options |= {"n_informative": bands // 5, "random_state": seed}
            scene: Any = make_hyperspectral_cube(folder / SCENE, **scene_options)
            truth, labeled = scene["truth"][...], np.full((rows, columns), -1)
            for label in range(_N_CLASSES):
                pixels = np.random.default_rng(seed).permutation(np.flatnonzero(truth == label))
                labeled.flat[pixels[:_LABELS_PER_CLASS]] = label
            cube = daskclust.open_cube(scene, variable="cube")
        bound, is_test = max(1.0, 0.35 * np.sqrt(bands)), (truth >= 0) & (labeled < 0)
        sparse = daskclust.PCSKMeans(_N_CLASSES, sparsity=bound, random_state=seed)
        baseline, maps, results = daskclust.KMeans(_N_CLASSES, random_state=seed), {}, {}
        for model, training in ((sparse, cube.rows_of(labeled, unlabeled=-1)), (baseline, None)):
            name, start = type(model).__name__, time.perf_counter()
            with progress.task(name), daskclust.on_iteration(progress.iteration):
                maps[name] = cube.to_map(model.fit(cube, training).labels_).compute()
            results[name] = agreement_scores(truth[is_test], maps[name][is_test])
            results[name]["seconds"] = time.perf_counter() - start
        cube.write_labels(sparse.labels_, folder / LABELS, n_clusters=_N_CLASSES)
    try:
        _draw(folder / PICTURE, scene, maps, sparse.feature_weights_)
    except ImportError as error:
        progress.say(f"No picture: {error}")
    return {"shape": options.size, "results": results, "workers": n_workers}


def _draw(path: Path, scene: Any, maps: Any, weights: Any) -> None:
    values, truth, wavelengths = (scene[name][...] for name in ("cube", "truth", "wavelength"))
    figure = plotting.new_figure(figsize=(12, 6.4), layout="constrained")
    grid = figure.add_gridspec(2, 4)
    axes = [figure.add_subplot(grid[0, i]) for i in range(4)]
    values[truth < 0] = np.nan
    axes[0].imshow(plotting.rgb_composite(values, wavelengths))
    axes[0].set(title="Scene", xticks=[], yticks=[])
    for ax, (title, labels) in zip(axes[1:], {"Truth": truth, **maps}.items(), strict=True):
        plotting.draw_label_map(labels, ax, n_labels=_N_CLASSES, like=truth, title=title)
    below = figure.add_subplot(grid[1, :])
    plotting.draw_bands(weights, below, wavelengths=wavelengths, title="Feature weights")
    figure.savefig(path, dpi=110)


def _as_text(report: dict[str, Any]) -> list[str]:
    row = "{:<12}adjusted Rand index {:.3f}, {:.1f} s".format
    lines = [row(name, v["ari"], v["seconds"]) for name, v in report["results"].items()]
    return [*lines, f"Written     {report['output']}: label map, scene, picture and report"]
