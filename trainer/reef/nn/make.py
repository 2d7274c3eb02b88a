"""From settings and spaces to a policy that is ready to act and to be trained."""

from __future__ import annotations

import torch

from reef.config import AlgorithmConfig
from reef.config.loading import load
from reef.nn.fast import fast_actor
from reef.nn.policies import Policy
from reef.spaces import Space


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
