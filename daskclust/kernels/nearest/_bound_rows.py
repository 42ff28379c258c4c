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
    Lanes,
    const,
    data,
    each_vector,
    fma,
    fold,
    fold_rows,
    load,
    require_contiguous,
    row_pointer,
    splat,
    store,
    vector_type,
)

__all__ = [
    "gather_scores",
    "highest_below",
    "keep_below",
    "keep_lows",
    "least",
    "least_gap",
    "lowest_beside",
    "n_below",
    "two_lowest",
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


def _store_lows(builder: Any, scores: Any, base: Any, shrink: Any, low: Any) -> None:
    """Store the roots of ``(base + scores) * shrink``, rounded down to single precision."""
    value = scores if scores.type == _DOUBLE else builder.fpext(scores, _DOUBLE)
    value = builder.fmul(
        builder.fadd(value, splat(builder, base, _DOUBLE)), splat(builder, shrink, _DOUBLE)
    )
    zeros = ir.Constant(_DOUBLE, [0.0] * NEAR)
    most = ir.Constant(_DOUBLE, [LARGEST] * NEAR)
    # What is no number is no bound.
    positive = builder.fcmp_ordered(">", value, ir.Constant(_DOUBLE, [1e-72] * NEAR))
    root = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_DOUBLE, [_DOUBLE]), f"llvm.sqrt.v{NEAR}f64"
    )
    value = builder.call(root, [builder.select(positive, value, zeros)])
    value = builder.fmul(
        _smaller(builder, value, most), ir.Constant(_DOUBLE, [1.0 - 2.0**-22] * NEAR)
    )
    store(builder, builder.fptrunc(value, _SINGLE), low)


@intrinsic
def _keep_lows(typingctx: Any, scores: Any, base: Any, shrink: Any, near_low: Any, r: Any) -> Any:
    """``near_low[r]`` receives the roots of ``(base + scores) * shrink``, rounded down."""
    require_contiguous(scores, near_low)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        types_ = signature.args
        kind = _DOUBLE if types_[0].dtype == types.float64 else _SINGLE
        values = load(builder, data(context, builder, types_[0], args[0]), kind)
        low, _ = row_pointer(context, builder, types_[3], args[3], args[4])
        _store_lows(builder, values, args[1], args[2], low)
        return context.get_dummy_value()

    return types.void(scores, types.float64, types.float64, near_low, types.intp), codegen


def _sums_of_each(builder: Any, vectors: list[Any]) -> Any:
    """Sum the lanes of NEAR vectors; one number of the result for each."""
    found = fold_rows(builder, [(v,) for v in vectors], lambda a, b: (builder.fadd(a[0], b[0]),))
    ((sums,),) = found
    some = ir.Constant(ir.VectorType(I32, NEAR), list(range(NEAR)))
    return builder.shuffle_vector(sums, sums, some)


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
        low, _ = row_pointer(context, builder, types_[7], args[7], args[8])
        _store_lows(builder, load(builder, packed, wide), args[4], args[5], low)
        target, _ = row_pointer(context, builder, types_[6], args[6], args[8])
        kept = builder.load(builder.bitcast(numbers, _CODES.as_pointer()), align=4)
        builder.store(kept, builder.bitcast(target, _CODES.as_pointer()), align=4)
        return context.get_dummy_value()

    intp, float64 = types.intp, types.float64
    return types.void(
        best, vector, intp, best.dtype, float64, float64, near, near_low, intp
    ), codegen


@intrinsic
def _least_gap(
    typingctx: Any,
    near: Any,
    near_low: Any,
    i: Any,
    moved: Any,
    at: Any,
    label: Any,
) -> Any:
    """Least lower bound of a row's near centers, but the label's.

    Bounds are ``near_low[i] - moved[at, near[i]]``, rounded to nearest.
    """
    require_contiguous(near, near_low, moved)

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
        return fold(builder, gaps, lambda a, b: _smaller(builder, a, b))

    intp = types.intp
    return types.float32(near, near_low, intp, moved, intp, intp), codegen


