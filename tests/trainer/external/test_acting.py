"""Policies with a memory act for applications as in a rollout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from applications import ACTIONS, OBSERVATIONS, client_of, settings

from reef import PolicyClient, PPOConfig
from reef.batch import concat_columns
from reef.errors import ConfigError
from reef.external.worker import ExternalWorker
from reef.rollout.worker import RolloutWorker

Serve = Callable[..., ExternalWorker]
LENGTH = 10  # steps of an episode
# of a fragment; two are an episode
PART = 5
MODELS: dict[str, dict[str, Any]] = {
    "LSTM": {"use_lstm": True, "lstm_cell_size": 6, "lstm_use_prev_action": True, "lstm_use_prev_reward": True},
    "GTrXL": {
        "use_attention": True,
        "attention_num_transformer_units": 1,
        "attention_dim": 8,
        "attention_num_heads": 2,
        "attention_head_dim": 4,
        "attention_memory_inference": 6,
        "attention_memory_training": 6,
        "attention_use_n_prev_actions": 2,
        "attention_position_wise_mlp_dim": 8,
    },
    "none": {},
}


class Signals(gym.Env[Any, Any]):
    """Observations and rewards that depend on all actions before."""

    observation_space, action_space = OBSERVATIONS, ACTIONS

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.t, self.sum = 0, 0.0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t, self.sum = self.t + 1, 0.7 * self.sum + (1.0 if action else -1.0)
        return self._seen(), 2.0 * self.sum, self.t == LENGTH, False, {}

    def _seen(self) -> Any:
        return np.array([np.sin(self.t), 0.2 * self.sum, np.cos(3 * self.t)], np.float32)


def given(name: str) -> dict[str, Any]:
    model = {"fcnet_hiddens": [8], "max_seq_len": 5, **MODELS[name]}
    return {"model": model, "rollout_fragment_length": PART, "train_batch_size": LENGTH, "clip_rewards": 1.0}


def play(client: PolicyClient, env: Signals) -> None:
    """Play an episode."""
    episode, (obs, _), over = client.start_episode(), env.reset(), False
    while not over:
        obs, reward, over, *_ = env.step(client.get_action(episode, obs))
        for part in (0.25, 0.75):
            client.log_returns(episode, part * reward)
    client.end_episode(episode, obs)


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize(("mode", "explore"), [("remote", True), ("remote", False), ("local", False)])
def test_the_batch_is_that_of_a_worker_that_steps_the_environment(
    serve: Serve, name: str, mode: str, explore: bool
) -> None:
    shared = {"sgd_minibatch_size": 8, "explore": explore, **given(name)}
    stepping = RolloutWorker(PPOConfig().update_from_dict({"env": Signals, "seed": 1} | shared).checked())
    worker, env = serve(**shared), Signals()
    worker.set_weights(stepping.get_weights())
    client = client_of(worker, mode)
    for _ in range(3):
        play(client, env)
        found = worker.sample(LENGTH).rollouts["default_policy"]
        expected = concat_columns([stepping.sample().rollouts["default_policy"] for _ in range(2)])
        assert found.state_in.keys() == expected.state_in.keys()
        for key, values in expected.state_in.items():
            assert found.state_in[key] == pytest.approx(values, abs=1e-5), key
        assert name == "none" or any(values[1].any() for values in found.state_in.values())
        found, expected = found.flatten(), expected.flatten()
        for column in ("obs", "actions", "rewards", "next_obs", "terminated"):
            assert getattr(found, column) == pytest.approx(getattr(expected, column), abs=1e-5), column
        assert found.extras.keys() == expected.extras.keys()
        for key, values in expected.extras.items():
            assert found.extras[key] == pytest.approx(values, abs=1e-5), key


def test_a_fragment_that_goes_on_begins_a_column(serve: Serve) -> None:
    worker, env = serve(**given("LSTM")), Signals()
    client = client_of(worker)
    for _ in range(2):
        play(client, env)
    rollout = worker.sample(2 * LENGTH).rollouts["default_policy"]
    # the episodes' first fragments follow on what is over; their second ones begin with the memory of the first
    assert rollout.mask.sum(0).tolist() == [PART, 2 * PART, PART]
    assert [bool(state.any()) for state in next(iter(rollout.state_in.values()))] == [False, True, True]
    assert rollout.terminated[:, 1].nonzero()[0].tolist() == [PART - 1]


def test_what_the_application_chose_is_remembered(serve: Serve) -> None:
    worker = serve(**given("LSTM"))
    client = client_of(worker)
    episode = client.start_episode()
    for action in (1, 0, 1, 0, 1, 1):
        client.log_action(episode, np.zeros(3, np.float32), action)
        client.log_returns(episode, 0.5)
    client.end_episode(episode, np.zeros(3, np.float32))
    rollout = worker.sample(6).rollouts["default_policy"]
    assert rollout.state_in["prev_actions"].ravel().tolist() == [0, 1]
    assert rollout.state_in["prev_rewards"].ravel().tolist() == [0, 0.5]


@pytest.mark.parametrize("name", ["LSTM", "GTrXL"])
def test_a_policy_with_a_memory_is_trained(name: str) -> None:
    with settings(**given(name)).build() as algorithm:
        worker = algorithm.workers.local_worker()
        for mode in ("remote", "local"):
            before = worker.get_weights()["default_policy"].copy()
            play(client_of(worker, mode), Signals())
            assert algorithm.train()["num_env_steps_trained"] > 0
            assert (worker.get_weights()["default_policy"] != before).any()


def test_replayed_sequences_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"model.use_lstm: DQN replays sequences of the columns of environments, and"):
        settings("DQN", model={"use_lstm": True}).checked()


def test_correlated_noise_begins_again_with_the_episode_of_an_application(serve: Serve) -> None:
    actions, exploration = gym.spaces.Box(-2.0, 2.0, (1,), np.float32), {"random_timesteps": 0}
    worker = serve("DDPG", action_space=actions, exploration_config=exploration)
    noise: Any = worker.runners["default_policy"].exploration
    client, obs = client_of(worker), np.zeros(3, np.float32)
    for _ in range(2):
        episode = client.start_episode()
        client.get_action(episode, obs)
        assert np.abs(noise.walk).max() < 10.0, "it does not go on from the episode before"
        noise.walk[:] = 100.0
        client.get_action(episode, obs)
        assert np.abs(noise.walk).min() > 50.0
        client.end_episode(episode, obs)
