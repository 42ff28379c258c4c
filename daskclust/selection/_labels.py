"""Rows worth a label, and what the answers would change."""

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
    """The rows to ask about, in that order, the cell of each, and the rows labeled so far."""

    rows: Ints
    places: Ints
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
    """Suggest the rows whose labels would help most, in the order in which to ask.

    The rows are represented by prototypes.  These are chosen one after another, each with the
    largest product of two numbers: the uncertainty of its rows, summed up, and its distance to
    the nearest row that is labeled or asked about already.  So a batch does not ask the same
    thing twice.  Without labels all rows are equally uncertain, and the questions are spread
    over the data.

    Parameters
    ----------
    X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube of shape (n_rows, p)
        Complete, without NaN; of a cube its `samples`.
    n : int
        How many rows to ask about.
    y : array-like or dask.array.Array of shape (n_rows,), or (rows, labels), optional
        What is known, as for :meth:`LabelSpreading.fit`.  Labeled rows are not suggested
        again, nor are those listed in ``(rows, labels)`` with the label -1: rows whose class
        could not be told.  Rows similar to these come later.
    model : LabelSpreading, optional
        Fitted to X and to labels of it; where it is omitted and there are labels, one is
        fitted with its defaults.
    exclude : array-like or dask.array.Array of shape (n_rows,), bool, or row numbers, optional
        Rows that must not be suggested: True in a mask, or their numbers as integers.  For a
        Cube also a boolean image of shape (y, x), or the path of one or of a vector file.
        Such rows have no influence on which other rows are suggested.  A lazy mask stays lazy.
    random_state : int, RandomState, Generator or None, default=None
        An int gives the same result for any chunks, scheduler and number of workers.

    Returns
    -------
    ndarray of shape (n,), int64
        Different global row numbers.

    Raises
    ------
    ValueError
        For more questions than rows that are neither labeled, excluded nor listed with -1, NaN
        or infinity in X, a model that is no LabelSpreading or was fitted to other data, and
        for `exclude` of another length, with row numbers out of range, or of all rows.
    ConstraintError
        For labels that cannot be used, and rows out of range.
    NotFittedError
        For a model that is not fitted.

    See Also
    --------
    expected_gain : What another batch of labels is expected to change.
    suggest_pairs : Where it is easier to say whether two rows belong together.

    Notes
    -----
    *Passes* beyond the fit: 1 that draws a sample of 65 536 rows for the prototypes, and 1, as long
    as ``predict_proba``, that finds for each how uncertain its rows are and which row is nearest.
    *Prototypes*: 400, or 4 a question if that is more, up to 2000; a tenth of the rows at most.
    *To the client*: the sample, and tables of the prototypes; never anything of length n_rows.
    A mask in `exclude` takes one more pass, which reads the mask alone.

    *The label -1 or* `exclude`: -1 says that somebody was asked in vain, so that similar rows are
    not worth a question either.  `exclude` is for rows that nobody can label in any case, such as
    roads, shadows and the background of a scene.  They are often a large part of the data, and
    rows like them may well have a class.  The model is fitted to all rows.

    Rows equal to a labeled one are not suggested.  A model with more labels than it keeps as nodes
    (``2 n_prototypes``) does not know all rows that it was fitted with; give ``y``, too.

    Ask in small batches where that is possible: 20 to begin with, then 10 or 20 at a time, a
    fit in between.

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
    """Do what :func:`suggest_labels` does, and return what was found on the way."""
    check_integer(n, "n", 1)
    (seed,) = draw_seeds(random_state, 1)
    _check_model(model)
    known, labeled = np.empty(0, np.int64), np.empty(0, np.int64)
    y = None if y is None else as_labels(y)
    if model is None and y is not None:
        data = open_for_questions(X, None, exclude)
        known, labeled = _known_rows(y, data.rows.n_rows)
        if len(labeled):
            model = LabelSpreading(random_state=seed % 2**32).fit(X, y)
            data = replace(data, model=model)
    else:
        data = open_for_questions(X, model, exclude)
        if y is not None:
            known, labeled = _known_rows(y, data.rows.n_rows)
        elif not data.knows_its_labels:
            raise ValueError(
                "model was fitted with more labels than it keeps as nodes; expected y, too, so "
                "that labeled rows are not suggested again."
            )
    if not 1 <= n <= data.rows.n_rows - len(known):
        raise ValueError(_too_many(n, data.rows.n_rows - len(known), data.rows.n_rows))
    vain = np.setdiff1d(known, labeled)
    cells = find_cells(data, known, int(n), seed, vain)
    if n > cells.table.n_free:
        raise ValueError(_too_many(n, int(cells.table.n_free), data.rows.n_rows))
    rows, places = cells.choose(int(n))
    n_labels = max(len(labeled), len(cells.labeled))
    return Questions(rows, places, cells, model, n_labels, seed)


def _too_many(n: int, free: int, n_rows: int) -> str:
    return (
        f"n={n} rows are asked for, but of the {n_rows} rows of X only {free} are neither labeled "
        "(nor equal to a labeled row) nor excluded nor asked in vain. Ask for fewer."
    )


def _check_model(model: Any) -> None:
    if model is None:
        return
    if not isinstance(model, LabelSpreading):
        raise ValueError(
            f"model is a {type(model).__name__}; expected a fitted LabelSpreading, which has a "
            "margin for each row. Leave out model, and give y."
        )
    check_is_fitted(model)


def _known_rows(y: Any, n_rows: int) -> tuple[Ints, Ints]:
    """Rows that are not to be asked about, and those of them with a label, ascending."""
    labels = read_labels(y, n_rows)
    if not isinstance(y, tuple) or is_dask(y):
        return labels.rows, labels.rows
    rows = np.unique(np.asarray(y[0], dtype=np.int64))
    if len(rows) and not 0 <= rows[0] <= rows[-1] < n_rows:
        row = int(rows[0] if rows[0] < 0 else rows[-1])
        raise ConstraintError(
            f"y lists row {row}; expected row numbers in [0, {n_rows}). Row numbers count from 0 "
            "over all of X."
        )
    return rows, labels.rows


#: Draws of answers, and the share of them on either side of the bounds.
_DRAWS, _TAIL = 50, 0.1


@dataclass(frozen=True)
class ExpectedGain:
    """What a batch of labels is expected to bring; made by :func:`expected_gain`.

    Attributes
    ----------
    rows : ndarray of shape (n,), int64
        The batch, as :func:`suggest_labels` suggests it.
    n_labels : int
        Labels so far.
    accuracy : float
        Mean probability of the best class over all rows that are not excluded: the share of
        rows that are right, if the probabilities are.
    changed, changed_low, changed_high : ndarray of shape (n,), float64
        Share of these rows that get another class by the first 1, 2, ... answers: mean, and
        the bounds of four fifths of the draws.
    gain, gain_low, gain_high : ndarray of shape (n,), float64
        By how much ``accuracy`` grows.
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
        """Draw the share of rows that change over the number of labels.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure's when omitted.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ImportError
            Without matplotlib.
        """
        from daskclust.plotting import own_axes

        ax = own_axes(ax)
        labels = self.n_labels + 1 + np.arange(len(self.rows))
        for values, low, high, text in (
            (self.changed, self.changed_low, self.changed_high, "rows of another class"),
            (self.gain, self.gain_low, self.gain_high, "growth of the model's own accuracy"),
        ):
            (line,) = ax.plot(labels, values, ".-", label=text)
            ax.fill_between(labels, low, high, color=line.get_color(), alpha=0.2, lw=0)
        ax.set(xlabel="labels", ylabel="share of all rows")
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
    """Estimate what the next batch of labels will change, from the model's probabilities.

    Answers to the questions of :func:`suggest_labels` are drawn 50 times from the model's class
    probabilities.  Each is spread along the graph of prototypes, by a Gaussian field with the
    covariance of label spreading that is conditioned on the answers one after another.  If
    ``changed`` stays near 0, another batch would change little on the map.

    Parameters
    ----------
    X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube of shape (n_rows, p)
        Complete, without NaN; of a cube its `samples`.
    n : int
        How many rows would be asked about.
    y : array-like or dask.array.Array of shape (n_rows,), or (rows, labels), optional
        The labels so far; needed where there is no `model`.
    model : LabelSpreading, optional
    exclude : array-like or dask.array.Array of shape (n_rows,), bool, or row numbers, optional
        Rows that must not be asked about, see :func:`suggest_labels`.  They do not count in the
        shares and the accuracy that are returned.
    random_state : int, RandomState, Generator or None, default=None
        See :func:`suggest_labels`.

    Returns
    -------
    ExpectedGain

    Raises
    ------
    ConstraintError
        Without any label: nothing can be expected yet.
    ValueError
        For more questions than rows without a label, NaN or infinity in X, a model that is no
        LabelSpreading or was fitted to other data, and `exclude` that cannot be used.
    NotFittedError
        For a model that is not fitted.

    Notes
    -----
    *This is an estimate by the model, not a test.* A model that is wrong with high probabilities
    expects no change; a class without labels so far does not occur in the draws (see "Asking for
    labels" in the documentation).  For the accuracy itself keep some random labels apart.

    *Passes* and what goes to the client are those of :func:`suggest_labels`; on the client,
    with k prototypes and c classes, O(k^3 + n k c) time and matrices of ``8 k^2`` bytes.

    Examples
    --------
    >>> import numpy as np
    >>> from daskclust.selection import expected_gain
    >>> X = np.repeat([[0.0], [5.0]], 50, axis=0) + np.random.default_rng(0).random((100, 1))
    >>> found = expected_gain(X, 4, y=([0, 40, 50, 90], [0, 0, 1, 1]), random_state=0)
    >>> found.changed.shape, bool(found.accuracy > 0.9)
    ((4,), True)
    """
    check_integer(n, "n", 1)
    questions = ask(X, n, y=y, model=model, exclude=exclude, random_state=random_state)
    if questions.model is None:
        raise ConstraintError(
            "y has no label, so nothing can be expected of more; expected labels of some rows, or "
            "a fitted model. Use suggest_labels for the first batch."
        )
    return gain_of(questions)


def gain_of(questions: Questions) -> ExpectedGain:
    """Return what questions that were found with a model are expected to bring."""
    cells, table = questions.cells, questions.cells.table
    graph = normalized(table.near.matrix(len(cells.nodes)))
    moves = influence(graph, cells.place(cells.labeled), questions.places)
    believed = shares(table.doubts[:, DOUBTS:])
    found = foresee(believed, table.counts, questions.places, moves, _DRAWS, questions.seed)
    total = table.counts.sum()

    def bounds(values: Floats) -> tuple[Floats, Floats, Floats]:
        low, high = np.quantile(values, [_TAIL, 1 - _TAIL], axis=0)
        return values.mean(axis=0), low, high

    return ExpectedGain(
        questions.rows,
        questions.n_labels,
        1.0 - float(table.doubts[:, 1].sum()) / float(total),
        *bounds(found.changed),
        *bounds(found.gain),
    )
