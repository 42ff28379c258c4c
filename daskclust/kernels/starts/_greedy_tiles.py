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

__all__ = ["WIDTH", "lower_tile"]

#: Vectors of sums that are held in registers.
_VECTORS = 8
#: Points of a tile.
WIDTH = _VECTORS * LANE_BYTES // 4


@intrinsic
def lower_tile(
    typingctx: Any, turned: Any, at: Any, start: Any, mass: Any, old: Any, found: Any, c: Any
) -> Any:
    """``found[c, i] = min(old[i], sum_j (turned[j, i] - turned[j, at])^2)`` for a tile of i.

    Returns the sum of ``mass[i] found[c, i]``.  ``turned`` of shape (p, m), ``old`` and ``found``
    of m columns are float32, ``mass`` is float64; the tile has :data:`WIDTH` points from ``start``
    on, all below m.
    """
    require_contiguous(turned, mass, old, found)
    vector = vector_type(types.float32, LANE_BYTES)
    wide = ir.VectorType(ir.DoubleType(), vector.count)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        points = data(context, builder, signature.args[0], args[0])
        struct = context.make_array(signature.args[0])(context, builder, args[0])
        p, m = (builder.extract_value(struct.shape, axis) for axis in range(2))
        masses = data(context, builder, signature.args[3], args[3])
        before = data(context, builder, signature.args[4], args[4])
        target, _ = row_pointer(context, builder, signature.args[5], args[5], args[6])
        places = [builder.add(args[2], const(v * vector.count)) for v in range(_VECTORS)]
        zeros = ir.Constant(vector, [0.0] * vector.count)

        entry = builder.block
        loop, done = builder.append_basic_block("features"), builder.append_basic_block("done")
        builder.branch(loop)
        builder.position_at_end(loop)
        carried = [builder.phi(I64), *(builder.phi(vector) for _ in places)]
        row = builder.gep(points, [builder.mul(carried[0], m)])
        value = splat(builder, builder.load(builder.gep(row, [args[1]])), vector)
        stepped = [builder.add(carried[0], const(1))]
        for so_far, place in zip(carried[1:], places, strict=True):
            gap = builder.fsub(load(builder, builder.gep(row, [place]), vector), value)
            stepped.append(fma(builder, gap, gap, so_far, exact=False))
        for phi, first, following in zip(
            carried, [const(0), *[zeros] * _VECTORS], stepped, strict=True
        ):
            phi.add_incoming(first, entry)
            phi.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", stepped[0], p), loop, done)

        builder.position_at_end(done)
        total = ir.Constant(wide, [0.0] * wide.count)
        for squared, place in zip(stepped[1:], places, strict=True):
            least = load(builder, builder.gep(before, [place]), vector)
            kept = builder.select(builder.fcmp_ordered("<", squared, least), squared, least)
            store(builder, kept, builder.gep(target, [place]))
            weight = load(builder, builder.gep(masses, [place]), wide)
            total = fma(builder, builder.fpext(kept, wide), weight, total, exact=False)
        return fold(builder, total, builder.fadd)

    intp = types.intp
    return types.float64(turned, intp, intp, mass, old, found, intp), codegen
