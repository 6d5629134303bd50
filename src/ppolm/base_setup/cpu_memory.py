"""How the process keeps memory between the passes of a training on a CPU."""

from __future__ import annotations

import ctypes
import functools

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Names of glibc's settings in its ``mallopt``."""
LARGEST_KEPT = 32 * 2**20
"""Larger pieces always come from the system: glibc takes no higher value."""


@functools.cache
def keep_freed_memory() -> bool:
    """Let freed memory be used again instead of going back to the system; whether that could be set.

    Every pass frees the tensors of the one before it and takes as many again. By default the system takes the memory
    back meanwhile, and has to clear each page when it is touched again.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # not glibc
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGEST_KEPT)) and bool(mallopt(TRIM_THRESHOLD, 2**31 - 1))
