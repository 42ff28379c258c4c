"""Suggest rows to label, and estimate the effect of their labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from daskclust.core.array_types import Floats, Ints
from daskclust.core.engine import is_dask
from daskclust.core.estimator.fit_loop import draw_seeds
from daskclust.core.estimator.partial_labels import read_labels
from daskclust.core.estimator.validation import as_labels, check_integer
from daskclust.exceptions import ConstraintError
from daskclust.semisupervised.active_learning import (
    DOUBTS,
    Cells,
    find_cells,
    foresee,
    influence,
    open_for_questions,
)
from daskclust.semisupervised.graph import normalized
from daskclust.semisupervised.label_spreading import LabelSpreading
from daskclust.semisupervised.predict import shares


@dataclass(frozen=True)
class Questions:
    """Suggested rows, and the state from which they were chosen.

    ``cell_numbers`` are the cells of ``rows``.  ``n_labels`` is the number of known labels.
    """

    rows: Ints
    cell_numbers: Ints
    cells: Cells
    model: LabelSpreading | None
    n_labels: int
    seed: int


def suggest_labels(
    X: Any,
    n: int,
    *,
    y: Any = None,
    model: Any = None,
    exclude: Any = None,
    random_state: Any = None,
) -> Ints:
    """Suggest the rows whose labels would help most, ordered by importance.

    Use it to label rows for :class:`LabelSpreading` in batches, with a fit after each batch.

    Prototypes represent the rows, and are chosen one after another.  Each choice maximizes the
    product of the total uncertainty of its rows and the distance to the nearest row that is labeled
    or chosen.  So the rows of a batch differ.  Without labels all rows are equally uncertain, and
    the suggested rows are spread over the data.

    Parameters
    ----------
    X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube of shape (n_rows, p)
        Rows without NaN; for a cube its `samples`.
    n : int
        Number of rows.
    y : array-like or dask.array.Array of shape (n_rows,), or (rows, labels), optional
        Known labels, as for :meth:`LabelSpreading.fit`.  Labeled rows are not suggested again.
        In ``(rows, labels)``, the label -1 marks rows whose class could not be determined.  They
        are not suggested again, and similar rows are suggested later.
    model : LabelSpreading, optional
        Model fitted to X and its labels.  Default: a model with default parameters is fitted if
        there are labels.
    exclude : array-like or dask.array.Array of shape (n_rows,), bool, or row numbers, optional
        Rows that must not be suggested: True in a mask, or their numbers as integers.  For a
        Cube also a boolean image of shape (y, x), or the path of an image or vector file.
        Excluded rows do not influence the suggestion of other rows.  A lazy mask stays lazy.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.

    Returns
    -------
    ndarray of shape (n,), int64
        Global row numbers, all different.

    Raises
    ------
    ValueError
        If n is larger than the number of available rows; for NaN or infinity in X, a model of
        another class or for other data, and an `exclude` of another length, with row numbers out
        of range, or of all rows.
    ConstraintError
        For invalid labels, and row numbers out of range.
    NotFittedError
        For a model that is not fitted.

    See Also
    --------
    expected_gain : Estimate how much another batch of labels changes.
    suggest_pairs : Suggest pairs, if it is easier to compare two rows than to name a class.

    Notes
    -----
    *Passes* in addition to the fit: 1 draws a sample of 65 536 rows for the prototypes, and 1
    computes the uncertainty and the nearest row of each prototype, which takes as long as
    ``predict_proba``.  A mask in `exclude` takes one more pass, which reads only the mask.
    *Prototypes*: 4 per suggested row, but at least 400, and at most 2000 or a tenth of the rows.
    *To the client*: the sample, and tables of the prototypes.

    *The label -1 or* `exclude`: use -1 for rows that a person could not label.  Use `exclude` for
    rows that must not be labeled, such as roads, shadows and the background of a scene.  Excluded
    rows do not affect similar rows.  The model is fitted to all rows.

    Rows equal to a labeled row are not suggested.  A model stores at most ``2 n_prototypes``
    labels.  If there are more labels, also pass ``y``.

    Small batches are best: first 20 rows, then batches of 10 or 20 rows.

    Examples
    --------
    >>> import numpy as np
    >>> from daskclust.selection import suggest_labels
    >>> X = np.repeat([[0.0], [5.0], [9.0]], [50, 30, 20], axis=0)
    >>> X += np.random.default_rng(0).random(X.shape) / 10
    >>> rows = suggest_labels(X, 3, random_state=0)
    >>> np.sort(X[rows, 0].round()).tolist()
    [0.0, 5.0, 9.0]
    >>> more = suggest_labels(X, 2, y=(rows, [0, 1, 2]), random_state=0)
    >>> bool(np.isin(more, rows).any())
    False
    """
    return ask(X, n, y=y, model=model, exclude=exclude, random_state=random_state).rows


def ask(
    X: Any, n: int, *, y: Any, model: Any, exclude: Any = None, random_state: Any = None
) -> Questions:
    """Return the suggestions of :func:`suggest_labels`, with their intermediate results."""
    check_integer(n, "n", 1)
    (seed,) = draw_seeds(random_state, 1)
    _check_model(model)
    rows_to_skip, labeled = np.empty(0, np.int64), np.empty(0, np.int64)
    y = None if y is None else as_labels(y)
    if model is None and y is not None:
        data = open_for_questions(X, None, exclude)
        rows_to_skip, labeled = _rows_to_skip(y, data.rows.n_rows)
        if len(labeled):
            model = LabelSpreading(random_state=seed % 2**32).fit(X, y)
            data = replace(data, model=model)
    else:
        data = open_for_questions(X, model, exclude)
        if y is not None:
            rows_to_skip, labeled = _rows_to_skip(y, data.rows.n_rows)
        elif not data.knows_its_labels:
            raise ValueError(
                "y must be set, because model has more labels than it stores as nodes, got None. "
                "Pass y, so that labeled rows are not suggested again."
            )
    if not 1 <= n <= data.rows.n_rows - len(rows_to_skip):
        raise ValueError(_too_many(n, data.rows.n_rows - len(rows_to_skip), data.rows.n_rows))
    unlabelable = np.setdiff1d(rows_to_skip, labeled)
    cells = find_cells(data, rows_to_skip, int(n), seed, unlabelable)
    if n > cells.table.n_free:
        raise ValueError(_too_many(n, int(cells.table.n_free), data.rows.n_rows))
    rows, cell_numbers = cells.choose(int(n))
    n_labels = max(len(labeled), len(cells.labeled))
    return Questions(rows, cell_numbers, cells, model, n_labels, seed)


def _too_many(n: int, free: int, n_rows: int) -> str:
    if not free:
        return "X must have rows to suggest, got only rows that are labeled, excluded or -1 in y."
    return (
        f"n must be between 1 and {free}, the number of the {n_rows} rows of X that are not "
        f"labeled (or equal to a labeled row), excluded or listed with -1, got {n}. "
        "Use a smaller n."
    )


def _check_model(model: Any) -> None:
    if model is None:
        return
    if not isinstance(model, LabelSpreading):
        raise ValueError(
            f"model must be a fitted LabelSpreading, got a {type(model).__name__}. Omit model, and "
            "pass y."
        )
    check_is_fitted(model)


def _rows_to_skip(y: Any, n_rows: int) -> tuple[Ints, Ints]:
    """Return the rows that must not be suggested, and the labeled rows, in ascending order."""
    labels = read_labels(y, n_rows)
    if not isinstance(y, tuple) or is_dask(y):
        return labels.rows, labels.rows
    rows = np.unique(np.asarray(y[0], dtype=np.int64))
    if len(rows) and not 0 <= rows[0] <= rows[-1] < n_rows:
        row = int(rows[0] if rows[0] < 0 else rows[-1])
        raise ConstraintError(
            f"Row numbers in y must be in [0, {n_rows}), got {row}. Number all rows of X from 0."
        )
    return rows, labels.rows


#: Number of draws of labels, and quantile of the draws for lower and upper bounds.
_DRAWS, _TAIL = 50, 0.1


@dataclass(frozen=True)
class ExpectedGain:
    """Expected effect of a batch of labels; see :func:`expected_gain`.

    Attributes
    ----------
    rows : ndarray of shape (n,), int64
        Rows of the batch, as :func:`suggest_labels` suggests them.
    n_labels : int
        Number of known labels.
    accuracy : float
        Mean probability of the most probable class, over all rows that are not excluded.  It is
        the expected accuracy if the probabilities are correct.
    changed, changed_low, changed_high : ndarray of shape (n,), float64
        Fraction of these rows whose class changes after 1, 2, ... labels of the batch: mean, 10 %
        and 90 % quantile of the draws.
    gain, gain_low, gain_high : ndarray of shape (n,), float64
        Increase of ``accuracy`` after 1, 2, ... labels: mean, 10 % and 90 % quantile.
    """

    rows: Ints
    n_labels: int
    accuracy: float
    changed: Floats
    changed_low: Floats
    changed_high: Floats
    gain: Floats
    gain_low: Floats
    gain_high: Floats

    def plot(self, ax: Any = None) -> Any:
        """Draw the fraction of rows that change over the number of labels.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw into.  Default: axes of a new figure.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        from daskclust.plotting import own_axes

        ax = own_axes(ax)
        labels = self.n_labels + 1 + np.arange(len(self.rows))
        for values, low, high, text in (
            (self.changed, self.changed_low, self.changed_high, "rows whose class changes"),
            (
                self.gain,
                self.gain_low,
                self.gain_high,
                "increase of the expected accuracy",
            ),
        ):
            (line,) = ax.plot(labels, values, ".-", label=text)
            ax.fill_between(labels, low, high, color=line.get_color(), alpha=0.2, lw=0)
        ax.set(xlabel="labels", ylabel="fraction of all rows")
        ax.locator_params(axis="x", integer=True)
        ax.legend(frameon=False)
        return ax


