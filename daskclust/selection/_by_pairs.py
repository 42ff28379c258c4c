"""Choice among estimators by cross-validation over pairs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from operator import methodcaller
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import get_tags

from daskclust.core.array_types import Array, Bools, Floats, Ints
from daskclust.core.constraints import PairwiseConstraints
from daskclust.core.engine import Job, Rows, open_blank
from daskclust.core.estimator.fit_loop import draw_seeds, fit
from daskclust.core.estimator.validation import Data, check_data, check_integer, pairs_for
from daskclust.core.persistence.models import registry
from daskclust.core.warn import warn
from daskclust.exceptions import ConstraintError, ConstraintWarning
from daskclust.selection._grid import Selection, overrides, run_grid, selected

#: Default candidates, in order of preference.
_DEFAULT: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("SpectralClustering", {}),
    ("MPCKMeans", {}),
    ("PCSKMeans", {}),
    ("PCKMeans", {}),
    ("PCKMeans", {"penalty": "distance"}),
    ("SpectralClustering", {"pair_strength": 0.0}),
    ("SparseKMeans", {}),
    ("KMeans", {}),
)
#: Scores that differ by at most this number are equal.
_SCORE_TOLERANCE = 1e-12


def choose_by_pairs(
    candidates: Any,
    X: Any,
    must_link: Any = None,
    cannot_link: Any = None,
    *,
    n_clusters: int | None = None,
    must_link_weight: Any = None,
    cannot_link_weight: Any = None,
    n_folds: int = 5,
    random_state: Any = None,
) -> Selection:
    """Choose among estimators, or their parameters, by cross-validation over pairs.

    Use it if you know pairs of rows that belong together or apart, and do not know which estimator
    is best.  Each candidate is fitted to all rows, with the pairs of all folds except one, and
    evaluated with the pairs of this fold.  Candidates that do not accept pairs are fitted once.

    Parameters
    ----------
    candidates : sequence or None
        Candidates in order of preference.  None compares ``SpectralClustering``, ``MPCKMeans``,
        ``PCSKMeans``, ``PCKMeans`` (also with ``penalty="distance"``), and, without pairs,
        ``SpectralClustering``, ``SparseKMeans`` and ``KMeans``.  An entry is:

        - the name of an estimator, such as ``"KMeans"``;
        - an unfitted estimator, which is cloned for each fit;
        - a tuple of a name or an estimator and a dict of parameters with lists of values, such as
          ``("PCKMeans", {"penalty": ["scaled", "distance"]})``.

        Equal candidates are compared once.
    X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube of shape (n, p)
        Rows.
    must_link, cannot_link : array-like of shape (m, 2), int, optional
        Pairs of row numbers, or of index labels of a DataFrame.  At least one argument is required.
    n_clusters : int, optional
        Number of clusters of candidates that are names.
    must_link_weight, cannot_link_weight : float or array-like of shape (m,), optional
        Weights of the pairs in the fits and in the scores.  Default: 1.
    n_folds : int, default=5
        Number of folds.
    random_state : int, RandomState, Generator or None, default=None
        Determines the folds, and the ``random_state`` of candidates whose ``random_state`` is
        None.  An int gives the same result for any chunks, scheduler and number of workers.

    Returns
    -------
    Selection
        ``grid`` contains the names of the candidates, and ``estimators`` the candidates fitted to
        all rows and all pairs.  A score is the mean of two fractions: the satisfied fraction of the
        held-out must-links, and of the held-out cannot-links.  If there is only one kind of pairs,
        the score is its fraction.  ``standard_errors`` treat pairs that imply each other as one
        observation.  ``one_se_estimator`` is the first candidate whose score differs from the best
        score by at most one standard error of this difference.  A candidate that fails, because its
        constraints cannot be satisfied (``COPKMeans``), has the score NaN and the estimator None.
        ``details`` contains:

        - ``must_link`` and ``cannot_link`` (g,): the two fractions;
        - ``pairs`` (m, 2): the pairs, must-links first, and ``fold`` (m,): their folds;
        - ``satisfied`` (g, m): True if the labels of a fit without the pair satisfy it;
        - ``failures``: error messages by name of the candidate.

    Raises
    ------
    ConstraintError
        For invalid pairs, too few pairs for the folds, and if all candidates fail.
    ValueError
        For unknown names and parameters, estimators without ``predict``, estimators that require
        labels, and errors of the fits.

    Warns
    -----
    ConstraintWarning
        If pairs contradict each other, and for candidates that fail.

    Notes
    -----
    A fold contains complete must-link components, and all cannot-links between two components, so
    the pairs of other folds do not imply its pairs.

    ``best_estimator`` is usually the better choice: on eight data sets with 20 to 400 pairs its
    mean adjusted Rand index was 0.813, compared with 0.800 for ``one_se_estimator`` and 0.801 for
    the best single candidate (``tests/benchmarks/choice.py``).  With few pairs, the best score may
    be due to chance.  ``one_se_estimator`` then prefers the first candidates.

    *Passes*: the passes of the longest fit, and a few more that fetch the rows of the pairs.  All
    fits share them.  The fits to folds compute labels only for the rows of the pairs.  *On the
    client*: the rows of the pairs, and the client memory of each fit.  ``SpectralClustering``
    computes prototypes in each fit, and the graphs of all fits in one pass.

    Examples
    --------
    >>> import numpy as np
    >>> import daskclust
    >>> from daskclust.selection import choose_by_pairs
    >>> angle = np.linspace(0, np.pi, 300)
    >>> moon = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> X = np.concatenate([moon, [1.0, 0.4] - moon])
    >>> y = np.repeat([0, 1], 300)
    >>> must_link, cannot_link = daskclust.pairs_from_labels(y, n_pairs=40, random_state=0)
    >>> result = choose_by_pairs(
    ...     ["KMeans", "SpectralClustering"], X, must_link, cannot_link, n_clusters=2,
    ...     random_state=0,
    ... )
    >>> result.best_value
    'SpectralClustering'
    >>> result.scores.round(2).tolist()
    [0.62, 1.0]
    >>> len(result.best_estimator.labels_)
    600
    """
    check_integer(n_folds, "n_folds", 2)
    seeds = draw_seeds(random_state, 2)
    models = _models(candidates, n_clusters, seeds[0] % 2**32)
    data = X if isinstance(X, Data) else check_data(X)
    pairs = PairwiseConstraints.from_fit_arguments(
        data.rows.n_rows,
        pairs_for(X, must_link, "must_link"),
        pairs_for(X, cannot_link, "cannot_link"),
        must_link_weight,
        cannot_link_weight,
    )
    pairs.warn_of_contradictions()
    n_units = int(pairs.units().max(initial=-1)) + 1
    if n_units < n_folds:
        raise ConstraintError(
            f"must_link and cannot_link must contain at least n_folds={n_folds} groups of pairs "
            f"that do not imply each other, got {n_units}. Pass more pairs, or lower n_folds."
        )
    held_out = _HeldOutPairs(data, pairs, pairs.folds(int(n_folds), seeds[1]))
    fits = held_out.fitted(models)
    return held_out.selection(list(models), fits)


def _models(candidates: Any, n_clusters: int | None, seed: int) -> dict[str, Any]:
    if candidates is None:
        entries: Sequence[Any] = [
            (name, {param: [value] for param, value in params.items()}) for name, params in _DEFAULT
        ]
    elif isinstance(candidates, str | Mapping) or not isinstance(candidates, Sequence):
        raise ValueError(
            f"candidates must be a list of names or estimators, or None, got {candidates!r}. "
            'Pass a list such as ["KMeans", "PCKMeans"].'
        )
    else:
        entries = candidates
    models: dict[str, Any] = {}
    for number, entry in enumerate(entries):
        pair = entry if isinstance(entry, tuple) else (entry, {})
        if len(pair) != 2 or not isinstance(pair[1], Mapping):
            raise ValueError(
                f"candidates[{number}] must be a name or an estimator, alone or in a tuple with a "
                f"dict of parameters, got {entry!r}."
            )
        base = _unfitted(pair[0], number, n_clusters)
        for model in _varied(base, pair[1], number):
            _check_candidate(model, number)
            params = model.get_params(deep=False)
            if "random_state" in params and params["random_state"] is None:
                # All fits have the same seed, so that differences are due to the candidates.
                model.set_params(random_state=seed)
            models.setdefault(_name(model, n_clusters), model)
    if not models:
        raise ValueError(
            "candidates must contain at least one name or estimator, got an empty list."
        )
    return models


def _unfitted(entry: Any, number: int, n_clusters: int | None) -> Any:
    if isinstance(entry, BaseEstimator):
        return clone(entry)
    classes = registry()
    if not isinstance(entry, str) or entry not in classes:
        raise ValueError(
            f"candidates[{number}] must be an estimator or a name, got {entry!r}. "
            f"Names are {', '.join(sorted(classes))}."
        )
    model: Any = classes[entry]()
    count = next((p for p in ("n_clusters", "n_components") if p in model.get_params()), None)
    if count is None:
        return model
    if n_clusters is None:
        raise ValueError(
            f"n_clusters must be set, because the candidate {entry!r} is a name, got None. "
            f"Set n_clusters, or pass an estimator such as {entry}(4)."
        )
    return model.set_params(**{count: n_clusters})


def _varied(model: Any, grid: Mapping[str, Any], number: int) -> list[Any]:
    params = model.get_params(deep=False)
    for name, values in grid.items():
        if name not in params:
            raise ValueError(
                f"candidates[{number}] must have parameters of {type(model).__name__}, got "
                f"{name!r}. Use {', '.join(sorted(params))}."
            )
        if isinstance(values, str) or not np.iterable(values):
            raise ValueError(
                f"candidates[{number}] must have a list of values for {name!r}, got {values!r}."
            )
    return [
        clone(model).set_params(**dict(zip(grid, values, strict=True)))
        for values in product(*grid.values())
    ]


def _check_candidate(model: Any, number: int) -> None:
    name = type(model).__name__
    if not hasattr(model, "predict") or overrides(model, "fit", "predict"):
        raise ValueError(
            f"candidates[{number}] must be an estimator of daskclust with a method predict, "
            f"got {name}."
        )
    if get_tags(model).target_tags.required:
        raise ValueError(
            f"candidates[{number}] must be an estimator whose fit does not require labels, got "
            f"{name}."
        )
    if model.get_params(deep=False).get("checkpoint") is not None:
        raise ValueError(
            f"candidates[{number}] must have checkpoint=None, because its fits cannot share one "
            f"checkpoint, got a checkpoint of {name}."
        )


def _name(model: Any, n_clusters: int | None) -> str:
    defaults = type(model)().get_params(deep=False)
    changed = [
        f"{name}={value!r}"
        for name, value in model.get_params(deep=False).items()
        if repr(value) != repr(defaults[name])
        and name != "random_state"
        and not (name in ("n_clusters", "n_components") and value == n_clusters)
    ]
    name = type(model).__name__
    return f"{name}({', '.join(changed)})" if changed else name


@dataclass(frozen=True)
class _CandidateFits:
    """Candidate fitted to all pairs, and labels (n_folds, m) of the m rows of the pairs.

    The labels of a fold are from a fit without the pairs of this fold.
    """

    model: Any
    labels: Ints


@dataclass(frozen=True)
class _HeldOutPairs:
    """Open data, pairs, and the fold of each pair."""

    data: Data
    pairs: PairwiseConstraints
    fold: Ints

    @property
    def n_folds(self) -> int:
        return int(self.fold.max()) + 1

    def _arguments(self, chosen: Bools) -> dict[str, Any]:
        c, arguments = self.pairs, {}
        for name, kind in (("must_link", True), ("cannot_link", False)):
            is_kind = chosen & (c.pair_is_must_link == kind)
            ends = np.stack([c.pair_left[is_kind], c.pair_right[is_kind]], axis=1)
            arguments[name], arguments[f"{name}_weight"] = c.rows[ends], c.pair_weight[is_kind]
        return arguments

    def fitted(self, models: Mapping[str, Any]) -> list[_CandidateFits | ConstraintError]:
        """Fit each candidate to all pairs, and without each fold; all fits share passes."""
        _, placeholder = open_blank(self.data.X, self.data.rows)
        # With a lazy placeholder, fits to folds do not compute the labels of all rows.
        lazy = Data(placeholder, self.data.weight, self.data.origin, cube=self.data.cube)
        jobs, names_of_jobs = [Job(methodcaller("take", self.pairs.rows))], []
        for name, model in models.items():
            takes_pairs = "must_link" in inspect.signature(model.fit).parameters
            folds = (-1, *range(self.n_folds)) if takes_pairs else (-1,)
            for fold in folds:
                data = self.data if fold < 0 else lazy
                arguments = self._arguments(self.fold != fold) if takes_pairs else {}
                jobs.append(Job(partial(_fit, name, model, data, arguments)))
                names_of_jobs.append(name)
        # Warnings about the pairs of a fold would confuse a user who did not choose these pairs.
        (x, _), *fits = run_grid(self.data.rows, jobs, ConstraintWarning)
        results: list[_CandidateFits | ConstraintError] = []
        for name in models:
            fits_of_name = [
                fit for fit, job_name in zip(fits, names_of_jobs, strict=True) if job_name == name
            ]
            failed = [fit for fit in fits_of_name if isinstance(fit, ConstraintError)]
            if failed:
                results.append(failed[0])
                continue
            labels = [np.asarray(_predict(fit, x), np.int64) for fit in fits_of_name]
            results.append(
                _CandidateFits(fits_of_name[0], np.stack(labels[1:] or labels * self.n_folds))
            )
        return results

    def satisfied(self, labels: Ints) -> Bools:
        """Return a mask of the pairs that are satisfied by the fit without them."""
        c = self.pairs
        # Each noise row is a cluster of its own.
        noise_clusters = -1 - np.arange(labels.shape[1])
        labels = np.where(labels < 0, noise_clusters, labels)
        is_satisfied = np.zeros(c.n_pairs, bool)
        for fold in range(self.n_folds):
            in_fold, fold_labels = self.fold == fold, labels[fold]
            must, ends = c.pair_is_must_link[in_fold], (c.pair_left[in_fold], c.pair_right[in_fold])
            is_satisfied[in_fold] = (fold_labels[ends[0]] == fold_labels[ends[1]]) == must
        return is_satisfied

    def selection(
        self, names: list[str], results: list[_CandidateFits | ConstraintError]
    ) -> Selection:
        """Compute the scores, and select a candidate."""
        c = self.pairs
        failures = {
            name: str(result)
            for name, result in zip(names, results, strict=True)
            if isinstance(result, ConstraintError)
        }
        if len(failures) == len(names):
            name, message = next(iter(failures.items()))
            raise ConstraintError(
                f"All candidates failed. The error of the first candidate, {name}: {message}"
            )
        for name, message in failures.items():
            warn(f"The candidate {name} failed and has no score: {message}", ConstraintWarning)
        satisfied = np.zeros((len(names), c.n_pairs), bool)
        fractions, errors = np.full((len(names), 2), np.nan), np.full(len(names), np.nan)
        for position, result in enumerate(results):
            if not isinstance(result, ConstraintError):
                satisfied[position] = self.satisfied(result.labels)
                fractions[position], errors[position] = self._fractions(satisfied[position])
        with np.errstate(invalid="ignore"):
            scores = np.nansum(fractions, axis=1) / (~np.isnan(fractions)).sum(axis=1)
        details = {
            "must_link": fractions[:, 0],
            "cannot_link": fractions[:, 1],
            "pairs": c.rows[np.stack([c.pair_left, c.pair_right], axis=1)],
            "fold": self.fold,
            "satisfied": satisfied,
            "failures": failures,
        }
        models = [
            None if isinstance(result, ConstraintError) else result.model for result in results
        ]
        passes = self.data.rows.passes
        values: Array = np.array(names)
        chosen = selected("candidate", passes, "pairs", values, scores, errors, models, details)
        return replace(chosen, one_se_index=self._first_within(satisfied, scores))

    def _fractions(self, satisfied: Bools) -> tuple[tuple[float, float], float]:
        """Return the satisfied fractions of both kinds of pairs, and the error of their mean."""
        c, unit = self.pairs, self.pairs.units()
        masks = (c.pair_is_must_link, ~c.pair_is_must_link)
        (must, must_error), (cannot, cannot_error) = (
            _satisfied_fraction(satisfied[kind], c.pair_weight[kind], unit[kind]) for kind in masks
        )
        errors = np.array([must_error, cannot_error])[[kind.any() for kind in masks]]
        return (must, cannot), float(np.sqrt((errors**2).sum()) / len(errors))

    def _first_within(self, satisfied: Bools, scores: Floats) -> int:
        """Return the first candidate within one standard error of the best."""
        c, unit, best = self.pairs, self.pairs.units(), int(np.nanargmax(scores))
        masks = [k for k in (c.pair_is_must_link, ~c.pair_is_must_link) if k.any()]
        for position in np.flatnonzero(~np.isnan(scores)).tolist():
            change = satisfied[best].astype(np.float64) - satisfied[position]
            squares = 0.0
            for kind in masks:
                sums = np.bincount(unit[kind], weights=(c.pair_weight * change)[kind])
                squares += (sums**2).sum() / c.pair_weight[kind].sum() ** 2
            if scores[best] - scores[position] <= np.sqrt(squares) / len(masks) + _SCORE_TOLERANCE:
                return position
        return best


def _fit(name: str, model: Any, data: Data, arguments: Mapping[str, Any], rows: Rows) -> Any:
    """Return a fitted clone, or the error if constraints cannot be satisfied."""
    try:
        return fit(clone(model), data.through(rows), **arguments)
    except ConstraintError as error:
        return error
    except Exception as error:
        error.add_note(f"The error occurred in a fit of the candidate {name}.")
        raise


def _predict(model: Any, x: Array) -> Array:
    nameless = copy(model)
    vars(nameless).pop("feature_names_in_", None)
    return np.asarray(nameless.predict(x))


def _satisfied_fraction(satisfied: Bools, weight: Floats, unit: Ints) -> tuple[float, float]:
    """Return the fraction of the weight that is satisfied, and its standard error by units.

    The fraction is NaN without pairs, and the error is NaN for a single unit.
    """
    if not len(weight):
        return np.nan, np.nan
    total = weight.sum()
    fraction = float(weight @ satisfied / total)
    _, number = np.unique(unit, return_inverse=True)
    sums = np.bincount(number.reshape(-1), weights=weight * (satisfied - fraction))
    n = len(sums)
    error = np.sqrt(n / (n - 1) * (sums**2).sum()) / total if n > 1 else np.nan
    return fraction, float(error)
