"""Makes the intrinsic rewards that the exploration of a policy asks for."""

from __future__ import annotations

import torch

from reef.batch import Rollout, Transitions
from reef.config import AlgorithmConfig
from reef.errors import ConfigError
from reef.learn.intrinsic.curiosity import CuriosityRewards
from reef.learn.intrinsic.random_encoder import RandomEncoderRewards
from reef.learn.intrinsic.rewards import IntrinsicRewards
from reef.learn.trained_parameters import Reduce
from reef.nn.policies import Policy
from reef.rollout.exploration import RE3, Curiosity, make_exploration, rewards_what_is_new


def make_intrinsic_rewards(
    config: AlgorithmConfig,
    policy: Policy,
    learns_from: type,  # what the learner's batches are
    *,
    seed: int,
    device: torch.device,
    reduce: Reduce | None,
) -> IntrinsicRewards | None:
    """None where the policy does not explore, or by actions alone. Raises ConfigError for wrong settings."""
    if not (config.explore and rewards_what_is_new(config)):
        return None
    if learns_from not in (Rollout, Transitions):
        kind = config.exploration_config["type"]
        raise ConfigError(f"exploration_config.type={kind!r}: {config.label} learns from no single rewards. Use PPO.")
    settings = make_exploration(config, policy.action_layout)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # initial weights of layers come from torch's global generator
        if isinstance(settings, RE3):
            return RandomEncoderRewards(settings, policy.input_layout, device=device)
        assert isinstance(settings, Curiosity), "there are two kinds"
        layouts = policy.input_layout, policy.action_layout
        return CuriosityRewards(settings, *layouts, config, seed=seed, device=device, reduce=reduce)
