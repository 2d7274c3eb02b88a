"""Memory that a process frees and needs again costs no page faults."""

from __future__ import annotations

import platform
import resource
from multiprocessing import get_context
from types import SimpleNamespace

import numpy as np
import pytest

from reef.algorithms.ppo import PPOConfig
from reef.allocator import keep_freed_memory
from reef.distributed.host import Host


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


def test_whoever_learns_or_samples_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("reef.run.algorithm.keep_freed_memory", lambda: asked.append("this process"))
    monkeypatch.setattr("reef.distributed.host.keep_freed_memory", lambda: asked.append("an actor's"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as an actor sets it
    PPOConfig().environment("CartPole-v1").build().stop()
    Host(1).start("collections:Counter", {}, 1, {})
    assert asked == ["this process", "an actor's"]


def test_what_the_environment_says_of_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr("ctypes.CDLL", lambda _: SimpleNamespace(mallopt=lambda *given: told.append(given)))
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000000")
    keep_freed_memory()
    assert told == []
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_")
    keep_freed_memory()
    assert len(told) == 2
