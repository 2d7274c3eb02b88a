"""Whether the kernel has killed a process of this container for its memory: the container itself may well live on."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from reef.errors import ReefError

EXIT_OUT_OF_MEMORY = 137  # as of a container whose first process was the one to be killed
COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")  # of both versions of cgroups


class OutOfMemoryError(ReefError):
    """A process of this container used more memory than there is."""

    exit_code = EXIT_OUT_OF_MEMORY


def kills(counters: tuple[str, ...] = COUNTERS) -> int:
    """How many processes of this container the kernel has killed for their memory; 0 where it does not say."""
    for path in counters:
        with contextlib.suppress(OSError):
            if found := re.search(r"^oom_kill (\d+)$", Path(path).read_text(), re.MULTILINE):
                return int(found[1])
    return 0
