"""Tools for testing algorithms that are built on this package.

The Hypothesis strategies are in :mod:`daskclust.testing.strategies`, the only
module that needs Hypothesis.
"""

from daskclust.testing.laws import (
    CountingScheduler,
    assert_results_close,
    check_merge_laws,
    check_reduction_laws,
    reduce_blocks,
    reduce_groups,
    row_blocks,
)

__all__ = [
    "CountingScheduler",
    "assert_results_close",
    "check_merge_laws",
    "check_reduction_laws",
    "reduce_blocks",
    "reduce_groups",
    "row_blocks",
]
