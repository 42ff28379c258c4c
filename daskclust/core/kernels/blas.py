"""Limit BLAS to one thread per task, if several tasks share a process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    # Finding the libraries takes milliseconds, so it is done once per process, not per block.
    return ThreadpoolController()


class _Shared:
    """Number of threads inside :func:`one_blas_thread`, and their common limit."""

    lock = threading.Lock()
    inside = 0
    limit: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread while any thread of this process is inside.

    The first thread sets the limit, and the last one restores the previous limit of the process.
    """
    with _Shared.lock:
        if _Shared.inside == 0:
            _Shared.limit = _controller().limit(limits=1, user_api="blas")
            _Shared.limit.__enter__()
        _Shared.inside += 1
    try:
        yield
    finally:
        with _Shared.lock:
            _Shared.inside -= 1
            if _Shared.inside == 0:
                _Shared.limit.__exit__(None, None, None)
