"""What this container may use, and what it was killed for: the files of its control group, of version 2 or 1."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

CPU_QUOTAS = ("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
MEMORY_EVENTS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")


def cpu_quota(files: Sequence[str | Path] = CPU_QUOTAS) -> float | None:
    """CPUs of the container's quota, None without one."""
    for file in map(Path, files):
        with contextlib.suppress(OSError, ValueError):
            words = file.read_text().split()
            period = int(words[1]) if len(words) > 1 else int((file.parent / "cpu.cfs_period_us").read_text())
            return int(words[0]) / period if int(words[0]) > 0 else None
    return None


def memory_bytes(files: Sequence[str | Path] = MEMORY_LIMITS) -> int:
    """The memory of this container: its limit, or all of the machine."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in map(Path, files):
        with contextlib.suppress(OSError, ValueError):  # of the other version, or "max"
            sizes.append(int(file.read_text()))
    return min(sizes)


def memory_kills(files: Sequence[str | Path] = MEMORY_EVENTS) -> int:
    """How many processes of this container the kernel has killed for their memory; 0 where it does not say."""
    for file in map(Path, files):
        with contextlib.suppress(OSError):
            if found := re.search(r"^oom_kill (\d+)$", file.read_text(), re.MULTILINE):
                return int(found[1])
    return 0
