"""Memory that a process frees and needs again costs no page faults."""

from __future__ import annotations

import platform
import resource
from multiprocessing import get_context
from types import SimpleNamespace

import numpy as np
import pytest

from reef.algorithms.ppo import PPOConfig
from reef.allocator import KEPT_BYTES, MAPPED_BYTES, MAX_INT, MMAP_THRESHOLD, TRIM_THRESHOLD, keep_freed_memory
from reef.distributed.actor_process import ActorProcess


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
    told = mallopt_hears(monkeypatch)
    monkeypatch.setenv("OMP_NUM_THREADS", "")  # which an actor sets
    PPOConfig().environment("CartPole-v1").python_environment(
        extra_python_environs_for_driver={"MALLOC_TRIM_THRESHOLD_": "1000"}
    ).build().stop()
    assert told == {TRIM_THRESHOLD: 1000, MMAP_THRESHOLD: MAPPED_BYTES}
    ActorProcess(1, "worker 1", 30).start("reef:nothing", {}, 1, {"MALLOC_TRIM_THRESHOLD_": "2000"})
    assert told == {TRIM_THRESHOLD: 2000, MMAP_THRESHOLD: MAPPED_BYTES}


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("MALLOC_TRIM_THRESHOLD_", str(1 << 40), {TRIM_THRESHOLD: MAX_INT, MMAP_THRESHOLD: MAPPED_BYTES}),
        ("MALLOC_MMAP_THRESHOLD_", "4096", {TRIM_THRESHOLD: KEPT_BYTES, MMAP_THRESHOLD: 4096}),
        ("MALLOC_MMAP_THRESHOLD_", "much", {TRIM_THRESHOLD: KEPT_BYTES, MMAP_THRESHOLD: MAPPED_BYTES}),
        ("GLIBC_TUNABLES", "glibc.malloc.arena_max=2", {}),
        ("GLIBC_TUNABLES", "glibc.rtld.nns=2", {TRIM_THRESHOLD: KEPT_BYTES, MMAP_THRESHOLD: MAPPED_BYTES}),
    ],
)
def test_people_may_set_other_limits(monkeypatch, variable, value, told) -> None:
    heard = mallopt_hears(monkeypatch)
    monkeypatch.setenv(variable, value)
    keep_freed_memory()
    assert heard == told


def mallopt_hears(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    heard: dict[int, int] = {}
    for variable in ("GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"):
        monkeypatch.setenv(variable, "")  # so that whatever sets it, it is as before in the end
    library = SimpleNamespace(mallopt=lambda parameter, value: heard.update({parameter: value}))
    monkeypatch.setattr("ctypes.CDLL", lambda _: library)
    return heard
