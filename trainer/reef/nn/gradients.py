"""From a minibatch to the gradient of a network's parameters, by autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

Columns = dict[str, Tensor]  # equally long columns on the learner's device

# A column that is a number: the weight of this learner's mean in the mean over all learners, if their counts differ.
SHARE = "share"
NO_ROWS: dict[str, Tensor] = {}


class Loss(NamedTuple):
    """The loss of a minibatch."""

    # []: the mean over the minibatch
    value: Tensor
    # [] each, detached: reported statistics
    stats: dict[str, Tensor]
    # [N] each, detached: one value per row, such as TD errors
    rows: dict[str, Tensor] = NO_ROWS


LossFunction = Callable[[Any, Columns], Loss]  # (what the network returns, minibatch)
Gradient = Callable[[Columns], Loss]  # adds to the gradients of the network's parameters
# The two halves of a gradient, where one of them is faster than autograd.
Backward = Callable[..., None]  # takes the gradients of the outputs, overwrites those of the parameters
Network = Callable[..., tuple[Any, Backward]]  # returns the outputs and their backward function
LossOfOutputs = Callable[[Any, Columns], tuple[Loss, tuple[Tensor, ...]]]  # returns the gradients of the outputs too


def by_autograd(network: nn.Module, inputs: Sequence[str], loss: LossFunction) -> Gradient:
    """Return the gradient of `loss` of the outputs of `network` for the columns `inputs`; other networks get none."""
    parameters = list(network.parameters())

    def gradient(minibatch: Columns) -> Loss:
        found = loss(network(*(minibatch[name] for name in inputs)), minibatch)
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        torch.autograd.backward(found.value, inputs=trained)
        return found._replace(value=found.value.detach())

    return gradient


def in_training_mode(gradient: Gradient, policy: nn.Module, generator: torch.Generator, rank: int) -> Gradient:
    """Return `gradient` in training mode, for layers such as Dropout.

    All learners draw the same number from `generator`, and each adds its `rank` for a seed of its own.
    """
    device = next(policy.parameters()).device
    # torch.manual_seed searches for devices of every kind, which takes longer than a small network's gradient.
    seed = torch.manual_seed if device.type == "cuda" else torch.default_generator.manual_seed

    def training(minibatch: Columns) -> Loss:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            seed(int(torch.randint(2**62, (), generator=generator)) + rank)
            policy.train()
            try:
                return gradient(minibatch)
            finally:
                policy.eval()

    return training


def network_by_autograd(network: nn.Module) -> Network:
    """Return the forward pass of a network, whose backward pass is that of autograd; call it in inference mode."""

    def forward(*inputs: Tensor) -> tuple[Any, Backward]:
        with torch.inference_mode(False), torch.enable_grad():
            outputs = network(*inputs)
        several = outputs if isinstance(outputs, tuple) else (outputs,)

        def backward(*gradients: Tensor) -> None:
            with torch.inference_mode(False):
                ends = [(end, each.clone()) for end, each in zip(several, gradients, strict=True) if end.requires_grad]
                torch.autograd.backward([end for end, _ in ends], [each for _, each in ends])

        values = tuple(end.detach() for end in several)
        return values if isinstance(outputs, tuple) else values[0], backward

    return forward


def loss_by_autograd(loss: LossFunction) -> LossOfOutputs:
    """Return a loss with the gradients of the network's outputs by autograd; call it in inference mode."""

    def of_outputs(outputs: Any, minibatch: Columns) -> tuple[Loss, tuple[Tensor, ...]]:
        with torch.inference_mode(False), torch.enable_grad():
            leaves = [each.clone().requires_grad_() for each in (outputs if isinstance(outputs, tuple) else (outputs,))]
            found = loss(tuple(leaves) if isinstance(outputs, tuple) else leaves[0], minibatch)
            torch.autograd.backward(found.value)
        gradients = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]
        return found._replace(value=found.value.detach()), tuple(gradients)

    return of_outputs
