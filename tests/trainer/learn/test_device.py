from __future__ import annotations

import numpy as np
import torch

from reef.algorithms.ppo import PPOConfig
from reef.learn.device import learner_threads, to_device


def test_small_minibatches_get_one_thread_and_large_ones_torch_s_choice() -> None:
    torch_s_choice = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        assert learner_threads(PPOConfig(), parameters=9_000, rows=128) == 1
        assert learner_threads(PPOConfig(), parameters=9_000, rows=1024) == 2
        assert learner_threads(PPOConfig(), parameters=2_000_000, rows=128) == 4
    finally:
        torch.set_num_threads(torch_s_choice)
    assert learner_threads(PPOConfig().framework(torch_threads_per_learner=3), parameters=9_000, rows=128) == 3


def test_read_only_arrays_are_copied() -> None:
    array = np.zeros(2, np.float32)
    assert to_device(array, torch.device("cpu")).data_ptr() == array.ctypes.data
    array.flags.writeable = False
    to_device(array, torch.device("cpu")).add_(1)
    assert array.tolist() == [0, 0]
