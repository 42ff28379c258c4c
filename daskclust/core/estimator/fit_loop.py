"""The sequence of every fit: check, open, survey, initialize, iterate, finish.

An estimator implements the hooks of :class:`Fittable`.  A :class:`Problem` is iterated, and does
not know the estimator.  The fit works on a draft of the estimator.  The estimator takes the
attributes of the draft at the end, so a fit that fails leaves the estimator unchanged.
"""

from __future__ import annotations

import numbers
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from daskclust.core.array_types import Floats
from daskclust.core.engine import Checkpoint, Fingerprint, Fitted, Rows, map_rows
from daskclust.core.engine.checkpoint import loop_stage
from daskclust.core.estimator.validation import (
    ORIGIN,
    Data,
    check_data,
    check_same_features,
    check_survey,
    check_values,
    forget_range,
    is_partial,
    labels_for,
    pairs_for,
    remember_range,
    warn_of_dominance,
)
from daskclust.core.persistence.mixin import OF_CLASSES, clusters_are_classes, name_classes
from daskclust.core.progress import announce, showing_progress
from daskclust.core.reduction import SURVEY, Reduction, RowLabels, SurveyRequest
from daskclust.core.reduction.survey import PARTIAL_SURVEY
from daskclust.exceptions import CheckpointError, ClusterError, ReadError

S = TypeVar("S")


@dataclass(frozen=True)
class Step(Generic[S]):
    """The result of one iteration, whose `state` the next starts from.

    `objective` is that of the assignment just made, before centers moved. `moved` is the number of
    rows that changed their cluster, if known; `extra` are more entries of the record. What is
    `provisional` is made otherwise where ``max_iter`` allows more: a longer fit repeats it.
    """

    state: S
    objective: float
    center_shift: float
    finished: bool
    moved: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    provisional: bool = False


class Problem(Protocol):
    """The iterated problem: everything about a fit that does not change."""

    @property
    def kind(self) -> type: ...

    @property
    def rows(self) -> Rows:
        """The rows that are compared, in the space in which they are."""

    @property
    def max_iter(self) -> int: ...

    def begin(self) -> Any:
        """Find the start; not called where a checkpoint is continued."""

    def step(self, state: Any) -> Step[Any]: ...

    @property
    def sizes(self) -> Mapping[str, int]:
        """Lengths of named axes of a stored state, besides n and p."""

    def identity(self) -> Mapping[str, Any]:
        """Return what a checkpoint belongs to, besides the data and the parameters."""


def iterate(problem: Problem, name: str, checkpoint: Checkpoint | None = None) -> Fitted[Any]:
    """Iterate a problem until it is finished or ``max_iter`` is reached.

    The checkpoint is read before the first computation.  It is written after every stage of the
    initialization (:func:`~daskclust.core.engine.checkpoint.saved_stage`) and after every
    iteration.  An error that ends a fit names the checkpoint.
    """
    rows = problem.rows
    # Without a checkpoint of its own, a loop may be a stage of another fit's initialization.
    keeper = loop_stage(name) if checkpoint is None else checkpoint
    history: list[dict[str, Any]] = []
    finished = False
    try:
        stored = None
        if keeper is not None:
            known = {"n": rows.n_rows, "p": rows.n_features, **problem.sizes}
            stored = keeper.load(problem.kind, known)
        if stored is not None:
            state, history, finished = stored.state, stored.history, stored.finished
            # The passes of this process so far only looked at the data again.
            rows.passes = max(rows.passes, stored.passes)
        else:
            with nullcontext() if checkpoint is None else checkpoint.saving_stages(rows):
                state = problem.begin()
            if keeper is not None:
                keeper.save(state, history, finished=False, passes=rows.passes)
        while not finished and len(history) < problem.max_iter:
            began = time.perf_counter()
            done = problem.step(state)
            state, finished = done.state, done.finished
            record = {
                "iteration": len(history) + 1,
                "objective": float(done.objective),
                "center_shift": float(done.center_shift),
                "moved": done.moved,
                "seconds": time.perf_counter() - began,
                "passes": rows.passes,
                **done.extra,
            }
            history.append(record)
            if keeper is not None and not done.provisional:
                keeper.save(state, history, finished=finished, passes=rows.passes)
            announce(name, record)
    except CheckpointError:
        raise
    except BaseException as error:
        if checkpoint is None or not checkpoint.written:
            raise
        kept = (
            f"The fit is kept in {str(checkpoint.path)!r}: the same fit with the same data and "
            "checkpoint goes on from there."
        )
        if isinstance(error, ClusterError | ReadError):
            # Nobody's fault, and the way to go on: part of the message.
            raise type(error)(f"{error} {kept}") from error
        error.add_note(kept)
        raise
    if checkpoint is not None:
        checkpoint.close()
    return Fitted(state, history, finished, rows.passes)


