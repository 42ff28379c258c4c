"""Whenever the client is killed, the same fit goes on to the same model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
#: Passes that a fit which goes on may make again: the look at the data, fetches of single rows
#: and the pass that was under way, of which DPMeans makes several an iteration; and those of one
#: k-means of the sample, of up to 15 iterations.
AGAIN = {"pass": 5, "pass over a sample": 16}
#: The parts of one batch.
OF_PARTS = 60
NAMES = [
    "KMeans",
    "KMeans++",
    "nested",
    "maximin",
    "SemiSupervisedKMeans",
    "HierarchicalKMeans",
    "DPMeans",
    "GaussianMixture",
    "PCKID",
    "PCKMeans",
    "MPCKMeans",
    "PCSKMeans",
    "SparseKMeans",
    "COPKMeans",
    "LabelSpreading",
    "SpectralClustering",
]


def killed(name: str, n_kills: int, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "scripts" / "killed_fits.py"), name, str(n_kills), str(folder)],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        capture_output=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    first, *runs, chain = map(json.loads, done.stdout.splitlines())
    model, events = first["free"]["model"], first["whole"]["events"]
    # A checkpoint changes nothing, and costs no pass.
    assert first["whole"]["model"] == model
    n_passes = first["free"]["events"].count("pass")
    assert events.count("pass") == n_passes
    assert len(runs) >= n_kills
    for run in runs:
        assert run["killed"]["signal"] == signal.SIGKILL, run
        assert run["resumed"]["signal"] == 0, run
        assert run["resumed"]["model"] == model, run["at"]
        assert run["left"] == [], run["at"]
        # What was done is not done again.
        for kind, again in AGAIN.items():
            again = OF_PARTS if name == "HierarchicalKMeans" and kind != "pass" else again
            to_come = events[run["at"] :].count(kind)
            assert run["resumed"]["events"].count(kind) <= to_come + again, (kind, run["at"])
    # The kills were spread over all phases.
    assert {events[run["at"] - 1] for run in runs} == set(events)
    assert chain["last"]["signal"] == 0
    assert chain["n_runs"] > 1
    assert chain["last"]["model"] == model
    assert chain["left"] == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
@pytest.mark.parametrize("name", ["PCSKMeans", "LabelSpreading"])
def test_four_kills_change_nothing(name, tmp_path):
    killed(name, 4, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
@pytest.mark.parametrize("name", NAMES)
def test_twenty_kills_in_all_phases_change_nothing(name, tmp_path):
    killed(name, 22, tmp_path)
