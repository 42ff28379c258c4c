"""Learning during labeling: prototypes once, and only the graph after each answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskclust.app.labeling.incremental import KeptGraph
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
_MOST = 150
#: Expected change of the map by the next answers, as a fraction, below which labeling may end.
_ENOUGH = 0.01


@dataclass(frozen=True)
class Learned:
    """State after an answer.

    `question` is the next pixel to ask about, and `predicted` its likely class. `shares` (cells,
    names) are class probabilities; None without labels. `change` is the fraction of the map that
    the next answers probably change; None with fewer than two classes. `sure` is the mean
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
        is_whole = self.shares is not None and bool(self.shares.any(axis=0).all())
        return is_whole and self.change is not None and self.change < _ENOUGH


class Learner:
    """Prototypes of a scene and the pixels to ask about; created by :meth:`of`."""

    def __init__(
        self, cube: Any, cells: Cells, pixels: Questions, graph: KeptGraph, seed: int
    ) -> None:
        self.cube, self.cells, self.seed = cube, cells, seed
        self._graph = graph
        self._spreads: dict[Any, Posterior] = {}
        self._width = int(cube.shape[1])
        self._links = normalized(cells.table.near.matrix(len(cells.nodes)))
        #: Pixels by row of the samples.
        places = pixels.lines * self._width + pixels.columns
        self._place = dict(zip(pixels.rows.tolist(), places.tolist(), strict=True))
        self._values = dict(zip(self._place.values(), pixels.spectra, strict=True))
        # An empty cell takes any row: it has no weight.
        some = int(pixels.rows[0])
        medoids = np.where(cells.table.medoids >= 0, cells.table.medoids, some)
        self._medoids = np.stack([self._values[self._place[int(row)]] for row in medoids])

    @classmethod
    def of(cls, cube: Any, seed: int, task: Callable[[str], Any], exclude: Any = None) -> Learner:
        """Find prototypes, cells and pixels of a cube of complete pixels as stored; some passes.

        Pixels that are True in the image `exclude` are never asked for.
        """
        none = np.empty(0, np.int64)
        with task("Cells (2 passes)"):
            cells = find_cells(open_for_questions(cube, None, exclude), none, _SPARE, seed)
        table = cells.table
        rows = np.unique(np.concatenate([table.medoids, table.drawn, table.anywhere]))
        with task("Pixels worth a question"):
            pixels = questions_of(cube, rows[rows >= 0])
        with task("Prototypes"):
            # Of all pixels: the fit that is saved learns from them, too.
            graph = KeptGraph.of(open_for_questions(cube, None), seed)
        return cls(cube, cells, pixels, graph, seed)

    def read(self, pixels: Sequence[tuple[int, int]]) -> list[Array | None]:
        """Return the values of pixels, None where they have no data; reads those not read yet."""
        places = [row * self._width + column for row, column in pixels]
        new = np.array(sorted({place for place in places if place not in self._values}), np.int64)
        if len(new):
            kept, values = self.cube.take_pixels(new)
            self._values.update(zip(new[kept].tolist(), values, strict=True))
        return [self._values.get(place) for place in places]

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
        x, wanted = self._taken([pixel for pixel, _ in known])
        kept = [known[i][1] for i in wanted]
        present = [name for name in names if name in set(kept)]
        codes = np.array([present.index(name) for name in kept], np.int64)
        seen = {row * self._width + column for row, column in (*skipped, *passed)}
        seen |= {row * self._width + column for (row, column), _ in known}
        posterior = self._spread(x, codes, len(present)) if len(codes) else None
        cells = self._cells(x, self._taken(skipped)[0], seen, posterior)
        picked, places = cells.choose(_BATCH)
        free = [int(row) for row in picked if self._place[int(row)] not in seen]
        question = divmod(self._place[free[0]], self._width) if free else None
        if posterior is None:
            return Learned(question)
        table = cells.table
        found = np.divide(
            table.uncertainties[:, DOUBTS:],
            table.counts[:, None],
            out=np.full((len(table.counts), len(present)), 1.0 / len(present)),
            where=table.counts[:, None] > 0,
        )
        change = 0.0 if len(present) > 1 else None
        if len(places) and len(present) > 1:
            moves = influence(self._links, cells.cells_of(cells.labeled), places)
            ahead = foresee(shares(found), table.counts, places, moves, _DRAWS, self.seed)
            change = float(ahead.changed[:, -1].mean())
        predicted = None
        if question is not None and len(present) > 1:
            predicted = present[int(posterior(self._values[self._place[free[0]]][None]).argmax())]
        all_of = np.zeros((len(found), len(names)))
        all_of[:, [list(names).index(name) for name in present]] = found
        sure = 1.0 - float(table.uncertainties[:, 1].sum() / table.counts.sum())
        return Learned(question, predicted, all_of, list(names), change, sure)

    def _taken(self, pixels: Sequence[tuple[int, int]]) -> tuple[Array, Ints]:
        """Return the values of those pixels that have data, and their positions."""
        kept = [(i, value) for i, value in enumerate(self.read(pixels)) if value is not None]
        if not kept:
            return np.empty((0, self._medoids.shape[1])), np.empty(0, np.int64)
        return np.stack([value for _, value in kept]), np.array([i for i, _ in kept])

    def _spread(self, x: Array, codes: Ints, n_classes: int) -> Posterior:
        if len(codes) > _MOST:
            some = draw_evenly(codes.astype(np.int32), n_classes, max(_MOST, n_classes), self.seed)
            x, codes = x[some], codes[some]
        key = x.tobytes(), codes.tobytes(), n_classes
        if key not in self._spreads:
            # Those of the last answer: one of the two is the same after the next.
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
                both, told = np.concatenate([x, skipped]), np.repeat([0, 1], [len(x), len(skipped)])
                uncertainties[:, 0] *= self._spread(both, told, 2)(self._medoids)[:, 0]

        def free(rows: Ints) -> Ints:
            asked = [row < 0 or self._place[row] in seen for row in rows.tolist()]
            return np.where(asked, -1, rows)

        left = free(table.anywhere) >= 0
        return replace(
            self.cells,
            labeled=space(x) if len(x) else self.cells.labeled,
            table=table._replace(
                uncertainties=uncertainties,
                medoids=free(table.medoids),
                drawn=free(table.drawn),
                anywhere=table.anywhere[left],
                anywhere_cells=table.anywhere_cells[left],
                skipped=space(skipped) if len(skipped) else table.skipped,
            ),
        )
