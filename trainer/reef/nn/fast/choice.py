"""Chooses fast forms by exact types, from the tables ACTORS, NETWORKS and LOSSES."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from reef.nn.dueling import QPolicy
from reef.nn.fast.actor_critic import ArrayActor, FastActorCritic, has_one_of_these, ppo
from reef.nn.fast.imitation import FastActorPolicy, bc, is_categorical, marwil
from reef.nn.fast.perturbed import ArrayPerturbedActor
from reef.nn.fast.q_network import ArrayQNetwork, FastQNetwork, dqn
from reef.nn.fast.recurrent import ArrayRecurrentActorCritic, FastRecurrentActorCritic
from reef.nn.flat import FlatParameters
from reef.nn.gradients import (
    Columns,
    Gradient,
    Loss,
    LossFunction,
    LossOfOutputs,
    by_autograd,
    loss_by_autograd,
    network_by_autograd,
)
from reef.nn.perturbed import PerturbedPolicy
from reef.nn.policies import ActorCritic, ActorPolicy, FastActor, Policy
from reef.nn.recurrent import RecurrentActorCritic

ACTORS: dict[type, Any] = {
    ActorCritic: ArrayActor,
    ActorPolicy: ArrayActor,
    QPolicy: ArrayQNetwork,
    PerturbedPolicy: ArrayPerturbedActor,
    RecurrentActorCritic: ArrayRecurrentActorCritic,
}
NETWORKS: dict[type, Any] = {
    ActorCritic: FastActorCritic,
    ActorPolicy: FastActorPolicy,
    QPolicy: FastQNetwork,
    RecurrentActorCritic: FastRecurrentActorCritic,
}
# By the full name of the method, so that a subclass with its own loss does not match: a function of the learner, the
# network's outputs and a minibatch, called in inference mode, and for which networks it is.
LOSSES: dict[str, tuple[Callable[..., Any], Callable[[Any], bool]]] = {
    "reef.algorithms.bc.BCLearner.loss": (bc, is_categorical),
    "reef.algorithms.marwil.MARWILLearner.loss": (marwil, is_categorical),
    "reef.algorithms.ppo.PPOLearner.loss": (ppo, has_one_of_these),
    "reef.algorithms.dqn.DQNLearner.loss": (dqn, lambda _: True),
}


def fast_actor(policy: Policy) -> FastActor | None:
    """Return a fast form of `policy.dist_inputs`, or None."""
    return _covering(ACTORS, policy)  # type: ignore[no-any-return]


def fast_gradient(
    network: nn.Module, flat: FlatParameters, inputs: Sequence[str], loss: LossFunction
) -> Gradient | None:
    """A fast form of `by_autograd` that overwrites the gradient of `flat`, or None; hooks of modules are not called."""
    of_network, of_outputs = _covering(NETWORKS, network), loss_of_outputs(network, loss)
    if of_network is None and of_outputs is None:
        return None
    ordinary = by_autograd(network, inputs, loss)
    through_network = of_network.forward if of_network else network_by_autograd(network)
    through_loss = of_outputs or loss_by_autograd(loss)

    def gradient(minibatch: Columns) -> Loss:
        if flat.is_frozen:
            return ordinary(minibatch)
        with torch.inference_mode():
            outputs, backward = through_network(*(minibatch[name] for name in inputs))
            found, gradients = through_loss(outputs, minibatch)
            backward(*gradients)
        # Ordinary tensors: inference mode would make others.
        value, *stats = torch.stack([found.value, *found.stats.values()]).unbind()
        return Loss(
            value, dict(zip(found.stats, stats, strict=True)), {n: row.clone() for n, row in found.rows.items()}
        )

    return gradient


def _covering(table: dict[type, Any], network: Any) -> Any:
    fast = table.get(type(network))
    # no fast form knows masks of actions
    if fast is None or network.action_mask is not None or not fast.covers(network):
        return None
    return fast(network)


def loss_of_outputs(network: nn.Module, loss: LossFunction) -> LossOfOutputs | None:
    """A fast form of `loss_by_autograd`, or None."""
    method, learner = getattr(loss, "__func__", loss), getattr(loss, "__self__", None)
    found, covers = LOSSES.get(f"{method.__module__}.{method.__qualname__}", (None, None))
    if found is None or covers is None or not covers(network):
        return None
    return lambda outputs, minibatch: found(learner, outputs, minibatch)
