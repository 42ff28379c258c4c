"""The register-tiled inner loop of every nearest-center search, emitted.

Scores ``const_k + x . panel_k`` of :data:`ROWS` rows against a panel of centers
are kept in vector registers, with centers as SIMD lanes: each feature of a row
is broadcast and multiplied into all centers of the panel at once.  Rows stay as
they lie in memory, nothing is transposed, and a row's score never depends on
which rows are its neighbors, so results do not depend on chunking.

Panels are (q, width) blocks of ``-2 c``, one center a column; ``consts`` holds
``|c|^2``, infinity for the padding.

Imports :mod:`daskclust.kernels.nearest._simd` only.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from daskclust.kernels.nearest._simd import (
    I1,
    I32,
    I64,
    LANE_BYTES,
    const,
    data,
    fma,
    fold,
    load,
    require_contiguous,
    splat,
    store,
    vector_type,
)

__all__ = [
    "NARROW_BYTES",
    "ROWS",
    "few_narrow",
    "few_wide",
    "keep_lowest",
    "lower_minima",
    "nearest_in_row",
    "panel_of",
    "score_pair",
    "score_tail",
    "score_wide",
    "tile_arguments",
    "tile_scores",
]

#: Rows of a register tile: 2 * ROWS accumulators and the centers must fit the registers.
ROWS: int = 8 if LANE_BYTES == 64 else 4
#: Bytes of the half-width vectors used for very few centers.
NARROW_BYTES: int = max(LANE_BYTES // 2, 16)


def tile_scores(
    builder: Any,
    rows: Any,
    first: Any,
    q: Any,
    panel: Any,
    initial: list[list[Any]],
) -> list[list[Any]]:
    """Emit the loop over features; return the scores, [row][vector].

    ``initial`` is what is added to, likewise.
    """
    n_vectors, vector = len(initial[0]), initial[0][0].type
    lanes = vector.count
    starts = [
        builder.gep(rows, [builder.mul(builder.add(first, const(r)), q)]) for r in range(ROWS)
    ]
    entry = builder.block
    loop = builder.append_basic_block("features")
    done = builder.append_basic_block("scored")
    builder.cbranch(builder.icmp_signed(">", q, const(0)), loop, done)

    builder.position_at_end(loop)
    j = builder.phi(I64)
    j.add_incoming(const(0), entry)
    sums = [[builder.phi(vector) for _ in range(n_vectors)] for _ in range(ROWS)]
    here = builder.gep(panel, [builder.mul(j, const(n_vectors * lanes))])
    centers = [
        load(builder, builder.gep(here, [const(v * lanes)]), vector) for v in range(n_vectors)
    ]
    updated = []
    for r in range(ROWS):
        value = splat(builder, builder.load(builder.gep(starts[r], [j])), vector)
        updated.append(
            [fma(builder, value, c, s, exact=False) for c, s in zip(centers, sums[r], strict=True)]
        )
    following = builder.add(j, const(1))
    j.add_incoming(following, loop)
    for r in range(ROWS):
        for v in range(n_vectors):
            sums[r][v].add_incoming(initial[r][v], entry)
            sums[r][v].add_incoming(updated[r][v], loop)
    builder.cbranch(builder.icmp_signed("<", following, q), loop, done)

    builder.position_at_end(done)
    scores = []
    for r in range(ROWS):
        scores.append([builder.phi(vector) for _ in range(n_vectors)])
        for v in range(n_vectors):
            scores[r][v].add_incoming(initial[r][v], entry)
            scores[r][v].add_incoming(updated[r][v], loop)
    return scores


def _from_consts(builder: Any, consts: Any, n_vectors: int, vector: Any) -> list[list[Any]]:
    """Emit the load of what each center's scores begin with, the same for all rows."""
    places = [builder.gep(consts, [const(v * vector.count)]) for v in range(n_vectors)]
    return [[load(builder, place, vector) for place in places]] * ROWS


