"""How busy the machine is: from /proc, and from CUDA where this process computes on a GPU."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


class SystemLoad:
    """CPU, memory and GPU of this machine, in percent; what is not known is left out."""

    def __init__(self) -> None:
        self._busy_and_total = _cpu_ticks()

    def percent(self) -> dict[str, float]:
        """`cpu_util_percent` since the last call and, as of now, `ram_util_percent` and those of the GPU in use."""
        (busy, total), before = _cpu_ticks(), self._busy_and_total
        self._busy_and_total = (busy, total)
        load = {}
        if total > before[1]:
            load["cpu_util_percent"] = 100.0 * (busy - before[0]) / (total - before[1])
        memory = _memory_kib()
        if memory.get("MemTotal"):
            load["ram_util_percent"] = 100.0 * (1.0 - memory["MemAvailable"] / memory["MemTotal"])
        return load | _gpu_percent()


def _gpu_percent() -> dict[str, float]:
    """`vram_util_percent` and, where NVIDIA's library is installed, `gpu_util_percent`."""
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # asking takes memory of a GPU not in use
        return {}
    device = next((i for i in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(i)), 0)
    free, total = torch.cuda.mem_get_info(device)
    load = {"vram_util_percent": 100.0 * (1.0 - free / total)}
    with suppress(Exception):  # no pynvml, or a GPU that does not report it, such as a part of one (MIG)
        load["gpu_util_percent"] = float(torch.cuda.utilization(device))
    return load


def _cpu_ticks() -> tuple[int, int]:
    """(busy, total) since boot. Fields of the first line: user nice system idle iowait irq softirq steal ..."""
    try:
        ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return 0, 0
    return sum(ticks) - sum(ticks[3:5]), sum(ticks)


def _memory_kib() -> dict[str, int]:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return {line.split(":")[0]: int(line.split()[1]) for line in lines[:3]}
    except (OSError, ValueError, IndexError):
        return {}
