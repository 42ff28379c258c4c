"""Classes, labels and undo history of a labeling session."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from daskclust.app.labeling.files import Label
from daskclust.colors import label_colors

#: Maximum number of characters of a name, and of answers that can be undone.
_MAX_NAME, _MAX_UNDO = 60, 200
#: Number of recent answers from which accuracy is estimated. Earlier models had fewer labels.
_RECENT = 20


class InvalidRequest(ValueError):
    """The request cannot be processed; the message gives the reason."""


class Class(NamedTuple):
    name: str
    color: str


class Share(NamedTuple):
    right: int
    total: int


@dataclass(frozen=True)
class _State:
    """State that an undo restores."""

    classes: tuple[Class, ...]
    labels: tuple[Label, ...]


def checked_name(name: Any, taken: Iterable[str] = ()) -> str:
    """Return the name of a class without spaces around it; a number must be a code."""
    text = " ".join(name.split()) if isinstance(name, str) else ""
    if not 0 < len(text) <= _MAX_NAME:
        raise InvalidRequest(f"A class needs a name of 1 to {_MAX_NAME} characters.")
    if text in taken:
        raise InvalidRequest(f"The class {text!r} exists already. Use another name.")
    try:
        float(text)
    except ValueError:
        return text
    if re.fullmatch(r"0|[1-9]\d{0,8}", text) is None:
        raise InvalidRequest(
            f"The name of a class must be text, or an integer of at least 0, got {text!r}."
        )
    return text


def checked_color(color: Any) -> str:
    """Return a color as ``#rrggbb`` in lower case."""
    if not isinstance(color, str) or re.fullmatch(r"#[0-9a-fA-F]{6}", color) is None:
        raise InvalidRequest(f"The color must be #rrggbb, got {str(color)[:20]!r}.")
    return color.lower()


class Session:
    """Classes and labels after each answer; `labels` come from an earlier session."""

    def __init__(
        self,
        shape: tuple[int, int],
        classes: Sequence[str] = (),
        labels: Sequence[Label] = (),
        colors: dict[str, str] | None = None,
    ) -> None:
        self.shape = shape
        self._state, self._past = _State((), ()), list[_State]()
        # The rules of the page apply, because other programs may have written the file.
        labels = [replace(each, name=each.name and checked_name(each.name)) for each in labels]
        for name in dict.fromkeys([*classes, *(each.name for each in labels if each.name)]):
            new = self._new(name, colors or {})
            self._state = replace(self._state, classes=(*self.classes, new))
        # Labels are added answer by answer, so that they can be undone.
        for step in dict.fromkeys(label.step for label in labels):
            self._set([label for label in labels if label.step == step])

    @property
    def classes(self) -> tuple[Class, ...]:
        return self._state.classes

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.classes]

    @property
    def labels(self) -> list[Label]:
        """Pixels with a class."""
        return [label for label in self._state.labels if label.name is not None]

    @property
    def skipped(self) -> list[Label]:
        """Pixels whose class is unknown to the person."""
        return [label for label in self._state.labels if label.name is None]

    @property
    def answers(self) -> list[Label]:
        return list(self._state.labels)

    @property
    def can_undo(self) -> bool:
        return bool(self._past)

    @property
    def about(self) -> dict[str, Any]:
        """Metadata that are saved with the labels."""
        return {"shape": list(self.shape), "classes": [each._asdict() for each in self.classes]}

    def assign(
        self,
        pixels: Sequence[tuple[int, int]],
        name: str | None,
        *,
        asked: bool = False,
        predicted: str | None = None,
    ) -> None:
        """Assign a class to pixels, or mark it as unknown; the last answer counts."""
        if name is not None and name not in self.names:
            raise InvalidRequest(
                f"The class {str(name)[:_MAX_NAME]!r} does not exist; add it first."
            )
        height, width = self.shape
        for row, column in pixels:
            if not (0 <= row < height and 0 <= column < width):
                raise InvalidRequest(
                    f"The pixel (row {row}, column {column}) is outside the image of {height} x "
                    f"{width} pixels."
                )
        step = max((label.step for label in self._state.labels), default=0) + 1
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        self._set([Label(*pixel, name, now, step, asked, predicted) for pixel in pixels])

    def _set(self, labels: Sequence[Label]) -> None:
        new = {label.pixel: label for label in labels}
        unchanged = [each for each in self._state.labels if each.pixel not in new]
        self._keep(replace(self._state, labels=(*unchanged, *new.values())))

    def _keep(self, state: _State) -> None:
        self._past = [*self._past, self._state][-_MAX_UNDO:]
        self._state = state

    def undo(self) -> None:
        if not self._past:
            raise InvalidRequest("There is nothing to undo.")
        self._past, self._state = self._past[:-1], self._past[-1]

    @contextmanager
    def restored_on_error(self) -> Iterator[None]:
        """Restore the state if an error occurs inside the context."""
        before = self._past, self._state
        try:
            yield
        except BaseException:
            self._past, self._state = before
            raise

    def _new(self, name: Any, colors: dict[str, str]) -> Class:
        name = checked_name(name, self.names)
        used = {each.color for each in self.classes}
        unused = next(c for c in label_colors(len(used) + 1) if c not in used)
        return Class(name, checked_color(colors.get(name, unused)))

    def add(self, name: Any) -> None:
        self._keep(replace(self._state, classes=(*self.classes, self._new(name, {}))))

    def change(self, name: Any, to: Any, color: Any) -> None:
        """Change the name and the color of a class and its labels."""
        self._check_known(name)
        others = [other for other in self.names if other != name]
        changed = Class(checked_name(to, others), checked_color(color))

        def renamed(text: str | None) -> str | None:
            return changed.name if text == name else text

        classes = tuple(changed if each.name == name else each for each in self.classes)
        labels = (
            replace(x, name=renamed(x.name), predicted=renamed(x.predicted)) for x in self.answers
        )
        self._keep(_State(classes, tuple(labels)))

    def remove(self, name: Any) -> None:
        """Remove a class and its labels."""
        self._check_known(name)
        classes = tuple(item for item in self.classes if item.name != name)
        self._keep(_State(classes, tuple(item for item in self._state.labels if item.name != name)))

    def _check_known(self, name: Any) -> None:
        if name not in self.names:
            raise InvalidRequest(f"The class {str(name)[:_MAX_NAME]!r} does not exist.")

    @property
    def accuracy(self) -> Share | None:
        """Fraction of the last answers that the model predicted; None without such answers.

        Only answers to questions count, because they are compared before the model uses them.
        """
        compared = [label for label in self.labels if label.asked and label.predicted is not None][
            -_RECENT:
        ]
        if not compared:
            return None
        return Share(sum(label.name == label.predicted for label in compared), len(compared))
