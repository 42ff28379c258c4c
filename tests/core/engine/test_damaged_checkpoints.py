"""A damaged checkpoint raises an error that says so, or has no effect."""

from __future__ import annotations

import warnings

import dask
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import daskclust
from daskclust.core.engine import checkpoint as module
from daskclust.core.engine.rows import OpenRows
from daskclust.exceptions import CheckpointError

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 3))
PAIRS = {"must_link": [[0, 1], [2, 9]], "cannot_link": [[0, 2], [5, 6]]}

FITS = {
    "loop": (
        lambda path: daskclust.KMeans(3, init="random", n_init=2, random_state=0, checkpoint=path),
        {},
        5,
    ),
    "stages": (
        lambda path: daskclust.KMeans(4, init="k-means++", random_state=0, checkpoint=path),
        {},
        4,
    ),
    "constrained": (
        lambda path: daskclust.PCSKMeans(3, init="random", random_state=0, checkpoint=path),
        PAIRS,
        5,
    ),
    "mixture": (
        lambda path: daskclust.GaussianMixture(
            2, init_params="random_from_data", max_iter=8, random_state=0, checkpoint=path
        ),
        {},
        5,
    ),
    "k-means before": (
        lambda path: daskclust.GaussianMixture(3, max_iter=5, random_state=0, checkpoint=path),
        {},
        3,
    ),
    "two parts": (
        lambda path: daskclust.PCKID(
            3, n_initializations=1, max_components=3, random_state=0, checkpoint=path
        ),
        {},
        6,
    ),
}


class Stop(Exception):
    pass


@pytest.fixture(autouse=True)
def _synchronous():
    with dask.config.set(scheduler="sync"):
        yield


def stopped(case, path, monkeypatch):
    """Write a checkpoint by a fit that is stopped at a pass."""
    make, given, at = FITS[case]
    passes = []

    def counting(self, *args):
        passes.append(1)
        if len(passes) == at:
            raise Stop
        return reduce(self, *args)

    with monkeypatch.context() as patch:
        reduce = OpenRows.reduce
        patch.setattr(OpenRows, "reduce", counting)
        with pytest.raises(Stop):
            make(path).fit(X, **given)
    return path


def labels_of(case, path):
    make, given, _ = FITS[case]
    model = make(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, **given)
    return model.labels_.tobytes()


def parts_of(path):
    return module._read(path)


# Each of these changes one thing about a file: (meta, arrays, random numbers) -> None.


@pytest.mark.parametrize("case", FITS)
def test_a_value_changed_without_the_seal_is_refused(case, tmp_path, monkeypatch):
    path = stopped(case, tmp_path / "fit.npz", monkeypatch)
    with np.load(path) as file:
        arrays = dict(file)
    name = next(n for n, a in arrays.items() if n != "meta" and a.size)
    changed = bytearray(arrays[name].tobytes())
    changed[-1] ^= 1
    arrays[name] = np.frombuffer(changed, arrays[name].dtype).reshape(arrays[name].shape)
    with path.open("wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(CheckpointError, match="its content has changed since it was written"):
        labels_of(case, path)


@pytest.mark.parametrize(
    "meta", [b"", b"[]", b"{}", b"3", b'"a"', b"null", b"\xff", b'{"format": 3}']
)
def test_a_header_of_another_kind_is_refused(meta, tmp_path):
    path = tmp_path / "fit.npz"
    with path.open("wb") as file:
        np.savez(file, meta=np.frombuffer(meta, np.uint8))
    with pytest.raises(CheckpointError, match="is not a readable daskclust checkpoint"):
        labels_of("loop", path)


def test_wrong_shapes_are_named(tmp_path, monkeypatch):
    path = stopped("loop", tmp_path / "fit.npz", monkeypatch)
    meta, arrays = parts_of(path)
    arrays["0.centers"] = arrays["0.centers"][:, :, :2]
    module._write(path, meta, arrays)
    message = r"centers must be .* got dtype float64 and shape \(2, 3, 2\)"
    with pytest.raises(CheckpointError, match=message):
        labels_of("loop", path)


def test_what_is_stopped_is_where_it_is_meant_to_be(tmp_path, monkeypatch):
    found = {}
    for case in FITS:
        path = stopped(case, tmp_path / f"{case}.npz", monkeypatch)
        found[case] = parts_of(path)[0]["parts"]
    stages = {
        case: [stage["name"] for stage in parts[-1].get("stages", [])]
        for case, parts in found.items()
    }
    assert stages["stages"] == ["sample"]
    assert stages["constrained"] == ["centers", "PCSKMeans (no constraints)"]
    assert stages["k-means before"] == ["centers", "GaussianMixture (k-means initialization)"]
    assert not stages["loop"]
    assert not stages["mixture"]
    assert len(found["two parts"]) == 2
