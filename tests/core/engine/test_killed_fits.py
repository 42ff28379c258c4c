"""If the client is killed at any time, the same fit resumes and leads to the same model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
#: Passes that a resumed fit may repeat besides those since the checkpoint was last written: the
#: first pass, and fetches of single rows.
AGAIN = {"pass": 3, "pass over a sample": 0, "member": 0}
NAMES = [
    "KMeans",
    "SemiSupervisedKMeans",
    "HierarchicalKMeans",
    "GaussianMixture",
    "PCKID",
    "PCSKMeans",
    "LabelSpreading",
    "SpectralClustering",
]


def killed(name: str, n_kills: int, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "scripts" / "killed_fits.py"), name, str(n_kills), str(folder)],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[2])},
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
    assert len(runs) >= min(n_kills, len(events))
    for run in runs:
        assert run["killed"]["signal"] == signal.SIGKILL, run
        assert run["resumed"]["signal"] == 0, run
        assert run["resumed"]["model"] == model, run["at"]
        assert run["left"] == [], run["at"]
        # Saved stages are not repeated.
        written = [i for i, event in enumerate(events[: run["at"]]) if event == "written"]
        since = written[-1] + 1 if written else 0
        for kind, again in AGAIN.items():
            to_come = events[since:].count(kind)
            assert run["resumed"]["events"].count(kind) <= to_come + again, (kind, run["at"])
    # The kills were spread over all phases.
    assert {events[run["at"] - 1] for run in runs} == set(events)
    assert chain["last"]["signal"] == 0
    assert chain["n_runs"] > 1
    assert chain["last"]["model"] == model
    assert chain["left"] == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
@pytest.mark.parametrize("name", ["PCSKMeans"])
def test_four_kills_change_nothing(name, tmp_path):
    killed(name, 4, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
@pytest.mark.parametrize("name", NAMES)
def test_twenty_kills_in_all_phases_change_nothing(name, tmp_path):
    killed(name, 22, tmp_path)
