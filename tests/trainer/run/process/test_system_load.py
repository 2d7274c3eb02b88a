from __future__ import annotations

import pytest
import torch

from reef.run.process.system_load import SystemLoad


def test_a_gpu_that_this_process_does_not_use_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: pytest.fail("which takes memory of it"))
    assert not SystemLoad().percent().keys() & {"vram_util_percent", "gpu_util_percent"}


@pytest.mark.parametrize("tells", [True, False])
def test_of_several_gpus_the_one_in_use_is_told_of(monkeypatch: pytest.MonkeyPatch, tells: bool) -> None:
    def utilization(device: int) -> int:
        if not tells:
            raise ModuleNotFoundError("pynvml")
        return {0: 99, 1: 40}[device]

    for name, answer in {
        "is_initialized": lambda: True,
        "device_count": lambda: 2,
        "memory_reserved": lambda device: [0, 1 << 20][device],
        "mem_get_info": lambda device: [(100, 100), (25, 100)][device],
        "utilization": utilization,
    }.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    load = SystemLoad().percent()
    assert load["vram_util_percent"] == 75.0
    assert load.get("gpu_util_percent") == (40.0 if tells else None)
