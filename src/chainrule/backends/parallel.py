"""A small persistent thread pool for array work, remade after fork.

It relies on NumPy releasing the interpreter lock inside ufuncs and BLAS. Chunks are numbered by
the caller and never depend on the thread count, so results do not depend on scheduling.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

import numpy as np

from chainrule.errors import InputError

Chunk = Callable[[int], object]


def _available_cores() -> int:
    """The cores this process may run on, which a container or taskset may have narrowed."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


class _Job:
    """One `parallel_for`: chunks are claimed in rising order by whichever thread is free.

    Ctrl-C reaches the calling thread only, between any two instructions; so the waiting counts
    the helpers alone, which it cannot strike, and locks are C locks, which it cannot leave held.
    """

    def __init__(self, fn: Chunk, n_chunks: int) -> None:
        self.fn = fn
        self.n_chunks = n_chunks
        self.claimed = 0
        self.joined = 0
        self.left = 0
        self.failure: tuple[int, BaseException] | None = None
        self.lock = threading.Lock()
        self.departures: SimpleQueue[None] = SimpleQueue()

    def claim(self) -> int:
        """The next chunk, or −1 when none is left to start."""
        with self.lock:
            index = self.claimed
            if index >= self.n_chunks:
                return -1
            self.claimed = index + 1
            return index

    def stop(self) -> None:
        with self.lock:
            self.claimed = self.n_chunks

    def work(self) -> None:
        """Run chunks until none is left.

        Of several failures the lowest chunk's is kept. Claims rise, so whatever lies below a
        failing chunk has been claimed and will report: the error is the same on every run.
        """
        while (index := self.claim()) >= 0:
            try:
                self.fn(index)
            except BaseException as error:  # noqa: PERF203, a chunk is large
                self.stop()
                with self.lock:
                    if self.failure is None or index < self.failure[0]:
                        self.failure = (index, error)

    def help(self) -> None:
        """A worker's part: one that comes late is turned away and never touches an array."""
        with self.lock:
            if self.claimed >= self.n_chunks:
                return
            self.joined += 1
        self.work()
        with self.lock:
            self.left += 1
        self.departures.put(None)

    def settle(self) -> None:
        """Stop, and wait until no helper touches the caller's arrays, even when interrupted."""
        interrupt: KeyboardInterrupt | None = None
        while True:
            try:
                self.stop()
                while self.left < self.joined:
                    try:
                        self.departures.get(timeout=0.1)
                    except Empty:  # noqa: PERF203, this waits anyway
                        continue
                break
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt


class _Pool:
    """The workers of this process, and how many threads a job may use in all."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self.reset()

    def reset(self) -> None:
        """Forget the workers: they do not exist in a forked child."""
        self.lock = threading.Lock()
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self.n_workers = 0
        self.inside = threading.local()

    def serve(self, jobs: SimpleQueue[_Job | None]) -> None:
        self.inside.busy = True
        with np.errstate(all="ignore"):  # once a thread, not once a chunk: 3 µs each
            while (job := jobs.get()) is not None:
                job.help()
                del job

    def offer(self, job: _Job, helpers: int) -> None:
        """Ask `helpers` workers to join; one that comes late finds nothing left and moves on."""
        with self.lock:
            while self.n_workers < helpers:
                threading.Thread(
                    target=self.serve, args=(self.jobs,), name="chainrule-worker", daemon=True
                ).start()
                self.n_workers += 1
        for _ in range(helpers):
            self.jobs.put(job)

    def resize(self, n_threads: int) -> None:
        with self.lock:
            self.n_threads = n_threads
            while self.n_workers > n_threads - 1:
                self.jobs.put(None)
                self.n_workers -= 1


_pool = _Pool(_available_cores())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.reset)


def get_num_threads() -> int:
    """The number of threads that raw array work may use, the calling one included."""
    return _pool.n_threads


def set_num_threads(n: int) -> None:
    """Use at most `n` threads, the calling one included; raises `InputError` below 1."""
    if n < 1:
        raise InputError(f"the thread count must be at least 1, got {n}")
    _pool.resize(n)


def in_parallel() -> bool:
    """Whether this code already runs as a chunk of a parallel job."""
    return getattr(_pool.inside, "busy", False)


def parallel_for(fn: Chunk, n_chunks: int, *, threads: int | None = None) -> None:
    """Run `fn(0) … fn(n_chunks - 1)` on the pool and the calling thread, and wait for all.

    Chunks must write to disjoint places. With one thread, one chunk, or from inside another job,
    everything runs in the caller. A chunk's exception stops the claiming of further chunks and is
    raised here, the lowest chunk's first; on Ctrl-C the running chunks finish before it is raised.
    Workers ignore floating-point warnings; the caller sets `np.errstate` for its own share.
    """
    limit = _pool.n_threads if threads is None else min(threads, _pool.n_threads)
    helpers = min(limit, n_chunks) - 1
    if helpers < 1 or in_parallel():
        for index in range(n_chunks):
            fn(index)
        return
    job = _Job(fn, n_chunks)
    _pool.inside.busy = True
    try:
        _pool.offer(job, helpers)
        job.work()
    finally:
        _pool.inside.busy = False
        job.settle()
    if job.failure is not None:
        try:
            raise job.failure[1]
        finally:
            job.failure = None  # the traceback holds this frame: break the cycle