E = TypeVar("E", bound="Fittable")


@dataclass(frozen=True)
class FirstPass:
    """The request of the first pass over the data: a seed for each restart, and `n_picks` for each.

    Classes of `labels` are summed. `transform` takes blocks into the space of all passes.
    """

    seeds: tuple[int, ...] = ()
    n_picks: int = 0
    labels: RowLabels | None = None
    transform: Callable[[Any], Any] | None = None
    reduction: Reduction = SURVEY
    check: Callable[..., None] = check_survey


@dataclass(frozen=True)
class OpenData:
    """Data after their first pass: lazy results refer to X, `rows` are in the space of the pass."""

    X: Any
    rows: Rows
    survey: Any
    seeds: tuple[int, ...]
    weight: Any
    cube: Any


class DataAlone:
    """Part of a problem whose checkpoint belongs to the data and the parameters alone."""

    @property
    def sizes(self) -> Mapping[str, int]:
        return {}

    def identity(self) -> Mapping[str, Any]:
        return {}


class Fittable(Protocol):
    """The hooks of an estimator, in the order of their calls."""

    checkpoint: Any
    #: Parameters that may differ where a checkpoint is continued.
    _resumes_with: ClassVar[tuple[str, ...]]

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def _check_parameters(self) -> None: ...

    def _check_features(self, n_features: int) -> None: ...

    def _read(self, data: Data, *args: Any, **given: Any) -> Any:
        """Read the further arguments of ``fit``, and check all that needs no pass."""

    def _first_pass(self, data: Data, read: Any) -> FirstPass: ...

    def _problem(self, data: OpenData, read: Any) -> Problem:
        """Return what is iterated; may make passes."""

    def _finish(
        self, data: OpenData, problem: Any, state: Any, history: list[dict[str, Any]]
    ) -> None:
        """Set the attributes, and warn of what is amiss."""