@intrinsic
def _gather_scores(
    typingctx: Any,
    x: Any,
    i: Any,
    shift: Any,
    doubled: Any,
    consts: Any,
    numbers: Any,
    r: Any,
    scores: Any,
) -> Any:
    """Scores of a row for the NEAR centers of ``numbers[r]``, and its squared norm.

    ``doubled`` (k, p) is ``-2 c`` of the shifted centers, ``consts`` (k,) their squared norms:
    ``scores`` (NEAR,) receives ``|c|^2 - 2 x c``.
    """
    require_contiguous(x, shift, doubled, consts, numbers, scores)
    vector = vector_type(x.dtype, LANE_BYTES)
    while vector.count < NEAR:
        vector = ir.VectorType(vector.element, 2 * vector.count)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        types_ = signature.args
        source, length = row_pointer(context, builder, types_[0], args[0], args[1])
        shifts = data(context, builder, types_[2], args[2])
        codes, _ = row_pointer(context, builder, types_[5], args[5], args[6])
        codes = builder.load(builder.bitcast(codes, _CODES.as_pointer()), align=4)
        norms = data(context, builder, types_[4], args[4])
        centers, start = [], ir.Constant(ir.VectorType(vector.element, NEAR), ir.Undefined)
        for u in range(NEAR):
            place = builder.sext(builder.extract_element(codes, const(u, I32)), I64)
            centers.append(row_pointer(context, builder, types_[3], args[3], place)[0])
            norm = builder.load(builder.gep(norms, [place]))
            start = builder.insert_element(start, norm, const(u, I32))
        zeros = ir.Constant(vector, [0.0] * vector.count)
        totals = [cgutils.alloca_once_value(builder, zeros) for _ in range(NEAR + 1)]
        for total in totals:
            builder.store(zeros, total)

        def body(offset: Any, lanes: Lanes) -> None:
            at = [offset]
            value = builder.fsub(
                lanes.load(builder.gep(source, at), vector),
                lanes.load(builder.gep(shifts, at), vector),
            )
            factors = [lanes.load(builder.gep(center, at), vector) for center in centers]
            for factor, total in zip([*factors, value], totals, strict=True):
                so_far = builder.load(total)
                builder.store(fma(builder, value, factor, so_far, exact=False), total)

        each_vector(builder, length, vector.count, body)
        *products, squares = [builder.load(total) for total in totals]
        result = builder.fadd(start, _sums_of_each(builder, products))
        store(builder, result, data(context, builder, types_[7], args[7]))
        return fold(builder, squares, builder.fadd)

    intp = types.intp
    return x.dtype(x, intp, shift, doubled, consts, numbers, intp, scores), codegen


@intrinsic
def _two_lowest(typingctx: Any, scores: Any, numbers: Any, r: Any) -> Any:
    """Smallest of NEAR scores, its center in ``numbers[r]``, and the smallest of other centers."""
    require_contiguous(scores, numbers)
    result = types.Tuple((types.float64, types.int64, types.float64))

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        types_ = signature.args
        values, codes = _scores_of(context, builder, types_, args)
        lowest = fold(builder, values, lambda a, b: _smaller(builder, a, b))
        first = builder.fcmp_ordered("==", values, splat(builder, lowest, values.type))
        bits = builder.bitcast(first, ir.IntType(NEAR))
        # No score is the smallest if one is no number: the first will do.
        bits = builder.or_(builder.zext(bits, I64), const(1 << (NEAR - 1)))
        found = builder.extract_element(codes, builder.cttz(bits, const(1, I1)))
        wide = [_widened(builder, v) for v in (lowest, _beside(builder, values, codes, found))]
        center = builder.sext(found, I64)
        return context.make_tuple(builder, result, (wide[0], center, wide[1]))

    return result(scores, numbers, types.intp), codegen


@intrinsic
def _lowest_beside(typingctx: Any, scores: Any, numbers: Any, r: Any, center: Any) -> Any:
    """Smallest of NEAR scores but that of one center."""
    require_contiguous(scores, numbers)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values, codes = _scores_of(context, builder, signature.args, args)
        center = builder.trunc(args[3], I32)
        return _widened(builder, _beside(builder, values, codes, center))

    return types.float64(scores, numbers, types.intp, types.intp), codegen


def _scores_of(context: Any, builder: Any, types_: Any, args: Any) -> tuple[Any, Any]:
    kind = _DOUBLE if types_[0].dtype == types.float64 else _SINGLE
    values = load(builder, data(context, builder, types_[0], args[0]), kind)
    codes, _ = row_pointer(context, builder, types_[1], args[1], args[2])
    return values, builder.load(builder.bitcast(codes, _CODES.as_pointer()), align=4)


def _beside(builder: Any, values: Any, codes: Any, center: Any) -> Any:
    """Smallest of the values but those of one center."""
    own = builder.icmp_signed("==", codes, splat(builder, center, _CODES))
    infinite = ir.Constant(values.type, [float("inf")] * NEAR)
    others = builder.select(own, infinite, values)
    return fold(builder, others, lambda a, b: _smaller(builder, a, b))


def _widened(builder: Any, value: Any) -> Any:
    double = ir.DoubleType()
    return value if value.type == double else builder.fpext(value, double)


# Type checkers count the typing context among the arguments.
gather_scores: Any = _gather_scores
highest_below: Any = _highest_below
keep_below: Any = _keep_below
keep_lows: Any = _keep_lows
least: Any = _least
least_gap: Any = _least_gap
lowest_beside: Any = _lowest_beside
n_below: Any = _n_below
two_lowest: Any = _two_lowest
