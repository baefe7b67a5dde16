"""The thread pool and the BLAS hold: order, errors, interrupts, fork, nothing left behind."""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time

import numpy as np
import pytest

from chainrule.backends import blas, parallel
from chainrule.errors import InputError


@pytest.fixture(params=[1, 2, 4])
def threads(request):
    before = parallel.get_num_threads()
    parallel.set_num_threads(request.param)
    yield request.param
    parallel.set_num_threads(before)


@pytest.mark.parametrize("n_chunks", [0, 1, 2, 7, 100])
def test_every_chunk_runs_once(threads, n_chunks):
    runs = [0] * n_chunks

    def chunk(i):
        runs[i] += 1

    parallel.parallel_for(chunk, n_chunks)
    assert runs == [1] * n_chunks


@pytest.mark.parametrize("threads", [2, 4], indirect=True)
def test_two_threads_do_meet(threads):
    barrier = threading.Barrier(2, timeout=10)
    parallel.parallel_for(lambda i: barrier.wait(), 2)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no CPU affinity here")
def test_default_thread_count_is_the_cores_we_may_use():
    assert parallel.get_num_threads() == len(os.sched_getaffinity(0))


def test_thread_count_below_one_is_refused():
    with pytest.raises(InputError, match="at least 1, got 0"):
        parallel.set_num_threads(0)


@pytest.mark.parametrize("slow", [3, 4])
def test_the_lowest_failing_chunk_is_the_one_reported(threads, slow):
    def chunk(i):
        if i in (3, 4):
            time.sleep(0.03 if i == slow else 0.01)
            raise ValueError(f"chunk {i}")

    for _ in range(5):
        with pytest.raises(ValueError, match="chunk 3"):
            parallel.parallel_for(chunk, 8)
    parallel.parallel_for(lambda i: None, 8)


@pytest.mark.parametrize("threads", [2, 4], indirect=True)
def test_the_caller_waits_for_the_slowest_thread(threads):
    meet = threading.Barrier(2, timeout=10)
    done = []

    def chunk(i):
        meet.wait()
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.1)
        done.append(i)

    parallel.parallel_for(chunk, 2)
    assert sorted(done) == [0, 1]


@pytest.mark.parametrize("threads", [4], indirect=True)
def test_a_job_inside_a_job_runs_in_its_thread(threads):
    seen = []

    def outer(i):
        me = threading.get_ident()
        inner = []

        def chunk(j):
            time.sleep(0.002)
            inner.append(threading.get_ident() == me)

        parallel.parallel_for(chunk, 8)
        seen.append(inner)

    parallel.parallel_for(outer, 2)  # leaves two workers idle, who must not join
    assert seen == [[True] * 8] * 2


def test_several_callers_share_the_workers(threads):
    totals = [0] * 4

    def caller(c):
        out = np.zeros(50)
        for _ in range(20):
            parallel.parallel_for(lambda i: out.__setitem__(i, out[i] + 1), 50)
        totals[c] = out.sum()

    callers = [threading.Thread(target=caller, args=(c,)) for c in range(4)]
    for t in callers:
        t.start()
    for t in callers:
        t.join(30)
    assert totals == [1000] * 4


def test_interrupt_waits_for_running_chunks_and_leaves_the_pool_usable(threads):
    running = []
    hit = threading.Event()

    def chunk(i):
        running.append(i)
        try:
            if not hit.is_set():
                hit.set()
                _thread.interrupt_main()
            main = threading.current_thread() is threading.main_thread()
            time.sleep(0.01 if main else 0.1)
        finally:
            running.remove(i)

    with pytest.raises(KeyboardInterrupt):
        parallel.parallel_for(chunk, 50)
    assert running == []
    done = []
    parallel.parallel_for(done.append, 5)
    assert sorted(done) == [0, 1, 2, 3, 4]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_gets_workers_of_its_own(threads):
    parallel.parallel_for(lambda i: None, 4)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            a = np.ones((64, 64))
            out = np.zeros(8)
            meet = threading.Barrier(min(2, threads), timeout=10)
            parallel.parallel_for(lambda i: meet.wait(), min(2, threads))
            with blas.single_threaded():
                parallel.parallel_for(lambda i: out.__setitem__(i, (a @ a).sum()), 8)
            code = 0 if (out == 64.0**3).all() else 2
        finally:
            os._exit(code)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    pytest.fail("the child hung in parallel_for")


needs_blas = pytest.mark.skipif(not blas.can_hold(), reason="this BLAS has no thread control")


@needs_blas
def test_blas_is_held_inside_and_as_before_outside():
    before = blas.num_threads()
    with blas.single_threaded():
        assert blas.num_threads() == 1
        with blas.single_threaded():
            assert blas.num_threads() == 1
        assert blas.num_threads() == 1
    assert blas.num_threads() == before
    with pytest.raises(ValueError, match="inside"), blas.single_threaded():
        raise ValueError("inside")
    assert blas.num_threads() == before


@needs_blas
def test_overlapping_holds_of_two_threads_restore_the_setting():
    before = blas.num_threads()
    entered, leave = threading.Event(), threading.Event()

    def other():
        with blas.single_threaded():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with blas.single_threaded():
        thread.start()
        entered.wait(10)
    assert blas.num_threads() == 1  # the other thread still computes
    leave.set()
    thread.join(10)
    assert blas.num_threads() == before


def test_without_thread_control_the_hold_does_nothing(monkeypatch):
    monkeypatch.setattr(blas, "_hold", blas._Hold())
    monkeypatch.setattr(blas, "_find_controls", lambda: None)
    assert not blas.can_hold()
    assert blas.num_threads() is None
    with blas.single_threaded():
        assert blas.num_threads() is None
