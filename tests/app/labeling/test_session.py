"""What was said: classes, labels, and what is undone."""

from __future__ import annotations

import pytest

from daskclust.app.labeling.session import InvalidRequest, Session


def _session() -> Session:
    return Session((4, 5), ["water", "soil"])


def test_the_last_word_about_a_pixel_counts_and_undo_brings_the_one_before_back():
    session = _session()
    session.assign([(0, 0)], "water")
    session.assign([(0, 0), (1, 1)], "soil")
    assert [(one.row, one.column, one.name) for one in session.labels] == [
        (0, 0, "soil"),
        (1, 1, "soil"),
    ]
    session.undo()
    assert [(one.row, one.column, one.name) for one in session.labels] == [(0, 0, "water")]
    session.undo()
    assert not session.labels
    assert not session.can_undo
    with pytest.raises(InvalidRequest, match="nothing to undo"):
        session.undo()


def test_skipped_pixels_are_no_labels_until_they_get_one():
    session = _session()
    session.assign([(2, 3)], None, asked=True)
    assert not session.labels
    assert [(one.row, one.column) for one in session.skipped] == [(2, 3)]
    session.assign([(2, 3)], "soil")
    assert not session.skipped


def test_a_session_goes_on_where_it_was_and_can_undo_what_was_said_before():
    session = _session()
    session.assign([(0, 0), (0, 1)], "water")
    session.assign([(1, 1)], "soil", asked=True, predicted="water")
    session.change("soil", "earth", "#123456")
    colors = {one.name: one.color for one in session.classes}
    again = Session((4, 5), list(colors), session.answers, colors)
    assert again.answers == session.answers
    assert again.classes == session.classes
    assert again.accuracy == session.accuracy
    again.undo()
    assert [one.name for one in again.labels] == ["water", "water"]


def test_renaming_takes_labels_along_and_removing_removes_them():
    session = _session()
    session.assign([(0, 0)], "water", asked=True, predicted="soil")
    session.change("soil", "earth", "#00ff00")
    assert session.labels[0].predicted == "earth"
    session.change("water", "lake", "#0000ff")
    assert [one.name for one in session.labels] == ["lake"]
    session.remove("lake")
    assert session.names == ["earth"]
    assert not session.labels
    session.undo()
    assert session.names == ["lake", "earth"]
    assert [one.name for one in session.labels] == ["lake"]


@pytest.mark.parametrize(
    "name", ["", "  ", "x" * 61, None, 7, "water", " water ", "-1", "1.5", "nan", "1e3", "01"]
)
def test_names_that_no_class_can_have_are_refused(name):
    with pytest.raises(InvalidRequest):
        _session().add(name)


def test_colors_differ_and_others_are_refused():
    session = Session((2, 2), [f"class {i}" for i in range(30)])
    assert len({one.color for one in session.classes}) == 30
    with pytest.raises(InvalidRequest, match="color must be #rrggbb, got"):
        session.change("class 1", "class 1", "red")


def test_pixels_outside_and_unknown_classes_are_refused():
    with pytest.raises(InvalidRequest, match="outside"):
        _session().assign([(0, 0), (4, 0)], "water")
    with pytest.raises(InvalidRequest, match="The class 'fire' does not exist"):
        _session().assign([(0, 0)], "fire")


def test_the_accuracy_is_of_asked_pixels_with_a_forecast_the_last_twenty():
    session = Session((10, 10), ["a", "b"])
    assert session.accuracy is None
    session.assign([(0, 0)], "a", asked=True)  # no class was predicted
    session.assign([(0, 1)], "a", predicted="a")  # not asked
    assert session.accuracy is None
    for i in range(25):
        session.assign([(1 + i // 10, i % 10)], "a", asked=True, predicted="b" if i < 10 else "a")
    found = session.accuracy
    assert found is not None
    assert (found.right, found.total) == (15, 20)
