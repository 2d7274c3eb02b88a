"""The gradient of a loss, compiled by torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from reef.config import AlgorithmConfig
from reef.nn.flat import FlatParameters
from reef.nn.gradients import Columns, Gradient, Loss, LossFunction

Parts = tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]  # of a Loss, because the compiler does not support its type


class _WholeLoss(nn.Module):
    """Network and loss as one module, so that `functional_call` can replace the network's parameters."""

    def __init__(self, network: nn.Module, inputs: Sequence[str], loss: LossFunction) -> None:
        super().__init__()
        self.network, self.inputs, self.loss = network, inputs, loss

    def forward(self, minibatch: Columns) -> Parts:
        found = self.loss(self.network(*(minibatch[name] for name in self.inputs)), minibatch)
        return found.value, found.stats, found.rows


def compiled_gradient(
    network: nn.Module, flat: FlatParameters, inputs: Sequence[str], loss: LossFunction, config: AlgorithmConfig
) -> Gradient:
    """A form of `by_autograd` in which the parts named by `torch_compile_learner_what_to_compile` are compiled."""
    options: dict[str, Any] = {
        "backend": config.torch_compile_learner_dynamo_backend,
        "mode": config.torch_compile_learner_dynamo_mode,
        "fullgraph": True,  # code that cannot be compiled is an error instead of slow
    }
    whole = _WholeLoss(network, inputs, loss)
    if config.torch_compile_learner_what_to_compile == "complete_update":
        return _as_one_graph(flat, whole, options)
    compiled = torch.compile(whole, **options)

    def gradient(minibatch: Columns) -> Loss:
        value, stats, rows = compiled(minibatch)
        torch.autograd.backward(value)
        return Loss(value.detach(), stats, rows)

    return gradient


def _as_one_graph(flat: FlatParameters, whole: _WholeLoss, options: dict[str, Any]) -> Gradient:
    """Forward and backward pass from the flat parameter vector to its gradient, as one graph."""
    names = [name for name, _ in whole.named_parameters()]
    shapes = [parameter.shape for parameter in flat.parameters]
    sizes = [shape.numel() for shape in shapes]

    def of_vector(vector: Tensor, minibatch: Columns) -> tuple[Tensor, Parts]:
        pieces = zip(names, torch.split(vector, sizes), shapes, strict=True)
        parameters = {name: piece.view(shape) for name, piece, shape in pieces}
        value, *others = torch.func.functional_call(whole, parameters, (minibatch,))
        return value, (value.detach(), *others)

    graph = torch.compile(torch.func.grad(of_vector, has_aux=True), **options)

    @torch.no_grad()
    def gradient(minibatch: Columns) -> Loss:
        found, parts = graph(flat.vector, minibatch)
        flat.gradient.copy_(found)
        return Loss(*parts)

    return gradient
