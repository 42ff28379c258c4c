"""Pictures of the gallery and of the first map: known classes, k-means and label spreading.

``python tests/benchmarks/gallery.py docs/_static`` draws them anew.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

import daskclust
from daskclust.colors import label_colors
from daskclust.plotting import draw_label_map

#: Inches, points and dots of an inch: a page of 500 pixels shows a point as a pixel or so.
SIZE, FONT, DPI = (6.6, 2.9), 11, 150
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


def draw_first_map(path: Path) -> None:
    """Draw the package's scene with its polygons, the map that they give, and its margin."""
    files = daskclust.datasets.load_slovenia()
    cube = daskclust.open_cube(str(files.scene))
    y = cube.rows_of(str(files.fields), class_column="class")
    model = daskclust.LabelSpreading(random_state=0).fit(cube, y)
    names = model.classes_.tolist()
    known = np.full(cube.shape[:2], -1)
    lines, columns = np.divmod(np.asarray(y[0]), cube.shape[1])
    known[lines, columns] = np.searchsorted(names, y[1])
    classes = np.searchsorted(names, np.asarray(model.labels_).astype(str))
    figure, grid = plt.subplots(2, 2, figsize=(SIZE[0], 2 * SIZE[1]), layout="constrained")
    axes = grid.ravel()
    image = np.asarray(cube.samples).reshape(cube.shape)
    axes[0].imshow(image[:, :, 3], cmap="YlGn")
    axes[0].set_title("scene.tif: NDVI of July", loc="left", fontsize=FONT)
    draw_label_map(known, axes[1], n_labels=len(names), title="fields.geojson")
    label_map = classes.reshape(cube.shape[:2])
    draw_label_map(label_map, axes[2], n_labels=len(names), title="map.tif")
    margin = np.asarray(model.margin(cube)).reshape(cube.shape[:2])
    axes[3].imshow(margin, cmap="gray", vmin=0, vmax=1)
    axes[3].set_title("doubt.tif: dark is uncertain", loc="left", fontsize=FONT)
    for axis in axes:
        axis.set(xticks=(), yticks=())
    marks = [
        plt.Line2D([], [], marker="s", linestyle="", color=color, label=name)
        for name, color in zip(names, label_colors(len(names)), strict=True)
    ]
    figure.legend(
        handles=marks,
        loc="outside lower center",
        ncols=-(-len(names) // 2),
        fontsize=FONT,
        frameon=False,
    )
    figure.savefig(path / "first-map.png", dpi=DPI)
    plt.close(figure)


def main() -> None:
    """Draw all scenes into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    data = Path(os.environ.get("DASKCLUST_TEST_DATA", "../shared")) / "data"
    for name, file in SCENES.items():
        draw(name, *load(data / f"{file}.npz"), folder)
    draw_first_map(folder)


if __name__ == "__main__":
    main()
