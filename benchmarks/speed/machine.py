"""The machine and the state of the checkout, for the record beside the numbers."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def moment() -> dict[str, Any]:
    """Return when this is, from which commit, on what machine, and how busy that was before."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit.stdout.strip() or "unknown",
        "load_before": f"{os.getloadavg()[0]:.2f}",
        "machine": _describe(),
    }


def _describe() -> dict[str, str]:
    """Return GPUs, processor, cores, memory, system and Python of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    gpus = [path.read_text() for path in Path("/proc/driver/nvidia/gpus").glob("*/information")]
    models = [line.partition(":")[2].strip() for text in gpus for line in text.splitlines() if line.startswith("Model")]
    return {
        **({"GPU": ", ".join(models)} if models else {}),
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory:.0f} GB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
