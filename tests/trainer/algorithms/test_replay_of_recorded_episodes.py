"""Algorithms with a replay memory learn from recorded episodes alone.

It tests reef.algorithms.replaying and reef.run.flows.replay.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from recorded import recorded

from reef.algorithms.registry import config_class
from reef.config import AlgorithmConfig
from reef.errors import ConfigError

STEPS: list[int] = []  # of environments of training


class Left(gym.Env[np.ndarray, Any]):
    """Pays for the action 1, or for a real number near 0.5, in each of four steps."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        STEPS.append(1)
        return np.full(1, self.steps / 4, np.float32), self.paid(action), self.steps == 4, False, {}

    def paid(self, action: Any) -> float:
        return float(action == 1)


class Half(Left):
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def paid(self, action: Any) -> float:
        return 1.0 - abs(float(action[0]) - 0.5)


def config_of(name: str, env: type[Left] = Left, **settings: Any) -> AlgorithmConfig:
    given = {"env": env, "input_": recorded(env, episodes=60), "seed": 0, "train_batch_size": 32, "lr": 0.01}
    given |= {"model": {"fcnet_hiddens": [16]}, "min_sample_timesteps_per_iteration": 12_800, "gamma": 0.5}
    return config_class(name).from_dict(given | settings)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "env", "settings", "reward"),
    [
        ("DQN", Left, {"hiddens": [16], "target_network_update_freq": 100}, 4.0),
        ("SAC", Half, {"tau": 0.05, "initial_alpha": 0.05}, 3.6),
    ],
)
def test_it_learns_without_a_step_of_the_environment(
    name: str, env: type[Left], settings: dict[str, Any], reward: float
) -> None:
    config = config_of(name, env, evaluation_interval=1, evaluation_duration=2, disable_env_checking=True, **settings)
    with config.build() as algorithm:
        del STEPS[:]
        result = algorithm.train()
    assert result["evaluation"]["episode_reward_mean"] >= reward
    assert len(STEPS) == 8, "those of evaluation"
    assert result["num_env_steps_sampled"] == result["num_env_steps_trained"] == 12_800
    assert result["episode_reward_mean"] is None, "nothing was played"


def test_all_recorded_steps_are_in_the_memory_with_their_priorities(tmp_path: Path) -> None:
    config = config_of("DQN", n_step=2, min_sample_timesteps_per_iteration=None)
    with config.build() as algorithm:
        memory: Any = algorithm.memory  # type: ignore[attr-defined]
        buffer = memory.buffers["default_policy"]
        assert len(buffer) == 60 * 4
        rewards = buffer.take(np.arange(4)).rewards
        assert rewards[3] in (0.0, 1.0), "the sums end with the episode"
        before = memory.state()["buffers"]["default_policy"]
        algorithm.train()
        after = memory.state()["buffers"]["default_policy"]
        assert str(before) != str(after), "the priorities of learned steps changed"
        algorithm.save(tmp_path / "checkpoint")
        first = algorithm.train()["info"]["learner"]
    with config.build() as again:
        again.restore(tmp_path / "checkpoint")
        assert again.train()["info"]["learner"] == first


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"num_rollout_workers": 2},
            "num_rollout_workers=2: DQN with input_ samples nothing, and reads everything",
        ),
        ({"output": "x"}, "output='x': DQN with input_ samples no episodes to write"),
        ({"observation_filter": "MeanStdFilter"}, "DQN reads observations as they were recorded"),
        ({"model": {"use_lstm": True}}, "model.use_lstm=True: recorded episodes do not have the states"),
        ({"replay_mode": "lockstep"}, "replay_mode='lockstep': recorded episodes are of one agent"),
        ({"shuffle_buffer_size": 10}, "shuffle_buffer_size=10: DQN draws from its replay memory"),
        ({"policies": ["a", "b"]}, r"policies=\['a', 'b'\]: DQN learns a single policy"),
        ({"input_": {"a": 1, "b": 3}}, "DQN draws from its replay memory, so that weights have no effect. Give a list"),
        ({"input_": "nowhere.json"}, "input_='nowhere.json': there is no such file"),
        ({"input_": {"a": 0.5, "sampler": 0.5}}, "input_: 'sampler': DQN samples nothing. Leave it out"),
        ({"input_": "sampler", "actions_in_input_normalized": True}, "nothing is read. Set input_ beside it"),
        ({"input_": "sampler", "shuffle_buffer_size": 5}, "shuffle_buffer_size=5: nothing is read"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_of("DQN", **settings).build()


@pytest.mark.parametrize("name", ["PPO", "IMPALA", "APEX"])
def test_what_learns_from_its_own_steps_alone_reads_none(name: str) -> None:
    config = config_class(name).from_dict({"env": Left, "input_": "episodes.json"})
    with pytest.raises(ConfigError, match="learns from what its own policy has just played.*evaluation_config="):
        config.validate()


def test_an_endless_reader_fills_the_memory_once(caplog: pytest.LogCaptureFixture) -> None:
    step = {"obs": [0.0], "action": 1, "next_obs": [0.0], "reward": 1.0, "terminated": False, "truncated": False}

    def endless(ioctx: Any) -> Any:
        while True:
            yield [step] * 4 + [step | {"terminated": True}]

    with config_of("DQN", input_=endless, replay_buffer_config={"capacity": 50}).build() as algorithm:
        assert len(algorithm.memory) == 50  # type: ignore[attr-defined]
    assert "replay_buffer_config.capacity=50: it holds no more steps of input_" in caplog.text


def test_settings_of_sampling_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with config_of("DQN", training_intensity=8.0).build():
        assert "training_intensity=8.0 has no effect with input_" in caplog.text


def test_a_policy_cannot_be_added() -> None:
    with (
        config_of("DQN").build() as algorithm,
        pytest.raises(ConfigError, match="policies can change only where it is asked in each episode"),
    ):
        algorithm.add_policy("another")
