"""Names of classes that are nearly the same are probably one class."""

from __future__ import annotations

import numpy as np
import pytest

import daskclust
from daskclust.core.class_names import similar_names, text_of_similar
from daskclust.exceptions import DaskclustWarning


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Grunland", "Grünland"),
        ("wheat", "Wheat"),
        ("a", "A"),
        ("bare soil", "baresoil"),
        ("bare  soil ", "bare soil"),
        ("Forêt", "foret"),
        ("maise", "maize"),
        ("meadow", "meadows"),
        ("barley", "barly"),
    ],
)
def test_slips(one: str, other: str) -> None:
    assert similar_names([one, "zzz", other, one]) == [tuple(sorted((one, other)))]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("C3", "C4"),
        ("oats", "oat"),
        ("rye", "rice"),
        ("field 1", "field 2"),
        ("cluster_1", "cluster_11"),
        ("winter wheat", "summer wheat"),
        ("barley", "parsley"),
        ("maize", "maizaa"),
    ],
)
def test_classes_of_their_own(one: str, other: str) -> None:
    assert similar_names([one, other]) == []
    assert text_of_similar([one, other]) == ""


def test_labels_of_a_table_warn() -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = np.array(["-1"] * 60, dtype="U8")
    y[[0, 1, 2, 3]] = "Grünland", "Grunland", "maize", "maize"
    with pytest.warns(DaskclustWarning, match="'Grunland' and 'Grünland'. They are treated as"):
        daskclust.LabelSpreading(random_state=0, classifier=None).fit(X, y)
