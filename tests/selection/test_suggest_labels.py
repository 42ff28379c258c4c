"""Suggested rows: by hand, by brute force, for any chunks, and for invalid input."""

from __future__ import annotations

from itertools import pairwise

import dask
import dask.array as da
import numpy as np
import pytest
import xarray
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError

import daskclust
from daskclust import LabelSpreading, open_cube
from daskclust.core.engine import open_rows
from daskclust.core.reduction.connectivity import CELLS, CellRequest
from daskclust.exceptions import ConstraintError
from daskclust.selection import expected_gain, suggest_labels
from daskclust.semisupervised.active_learning import foresee, influence, spread_out
from daskclust.testing import CountingScheduler

pytestmark = [
    pytest.mark.filterwarnings("ignore::daskclust.exceptions.ConstraintWarning"),
    pytest.mark.usefixtures("few_trees"),
]

N = 600


def blobs(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Six groups in the plane."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 6, N)
    centers = np.array([[0, 0], [6, 0], [0, 6], [6, 6], [12, 0], [0, 12]], float)
    return centers[truth] + rng.normal(scale=0.7, size=(N, 2)), truth


def as_it_is(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


def first_column(x: np.ndarray) -> np.ndarray:
    return np.abs(x[:, :1]).clip(0, 1)


# The choice, by hand


def test_heavy_points_far_from_the_known_come_first() -> None:
    points = np.array([[0.0], [2.0], [3.0], [10.0]])
    # Distances to 0: 2, 3, 10; times mass: 20, 3, 10; then 8 (to the point at 2) against 1.
    picked = spread_out(points, np.array([5.0, 10.0, 1.0, 1.0]), np.array([[0.0]]), 3)
    assert picked.tolist() == [1, 3, 2]


def test_points_without_mass_and_points_on_known_ones_are_last_or_not_chosen() -> None:
    points = np.array([[0.0], [1.0], [1.0]])
    assert spread_out(points, np.array([1.0, 0.0, 2.0]), points[:1], 9).tolist() == [2, 0]


def test_greedy_choice_is_that_of_brute_force() -> None:
    rng = np.random.default_rng(1)
    points, mass, known = rng.normal(size=(30, 3)), rng.random(30), rng.normal(size=(2, 3))
    near, expected = [*known], []
    for _ in range(12):
        scores = [
            -1 if i in expected else mass[i] * min(np.linalg.norm(points[i] - q) for q in near)
            for i in range(30)
        ]
        expected.append(int(np.argmax(scores)))
        near.append(points[expected[-1]])
    assert spread_out(points, mass, known, 12).tolist() == expected


# The pass, by brute force


def test_cells_are_those_of_brute_force() -> None:
    x, _ = blobs()
    rng = np.random.default_rng(2)
    nodes, known = rng.normal(scale=6, size=(9, 2)), np.arange(0, N, 3)
    labeled = x[[7, 8]]
    vain = np.array([3, 402])
    request = CellRequest(as_it_is, nodes, known, labeled, first_column, 1, 5, 3, vain)
    table = open_rows(da.from_array(x, chunks=(77, 2))).reduce(CELLS, request)
    distances = ((x[:, None] - nodes) ** 2).sum(axis=2)
    cell = distances.argmin(axis=1)
    free = np.ones(N, bool)
    free[known] = free[[7, 8]] = False
    for k in range(9):
        mine = np.flatnonzero((cell == k) & free)
        best = mine[distances[mine, k].argmin()] if len(mine) else -1
        assert table.medoids[k] == best
        assert (table.drawn[k] in mine) if len(mine) else table.drawn[k] == -1
    assert_array_equal(table.counts, np.bincount(cell, minlength=9))
    doubts = np.bincount(cell, first_column(x)[:, 0], minlength=9)
    assert_allclose(table.uncertainties[:, 0], doubts, atol=N * 2.0**-21)
    assert table.n_free == free.sum()
    assert table.is_row.all()
    assert len(set(table.anywhere)) == 5
    assert free[table.anywhere].all()
    assert_array_equal(table.anywhere_cells, cell[table.anywhere])
    assert_array_equal(table.skipped, x[vain])


def test_points_that_are_no_rows_are_not_met() -> None:
    x, _ = blobs()
    request = CellRequest(as_it_is, x[:3], np.empty(0, np.int64), np.array([[99.0, 99.0], x[5]]))
    assert open_rows(x).reduce(CELLS, request).is_row.tolist() == [False, True]


# From end to end


def test_labels_as_an_array_as_rows_and_as_text_are_the_same() -> None:
    x, truth = blobs()
    rows = np.arange(0, N, 60)
    y = np.full(N, -1)
    y[rows] = truth[rows]
    expected = suggest_labels(x, 5, y=(rows, truth[rows]), random_state=1)
    assert_array_equal(suggest_labels(x, 5, y=y, random_state=1), expected)
    text = np.where(y >= 0, np.array(list("abcdef"))[y], "-1")
    assert_array_equal(suggest_labels(x, 5, y=text, random_state=1), expected)


def test_asked_in_vain_is_not_asked_again() -> None:
    x, truth = blobs()
    rows = suggest_labels(x, 20, random_state=0)
    answers = truth[rows].copy()
    answers[::2] = -1
    more = suggest_labels(x, 50, y=(rows, answers), random_state=0)
    assert not np.isin(more, rows).any()
    # Rows that cannot be labeled are avoided: group 0 has no labels.
    mute = suggest_labels(x, 1, y=([int(np.flatnonzero(truth == 0)[0])], [-1]), random_state=0)
    assert truth[mute[0]] != 0
    nothing = suggest_labels(x, 50, y=(rows, np.full(20, -1)), random_state=0)
    assert not np.isin(nothing, rows).any()


@pytest.mark.parametrize(
    ("sizes", "scheduler"), [((1, 0, 299, 300), "sync"), ((77,) * 7 + (61,), "threads")]
)
def test_chunks_and_schedulers_do_not_matter(sizes: tuple[int, ...], scheduler: str) -> None:
    x, truth = blobs()
    rows = np.arange(0, N, 60)
    expected = suggest_labels(x, 12, y=(rows, truth[rows]), random_state=3)
    chunked = da.concatenate([da.from_array(part) for part in np.split(x, np.cumsum(sizes)[:-1])])
    with dask.config.set(scheduler=scheduler):
        assert_array_equal(
            suggest_labels(chunked, 12, y=(rows, truth[rows]), random_state=3), expected
        )


def test_two_passes_beyond_the_fit() -> None:
    x, truth = blobs()
    rows = np.arange(0, N, 60)
    chunked = da.from_array(x, chunks=(100, 2))
    model = LabelSpreading(random_state=0).fit(chunked, (rows, truth[rows]))
    scheduler = CountingScheduler()
    with dask.config.set({"scheduler": scheduler, "daskclust.persist-fraction": 0.0}):
        found = suggest_labels(chunked, 20, model=model, y=(rows, truth[rows]), random_state=0)
        assert scheduler.calls == 2
        without = suggest_labels(chunked, 20, model=model, random_state=0)
    assert_array_equal(found, without)  # the model knows its rows
    assert not np.isin(found, rows).any()


def test_a_saved_model_asks_the_same(tmp_path) -> None:
    x, truth = blobs()
    rows = np.arange(0, N, 60)
    model = LabelSpreading(random_state=0).fit(x, (rows, truth[rows]))
    model.save(tmp_path / "model.zarr")
    again = daskclust.load(tmp_path / "model.zarr")
    assert_array_equal(
        suggest_labels(x, 5, model=again, random_state=0),
        suggest_labels(x, 5, model=model, random_state=0),
    )


@pytest.mark.filterwarnings("ignore:.* labeled pixels are left out")
def test_a_cube_whose_pixels_do_not_depend_on_its_blocks() -> None:
    rng = np.random.default_rng(0)
    image = rng.normal(scale=0.2, size=(24, 30, 4)) + np.repeat(np.arange(3), 10)[None, :, None]
    image[:5, :7] = np.nan
    places = np.arange(24 * 30).reshape(24, 30)
    found, labels = [], (np.arange(30) // 10 * np.ones((24, 1), int)).astype(int)
    for chunks in ((24, 30), (7, 11)):
        cube = open_cube(image, dims=("y", "x", "band"), chunks=chunks)
        _, place = cube.rows_of(places)
        assert len(place) == cube.n_valid  # rows, by their place in the image
        rows = suggest_labels(cube, 6, random_state=0)
        few = np.sort(rows)
        known = few, labels.ravel()[place[few]]
        more = suggest_labels(cube, 8, y=known, random_state=0)
        model = LabelSpreading(random_state=0).fit(cube, known)
        assert_array_equal(
            suggest_labels(cube, 8, y=known, model=model, random_state=5).shape, (8,)
        )
        found.append(place[np.concatenate([rows, more])])
    assert_array_equal(*found)


def test_one_class_so_far_explores() -> None:
    x, truth = blobs()
    rows = suggest_labels(x, 8, y=(np.flatnonzero(truth == 0)[:1], [0]), random_state=0)
    assert len(set(truth[rows]) - {0}) == 5


def test_labeled_rows_in_one_place_of_the_space() -> None:
    """The second column is noise beyond what the space keeps."""
    x = np.column_stack([np.arange(60.0) % 20, 1e-9 * (np.arange(60) >= 30)])
    model = LabelSpreading(views="raw", random_state=0).fit(x, ([0, 20, 40, 7], [0, 0, 0, 1]))
    assert len(suggest_labels(x, 5, model=model, random_state=0)) == 5


# Rows that must not be asked about


def test_excluded_rows_are_as_if_they_were_not_there() -> None:
    x, truth = blobs()
    # As many rows more, near the others, so that they would repel all questions.
    more = x + np.random.default_rng(5).normal(scale=0.3, size=x.shape)
    both, mask = np.concatenate([x, more]), np.arange(2 * N) >= N
    assert_array_equal(
        suggest_labels(both, 12, exclude=mask, random_state=0),
        suggest_labels(x, 12, random_state=0),
    )
    rows = np.arange(0, N, 60)
    model = LabelSpreading(random_state=0).fit(x, (rows, truth[rows]))
    given = {"y": (rows, truth[rows]), "model": model, "random_state": 0}
    expected = expected_gain(x, 12, **given)
    found = expected_gain(both, 12, exclude=mask, **given)
    assert_array_equal(found.rows, expected.rows)
    assert_allclose(found.changed, expected.changed)
    assert found.accuracy == pytest.approx(expected.accuracy)


@pytest.mark.filterwarnings("ignore:X has chunks of unknown length")
def test_all_forms_of_what_is_excluded_are_the_same() -> None:
    x, truth = blobs()
    mask = truth < 2
    rows = np.flatnonzero(truth == 3)[:3]
    expected = suggest_labels(x, 9, y=(rows, [3, 3, 3]), exclude=mask, random_state=0)
    assert not mask[expected].any()
    lazy, x_lazy = da.from_array(mask, chunks=70), da.from_array(x, chunks=(100, 2))
    numbers = np.flatnonzero(mask)[::-1]
    for data, exclude in (
        (x, mask.tolist()),
        (x, mask.astype(object)),
        (x, numbers),
        (x, lazy),
        (x_lazy, lazy),
        (x_lazy, mask),
        (x_lazy, numbers.tolist()),
        (x_lazy, da.from_array(numbers, chunks=50)),
        (x_lazy[x_lazy[:, 0] < np.inf], numbers),
        (x_lazy[x_lazy[:, 0] < np.inf], da.from_array(mask, chunks=100)),
    ):
        found = suggest_labels(data, 9, y=(rows, [3, 3, 3]), exclude=exclude, random_state=0)
        assert_array_equal(found, expected)
    assert_array_equal(
        suggest_labels(x, 9, exclude=[], random_state=0), suggest_labels(x, 9, random_state=0)
    )


def test_a_lazy_mask_takes_one_pass_of_its_own() -> None:
    x, truth = blobs()
    rows = np.arange(0, N, 60)
    chunked = da.from_array(x, chunks=(100, 2))
    model = LabelSpreading(random_state=0).fit(chunked, (rows, truth[rows]))
    scheduler = CountingScheduler()
    with dask.config.set({"scheduler": scheduler, "daskclust.persist-fraction": 0.0}):
        lazy = da.from_array(truth == 0, chunks=100)
        suggest_labels(chunked, 20, model=model, exclude=lazy, random_state=0)
        assert scheduler.calls == 3
        suggest_labels(chunked, 20, model=model, exclude=truth == 0, random_state=0)
        assert scheduler.calls == 5


@pytest.mark.filterwarnings("ignore:.* labeled pixels are left out")
def test_what_is_excluded_from_a_cube(tmp_path) -> None:
    pytest.importorskip("pyogrio")
    rng = np.random.default_rng(0)
    image = rng.normal(scale=0.2, size=(24, 30, 4)) + np.repeat(np.arange(3), 10)[None, :, None]
    image[:5, :7] = np.nan
    mask = np.zeros((24, 30), bool)
    mask[:, 6:20] = True
    ring = [[6, 24], [20, 24], [20, 0], [6, 0], [6, 24]]
    shape = {"type": "Polygon", "coordinates": [[[5e5 + 10 * x, 10 * y] for x, y in ring]]}
    (tmp_path / "roads.geojson").write_text(
        '{"type": "FeatureCollection", "crs": {"type": "name", "properties": {"name": '
        '"urn:ogc:def:crs:EPSG::32633"}}, "features": [{"type": "Feature", "properties": {}, '
        f'"geometry": {str(shape).replace(chr(39), chr(34))}}}]}}'
    )
    np.save(tmp_path / "roads.npy", mask.astype(np.uint8))
    found = []
    for chunks in ((24, 30), (7, 11)):
        place = {"crs_wkt": "EPSG:32633", "GeoTransform": "500000 10 0 240 0 -10"}
        scene = xarray.DataArray(
            image, dims=("y", "x", "band"), attrs={"grid_mapping": "spatial_ref"}
        )
        scene = scene.assign_coords(spatial_ref=xarray.DataArray(0, attrs=place))
        cube = open_cube(scene, chunks=chunks)
        _, place_of = cube.rows_of(np.arange(24 * 30).reshape(24, 30))
        rows, _ = cube.rows_of(mask)
        given = (
            mask,
            da.from_array(mask, chunks=(9, 9)),
            tmp_path / "roads.geojson",
            tmp_path / "roads.npy",
            mask.ravel()[place_of],
            da.from_array(mask.ravel()[place_of], chunks=(cube.block_counts,)),
            rows,
            rows.tolist(),
        )
        for exclude in given:
            asked = place_of[suggest_labels(cube, 6, exclude=exclude, random_state=0)]
            assert not mask.ravel()[asked].any()
            found.append(asked)
    for one, other in pairwise(found):
        assert_array_equal(one, other)


# Bad input


@pytest.mark.parametrize(
    ("exclude", "message"),
    [
        (
            np.zeros(5, bool),
            r"exclude must have one value per row of X \(600\), .* got shape \(5,\)",
        ),
        ([3, N], r"exclude must contain row numbers in \[0, 600\), got 600"),
        ([-1], r"exclude must contain row numbers in \[0, 600\), got -1"),
        ([0.5], r"exclude must be bool .* got dtype float64"),
        (np.zeros((N, 2), bool), r"exclude must be a mask .* got shape \(600, 2\)"),
        (np.ones(N, bool), "exclude must leave some of the 600 rows"),
        (np.arange(N), "exclude must leave some of the 600 rows"),
        (np.arange(N - 2), "between 1 and 2, the number of the 600 rows"),
        (np.ma.masked_array(np.zeros(N, bool), [True] + [False] * (N - 1)), "got masked values"),
    ],
)
def test_exclude_that_cannot_be_used(exclude, message: str) -> None:
    x, _ = blobs()
    with pytest.raises(ValueError, match=message):
        suggest_labels(x, 3, exclude=exclude)


def test_unknown_rows() -> None:
    x, _ = blobs()
    for row in (-1, N):
        with pytest.raises(ConstraintError, match=f"Row numbers of y must be in .*, got {row}"):
            suggest_labels(x, 1, y=([row], [0]))
        with pytest.raises(ConstraintError, match=f"Row numbers in y must be .*got {row}"):
            suggest_labels(x, 1, y=([row, 5], [-1, -1]))


def test_models_that_do_not_fit() -> None:
    x, truth = blobs()
    model = LabelSpreading(random_state=0).fit(x, (np.arange(9), truth[:9]))
    with pytest.raises(ValueError, match="9 of its 9 labeled rows are not in X"):
        suggest_labels(x + 1.0, 3, model=model)
    with pytest.raises(ValueError, match="3 features"):
        suggest_labels(np.zeros((50, 3)), 3, model=model)
    with pytest.raises(ValueError, match="got a KMeans"):
        suggest_labels(x, 3, model=daskclust.KMeans(2).fit(x))
    with pytest.raises(NotFittedError):
        suggest_labels(x, 3, model=LabelSpreading())
    many = LabelSpreading(5, random_state=0).fit(x, (np.arange(50), truth[:50]))
    with pytest.raises(ValueError, match="more labels than it stores"):
        suggest_labels(x, 3, model=many)
    assert suggest_labels(x, 3, model=many, y=(np.arange(50), truth[:50])).min() >= 50


@pytest.mark.parametrize("lazy", [False, True])
def test_nan_is_named(lazy: bool) -> None:
    x, _ = blobs()
    x[407, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        suggest_labels(da.from_array(x, chunks=(100, 2)) if lazy else x, 3)


# What a batch would bring


def test_answers_move_their_neighbors_as_the_covariance_says() -> None:
    graph = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    # (I - 0.9 S)^-1 of two connected nodes: [[1, 0.9], [0.9, 1]] / 0.19.
    moves = influence(graph, np.array([], int), np.array([0]), noise=0.0)
    assert_allclose(moves, [[1.0, 0.9, 0.0]])
    # A known neighbor leaves less to be learned, and moves less.
    after = influence(graph, np.array([1]), np.array([0]), noise=0.0)
    assert_allclose(after[0], [1.0, 0.0, 0.0], atol=1e-12)


def test_expected_changes_are_those_of_all_answers() -> None:
    """One question with two answers: by hand."""
    shares = np.array([[0.4, 0.6], [0.55, 0.45]])
    moves = np.array([[1.0, 0.5]])
    found = foresee(shares, np.array([1.0, 3.0]), np.array([0]), moves, 4000, 0)
    # Answer 0 (40 %): cell 0 turns to class 0, cell 1 moves to 0.85 and stays.
    # Answer 1 (60 %): cell 0 stays, cell 1 falls to 0.35 and turns.
    one = np.unique(found.changed.round(12))
    assert_allclose(one, [0.25, 0.75])
    assert_allclose(found.changed.mean(), 0.4 * 0.25 + 0.6 * 0.75, atol=0.02)
    before = 0.25 * 0.6 + 0.75 * 0.55
    gains = 0.25 + 0.75 * np.array([0.85, 0.65]) - before
    assert_allclose(np.unique(found.gain.round(12)), np.sort(gains.round(12)))


def test_the_expected_gain_falls_as_labels_come() -> None:
    x, truth = blobs()
    order = suggest_labels(x, 60, random_state=0)
    changes = []
    for count in (4, 12, 60):
        gain = expected_gain(x, 10, y=(order[:count], truth[order[:count]]), random_state=0)
        assert gain.n_labels == count
        assert (gain.changed_low <= gain.changed_high).all()
        assert_array_equal(
            gain.rows,
            suggest_labels(x, 10, y=(order[:count], truth[order[:count]]), random_state=0),
        )
        changes.append(gain.changed[-1])
    assert changes[0] > changes[2]
    assert changes[2] < 0.05


def test_nothing_is_expected_without_labels() -> None:
    x, _ = blobs()
    for y in (None, ([3], [-1])):
        with pytest.raises(ConstraintError, match="at least one label"):
            expected_gain(x, 3, y=y)
