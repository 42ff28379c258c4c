"""``daskclust doctor --compile``: kernels are compiled, kept, and found again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest

import daskclust
from daskclust.app.commands import _compiling
from daskclust.core.persistence.models import registry


def warm(cache: Path, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "daskclust", "doctor", "--compile", *flags],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache), **environment},
        capture_output=True,
        text=True,
        timeout=900,
    )


def test_all_estimators_are_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of trees and density were not, and the first fit of each waited for its kernels."""
    kinds = registry()
    fitted: set[str] = set()
    for name in kinds:
        model = MagicMock()
        model.fit.side_effect = lambda *args, name=name, model=model, **more: (
            fitted.add(name) or model
        )
        monkeypatch.setattr(daskclust, name, MagicMock(return_value=model))
    x = np.random.default_rng(0).normal(size=(300, 3))
    _compiling._fit_all(x, 3)
    assert fitted == set(kinds)


@pytest.mark.slow
def test_kernels_are_compiled_once(tmp_path: Path) -> None:
    first = warm(tmp_path, "--json")
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)
    assert found["compiled"] > 50
    assert found["folders"]
    assert all(folder.startswith(str(tmp_path)) for folder in found["folders"])
    again = json.loads(warm(tmp_path, "--json").stdout)
    assert again["compiled"] == 0
    assert again["from_cache"] > 50
    # What a fit in another process needs is there: nothing is compiled anew.
    code = (
        "import numpy as np, daskclust\n"
        "x = np.random.default_rng(1).normal(size=(500, 7)).astype('float32')\n"
        "daskclust.KMeans(4, random_state=0).fit(x)\n"
        "daskclust.HDBSCAN().fit(x)\n"
        "daskclust.DBSCAN().fit(x[:, :3])\n"
        "daskclust.AgglomerativeClustering(4).fit(x)\n"
        "from daskclust.app.commands._compiling import _kernels\n"
        "stats = {name: kernel.stats for name, kernel in _kernels().items()}\n"
        "missed = {n: s.cache_misses for n, s in stats.items() if s.cache_misses}\n"
        "assert not missed, missed\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


def test_help_says_where_kernels_are_kept(said: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = said("doctor", "--help")
    assert code == 0
    assert "NUMBA_CACHE_DIR" in out
