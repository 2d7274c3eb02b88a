from __future__ import annotations

import pytest
import torch

from reef.nn.activations import ACTIVATIONS
from reef.nn.stacked import StackedMLP


def test_one_of_the_stack_computes_what_the_stack_computes() -> None:
    stack = StackedMLP(3, [8, 5], "tanh", count=2)
    x = torch.randn(7, 3)
    together = stack(x)
    assert together.shape == (2, 7, 5)
    for index in range(2):
        torch.testing.assert_close(stack.single(index, x), together[index])
    assert not torch.allclose(together[0], together[1]), "the members have weights of their own"


def test_a_member_is_an_ordinary_perceptron() -> None:
    stack = StackedMLP(3, [4], "relu", count=2)
    x = torch.randn(2, 3)
    expected = torch.relu(x @ stack.layers[0].weight[1] + stack.layers[0].bias[1])
    torch.testing.assert_close(stack(x)[1], expected)


def test_without_layers_the_input_passes() -> None:
    x = torch.randn(2, 3)
    assert StackedMLP(3, [], "tanh", count=2)(x)[1].equal(x)


@pytest.mark.parametrize("activation", sorted(name for name, each in ACTIVATIONS.items() if each.slope is not None))
@pytest.mark.parametrize("input_needs_gradient", [True, False])
def test_the_backward_pass_written_by_hand_is_that_of_autograd(activation: str, input_needs_gradient: bool) -> None:
    stack = StackedMLP(3, [8, 5], activation, count=2).double()
    for parameter in stack.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(7, 3, dtype=torch.float64, requires_grad=input_needs_gradient)
    upstream = torch.randn(2, 7, 5, dtype=torch.float64)
    inputs = [*stack.parameters(), *([x] if input_needs_gradient else [])]
    by_hand = torch.autograd.grad(stack(x), inputs, upstream)
    hidden = x.expand(2, 7, 3)
    for layer in stack.chain:
        hidden = stack.activation(layer(hidden))
    for mine, reference in zip(by_hand, torch.autograd.grad(hidden, inputs, upstream), strict=True):
        torch.testing.assert_close(mine, reference)


def test_tanh_is_the_tanh_of_torch() -> None:
    x = torch.linspace(-20, 20, 4001)
    torch.testing.assert_close(ACTIVATIONS["tanh"](x), torch.tanh(x), atol=2e-6, rtol=0)
    assert ACTIVATIONS["tanh"](torch.tensor([torch.nan, torch.inf])).isnan().tolist() == [True, False]
