from __future__ import annotations

import torch

from reef.nn.layers.activations import ACTIVATIONS
from reef.nn.layers.stacked import StackedMLP


def test_one_of_the_stack_computes_what_the_stack_computes() -> None:
    stack = StackedMLP(3, [8, 5], "tanh", count=2)
    x = torch.randn(7, 3)
    together = stack(x)
    assert together.shape == (2, 7, 5)
    for index in range(2):
        torch.testing.assert_close(stack.forward_branch(index, x), together[index])
    assert not torch.allclose(together[0], together[1]), "the members have weights of their own"


def test_a_member_is_an_ordinary_perceptron() -> None:
    stack = StackedMLP(3, [4], "relu", count=2)
    x = torch.randn(2, 3)
    expected = torch.relu(x @ stack.layers[0].weight[1] + stack.layers[0].bias[1])
    torch.testing.assert_close(stack(x)[1], expected)


def test_without_layers_the_input_passes() -> None:
    x = torch.randn(2, 3)
    assert StackedMLP(3, [], "tanh", count=2)(x)[1].equal(x)


def test_tanh_is_the_tanh_of_torch() -> None:
    x = torch.linspace(-20, 20, 4001)
    torch.testing.assert_close(ACTIVATIONS["tanh"](x), torch.tanh(x), atol=2e-6, rtol=0)
    assert ACTIVATIONS["tanh"](torch.tensor([torch.nan, torch.inf])).isnan().tolist() == [True, False]
