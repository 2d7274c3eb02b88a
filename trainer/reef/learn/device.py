"""The device of a learner."""

from __future__ import annotations

import torch
from torch import Tensor

from reef.config import AlgorithmConfig
from reef.errors import ResourceError
from reef.types import Array


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
