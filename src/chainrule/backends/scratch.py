"""Per-thread scratch arrays that outlive a call, so that tiles never pay for fresh pages.

It relies on callers taking at most one buffer per name at a time; a buffer's content is garbage.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

Raw = Any

_KEEP_BYTES = 8 << 20  # what one buffer may hold on to between calls
_local = threading.local()


def scratch(name: str, shape: tuple[int, ...], dtype: Any) -> Raw:
    """A contiguous array of this shape and dtype, private to the calling thread, uninitialised."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if size > _KEEP_BYTES:
        return np.empty(shape, dtype)
    buffers: dict[str, Raw] = _local.__dict__
    block = buffers.get(name)
    if block is None or block.nbytes < size:
        block = buffers[name] = np.empty(size, np.uint8)
    return np.ndarray(shape, dtype, block)
