"""What this process does with memory that it frees."""

from __future__ import annotations

import ctypes
import os

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # malloc.h: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
KEPT_BYTES = 256 << 20  # more than this goes back to the kernel, from the end of the heap
SET_BY_PEOPLE = ("GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
MAPPED_BYTES = 32 << 20  # an array from this size on has pages of its own; glibc's manual allows no more


def keep_freed_memory() -> None:
    """Let this process keep memory that it frees, as far as its C library can be told.

    Every gradient step frees arrays that the next one needs again. By default glibc gives much of it back to the kernel
    each time, which returns it zeroed, one page fault for every 4 KiB. Does nothing where the environment says
    otherwise (GLIBC_TUNABLES, MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not os.environ.keys() & set(SET_BY_PEOPLE):  # glibc
        mallopt(TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(MMAP_THRESHOLD, MAPPED_BYTES)
