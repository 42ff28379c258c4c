"""Squared distances of a tile of points to one of them, and their sum, as vector code.

Imports the vocabulary of vector code (:mod:`daskclust.kernels.nearest._simd`).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from daskclust.kernels.nearest._simd import (
    I64,
    LANE_BYTES,
    const,
    data,
    fma,
    fold,
    load,
    require_contiguous,
    row_pointer,
    splat,
    store,
    vector_type,
)

__all__ = ["WIDTH", "cost_of_tile", "lower_tile"]

#: Vectors of sums that are held in registers.
_VECTORS = 8
#: Points of a tile.
WIDTH = _VECTORS * LANE_BYTES // 4


def _make_tile(lowering: bool) -> Any:
    """Make the intrinsic of ``sum_i mass[t, i] min(old[t, i], |points[t, :, i] - tries[c]|^2)``.

    Its arguments: points (tiles, p, :data:`WIDTH`), float32; a tile; points to compare with
    (l, p), float32; one of them; masses, float64, and squared distances so far, float32, both
    (tiles, :data:`WIDTH`).  When ``lowering``, the smaller distances take the place of those.
    """

    @intrinsic
    def tile(typingctx: Any, points: Any, t: Any, tries: Any, c: Any, mass: Any, old: Any) -> Any:
        require_contiguous(points, tries, mass, old)
        vector = vector_type(types.float32, LANE_BYTES)
        wide = ir.VectorType(ir.DoubleType(), vector.count)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            one, p = row_pointer(context, builder, signature.args[2], args[2], args[3])
            first = builder.mul(args[1], builder.mul(p, const(WIDTH)))
            rows = builder.gep(data(context, builder, signature.args[0], args[0]), [first])
            masses, _ = row_pointer(context, builder, signature.args[4], args[4], args[1])
            before, _ = row_pointer(context, builder, signature.args[5], args[5], args[1])
            places = [const(v * vector.count) for v in range(_VECTORS)]
            zeros = ir.Constant(vector, [0.0] * vector.count)

            entry = builder.block
            loop, done = builder.append_basic_block("features"), builder.append_basic_block("done")
            builder.branch(loop)
            builder.position_at_end(loop)
            carried = [builder.phi(I64), *(builder.phi(vector) for _ in places)]
            row = builder.gep(rows, [builder.mul(carried[0], const(WIDTH))])
            value = splat(builder, builder.load(builder.gep(one, [carried[0]])), vector)
            stepped = [builder.add(carried[0], const(1))]
            for so_far, place in zip(carried[1:], places, strict=True):
                gap = builder.fsub(load(builder, builder.gep(row, [place]), vector), value)
                stepped.append(fma(builder, gap, gap, so_far, exact=False))
            for phi, start, following in zip(
                carried, [const(0), *[zeros] * _VECTORS], stepped, strict=True
            ):
                phi.add_incoming(start, entry)
                phi.add_incoming(following, loop)
            builder.cbranch(builder.icmp_signed("<", stepped[0], p), loop, done)

            builder.position_at_end(done)
            total = ir.Constant(wide, [0.0] * wide.count)
            for squared, place in zip(stepped[1:], places, strict=True):
                here = builder.gep(before, [place])
                least = load(builder, here, vector)
                kept = builder.select(builder.fcmp_ordered("<", squared, least), squared, least)
                if lowering:
                    store(builder, kept, here)
                weight = load(builder, builder.gep(masses, [place]), wide)
                total = fma(builder, builder.fpext(kept, wide), weight, total, exact=False)
            return fold(builder, total, builder.fadd)

        intp = types.intp
        return types.float64(points, intp, tries, intp, mass, old), codegen

    return tile


cost_of_tile = _make_tile(lowering=False)
lower_tile = _make_tile(lowering=True)
