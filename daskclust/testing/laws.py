"""Check the laws of a :class:`~daskclust.core.reduction.Reduction`."""

from __future__ import annotations

import dataclasses
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dask
import numpy as np
from dask.utils import key_split

from daskclust.core.array_types import Array, Floats
from daskclust.core.reduction import Field, Partial, Reduction, RowBlock

#: Maximum change of a result for other blocks, relative to the largest value of an array.
TOLERANCE = 1e-12


def row_blocks(x: Array, weight: Floats | None, lengths: Sequence[int]) -> list[RowBlock]:
    """Cut rows into blocks of the given lengths, in order.

    Examples
    --------
    >>> import numpy as np
    >>> [block.runs for block in row_blocks(np.zeros((5, 2)), None, (2, 0, 3))]
    [((0, 2),), ((2, 0),), ((2, 3),)]
    """
    if sum(lengths) != len(x):
        raise ValueError(
            f"lengths must sum to {len(x)}, the number of rows of x, got {tuple(lengths)}."
        )
    blocks, start = [], 0
    for size in lengths:
        part = slice(start, start + size)
        blocks.append(RowBlock(x[part], None if weight is None else weight[part], ((start, size),)))
        start += size
    return blocks


def _joined(blocks: Sequence[RowBlock]) -> RowBlock:
    """Join blocks into one block with several runs, as the engine does with tiny chunks."""
    weight = None
    if blocks[0].weight is not None:
        weight = np.concatenate([b.weight for b in blocks if b.weight is not None])
    runs = tuple(run for block in blocks for run in block.runs)
    return RowBlock(np.concatenate([block.x for block in blocks]), weight, runs)


def _apply(reduction: Reduction, block: RowBlock, state: Any, carry: Any) -> tuple[Partial, Any]:
    """Compute the partial of one block, as the only block of its group."""
    before = (reduction.identity(state),) if reduction.sequential else ()
    if not reduction.carries:
        return reduction.block(block, state, *before), None
    partial_and_carry: tuple[Partial, Any] = reduction.block(block, state, *before, carry)
    return partial_and_carry


def _fold(
    reduction: Reduction, state: Any, blocks: Sequence[RowBlock], carries: list[Any]
) -> Partial:
    """Process the blocks of one group; `carries` is updated in place."""
    partial = reduction.identity(state)
    for i, block in enumerate(blocks):
        before = pickle.dumps(partial)
        after, new_carry = reduction.step(partial, block, state, carries[i])
        carries[i] = new_carry if reduction.carries else None
        assert pickle.dumps(partial) == before, f"{reduction.name} modifies the previous partial"
        partial = after
    return partial


def reduce_groups(
    reduction: Reduction, states: Sequence[Any], groups: Sequence[Sequence[RowBlock]]
) -> list[Any]:
    """Run one pass per state over groups of blocks, as tasks do, without an engine.

    The carry of each block is passed on to the next pass.

    Parameters
    ----------
    reduction : Reduction
    states : sequence of state
    groups : sequence of sequence of RowBlock
        Groups of blocks; the blocks of a group are in row order.

    Returns
    -------
    list
        The finalized result of each pass.
    """
    carries: list[list[Any]] = [[None] * len(group) for group in groups]
    results = []
    for state in states:
        merged = reduction.identity(state)
        for group, carried in zip(groups, carries, strict=True):
            merged = reduction.combine(merged, _fold(reduction, state, group, carried), state)
        results.append(reduction.finalize(merged, state))
    return results


def reduce_blocks(
    reduction: Reduction, states: Sequence[Any], blocks: Sequence[RowBlock]
) -> list[Any]:
    """Run :func:`reduce_groups` with one group per block."""
    return reduce_groups(reduction, states, [[block] for block in blocks])


