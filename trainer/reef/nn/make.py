"""From settings and spaces to a policy that is ready to act and to be trained."""

from __future__ import annotations

import torch

from reef.config import AlgorithmConfig
from reef.config.loading import load
from reef.nn.custom import custom_module, state_shapes
from reef.nn.distributions import DistributionMaker
from reef.nn.fast import fast_actor
from reef.nn.policies import ActorCritic, CustomActorCritic, Policy
from reef.nn.recurrent import CustomRecurrentActorCritic, RecurrentActorCritic
from reef.spaces import Layout, Space


def make_policy(
    config: AlgorithmConfig, observation_space: Space, action_space: Space, device: torch.device | str = "cpu"
) -> Policy:
    """The policy of the configured algorithm, as its `policy_class` names it, on `device`.

    It does not train: layers such as Dropout disturb learning alone.
    """
    policy: Policy = load(config.policy_class, what="policy_class")(config, observation_space, action_space)
    policy.bind_parameters(device)
    policy.fast_actor = fast_actor(policy)
    policy.eval()
    return policy


def actor_critic(config: AlgorithmConfig, observation_space: Space, action_space: Space) -> Policy:
    """The actor-critic that the settings ask for: a custom model, one that remembers, or a perceptron."""
    spaces = observation_space, action_space
    if config.model.custom_model:
        outputs = DistributionMaker(Layout.of(action_space)).num_inputs
        module = custom_module(config, *spaces, outputs, critic=True)
        custom = CustomRecurrentActorCritic if state_shapes(module) else CustomActorCritic
        return custom(config, *spaces, module)
    return (RecurrentActorCritic if config.model.memories else ActorCritic)(config, *spaces)
