"""Where a learner computes: its device, its CPU threads, and no denormal numbers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch
from torch import Tensor

from reef.config import AlgorithmConfig
from reef.container import cpu_quota
from reef.errors import ResourceError
from reef.types import Array

# Multiplications of a minibatch per thread. Threads synchronise after every operation: where other programs use one of
# their CPUs, each synchronisation waits, which makes training many times slower. So small minibatches use one thread,
# though on an idle machine a second one still helps them.
MULTIPLY_ADDS_PER_THREAD = 16_000_000


def to_device(array: Array, device: torch.device) -> Tensor:
    """Return `array` as a tensor, without a copy if it is writable; arrays from Ray's object store are not."""
    return torch.from_numpy(array if array.flags.writeable else array.copy()).to(device)


def learner_device(config: AlgorithmConfig) -> torch.device:
    """The device in the settings: the CPU unless `num_gpus` (or `num_gpus_per_learner_worker`) is above 0.

    Raises ResourceError, naming what is missing, if there is no such GPU.
    """
    in_process = config.num_learner_workers == 0
    key = "num_gpus" if in_process else "num_gpus_per_learner_worker"
    asked = getattr(config, key)
    if not asked or config._fake_gpus:
        return torch.device("cpu")
    found = torch.cuda.device_count()
    index = config.local_gpu_idx if in_process else 0
    if index >= found:
        raise ResourceError(
            f"{key}={asked} asks for a GPU (index {index}), but torch {torch.__version__} sees {found} here. "
            f"Set {key}=0 to train on the CPU, or start where a GPU, its driver and a CUDA build of torch are."
        )
    return torch.device("cuda", index)


def learner_threads(config: AlgorithmConfig, multiply_adds: int, busy: int = 0) -> int:
    """Threads for minibatches of this many multiplications: the setting, else one per CPU while there is enough work.

    `busy` rollout workers on this machine use a CPU each. Threads that share a CPU wait for each other by spinning,
    which costs far more than they save.
    """
    if config.torch_threads_per_learner is not None:
        return config.torch_threads_per_learner
    useful = multiply_adds // MULTIPLY_ADDS_PER_THREAD
    return 1 if useful <= 1 else min(useful, available_cpus(busy))


def available_cpus(busy: int = 0) -> int:
    """CPUs for this process besides `busy` others, limited by OMP_NUM_THREADS and the container's quota."""
    limits = [(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) - busy]
    if (wish := os.environ.get("OMP_NUM_THREADS", "")).isdecimal():
        limits.append(int(wish))
    if (quota := cpu_quota()) is not None:
        limits.append(int(quota) - busy)
    return max(min(limits), 1)


@contextlib.contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Use `count` torch threads within the context."""
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
    """Treat numbers below 1.2e-38 as zero in this thread and in threads that it starts within the context.

    Adam's moments of units without gradients decay to such denormal numbers. On some processors, a step over them takes
    35 times as long.
    """
    flushes = torch.set_flush_denormal(True)
    try:
        yield
    finally:
        if flushes:
            torch.set_flush_denormal(False)
