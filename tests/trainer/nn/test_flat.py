from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from reef.nn.flat import FlatParameters


def test_the_network_and_the_vector_are_the_same_memory() -> None:
    net = nn.Linear(2, 1)
    flat = FlatParameters(net.parameters())
    flat.load(np.array([1.0, 2.0, 3.0], np.float32))
    assert net(torch.tensor([[10.0, 100.0]])).item() == 1 * 10 + 2 * 100 + 3
    net(torch.tensor([[10.0, 100.0]])).backward()
    assert flat.gradient.tolist() == [10, 100, 1]


def test_read_only_weights_are_copied_in() -> None:
    flat = FlatParameters(nn.Linear(1, 1).parameters())
    weights = np.array([1.0, 2.0], np.float32)
    weights.flags.writeable = False
    flat.load(weights)
    flat.vector.add_(1)
    assert weights.tolist() == [1, 2]


def test_weights_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="hold 3 numbers, this network has 2"):
        FlatParameters(nn.Linear(1, 1).parameters()).load(np.zeros(3, np.float32))


def test_a_part_is_a_view_of_its_parameters_alone() -> None:
    layers = [nn.Linear(2, 1), nn.Linear(1, 1), nn.Linear(1, 2)]
    flat = FlatParameters([parameter for layer in layers for parameter in layer.parameters()])
    part = flat.part(layers[1].parameters())
    part.vector.fill_(7.0)
    part.gradient.fill_(2.0)
    assert layers[1].weight.item() == layers[1].bias.item() == 7.0
    assert (flat.vector == 7.0).sum() == (flat.gradient == 2.0).sum() == 2
    with pytest.raises(AssertionError, match="in one piece"):
        flat.part([layers[0].weight, layers[1].weight])
