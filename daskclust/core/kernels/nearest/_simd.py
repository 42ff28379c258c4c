"""Functions to emit LLVM vector code from Numba intrinsics.

LLVM's vectorizer keeps tiled accumulators in memory (3x slower), and does not vectorize rows with a
few tens of features.  Therefore the three innermost loops of the package are emitted as vector
code for any register width.  The code of a sum does not depend on that width.

It uses internals of llvmlite and Numba, so both have an upper bound in ``pyproject.toml``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.core.errors import TypingError

I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)


def _target_features() -> set[str]:
    """Return the features of the processor for which Numba compiles: configured, or this one."""
    configured: str | None = config.CPU_FEATURES  # type: ignore[attr-defined]  # set by name
    if configured is None:
        return {name for name, has in llvm.get_host_cpu_features().items() if has}
    return {name[1:] for name in configured.split(",") if name.startswith("+")}


def _lane_bytes() -> int:
    features = _target_features()
    if "avx512f" in features:
        return 64
    return 32 if "avx2" in features else 16


LANE_BYTES: int = _lane_bytes()
#: Number of partial sums of a float64 sum along a row, on all processors.  Another number would
#: round differently, so results would depend on the processor.
SUM_LANES = 8


def is_given(kind: types.Type) -> bool:
    return not isinstance(kind, types.NoneType) and kind != types.Tuple(())


def require_contiguous(*arrays: Any) -> None:
    """Raise TypingError, when a kernel is compiled, for arrays that are not C-contiguous."""
    for array in arrays:
        if is_given(array) and array.layout != "C":
            raise TypingError(
                f"Arrays must be C-contiguous, got {array}. Use numpy.ascontiguousarray."
            )


def const(value: int, kind: ir.IntType = I64) -> Any:
    return ir.Constant(kind, value)


def vector_type(dtype: types.Type, lane_bytes: int) -> ir.VectorType:
    if dtype == types.float32:
        return ir.VectorType(ir.FloatType(), lane_bytes // 4)
    return ir.VectorType(ir.DoubleType(), lane_bytes // 8)


def _width(vector: ir.VectorType) -> int:
    return 8 if isinstance(vector.element, ir.DoubleType) else 4


def data(context: Any, builder: Any, ty: Any, value: Any) -> Any:
    return context.make_array(ty)(context, builder, value).data


def row_pointer(context: Any, builder: Any, ty: Any, value: Any, row: Any) -> tuple[Any, Any]:
    """Return the pointer to a row of a C-contiguous matrix, and the length of the row."""
    struct = context.make_array(ty)(context, builder, value)
    length = cgutils.unpack_tuple(builder, struct.shape)[-1]
    return builder.gep(struct.data, [builder.mul(row, length)]), length


def splat(builder: Any, scalar: Any, vector: ir.VectorType) -> Any:
    undefined = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(undefined, scalar, const(0, I32))
    order = ir.Constant(ir.VectorType(I32, vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, undefined, order)


def load(builder: Any, pointer: Any, vector: ir.VectorType) -> Any:
    """Load a vector from an address with the alignment of its elements."""
    typed = builder.bitcast(pointer, vector.as_pointer())
    return builder.load(typed, align=_width(vector))


def store(builder: Any, value: Any, pointer: Any) -> None:
    """Store a vector to an address with the alignment of its elements."""
    typed = builder.bitcast(pointer, value.type.as_pointer())
    builder.store(value, typed, align=_width(value.type))


def fma(builder: Any, a: Any, b: Any, c: Any, *, exact: bool) -> Any:
    """Emit ``a * b + c``; ``exact`` rounds once, otherwise it is fused if that is faster."""
    vector = a.type
    name = f"llvm.{'fma' if exact else 'fmuladd'}.v{vector.count}f{8 * _width(vector)}"
    kind = ir.FunctionType(vector, [vector, vector, vector])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [a, b, c])


def fold(builder: Any, values: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """Combine the lanes of a vector to a scalar, in steps that halve the vector."""
    lanes = values.type.count
    while lanes > 1:
        lanes //= 2
        halves = [
            builder.shuffle_vector(
                values,
                ir.Constant(values.type, ir.Undefined),
                ir.Constant(ir.VectorType(I32, lanes), list(range(first, first + lanes))),
            )
            for first in (0, lanes)
        ]
        values = combine(*halves)
    return builder.extract_element(values, const(0, I32))


def fold_rows(
    builder: Any,
    rows: list[tuple[Any, ...]],
    merge: Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]],
    n_packed: int = 1,
) -> list[tuple[Any, ...]]:
    """Emit the reduction of the lanes of several rows; the result has one lane per row, in order.

    ``merge`` combines the vectors of a row with the vectors of the other half of its lanes.  Two
    rows are combined into vectors of full width, so that no lane is idle.  The vectors already
    contain ``n_packed`` rows.  If there are more rows than lanes, several vectors remain.
    """
    lanes = rows[0][0].type.count
    if n_packed == lanes:
        return rows
    width = lanes // n_packed
    firsts = [v * lanes + r * width for v in range(2) for r in range(n_packed)]
    folded = []
    for i in range(0, len(rows), 2):
        # The last row may be combined with itself; its copy is ignored.
        pair = list(zip(rows[i], rows[min(i + 1, len(rows) - 1)], strict=True))
        halves = []
        for start in (0, width // 2):
            order = [first + start + lane for first in firsts for lane in range(width // 2)]
            picked = ir.Constant(ir.VectorType(I32, lanes), order)
            halves.append(tuple(builder.shuffle_vector(a, b, picked) for a, b in pair))
        folded.append(merge(*halves))
    return fold_rows(builder, folded, merge, 2 * n_packed)


def store_rows(
    builder: Any, values: Sequence[Any], n_rows: int, pointer: Any, first_row: Any
) -> None:
    """Emit the store of one number per row, from the result of :func:`fold_rows`."""
    lanes = values[0].type.count
    for v, vector in enumerate(values):
        lanes_used = list(range(min(lanes, n_rows - v * lanes)))
        picked = ir.Constant(ir.VectorType(I32, len(lanes_used)), lanes_used)
        address = builder.gep(pointer, [builder.add(first_row, const(v * lanes))])
        store(builder, builder.shuffle_vector(vector, vector, picked), address)


class Lanes:
    """Loads and stores of one vector, which is complete or masked at the end of a row."""

    def __init__(self, builder: Any, mask: Any = None) -> None:
        self.builder = builder
        self.mask = mask

    def _call(self, kind: str, vector: ir.VectorType, signature: Any, arguments: list[Any]) -> Any:
        name = f"llvm.masked.{kind}.v{vector.count}f{8 * _width(vector)}.p0"
        function = cgutils.get_or_insert_function(self.builder.module, signature, name)
        return self.builder.call(function, arguments)

    def load(self, pointer: Any, vector: ir.VectorType) -> Any:
        """Load a vector; lanes after the end of the row are 0."""
        if self.mask is None:
            return load(self.builder, pointer, vector)
        address = vector.as_pointer()
        signature = ir.FunctionType(vector, [address, I32, self.mask.type, vector])
        zeros = ir.Constant(vector, [0.0] * vector.count)
        typed = self.builder.bitcast(pointer, address)
        align = const(_width(vector), I32)
        return self._call("load", vector, signature, [typed, align, self.mask, zeros])

    def store(self, value: Any, pointer: Any) -> None:
        """Store a vector; lanes after the end of the row are not written."""
        if self.mask is None:
            store(self.builder, value, pointer)
            return
        vector = value.type
        address = vector.as_pointer()
        signature = ir.FunctionType(ir.VoidType(), [vector, address, I32, self.mask.type])
        typed = self.builder.bitcast(pointer, address)
        align = const(_width(vector), I32)
        self._call("store", vector, signature, [value, typed, align, self.mask])


def counted_loop(
    builder: Any, end: Any, start: Sequence[Any], body: Callable[..., list[Any]], step: int = 1
) -> list[Any]:
    """Emit ``carried = body(number, *carried)`` for 0, step, ... < ``end``; return the last."""
    entry = builder.block
    loop, done = builder.append_basic_block("loop"), builder.append_basic_block("after")
    builder.cbranch(builder.icmp_signed(">", end, const(0)), loop, done)

    builder.position_at_end(loop)
    number, *carried = phis = [builder.phi(value.type) for value in (const(0), *start)]
    stepped = body(number, *carried)
    # The body may contain loops.
    end_of_loop = builder.block
    following = builder.add(number, const(step))
    builder.cbranch(builder.icmp_signed("<", following, end), loop, done)

    builder.position_at_end(done)
    final = [builder.phi(value.type) for value in start]
    begin, after = (const(0), *start), (following, *stepped)
    for phi, first, last in zip((*phis, *final), begin + begin[1:], after + after[1:], strict=True):
        phi.add_incoming(first, entry)
        phi.add_incoming(last, end_of_loop)
    return final


def row_loop(builder: Any, length: Any, lanes: int, start: Any, body: Any) -> Any:
    """Emit ``carried = body(offset, Lanes, carried)`` per vector of a row; the last is masked."""
    whole = builder.and_(length, const(-lanes))

    def add_vector(offset: Any, carried: Any) -> list[Any]:
        return [body(offset, Lanes(builder), carried)]

    (so_far,) = counted_loop(builder, whole, [start], add_vector, lanes)
    after = builder.block
    tail, done = builder.append_basic_block("tail"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_signed("<", whole, length), tail, done)

    builder.position_at_end(tail)
    positions = ir.Constant(ir.VectorType(I64, lanes), list(range(lanes)))
    left = splat(builder, builder.sub(length, whole), ir.VectorType(I64, lanes))
    cut = body(whole, Lanes(builder, builder.icmp_signed("<", positions, left)), so_far)
    tail = builder.block
    builder.branch(done)

    builder.position_at_end(done)
    final = builder.phi(start.type)
    final.add_incoming(so_far, after)
    final.add_incoming(cut, tail)
    return final


def reduce_row(
    builder: Any, length: Any, vector: ir.VectorType, body: Callable[[Any, Lanes, Any], Any]
) -> Any:
    zeros = ir.Constant(vector, [0.0] * vector.count)
    return fold(builder, row_loop(builder, length, vector.count, zeros, body), builder.fadd)
