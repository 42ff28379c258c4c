"""Whether another batch of labels is worth its while."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskclust._types import Floats, Ints
from daskclust.estimator.parameters import check_integer
from daskclust.exceptions import ConstraintError
from daskclust.prototypes.asking import DOUBTS, foresee, influence
from daskclust.prototypes.graph import normalized
from daskclust.prototypes.posterior import shares
from daskclust.selection._labels import Questions, ask

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
        Mean probability of the best class over all rows: the share of rows that are right, if
        the probabilities are.
    changed, changed_low, changed_high : ndarray of shape (n,), float64
        Share of all rows that get another class by the first 1, 2, ... answers: mean, and
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
    X: Any, n: int, *, y: Any = None, model: Any = None, random_state: Any = None
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
        Fitted to X and to labels of it; where it is omitted, one is fitted to `y` with its
        defaults.
    random_state : int, RandomState, Generator or None, default=None
        With an int the result does not depend on the chunks, the scheduler or the number of
        workers.

    Returns
    -------
    ExpectedGain

    Raises
    ------
    ConstraintError
        Without any label: nothing can be expected yet.
    ValueError
        For more questions than rows without a label, NaN or infinity in X, a model that is no
        LabelSpreading or was fitted to other data.
    NotFittedError
        For a model that is not fitted.

    Notes
    -----
    *This is an estimate by the model, not a test.* A model that is wrong with high
    probabilities expects no change; a class without labels so far does not occur in the
    draws.  How well it predicted on five sets is shown in the documentation ("Asking for
    labels"). For an estimate of the accuracy itself keep some random labels apart.

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
    questions = ask(X, n, y=y, model=model, random_state=random_state)
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
