"""The sequence of every fit: check, open, survey, initialize, iterate, finish.

An estimator implements the hooks of :class:`Fittable`.  A :class:`Problem` is iterated, and does
not know the estimator.  The fit works on a draft of the estimator.  The estimator takes the
attributes of the draft at the end, so a fit that fails leaves the estimator unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from daskclust.core.array_types import Floats
from daskclust.core.engine import Checkpoint, Fingerprint, Fitted, Rows, map_rows
from daskclust.core.engine.checkpoint import loop_stage, without_stages
from daskclust.core.estimator.parameters import COMMON, Checked, check_value
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
    """The result of one iteration, with the `state` from which the next one continues.

    `objective` is the objective before the centers moved.  `moved` is the number of rows that
    changed their cluster, if known.  `extra` contains further entries of the record.  A
    `provisional` step depends on ``max_iter``, so it is not saved, and a longer fit repeats it.
    """

    state: S
    objective: float
    center_shift: float
    finished: bool
    moved: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    provisional: bool = False


class Problem(Protocol):
    """An iterative problem: everything about a fit that does not change."""

    @property
    def kind(self) -> type: ...

    @property
    def rows(self) -> Rows:
        """The rows, in the space in which they are compared."""

    @property
    def max_iter(self) -> int: ...

    def begin(self) -> Any:
        """Find the initial state; not called if a checkpoint is resumed."""

    def step(self, state: Any) -> Step[Any]: ...

    @property
    def sizes(self) -> Mapping[str, int]:
        """Lengths of named axes of a stored state, in addition to n and p."""

    def identity(self) -> Mapping[str, Any]:
        """Return what identifies a checkpoint, in addition to the data and the parameters."""


def iterate(problem: Problem, name: str, checkpoint: Checkpoint | None = None) -> Fitted[Any]:
    """Iterate a problem until it is finished or ``max_iter`` is reached.

    The checkpoint is read before the first computation.  It is written after every stage of the
    initialization (:func:`~daskclust.core.engine.checkpoint.saved_stage`) and after every
    iteration.  An error that ends a fit names the checkpoint.
    """
    rows = problem.rows
    # Without a checkpoint, a loop may be a stage of another fit's initialization.
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
            # So far, this process has only repeated the survey.
            rows.passes = max(rows.passes, stored.passes)
        else:
            with nullcontext() if checkpoint is None else checkpoint.saving_stages(rows):
                state = problem.begin()
            if keeper is not None:
                keeper.save(state, history, finished=False, passes=rows.passes)
        while not finished and len(history) < problem.max_iter:
            start_time = time.perf_counter()
            done = problem.step(state)
            state, finished = done.state, done.finished
            record = {
                "iteration": len(history) + 1,
                "objective": float(done.objective),
                "center_shift": float(done.center_shift),
                "moved": done.moved,
                "seconds": time.perf_counter() - start_time,
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
        resume_hint = (
            f"The state of the fit is in {str(checkpoint.path)!r}: fit again with the same data "
            "and checkpoint to resume it."
        )
        if isinstance(error, ClusterError | ReadError):
            # Users of a cluster often see only the message, so the hint is part of it.
            raise type(error)(f"{error} {resume_hint}") from error
        error.add_note(resume_hint)
        raise
    if checkpoint is not None:
        checkpoint.close()
    return Fitted(state, history, finished, rows.passes)


E = TypeVar("E", bound="Fittable")


@dataclass(frozen=True)
class FirstPass:
    """Request of the first pass over the data: seeds of the restarts, with `n_picks` rows each.

    The rows of each class of `labels` are summed.  `transform` maps blocks to the space of all
    passes.
    """

    seeds: tuple[int, ...] = ()
    n_picks: int = 0
    labels: RowLabels | None = None
    transform: Callable[[Any], Any] | None = None
    reduction: Reduction = SURVEY
    check: Callable[..., None] = check_survey


@dataclass(frozen=True)
class OpenData:
    """Data after the first pass; `X` is the input, and `rows` are in the space of the metric."""

    X: Any
    rows: Rows
    survey: Any
    seeds: tuple[int, ...]
    weight: Any
    cube: Any


class DataAlone:
    """Base class of problems whose checkpoint is identified by data and parameters alone."""

    @property
    def sizes(self) -> Mapping[str, int]:
        return {}

    def identity(self) -> Mapping[str, Any]:
        return {}


class Fittable(Protocol):
    """The hooks of an estimator, in the order in which they are called."""

    checkpoint: Any
    #: Parameters that may change when a checkpoint is resumed.
    _resumes_with: ClassVar[tuple[str, ...]]

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def _check_parameters(self) -> None: ...

    def _check_features(self, n_features: int) -> None: ...

    def _read(self, data: Data, *args: Any, **given: Any) -> Any:
        """Read the other arguments of ``fit``, and check everything that needs no pass."""

    def _first_pass(self, data: Data, read: Any) -> FirstPass: ...

    def _problem(self, data: OpenData, read: Any) -> Problem:
        """Return the iterative problem; may run passes."""

    def _finish(
        self, data: OpenData, problem: Any, state: Any, history: list[dict[str, Any]]
    ) -> None:
        """Set the fitted attributes, and emit warnings."""


class FitPredict(Checked):
    """``fit_predict`` of all clusterers; the method of scikit-learn accepts no labels."""

    fit: Callable[..., Any]

    def _check_features(self, n_features: int) -> None:
        """Check parameters that depend on the number of features; the default checks nothing."""

    def fit_predict(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Fit and return ``labels_``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : optional
            Labels, if ``fit`` of the estimator uses labels.
        **params
            Other arguments of ``fit``, such as ``sample_weight``.

        Returns
        -------
        labels : ndarray or dask.array.Array of shape (n_samples,), int32
        """
        return self.fit(X, y, **params).labels_


