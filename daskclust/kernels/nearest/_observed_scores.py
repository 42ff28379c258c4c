"""Scores of rows with missing values, emitted: a constant by the row's gaps, and what follows.

The score of a center is ``sum_j o_j c_j^2 - 2 x.c`` with o_j = 1 where the row has a value
and x_j = 0 where it has not.  The first sum depends on the gaps only.  For each four features
and each of the 16 ways in which they may be there, tables hold the sum of ``c^2`` of every
center; so it takes one addition for four features instead of four, and the whole score 1.25
times the arithmetic of a complete row.  The rest is the loop of complete rows.

Imports :mod:`daskclust.kernels.nearest._scores` and the vocabulary it is written in.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from daskclust.kernels.nearest._scores import (
    NARROW_BYTES,
    ROWS,
    keep_lowest,
    lower_minima,
    panel_of,
    tile_arguments,
    tile_scores,
)
from daskclust.kernels.nearest._simd import (
    I1,
    I64,
    LANE_BYTES,
    const,
    data,
    load,
    require_contiguous,
    vector_type,
)

#: Ways in which four features may be there.
WAYS = 16


def _from_tables(
    builder: Any, bits: Any, first: Any, n_bytes: Any, table: Any, consts: Any, n_vectors: int
) -> list[list[Any]]:
    """Emit the loop over the rows' bits; return the constants of the scores, [row][vector].

    ``bits`` (T, n_bytes) has one for each value that is there; ``table`` (2 n_bytes, WAYS,
    width); ``consts``, added to all rows, is infinite for the padding.
    """
    vector = consts[0].type
    width = const(n_vectors * vector.count)
    starts = [
        builder.gep(bits, [builder.mul(builder.add(first, const(r)), n_bytes)]) for r in range(ROWS)
    ]
    entry = builder.block
    loop = builder.append_basic_block("bytes")
    done = builder.append_basic_block("constants")
    # No row is without a byte: there is a feature at least.
    builder.branch(loop)

    builder.position_at_end(loop)
    byte = builder.phi(I64)
    byte.add_incoming(const(0), entry)
    sums = [[builder.phi(vector) for _ in range(n_vectors)] for _ in range(ROWS)]
    block = const(2 * WAYS)
    here = builder.gep(table, [builder.mul(builder.mul(byte, block), width)])
    updated = []
    for r in range(ROWS):
        there = builder.zext(builder.load(builder.gep(starts[r], [byte])), I64)
        ways = builder.and_(there, const(WAYS - 1)), builder.lshr(there, const(4))
        row = list(sums[r])
        for half, way in enumerate(ways):
            start = builder.mul(builder.add(way, const(half * WAYS)), width)
            for v in range(n_vectors):
                place = builder.gep(here, [builder.add(start, const(v * vector.count))])
                row[v] = builder.fadd(row[v], load(builder, place, vector))
        updated.append(row)
    following = builder.add(byte, const(1))
    byte.add_incoming(following, loop)
    for r in range(ROWS):
        for v in range(n_vectors):
            sums[r][v].add_incoming(consts[v], entry)
            sums[r][v].add_incoming(updated[r][v], loop)
    builder.cbranch(builder.icmp_signed("<", following, n_bytes), loop, done)

    builder.position_at_end(done)
    return updated


class _Parts:
    """What an intrinsic is handed: rows, panels, consts, bits and tables, unpacked."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any, at: int) -> None:
        arrays = tile_arguments(context, builder, signature, args)
        self.rows, self.first, self.q, self.panels, self.consts = arrays
        struct = context.make_array(signature.args[at])(context, builder, args[at])
        self.bits = struct.data
        self.n_bytes = cgutils.unpack_tuple(builder, struct.shape)[1]
        self.tables = data(context, builder, signature.args[at + 1], args[at + 1])

    def move_to(self, builder: Any, number: Any, width: int) -> None:
        """Go to a panel, its consts and its table."""
        size = builder.mul(self.q, const(width))
        self.panels, self.consts = panel_of(builder, self.panels, self.consts, number, size, width)
        size = builder.mul(self.n_bytes, const(2 * WAYS * width))
        self.tables = builder.gep(self.tables, [builder.mul(number, size)])

    def scores(self, builder: Any, n_vectors: int, vector: Any) -> list[list[Any]]:
        """Emit the scores of ROWS rows against one panel."""
        consts = [
            load(builder, builder.gep(self.consts, [const(v * vector.count)]), vector)
            for v in range(n_vectors)
        ]
        initial = _from_tables(
            builder, self.bits, self.first, self.n_bytes, self.tables, consts, n_vectors
        )
        return tile_scores(builder, self.rows, self.first, self.q, self.panels, initial)


def _make_score(lane_bytes: int, n_vectors: int, *, tail: bool = False) -> Any:
    """As for complete rows; the last arguments are bits (T, bytes) and tables.

    Those are of shape (P, 2 bytes, WAYS, width), of the tail (2 bytes, WAYS, width).
    """

    @intrinsic
    def score(
        typingctx: Any,
        rows: Any,
        first: Any,
        panels: Any,
        consts: Any,
        panel: Any,
        best: Any,
        second: Any,
        index: Any,
        bits: Any,
        tables: Any,
    ) -> Any:
        require_contiguous(rows, panels, consts, best, second, index, bits, tables)
        vector = vector_type(rows.dtype, lane_bytes)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            parts = _Parts(context, builder, signature, args, 8)
            minima = [data(context, builder, signature.args[i], args[i]) for i in (5, 6, 7)]
            is_first = const(0, I1)
            if not tail:
                is_first = builder.icmp_signed("==", args[4], const(0))
                parts.move_to(builder, args[4], n_vectors * vector.count)
            scores = parts.scores(builder, n_vectors, vector)
            lower_minima(builder, scores, args[4], is_first, minima, parts.first)
            return context.get_dummy_value()

        intp = types.intp
        arguments = (rows, intp, panels, consts, intp, best, second, index, bits, tables)
        return types.void(*arguments), codegen

    return score


def _make_few(lane_bytes: int) -> Any:
    """As for complete rows; the last arguments are bits and tables."""

    @intrinsic
    def few(
        typingctx: Any,
        rows: Any,
        first: Any,
        panels: Any,
        consts: Any,
        low: Any,
        next_low: Any,
        label: Any,
        bits: Any,
        tables: Any,
    ) -> Any:
        require_contiguous(rows, panels, consts, low, next_low, label, bits, tables)
        vector = vector_type(rows.dtype, lane_bytes)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            parts = _Parts(context, builder, signature, args, 7)
            outputs = [data(context, builder, signature.args[i], args[i]) for i in (4, 5, 6)]
            scores = parts.scores(builder, 1, vector)
            keep_lowest(builder, scores, outputs, parts.first)
            return context.get_dummy_value()

        intp = types.intp
        arguments = (rows, intp, panels, consts, low, next_low, label, bits, tables)
        return types.void(*arguments), codegen

    return few


few_narrow_observed = _make_few(NARROW_BYTES)
few_wide_observed = _make_few(LANE_BYTES)
score_wide_observed = _make_score(LANE_BYTES, 1)
score_pair_observed = _make_score(LANE_BYTES, 2)
score_tail_observed = _make_score(NARROW_BYTES, 1, tail=True)