def _smaller(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


def _pick(builder: Any, best: Any, second: Any, index: Any = None) -> tuple[Any, Any, Any]:
    """Reduce lanes to (smallest, second smallest, center of the smallest).

    The center of a lane is the lane, or ``index * lanes + lane``.  Of equal scores
    the lowest center wins, however wide the vectors are, and the second equals the
    first, so the caller sees a gap of 0 and settles the tie itself.
    """
    vector = best.type
    lanes = vector.count
    codes = ir.VectorType(I32, lanes)
    ids = ir.Constant(codes, list(range(lanes)))

    def smaller(a: Any, b: Any) -> Any:
        return _smaller(builder, a, b)

    def lower(a: Any, b: Any) -> Any:
        return builder.select(builder.icmp_signed("<", a, b), a, b)

    low = fold(builder, best, smaller)
    equal = builder.fcmp_ordered("==", best, splat(builder, low, vector))
    if index is None:
        bits = builder.zext(builder.bitcast(equal, ir.IntType(lanes)), I32)
        # A row of NaN has no equal lane: lane 0 then, never an address outside.
        bits = builder.or_(bits, const(1 << lanes, I32))
        center = lane = builder.and_(builder.cttz(bits, const(0, I1)), const(lanes - 1, I32))
    else:
        centers = builder.add(builder.mul(index, ir.Constant(codes, [lanes] * lanes)), ids)
        none = 2**31 - 1
        centers = builder.select(equal, centers, ir.Constant(codes, [none] * lanes))
        center = fold(builder, centers, lower)
        is_none = builder.icmp_signed("==", center, const(none, I32))
        center = builder.select(is_none, const(0, I32), center)
        lane = builder.and_(center, const(lanes - 1, I32))
    # Only the winning lane gives way to its runner-up: equal bests elsewhere stay.
    winner = builder.icmp_unsigned("==", ids, splat(builder, lane, codes))
    rest = fold(builder, builder.select(winner, second, best), smaller)
    return low, rest, center


def tile_arguments(context: Any, builder: Any, signature: Any, args: Any) -> tuple[Any, ...]:
    """Return pointer, first row and features of the rows, and pointers of panels and consts."""
    struct = context.make_array(signature.args[0])(context, builder, args[0])
    q = cgutils.unpack_tuple(builder, struct.shape)[1]
    arrays = [data(context, builder, signature.args[i], args[i]) for i in (2, 3)]
    return struct.data, args[1], q, *arrays


def panel_of(
    builder: Any, panels: Any, consts: Any, number: Any, size: Any, width: int
) -> tuple[Any, Any]:
    """Return where a panel of ``size`` numbers, ``width`` a row, and its consts begin."""
    return (
        builder.gep(panels, [builder.mul(number, size)]),
        builder.gep(consts, [builder.mul(number, const(width))]),
    )


def lower_minima(
    builder: Any, scores: list[list[Any]], number: Any, is_first: Any, minima: list[Any], out: Any
) -> None:
    """Emit the fold of a panel's scores into the running minima of ROWS rows.

    ``minima`` point to the smallest scores, the second smallest, and the vector numbers of
    the smallest; ``out`` is the row of the tile to begin with.  The first panel starts them:
    what memory held before is not looked at.
    """
    n_vectors, vector = len(scores[0]), scores[0][0].type
    lanes = vector.count
    codes = ir.VectorType(I32, lanes)
    item = 8 if isinstance(vector.element, ir.DoubleType) else 4
    stride = const(LANE_BYTES // item)
    infinite = ir.Constant(vector, [float("inf")] * lanes)
    none = ir.Constant(codes, [0] * lanes)
    for r in range(ROWS):
        offset = [builder.mul(builder.add(out, const(r)), stride)]
        p_best, p_second, p_index = (builder.gep(m, offset) for m in minima)
        v_best = builder.select(is_first, infinite, load(builder, p_best, vector))
        v_second = builder.select(is_first, infinite, load(builder, p_second, vector))
        v_index = builder.select(is_first, none, load(builder, p_index, codes))
        for v in range(n_vectors):
            value = scores[r][v]
            code = builder.add(builder.mul(number, const(n_vectors)), const(v))
            nearer = builder.fcmp_ordered("<", value, v_best)
            loser = builder.select(nearer, v_best, value)
            v_best = builder.select(nearer, value, v_best)
            code = splat(builder, builder.trunc(code, I32), codes)
            v_index = builder.select(nearer, code, v_index)
            v_second = _smaller(builder, loser, v_second)
        store(builder, v_best, p_best)
        store(builder, v_second, p_second)
        store(builder, v_index, p_index)


def _make_score(lane_bytes: int, n_vectors: int, *, tail: bool = False) -> Any:
    """Make the intrinsic that folds one panel into the running minima of ROWS rows.

    Its arguments: rows (n, q), first row, panels (P, q, width), consts (P,
    width), panel number, and for each row of a tile and lane the smallest score
    so far, the second smallest, and the vector number of the smallest (T,
    lanes), then the row of the tile to begin with.  A ``tail`` is the one panel
    after all others, of shape (q, width), and is given its vector number.
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
        out: Any,
    ) -> Any:
        require_contiguous(rows, panels, consts, best, second, index)
        vector = vector_type(rows.dtype, lane_bytes)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, at, q, panel_data, const_data = tile_arguments(context, builder, signature, args)
            number = args[4]
            minima = [data(context, builder, signature.args[i], args[i]) for i in (5, 6, 7)]
            is_first = const(0, I1)
            if not tail:
                is_first = builder.icmp_signed("==", number, const(0))
                width = n_vectors * vector.count
                panel_data, const_data = panel_of(
                    builder, panel_data, const_data, number, builder.mul(q, const(width)), width
                )
            initial = _from_consts(builder, const_data, n_vectors, vector)
            scores = tile_scores(builder, x, at, q, panel_data, initial)
            lower_minima(builder, scores, number, is_first, minima, args[8])
            return context.get_dummy_value()

        intp = types.intp
        return types.void(rows, intp, panels, consts, intp, best, second, index, intp), codegen

    return score


def keep_lowest(builder: Any, scores: list[list[Any]], outputs: list[Any], out: Any) -> None:
    """Emit the two smallest scores of ROWS rows, and the center of the smallest, to outputs."""
    vector = scores[0][0].type
    infinite = ir.Constant(vector, [float("inf")] * vector.count)
    for r in range(ROWS):
        here = [builder.add(out, const(r))]
        values = _pick(builder, scores[r][0], infinite)
        for value, output in zip(values, outputs, strict=True):
            builder.store(value, builder.gep(output, here))


def _make_few(lane_bytes: int) -> Any:
    """Make the intrinsic for centers that fit one vector: scores and minima in one go.

    Its arguments: rows (n, q), first row, panels (1, q, lanes), consts (1,
    lanes), the outputs smallest score, second smallest and center (T,), and the
    row of the tile to begin with.
    """

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
        out: Any,
    ) -> Any:
        require_contiguous(rows, panels, consts, low, next_low, label)
        vector = vector_type(rows.dtype, lane_bytes)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, at, q, panel_data, const_data = tile_arguments(context, builder, signature, args)
            outputs = [data(context, builder, signature.args[i], args[i]) for i in (4, 5, 6)]
            initial = _from_consts(builder, const_data, 1, vector)
            scores = tile_scores(builder, x, at, q, panel_data, initial)
            keep_lowest(builder, scores, outputs, args[7])
            return context.get_dummy_value()

        intp = types.intp
        return types.void(rows, intp, panels, consts, low, next_low, label, intp), codegen

    return few


@intrinsic
def nearest_in_row(typingctx: Any, best: Any, second: Any, index: Any, row: Any) -> Any:
    """Reduce one row's lanes to (smallest score, second smallest, center)."""
    require_contiguous(best, second, index)
    vector = vector_type(best.dtype, LANE_BYTES)
    lanes = vector.count
    result = types.Tuple((best.dtype, best.dtype, types.int32))

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointers = [
            builder.gep(
                data(context, builder, signature.args[i], args[i]),
                [builder.mul(args[3], const(lanes))],
            )
            for i in range(3)
        ]
        low, rest, center = _pick(
            builder,
            load(builder, pointers[0], vector),
            load(builder, pointers[1], vector),
            load(builder, pointers[2], ir.VectorType(I32, lanes)),
        )
        return context.make_tuple(builder, result, (low, rest, center))

    return result(best, second, index, types.intp), codegen


#: Centers that fit half a vector register, or a whole one.
few_narrow = _make_few(NARROW_BYTES)
few_wide = _make_few(LANE_BYTES)
#: Panels of one vector of centers, of two (the fastest a center), and of the half vector
#: that a few centers beyond the last whole panel need.
score_wide = _make_score(LANE_BYTES, 1)
score_pair = _make_score(LANE_BYTES, 2)
score_tail = _make_score(NARROW_BYTES, 1, tail=True)
