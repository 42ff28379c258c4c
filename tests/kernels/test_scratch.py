"""Memory that is used again: never while somebody still refers to it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from daskclust.kernels.scratch import recycle, spare

SHAPE = 300, 200


def place(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def test_memory_is_used_again_when_the_last_view_is_gone() -> None:
    with ThreadPoolExecutor(1, initializer=recycle) as pool:

        def new(shape: tuple[int, ...] = SHAPE, dtype: type = np.float32) -> np.ndarray:
            return pool.submit(spare, shape, dtype).result()

        one = new()
        assert one.flags.c_contiguous
        assert one.flags.writeable
        assert one.flags.aligned
        first = place(one)
        one[:] = 7
        part = one[5:9].T.view(np.int32)
        del one
        other = new()
        other[:] = 0
        assert place(other) != first
        assert (part.view(np.float32) == 7).all()
        del part
        # Another shape and dtype that fits.
        assert place(new((200, 150), np.float64)) == first
        assert place(new((10, 200))) != first  # too small for so large a buffer
        assert place(new((900, 200))) != first
        del other


def test_elsewhere_every_array_is_new() -> None:
    arrays = [spare(SHAPE, np.int16) for _ in range(3)]
    assert len({place(array) for array in arrays}) == 3
    assert spare((0, 5), np.int16).shape == (0, 5)
