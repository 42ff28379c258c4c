"""``daskclust demo``: a synthetic scene clustered on a cluster, from Zarr to Zarr."""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from daskclust.app.commands.console import (
    Progress,
    add_cluster_arguments,
    natural,
    open_client,
    seed,
    tell,
)
from daskclust.core.array_types import Bools, Floats
from daskclust.core.storage.outputs import Output, Written, json_text, keeping
from daskclust.exceptions import ConstraintError
from daskclust.metrics import agreement_scores

SCENE, LABELS, PICTURE, REPORT = "scene.zarr", "labels.zarr", "picture.png", "report.json"
_CONTENTS = (SCENE, LABELS, PICTURE, REPORT)

_N_CLASSES = 7
_BLOCK = (64, 64)
# A fifth of the bands tell classes apart, the others carry ten times their noise.
_SCENE: dict[str, Any] = {"contrast": 0.5, "noise": 0.01, "uninformative_noise": 0.1}
_INFORMATIVE = 5
# L1 bound as a share of sqrt(p), its largest value: "roughly a seventh of the bands".
_SPARSITY = 0.35
_UNKNOWN = -1


def _size(text: str) -> tuple[int, int, int]:
    parts = text.lower().split("x")
    if len(parts) != 3:
        raise argparse.ArgumentTypeError(f"{text!r} is not ROWSxCOLUMNSxBANDS, as in 256x256x120")
    rows, columns, bands = (natural(part) for part in parts)
    if rows * columns < 1000 or bands < 10:
        raise argparse.ArgumentTypeError(f"{text!r} has less than 1000 pixels or 10 bands")
    return rows, columns, bands


def add_command(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        description="Make a hyperspectral scene with known classes, cluster its pixels with "
        "PCSKMeans from a few labeled ones on a Dask cluster, and write the label map, a picture "
        "and a report. Takes well under two minutes on two cores.",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("daskclust-demo"),
        metavar="DIR",
        help="folder to write, which workers must see under the same path (default: %(default)s)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier output")
    parser.add_argument(
        "--size",
        type=_size,
        default=(256, 256, 120),
        metavar="ROWSxCOLUMNSxBANDS",
        help="of the scene (default: 256x256x120, 31 MB)",
    )
    parser.add_argument(
        "--labels-per-class",
        type=natural,
        default=5,
        metavar="N",
        help="pixels whose class is given (default: %(default)s)",
    )
    parser.add_argument("--seed", type=seed, default=0, help="of the scene and the fits")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_cluster_arguments(parser)


def _run(options: argparse.Namespace) -> int:
    output = _Folder(options.output.resolve(), "demo", overwrite=options.overwrite)
    output.check()
    began = time.perf_counter()
    with keeping([output.path]), output.new() as folder:
        folder.mkdir()
        found = _compute(options, folder, Progress())
        report = {"command": "demo", "output": str(output.place), **found}
        report["seconds"] = time.perf_counter() - began
        (folder / REPORT).write_text(json_text(report, indent=2) + "\n")
    return tell(options, report, _as_text)


@dataclass(frozen=True)
class _Truth:
    """The demo's record of its scene; small, since the scene is."""

    classes: NDArray[np.int16]  # (y, x), -1 where there are no data
    labeled: NDArray[np.int16]  # (y, x), -1 where no label is given
    wavelengths: Floats
    informative: Bools

    @property
    def judged(self) -> Bools:
        """Pixels on which labels are compared with the truth."""
        return (self.classes != _UNKNOWN) & (self.labeled == _UNKNOWN)


def _read(group: Any, name: str) -> NDArray[Any]:
    return np.asarray(group[name][...])


