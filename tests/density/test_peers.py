"""scikit-learn's own tests of trees and density, on these classes: see ``scikit_learns.py``."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import daskclust

MODULES = ("test_dbscan", "test_hdbscan", "test_hierarchical")


def test_of_scikit_learn(tmp_path):
    settings = tmp_path / "pytest.ini"
    settings.write_text("[pytest]")
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(settings), "-p", "scikit_learns"]
    command += ["-p", "no:cacheprovider", "--pyargs", "--tb=short"]
    command += [f"sklearn.cluster.tests.{module}" for module in MODULES]
    # This checkout, whose kernels are compiled, and the plugin beside this file.
    folders = [str(Path(__file__).parent), os.environ["PYTHONPATH"]]
    found = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert found.returncode == 0, found.stdout[-5000:]
    passed = re.search(r"(\d+) passed", found.stdout)
    assert passed is not None
    assert int(passed[1]) >= 20


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_clusters_have_the_least_size():
    # scikit-learn's test of this has 198 sizes; some say as much.
    found = importlib.import_module("sklearn.cluster.tests.test_hdbscan")
    for size in (2, 3, 7, 20, 60, 150):
        labels = daskclust.HDBSCAN(size).fit_predict(found.X)
        if labels.max() >= 0:
            assert np.bincount(labels[labels >= 0]).min() >= size
