"""Pictures of the gallery: known classes, k-means and label spreading.

``python tests/benchmarks/gallery.py docs/_static`` draws them again.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

import daskclust
from daskclust.plotting import draw_label_map

#: Inches, and dots per inch.
SIZE, DPI = (6.6, 2.9), 150
SCENES = {"salinas": "hsi_salinas_a", "jasper": "hsi_jasper_ridge"}


def load(path: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return a scene (y, x, band) and its classes from 0, -1 where none is known."""
    with np.load(path) as arrays:
        cube, codes = arrays["cube"].astype(np.float32), arrays["gt"].astype(np.int64)
        classes = arrays["class_codes"] if "class_codes" in arrays.files else np.unique(codes)
    truth = np.full(codes.shape, -1)
    for label, code in enumerate(classes):
        truth[codes == code] = label
    return cube, truth


def draw(name: str, cube_values: NDArray[np.float32], truth: NDArray[np.int64], path: Path) -> None:
    """Draw truth, k-means and label spreading from 1 % of labels side by side."""
    n_classes = int(truth.max()) + 1
    random = np.random.default_rng(0)
    few = np.full(truth.shape, -1)
    for label in range(n_classes):
        at = random.permutation(np.argwhere(truth == label))
        row, column = at[: max(1, round(len(at) / 100))].T
        few[row, column] = label
    cube = daskclust.open_cube(cube_values, dims=("y", "x", "band"), nodata=None)
    kmeans = daskclust.KMeans(n_clusters=n_classes, random_state=0).fit(cube)
    spread = daskclust.LabelSpreading(random_state=0).fit(cube, cube.rows_of(few))
    figure, axes = plt.subplots(1, 3, figsize=SIZE, layout="constrained")
    draw_label_map(truth, axes[0], title="known classes")
    for axis, title, labels in (
        (axes[1], "k-means, no labels", kmeans.labels_),
        (axes[2], f"label spreading, {np.sum(few >= 0)} labels", spread.labels_),
    ):
        label_map = np.asarray(cube.to_map(labels))
        draw_label_map(label_map, axis, like=truth, title=title)
    figure.savefig(path / f"{name}.png", dpi=DPI, bbox_inches="tight", pad_inches=0.04)
    plt.close(figure)


def main() -> None:
    """Draw all scenes into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    data = Path(os.environ.get("DASKCLUST_TEST_DATA", "../shared")) / "data"
    for name, file in SCENES.items():
        draw(name, *load(data / f"{file}.npz"), folder)


if __name__ == "__main__":
    main()
