"""A curve over a grid, and what it says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskclust._types import Array, Floats


def one_standard_error(scores: Floats, errors: Floats, best: int) -> int:
    """Return the first place whose score is within a standard error of the best.

    Parameters
    ----------
    scores : ndarray of shape (g,), float64
        The larger the better, simplest first; NaN where there is none.
    errors : ndarray of shape (g,), float64
        NaN: no error is known, so the best it is.

    Examples
    --------
    >>> import numpy as np
    >>> one_standard_error(np.array([1.0, 2.8, 3.0]), np.array([0.1, 0.1, 0.3]), 2)
    1
    """
    slack = 0.0 if np.isnan(errors[best]) else errors[best]
    return int(np.flatnonzero(scores[: best + 1] >= scores[best] - slack)[0])


@dataclass(frozen=True)
class Selection:
    """Scores over a grid of parameter values, and the choice they suggest.

    Attributes
    ----------
    parameter : str
        Name of the parameter.
    criterion : str
    grid : ndarray of shape (g,)
        Its values, ascending.
    scores : ndarray of shape (g,), float64
        NaN where the criterion is not defined, as for one cluster.
    standard_errors : ndarray of shape (g,), float64
        NaN where none is known.
    greater_is_better : bool
    best_index : int
        Of the best score; the first of equal ones.
    one_se_index : int
        Of the simplest value (fewest clusters, smallest sparsity) that is as good
        within one standard error.
    estimators : tuple
        Fitted on all rows, one for each value.
    passes : int
        Over the data, for all fits together.
    details : dict
        What the scores were made of; see the function that made them.
    """

    parameter: str
    criterion: str
    grid: Array
    scores: Floats
    standard_errors: Floats
    greater_is_better: bool
    best_index: int
    one_se_index: int
    estimators: tuple[Any, ...] = field(repr=False)
    passes: int
    details: dict[str, Any] = field(repr=False, default_factory=dict)

    @property
    def best(self) -> Any:
        """Value of the best score."""
        return self.grid[self.best_index].item()

    @property
    def one_se(self) -> Any:
        """Simplest value within one standard error of the best."""
        return self.grid[self.one_se_index].item()

    @property
    def best_estimator(self) -> Any:
        """Estimator of the best score, fitted on all rows."""
        return self.estimators[self.best_index]

    @property
    def one_se_estimator(self) -> Any:
        """Estimator of the one-standard-error choice, fitted on all rows."""
        return self.estimators[self.one_se_index]

    def plot(self, ax: Any = None) -> Any:
        """Draw the curve with its standard errors and both choices.

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
        from daskclust.plotting import draw_selection, own_axes

        ax = own_axes(ax)
        draw_selection(ax, self)
        return ax
