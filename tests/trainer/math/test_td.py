from __future__ import annotations

import torch
from torch import tensor

from reef.math.td import huber, td_targets


def test_targets_by_hand() -> None:
    targets = td_targets(
        rewards=tensor([1.0, 2.0]),
        discounts=tensor([0.5, 0.25]),
        terminated=tensor([False, True]),
        next_values=tensor([10.0, 1e6]),
    )
    assert targets.tolist() == [6.0, 2.0]


def test_huber_by_hand() -> None:
    assert huber(tensor([0.5, 1.0]), tensor([0.0, 3.0])).tolist() == [0.125, 1.5]
    assert huber(tensor([-3.0]), tensor([0.0]), delta=2.0).tolist() == [4.0]


def test_the_slope_of_huber_is_bounded() -> None:
    values = tensor([-10.0, 0.3, 10.0], requires_grad=True)
    huber(values, torch.zeros(3)).sum().backward()
    torch.testing.assert_close(values.grad, tensor([-1.0, 0.3, 1.0]))
