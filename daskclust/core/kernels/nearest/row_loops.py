"""Emitted loops along rows and over tiles of points: packing, exact distances and sums.

All float64 distances of the package come from :func:`row_distance`, whose arithmetic is fixed
(``tests/oracles/plain_kernels.py`` shows it in plain Python).  Equal rows give equal bits on all
processors.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from daskclust.core.kernels.nearest._simd import (
    I1,
    I32,
    LANE_BYTES,
    SUM_LANES,
    Lanes,
    const,
    counted_loop,
    data,
    fma,
    fold,
    is_given,
    load,
    reduce_row,
    require_contiguous,
    row_loop,
    row_pointer,
    splat,
    store,
    vector_type,
)

#: Bytes that one :data:`prefetch` loads.
LINE_BYTES = 64

#: For a type checker, an intrinsic has the arguments of the function that emits it.
_emitted: Any = intrinsic


@_emitted
def pack_row(typingctx, x, i, shift, packed, observed, t):
    """Emit ``packed[t] = x[i] - shift``; return True if all values are missing (NaN).

    If ``observed`` is ``()``, no value is missing, and the result is False.  Otherwise missing
    values become 0, and ``observed`` (T, bytes) gets a bit for each observed value.  The first bit
    of a byte belongs to the first of eight features.
    """
    require_contiguous(x, shift, packed, observed)
    has_gaps = is_given(observed)
    vector = vector_type(x.dtype, SUM_LANES * x.dtype.bitwidth // 8 if has_gaps else LANE_BYTES)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, length = row_pointer(context, builder, signature.args[0], args[0], args[1])
        target, _ = row_pointer(context, builder, signature.args[3], args[3], args[5])
        if has_gaps:
            bits, _ = row_pointer(context, builder, signature.args[4], args[4], args[5])
        shifts = data(context, builder, signature.args[2], args[2])
        zeros = ir.Constant(vector, [0.0] * vector.count)
        no_lanes = ir.Constant(ir.VectorType(I1, vector.count), [0] * vector.count)

        def body(offset: Any, lanes: Lanes, any_: Any) -> Any:
            position = [offset]
            value = lanes.load(builder.gep(source, position), vector)
            moved = builder.fsub(value, lanes.load(builder.gep(shifts, position), vector))
            if not has_gaps:
                lanes.store(moved, builder.gep(target, position))
                return any_
            has = builder.fcmp_ordered("ord", value, value)
            lanes.store(builder.select(has, moved, zeros), builder.gep(target, position))
            # Lanes after the end of the row are read as 0, which is not a missing value.
            has = has if lanes.mask is None else builder.and_(has, lanes.mask)
            byte = builder.lshr(offset, const(3))
            builder.store(builder.bitcast(has, ir.IntType(8)), builder.gep(bits, [byte]))
            return builder.or_(any_, has)

        any_observed = row_loop(builder, length, vector.count, no_lanes, body)
        if not has_gaps:
            return const(0, I1)
        any_bits = builder.bitcast(any_observed, ir.IntType(8))
        return builder.icmp_unsigned("==", any_bits, const(0, ir.IntType(8)))

    return types.boolean(x, types.intp, shift, packed, observed, types.intp), codegen


def _emit_prefetch(builder: Any, pointer: Any) -> None:
    """Emit a prefetch of the cache line at an address, for reading, into the first-level cache."""
    byte = ir.IntType(8).as_pointer()
    signature = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
    function = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
    of_data = const(0, I32), const(3, I32), const(1, I32)
    builder.call(function, [builder.bitcast(pointer, byte), *of_data])


@_emitted
def add_moments(typingctx, x, order, first, stop, facts, c, ahead):
    """Add the rows ``order[first:stop]`` to the moments and ranges of a label.

    The parts of ``facts[c]`` have a width of whole vectors.  Rows from ``ahead`` on are prefetched,
    one vector for each added row, by their position in memory: processors do not prefetch rows
    that are read in another order.
    """
    require_contiguous(x, order, facts)
    vector = ir.VectorType(ir.DoubleType(), SUM_LANES)
    is_single = x.dtype == types.float32
    source_vector = ir.VectorType(ir.FloatType(), SUM_LANES) if is_single else vector

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, length = row_pointer(context, builder, signature.args[0], args[0], const(0))
        numbers = data(context, builder, signature.args[1], args[1])
        target, width = row_pointer(context, builder, signature.args[4], args[4], args[5])
        step = builder.udiv(width, const(5))
        first, stop, ahead = args[2], args[3], args[6]
        held = [cgutils.alloca_once(builder, vector) for _ in range(4)]

        def body(offset: Any, lanes: Lanes, carried: Any) -> Any:
            parts = [builder.add(builder.mul(step, const(part)), offset) for part in range(5)]
            origin, *places = (builder.gep(target, [at]) for at in parts)
            shift = load(builder, origin, vector)
            for kept, place in zip(held, places, strict=True):
                builder.store(load(builder, place, vector), kept)
            # Vectors that were prefetched for other labels, and for this one in previous columns.
            asked = builder.add(
                builder.mul(first, builder.sub(step, const(SUM_LANES))),
                builder.mul(builder.sub(stop, first), offset),
            )
            coming = builder.gep(source, [builder.add(builder.mul(ahead, length), asked)])
            with cgutils.for_range_slice(builder, first, stop, const(1)) as (at, _):
                _emit_prefetch(builder, builder.gep(coming, [builder.mul(at, const(SUM_LANES))]))
                row = builder.mul(builder.load(builder.gep(numbers, [at])), length)
                here = builder.gep(source, [builder.add(row, offset)])
                value = lanes.load(here, source_vector)
                if is_single:
                    value = builder.fpext(value, vector)
                total, squares, low, high = (builder.load(kept) for kept in held)
                gap = builder.fsub(value, shift)
                is_low = builder.fcmp_ordered("<", value, low)
                is_high = builder.fcmp_ordered(">", value, high)
                found = (
                    builder.fadd(total, gap),
                    builder.fadd(squares, builder.fmul(gap, gap)),
                    builder.select(is_low, value, low),
                    builder.select(is_high, value, high),
                )
                for more, kept in zip(found, held, strict=True):
                    builder.store(more, kept)
            for kept, place in zip(held, places, strict=True):
                store(builder, builder.load(kept), place)
            return carried

        row_loop(builder, length, SUM_LANES, const(0, I1), body)
        return context.get_dummy_value()

    intp = types.intp
    return types.void(x, order, intp, intp, facts, intp, intp), codegen


@_emitted
def prefetch(typingctx, x, i, line):
    """Emit a prefetch of a cache line, counted from row i.  Addresses may be out of range."""
    require_contiguous(x)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row, _ = row_pointer(context, builder, signature.args[0], args[0], args[1])
        start = builder.bitcast(row, ir.IntType(8).as_pointer())
        _emit_prefetch(builder, builder.gep(start, [builder.mul(args[2], const(LINE_BYTES))]))
        return context.get_dummy_value()

    return types.void(x, types.intp, types.intp), codegen


#: Argument `gaps` of :func:`row_distance` for distances over the values that both rows observe.
OBSERVED = (True,)


@_emitted
def row_distance(typingctx, x, i, centers, k, weights, scale, sums, gaps):
    """Emit the squared distance of a row to a center in float64: ``sum_j w_j (x_ij - c_kj)^2``.

    It uses direct differences.  If ``weights`` are ``()``, all weights are 1.  If ``sums`` are not
    ``()``, the row times ``scale`` is added to ``sums[k]``, (k, P), in the same loop.  If
    ``centers`` are ``()``, only this addition is done, and the result is 0.  If ``gaps`` are not
    ``()``, NaN is excluded from all sums, and ``scale`` is added to ``sums[k, P + j]`` for observed
    values; the shape is then (k, 2 P).  P is at least p, and a multiple of :data:`SUM_LANES`, so
    that whole vectors are stored: a load after a masked store waits for it, and the next row often
    has the same center.  Numbers from p to P are undefined.
    """
    require_contiguous(x, centers, weights, sums)
    weighted, summing, observed = is_given(weights), is_given(sums), is_given(gaps)
    measuring = is_given(centers)
    vector = ir.VectorType(ir.DoubleType(), SUM_LANES)
    is_single = x.dtype == types.float32
    source_vector = ir.VectorType(ir.FloatType(), SUM_LANES) if is_single else vector

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        types_ = signature.args
        source, length = row_pointer(context, builder, types_[0], args[0], args[1])
        if measuring:
            center, _ = row_pointer(context, builder, types_[2], args[2], args[3])
        if summing:
            target, width = row_pointer(context, builder, types_[6], args[6], args[3])
            masses = builder.gep(target, [builder.lshr(width, const(1))])
            scales = splat(builder, args[5], vector)
        if weighted:
            factors = data(context, builder, types_[4], args[4])

        def body(offset: Any, lanes: Lanes, total: Any) -> Any:
            at = [offset]
            value = lanes.load(builder.gep(source, at), source_vector)
            if is_single:
                value = builder.fpext(value, vector)
            if measuring:
                gap = builder.fsub(value, lanes.load(builder.gep(center, at), vector))
            if observed:
                zeros = ir.Constant(vector, [0.0] * vector.count)
                has = builder.fcmp_ordered("ord", gap, gap)
                gap = builder.select(has, gap, zeros)
            if summing and observed:
                here, place = builder.gep(target, at), builder.gep(masses, at)
                so_far, mass = load(builder, here, vector), load(builder, place, vector)
                more = fma(builder, scales, value, so_far, exact=True)
                # Adding 0 stores whole vectors; selecting a sum would use a masked store.
                scale = builder.select(has, scales, zeros)
                store(builder, builder.fadd(mass, scale), place)
                store(builder, builder.select(has, more, so_far), here)
            elif summing:
                here = builder.gep(target, at)
                so_far = load(builder, here, vector)
                store(builder, fma(builder, scales, value, so_far, exact=True), here)
            if not measuring:
                return total
            scaled = gap
            if weighted:
                scaled = builder.fmul(gap, lanes.load(builder.gep(factors, at), vector))
            return fma(builder, scaled, gap, total, exact=True)

        return reduce_row(builder, length, vector, body)

    intp, float64 = types.intp, types.float64
    return float64(x, intp, centers, intp, weights, float64, sums, gaps), codegen


#: Number of vectors of sums in registers.
_VECTORS = 8
#: Number of points of a tile.
WIDTH = _VECTORS * LANE_BYTES // 4


@_emitted
def cost_of_tile(typingctx, points, t, candidates, c, mass, old, into):
    """Emit ``sum_i mass[t, i] min(old[t, i], |points[t, :, i] - candidates[c]|^2)``.

    Points (tiles, p, :data:`WIDTH`), candidates (l, p) and old (tiles, :data:`WIDTH`) are float32,
    masses float64.  If ``into`` is not ``()``, it receives the smaller distances.
    """
    require_contiguous(points, candidates, mass, old, into)
    vector = vector_type(types.float32, LANE_BYTES)
    wide = ir.VectorType(ir.DoubleType(), vector.count)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        one, p = row_pointer(context, builder, signature.args[2], args[2], args[3])
        first = builder.mul(args[1], builder.mul(p, const(WIDTH)))
        rows = builder.gep(data(context, builder, signature.args[0], args[0]), [first])
        masses, _ = row_pointer(context, builder, signature.args[4], args[4], args[1])
        before, _ = row_pointer(context, builder, signature.args[5], args[5], args[1])
        if is_given(into):
            lowered, _ = row_pointer(context, builder, signature.args[6], args[6], args[1])
        places = [const(v * vector.count) for v in range(_VECTORS)]
        zeros = ir.Constant(vector, [0.0] * vector.count)

        def add_feature(j: Any, *sums: Any) -> list[Any]:
            row = builder.gep(rows, [builder.mul(j, const(WIDTH))])
            value = splat(builder, builder.load(builder.gep(one, [j])), vector)
            added = []
            for so_far, place in zip(sums, places, strict=True):
                gap = builder.fsub(load(builder, builder.gep(row, [place]), vector), value)
                added.append(fma(builder, gap, gap, so_far, exact=False))
            return added

        found = counted_loop(builder, p, [zeros] * _VECTORS, add_feature)
        total = ir.Constant(wide, [0.0] * wide.count)
        for squared, place in zip(found, places, strict=True):
            here = builder.gep(before, [place])
            least = load(builder, here, vector)
            kept = builder.select(builder.fcmp_ordered("<", squared, least), squared, least)
            if is_given(into):
                store(builder, kept, builder.gep(lowered, [place]))
            weight = load(builder, builder.gep(masses, [place]), wide)
            total = fma(builder, builder.fpext(kept, wide), weight, total, exact=False)
        return fold(builder, total, builder.fadd)

    intp = types.intp
    return types.float64(points, intp, candidates, intp, mass, old, into), codegen
