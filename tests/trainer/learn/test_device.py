from __future__ import annotations

import numpy as np
import torch

from reef.algorithms.ppo import PPOConfig
from reef.learn.device import learner_threads, to_device


def test_small_networks_get_one_thread_and_large_ones_torch_s_choice() -> None:
    assert learner_threads(PPOConfig(), parameters=9_000, rows=1024) == 1
    assert learner_threads(PPOConfig(), parameters=2_000_000, rows=128) == torch.get_num_threads()
    assert learner_threads(PPOConfig().framework(torch_threads_per_learner=3), parameters=9_000, rows=128) == 3


def test_read_only_arrays_are_copied() -> None:
    array = np.zeros(2, np.float32)
    assert to_device(array, torch.device("cpu")).data_ptr() == array.ctypes.data
    array.flags.writeable = False
    to_device(array, torch.device("cpu")).add_(1)
    assert array.tolist() == [0, 0]