def fit(estimator: E, X: Any, sample_weight: Any = None, **given: Any) -> E:
    """Fit an estimator to data, or to :class:`Data`, which are checked already.

    If an error is raised, the estimator is unchanged.
    """
    # A shallow copy; the estimator takes the attributes of the draft after success.
    draft = object.__new__(type(estimator))
    fitted, current = vars(draft), vars(estimator)
    fitted.update({name: value for name, value in current.items() if name not in OF_CLASSES})
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
    with showing_progress(draft, lambda: data.opened), without_stages():
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
        opened = _run_first_pass(draft, data, read, hashed=draft.checkpoint is not None)
        forget_range(draft)
        if (
            opened.rows is data.rows
        ):  # otherwise the first pass measured transformed rows, for example of unit length
            remember_range(draft, opened.survey, opened.rows.n_rows)
            if data.has_units and getattr(draft, "_depends_on_units", False):
                warn_of_dominance(opened.survey, data.names, is_scene=data.cube is not None)
        problem = draft._problem(opened, read)
        checkpoint = draft.checkpoint
        if checkpoint is not None:
            checkpoint = open_checkpoint(draft, opened, problem.identity)
        loop = iterate(problem, type(draft).__name__, checkpoint)
        draft._finish(opened, problem, loop.state, loop.history)
    if label_map is not None and not label_map.by_name:
        names, colors = label_map.meanings, label_map.colors
        if (names or colors) and clusters_are_classes(draft):
            name_classes(draft, names, colors)
    for name in current.keys() - fitted.keys():
        del current[name]
    current.update(fitted)
    return estimator


def settled(estimator: Any, data: Data) -> Any:
    """Return the state of a fit to rows in memory, without progress, history or checkpoint."""
    problem = estimator._problem(_run_first_pass(estimator, data, None, hashed=False), None)
    state = problem.begin()
    for _ in range(problem.max_iter):
        step = problem.step(state)
        state = step.state
        if step.finished:
            break
    return state


def _run_first_pass(estimator: Fittable, data: Data, read: Any, *, hashed: bool) -> OpenData:
    """Run the first pass with the requested ``missing`` policy."""
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
                "At least one sample weight must be positive, got only zeros. With "
                'metric="cosine" a row of zeros has weight 0, because it has no direction.'
            )
    first.check(survey, names=data.names)
    return OpenData(data.X, rows, survey, first.seeds, data.weight, data.cube)


def open_checkpoint(
    estimator: Fittable, data: OpenData, identity: Callable[[], Mapping[str, Any]]
) -> Checkpoint:
    """Open the checkpoint; a checkpoint that is open already belongs to an enclosing fit."""
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


def row_labels(data: OpenData, function: Callable[..., Any], fixed: RowLabels | None = None) -> Any:
    """Return ``labels_``, lazy if X is; `fixed` rows keep their labels."""
    return map_rows(
        data.X,
        function,
        dtype=np.int32,
        lengths=data.rows.lengths,
        patch=None if fixed is None else (fixed.rows, fixed.codes),
        like=data.rows,
    )


#: Maximum relative difference between the costs of equal solutions.
_TOLERANCE = 1e-9


def draw_seeds(random_state: Any, count: int) -> tuple[int, ...]:
    """Return one seed per restart, from any ``random_state`` that scikit-learn accepts."""
    check_value(random_state, "random_state", *COMMON["random_state"])
    if isinstance(random_state, np.random.Generator):
        root = int(random_state.integers(2**32))
    elif isinstance(random_state, np.random.RandomState):
        root = int(random_state.randint(2**32, dtype=np.uint32))
    elif random_state is None:
        root = int(np.random.SeedSequence().generate_state(1)[0])
    else:
        root = int(random_state)
    words = np.random.SeedSequence(root).generate_state(count, np.uint64)
    return tuple(int(word >> np.uint64(1)) for word in words)


def best_restart(costs: Sequence[float] | Floats, *, at_least: float = 0.0) -> int:
    """Return the first restart with the lowest cost, up to rounding.

    Restarts often end in the same clusters with different numbers.  The last bits of their sums
    depend on the chunks and must not decide.  Rounding is relative to the cost, and to
    `at_least`: use 1 for logarithms, which may be near 0.
    """
    costs = np.asarray(costs)
    lowest = costs.min()
    if np.isnan(lowest):
        raise ValueError(
            f"The costs of the restarts must be numbers, got {costs.tolist()}. Values overflowed: "
            "scale the data. If the fit resumed a checkpoint, the file was changed: delete it."
        )
    return int(np.flatnonzero(costs <= lowest + _TOLERANCE * max(at_least, abs(lowest)))[0])