def expected_gain(
    X: Any,
    n: int,
    *,
    y: Any = None,
    model: Any = None,
    exclude: Any = None,
    random_state: Any = None,
) -> ExpectedGain:
    """Estimate how much the next batch of labels would change.

    Use it to decide if you should label more rows.  If ``changed`` is near 0, another batch changes
    little.

    The batch is the rows of :func:`suggest_labels`.  Their labels are drawn 50 times from the
    model's class probabilities.  Each draw is propagated by a Gaussian field on the graph of
    prototypes, with the covariance of label spreading.

    Parameters
    ----------
    X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube of shape (n_rows, p)
        Rows without NaN; for a cube its `samples`.
    n : int
        Number of rows to label.
    y : array-like or dask.array.Array of shape (n_rows,), or (rows, labels), optional
        Known labels; required without `model`.
    model : LabelSpreading, optional
        See :func:`suggest_labels`.
    exclude : array-like or dask.array.Array of shape (n_rows,), bool, or row numbers, optional
        Rows that must not be suggested, see :func:`suggest_labels`.  The returned fractions ignore
        them.
    random_state : int, RandomState, Generator or None, default=None
        See :func:`suggest_labels`.

    Returns
    -------
    ExpectedGain

    Raises
    ------
    ConstraintError
        If y has no labels.
    ValueError
        If n is larger than the number of rows without a label; for NaN or infinity in X, a model of
        another class or for other data, and an invalid `exclude`.
    NotFittedError
        For a model that is not fitted.

    Notes
    -----
    *This is an estimate by the model, not a test.* If its probabilities are high but wrong, the
    estimate is near 0.  Classes without labels do not occur in the draws.  To measure the accuracy,
    hold out some random labels.

    *Passes* and *to the client*: see :func:`suggest_labels`.  *On the client*, with k prototypes
    and c classes: O(k^3 + n k c) time and matrices of ``8 k^2`` bytes.

    Examples
    --------
    >>> import numpy as np
    >>> from daskclust.selection import expected_gain
    >>> X = np.repeat([[0.0], [5.0]], 50, axis=0) + np.random.default_rng(0).random((100, 1))
    >>> result = expected_gain(X, 4, y=([0, 40, 50, 90], [0, 0, 1, 1]), random_state=0)
    >>> result.changed.shape, bool(result.accuracy > 0.9)
    ((4,), True)
    """
    check_integer(n, "n", 1)
    questions = ask(X, n, y=y, model=model, exclude=exclude, random_state=random_state)
    if questions.model is None:
        raise ConstraintError(
            "y must have at least one label without a model, got y without labels. Use "
            "suggest_labels for the first batch."
        )
    return gain_of(questions)


def gain_of(questions: Questions) -> ExpectedGain:
    """Return the expected gain of suggestions that were made with a model."""
    cells, table = questions.cells, questions.cells.table
    graph = normalized(table.near.matrix(len(cells.nodes)))
    moves = influence(graph, cells.cells_of(cells.labeled), questions.cell_numbers)
    probabilities = shares(table.uncertainties[:, DOUBTS:])
    effect = foresee(
        probabilities, table.counts, questions.cell_numbers, moves, _DRAWS, questions.seed
    )
    total = table.counts.sum()

    def bounds(values: Floats) -> tuple[Floats, Floats, Floats]:
        low, high = np.quantile(values, [_TAIL, 1 - _TAIL], axis=0)
        return values.mean(axis=0), low, high

    return ExpectedGain(
        questions.rows,
        questions.n_labels,
        1.0 - float(table.uncertainties[:, 1].sum()) / float(total),
        *bounds(effect.changed),
        *bounds(effect.gain),
    )
