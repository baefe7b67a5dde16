"""What a measurement was taken on: the processor in general terms, threads and versions.

Says nothing that names a host. Relies on the standard library.
"""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path

from chainrule._version import __version__


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def chip(threads: int) -> str:
    """Cores, architecture, vector width and the threads that were used: no model, no host."""
    machine = {"AMD64": "x86-64", "x86_64": "x86-64", "arm64": "aarch64"}.get(
        platform.machine(), platform.machine()
    )
    vectors = _vectors()
    kind = f"{machine} {vectors}" if vectors else machine
    return f"{cores()} cores, {kind}, {threads} thread{'s' if threads > 1 else ''} used"


def _vectors() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    flags: set[str] = set()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            flags = set(value.split())
            break
    names = {"avx512f": "AVX-512", "avx2": "AVX2", "sve": "SVE", "asimd": "NEON", "avx": "AVX"}
    return next((name for flag, name in names.items() if flag in flags), "")


def versions() -> str:
    """Python, chainrule, and the packages measured beside it that this process has imported."""
    found = [f"python {platform.python_version()}", f"chainrule {__version__}"]
    found += [
        f"{name} {metadata.version(name).partition('+')[0]}"
        for name in ("numpy", "torch", "jax")
        if name in sys.modules
    ]
    return "; ".join(found)
