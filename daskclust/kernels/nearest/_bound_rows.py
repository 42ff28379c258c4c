"""Emitted steps of the bounds of one row: which centers are kept, and which are ruled out.

Imports the register widths and what is kept (:mod:`daskclust.kernels.nearest._bound_state`).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from daskclust.kernels.nearest._bound_state import LARGEST, NEAR
from daskclust.kernels.nearest._simd import (
    I1,
    I32,
    I64,
    LANE_BYTES,
    const,
    data,
    fold,
    load,
    require_contiguous,
    row_pointer,
    splat,
    store,
    vector_type,
)

__all__ = [
    "highest_below",
    "keep_below",
    "least",
    "lowest_bit",
    "n_below",
    "near_gaps",
]

_SINGLE = ir.VectorType(ir.FloatType(), NEAR)
_DOUBLE = ir.VectorType(ir.DoubleType(), NEAR)
_CODES = ir.VectorType(I32, NEAR)


def _smaller(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


def _lanes(context: Any, builder: Any, ty: Any, value: Any, row: Any) -> Any:
    """Load a row of running minima."""
    vector = vector_type(ty.dtype, LANE_BYTES)
    start = builder.gep(data(context, builder, ty, value), [builder.mul(row, const(vector.count))])
    return load(builder, start, vector)


def _count(builder: Any, mask: Any) -> Any:
    bits = builder.zext(builder.bitcast(mask, ir.IntType(mask.type.count)), I64)
    return builder.ctpop(bits)


@intrinsic
def _least(typingctx: Any, values: Any, row: Any) -> Any:
    """Smallest of a row of lanes."""
    require_contiguous(values)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = _lanes(context, builder, signature.args[0], args[0], args[1])
        return fold(builder, lanes, lambda a, b: _smaller(builder, a, b))

    return values.dtype(values, types.intp), codegen


@intrinsic
def _n_below(typingctx: Any, values: Any, row: Any, limit: Any) -> Any:
    """How many of a row of lanes are below a limit."""
    require_contiguous(values)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = _lanes(context, builder, signature.args[0], args[0], args[1])
        return _count(
            builder, builder.fcmp_ordered("<", lanes, splat(builder, args[2], lanes.type))
        )

    return types.intp(values, types.intp, values.dtype), codegen


@intrinsic
def _highest_below(typingctx: Any, values: Any, row: Any, limit: Any) -> Any:
    """Largest of a row of lanes among those below a limit."""
    require_contiguous(values)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = _lanes(context, builder, signature.args[0], args[0], args[1])
        kind = lanes.type
        below = builder.fcmp_ordered("<", lanes, splat(builder, args[2], kind))
        lowest = ir.Constant(kind, [float("-inf")] * kind.count)

        def larger(a: Any, b: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", a, b), a, b)

        return fold(builder, builder.select(below, lanes, lowest), larger)

    return values.dtype(values, types.intp, values.dtype), codegen


def _compress(builder: Any, values: Any, mask: Any, pointer: Any) -> None:
    """Store the lanes of a mask one after another."""
    kind = values.type
    element = kind.element
    name = "i32" if element == I32 else f"f{64 if isinstance(element, ir.DoubleType) else 32}"
    address = element.as_pointer()
    signature = ir.FunctionType(ir.VoidType(), [kind, address, mask.type])
    function = cgutils.get_or_insert_function(
        builder.module, signature, f"llvm.masked.compressstore.v{kind.count}{name}"
    )
    builder.call(function, [values, builder.bitcast(pointer, address), mask])


@intrinsic
def _keep_below(
    typingctx: Any,
    best: Any,
    vector: Any,
    w: Any,
    limit: Any,
    base: Any,
    shrink: Any,
    near: Any,
    near_low: Any,
    r: Any,
) -> Any:
    """Keep the centers of a row of lanes whose scores are below a limit, NEAR of them at most.

    ``near[r]`` receives their numbers, ``near_low[r]`` the roots of ``(base + score) * shrink``,
    rounded down; places that are left are out of reach.
    """
    require_contiguous(best, vector, near, near_low)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        types_ = signature.args
        scores = _lanes(context, builder, types_[0], args[0], args[2])
        kind, lanes = scores.type, scores.type.count
        codes = ir.VectorType(I32, lanes)
        start = builder.gep(
            data(context, builder, types_[1], args[1]), [builder.mul(args[2], const(lanes))]
        )
        centers = builder.add(
            builder.mul(load(builder, start, codes), ir.Constant(codes, [lanes] * lanes)),
            ir.Constant(codes, list(range(lanes))),
        )
        mask = builder.fcmp_ordered("<", scores, splat(builder, args[3], kind))
        room = max(lanes, NEAR)
        packed = builder.bitcast(
            cgutils.alloca_once(builder, ir.ArrayType(kind.element, room)),
            kind.element.as_pointer(),
        )
        numbers = builder.bitcast(
            cgutils.alloca_once(builder, ir.ArrayType(I32, room)), I32.as_pointer()
        )
        wide = ir.VectorType(kind.element, NEAR)
        store(builder, ir.Constant(wide, [float("inf")] * NEAR), packed)
        builder.store(
            ir.Constant(_CODES, [0] * NEAR), builder.bitcast(numbers, _CODES.as_pointer()), align=4
        )
        _compress(builder, scores, mask, packed)
        _compress(builder, centers, mask, numbers)
        value = load(builder, packed, wide)
        if wide != _DOUBLE:
            value = builder.fpext(value, _DOUBLE)
        value = builder.fmul(
            builder.fadd(value, splat(builder, args[4], _DOUBLE)), splat(builder, args[5], _DOUBLE)
        )
        zeros = ir.Constant(_DOUBLE, [0.0] * NEAR)
        most = ir.Constant(_DOUBLE, [LARGEST] * NEAR)
        # What is no number is no bound.
        positive = builder.fcmp_ordered(">", value, ir.Constant(_DOUBLE, [1e-72] * NEAR))
        root = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_DOUBLE, [_DOUBLE]), f"llvm.sqrt.v{NEAR}f64"
        )
        value = builder.call(root, [builder.select(positive, value, zeros)])
        value = _smaller(builder, value, most)
        value = builder.fmul(value, ir.Constant(_DOUBLE, [1.0 - 2.0**-22] * NEAR))
        low, _ = row_pointer(context, builder, types_[7], args[7], args[8])
        store(builder, builder.fptrunc(value, _SINGLE), low)
        target, _ = row_pointer(context, builder, types_[6], args[6], args[8])
        kept = builder.load(builder.bitcast(numbers, _CODES.as_pointer()), align=4)
        builder.store(kept, builder.bitcast(target, _CODES.as_pointer()), align=4)
        return context.get_dummy_value()

    intp, float64 = types.intp, types.float64
    return types.void(
        best, vector, intp, best.dtype, float64, float64, near, near_low, intp
    ), codegen


@intrinsic
def _near_gaps(
    typingctx: Any,
    near: Any,
    near_low: Any,
    i: Any,
    moved: Any,
    at: Any,
    label: Any,
    limit: Any,
) -> Any:
    """Least lower bound of a row's near centers, but the label's, and which are not above a limit.

    Bounds are ``near_low[i] - moved[at, near[i]]``, rounded to nearest; those that are not above
    the limit are the set bits of an integer.
    """
    require_contiguous(near, near_low, moved)
    result = types.Tuple((types.float32, types.int64))

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        types_ = signature.args
        numbers, _ = row_pointer(context, builder, types_[0], args[0], args[2])
        numbers = builder.load(builder.bitcast(numbers, _CODES.as_pointer()), align=4)
        lows, _ = row_pointer(context, builder, types_[1], args[1], args[2])
        lows = load(builder, lows, _SINGLE)
        steps, _ = row_pointer(context, builder, types_[3], args[3], args[4])
        taken = ir.Constant(_SINGLE, ir.Undefined)
        for u in range(NEAR):
            place = builder.sext(builder.extract_element(numbers, const(u, I32)), I64)
            step = builder.load(builder.gep(steps, [place]))
            taken = builder.insert_element(taken, step, const(u, I32))
        gaps = builder.fsub(lows, taken)
        own = builder.icmp_signed(
            "==", numbers, splat(builder, builder.trunc(args[5], I32), _CODES)
        )
        gaps = builder.select(own, ir.Constant(_SINGLE, [LARGEST] * NEAR), gaps)
        lowest = fold(builder, gaps, lambda a, b: _smaller(builder, a, b))
        beyond = builder.fcmp_ordered(">", gaps, splat(builder, args[6], _SINGLE))
        bits = builder.zext(builder.bitcast(builder.not_(beyond), ir.IntType(NEAR)), I64)
        return context.make_tuple(builder, result, (lowest, bits))

    intp = types.intp
    return result(near, near_low, intp, moved, intp, intp, types.float32), codegen


@intrinsic
def _lowest_bit(typingctx: Any, bits: Any) -> Any:
    """Place of the lowest set bit; there is one."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], const(1, I1))

    return types.int64(types.int64), codegen


# Type checkers count the typing context among the arguments.
highest_below: Any = _highest_below
keep_below: Any = _keep_below
least: Any = _least
lowest_bit: Any = _lowest_bit
n_below: Any = _n_below
near_gaps: Any = _near_gaps
