"""Emitted inner loop of the nearest-center search, in tiles of vector registers.

Scores ``const_k + x . panel_k`` of :data:`ROWS` rows against a panel of centers are kept in vector
registers, with centers as SIMD lanes: each feature of a row is broadcast and multiplied into all
centers of the panel at once.  The score of a row does not depend on the other rows of the tile.

Panels are (q, width) blocks of ``-2 c`` with one center per column.  ``consts`` are ``|c|^2``, and
infinity for padding.

For rows with missing values, the score is ``sum_j o_j c_j^2 - 2 x.c``.  Here o_j is 1 for an
observed value and 0 for a missing value, and x_j is 0 for a missing value.  Tables contain the sums
of ``c^2`` of each center for groups of four features, and for the 16 patterns of observed values in
a group.  So a score takes 1.25 times the arithmetic of a complete row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from daskclust.core.kernels.nearest._simd import (
    I1,
    I32,
    I64,
    LANE_BYTES,
    const,
    counted_loop,
    data,
    fma,
    fold_rows,
    is_given,
    load,
    require_contiguous,
    row_pointer,
    splat,
    store,
    store_rows,
    vector_type,
)

#: For a type checker, an intrinsic has the arguments of the function that emits it.
_emitted: Any = intrinsic

#: Number of scores of a row that are compared together, on all processors.
GROUP = 32
#: Number of rows of a register tile: 2 * ROWS accumulators and the centers must fit the registers.
ROWS: int = 8 if LANE_BYTES == 64 else 4
#: Number of centers of a register tile of ROWS rows, of which a GROUP is a multiple.
WIDTH: int = LANE_BYTES // 2
#: Number of rows of a register tile with one vector of centers: that many sums run in parallel.
LONG_ROWS = 8
#: Number of patterns of observed values of four features.
WAYS = 16
#: Bytes of the half-width vectors used for very few centers.
NARROW_BYTES: int = max(LANE_BYTES // 2, 16)


def tile_scores(
    builder: Any, rows: Any, first: Any, q: Any, panel: Any, initial: list[list[Any]]
) -> list[list[Any]]:
    """Emit the loop that adds features to ``initial``; return the scores, [row][vector]."""
    n_rows, n_vectors, vector = len(initial), len(initial[0]), initial[0][0].type
    lanes = vector.count
    starts = [
        builder.gep(rows, [builder.mul(builder.add(first, const(r)), q)]) for r in range(n_rows)
    ]

    def add_feature(j: Any, *sums: Any) -> list[Any]:
        here = builder.gep(panel, [builder.mul(j, const(n_vectors * lanes))])
        centers = [
            load(builder, builder.gep(here, [const(v * lanes)]), vector) for v in range(n_vectors)
        ]
        updated = []
        for r, row in enumerate(_by_rows(sums, n_rows)):
            value = splat(builder, builder.load(builder.gep(starts[r], [j])), vector)
            updated += [
                fma(builder, value, c, s, exact=False) for c, s in zip(centers, row, strict=True)
            ]
        return updated

    start = [value for row in initial for value in row]
    return _by_rows(counted_loop(builder, q, start, add_feature), n_rows)


def _by_rows(values: Sequence[Any], n_rows: int) -> list[list[Any]]:
    each = len(values) // n_rows
    return [list(values[r * each : (r + 1) * each]) for r in range(n_rows)]


def _smaller(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


def _two_lowest(builder: Any, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Emit the smallest and second smallest numbers of rows, which may have a vector of seconds."""

    def merge(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        nearer = builder.fcmp_ordered("<", a[0], b[0])
        second = builder.select(nearer, b[0], a[0])
        for seconds in zip(a[1:], b[1:], strict=True):
            second = _smaller(builder, second, _smaller(builder, *seconds))
        return builder.select(nearer, a[0], b[0]), second

    return fold_rows(builder, rows, merge)


def _lowest_lanes(builder: Any, rows: list[Any], lows: list[tuple[Any, ...]]) -> list[Any]:
    """Emit masks of the lanes that contain the smallest number of each row."""
    vector = rows[0].type
    equal = []
    for r, row in enumerate(rows):
        of_group, lane = lows[r // vector.count][0], r % vector.count
        order = ir.Constant(ir.VectorType(I32, vector.count), [lane] * vector.count)
        low = builder.shuffle_vector(of_group, of_group, order)
        equal.append(builder.fcmp_ordered("==", row, low))
    return equal


def _from_tables(
    builder: Any, bits: Any, out: Any, n_bytes: Any, table: Any, consts: Any, n_rows: int
) -> list[list[Any]]:
    """Emit the loop over the bits of rows; return the constants of the scores, [row][vector].

    ``bits`` (T, n_bytes) has a bit for each observed value.  ``table`` is (2 n_bytes, WAYS, width).
    ``consts`` are added to all rows, and are infinite for padding.
    """
    vector, n_vectors = consts[0].type, len(consts)
    width = const(n_vectors * vector.count)
    starts = [
        builder.gep(bits, [builder.mul(builder.add(out, const(r)), n_bytes)]) for r in range(n_rows)
    ]

    def add_byte(byte: Any, *sums: Any) -> list[Any]:
        block = const(2 * WAYS)
        here = builder.gep(table, [builder.mul(builder.mul(byte, block), width)])
        updated: list[Any] = []
        for r, row in enumerate(_by_rows(sums, n_rows)):
            bits = builder.zext(builder.load(builder.gep(starts[r], [byte])), I64)
            ways = builder.and_(bits, const(WAYS - 1)), builder.lshr(bits, const(4))
            for half, way in enumerate(ways):
                start = builder.mul(builder.add(way, const(half * WAYS)), width)
                for v in range(n_vectors):
                    place = builder.gep(here, [builder.add(start, const(v * vector.count))])
                    row[v] = builder.fadd(row[v], load(builder, place, vector))
            updated += row
        return updated

    return _by_rows(counted_loop(builder, n_bytes, consts * n_rows, add_byte), n_rows)


class _Panel:
    """Unpacked arguments of an intrinsic: the panel that it scores, and the rows."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        def pointer(i: int) -> Any:
            return data(context, builder, signature.args[i], args[i])

        struct = context.make_array(signature.args[0])(context, builder, args[0])
        self.builder, self.rows, self.first = builder, struct.data, args[1]
        self.q = cgutils.unpack_tuple(builder, struct.shape)[1]
        self.panel, self.consts = pointer(2), pointer(3)
        *_, self.out, _, _ = args
        at = len(args) - 2
        self.observed = is_given(signature.args[at])
        if self.observed:
            struct = context.make_array(signature.args[at])(context, builder, args[at])
            self.bits, self.table = struct.data, pointer(at + 1)
            self.n_bytes = cgutils.unpack_tuple(builder, struct.shape)[1]

    def move_to(self, number: Any, width: int) -> None:
        def moved(start: Any, size: Any) -> Any:
            return self.builder.gep(start, [self.builder.mul(number, size)])

        self.panel = moved(self.panel, self.builder.mul(self.q, const(width)))
        self.consts = moved(self.consts, const(width))
        if self.observed:
            size = self.builder.mul(self.n_bytes, const(2 * WAYS * width))
            self.table = moved(self.table, size)

    def scores(self, n_rows: int, n_vectors: int, vector: Any) -> list[list[Any]]:
        places = [
            self.builder.gep(self.consts, [const(v * vector.count)]) for v in range(n_vectors)
        ]
        consts = [load(self.builder, place, vector) for place in places]
        initial = [consts] * n_rows
        if self.observed:
            initial = _from_tables(
                self.builder, self.bits, self.out, self.n_bytes, self.table, consts, n_rows
            )
        return tile_scores(self.builder, self.rows, self.first, self.q, self.panel, initial)


def lower_minima(
    builder: Any, scores: list[list[Any]], number: Any, is_first: Any, minima: list[Any], out: Any
) -> None:
    """Emit the update of the running minima of rows by the scores of a panel.

    ``minima`` point to the smallest scores, the second smallest scores, and the vector numbers of
    the smallest scores, from row ``out`` on.  The first panel initializes them.
    """
    n_vectors, vector = len(scores[0]), scores[0][0].type
    lanes = vector.count
    codes = ir.VectorType(I32, lanes)
    item = 8 if isinstance(vector.element, ir.DoubleType) else 4
    stride = const(LANE_BYTES // item)
    infinite = ir.Constant(vector, [float("inf")] * lanes)
    no_center = ir.Constant(codes, [0] * lanes)
    for r in range(len(scores)):
        offset = [builder.mul(builder.add(out, const(r)), stride)]
        p_best, p_second, p_index = (builder.gep(m, offset) for m in minima)
        v_best = builder.select(is_first, infinite, load(builder, p_best, vector))
        v_second = builder.select(is_first, infinite, load(builder, p_second, vector))
        v_index = builder.select(is_first, no_center, load(builder, p_index, codes))
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


def _make_score(lane_bytes: int, n_vectors: int, n_rows: int, *, tail: bool = False) -> Any:
    """Create the intrinsic that updates the running minima of rows by one panel.

    Its arguments are: rows (n, q), first row, panels (P, q, width), consts (P, width), panel
    number, three arrays of minima (T, lanes), and the first row of the tile.  Then follow bits (T,
    bytes) and tables (P, 2 bytes, WAYS, width) if values may be missing, else None twice.  A
    ``tail`` is the last panel, without the axis P, and with its vector number.
    """

    @intrinsic
    def score(
        typingctx, rows, first, panels, consts, panel, best, second, index, out, bits, tables
    ):
        require_contiguous(rows, panels, consts, best, second, index, bits, tables)
        vector = vector_type(rows.dtype, lane_bytes)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            own, number = _Panel(context, builder, signature, args), args[4]
            minima = [data(context, builder, signature.args[i], args[i]) for i in (5, 6, 7)]
            is_first = const(0, I1)
            if not tail:
                is_first = builder.icmp_signed("==", number, const(0))
                own.move_to(number, n_vectors * vector.count)
            scores = own.scores(n_rows, n_vectors, vector)
            lower_minima(builder, scores, number, is_first, minima, own.out)
            return context.get_dummy_value()

        intp = types.intp
        arguments = (rows, intp, panels, consts, intp, best, second, index, intp, bits, tables)
        return types.void(*arguments), codegen

    return score


def keep_lowest(builder: Any, scores: list[list[Any]], outputs: list[Any], out: Any) -> None:
    """Emit the stores of the two smallest scores of rows, and of the center of the smallest.

    If scores are equal, the lowest center wins.  Then the second score equals the first, so the
    caller finds a difference of 0, and decides exactly.
    """
    n_rows, n_vectors, lanes = len(scores), len(scores[0]), scores[0][0].type.count
    pairs = [tuple(row) for row in scores]
    if n_vectors == 2:
        nearer = [builder.fcmp_ordered("<", a, b) for a, b in pairs]
        pairs = [
            (builder.select(is_a, a, b), builder.select(is_a, b, a))
            for is_a, (a, b) in zip(nearer, pairs, strict=True)
        ]
    lowest_two = _two_lowest(builder, pairs)
    for values, output in zip(zip(*lowest_two, strict=True), outputs, strict=False):
        store_rows(builder, values, n_rows, output, out)
    equal = [_lowest_lanes(builder, list(rows), lowest_two) for rows in zip(*scores, strict=True)]
    for r, of_row in enumerate(zip(*equal, strict=True)):
        bits = const(1 << lanes * n_vectors, I64)
        # A row of NaN has no equal lane.  Its center is 0, so that no address is out of range.
        for v, is_low in enumerate(of_row):
            some = builder.zext(builder.bitcast(is_low, ir.IntType(lanes)), I64)
            bits = builder.or_(bits, builder.shl(some, const(v * lanes)))
        center = builder.and_(builder.cttz(bits, const(0, I1)), const(lanes * n_vectors - 1))
        place = builder.gep(outputs[2], [builder.add(out, const(r))])
        builder.store(builder.trunc(center, I32), place)


def _make_few(lane_bytes: int, n_vectors: int, n_rows: int) -> Any:
    """Create the intrinsic for centers that fit one panel: it scores rows and finds the minima.

    Its arguments are as in :func:`_make_score`.  The outputs are the smallest score, the second
    smallest score and the center (T,).
    """

    @intrinsic
    def few(typingctx, rows, first, panels, consts, low, next_low, label, out, bits, tables):
        require_contiguous(rows, panels, consts, low, next_low, label, bits, tables)
        vector = vector_type(rows.dtype, lane_bytes)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            own = _Panel(context, builder, signature, args)
            outputs = [data(context, builder, signature.args[i], args[i]) for i in (4, 5, 6)]
            keep_lowest(builder, own.scores(n_rows, n_vectors, vector), outputs, own.out)
            return context.get_dummy_value()

        intp = types.intp
        arguments = (rows, intp, panels, consts, low, next_low, label, intp, bits, tables)
        return types.void(*arguments), codegen

    return few


def _make_lowest(*, skip_first: bool = False) -> Any:
    """Create the intrinsic that finds the two smallest scores of rows, and the nearest center.

    Its arguments are as in the intrinsics above.  The center of a lane is ``index * lanes + lane``.
    If scores are equal, the lowest center wins, for any width of the vectors.  With ``skip_first``,
    the nearest center is excluded.  Its lane then contains only its second smallest score, without
    a center.  The results are the smallest score of the other lanes, the smallest of all remaining
    scores, and the center of the first score.  If the second nearest center is in the lane of the
    nearest center, the second result is smaller than the first.
    """

    @intrinsic
    def lowest(typingctx, best, second, index, low, next_low, label, out):
        require_contiguous(best, second, index, low, next_low, label)
        vector = vector_type(best.dtype, LANE_BYTES)
        lanes = vector.count
        codes = ir.VectorType(I32, lanes)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            arrays = [data(context, builder, signature.args[i], args[i]) for i in range(6)]
            outputs, out = arrays[3:], args[6]
            bests, seconds, vectors = (
                [
                    load(
                        builder,
                        builder.gep(array, [builder.mul(builder.add(out, const(r)), const(lanes))]),
                        kind,
                    )
                    for r in range(ROWS)
                ]
                for array, kind in zip(arrays[:3], (vector, vector, codes), strict=True)
            )
            lowest_two = _two_lowest(builder, list(zip(bests, seconds, strict=True)))
            if skip_first:
                infinite = ir.Constant(vector, [float("inf")] * lanes)
                first = _lowest_lanes(builder, bests, lowest_two)
                bests = [
                    builder.select(equal, infinite, lane)
                    for equal, lane in zip(first, bests, strict=True)
                ]
                lowest_two = _two_lowest(builder, list(zip(bests, seconds, strict=True)))
            for values, output in zip(zip(*lowest_two, strict=True), outputs, strict=False):
                store_rows(builder, values, ROWS, output, out)
            ids = ir.Constant(codes, list(range(lanes)))
            no_center = ir.Constant(codes, [2**31 - 1] * lanes)
            centers = []
            for equal, number in zip(
                _lowest_lanes(builder, bests, lowest_two), vectors, strict=True
            ):
                center = builder.add(builder.mul(number, ir.Constant(codes, [lanes] * lanes)), ids)
                centers.append((builder.select(equal, center, no_center),))

            def lower(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
                return (builder.select(builder.icmp_signed("<", a[0], b[0]), a[0], b[0]),)

            # A row of NaN has no such lane.  Its center is 0, so that no address is out of range.
            labels = [
                builder.select(
                    builder.icmp_signed("==", center, no_center),
                    ir.Constant(codes, [0] * lanes),
                    center,
                )
                for (center,) in fold_rows(builder, centers, lower)
            ]
            store_rows(builder, labels, ROWS, outputs[2], out)
            return context.get_dummy_value()

        return types.void(best, second, index, low, next_low, label, types.intp), codegen

    return lowest


#: Intrinsics for centers that fit half a vector register, one, or two.
few_narrow = _make_few(NARROW_BYTES, 1, LONG_ROWS)
few_wide = _make_few(LANE_BYTES, 1, LONG_ROWS)
few_pair = _make_few(LANE_BYTES, 2, ROWS)
#: Intrinsics for panels of one vector of centers, of two vectors (the fastest per center), and of
#: half a vector for a few centers after the last complete panel.
score_wide = _make_score(LANE_BYTES, 1, LONG_ROWS)
score_pair = _make_score(LANE_BYTES, 2, ROWS)
score_tail = _make_score(NARROW_BYTES, 1, LONG_ROWS, tail=True)
#: Intrinsics that find the nearest center, and the next one, of ROWS rows of a tile.
lowest_in_rows = _make_lowest()
next_in_rows = _make_lowest(skip_first=True)


def _groups(builder: Any) -> tuple[Any, ir.VectorType, list[int]]:
    """Return a function that loads the vectors of a group, their type, and their positions."""
    lanes = LANE_BYTES // 4
    vector = vector_type(types.float32, LANE_BYTES)
    offsets = [at * lanes for at in range(GROUP // lanes)]

    def vectors(pointer: Any, start: Any) -> list[Any]:
        places = [builder.gep(pointer, [builder.add(start, const(at))]) for at in offsets]
        return [load(builder, place, vector) for place in places]

    return vectors, vector, offsets


@_emitted
def lane_minima(typingctx, scores, i, lows):
    """Emit ``lows[l] = min(scores[i, l::GROUP])`` without NaN.  Rows consist of complete groups."""
    require_contiguous(scores, lows)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        ty = signature.args[0]
        pointer, length = row_pointer(context, builder, ty, args[0], args[1])
        vectors, vector, offsets = _groups(builder)
        infinite = ir.Constant(vector, [float("inf")] * vector.count)

        def body(start: Any, *lowest: Any) -> list[Any]:
            group = vectors(pointer, start)
            return [
                builder.select(builder.fcmp_ordered("<", one, low), one, low)
                for one, low in zip(group, lowest, strict=True)
            ]

        final = counted_loop(builder, length, [infinite] * len(offsets), body, GROUP)
        target = data(context, builder, signature.args[2], args[2])
        for low, at in zip(final, offsets, strict=True):
            store(builder, low, builder.gep(target, [const(at)]))
        return context.get_dummy_value()

    return types.void(scores, i, lows), codegen


@_emitted
def write_scores(typingctx, rows, first, panels, consts, panel, scores):
    """Emit the stores of the scores of :data:`ROWS` rows against a panel, from row ``first`` on.

    Rows are (n, q), panels (P, q, :data:`WIDTH`), consts (P, WIDTH) and scores (n, P WIDTH).
    """
    require_contiguous(rows, panels, consts, scores)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def row(i: int, number: Any) -> tuple[Any, Any]:
            return row_pointer(context, builder, signature.args[i], args[i], number)

        vector, number = vector_type(types.float32, LANE_BYTES), args[4]
        places = [const(v * vector.count) for v in range(2)]
        source, q = row(0, args[1])
        own, _ = row(2, builder.mul(number, q))
        initial, _ = row(3, number)
        of_panel = [load(builder, builder.gep(initial, [place]), vector) for place in places]
        found = tile_scores(builder, source, const(0), q, own, [of_panel] * ROWS)
        for r, of_row in enumerate(found):
            target, _ = row(5, builder.add(args[1], const(r)))
            target = builder.gep(target, [builder.mul(number, const(WIDTH))])
            for score, place in zip(of_row, places, strict=True):
                store(builder, score, builder.gep(target, [place]))
        return context.get_dummy_value()

    intp = types.intp
    return types.void(rows, intp, panels, consts, intp, scores), codegen


@_emitted
def lowest_bit(typingctx, bits):
    """Return the position of the lowest bit of an integer that is not 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], const(1, I1))

    return types.int64(types.int64), codegen


@_emitted
def not_above(typingctx, scores, i, start, limit):
    """Return a bit for each of ``scores[i, start : start + GROUP]`` that is not above a limit."""
    require_contiguous(scores)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        ty = signature.args[0]
        pointer, _ = row_pointer(context, builder, ty, args[0], args[1])
        vectors, vector, offsets = _groups(builder)
        bound, bits = splat(builder, args[3], vector), const(0)
        for one, at in zip(vectors(pointer, args[2]), offsets, strict=True):
            below = builder.fcmp_unordered("<=", one, bound)
            mask = builder.zext(builder.bitcast(below, ir.IntType(vector.count)), I64)
            bits = builder.or_(bits, builder.shl(mask, const(at)))
        return bits

    return types.int64(scores, i, start, types.float32), codegen
