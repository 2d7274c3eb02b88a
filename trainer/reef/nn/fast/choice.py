"""Chooses fast forms by exact types, from the tables ACTORS, NETWORKS and LOSSES."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from reef.nn.dueling import QPolicy
from reef.nn.fast.actors import ACTORS
from reef.nn.fast.losses import LOSSES
from reef.nn.fast.networks import Backward, FastActorCritic, FastQNetwork
from reef.nn.fast.recurrent import FastRecurrentActorCritic
from reef.nn.flat import FlatParameters
from reef.nn.gradients import Columns, Gradient, Loss, LossFunction, by_autograd
from reef.nn.policies import ActorCritic, FastActor, Policy
from reef.nn.recurrent import RecurrentActorCritic

Network = Callable[..., tuple[Any, Backward]]  # returns the outputs and their backward function
LossOfOutputs = Callable[[Any, Columns], tuple[Loss, tuple[Tensor, ...]]]  # returns the gradients of the outputs too
NETWORKS: dict[type, Any] = {
    ActorCritic: FastActorCritic,
    QPolicy: FastQNetwork,
    RecurrentActorCritic: FastRecurrentActorCritic,
}


def fast_actor(policy: Policy) -> FastActor | None:
    """Return a fast form of `policy.dist_inputs`, or None."""
    fast = ACTORS.get(type(policy))
    return fast(policy) if fast is not None and fast.covers(policy) else None


def fast_gradient(
    network: nn.Module, flat: FlatParameters, inputs: Sequence[str], loss: LossFunction
) -> Gradient | None:
    """A fast form of `by_autograd` that overwrites the gradient of `flat`, or None; hooks of modules are not called."""
    of_network, of_outputs = _network(network), _loss(network, loss)
    if of_network is None and of_outputs is None:
        return None
    ordinary = by_autograd(network, inputs, loss)
    through_network = of_network or _network_by_autograd(network)
    through_loss = of_outputs or _loss_by_autograd(loss)

    def gradient(minibatch: Columns) -> Loss:
        if flat.is_frozen:
            return ordinary(minibatch)
        with torch.inference_mode():
            outputs, backward = through_network(*(minibatch[name] for name in inputs))
            found, gradients = through_loss(outputs, minibatch)
            backward(*gradients)
        # Ordinary tensors: inference mode would make others.
        stats = {name: value.clone() for name, value in found.stats.items()}
        return Loss(found.value.clone(), stats, {name: value.clone() for name, value in found.rows.items()})

    return gradient


def _network(network: nn.Module) -> Network | None:
    fast = NETWORKS.get(type(network))
    return fast(network).forward if fast is not None and fast.covers(network) else None


def _loss(network: nn.Module, loss: LossFunction) -> LossOfOutputs | None:
    method, learner = getattr(loss, "__func__", loss), getattr(loss, "__self__", None)
    found, covers = LOSSES.get(f"{method.__module__}.{method.__qualname__}", (None, None))
    if found is None or covers is None or not covers(network):
        return None
    return lambda outputs, minibatch: found(learner, outputs, minibatch)


def _network_by_autograd(network: nn.Module) -> Network:
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


def _loss_by_autograd(loss: LossFunction) -> LossOfOutputs:
    def of_outputs(outputs: Any, minibatch: Columns) -> tuple[Loss, tuple[Tensor, ...]]:
        with torch.inference_mode(False), torch.enable_grad():
            leaves = [each.clone().requires_grad_() for each in (outputs if isinstance(outputs, tuple) else (outputs,))]
            found = loss(tuple(leaves) if isinstance(outputs, tuple) else leaves[0], minibatch)
            torch.autograd.backward(found.value)
        gradients = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]
        return found._replace(value=found.value.detach()), tuple(gradients)

    return of_outputs
