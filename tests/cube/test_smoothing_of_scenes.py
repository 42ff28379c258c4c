"""The default strength of smoothing on scenes with a truth: it loses next to nothing."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from daskclust import open_cube
from daskclust.prototypes.asking import open_for_questions
from daskclust.prototypes.refit import KeptGraph

#: Draws of labels; the index that may be lost on their mean.
DRAWS, LOSS = 5, 0.003


@pytest.mark.slow
@pytest.mark.parametrize("scene", ["salinas_a", "jasper_ridge"])
def test_the_default_loses_nothing(scene, data_dir):
    path = data_dir / "data" / f"hsi_{scene}.npz"
    if not path.is_file():
        pytest.skip("the data are not here")
    with np.load(path) as arrays:
        image, truth = arrays["cube"].astype(np.float32), arrays["gt"].ravel()
    known = np.flatnonzero(truth > 0) if scene == "salinas_a" else np.arange(len(truth))
    cube, x = open_cube(image, dims=("y", "x", "band")), image.reshape(-1, image.shape[2])
    graph = KeptGraph.of(open_for_questions(cube, None), 0)
    classes = np.unique(truth[known])
    for share in (0.01, None):
        changes = []
        for draw in range(DRAWS):
            rng = np.random.default_rng(draw)
            if share is not None:
                rows = rng.choice(known, int(len(known) * share), replace=False)
            else:
                own = [known[truth[known] == name] for name in classes]
                rows = np.concatenate([rng.choice(some, 5, replace=False) for some in own])
            present, codes = np.unique(truth[rows], return_inverse=True)
            proba = graph.spread(x[rows], codes, len(present))(x)
            labels = proba.argmax(axis=1)
            labels[rows] = codes
            smooth = np.asarray(cube.smooth(labels, proba))
            judged = np.setdiff1d(known, rows)
            before, after = (
                adjusted_rand_score(truth[judged], present[found[judged]])
                for found in (labels, smooth)
            )
            changes.append(after - before)
        assert np.mean(changes) >= -LOSS, (share, changes)
