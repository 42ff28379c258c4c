"""Rows that are stored in half precision."""

from __future__ import annotations

import numpy as np

from daskclust.core.kernels.buffers import converted


def test_all_numbers_of_half_precision_are_converted() -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    single = np.dtype(np.float32)
    for x in (halves, halves.reshape(-1, 4), halves[::3]):
        bits = x.astype(single).view(np.uint32)
        np.testing.assert_array_equal(converted(x, single).view(np.uint32), bits)
    assert converted(np.array([[0.5]], np.float16), np.dtype(float)).tolist() == [[0.5]]
