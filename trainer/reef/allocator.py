"""What this process does with memory that it frees."""

from __future__ import annotations

import ctypes
import os

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # malloc.h: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
KEPT_BYTES = 256 << 20  # more than this goes back to the kernel, from the end of the heap
MAPPED_BYTES = 32 << 20  # an array from this size on has pages of its own; glibc's manual allows no more
MAX_INT = 2**31 - 1  # what glibc takes at most


def keep_freed_memory() -> None:
    """Let this process keep memory that it frees, as far as its C library can be told.

    Every gradient step frees arrays that the next one needs again. By default glibc gives much of it back to the kernel
    each time, which returns it zeroed, one page fault for every 4 KiB. Other limits, in bytes, may be set as
    MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_, also after the process began; nothing is changed beside
    GLIBC_TUNABLES for malloc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "glibc.malloc." not in os.environ.get("GLIBC_TUNABLES", ""):  # glibc
        mallopt(TRIM_THRESHOLD, _limit("MALLOC_TRIM_THRESHOLD_", KEPT_BYTES))
        mallopt(MMAP_THRESHOLD, _limit("MALLOC_MMAP_THRESHOLD_", MAPPED_BYTES))


def _limit(variable: str, otherwise: int) -> int:
    given = os.environ.get(variable, "")
    return min(int(given), MAX_INT) if given.isdecimal() else otherwise
