"""The end of a segment of rows: its plain sums join the compensated totals.

Imports :mod:`daskclust.kernels.compensated` only.
"""

from __future__ import annotations

from typing import Any

from daskclust.kernels.compensated import add_plain
from daskclust.kernels.compiling import inner

__all__ = ["flush", "flush_observed"]


@inner(counted=False)
def flush(hi: Any, lo: Any, sums: Any, totals: Any) -> None:
    """Add a segment's plain sums to the compensated totals, and start the next at 0."""
    p = sums.shape[1]
    for c in range(sums.shape[0]):
        if totals[c, 0] != 0.0:
            add_plain(hi[c, :p], lo[c, :p], sums[c])
            add_plain(hi[c, p:], lo[c, p:], totals[c])
        sums[c] = 0.0
        totals[c] = 0.0


@inner(counted=False)
def flush_observed(hi: Any, lo: Any, sums: Any, totals: Any) -> None:
    """As :func:`flush`, of sums and masses: two halves, each as long as p features or more."""
    p, half = (hi.shape[1] - totals.shape[1]) // 2, sums.shape[1] // 2
    for c in range(sums.shape[0]):
        if totals[c, 0] != 0.0:
            add_plain(hi[c, :p], lo[c, :p], sums[c, :p])
            add_plain(hi[c, p : 2 * p], lo[c, p : 2 * p], sums[c, half : half + p])
            add_plain(hi[c, 2 * p :], lo[c, 2 * p :], totals[c])
        sums[c] = 0.0
        totals[c] = 0.0
