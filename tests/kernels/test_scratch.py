"""Memory that is used again: never while somebody still refers to it."""

from __future__ import annotations

import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from daskclust.kernels.scratch import converted, recycle, spare

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


def test_the_smallest_that_will_do_is_used_again() -> None:
    with ThreadPoolExecutor(1, initializer=recycle) as pool:
        large, small = (pool.submit(spare, (n,), np.uint8).result() for n in (390_000, 200_000))
        places = place(large), place(small)
        del large, small
        found = [pool.submit(spare, (199_000,), np.uint8).result() for _ in range(2)]
        assert [place(one) for one in found] == [places[1], places[0]]


def test_waiting_memory_does_not_grow_with_odd_sizes() -> None:
    gone: list[int] = []
    with ThreadPoolExecutor(1, initializer=recycle) as pool:
        for number in range(12):
            one = pool.submit(spare, (2**18 << number,), np.uint8).result()
            weakref.finalize(one.base.base.obj, gone.append, number)
            del one
        # Each is too large for those before it; only the last of them waits.
        assert gone == list(range(11))


def test_elsewhere_every_array_is_new() -> None:
    arrays = [spare(SHAPE, np.int16) for _ in range(3)]
    assert len({place(array) for array in arrays}) == 3
    assert spare((0, 5), np.int16).shape == (0, 5)


def test_all_numbers_of_half_precision_are_converted() -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    single = np.dtype(np.float32)
    for x in (halves, halves.reshape(-1, 4), halves[::3]):
        bits = x.astype(single).view(np.uint32)
        np.testing.assert_array_equal(converted(x, single).view(np.uint32), bits)
    assert converted(np.array([[0.5]], np.float16), np.dtype(float)).tolist() == [[0.5]]
