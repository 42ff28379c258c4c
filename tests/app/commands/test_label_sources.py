"""Labels that flags name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal

from daskclust import KMeans, open_cube
from daskclust.app.commands._cubes import open_labels
from daskclust.app.commands.requests import FitRequest
from daskclust.app.report.summary import known_classes


def test_values_that_mean_none_hide_no_named_class(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="needs the extra `raster`")
    cube = open_cube(np.ones((3, 4, 2)), dims=("y", "x", "band"))
    table = tmp_path / "few.csv"
    table.write_text("row,column,class\n0,1,wheat\n2,3,maize\n")
    for unlabeled in ((-1,), (0,)):
        options = FitRequest(
            labels=str(table), class_column=None, unlabeled=unlabeled, resample_labels=False
        )
        found = open_labels(cube, options, "labels")
        rows, labels = cube.rows_of(found, unlabeled=unlabeled)
        assert_array_equal(rows, [1, 11])
        assert_array_equal(labels, ["wheat", "maize"])
        assert_array_equal(known_classes(found, unlabeled) >= 0, found.values >= 0)


def test_the_named_column_is_taken_though_there_is_a_column_class(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="needs the extra `raster`")
    cube = open_cube(np.ones((3, 4, 2)), dims=("y", "x", "band"))
    (tmp_path / "few.csv").write_text("row,column,class,crop\n0,1,9,wheat\n2,3,9,maize\n")
    (tmp_path / "asked.csv").write_text("row,column,class\n1,1,rye\n")
    for name, wanted in (("few.csv", ["wheat", "maize"]), ("asked.csv", ["rye"])):
        options = FitRequest(
            labels=str(tmp_path / name), class_column="crop", unlabeled=(-1,), resample_labels=False
        )
        found = cube.rows_of(open_labels(cube, options, "labels"), unlabeled=(-1,))
        assert_array_equal(found[1], wanted)


@pytest.mark.filterwarnings("default::daskclust.exceptions.DaskclustWarning")
def test_a_truth_on_pixels_without_data_is_told(
    said: Callable[..., tuple[int, str, str]], address: str
) -> None:
    pytest.importorskip("pandas", reason="needs the extra `raster`")
    values = np.arange(1.0, 25.0).reshape(3, 4, 2)
    values[0, 1] = -9
    group = zarr.create_group("scene.zarr")
    names = ("y", "x", "band")
    array = group.create_array("scene", shape=values.shape, dtype="f8", dimension_names=names)
    array[:] = values
    array.attrs["nodata"] = -9
    Path("known.csv").write_text("row,column,class\n0,1,wheat\n2,3,maize\n1,1,wheat\n1,2,Wheat\n")
    KMeans(2, random_state=0).fit(open_cube("scene.zarr")).save("m.zarr")
    words = ("scene.zarr", "--model", "m.zarr", "--truth", "known.csv", "--scheduler", address)
    code, _, err = said("predict", *words)
    assert code == 0, err
    assert "1 of 4 labeled pixels are left out: 1 has no data" in " ".join(err.split())
    assert "nearly the same: 'Wheat' and 'wheat'" in " ".join(err.split())
