"""What holds for every test: one thread of BLAS each where several pytest processes share the cores.

Two processes with two spinning threads each on two cores wait for one another most of the time.
"""

from __future__ import annotations

import os
import signal

import hypothesis
import pytest

# Whether an example took 200 ms says how busy the machine is, and nothing about the product.
hypothesis.settings.register_profile("chainrule", deadline=None)
hypothesis.settings.load_profile("chainrule")


def pytest_configure(config: pytest.Config) -> None:
    """Before pytest-xdist starts its workers, which inherit the environment and import NumPy."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background job
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if getattr(config.option, "numprocesses", None):
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ.setdefault(name, "1")