def _read_truth(scene: zarr.Group, per_class: int, seed: int) -> _Truth:
    classes = _read(scene, "truth")
    labeled = np.full_like(classes, _UNKNOWN)
    rng = np.random.default_rng([seed, per_class])
    for label in range(_N_CLASSES):
        pixels = np.flatnonzero(classes == label)
        if len(pixels) <= per_class:
            raise ConstraintError(
                f"Class {label} has {len(pixels)} pixels, too few to label {per_class}; use a "
                "smaller --labels-per-class or a larger --size."
            )
        labeled.flat[rng.choice(pixels, per_class, replace=False)] = label
    return _Truth(classes, labeled, _read(scene, "wavelength"), _read(scene, "informative"))


class _Folder(Output):
    """A folder that this command has written, by the report in it."""

    takes_empty = True

    def written(self) -> Written | None:
        try:
            report = json.loads((self.place / REPORT).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        is_ours = isinstance(report, dict) and report.get("command") == "demo"
        return Written("demo", report, _CONTENTS) if is_ours else None


def _compute(options: argparse.Namespace, folder: Path, progress: Progress) -> dict[str, Any]:
    import daskclust
    from daskclust.core.engine import compute
    from daskclust.datasets import make_hyperspectral_cube

    rows, columns, bands = options.size
    blocks = -(-rows // _BLOCK[0]) * -(-columns // _BLOCK[1])
    progress.show("Cluster ...")
    with open_client(options, useful_workers=blocks, progress=progress) as client:
        # Without Bokeh there is none.
        has_bokeh = importlib.util.find_spec("bokeh") is not None
        dashboard = client.dashboard_link or None if has_bokeh else None
        workers = client.nthreads()
        n_threads = sum(workers.values())
        progress.say(
            f"Cluster: {len(workers)} worker processes, {n_threads} threads; "
            f"dashboard {dashboard or 'needs bokeh'}"
        )
        with progress.task(f"Scene of {rows} x {columns} pixels, {bands} bands"):
            scene: Any = make_hyperspectral_cube(
                folder / SCENE,
                shape=(rows, columns),
                n_bands=bands,
                n_classes=_N_CLASSES,
                n_informative=bands // _INFORMATIVE,
                chunks=_BLOCK,
                random_state=options.seed,
                **_SCENE,
            )
            truth = _read_truth(scene, options.labels_per_class, options.seed)
            cube = daskclust.open_cube(scene, variable="cube")
            y = cube.rows_of(truth.labeled, unlabeled=_UNKNOWN)
        model = daskclust.PCSKMeans(
            _N_CLASSES, sparsity=max(1.0, _SPARSITY * np.sqrt(bands)), random_state=options.seed
        )
        results = {"PCSKMeans": _fit(model, cube, y, progress)}
        with progress.task("Label map to Zarr"):
            written = cube.write_labels(model.labels_, folder / LABELS, n_clusters=_N_CLASSES)
        label_map = _read(written, "labels")
        plain = daskclust.KMeans(_N_CLASSES, random_state=options.seed)
        results["KMeans"] = _fit(plain, cube, None, progress)
        (plain_map,) = compute("the map", cube.to_map(plain.labels_))
    judged = truth.judged
    for name, found in (("PCSKMeans", label_map), ("KMeans", plain_map)):
        results[name] |= agreement_scores(truth.classes[judged], found[judged])
    weights = model.feature_weights_
    results["PCSKMeans"] |= {
        "rounds": model.n_iter_,
        "bands_used": int((weights > 0).sum()),
        "informative_bands_used": int((weights[truth.informative] > 0).sum()),
    }
    with progress.task("Picture"):
        picture = _picture(folder / PICTURE, scene, truth, label_map, plain_map, weights, results)
    if not picture:
        progress.say("No picture: matplotlib is missing. Use: pip install 'daskclust[plot]'")
    return {
        "version": daskclust.__version__,
        "seed": options.seed,
        "scene": {
            "shape": [rows, columns, bands],
            "megabytes": rows * columns * bands * 4 / 1e6,
            "classes": _N_CLASSES,
            "informative_bands": int(truth.informative.sum()),
            "valid_pixels": cube.n_valid,
            "pixels_without_data": cube.n_masked,
        },
        "labeled_pixels": len(y[0]),
        "judged_pixels": int(judged.sum()),
        "results": results,
        "cluster": {"dashboard": dashboard, "workers": len(workers), "threads": n_threads},
        "files": [name for name in _CONTENTS if picture or name != PICTURE],
    }


def _fit(model: Any, cube: Any, y: Any, progress: Progress) -> dict[str, Any]:
    from daskclust import on_iteration

    name = type(model).__name__
    began = time.perf_counter()
    with progress.task(name), on_iteration(progress.iteration):
        model.fit(cube.samples, y)
    return {
        "seconds": time.perf_counter() - began,
        "passes": int(model.history_[-1]["passes"]),
        "iterations": len(model.history_),
    }


def _picture(
    path: Path,
    scene: zarr.Group,
    truth: _Truth,
    label_map: NDArray[Any],
    plain_map: NDArray[Any],
    weights: Floats,
    results: Mapping[str, Any],
) -> bool:
    """Draw the picture; return False where matplotlib is missing."""
    from daskclust import plotting

    try:
        figure = plotting.new_figure(figsize=(12, 6.4), layout="constrained")
    except ImportError:
        return False
    values = _read(scene, "cube").astype(float)
    values[truth.classes == _UNKNOWN] = np.nan
    above = figure.add_gridspec(2, 4, height_ratios=[1.25, 1])
    axes = [figure.add_subplot(above[0, i]) for i in range(4)]
    axes[0].imshow(plotting.rgb_composite(values, truth.wavelengths))
    axes[0].set(xticks=[], yticks=[])
    axes[0].set_title("Scene: red, green, blue light", loc="left", fontsize="medium")
    plotting.draw_label_map(
        axes[1], truth.classes, n_labels=_N_CLASSES, title="Truth and labeled pixels"
    )
    at_y, at_x = np.nonzero(truth.labeled != _UNKNOWN)
    axes[1].scatter(at_x, at_y, s=16, c="white", edgecolors="black", linewidths=0.8)
    for ax, name, found in ((axes[2], "PCSKMeans", label_map), (axes[3], "KMeans", plain_map)):
        title = f"{name}: adjusted Rand index {results[name]['ari']:.2f}"
        plotting.draw_label_map(ax, found, n_labels=_N_CLASSES, like=truth.classes, title=title)
    plotting.draw_bands(
        figure.add_subplot(above[1, :]),
        weights,
        wavelengths=truth.wavelengths,
        informative=truth.informative,
        title="Feature weights that PCSKMeans found",
    )
    figure.savefig(path, dpi=110)
    return True


def _as_text(report: Mapping[str, Any]) -> list[str]:
    scene, results = report["scene"], report["results"]
    rows, columns, bands = scene["shape"]
    pixels = scene["valid_pixels"] + scene["pixels_without_data"]
    sparse = results["PCSKMeans"]
    lines = [
        f"Scene     {rows} x {columns} pixels, {bands} bands, {scene['megabytes']:.0f} MB, "
        f"{scene['classes']} classes, {scene['pixels_without_data'] / pixels:.1%} without data",
        f"Labels    {report['labeled_pixels']} of {scene['valid_pixels']} pixels; agreement is "
        f"over the other {report['judged_pixels']}",
        "",
        "                ARI     NMI  pairwise F   passes   seconds",
    ]
    lines += [
        f"{name:<12}{found['ari']:>7.3f} {found['nmi']:>7.3f} {found['pairwise_f']:>11.3f} "
        f"{found['passes']:>8} {found['seconds']:>9.1f}"
        for name, found in results.items()
    ]
    return [
        *lines,
        "",
        f"Bands     {sparse['bands_used']} of {bands} have weight; "
        f"{sparse['informative_bands_used']} of these are among the "
        f"{scene['informative_bands']} informative ones",
        f"Time      {report['seconds']:.1f} s on {report['cluster']['workers']} worker processes; "
        f"dashboard {report['cluster']['dashboard'] or 'needs bokeh'} while it ran",
        f"Written   {report['output']}: {', '.join(report['files'])}",
    ]