def assert_results_close(found: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    """Compare nested results: floats up to a tolerance, everything else exactly.

    Parameters
    ----------
    found, expected : array, record array, number, tuple, list, mapping or dataclass
    tolerance : float
        Tolerance relative to the largest finite magnitude of each array.
    """
    if dataclasses.is_dataclass(expected) and not isinstance(expected, type):
        expected, found = vars(expected), vars(found)
    if isinstance(expected, Mapping):
        assert set(found) == set(expected)
        for name, value in expected.items():
            assert_results_close(found[name], value, tolerance)
        return
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for found_item, expected_item in zip(found, expected, strict=True):
            assert_results_close(found_item, expected_item, tolerance)
        return
    if expected is None:
        assert found is None
        return
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype, (found.dtype, expected.dtype)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    if found.tobytes() == expected.tobytes():  # the usual case; NumPy's comparison is slow
        return
    if expected.dtype.names:
        for name in expected.dtype.names:
            assert_results_close(found[name], expected[name], tolerance)
    elif expected.dtype.kind == "f":
        finite = expected[np.isfinite(expected)]
        size = float(np.abs(finite).max(initial=0.0))
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * size)
    else:
        np.testing.assert_array_equal(found, expected)


def _check_fields(reduction: Reduction, state: Any, partials: Sequence[Partial]) -> None:
    fields = reduction.fields(state)
    for partial in (reduction.identity(state), *partials):
        assert set(partial) == set(fields), f"{reduction.name}: fields {set(partial)}"
        for name, field in fields.items():
            _check_shape(reduction.name, name, field, np.asarray(partial[name]))
        known = [partial[name] for name, field in fields.items() if field.is_fixed]
        assert sum(np.asarray(a).nbytes for a in known) == reduction.nbytes(state)


def _check_shape(reduction_name: str, name: str, field: Field, array: Array) -> None:
    declared = field.shape
    matches = len(array.shape) == len(declared) and all(
        expected_length is None or length == expected_length
        for length, expected_length in zip(array.shape, declared, strict=True)
    )
    assert matches, (reduction_name, name, array.shape, declared)
    assert array.dtype == np.dtype(field.dtype), (reduction_name, name, array.dtype)


def check_merge_laws(field: Field, arrays: Sequence[Array], tolerance: float = TOLERANCE) -> None:
    """Check the laws of a :class:`~daskclust.core.reduction.Merge` on some arrays.

    The identity is neutral on both sides.  Merging is associative and commutative to a
    tolerance, keeps shape and type, and writes to neither array.  The merge can be
    pickled.

    Parameters
    ----------
    field : Field
        Field with the merge to check.
    arrays : sequence of ndarray
        Arrays of the field's shape and type.
    tolerance : float
        Tolerance relative to the largest value of each array.

    Raises
    ------
    AssertionError
        If a law does not hold.

    Examples
    --------
    >>> import numpy as np
    >>> from daskclust.core.reduction import Field
    >>> check_merge_laws(Field((2,), "max"), [np.array([1.0, 2.0]), np.array([0.0, 5.0])])
    """
    name = field.rule.name
    identity = field.identity()

    def merge(a: Array, b: Array) -> Array:
        before = a.tobytes(), b.tobytes()
        with np.errstate(invalid="ignore", over="ignore"):
            merged = np.asarray(field.combine(a, b))
        assert (a.tobytes(), b.tobytes()) == before, f"{name} modifies its arguments"
        _check_shape(name, "merged", field, merged)
        return merged

    _check_shape(name, "identity", field, np.asarray(identity))
    assert_results_close(pickle.loads(pickle.dumps(field)).identity(), identity, 0.0)
    # Pairs of sums from a block may not be normalized; any merge normalizes them.
    normalized = [merge(identity, array) for array in arrays]
    for array, normalized_array in zip(arrays, normalized, strict=True):
        assert_results_close(merge(array, identity), normalized_array, 0.0)
        assert_results_close(merge(identity, normalized_array), normalized_array, 0.0)
    for i in range(len(normalized)):
        a, b, c = (normalized[(i + j) % len(normalized)] for j in range(3))
        joined = merge(a, b)
        assert_results_close(merge(joined, c), merge(a, merge(b, c)), tolerance)
        assert_results_close(joined, merge(b, a), tolerance)


