"""An interrupted fit resumes and leads to an identical model."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import dask.array as da
import numpy as np
import pytest

import daskclust
from daskclust import KMeans
from daskclust.core.engine import Checkpoint, Fingerprint, open_rows
from daskclust.core.engine.rows import OpenRows
from daskclust.core.initialization import centers, samples
from daskclust.core.reduction import SURVEY, SurveyRequest
from daskclust.exceptions import CheckpointError

pytestmark = pytest.mark.usefixtures("synchronous")

X = np.random.default_rng(0).normal(size=(600, 3))
WEIGHT = np.random.default_rng(1).random(600)
OPTIONS = {"n_clusters": 5, "random_state": 1, "tol": 0.0}


class Interruption(Exception):
    pass


def interrupt(at: int):
    """A listener that ends the fit at an iteration."""

    def listener(record):
        if record["iteration"] == at:
            raise Interruption

    return daskclust.on_iteration(listener)


def digest(model: KMeans) -> tuple:
    """All of a model but the time it took."""
    history = [{k: v for k, v in r.items() if k != "seconds"} for r in model.history_]
    labels = model.labels_
    labels = labels if isinstance(labels, np.ndarray) else labels.compute()
    return (
        model.cluster_centers_.tobytes(),
        model.inertia_,
        model.n_iter_,
        labels.tobytes(),
        history,
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.ckpt"


@pytest.fixture
def passes(monkeypatch):
    """Names of the passes made since the list was cleared."""
    made: list[str] = []
    reduce = OpenRows.reduce

    def counting(self, reduction, state, carry=None):
        made.append(reduction.name)
        return reduce(self, reduction, state, carry)

    monkeypatch.setattr(OpenRows, "reduce", counting)
    return made


CASES = {
    "numpy": (X, {}, None),
    "dask": (da.from_array(X, chunks=(170, 3)), {}, None),
    "weighted": (X, {}, WEIGHT),
    "restarts": (X, {"init": "random", "n_init": 4}, None),
    "cosine": (X, {"metric": "cosine"}, None),
    "mahalanobis": (X, {"metric": "mahalanobis"}, None),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("at", [1, 3])
def test_an_interrupted_fit_goes_on_to_the_identical_model(case, at, path, passes):
    data, options, weight = CASES[case]
    options = {**OPTIONS, **options}
    whole = KMeans(**options).fit(data, sample_weight=weight)
    n_whole = len(passes)
    model = KMeans(**options, checkpoint=path)
    with interrupt(at), pytest.raises(Interruption):
        model.fit(data, sample_weight=weight)
    passes.clear()
    model.fit(data, sample_weight=weight)
    assert digest(model) == digest(whole)
    # No start was sampled again, and the iterations made were not repeated.
    assert "candidates" not in passes
    assert passes.count("assign") == len(whole.history_) - at
    assert len(passes) < n_whole


def test_two_fits_that_begin_at_once_with_one_checkpoint(path, monkeypatch):
    """The one that writes first keeps it; the other learns it before it has lost anything."""
    load, done = Checkpoint.load, []

    def loading(self, *arguments):
        found = load(self, *arguments)
        if not done:  # the second begins before the first has written anything
            done.append(KMeans(4, random_state=1))
            done[0].set_params(checkpoint=path).fit(X)
        return found

    monkeypatch.setattr(Checkpoint, "load", loading)
    with pytest.raises(CheckpointError, match=r"belongs to another fit: .*n_clusters was 4, is 5"):
        KMeans(**OPTIONS, checkpoint=path).fit(X)
    again = KMeans(4, random_state=1, checkpoint=path).fit(X)
    assert digest(again) == digest(done[0])


def test_a_fit_whose_checkpoint_is_taken_goes_on_and_says_so(path):
    wanted, other = KMeans(**OPTIONS).fit(X), KMeans(4, random_state=1, checkpoint=path)

    def take(record):
        if record["iteration"] == 2 and not hasattr(other, "labels_"):
            other.labels_ = None
            os.remove(path)
            other.fit(X)

    with (
        daskclust.on_iteration(take),
        pytest.warns(UserWarning, match="continues without a checkpoint"),
    ):
        found = KMeans(**OPTIONS, checkpoint=path).fit(X)
    assert digest(found) == digest(wanted)
    # It is the other one's.
    again = KMeans(4, random_state=1, checkpoint=path).fit(X)
    assert digest(again) == digest(other)


def test_a_finished_fit_is_only_looked_up(path, passes):
    first = KMeans(**OPTIONS, checkpoint=path).fit(X)
    passes.clear()
    second = KMeans(**OPTIONS, checkpoint=path).fit(X)
    assert digest(second) == digest(first)
    assert passes == ["survey"]


def test_more_iterations_may_be_added_later(path):
    KMeans(**OPTIONS, max_iter=2, checkpoint=path).fit(X)
    more = KMeans(**OPTIONS, max_iter=300, checkpoint=path).fit(X)
    assert digest(more) == digest(KMeans(**OPTIONS, max_iter=300).fit(X))


def test_a_fit_may_go_on_with_other_chunks(path):
    with interrupt(3), pytest.raises(Interruption):
        KMeans(**OPTIONS, checkpoint=path).fit(X)
    model = KMeans(**OPTIONS, checkpoint=path).fit(da.from_array(X, chunks=(111, 3)))
    whole = KMeans(**OPTIONS).fit(X)
    np.testing.assert_array_equal(model.labels_.compute(), whole.labels_)
    np.testing.assert_allclose(model.cluster_centers_, whole.cluster_centers_, rtol=1e-12)


#: Fits of more iterations than a good initialization needs.
LONG = {**OPTIONS, "init": "random", "n_init": 1}


def test_a_directory_is_given_a_file(tmp_path):
    KMeans(**LONG, checkpoint=tmp_path).fit(X)
    assert [f.name for f in tmp_path.iterdir()] == ["daskclust-checkpoint.npz"]
    assert KMeans(**LONG, checkpoint=str(tmp_path)).fit(X).n_iter_ > 3


def test_a_fit_without_a_checkpoint_writes_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    KMeans(**OPTIONS).fit(X)
    assert list(tmp_path.iterdir()) == []


# Files of a crash.


def half_written(file, **arrays):
    file.write(b"PK\x03\x04 half of a checkp")
    raise OSError("No space left on device")


def test_a_crash_while_writing_leaves_the_old_file(path, monkeypatch):
    with interrupt(2), pytest.raises(Interruption):
        KMeans(**OPTIONS, checkpoint=path).fit(X)
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", half_written)
        with pytest.raises(OSError, match="No space"):
            KMeans(**OPTIONS, checkpoint=path).fit(X)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    assert digest(KMeans(**OPTIONS, checkpoint=path).fit(X)) == digest(KMeans(**OPTIONS).fit(X))


def test_a_crash_before_the_file_is_put_in_place_leaves_the_old_file(path, monkeypatch):
    with interrupt(2), pytest.raises(Interruption):
        KMeans(**OPTIONS, checkpoint=path).fit(X)
    before = path.read_bytes()

    def crash(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            KMeans(**OPTIONS, checkpoint=path).fit(X)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


# Checkpoints that raise an error.


@pytest.fixture
def written(path):
    with interrupt(3), pytest.raises(Interruption):
        KMeans(**OPTIONS, checkpoint=path).fit(X)
    return path


OTHER_DATA = {
    "more rows": (np.concatenate([X, X[:1]]), "n_rows was 600, is 601"),
    "fewer features": (X[:, :2], "n_features was 3, is 2"),
    "another value": (np.where(np.arange(1800).reshape(600, 3) == 900, 0.5, X), "the data differ"),
    "another scale": (X * 1.001, "the data differ"),
    "rows reversed": (X[::-1].copy(), "the data differ"),
    "rows shuffled": (np.random.default_rng(2).permutation(X), "the data differ"),
    "columns permuted": (X[:, [1, 0, 2]].copy(), "the data differ"),
    "a column permuted": (np.column_stack([X[::-1, 0], X[:, 1:]]), "the data differ"),
}


@pytest.mark.parametrize("case", OTHER_DATA)
def test_a_checkpoint_of_other_data_is_refused(case, written):
    data, message = OTHER_DATA[case]
    before = written.read_bytes()
    with pytest.raises(CheckpointError, match=f"belongs to another fit.*{message}.*Delete"):
        KMeans(**OPTIONS, checkpoint=written).fit(data)
    assert written.read_bytes() == before


def test_a_checkpoint_of_other_weights_is_refused(written):
    with pytest.raises(CheckpointError, match="the data differ"):
        KMeans(**OPTIONS, checkpoint=written).fit(X, sample_weight=WEIGHT)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n_clusters": 4}, "n_clusters was 5, is 4"),
        ({"random_state": 2}, "random_state was 1, is 2"),
        ({"tol": 1e-3}, "tol was 0.0, is 0.001"),
        ({"init": "random"}, r"init was 'k-means\|\|', is 'random'"),
        ({"init": X[:5]}, r"init was 'k-means\|\|', is 'array \(5, 3\)"),
        ({"n_init": 2}, "n_init was 'auto', is 2"),
        ({"metric": "cosine"}, "metric was 'euclidean', is 'cosine'"),
        ({"init_rounds": 2}, "init_rounds was 5, is 2"),
    ],
)
def test_a_checkpoint_of_other_parameters_is_refused(changed, message, written):
    with pytest.raises(CheckpointError, match=message):
        KMeans(**{**OPTIONS, **changed}, checkpoint=written).fit(X)


def first_rows(X, n_clusters, random_state):
    return X[:n_clusters]


def later_rows(X, n_clusters, random_state):
    return X[7 : 7 + n_clusters]


class Start:
    def __call__(self, X, n_clusters, random_state):
        return X[:n_clusters]


def test_a_function_is_identified_by_its_name(path):
    want = KMeans(5, init=first_rows, checkpoint=path, n_init=1).fit(X)
    again = KMeans(5, init=first_rows, checkpoint=path, n_init=1).fit(X)
    assert digest(again) == digest(want)
    with pytest.raises(CheckpointError, match=r"init was 'function .*first_rows', is .*later_rows"):
        KMeans(5, init=later_rows, checkpoint=path, n_init=1).fit(X)


@pytest.mark.parametrize(
    "init",
    [lambda X, k, r: X[:k], partial(first_rows), Start(), Start().__call__],
    ids=["lambda", "partial", "object", "method"],
)
def test_a_callable_without_a_name_has_no_checkpoint(init, path):
    KMeans(5, init=init, n_init=1).fit(X)
    with pytest.raises(CheckpointError, match=r"init=.*no identity.*checkpoint=None"):
        KMeans(5, init=init, n_init=1, checkpoint=path).fit(X)
    assert not path.exists()


def test_a_checkpoint_of_another_estimator_is_refused(written):
    class Other(KMeans):
        pass

    with pytest.raises(CheckpointError, match="estimator was 'KMeans', is 'Other'"):
        Other(**OPTIONS, checkpoint=written).fit(X)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04", b"\x93NUMPY"])
def test_a_file_that_is_no_checkpoint_is_refused(content, path):
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is not a readable daskclust checkpoint"):
        KMeans(**OPTIONS, checkpoint=path).fit(X)
    assert path.read_bytes() == content


def test_a_truncated_file_is_refused_wherever_it_ends(written):
    whole = written.read_bytes()
    for length in np.linspace(0, len(whole) - 1, 40).astype(int):
        written.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            KMeans(**OPTIONS, checkpoint=written).fit(X)


def test_a_file_with_pickled_objects_is_refused_and_not_executed(path, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    with path.open("wb") as file:
        np.savez(file, meta=np.array([Evil()], dtype=object))
    with pytest.raises(CheckpointError):
        KMeans(**OPTIONS, checkpoint=path).fit(X)
    assert not (tmp_path / "executed").exists()


def test_a_newer_format_is_refused(written):
    with np.load(written) as file:
        arrays = dict(file)
    meta = arrays["meta"].tobytes().replace(b'"format": 3', b'"format": 9')
    arrays["meta"] = np.frombuffer(meta, np.uint8)
    with written.open("wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(
        CheckpointError, match=r"is not a readable daskclust checkpoint \(it has format 9, and this"
    ):
        KMeans(**OPTIONS, checkpoint=written).fit(X)


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"must be in an existing directory.*nowhere"):
        KMeans(**OPTIONS, checkpoint=tmp_path / "nowhere" / "fit").fit(X)


# The driver by itself.


@dataclass(frozen=True)
class Counter:
    value: int
    note: np.ndarray | None = None


def fingerprint():
    survey = open_rows(X).reduce(SURVEY, SurveyRequest(3, hashed=True))
    return Fingerprint("Test", {"a": 1}, len(X), survey)


@pytest.mark.parametrize("note", [None, np.arange(3.0)])
def test_a_state_comes_back_as_it_was(note, path):
    checkpoint = Checkpoint(path, fingerprint())
    assert checkpoint.load(Counter) is None
    checkpoint.save(Counter(7, note), [{"iteration": 1}], finished=True, passes=4)
    found = Checkpoint(path, fingerprint()).load(Counter)
    assert found.state.value == 7
    np.testing.assert_array_equal(found.state.note, note)
    assert found.history == [{"iteration": 1}]
    assert found.finished is True
    assert found.passes == 4


# Identity of fits, in addition to plain parameters.


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_generators_are_told_apart_by_their_state(make, path):
    whole = KMeans(5, random_state=make(0)).fit(X)
    with interrupt(1), pytest.raises(Interruption):
        KMeans(5, random_state=make(0), checkpoint=path).fit(X)
    assert digest(KMeans(5, random_state=make(0), checkpoint=path).fit(X)) == digest(whole)
    used = make(0)
    used.random()
    for other in (make(1), used):
        with pytest.raises(CheckpointError, match="random_state was"):
            KMeans(5, random_state=other, checkpoint=path).fit(X)


def test_another_version_does_not_go_on(written, monkeypatch):
    before = written.read_bytes()
    monkeypatch.setattr("daskclust.core.engine.checkpoint.__version__", "99.1")
    with pytest.raises(
        CheckpointError,
        match=r"was written by daskclust 0\.2\.0, and this is 99\.1, whose iterations may",
    ):
        KMeans(**OPTIONS, checkpoint=written).fit(X)
    assert written.read_bytes() == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, Interruption])
def test_what_ends_a_fit_names_the_checkpoint(error, path):
    def stop(record):
        raise error

    with daskclust.on_iteration(stop):
        with pytest.raises(error) as caught:
            KMeans(**OPTIONS, checkpoint=path).fit(X)
        (note,) = caught.value.__notes__
        assert str(path) in note
        with pytest.raises(error) as caught:
            KMeans(**OPTIONS).fit(X)
    assert not hasattr(caught.value, "__notes__")


def test_rows_are_hashed_only_for_a_checkpoint(path, monkeypatch):
    asked = []
    reduce = OpenRows.reduce

    def watching(self, reduction, state, carry=None):
        if reduction is SURVEY:
            asked.append(state.hashed)
        return reduce(self, reduction, state, carry)

    monkeypatch.setattr(OpenRows, "reduce", watching)
    KMeans(**OPTIONS).fit(X)
    KMeans(**OPTIONS, checkpoint=path).fit(X)
    assert asked == [False, True]


@pytest.mark.parametrize("as_data", [np.asarray, lambda x: da.from_array(x, chunks=(91, 3))])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_the_hash_is_the_same_however_the_data_are_held(as_data, dtype):
    x = (X * 100).astype(dtype)
    want = open_rows(x).reduce(SURVEY, SurveyRequest(3, hashed=True)).hash
    for data in (as_data(x), da.from_array(x, chunks=(100, 2)).persist()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert open_rows(data).reduce(SURVEY, SurveyRequest(3, hashed=True)).hash == want
    weight = np.ones(600)
    assert open_rows(x, weight).reduce(SURVEY, SurveyRequest(3, hashed=True)).hash == want
    weight[7] = 2
    assert open_rows(x, weight).reduce(SURVEY, SurveyRequest(3, hashed=True)).hash != want


def test_a_start_without_a_seed_begins_again(path):
    """Stages with other random numbers are dropped, not mixed with new ones."""

    def stop_at(count):
        passes = []

        def reduce(self, reduction, state, carry=None):
            passes.append(reduction.name)
            if len(passes) > count:
                raise Interruption
            return real_reduce(self, reduction, state, carry)

        return reduce

    real_reduce = OpenRows.reduce
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenRows, "reduce", stop_at(2))
        with pytest.raises(Interruption):
            KMeans(5, checkpoint=path).fit(X)
    model = KMeans(5, checkpoint=path).fit(X)
    assert model.history_[0]["passes"] == 3
    assert len(np.unique(model.cluster_centers_, axis=0)) == 5


def test_complete_stages_are_not_repeated(path, passes, monkeypatch):
    monkeypatch.setattr(samples, "_FIRST", 32)
    monkeypatch.setattr(samples, "_TRIED_EACH", 8)
    whole = KMeans(**OPTIONS).fit(X)
    assert passes.count("candidates") > 1
    draw = centers.draw_tries

    def stop(*_, **__):
        raise Interruption

    monkeypatch.setattr(centers, "draw_tries", stop)
    with pytest.raises(Interruption):
        KMeans(**OPTIONS, checkpoint=path).fit(X)
    monkeypatch.setattr(centers, "draw_tries", draw)
    passes.clear()
    assert digest(KMeans(**OPTIONS, checkpoint=path).fit(X)) == digest(whole)
    assert passes.count("candidates") == passes.count("farthest") == 0


@pytest.mark.parametrize("init", ["maximin", "k-means||"])
def test_starts_of_whitened_rows_have_their_width(init):
    flat = np.column_stack([X, np.zeros(600)])
    model = KMeans(5, init=init, metric="mahalanobis", random_state=0).fit(flat)
    want = KMeans(5, init=init, metric="mahalanobis", random_state=0).fit(X)
    assert model.inertia_ == pytest.approx(want.inertia_, rel=1e-6)
