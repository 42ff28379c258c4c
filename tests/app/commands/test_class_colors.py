"""Colors of classes out of files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import daskclust
from daskclust.app.commands._outputs import paint, read_class_colors
from daskclust.app.report.summary import legend_of

RASTER = """<qgis><pipe><rasterrenderer type="paletted"><colorPalette>
<paletteEntry value="1" label="low vegetation" color="#00FF10" alpha="255"/>
<paletteEntry value="2" label="" color="#0000ff"/></colorPalette></rasterrenderer></pipe></qgis>"""
VECTOR = """<qgis><renderer-v2 type="categorizedSymbol"><categories>
<category value="wheat" symbol="0"/><category value="" symbol="1"/></categories><symbols>
<symbol name="0"><layer><Option type="Map"><Option name="color" value="255,128,0,255"/></Option>
</layer></symbol><symbol name="1"><layer><prop k="color" v="1,2,3,255"/></layer></symbol>
</symbols></renderer-v2></qgis>"""


def test_files(tmp_path: Path) -> None:
    for name, text, wanted in (
        ("a.csv", "class,color\nwater,#0000FF\n 7 , #123456\n", ["water", "7"]),
        ("a.qml", RASTER, ["low vegetation", "2"]),
        ("b.qml", VECTOR, ["wheat"]),
    ):
        (tmp_path / name).write_text(text)
        found = read_class_colors(str(tmp_path / name))
        assert list(found) == wanted
    assert found == {"wheat": "#ff8000"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "water,blue\n", "must be #rrggbb, got 'blue'"),
        ("a.csv", "water,#0000ff,1\n", "must have the two fields class,color, got 3"),
        ("a.csv", "class,color\n", "must contain lines class,color"),
        ("a.qml", "<qgis>", "cannot be read as a QGIS style"),
    ],
)
def test_what_is_no_list_of_colors(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        read_class_colors(str(tmp_path / name))


def test_a_model_remembers_them(tmp_path: Path) -> None:
    def paint_by(model: object, *lines: str) -> str:
        (tmp_path / "a.csv").write_text("\n".join(lines))
        return "; ".join(paint(model, str(tmp_path / "a.csv")))

    y = ([0, 2], np.array(["low vegetation", "water"]))
    model = daskclust.SemiSupervisedKMeans(2).fit(np.array([[0.0], [1], [9]]), y)
    told = paint_by(model, "low_vegetation,#112233", "wheat,#445566")
    assert "contains 'wheat', which are not classes of the fit; " in told
    assert "lacks a color of 'water': " in told
    model.save(tmp_path / "m.zarr")
    legend = legend_of(daskclust.load(tmp_path / "m.zarr"))
    assert legend.color_by_code[0] == "#112233"
    assert legend.by_code == {0: "low vegetation", 1: "water"}
    clusters = daskclust.KMeans(2, random_state=0).fit(np.array([[0.0], [1], [9]]))
    assert paint_by(clusters, "1,#112233", "cluster_0,#000001") == ""
    assert legend_of(clusters).colors == ("#000001", "#112233")
    with pytest.raises(ValueError, match="must name a class of the fit"):
        paint_by(clusters, "water,#112233")
    with pytest.raises(ValueError, match="'1' and 'cluster_1' are the same class"):
        paint_by(clusters, "1,#112233", "cluster_1,#000001")