class FitPredict:
    """``fit_predict`` of all clusterers; scikit-learn's takes no labels."""

    fit: Callable[..., Any]

    def _check_features(self, n_features: int) -> None:
        """Check the parameters that depend on the number of features: none."""

    def fit_predict(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Fit and return ``labels_``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : optional
            Labels, if ``fit`` of the estimator takes some.
        **params
            Other arguments of ``fit``, such as ``sample_weight``.

        Returns
        -------
        labels : ndarray or dask.array.Array of shape (n_samples,), int32
        """
        return self.fit(X, y, **params).labels_


def fit(estimator: E, X: Any, sample_weight: Any = None, **given: Any) -> E:
    """Fit an estimator to data, or to :class:`Data`, which are checked already.

    It is unchanged where anything is raised.
    """
    # Not a deep copy; the estimator takes its attributes when all went well.
    draft = object.__new__(type(estimator))
    fitted, now = vars(draft), vars(estimator)
    fitted.update({name: value for name, value in now.items() if name not in OF_CLASSES})
    draft._check_parameters()
    if isinstance(X, Data):
        data = X
        for name in ORIGIN:
            fitted.pop(name, None)
        fitted.update(data.origin, n_features_in_=data.X.shape[1])
    else:
        data = check_data(X, sample_weight, draft)
    label_map = None
    if "y" in given:
        given["y"], label_map = labels_for(X, given["y"])
    for name in ("must_link", "cannot_link"):
        if name in given:
            given[name] = pairs_for(X, given[name], name)
    with showing_progress(draft, lambda: data.opened):
        # Check without a pass where possible; counting rows may take one.
        draft._check_features(data.X.shape[1])
        names = getattr(getattr(draft, "init", None), "feature_names_in_", None)
        if names is not None:
            check_same_features("init and X have", names, data.origin.get("feature_names_in_"))
        n_rows = data.rows.n_rows if np.isnan(data.n_rows) else data.n_rows
        if n_rows == 0:
            raise ValueError(
                f"Found array with 0 sample(s) (shape=(0, {data.X.shape[1]})) while a minimum "
                "of 1 is required."
            )
        read = draft._read(data, **given)
        opened = _look(draft, data, read, hashed=draft.checkpoint is not None)
        forget_range(draft)
        if opened.rows is data.rows:  # else the first pass measures rows of unit length, say
            remember_range(draft, opened.survey, opened.rows.n_rows)
            if data.has_units and getattr(draft, "_depends_on_units", False):
                warn_of_dominance(opened.survey, data.names, is_scene=data.cube is not None)
        problem = draft._problem(opened, read)
        checkpoint = draft.checkpoint
        if checkpoint is not None:
            checkpoint = open_checkpoint(draft, opened, problem.identity)
        done = iterate(problem, type(draft).__name__, checkpoint)
        draft._finish(opened, problem, done.state, done.history)
    if label_map is not None and not label_map.by_name:
        names, colors = label_map.meanings, label_map.colors
        if (names or colors) and clusters_are_classes(draft):
            name_classes(draft, names, colors)
    for name in now.keys() - fitted.keys():
        del now[name]
    now.update(fitted)
    return estimator


def settled(estimator: Any, data: Data) -> Any:
    """Return the state of a fit to rows in memory, without progress, history and checkpoint."""
    problem = estimator._problem(_look(estimator, data, None, hashed=False), None)
    state = problem.begin()
    for _ in range(problem.max_iter):
        step = problem.step(state)
        state = step.state
        if step.finished:
            break
    return state


def _look(estimator: Fittable, data: Data, read: Any, *, hashed: bool) -> OpenData:
    """Make the first pass, as ``missing`` wants it."""
    first = estimator._first_pass(data, read)
    if is_partial(estimator):
        first = replace(first, reduction=PARTIAL_SURVEY)
    rows = data.rows if first.transform is None else data.rows.transformed(first.transform)
    request = SurveyRequest(rows.n_features, first.seeds, first.n_picks, first.labels, hashed)
    survey = rows.reduce(first.reduction, request)
    if hasattr(first.transform, "absent"):
        check_values(survey, data.names)
        if survey.weight <= 0:
            raise ValueError(
                "All sample weights are zero; at least one must be positive. Under "
                'metric="cosine" a row of zeros has weight 0: it has no direction.'
            )
    first.check(survey, names=data.names)
    return OpenData(data.X, rows, survey, first.seeds, data.weight, data.cube)


def open_checkpoint(
    estimator: Fittable, data: OpenData, identity: Callable[[], Mapping[str, Any]]
) -> Checkpoint:
    """Open the checkpoint; one that is open belongs to a fit of which this one is a part."""
    if isinstance(estimator.checkpoint, Checkpoint):
        return estimator.checkpoint
    params = estimator.get_params(deep=False)
    for name in ("checkpoint", *estimator._resumes_with):
        params.pop(name)
    params.update(identity())
    name = type(estimator).__name__
    return Checkpoint(
        estimator.checkpoint, Fingerprint(name, params, data.rows.n_rows, data.survey)
    )


def row_labels(data: OpenData, function: Callable[..., Any], known: RowLabels | None = None) -> Any:
    """Return ``labels_``, lazy where X is, those of `known` rows as they are."""
    return map_rows(
        data.X,
        function,
        dtype=np.int32,
        lengths=data.rows.lengths,
        patch=None if known is None else (known.rows, known.codes),
        like=data.rows,
    )


#: Costs that differ by less, relatively, are those of the same solution.
_TOLERANCE = 1e-9


def draw_seeds(random_state: Any, count: int) -> tuple[int, ...]:
    """One seed for each restart, from whatever scikit-learn takes as ``random_state``."""
    if isinstance(random_state, np.random.Generator):
        root = int(random_state.integers(2**32))
    elif isinstance(random_state, np.random.RandomState):
        root = int(random_state.randint(2**32, dtype=np.uint32))
    elif random_state is None:
        root = int(np.random.SeedSequence().generate_state(1)[0])
    elif isinstance(random_state, numbers.Integral):
        root = int(random_state)
        if root < 0:
            raise ValueError(
                f"random_state={random_state} is negative; give a non-negative integer."
            )
    else:
        raise ValueError(
            f"random_state={random_state!r} is no seed; give a non-negative integer, a NumPy "
            "Generator or RandomState, or None."
        )
    words = np.random.SeedSequence(root).generate_state(count, np.uint64)
    return tuple(int(word >> np.uint64(1)) for word in words)


def best_restart(costs: Sequence[float] | Floats, *, at_least: float = 0.0) -> int:
    """Return the first restart whose cost is the least, up to rounding.

    Restarts often end in the same clusters, numbered differently; the last bits of
    their sums depend on the chunks and must not choose between them.  Rounding is relative to
    `at_least`: 1 for logarithms, which may be near 0.
    """
    costs = np.asarray(costs)
    least = costs.min()
    if np.isnan(least):
        raise ValueError(
            f"The costs of the restarts are {costs.tolist()}; expected numbers. Values overflowed: "
            "scale the data. If the fit went on from a checkpoint, that was changed: delete it."
        )
    return int(np.flatnonzero(costs <= least + _TOLERANCE * max(at_least, abs(least)))[0])
