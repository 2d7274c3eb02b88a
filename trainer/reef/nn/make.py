"""Makes a policy from settings and spaces."""

from __future__ import annotations

from typing import Any

import torch

from reef.config import AlgorithmConfig
from reef.config.loading import load
from reef.config.spaces import require_mask
from reef.errors import ConfigError
from reef.nn.custom import CustomActor, CustomActorCritic, custom_module, state_shapes
from reef.nn.distributions import distribution_maker
from reef.nn.fast import fast_actor
from reef.nn.policies import ActorCritic, ActorPolicy, Policy
from reef.nn.recurrent import CustomRecurrentActorCritic, RecurrentActorCritic
from reef.spaces import Layout, Space


def make_policy(
    config: AlgorithmConfig,
    observation_space: Space,
    action_space: Space,
    device: torch.device | str = "cpu",
    seed: int | None = None,
) -> Policy:
    """Return the policy of the configured algorithm, made by its `policy_class`, on `device`.

    `seed`: of its first weights; None draws them from torch's own generator. It is in evaluation mode: layers such as
    Dropout are active only in training.
    """
    make: Any = config.policy_class
    make = load(make, what="policy_class") if isinstance(make, str) else make
    if seed is None:
        policy: Policy = make(config, observation_space, action_space)
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # first weights of layers come from torch's global generator
            policy = make(config, observation_space, action_space)
    if not isinstance(policy, Policy):
        raise ConfigError(f"policy_class={config.policy_class!r} made a {type(policy).__name__}, expected a Policy.")
    require_mask(config, observation_space)
    policy.bind_parameters(device)
    policy.fast_actor = fast_actor(policy)
    policy.acts_fast = policy.fast_actor is not None
    policy.eval()
    return policy


def actor(config: AlgorithmConfig, observation_space: Space, action_space: Space) -> Policy:
    """Return the actor without a critic for these settings: a custom model or a perceptron."""
    spaces = observation_space, action_space
    if config.model.custom_model:
        outputs = distribution_maker(config.model, Layout.of(action_space)).num_inputs
        return CustomActor(config, *spaces, custom_module(config, *spaces, outputs, critic=False))
    return ActorPolicy(config, *spaces)


def actor_critic(config: AlgorithmConfig, observation_space: Space, action_space: Space) -> Policy:
    """Return the actor-critic for these settings: a custom model, a recurrent one, or a perceptron."""
    spaces = observation_space, action_space
    if config.model.custom_model:
        outputs = distribution_maker(config.model, Layout.of(action_space)).num_inputs
        module = custom_module(config, *spaces, outputs, critic=True)
        custom = CustomRecurrentActorCritic if state_shapes(module) else CustomActorCritic
        return custom(config, *spaces, module)
    return (RecurrentActorCritic if config.model.memories else ActorCritic)(config, *spaces)
