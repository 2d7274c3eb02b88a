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


def by_autograd(network: nn.Module, inputs: Sequence[str], loss: LossFunction) -> Gradient:
    """Return the gradient of `loss` of the outputs of `network` for the columns `inputs`; other networks get none."""
    parameters = list(network.parameters())

    def gradient(minibatch: Columns) -> Loss:
        found = loss(network(*(minibatch[name] for name in inputs)), minibatch)
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        torch.autograd.backward(found.value, inputs=trained)
        return found._replace(value=found.value.detach())

    return gradient
