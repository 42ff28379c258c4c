"""The line of long fits: where it is shown, and where it is not."""

from __future__ import annotations

import io
import sys
import time
from types import SimpleNamespace

import dask
import numpy as np
import pytest
import tqdm.auto

import daskclust
from daskclust.core import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    found = Terminal()
    # Pytest takes sys.stderr back when it goes from the fixtures to the test.
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=found, modules=sys.modules))
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(progress, "_DELAY", 0.05)
    return found


def slow_fit(**more: object) -> daskclust.KMeans:
    """A fit of a few iterations, each of which waits for the bar to be drawn."""
    X = np.random.default_rng(0).normal(size=(300, 2))
    model = daskclust.KMeans(4, max_iter=3, n_init=1, init=X[:4], random_state=0, **more)

    class Slow(daskclust.KMeans):
        def _problem(self, data, read):  # type: ignore[no-untyped-def]
            found = super()._problem(data, read)
            step = found.step
            object.__setattr__(found, "step", lambda state: (time.sleep(0.15), step(state))[1])
            return found

    return Slow(**model.get_params()).fit(X)


def test_a_long_fit_shows_itself_on_a_terminal(terminal: Terminal) -> None:
    model = slow_fit()
    text = terminal.getvalue()
    last = text.replace("\r", "\n").strip().splitlines()[-1]
    assert f"Slow: iteration {model.n_iter_}/3, " in last
    assert f"objective {model.history_[-1]['objective']:.6g}" in last
    # Finishing takes one more.
    assert f"pass {model.history_[-1]['passes'] + 1}, " in last
    assert len(text.split("\r")) > 4, "it moves"


def test_it_is_not_shown(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    with dask.config.set({"daskclust.progress": False}):
        slow_fit()
    with daskclust.on_iteration(lambda record: None):
        slow_fit()
    monkeypatch.setenv("CI", "true")
    slow_fit()
    monkeypatch.delenv("CI")
    log = io.StringIO()
    monkeypatch.setattr(progress.sys, "stderr", log)
    slow_fit()
    assert log.getvalue() == ""
    assert terminal.getvalue() == ""


def test_a_short_fit_shows_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_DELAY", 600.0)
    began = time.monotonic()
    daskclust.KMeans(2, random_state=0).fit(np.random.default_rng(0).normal(size=(50, 2)))
    assert time.monotonic() - began < 500
    assert terminal.getvalue() == ""


def test_a_fit_that_fails_closes_its_bar(terminal: Terminal) -> None:
    def fail(X, n_clusters, random_state):  # type: ignore[no-untyped-def]
        time.sleep(0.2)
        raise RuntimeError("no start")

    with pytest.raises(RuntimeError, match="no start"):
        daskclust.KMeans(2, init=fail).fit(np.random.default_rng(0).normal(size=(50, 2)))
    assert terminal.getvalue() == ""
    # The next fit has a bar again.
    slow_fit()
    assert "Slow: " in terminal.getvalue()


def test_a_notebook_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Bar(tqdm.auto.tqdm):
        def set_description_str(self, desc: str | None = None, refresh: bool = True) -> None:
            shown.append(str(desc))

    class ZMQInteractiveShell:
        pass

    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(progress, "_DELAY", 0.05)
    monkeypatch.setattr(tqdm.auto, "tqdm", Bar)
    module = SimpleNamespace(get_ipython=ZMQInteractiveShell)
    monkeypatch.setitem(sys.modules, "IPython", module)
    slow_fit()
    assert any(text.startswith("Slow: iteration ") for text in shown)
