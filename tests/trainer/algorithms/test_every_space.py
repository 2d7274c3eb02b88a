"""What holds for every pair of observation and action spaces: train, save, restore, act the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence

from reef.algorithms.ppo import PPOConfig

OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-1.0, 1.0, (3,)),
    "matrix": spaces.Box(-1.0, 1.0, (3, 2), np.float64),
    "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
    "frames": spaces.Box(0, 255, (4, 8, 8), np.uint8),
    "bytes": spaces.Box(0, 255, (4,), np.uint8),
    "index": spaces.Discrete(4, start=2),
    "indices": spaces.MultiDiscrete([2, 3], start=[1, 0]),
    "bits": spaces.MultiBinary(3),
    "nested": spaces.Dict(
        {
            "pixels": spaces.Box(0, 255, (8, 8), np.uint8),
            "rest": spaces.Tuple([spaces.Discrete(3, start=-1), spaces.Dict({"bits": spaces.MultiBinary((2, 2))})]),
            "speed": spaces.Box(-1.0, 1.0, ()),
        }
    ),
}
ACTIONS: dict[str, spaces.Space[Any]] = {
    "index": spaces.Discrete(3, start=1),
    "indices": spaces.MultiDiscrete([2, 3]),
    "bits": spaces.MultiBinary(2),
    "vector": spaces.Box(-2.0, 3.0, (2,)),
    "matrix": spaces.Box(np.float64(0.0), 1.0, (2, 2), np.float64),
    "whole": spaces.Box(0, 5, (2,), np.int64),
    "nested": spaces.Dict(
        {"a": spaces.Discrete(2), "b": spaces.Tuple([spaces.Box(0.0, 1.0, (1,)), spaces.Discrete(3)])}
    ),
}


class Sampling(gym.Env[Any, Any]):
    """Observes samples of its space, and insists on actions of the other."""

    def __init__(self, env_config: dict[str, Any]) -> None:
        self.observation_space, self.action_space = OBSERVATIONS[env_config["sees"]], ACTIONS[env_config["does"]]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps >= 5, False, {}


@pytest.mark.parametrize("does", ACTIONS)
@pytest.mark.parametrize("sees", OBSERVATIONS)
def test_every_pair_of_spaces_is_trained_on_and_restored(sees: str, does: str, tmp_path: Path) -> None:
    config = (
        PPOConfig()
        .environment(Sampling, env_config={"sees": sees, "does": does})
        .rollouts(num_envs_per_worker=2)
        .training(train_batch_size=16, sgd_minibatch_size=8, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
        .debugging(seed=3)
    )
    with config.build() as one, config.build() as two:
        result = one.train()
        assert result["timesteps_total"] == 16
        assert None not in result["info"]["learner"]["default_policy"]["learner_stats"].values(), "as NaN is told"
        two.restore(one.save(tmp_path / "checkpoint"))
        OBSERVATIONS[sees].seed(0)
        observation = OBSERVATIONS[sees].sample()
        first, second = (algorithm.compute_single_action(observation, explore=False) for algorithm in (one, two))
        assert data_equivalence(first, second), (first, second)
        assert ACTIONS[does].contains(first), first
