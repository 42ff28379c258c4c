"""Suggested pairs: by hand, against random pairs, for any chunks, and invalid input."""

from __future__ import annotations

from itertools import combinations

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.metrics import adjusted_rand_score

from daskclust import PCKMeans, PCSKMeans, SpectralClustering, open_cube
from daskclust.exceptions import ConstraintError
from daskclust.selection import suggest_pairs
from daskclust.semisupervised.active_learning import (
    Answers,
    expected_questions,
    normalized_uncertainty,
)
from daskclust.testing import CountingScheduler

N = 800


def groups(seed: int = 0, spread: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    """Four classes, two of which are two blobs each."""
    rng = np.random.default_rng(seed)
    blob = rng.integers(0, 6, N)
    centers = np.array([[0, 0], [5, 0], [10, 0], [0, 5], [5, 5], [10, 5]], float)
    return centers[blob] + rng.normal(scale=spread, size=(N, 2)), np.array([0, 1, 0, 2, 3, 3])[blob]


def answers_to(pairs: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    same = truth[pairs[:, 0]] == truth[pairs[:, 1]]
    return pairs[same], pairs[~same]


def asked(x: np.ndarray, truth: np.ndarray, batches: int, size: int, seed: int = 0):
    must = cannot = np.empty((0, 2), np.int64)
    for _ in range(batches):
        pairs = suggest_pairs(x, size, must_link=must, cannot_link=cannot, random_state=seed)
        more = answers_to(pairs, truth)
        must, cannot = np.concatenate([must, more[0]]), np.concatenate([cannot, more[1]])
    return must, cannot


# By hand


def test_neighborhoods_are_apart_from_each_other() -> None:
    # Points 0 and 1 are together; 2 is apart from them; 3 is apart from 2 only; 4 from both.
    component = np.array([0, 0, 1, 2, 3])
    known = Answers.of(component, np.array([0, 3, 4, 4]), np.array([2, 2, 1, 2]))
    assert known.neighborhoods.tolist() == [0, 1, 3]
    assert known.undecided.tolist() == [2]
    assert known.knows(0, 1)
    assert known.knows(1, 2)  # by its must-link
    assert not known.knows(3, 0)


def test_questions_that_place_a_point() -> None:
    shares = np.array([[0.2, 0.5, 0.3]])
    # 0.5 x 1 + 0.3 x 2 + 0.2 x 3.
    assert expected_questions(shares) == pytest.approx([1.7])
    entropy = -(0.2 * np.log(0.2) + 0.5 * np.log(0.5) + 0.3 * np.log(0.3))
    assert normalized_uncertainty(shares) == pytest.approx([entropy / 1.7])


def test_the_first_batch_is_all_pairs_of_few_points_of_different_blobs() -> None:
    x, _ = groups()
    pairs = suggest_pairs(x, 15, random_state=0)
    points = np.unique(pairs)
    assert len(points) == 6
    assert {tuple(p) for p in pairs.tolist()} == set(combinations(points.tolist(), 2))
    assert len({tuple(p) for p in (x[points] / 5).round().astype(int).tolist()}) == 6


# From end to end


def test_nothing_is_asked_whose_answer_is_known() -> None:
    x, truth = groups()
    must = cannot = np.empty((0, 2), np.int64)
    seen: set[tuple[int, int]] = set()
    for _ in range(5):
        pairs = suggest_pairs(x, 12, must_link=must, cannot_link=cannot, random_state=1)
        assert pairs.dtype == np.int64
        assert pairs.shape == (12, 2)
        assert (pairs[:, 0] < pairs[:, 1]).all()
        new = {tuple(p) for p in pairs.tolist()}
        assert len(new) == 12
        assert not new & seen
        seen |= new
        more = answers_to(pairs, truth)
        must, cannot = np.concatenate([must, more[0]]), np.concatenate([cannot, more[1]])
        # Nor anything that follows: the closure of what is known.
        parent = np.arange(N)
        for a, b in must:
            parent[parent == parent[a]] = parent[b]
        apart = {frozenset((parent[a], parent[b])) for a, b in cannot}
        following = suggest_pairs(x, 12, must_link=must, cannot_link=cannot, random_state=1)
        for a, b in following:
            assert parent[a] != parent[b]
            assert frozenset((parent[a], parent[b])) not in apart


@pytest.mark.filterwarnings("ignore:.* pairs are violated")
def test_asked_pairs_are_worth_more_than_random_ones() -> None:
    gains = {kind: [] for kind in (PCKMeans, PCSKMeans, SpectralClustering)}
    for seed in range(2):
        x, truth = groups(seed, spread=0.9)
        must, cannot = asked(x, truth, batches=4, size=15, seed=seed)
        rng = np.random.default_rng(seed)
        pairs = np.array([rng.choice(N, 2, replace=False) for _ in range(60)])
        for kind, scores in gains.items():
            found = [
                adjusted_rand_score(
                    truth,
                    kind(4, random_state=seed).fit(x, must_link=m, cannot_link=c).labels_,
                )
                for m, c in ((must, cannot), answers_to(pairs, truth))
            ]
            scores.append(found[0] - found[1])
    assert np.mean(gains[PCKMeans] + gains[PCSKMeans]) > 0
    # Carries links along the data, asked or not.
    assert np.mean(gains[SpectralClustering]) > -0.1


@pytest.mark.parametrize("chunk", [N, 77])
def test_chunks_do_not_matter(chunk: int) -> None:
    x, truth = groups()
    must, cannot = asked(x, truth, 1, 15)
    expected = suggest_pairs(x, 9, must_link=must, cannot_link=cannot, random_state=2)
    chunked = da.from_array(x, chunks=(chunk, 2))
    assert_array_equal(
        suggest_pairs(chunked, 9, must_link=must, cannot_link=cannot, random_state=2), expected
    )


def test_passes() -> None:
    import dask

    x, truth = groups()
    must, cannot = asked(x, truth, 1, 15)
    chunked, scheduler = da.from_array(x, chunks=(100, 2)), CountingScheduler()
    with dask.config.set({"scheduler": scheduler, "daskclust.persist-fraction": 0.0}):
        suggest_pairs(chunked, 9, random_state=2)
        assert scheduler.calls == 2
        suggest_pairs(chunked, 9, must_link=must, cannot_link=cannot, random_state=2)
        assert scheduler.calls == 2 + 3


def test_a_cube() -> None:
    rng = np.random.default_rng(0)
    image = rng.normal(scale=0.2, size=(24, 30, 4)) + np.repeat(np.arange(3), 10)[None, :, None]
    cube = open_cube(image, dims=("y", "x", "band"), chunks=(9, 30))
    pairs = suggest_pairs(cube, 5, random_state=0)
    assert 0 <= pairs.min() <= pairs.max() < cube.n_valid


def test_all_pairs_of_few_rows() -> None:
    x = np.array([[0.0], [1.0], [5.0], [9.0]])
    pairs = suggest_pairs(x, 6, random_state=0)
    assert {tuple(p) for p in pairs.tolist()} == set(combinations(range(4), 2))
    rest = suggest_pairs(x, 1, must_link=[(0, 1)], cannot_link=[(0, 2), (0, 3)], random_state=0)
    # Row 1 is as row 0 is; only rows 2 and 3 are not compared.
    assert rest.tolist() == [[2, 3]]


def test_more_than_can_be_asked() -> None:
    x = np.array([[0.0], [1.0], [5.0], [9.0]])
    with pytest.raises(
        ValueError, match="n must be at most 6, the number of pairs of 4 rows, got 7"
    ):
        suggest_pairs(x, 7)
    with pytest.raises(ValueError, match="n must be at most 1, the number of pairs"):
        suggest_pairs(x, 2, must_link=[(0, 1)], cannot_link=[(0, 2), (0, 3)])
    with pytest.raises(ValueError, match="n must be an integer >= 1, got 0"):
        suggest_pairs(x, 0)


def test_pairs_that_cannot_be() -> None:
    x, _ = groups()
    with pytest.raises(ConstraintError, match=str(N)):
        suggest_pairs(x, 3, must_link=[(0, N)])
    with pytest.raises(ConstraintError):
        suggest_pairs(x, 3, cannot_link=[(5, 5)])


# Bad input
