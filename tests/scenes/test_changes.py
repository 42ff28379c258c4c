"""Two label maps compared: which classes are the same, and what changed."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from daskclust.scenes import LabelMap
from daskclust.scenes._georeference import Georeference
from daskclust.scenes.label_map import compare_maps

NAMES = {3: "water", 7: "low vegetation", 9: "soil"}
UTM = {"crs": "EPSG:32632", "transform": [10.0, 0.0, 5e5, 0.0, -10.0, 5.5e6]}


def random_maps(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    old = rng.choice([-1, 3, 7, 9], size=(23, 31), p=[0.1, 0.3, 0.3, 0.3])
    new = np.where(rng.random(old.shape) < 0.8, old, rng.choice([-1, 3, 7, 9], size=old.shape))
    return old, new


def test_by_name_whatever_the_codes() -> None:
    old, new = random_maps(0)
    codes = np.full(10, -1)
    codes[[3, 7, 9]] = 5, 2, 0
    other = np.where(new < 0, -1, codes[new])
    names = {5: "water", 2: "low_vegetation", 0: "soil"}
    place = Georeference(UTM)
    found = compare_maps(
        LabelMap(old, names=NAMES, position=place), LabelMap(other, names=names, position=place)
    )
    assert found.compared_by == "name"
    assert found.legend.codes == (3, 7, 9)
    assert found.new_codes == {3: 5, 7: 2, 9: 0}
    both = (old >= 0) & (new >= 0)
    for i, a in enumerate((3, 7, 9)):
        for j, b in enumerate((3, 7, 9)):
            assert found.pixels[i, j] == ((old == a) & (new == b)).sum()
    assert found.square_meters is not None
    np.testing.assert_allclose(found.square_meters, found.pixels * 100.0)
    assert found.only_old == ((old >= 0) & (new < 0)).sum()
    assert found.only_new == ((old < 0) & (new >= 0)).sum()
    assert found.unchanged == (old == new)[both].mean()
    assert_array_equal(found.matched.values, new)
    changed = found.changed.values.compute()
    assert_array_equal(changed < 0, ~both)
    assert_array_equal(changed == 0, both & (old == new))
    for number, (a, b) in enumerate(found.transitions(), start=1):
        one, other_code = found.legend.codes[a], found.legend.codes[b]
        assert_array_equal(changed == number, (old == one) & (new == other_code))
        assert found.changed.name_of(number) == f"{NAMES[one]} -> {NAMES[other_code]}"
    sizes = [found.pixels[move] for move in found.transitions()]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("chunks", [(23, 31), (5, 7)])
def test_clusters_by_what_they_share(chunks: tuple[int, int]) -> None:
    import dask.array as da

    old, _ = random_maps(1)
    shifted = np.where(old < 0, -1, (old + 2) % 10)  # 3 -> 5, 7 -> 9, 9 -> 1
    shifted[:2] = 6
    colors = {3: "#0000ff"}
    found = compare_maps(
        LabelMap(da.from_array(old, chunks=chunks), names=NAMES, colors=colors),
        LabelMap(shifted, names={c: f"cluster_{c}" for c in (1, 5, 6, 9)}),
    )
    assert found.compared_by == "overlap"
    assert found.new_codes == {3: 5, 7: 9, 9: 1, 10: 6}
    assert found.legend.names == ("water", "low vegetation", "soil", "cluster_6")
    assert found.matched.color_of(3) == "#0000ff"
    assert found.square_meters is None
    assert_array_equal(found.matched.values[2:], old[2:])
    assert (found.matched.values[:2].compute() == 10).all()


def test_raw_codes_and_a_class_that_is_gone() -> None:
    found = compare_maps(LabelMap(np.array([[1, 4]])), LabelMap(np.array([[1, 1]])))
    assert found.compared_by == "code"
    assert found.pixels.tolist() == [[1, 0], [1, 0]]
    assert found.new_names == {1: "cluster_1"}


def test_what_cannot_be_compared() -> None:
    one = LabelMap(np.array([[1, 4]]), names={1: "a", 4: "b"})
    with pytest.raises(ValueError, match="no class in common by name"):
        compare_maps(one, LabelMap(np.array([[1, 4]]), names={1: "c", 4: "d"}))
    with pytest.raises(ValueError, match=r"pixels, the first one .* --resample"):
        compare_maps(one, LabelMap(np.array([[1, 4, 4]])))
    with pytest.raises(ValueError, match="nothing to compare"):
        compare_maps(one, LabelMap(np.array([[-1, -1]])))


def test_another_grid_is_brought_to_the_first() -> None:
    pytest.importorskip("pyproj")
    old = np.repeat(np.repeat(np.array([[0, 1], [1, 0]]), 4, 0), 4, 1)
    coarse = LabelMap(
        np.array([[0, 1], [1, 1]]),
        position=Georeference({**UTM, "transform": [40.0, 0.0, 5e5, 0.0, -40.0, 5.5e6]}),
    )
    fine = LabelMap(old, position=Georeference(UTM))
    with pytest.raises(ValueError, match="--resample"):
        compare_maps(fine, coarse)
    found = compare_maps(fine, coarse, resample=True)
    assert found.pixels.tolist() == [[16, 16], [0, 32]]
