"""The device on which a worker's policy acts."""

from __future__ import annotations

import torch

from reef.config import AlgorithmConfig

# Multiplications per step of all columns. For fewer of them, starting the GPU takes longer than the CPU's arithmetic:
# an H100 and one thread of the processor beside it were equally fast at 11 to 18 million, eight threads at 40 million.
ENOUGH_FOR_A_GPU = 20_000_000


def acting_device(config: AlgorithmConfig, worker_index: int, multiply_adds: int) -> torch.device:
    """The GPU that the settings give to the worker if there is enough work for it and torch finds it; else the CPU.

    The local worker, which samples if there are no other workers, shares the learner's GPU in its process.
    """
    if worker_index:
        given, index = config.num_gpus_per_worker, 0
    else:
        given, index = 0.0 if config.num_rollout_workers else config.num_gpus, config.local_gpu_idx
    if not given or config._fake_gpus or multiply_adds < ENOUGH_FOR_A_GPU or index >= torch.cuda.device_count():
        return torch.device("cpu")
    return torch.device("cuda", index)
