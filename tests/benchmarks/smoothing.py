"""What smoothing of label maps gains and loses on scenes with a truth, by its strength.

``python tests/benchmarks/smoothing.py`` measures Salinas-A and Jasper Ridge and writes
``smoothing.json`` beside this file: the adjusted Rand index of the pixels without a label, and
its change, for five draws of labels.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from clouds import load
from sklearn.metrics import adjusted_rand_score

from daskclust import open_cube
from daskclust.app.labeling.incremental import SampleGraph
from daskclust.semisupervised.active_learning import open_for_questions

RESULTS = Path(__file__).with_suffix(".json")
SCENES = ("salinas_a", "jasper_ridge")
STRENGTHS = (0.25, 0.5, 1, 2, 4)
DRAWS = 5
#: Share of the pixels that have a label, or how many of each class.
LABELS = (0.01, 5)


def indexes(scene: str, labels: float, strengths=STRENGTHS) -> list[list[float]]:
    """Return the index of each draw of labels, without smoothing and by strength."""
    arrays = load(f"hsi_{scene}")
    image, truth = arrays["cube"].astype(np.float32), arrays["gt"].ravel()
    known = np.flatnonzero(truth > 0) if scene == "salinas_a" else np.arange(len(truth))
    cube, x = open_cube(image, dims=("y", "x", "band")), image.reshape(-1, image.shape[2])
    graph = SampleGraph.of(open_for_questions(cube, None), 0)
    found = []
    for draw in range(DRAWS):
        rng = np.random.default_rng(draw)
        if labels < 1:
            rows = rng.choice(known, int(len(known) * labels), replace=False)
        else:
            own = [known[truth[known] == name] for name in np.unique(truth[known])]
            rows = np.concatenate([rng.choice(some, int(labels), replace=False) for some in own])
        present, codes = np.unique(truth[rows], return_inverse=True)
        proba = graph.spread(x[rows], codes, len(present))(x)
        codes_of_all = proba.argmax(axis=1)
        codes_of_all[rows] = codes
        maps = [codes_of_all] + [
            np.asarray(cube.smooth(codes_of_all, proba, strength=strength))
            for strength in strengths
        ]
        judged = np.setdiff1d(known, rows)
        found.append([float(adjusted_rand_score(truth[judged], present[m[judged]])) for m in maps])
    return found


def main() -> None:
    """Run from the command line."""
    results = {
        f"{scene}:{labels}": np.round(indexes(scene, labels), 6).tolist()
        for scene in SCENES
        for labels in LABELS
    }
    RESULTS.write_text(json.dumps({"strengths": STRENGTHS, "indexes": results}) + "\n")
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
