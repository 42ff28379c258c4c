"""Calls side by side on threads that are kept."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref

import dask
import numpy as np
import pytest

import daskclust
from daskclust.core.engine import threads
from daskclust.core.engine.threads import cpu_threads, side_by_side


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    # Use the requested number of threads, for any number of cores.
    monkeypatch.setattr(threads, "CPU_COUNT", 4)
    with dask.config.set({"daskclust.num-threads": 2}):
        yield
    threads._helpers.cache_clear()


def test_results_come_in_the_order_of_the_calls():
    def call(i):
        time.sleep(0.01 * (i % 3))
        return i

    assert side_by_side([lambda i=i: call(i) for i in range(20)]) == list(range(20))
    assert side_by_side([]) == []


def test_two_calls_run_at_the_same_time():
    meet = threading.Barrier(2, timeout=300)
    assert sorted(side_by_side([meet.wait, meet.wait])) == [0, 1]


def test_who_is_busy_holds_nobody_up():
    # The second call lasts until all others are made: by one thread, whichever it is.
    left, done, seen = set(range(6)) - {1}, threading.Event(), set()

    def call(i):
        if i == 1:
            assert done.wait(300)
        else:
            seen.add(threading.get_ident())
            left.discard(i)
            if not left:
                done.set()
        return i

    assert side_by_side([lambda i=i: call(i) for i in range(6)]) == list(range(6))
    assert len(seen) <= 2


def test_each_call_is_made_once():
    made = []
    for _ in range(50):
        side_by_side([lambda i=i: made.append(i) for i in range(7)])
    assert sorted(made) == sorted(50 * list(range(7)))


def test_after_an_error_of_a_helper_no_further_call_is_begun():
    begun, failed = [], threading.Event()

    def call(i):
        begun.append(i)
        if threading.current_thread() is not caller:
            failed.set()
            raise ValueError(i)
        # The helper fails in the meantime.
        assert failed.wait(300)
        time.sleep(0.05)

    caller = threading.current_thread()
    with pytest.raises(ValueError, match=r"^[01]$"):
        side_by_side([lambda i=i: call(i) for i in range(6)])
    assert set(begun) <= {0, 1}


def test_where_no_thread_can_be_started_the_caller_makes_all_calls(monkeypatch):
    def refused(*args):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads.ThreadPoolExecutor, "submit", refused)
    seen = side_by_side([threading.get_ident] * 5)
    assert seen == [threading.get_ident()] * 5


@pytest.mark.skipif(np.__version__ < "2", reason="NumPy 1 keeps errstate by thread, not by context")
def test_helpers_work_in_the_callers_context():
    meet = threading.Barrier(2, timeout=300)

    def call():
        meet.wait()
        return np.geterr()["over"]

    with np.errstate(over="raise"):
        assert side_by_side([call, call]) == ["raise", "raise"]


def test_calls_within_calls_end():
    def inner(i):
        return sum(side_by_side([lambda j=j: i * j for j in range(4)]))

    found = side_by_side([lambda i=i: inner(i) for i in range(12)])
    assert found == [6 * i for i in range(12)]


@pytest.mark.parametrize("bad", [{0}, {1}, {2, 5}, {0, 1}, set(range(8))])
def test_of_several_errors_the_first_is_raised_and_no_call_is_running(bad):
    running = []

    def call(i):
        running.append(i)
        try:
            time.sleep(0.005)
            if i in bad:
                raise ValueError(i)
        finally:
            running.remove(i)

    for _ in range(5):
        with pytest.raises(ValueError, match=f"^{min(bad)}$"):
            side_by_side([lambda i=i: call(i) for i in range(8)])
        assert not running


def test_an_interrupt_waits_for_the_helper_and_passes_on():
    begun, ended = threading.Event(), threading.Event()

    def interrupted():
        assert begun.wait(300)
        raise KeyboardInterrupt

    def helper():
        begun.set()
        time.sleep(0.1)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        side_by_side([interrupted, helper, lambda: pytest.fail("begun after an interrupt")])
    assert ended.is_set()


@pytest.mark.parametrize("who", ["caller", "helper"])
def test_an_error_does_not_hold_the_data(who):
    class Data:
        pass

    caller = threading.current_thread()

    def run():
        data = Data()
        meet = threading.Barrier(2, timeout=300)

        def fails():
            meet.wait()
            if (threading.current_thread() is caller) == (who == "caller"):
                raise RuntimeError(str(id(data)))

        with pytest.raises(RuntimeError):
            side_by_side([fails, fails])
        return weakref.ref(data)

    gc.disable()
    try:
        assert run()() is None
    finally:
        gc.enable()


def test_fits_leave_no_more_threads_than_there_are_helpers():
    x = np.random.default_rng(0).normal(size=(100_000, 4))
    for seed in range(4):
        daskclust.KMeans(3, random_state=seed).fit(x)
    ours = [t for t in threading.enumerate() if t.name.startswith("daskclust")]
    assert len(ours) == cpu_threads() - 1 == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_has_helpers_of_its_own():
    assert side_by_side([lambda: 1, lambda: 2]) == [1, 2]
    meet = threading.Barrier(2, timeout=300)
    child = os.fork()
    if child == 0:
        # Both must run at the same time.
        try:
            os._exit(0 if sorted(side_by_side([meet.wait, meet.wait])) == [0, 1] else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
