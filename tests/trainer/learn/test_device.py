from __future__ import annotations

import numpy as np
import torch

from reef.learn.device import to_device


def test_read_only_arrays_are_copied() -> None:
    array = np.zeros(2, np.float32)
    assert to_device(array, torch.device("cpu")).data_ptr() == array.ctypes.data
    array.flags.writeable = False
    to_device(array, torch.device("cpu")).add_(1)
    assert array.tolist() == [0, 0]
