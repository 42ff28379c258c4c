"""Choice among estimators by pairs left out."""

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

#: Candidates that are compared by default, in the order in which they are preferred.
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
#: Scores that differ by less are equal.
_ROUNDING = 1e-12


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
    """Choose among estimators, or their parameters, by pairs that are left out of the fits.

    Cross-validation over the pairs: each candidate is fitted to all rows and the pairs of all
    folds but one, and its labels are compared with the pairs of that fold.  Candidates that take
    no pairs are fitted once.

    Parameters
    ----------
    candidates : sequence or None
        The preferred candidate first.  None compares ``SpectralClustering``, ``MPCKMeans``,
        ``PCSKMeans``, ``PCKMeans`` (also with ``penalty="distance"``), and, without pairs,
        ``SpectralClustering``, ``SparseKMeans`` and ``KMeans``.  Each entry is one of

        - the name of an estimator, such as ``"KMeans"``;
        - an unfitted estimator, which is cloned for each fit;
        - a tuple of a name or an estimator, and a dict of parameters with the values to compare,
          such as ``("PCKMeans", {"penalty": ["scaled", "distance"]})``.

        Equal candidates are compared once.
    X : array-like, dask.array.Array, DataFrame, xarray.DataArray or Cube of shape (n, p)
    must_link, cannot_link : array-like of shape (m, 2), int, optional
        Pairs of global row numbers, or of index labels of a DataFrame.  Either may be omitted.
    n_clusters : int, optional
        Number of clusters of the candidates that are given by name.
    must_link_weight, cannot_link_weight : float or array-like of shape (m,), optional
        Weights of the pairs, 1 by default, both in the fits and in the scores.
    n_folds : int, default=5
    random_state : int, RandomState, Generator or None, default=None
        Decides the folds, and is the ``random_state`` of candidates that have none.  An int gives
        the same result for any chunks, scheduler and number of workers.

    Returns
    -------
    Selection
        ``grid`` holds the names of the candidates and ``estimators`` the candidates fitted to all
        rows and all pairs.  ``scores`` are the mean of two shares: of the left-out must-links and
        of the left-out cannot-links that the labels satisfy.  If one kind of pairs is missing, the
        score is the share of the other kind.  ``standard_errors`` treat pairs that imply each
        other as one observation.  ``one_se_estimator`` is the first candidate whose score is
        within one standard error of the best, where the error is that of the difference of the
        two scores.  A candidate whose constraints cannot be satisfied, such as
        ``COPKMeans``, has the score NaN and the estimator None.  ``details``: ``must_link`` and
        ``cannot_link`` (g,), the two shares; ``pairs`` (m, 2), must-links first, their ``fold``
        (m,), and ``satisfied`` (g, m), whether the labels of a fit without the pair satisfy it;
        ``failures``, error messages by name of the candidate.

    Raises
    ------
    ConstraintError
        For pairs that cannot be used, too few pairs for the folds, and if all candidates fail.
    ValueError
        For unknown names and parameters, estimators without ``predict`` or that need labels, and
        what the fits raise.

    Warns
    -----
    ConstraintWarning
        If pairs contradict each other, and for candidates that fail.

    Notes
    -----
    Folds hold out must-link components as a whole, and all cannot-links between two components
    together, so that the other folds do not imply a left-out pair.

    Take ``best_estimator``: on eight sets with 20 to 400 pairs its mean adjusted Rand index was
    0.813, compared with 0.800 for ``one_se_estimator`` and 0.801 for the best single candidate
    (``tests/benchmarks/choice.py``).  With few pairs the best score may be one of chance;
    ``one_se_estimator`` then prefers the first candidates of the list.

    *Passes*: those of the longest fit, and a few more that fetch the rows of the pairs; all fits of
    all candidates share them.  Labels of the fits to folds are
    computed for the rows of the pairs only.  *On the client*: the rows of the pairs, and for each
    fit what its estimator needs there.  ``SpectralClustering`` makes its prototypes anew in each
    fit, and counts its graphs for all fits in one pass.

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
    >>> found = choose_by_pairs(
    ...     ["KMeans", "SpectralClustering"], X, must_link, cannot_link, n_clusters=2,
    ...     random_state=0,
    ... )
    >>> found.best_value
    'SpectralClustering'
    >>> found.scores.round(2).tolist()
    [0.62, 1.0]
    >>> len(found.best_estimator.labels_)
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
            f"must_link and cannot_link hold {n_units} group(s) of pairs that do not imply each "
            f"other; expected at least n_folds={n_folds}. Give more pairs, or fewer folds."
        )
    left_out = _LeftOut(data, pairs, pairs.folds(int(n_folds), seeds[1]))
    found = left_out.fitted(models)
    return left_out.selection(list(models), found)


def _models(candidates: Any, n_clusters: int | None, seed: int) -> dict[str, Any]:
    """Return the unfitted candidates by name, in the order given."""
    if candidates is None:
        given: Sequence[Any] = [
            (name, {param: [value] for param, value in params.items()}) for name, params in _DEFAULT
        ]
    elif isinstance(candidates, str | Mapping) or not isinstance(candidates, Sequence):
        raise ValueError(
            f"candidates must be a list of names or estimators, or None, got {candidates!r}. "
            'Give a list such as ["KMeans", "PCKMeans"].'
        )
    else:
        given = candidates
    found: dict[str, Any] = {}
    for number, entry in enumerate(given):
        pair = entry if isinstance(entry, tuple) else (entry, {})
        if len(pair) != 2 or not isinstance(pair[1], Mapping):
            raise ValueError(
                f"candidates[{number}] must be a name, an estimator, or one of them with a dict "
                f"of parameters, got {entry!r}."
            )
        base = _unfitted(pair[0], number, n_clusters)
        for model in _varied(base, pair[1], number):
            _check_candidate(model, number)
            params = model.get_params(deep=False)
            if "random_state" in params and params["random_state"] is None:
                # The same for all fits, so that candidates are compared and not seeds.
                model.set_params(random_state=seed)
            found.setdefault(_name(model, n_clusters), model)
    if not found:
        raise ValueError("candidates must hold at least one name or estimator, got an empty list.")
    return found


def _unfitted(given: Any, number: int, n_clusters: int | None) -> Any:
    """Return an estimator from its name, or a clone of the one given."""
    if isinstance(given, BaseEstimator):
        return clone(given)
    known = registry()
    if not isinstance(given, str) or given not in known:
        raise ValueError(
            f"candidates[{number}] must be an estimator or one of {', '.join(sorted(known))}, "
            f"got {given!r}."
        )
    model: Any = known[given]()
    count = next((p for p in ("n_clusters", "n_components") if p in model.get_params()), None)
    if count is None:
        return model
    if n_clusters is None:
        raise ValueError(
            f"n_clusters must be given for the candidate {given!r}, which is given by name. "
            f"Set n_clusters, or give the estimator, such as {given}(4)."
        )
    return model.set_params(**{count: n_clusters})


def _varied(model: Any, grid: Mapping[str, Any], number: int) -> list[Any]:
    """Return a clone for each combination of the values of a grid."""
    params = model.get_params(deep=False)
    for name, values in grid.items():
        if name not in params:
            raise ValueError(
                f"candidates[{number}]: {type(model).__name__} has no parameter {name!r}; it has "
                f"{', '.join(sorted(params))}."
            )
        if isinstance(values, str) or not np.iterable(values):
            raise ValueError(
                f"candidates[{number}]: the values of {name!r} must be a list, got {values!r}."
            )
    return [
        clone(model).set_params(**dict(zip(grid, values, strict=True)))
        for values in product(*grid.values())
    ]


def _check_candidate(model: Any, number: int) -> None:
    """Raise ValueError for an estimator that cannot be compared."""
    name = type(model).__name__
    if not hasattr(model, "predict") or overrides(model, "fit", "predict"):
        raise ValueError(
            f"candidates[{number}] must be an estimator of daskclust with a method predict, "
            f"got {name}."
        )
    if get_tags(model).target_tags.required:
        raise ValueError(
            f"candidates[{number}] must be an estimator that is fitted without labels, got {name}."
        )
    if model.get_params(deep=False).get("checkpoint") is not None:
        raise ValueError(
            f"candidates[{number}]: the fits of {name} cannot share one checkpoint. Use "
            "checkpoint=None."
        )


def _name(model: Any, n_clusters: int | None) -> str:
    """Return the name of a class with the parameters that are not the defaults."""
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
class _Tried:
    """Fits of one candidate: to all pairs, and the labels of the paired rows by fold.

    ``labels`` (n_folds, m) of the constrained rows.
    """

    model: Any
    labels: Ints


@dataclass(frozen=True)
class _LeftOut:
    """The data, opened once, the pairs, and the fold of each pair."""

    data: Data
    pairs: PairwiseConstraints
    fold: Ints

    @property
    def n_folds(self) -> int:
        return int(self.fold.max()) + 1

    def _arguments(self, kept: Bools) -> dict[str, Any]:
        """Return the pairs that are kept as arguments of ``fit``."""
        c, found = self.pairs, {}
        for name, kind in (("must_link", True), ("cannot_link", False)):
            some = kept & (c.pair_is_must_link == kind)
            ends = np.stack([c.pair_left[some], c.pair_right[some]], axis=1)
            found[name], found[f"{name}_weight"] = c.rows[ends], c.pair_weight[some]
        return found

    def fitted(self, models: Mapping[str, Any]) -> list[_Tried | ConstraintError]:
        """Fit all candidates to all pairs and to those of all folds but one; passes are shared."""
        _, stand_in = open_blank(self.data.X, self.data.rows)
        # With a lazy X the labels of the fits to folds are lazy, too, and never computed.
        lazy = Data(stand_in, self.data.weight, self.data.origin, cube=self.data.cube)
        jobs, owners = [Job(methodcaller("take", self.pairs.rows))], []
        for name, model in models.items():
            takes_pairs = "must_link" in inspect.signature(model.fit).parameters
            folds = (-1, *range(self.n_folds)) if takes_pairs else (-1,)
            for fold in folds:
                data = self.data if fold < 0 else lazy
                given = self._arguments(self.fold != fold) if takes_pairs else {}
                jobs.append(Job(partial(_fit, name, model, data, given)))
                owners.append(name)
        # Warnings about the pairs of a fold would mislead: the user did not give them.
        (x, _), *fits = run_grid(self.data.rows, jobs, ConstraintWarning)
        found: list[_Tried | ConstraintError] = []
        for name in models:
            own = [fit for fit, owner in zip(fits, owners, strict=True) if owner == name]
            failed = [fit for fit in own if isinstance(fit, ConstraintError)]
            if failed:
                found.append(failed[0])
                continue
            labels = [np.asarray(_predict(fit, x), np.int64) for fit in own]
            found.append(_Tried(own[0], np.stack(labels[1:] or labels * self.n_folds)))
        return found

    def satisfied(self, labels: Ints) -> Bools:
        """Return whether each pair holds by the labels of the fit that did not see it."""
        c = self.pairs
        # A row in no cluster is with no other row.
        alone = -1 - np.arange(labels.shape[1])
        labels = np.where(labels < 0, alone, labels)
        held = np.zeros(c.n_pairs, bool)
        for fold in range(self.n_folds):
            mine, own = self.fold == fold, labels[fold]
            must, ends = c.pair_is_must_link[mine], (c.pair_left[mine], c.pair_right[mine])
            held[mine] = (own[ends[0]] == own[ends[1]]) == must
        return held

    def selection(self, names: list[str], found: list[_Tried | ConstraintError]) -> Selection:
        """Score the candidates, and choose."""
        c = self.pairs
        failures = {
            name: str(one)
            for name, one in zip(names, found, strict=True)
            if isinstance(one, ConstraintError)
        }
        if len(failures) == len(names):
            name, message = next(iter(failures.items()))
            raise ConstraintError(f"All candidates failed, the first is {name}: {message}")
        for name, message in failures.items():
            warn(f"The candidate {name} failed and has no score: {message}", ConstraintWarning)
        satisfied = np.zeros((len(names), c.n_pairs), bool)
        shares, errors = np.full((len(names), 2), np.nan), np.full(len(names), np.nan)
        for at, one in enumerate(found):
            if not isinstance(one, ConstraintError):
                satisfied[at] = self.satisfied(one.labels)
                shares[at], errors[at] = self._shares(satisfied[at])
        with np.errstate(invalid="ignore"):
            scores = np.nansum(shares, axis=1) / (~np.isnan(shares)).sum(axis=1)
        details = {
            "must_link": shares[:, 0],
            "cannot_link": shares[:, 1],
            "pairs": c.rows[np.stack([c.pair_left, c.pair_right], axis=1)],
            "fold": self.fold,
            "satisfied": satisfied,
            "failures": failures,
        }
        models = [None if isinstance(one, ConstraintError) else one.model for one in found]
        passes = self.data.rows.passes
        values: Array = np.array(names)
        chosen = selected("candidate", passes, "pairs", values, scores, errors, models, details)
        return replace(chosen, one_se_index=self._first_within(satisfied, scores))

    def _shares(self, satisfied: Bools) -> tuple[tuple[float, float], float]:
        """Return the satisfied shares of both kinds of pairs, and the error of their mean."""
        c, unit = self.pairs, self.pairs.units()
        kinds = (c.pair_is_must_link, ~c.pair_is_must_link)
        (must, must_error), (cannot, cannot_error) = (
            _share(satisfied[kind], c.pair_weight[kind], unit[kind]) for kind in kinds
        )
        known = np.array([must_error, cannot_error])[[kind.any() for kind in kinds]]
        return (must, cannot), float(np.sqrt((known**2).sum()) / len(known))

    def _first_within(self, satisfied: Bools, scores: Floats) -> int:
        """Return the first candidate within a standard error of its difference to the best."""
        c, unit, best = self.pairs, self.pairs.units(), int(np.nanargmax(scores))
        kinds = [k for k in (c.pair_is_must_link, ~c.pair_is_must_link) if k.any()]
        for at in np.flatnonzero(~np.isnan(scores)).tolist():
            change = satisfied[best].astype(np.float64) - satisfied[at]
            squares = 0.0
            for kind in kinds:
                sums = np.bincount(unit[kind], weights=(c.pair_weight * change)[kind])
                squares += (sums**2).sum() / c.pair_weight[kind].sum() ** 2
            if scores[best] - scores[at] <= np.sqrt(squares) / len(kinds) + _ROUNDING:
                return at
        return best


def _fit(name: str, model: Any, data: Data, given: Mapping[str, Any], rows: Rows) -> Any:
    """Return a fitted clone, or the error of constraints that cannot be satisfied."""
    try:
        return fit(clone(model), data.through(rows), **given)
    except ConstraintError as error:
        return error
    except Exception as error:
        error.add_note(f"This happened in a fit of the candidate {name}.")
        raise


def _predict(model: Any, x: Array) -> Array:
    """Return the labels of rows that were fetched without the names of their features."""
    nameless = copy(model)
    vars(nameless).pop("feature_names_in_", None)
    return np.asarray(nameless.predict(x))


def _share(satisfied: Bools, weight: Floats, unit: Ints) -> tuple[float, float]:
    """Return the share of the weight that is satisfied, and its standard error by units.

    NaN for the share of no pairs, and for the error of a single unit.
    """
    if not len(weight):
        return np.nan, np.nan
    total = weight.sum()
    share = float(weight @ satisfied / total)
    _, number = np.unique(unit, return_inverse=True)
    sums = np.bincount(number.reshape(-1), weights=weight * (satisfied - share))
    n = len(sums)
    error = np.sqrt(n / (n - 1) * (sums**2).sum()) / total if n > 1 else np.nan
    return share, float(error)