def check_reduction_laws(
    reduction: Reduction,
    states: Sequence[Any],
    x: Array,
    weight: Floats | None = None,
    *,
    lengths: Sequence[int] = (),
    repetition_invariant: Callable[[Any], Any] = lambda result: result,
    tolerance: float = TOLERANCE,
) -> None:
    """Check everything that the engine requires of a reduction, for one set of rows.

    The laws: partials have the shapes and types of ``fields``.  Merges obey
    :func:`check_merge_laws`.  The result does not depend on where the rows are cut (empty blocks
    included), joined or grouped.  A row of weight w counts as w repetitions, weight 0 as none.
    Inputs are not modified.  The reduction and its states can be pickled.

    Parameters
    ----------
    reduction : Reduction
    states : sequence of state
        One state per pass.  The carry of each block is passed on to the next pass.
    x : ndarray of shape (n, p)
    weight : ndarray of shape (n,), float64, optional
        Repetition is only checked for integer weights.
    lengths : sequence of int, optional
        Block lengths of a cut of the n rows; its result is compared with the uncut rows.
    repetition_invariant : callable(result), optional
        Selects the part of a result that must not change if rows are repeated.  Needed if
        the result contains row numbers; the default is the complete result.
    tolerance : float
        Tolerance relative to the largest value of each array.

    Raises
    ------
    AssertionError
        If a law does not hold.
    """
    lengths = tuple(lengths) or (len(x),)
    x, weight = x.copy(), None if weight is None else weight.copy()
    before = pickle.dumps((x, weight, list(states)))
    x.setflags(write=False)
    if weight is not None:
        weight.setflags(write=False)
    blocks = row_blocks(x, weight, lengths)

    carries: list[Any] = [None] * len(blocks)
    for state in states:
        frozen = pickle.dumps(carries)
        results = [
            _apply(reduction, block, state, carry)
            for block, carry in zip(blocks, carries, strict=True)
        ]
        assert pickle.dumps(carries) == frozen, f"{reduction.name} modifies its carry"
        carries = [carry for _, carry in results]
        partials = [partial for partial, _ in results]
        _check_fields(reduction, state, partials)
        for name, field in reduction.fields(state).items():
            check_merge_laws(field, [partial[name] for partial in partials], tolerance)

    uncut = reduce_blocks(reduction, states, row_blocks(x, weight, (len(x),)))
    assert_results_close(reduce_blocks(reduction, states, blocks), uncut, tolerance)
    assert_results_close(reduce_blocks(reduction, states, [_joined(blocks)]), uncut, tolerance)
    for groups in ([blocks], [blocks[::2], blocks[1::2]]):
        assert_results_close(reduce_groups(reduction, states, groups), uncut, tolerance)
    sent, sent_states = pickle.loads(pickle.dumps((reduction, list(states))))
    assert_results_close(reduce_blocks(sent, sent_states, blocks), uncut, tolerance)

    if weight is not None and (weight == np.floor(weight)).all():
        repeated = np.repeat(x, weight.astype(int), axis=0)
        for unit in (None, np.ones(len(repeated))):
            of_repeated = reduce_blocks(
                reduction, states, row_blocks(repeated, unit, (len(repeated),))
            )
            assert_results_close(
                [repetition_invariant(result) for result in of_repeated],
                [repetition_invariant(result) for result in uncut],
                tolerance,
            )
    assert pickle.dumps((x, weight, list(states))) == before, (
        f"{reduction.name} modifies its inputs"
    )


class CountingScheduler:
    """Dask scheduler that counts computations: ``dask.config.set(scheduler=...)``.

    Parameters
    ----------
    get : callable(graph, keys), optional
        Scheduler that does the work; the synchronous one by default.

    Attributes
    ----------
    calls : int
        Number of computations.
    names : list of str
        Names of the computed tasks, as the dashboard shows them.

    Examples
    --------
    >>> import dask, dask.array as da
    >>> scheduler = CountingScheduler()
    >>> with dask.config.set(scheduler=scheduler):
    ...     total = da.ones(4, chunks=2).sum().compute()
    >>> scheduler.calls
    1
    """

    def __init__(self, get: Callable[..., Any] | None = None) -> None:
        self._get = dask.get if get is None else get
        self._lock = threading.Lock()
        self.calls = 0
        self.names: list[str] = []

    def __call__(self, graph: Mapping[Any, Any], keys: Any, **options: Any) -> Any:
        """Compute ``keys`` and count the call."""
        first = keys
        while isinstance(first, list) and first:
            first = first[0]
        with self._lock:
            self.calls += 1
            self.names.append(str(key_split(first)))
        return self._get(graph, keys, **options)
