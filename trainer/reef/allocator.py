"""What this process does with memory that it frees."""

from __future__ import annotations

import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # malloc.h: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
KEPT_BYTES = 256 << 20  # freed memory above this goes back to the kernel
MAPPED_BYTES = 32 << 20  # an array from this size on has pages of its own; glibc's manual allows no more


def keep_freed_memory() -> None:
    """Let this process keep memory that it frees, as far as its C library can be told.

    Every gradient step frees arrays that the next one needs again. By default glibc gives much of it back to the kernel
    each time, which returns it zeroed, one page fault for every 4 KiB.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc
        mallopt(TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(MMAP_THRESHOLD, MAPPED_BYTES)
