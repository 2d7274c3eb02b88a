"""What holds for every pair of observation and action spaces: train, save, restore, act the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from recorded import recorded
from test_every_algorithm import CONTINUOUS, OFFLINE, SMALL

from reef.algorithms.ppo import PPOConfig
from reef.algorithms.registry import ALGORITHMS, algorithm_class, config_class
from reef.errors import ConfigError

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


class SeesNestedDoesIndex(Sampling):
    """Observes Dict values, and takes Discrete actions."""

    def __init__(self, **_: Any) -> None:
        super().__init__({"sees": "nested", "does": "index"})


class SeesNestedDoesVector(Sampling):
    """Observes Dict values, and takes real numbers."""

    def __init__(self, **_: Any) -> None:
        super().__init__({"sees": "nested", "does": "vector"})


NESTED: list[tuple[str, type[Sampling]]] = [
    *((name, SeesNestedDoesIndex) for name in ALGORITHMS if name not in CONTINUOUS - {"CQL", "IQL", "SAC"}),
    *((name, SeesNestedDoesVector) for name in ALGORITHMS if name not in ("APEX", "DQN", "SimpleQ")),
]


@pytest.mark.parametrize(("name", "env"), NESTED)
def test_every_algorithm_is_trained_on_dict_observations_and_restored(
    name: str, env: type[Sampling], tmp_path: Path
) -> None:
    config = config_class(name).from_dict(SMALL[name] | {"seed": 3, "model": {"fcnet_hiddens": [4]}}).environment(env)
    config.reporting(min_sample_timesteps_per_iteration=96)
    if name in OFFLINE:
        config.update_from_dict({"input_": recorded(env, episodes=20), "min_train_timesteps_per_iteration": None})
    with config.build() as one, config.build() as two:
        before = one.learners.weights()["default_policy"].copy()
        result = one.train()
        assert None not in result["info"]["learner"]["default_policy"]["learner_stats"].values(), "as NaN is reported"
        assert (one.learners.weights()["default_policy"] != before).any()
        two.restore(one.save(tmp_path / "checkpoint"))
        np.testing.assert_array_equal(*(each.learners.weights()["default_policy"] for each in (one, two)))
        OBSERVATIONS["nested"].seed(0)
        observation = OBSERVATIONS["nested"].sample()
        first, second = (algorithm.compute_single_action(observation, explore=False) for algorithm in (one, two))
        assert data_equivalence(first, second), (first, second)
        assert env().action_space.contains(first), first


@pytest.mark.parametrize("name", sorted(CONTINUOUS))
@pytest.mark.parametrize(
    "actions",
    [
        spaces.Tuple([spaces.Box(-1.0, 1.0, (1,)), spaces.Box(-2.0, 2.0, (2,))]),
        spaces.Dict({"a": spaces.Box(-1.0, 1.0, (1,))}),
    ],
)
def test_algorithms_with_critics_of_real_actions_refuse_several_boxes(name: str, actions: spaces.Space[Any]) -> None:
    own = {"num_gpus": 0.0} | ({"input_": "unread.json"} if name in OFFLINE else {})
    kind = algorithm_class(name)
    with pytest.raises(ConfigError, match=r"needs a Box action space with finite bounds.*(Tuple|Dict)\("):
        kind.learner_class(kind.config_class.from_dict(own), OBSERVATIONS["vector"], actions)
