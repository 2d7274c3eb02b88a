"""Memory that a process frees and needs again costs no page faults."""

from __future__ import annotations

import platform
import resource
from multiprocessing import get_context

import numpy as np
import pytest

from reef.allocator import keep_freed_memory


def faults_of_using_memory_again() -> int:
    def use() -> None:
        arrays = [np.ones(1 << 20) for _ in range(8)]  # 64 MiB, 16,384 pages
        del arrays

    keep_freed_memory()
    use()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        use()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps memory by its own rules")
def test_memory_that_is_freed_and_used_again_is_not_fetched_again() -> None:
    with get_context("spawn").Pool(1) as pool:  # what the process of the tests keeps shall stay as it is
        assert pool.apply(faults_of_using_memory_again) < 1_000
