"""Learning during labeling: prototypes once, and only the graph after each answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskclust.app.labeling.incremental import SampleGraph
from daskclust.core.array_types import Array, Floats, Ints
from daskclust.scenes.questions import Questions, questions_of
from daskclust.semisupervised.active_learning import (
    DOUBTS,
    Cells,
    Doubt,
    find_cells,
    foresee,
    influence,
    open_for_questions,
)
from daskclust.semisupervised.graph import normalized
from daskclust.semisupervised.node_labels import draw_evenly
from daskclust.semisupervised.predict import Posterior, shares

#: Number of questions whose effect is estimated, number of draws for the estimate, and number of
#: uniformly drawn rows that are used when every cell has been asked.
_BATCH, _DRAWS, _SPARE = 10, 50, 100
#: Maximum number of labels in the graph, which bounds the time of a refit. They are drawn evenly
#: from the classes.
_MAX_LABELS = 150
#: Expected change of the map by the next answers, as a fraction, below which labeling may end.
_ENOUGH = 0.01


@dataclass(frozen=True)
class Learned:
    """State after an answer.

    `question` is the next pixel to ask about, and `predicted` its likely class. `shares` (cells,
    names) are class probabilities; None without labels. `change` is the expected fraction of the
    map that the next answers change; None with fewer than two classes. `sure` is the mean
    probability of the predicted classes.
    """

    question: tuple[int, int] | None
    predicted: str | None = None
    shares: Floats | None = None
    names: Sequence[str] = ()
    change: float | None = None
    sure: float | None = None

    @property
    def is_enough(self) -> bool:
        # The map cannot contain a class without labels.
        all_classes_occur = self.shares is not None and bool(self.shares.any(axis=0).all())
        return all_classes_occur and self.change is not None and self.change < _ENOUGH


class Learner:
    """Prototypes of a scene and the pixels to ask about; created by :meth:`of`."""

    def __init__(
        self, cube: Any, cells: Cells, pixels: Questions, graph: SampleGraph, seed: int
    ) -> None:
        self.cube, self.cells, self.seed = cube, cells, seed
        self._graph = graph
        self._spreads: dict[Any, Posterior] = {}
        self._width = int(cube.shape[1])
        self._links = normalized(cells.table.near.matrix(len(cells.nodes)))
        #: Pixel numbers by row number of the samples.
        numbers = pixels.lines * self._width + pixels.columns
        self._pixel = dict(zip(pixels.rows.tolist(), numbers.tolist(), strict=True))
        self._values = dict(zip(self._pixel.values(), pixels.spectra, strict=True))
        # An empty cell has no weight, so any row can stand for it.
        any_row = int(pixels.rows[0])
        medoids = np.where(cells.table.medoids >= 0, cells.table.medoids, any_row)
        self._medoids = np.stack([self._values[self._pixel[int(row)]] for row in medoids])

    @classmethod
    def of(cls, cube: Any, seed: int, task: Callable[[str], Any], exclude: Any = None) -> Learner:
        """Find prototypes, cells and pixels of a cube with complete pixels, in a few passes.

        Pixels that are True in the image `exclude` are never suggested.
        """
        no_labels = np.empty(0, np.int64)
        with task("Cells (2 passes)"):
            cells = find_cells(open_for_questions(cube, None, exclude), no_labels, _SPARE, seed)
        table = cells.table
        rows = np.unique(np.concatenate([table.medoids, table.drawn, table.anywhere]))
        with task("Pixels worth a question"):
            pixels = questions_of(cube, rows[rows >= 0])
        with task("Prototypes"):
            # Prototypes of all pixels, also of excluded ones, as in the fit that is saved.
            graph = SampleGraph.of(open_for_questions(cube, None), seed)
        return cls(cube, cells, pixels, graph, seed)

    def read(self, pixels: Sequence[tuple[int, int]]) -> list[Array | None]:
        """Return the values of pixels, None for pixels without data; read new pixels."""
        numbers = [row * self._width + column for row, column in pixels]
        new = np.array(
            sorted({number for number in numbers if number not in self._values}), np.int64
        )
        if len(new):
            is_valid, values = self.cube.take_pixels(new)
            self._values.update(zip(new[is_valid].tolist(), values, strict=True))
        return [self._values.get(number) for number in numbers]

    def learn(
        self,
        names: Sequence[str],
        known: Sequence[tuple[tuple[int, int], str]],
        skipped: Sequence[tuple[int, int]] = (),
        passed: Sequence[tuple[int, int]] = (),
    ) -> Learned:
        """Spread the labels on the graph, and find the next question, without reading the scene.

        `skipped` are pixels without an answer. They are not suggested again, and similar pixels
        are suggested later. Pixels in `passed` are only not suggested again.
        """
        x, with_data = self._taken([pixel for pixel, _ in known])
        labels = [known[i][1] for i in with_data]
        present = [name for name in names if name in set(labels)]
        codes = np.array([present.index(name) for name in labels], np.int64)
        seen = {row * self._width + column for row, column in (*skipped, *passed)}
        seen |= {row * self._width + column for (row, column), _ in known}
        posterior = self._spread(x, codes, len(present)) if len(codes) else None
        cells = self._cells(x, self._taken(skipped)[0], seen, posterior)
        chosen, of_cells = cells.choose(_BATCH)
        unasked = [int(row) for row in chosen if self._pixel[int(row)] not in seen]
        question = divmod(self._pixel[unasked[0]], self._width) if unasked else None
        if posterior is None:
            return Learned(question)
        table = cells.table
        probabilities = np.divide(
            table.uncertainties[:, DOUBTS:],
            table.counts[:, None],
            out=np.full((len(table.counts), len(present)), 1.0 / len(present)),
            where=table.counts[:, None] > 0,
        )
        change = 0.0 if len(present) > 1 else None
        if len(of_cells) and len(present) > 1:
            effects = influence(self._links, cells.cells_of(cells.labeled), of_cells)
            ahead = foresee(
                shares(probabilities), table.counts, of_cells, effects, _DRAWS, self.seed
            )
            change = float(ahead.changed[:, -1].mean())
        predicted = None
        if question is not None and len(present) > 1:
            predicted = present[
                int(posterior(self._values[self._pixel[unasked[0]]][None]).argmax())
            ]
        shares_of_names = np.zeros((len(probabilities), len(names)))
        shares_of_names[:, [list(names).index(name) for name in present]] = probabilities
        sure = 1.0 - float(table.uncertainties[:, 1].sum() / table.counts.sum())
        return Learned(question, predicted, shares_of_names, list(names), change, sure)

    def _taken(self, pixels: Sequence[tuple[int, int]]) -> tuple[Array, Ints]:
        """Return the values of the pixels with data, and their positions."""
        with_data = [(i, value) for i, value in enumerate(self.read(pixels)) if value is not None]
        if not with_data:
            return np.empty((0, self._medoids.shape[1])), np.empty(0, np.int64)
        return np.stack([value for _, value in with_data]), np.array([i for i, _ in with_data])

    def _spread(self, x: Array, codes: Ints, n_classes: int) -> Posterior:
        if len(codes) > _MAX_LABELS:
            drawn = draw_evenly(
                codes.astype(np.int32), n_classes, max(_MAX_LABELS, n_classes), self.seed
            )
            x, codes = x[drawn], codes[drawn]
        key = x.tobytes(), codes.tobytes(), n_classes
        if key not in self._spreads:
            # Two results are stored, because an answer usually changes only one of them.
            self._spreads = dict([*self._spreads.items()][-1:])
            self._spreads[key] = self._graph.spread(x, codes, n_classes)
        return self._spreads[key]

    def _cells(
        self, x: Array, skipped: Array, seen: set[int], posterior: Posterior | None
    ) -> Cells:
        """Return the current cells: uncertainties, and pixels that may be suggested."""
        table, space = self.cells.table, self.cells.space
        if posterior is None:
            uncertainties = table.counts[:, None].copy()
        else:
            uncertainties = Doubt(posterior)(self._medoids) * table.counts[:, None]
            if len(skipped):
                # Pixels similar to pixels without an answer are suggested later.
                both, codes = (
                    np.concatenate([x, skipped]),
                    np.repeat([0, 1], [len(x), len(skipped)]),
                )
                uncertainties[:, 0] *= self._spread(both, codes, 2)(self._medoids)[:, 0]

        def unasked(rows: Ints) -> Ints:
            asked = [row < 0 or self._pixel[row] in seen for row in rows.tolist()]
            return np.where(asked, -1, rows)

        is_left = unasked(table.anywhere) >= 0
        return replace(
            self.cells,
            labeled=space(x) if len(x) else self.cells.labeled,
            table=table._replace(
                uncertainties=uncertainties,
                medoids=unasked(table.medoids),
                drawn=unasked(table.drawn),
                anywhere=table.anywhere[is_left],
                anywhere_cells=table.anywhere_cells[is_left],
                skipped=space(skipped) if len(skipped) else table.skipped,
            ),
        )
