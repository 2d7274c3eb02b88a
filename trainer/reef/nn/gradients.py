"""From a minibatch to the gradient of a network's parameters, by autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

Columns = dict[str, Tensor]  # equally long columns on the learner's device

# a column that is a number: how much the mean of this learner weighs in that of all, where they have other counts
SHARE = "share"
NO_ROWS: dict[str, Tensor] = {}


class Loss(NamedTuple):
    """What a minibatch costs."""

    # []: the mean over the minibatch
    value: Tensor
    # [] each, detached: what is reported
    stats: dict[str, Tensor]
    # [N] each, detached: one value per row, such as TD errors
    rows: dict[str, Tensor] = NO_ROWS


LossFunction = Callable[[Any, Columns], Loss]  # (what the network returns, minibatch)
Gradient = Callable[[Columns], Loss]  # adds to the gradients of the network's parameters


def by_autograd(network: nn.Module, inputs: Sequence[str], loss: LossFunction) -> Gradient:
    """The gradient of `loss` of what `network` makes of the columns `inputs`; other networks get none."""
    parameters = list(network.parameters())

    def gradient(minibatch: Columns) -> Loss:
        found = loss(network(*(minibatch[name] for name in inputs)), minibatch)
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        torch.autograd.backward(found.value, inputs=trained)
        return found._replace(value=found.value.detach())

    return gradient
