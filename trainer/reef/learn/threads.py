"""How torch uses the CPU while it learns: with how many threads, and without denormal numbers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

from reef.config import AlgorithmConfig
from reef.container import cpu_quota

# Multiplications of a minibatch for each thread. Threads meet after every operation: with less work between, they save
# little on a machine that is theirs, and where anything else wants one of their CPUs each meeting waits for it, which
# makes training many times slower.
MULTIPLY_ADDS_PER_THREAD = 64_000_000


def learner_threads(config: AlgorithmConfig, multiply_adds: int, busy: int = 0) -> int:
    """Threads for minibatches of so many multiplications: as set, else as many as have work and a CPU of their own.

    `busy` rollout workers on this machine have a CPU each. Threads that share one wait for each other by spinning,
    which costs far more than they save.
    """
    if config.torch_threads_per_learner is not None:
        return config.torch_threads_per_learner
    useful = multiply_adds // MULTIPLY_ADDS_PER_THREAD
    return 1 if useful <= 1 else min(useful, available_cpus(busy))


def available_cpus(busy: int = 0) -> int:
    """CPUs that this process may use beside `busy` others, within OMP_NUM_THREADS and the container's quota."""
    limits = [(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) - busy]
    if (wish := os.environ.get("OMP_NUM_THREADS", "")).isdecimal():
        limits.append(int(wish))
    if (quota := cpu_quota()) is not None:
        limits.append(int(quota) - busy)
    return max(min(limits), 1)


@contextlib.contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Let torch compute with `count` threads for a while."""
    before = torch.get_num_threads()
    if count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def flushing_denormals() -> Iterator[None]:
    """Let this thread, and threads it starts meanwhile, take numbers below 1.2e-38 for zero.

    Adam's moments of units that get no gradient any more decay into such denormal numbers, with which some processors
    are so slow that a step over them takes 35 times as long.
    """
    flushes = torch.set_flush_denormal(True)
    try:
        yield
    finally:
        if flushes:
            torch.set_flush_denormal(False)
