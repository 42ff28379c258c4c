"""Labels that flags name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from daskclust import open_cube
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
