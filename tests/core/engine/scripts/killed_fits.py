"""Fits that are killed again and again: prints what became of them, as JSON lines.

Usage: ``killed_fits.py NAME N_KILLS FOLDER``.  Each run is a process of its own, forked
from this one.  Events are counted over all phases of a fit: each pass, each member of an
ensemble, each block of labels, each write of the checkpoint (before the new file is in
place, and after).  A run is killed at its n-th event by SIGKILL.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import signal
import sys
import warnings
from pathlib import Path

import dask
import dask.array as da
import numpy as np

import daskclust as dc
from daskclust.core.engine import parallel, rows
from daskclust.mixture import _ensemble
from daskclust.semisupervised import classifiers

rng = np.random.default_rng(0)
CENTERS = rng.normal(scale=3, size=(6, 4))
LABELS = rng.integers(0, 6, 240)
X = CENTERS[LABELS] + rng.normal(size=(240, 4))
HOLES = np.where(rng.random(X.shape) < 0.1, np.nan, X)
Y = np.where(rng.random(240) < 0.2, LABELS, -1)
MUST, CANNOT = dc.pairs_from_labels(LABELS, n_pairs=30, random_state=0)
PAIRS = {"must_link": MUST, "cannot_link": CANNOT}

#: Estimator and its parameters, the rows, and more arguments of fit.
FITS = {
    "KMeans": (dc.KMeans, {"n_clusters": 6, "tol": 0.0}, X, {}),
    "SemiSupervisedKMeans": (dc.SemiSupervisedKMeans, {"n_clusters": 8}, X, {"y": Y}),
    "HierarchicalKMeans": (dc.HierarchicalKMeans, {"n_clusters": (4, 3)}, X, {}),
    "GaussianMixture": (dc.GaussianMixture, {"n_components": 4, "max_iter": 12}, HOLES, {}),
    "PCKID": (
        dc.PCKID,
        {"n_clusters": 4, "n_initializations": 3, "max_components": 4, "n_init": 4}
        | {"solver": "randomized", "em_iter": 3},
        HOLES,
        {},
    ),
    "PCSKMeans": (dc.PCSKMeans, {"n_clusters": 6, "sparsity": 1.5}, X, PAIRS),
    "LabelSpreading": (dc.LabelSpreading, {"n_prototypes": 24}, X, {"y": Y}),
    "SpectralClustering": (dc.SpectralClustering, {"n_clusters": 6}, X, PAIRS),
}


class Events:
    """Counts what happens, and kills the process at the n-th."""

    def __init__(self, deadly: int | None) -> None:
        self.deadly, self.kinds = deadly, []

    def __call__(self, kind: str) -> None:
        self.kinds.append(kind)
        if len(self.kinds) == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, holder, name: str, kind: str) -> None:
        original = getattr(holder, name)

        def counted(*args, **kwargs):
            self(kind)
            return original(*args, **kwargs)

        setattr(holder, name, counted)

    def after(self, holder, name: str, kind: str) -> None:
        original = getattr(holder, name)

        def counted(*args, **kwargs):
            made = original(*args, **kwargs)
            self(kind)
            return made

        setattr(holder, name, counted)

    def watch(self) -> None:
        # Rows are lazy here: what is in memory is a sample of them.
        for executor, kind in (
            (rows.LocalExecutor, "pass"),
            (rows.ThreadExecutor, "pass over a sample"),
        ):
            self.before(executor, "reduce", kind)
            self.before(executor, "map", kind)
        self.before(_ensemble, "train_member", "member")
        self.before(parallel, "_labels_of", "labels")
        self.before(os, "fsync", "half written")
        self.after(Path, "replace", "written")


def run(name: str, checkpoint: Path | None) -> str:
    """Fit, and return a hash of the whole model but the time it took."""
    kind, params, x, given = FITS[name]
    accepted = kind().get_params()
    model = kind(**params, checkpoint=checkpoint)
    if "random_state" in accepted:
        model.set_params(random_state=3)
    with warnings.catch_warnings(), dask.config.set(scheduler="sync"):
        warnings.simplefilter("ignore")
        model.fit(da.from_array(x, chunks=(40, 4)), **given)
        labels = model.labels_.compute()
    history = [{k: v for k, v in r.items() if k != "seconds"} for r in model.history_]
    fitted = {
        name: value.tobytes() if isinstance(value, np.ndarray) else value
        for name, value in sorted(vars(model).items())
        if name.endswith("_") and isinstance(value, np.ndarray | float | int | str)
    }
    content = [fitted, labels.tobytes(), json.dumps(history)]
    return hashlib.sha256(pickle.dumps(content)).hexdigest()


def forked(name: str, checkpoint: Path | None, deadly: int | None = None) -> dict:
    """Run in a process of its own; return how that ended."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            events = Events(deadly)
            events.watch()
            found = {"model": run(name, checkpoint), "events": events.kinds}
            os.write(write, json.dumps(found).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as answers:
        answer = answers.read()
    _, status = os.waitpid(child, 0)
    found = json.loads(answer) if answer else {}
    return found | {"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}


def spread(events: list[str], count: int) -> list[int]:
    """Choose at least that many events, equally many of each kind, from first to last."""
    kinds = sorted(set(events))
    chosen: set[int] = set()
    for kind in kinds:
        at = np.flatnonzero(np.array(events) == kind) + 1
        wanted = np.linspace(0, len(at) - 1, -(-count // len(kinds))).astype(int)
        chosen |= set(at[wanted].tolist())
    # If one kind is rare, more events of other kinds are chosen.
    left = [at for at in range(1, len(events) + 1) if at not in chosen]
    missing = max(0, count - len(chosen))
    more = np.linspace(0, len(left) - 1, missing).astype(int) if left else []
    return sorted(chosen | {left[i] for i in more})


def main(name: str, n_kills: int, folder: Path) -> None:
    # Compile and read once here, not in every process that follows.
    run(name, None)
    free = forked(name, None)
    path = folder / "fit.npz"
    whole = forked(name, path)
    path.unlink()
    print(json.dumps({"free": free, "whole": whole}))
    for at in spread(whole["events"], n_kills):
        killed = forked(name, path, at)
        resumed = forked(name, path)
        left = sorted(f.name for f in folder.iterdir() if f != path)
        path.unlink(missing_ok=True)
        print(json.dumps({"at": at, "killed": killed, "resumed": resumed, "left": left}))
    # One fit, killed at every turn: each process comes a little farther, since it lives as long as
    # the looks at the data and what lies between two checkpoints, or after the last.
    written = np.flatnonzero(np.array([*whole["events"], "written"]) == "written")
    steps = np.diff(written, prepend=-1)
    # A tree of centers groups its rows again: a pass, and two events per block.
    more = 1 + 2 * 6 if name == "HierarchicalKMeans" else 0
    deadly = max(13, int(steps.max()) + 8 + more)
    n_runs, last = 0, {"signal": int(signal.SIGKILL)}
    while last["signal"] and n_runs < 100:
        n_runs, last = n_runs + 1, forked(name, path, deadly)
    left = sorted(f.name for f in folder.iterdir() if f != path)
    print(json.dumps({"n_runs": n_runs, "last": last, "left": left}))


if __name__ == "__main__":
    # Each of some dozen runs of LabelSpreading would grow five forests of a hundred trees.  Not
    # above: what collects tests imports this file.
    classifiers._TREES = 10
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
