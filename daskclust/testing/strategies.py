"""Hypothesis strategies; the only module that imports Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st


def row_chunks(n: int, *, max_chunks: int = 12) -> st.SearchStrategy[tuple[int, ...]]:
    """Chunk lengths of ``n`` rows: uneven, and some may be 0.

    Parameters
    ----------
    n : int
    max_chunks : int, default=12

    Returns
    -------
    strategy of tuple of int
        Lengths with sum ``n``; never an empty tuple.
    """

    def lengths(cuts: list[int]) -> tuple[int, ...]:
        ends = [*sorted(cuts), n]
        return tuple(end - start for start, end in zip([0, *ends[:-1]], ends, strict=True))

    return st.lists(st.integers(0, n), max_size=max_chunks - 1).map(lengths)
