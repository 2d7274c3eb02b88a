"""The gradient of a loss as one compiled graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from reef.nn.policies import Policy

Loss = Callable[[dict[str, Tensor]], tuple[Tensor, dict[str, Tensor]]]


class _LossModule(nn.Module):
    """A loss as a module, so that `functional_call` can put other parameters into the policy it uses."""

    def __init__(self, policy: Policy, loss: Loss) -> None:
        super().__init__()
        self.policy, self.loss = policy, loss

    def forward(self, minibatch: dict[str, Tensor]) -> tuple[Tensor, tuple[Tensor, dict[str, Tensor]]]:
        loss, stats = self.loss(minibatch)
        return loss, (loss.detach(), stats)


def compile_gradient(policy: Policy, loss: Loss, **options: Any) -> Loss:
    """Return a function that computes the loss of a minibatch and fills `policy.flat.gradient`.

    Forward and backward become one graph from the flat vector of parameters to its gradient: no autograd at run time,
    and the gradient arrives in one piece. `options` go to `torch.compile`.
    """
    module = _LossModule(policy, loss)
    names = [f"policy.{name}" for name, _ in policy.named_parameters()]
    shapes = [parameter.shape for parameter in policy.parameters()]
    sizes = [shape.numel() for shape in shapes]

    def of_vector(vector: Tensor, minibatch: dict[str, Tensor]) -> Any:
        pieces = zip(names, torch.split(vector, sizes), shapes, strict=True)
        return torch.func.functional_call(module, {n: piece.view(shape) for n, piece, shape in pieces}, (minibatch,))

    graph = torch.compile(torch.func.grad(of_vector, has_aux=True), **options)

    @torch.no_grad()
    def backward(minibatch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        gradient, (value, stats) = graph(policy.flat.vector, minibatch)
        policy.flat.gradient.copy_(gradient)
        return value, stats

    return backward
