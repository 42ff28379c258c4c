"""The map of errors in a report, beside a comparison pixel by pixel."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

import daskclust
from daskclust.app.report import write_report

NAMES = {3: "water", 5: "wheat", 8: "oats"}


def read(path):
    """Return the picture, the colors of its legend, and the table."""
    page = path.read_text(encoding="utf-8")
    section = re.search(r"<section><h2>Errors of the map.*?</section>", page, re.DOTALL)[0]
    found = Image.open(io.BytesIO(base64.b64decode(re.search(r"base64,([^\"]*)", section)[1])))
    rows = re.findall(r"<tr>(.*?)</tr>", section.split("<tbody>")[1], re.DOTALL)
    cells = [[re.sub("<.*?>", "", cell) for cell in re.split(r"</t[hd]>", row)] for row in rows]
    colors = [bytes.fromhex(color) for color in re.findall(r"background:#(\w{6})", section)]
    return np.asarray(found.convert("RGB")), colors, section, {c[0]: c[1:4] for c in cells}


@pytest.fixture(scope="module")
def scene():
    """Rows of three classes; a third of oats lies where wheat does."""
    truth = np.repeat([3, 5, 8], 40).reshape(12, 10)
    image = np.random.default_rng(0).normal(truth[..., None] * 10.0, 0.1, (12, 10, 2))
    image[8, :, :] = image[4, :, :]
    image[0, 0] = np.nan
    return daskclust.open_cube(image, dims=("y", "x", "band")), truth


@pytest.mark.parametrize("exchanged", [False, True])
def test_errors_are_those_of_a_comparison_by_pixel(scene, tmp_path, exchanged):
    cube, truth = scene
    few = np.full(truth.shape, -1)
    few[:, 3] = truth[:, 3]
    few[8, 3] = -1
    model = daskclust.SemiSupervisedKMeans(3, random_state=0)
    model.fit(cube.samples, cube.rows_of(few))
    known = np.where(np.arange(10) == 7, -1, truth)
    if exchanged:
        known = np.select([known == 3, known == 5], [5, 3], known)
    path = tmp_path / "report.html"
    write_report(path, cube=cube, model=model, truth=known, class_names=NAMES)
    picture, colors, section, table = read(path)
    codes = np.array(model.classes_)[np.array(model.cluster_classes_)]
    found = np.full(truth.shape, -1)
    found.ravel()[1:] = codes[np.asarray(model.labels_)]
    there = (found >= 0) & (known >= 0)
    right = there & (found == known)
    for place, code in enumerate(NAMES):
        wrong = there & ~right & (known == code)
        np.testing.assert_array_equal((picture == list(colors[place])).all(axis=2), wrong)
    np.testing.assert_array_equal((picture == list(colors[-1])).all(axis=2), right)
    said = {}
    for code in NAMES:
        own = there & (known == code)
        wrong = found[own & ~right]
        most = np.bincount(wrong).argmax() if len(wrong) else None
        other = "" if most is None else f"{NAMES[most]}, {(wrong == most).sum()}"
        said[str(code)] = [f"{(own & right).sum()}", f"{len(wrong)}", other]
    said["right, of any class"] = [f"{right.sum()}", f"{(there & ~right).sum()}", ""]
    assert table == said
    assert right.sum() == (there.sum() - 9 if not exchanged else 27)
    assert f"{right.sum()} pixels right, {(there & ~right).sum()} wrong" in section
    accuracy = f'<td class="n">{right.sum() / there.sum():.4f}</td>'
    assert accuracy in path.read_text(encoding="utf-8")
