from __future__ import annotations

import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPOConfig
from reef.algorithms.simple_q import SimpleQConfig
from reef.errors import ConfigError
from reef.nn.make import make_policy
from reef.nn.recurrent import CustomRecurrentActorCritic, RecurrentActorCritic, previous


def test_the_last_actions_come_newest_first_and_not_from_another_episode() -> None:
    taken = np.arange(1, 7).reshape(6, 1)
    done = np.array([0, 0, 1, 0, 0, 0], np.bool_).reshape(6, 1)
    found = previous(taken, np.array([[9, 8]]), done)[:, 0]
    assert found.tolist() == [[9, 8], [1, 9], [2, 1], [0, 0], [4, 0], [5, 4]]


class Memory(nn.Module):
    """Sums up what it sees of an episode."""

    def __init__(self, observation_space: Any, action_space: Any, num_outputs: int, size: int = 4) -> None:
        super().__init__()
        self.state_shapes = {"sum": (size,)}
        self.inner = nn.Linear(observation_space.shape[0], size)
        self.heads = nn.Linear(size, num_outputs + 1)

    def forward(
        self, obs: Tensor, begins: Tensor, state: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        total, sums = state["sum"], []
        for t in range(obs.shape[1]):
            total = total * ~begins[:, t, None] + self.inner(obs[:, t])
            sums.append(total)
        outputs = self.heads(torch.stack(sums, 1))
        return outputs[..., :-1], outputs[..., -1], {"sum": total}


class Grows(Memory):
    def forward(
        self, obs: Tensor, begins: Tensor, state: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        outputs, values, after = super().forward(obs, begins, state)
        return outputs, values, {"sum": torch.cat([after["sum"]] * 2, -1)}


def settings(**model: Any) -> PPOConfig:
    config = PPOConfig().environment("CartPole-v1").rollouts(num_envs_per_worker=2).debugging(seed=1)
    return config.training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=2, model=model)


def test_a_custom_model_may_be_recurrent() -> None:
    config = settings(custom_model=Memory, custom_model_config={"size": 3}, max_seq_len=8)
    with config.build() as algorithm:
        assert isinstance(algorithm.get_policy(), CustomRecurrentActorCritic)
        before = algorithm.get_policy().get_weights()
        algorithm.train()
        after = algorithm.get_policy().get_weights()
        assert all((before[name] != after[name]).any() for name in before)
        _, state, _ = algorithm.compute_single_action(np.ones(4, np.float32), full_fetch=True)
        np.testing.assert_allclose(
            state[0], after["module.inner.weight"].sum(1) + after["module.inner.bias"], rtol=1e-5
        )


def test_a_custom_model_whose_state_has_another_shape_is_refused() -> None:
    with pytest.raises(ConfigError, match=re.escape("a state of the shapes {'sum': [1, 8]}, expected {'sum': [1, 4]}")):
        settings(custom_model=Grows).build()


@pytest.mark.parametrize(
    "model", [{"use_lstm": True, "lstm_cell_size": 5, "lstm_use_prev_reward": True}, {"use_attention": True}]
)
def test_acting_takes_the_state_and_gives_the_next(model: dict[str, Any], tmp_path: Any) -> None:
    obs = np.array([0.1, -0.2, 0.3, 0.4], np.float32)
    with settings(**model).build() as algorithm:
        algorithm.train()
        first, state, _ = algorithm.compute_single_action(obs, full_fetch=True, explore=False)
        assert first in (0, 1)
        _, _, extras = algorithm.compute_single_action(obs, state, explore=False)
        _, _, anew = algorithm.compute_single_action(obs, full_fetch=True, explore=False)
        assert (extras["action_dist_inputs"] != anew["action_dist_inputs"]).any()
        checkpoint = algorithm.save(tmp_path / "checkpoint")
        with type(algorithm).from_checkpoint(checkpoint) as again:
            _, _, same = again.compute_single_action(obs, state, explore=False)
        np.testing.assert_array_equal(same["action_dist_inputs"], extras["action_dist_inputs"])
        if "use_lstm" in model:
            _, _, rewarded = algorithm.compute_single_action(obs, state, prev_reward=3.0, explore=False)
            assert (rewarded["action_dist_inputs"] != extras["action_dist_inputs"]).any()
        with pytest.raises(ConfigError, match=r"state has arrays of the shapes \[\(3,\)\], expected"):
            algorithm.compute_single_action(obs, [np.zeros(3)])


def test_a_policy_without_a_memory_takes_no_state() -> None:
    with settings(fcnet_hiddens=[4]).build() as algorithm:
        assert algorithm.compute_single_action(np.zeros(4, np.float32), [])[1] == []
        with pytest.raises(ConfigError, match=r"state has arrays of the shapes \[\(3,\)\], expected \[\]"):
            algorithm.compute_single_action(np.zeros(4, np.float32), [np.zeros(3)])


class Blink(gym.Env[np.ndarray, int]):
    """For 6 steps, the same observation; action 0 is paid in the first, third, ... step and action 1 in the others."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        right = action == self.steps % 2
        self.steps += 1
        return np.zeros(1, np.float32), float(right), self.steps == 6, False, {}


class Alternating(nn.Module):
    """Acts 0, 1, 0, ... in each episode."""

    def __init__(self, observation_space: Any, action_space: Any, num_outputs: int) -> None:
        super().__init__()
        self.state_shapes: dict[str, tuple[int, ...]] = {"steps": (), "unused": (2,)}
        self.scale = nn.Parameter(torch.ones(1))

    def forward(
        self, obs: Tensor, begins: Tensor, state: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        steps = [state["steps"]]
        for t in range(obs.shape[1]):
            steps.append(torch.where(begins[:, t], 0.0, steps[-1]) + 1)
        odd = torch.stack(steps[1:], 1) % 2
        after = {"unused": state["unused"], "steps": steps[-1]}  # in another order than they are named in
        return self.scale * torch.stack([odd, 1 - odd], -1), self.scale * odd, after


def test_evaluation_remembers_its_episodes() -> None:
    config = settings(custom_model=Alternating).environment(lambda context: Blink())
    config = config.evaluation(evaluation_duration=3, evaluation_config={"explore": False})
    with config.build() as algorithm:
        found = algorithm.evaluate()["evaluation"]
        assert (found["episode_reward_mean"], found["episodes_this_iter"]) == (6.0, 3)
        state, acted = None, []
        for _ in range(4):
            action, state, _ = algorithm.compute_single_action(np.zeros(1), state, explore=False, full_fetch=True)
            acted.append(action)
        assert acted == [0, 1, 0, 1]


class Named(Memory):
    """Calls its state as a column is called."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state_shapes = {"actions": (4,)}


def test_a_custom_model_with_a_memory_is_refused_where_it_cannot_be() -> None:
    with pytest.raises(ConfigError, match=r"state_shapes has \['actions'\], which are columns"):
        settings(custom_model=Named).build()
    with pytest.raises(ConfigError, match="has state_shapes, but this algorithm has no network with a memory"):
        DQNConfig().environment("CartPole-v1").training(model={"custom_model": Memory}).build()


def test_settings_of_a_memory_that_is_not_there_are_named() -> None:
    config = settings(
        fcnet_hiddens=[4], lstm_use_prev_action=True, recurrent_cell="gru", attention_dim=8, max_seq_len=5
    )
    told = " ".join(config.ignored_settings(make_policy(config.freeze(), *SPACES)))
    for text in ("lstm_use_prev_action=True", "recurrent_cell='gru'", "attention_dim=8", "max_seq_len=5"):
        assert f"model.{text} has no effect without" in told


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (PPOConfig().training(model={"use_lstm": True, "use_attention": True}), "there is one memory"),
        (PPOConfig().training(model={"use_lstm": True, "custom_model": Memory}), "beside model.custom_model"),
        (SimpleQConfig().training(model={"use_lstm": True}), "this algorithm has no network with a memory"),
        (
            PPOConfig().training(model={"use_lstm": True}, sgd_minibatch_size=16),
            "holds no sequence of model.max_seq_len=20",
        ),
        (
            PPOConfig().training(model={"use_attention": True}).framework(torch_compile_learner=True),
            "not available with model.use_attention=True",
        ),
        (PPOConfig().training(model={"use_lstm": True, "recurrent_cell": "rnn"}), "recurrent_cell='rnn'"),
    ],
)
def test_what_does_not_go_together_is_refused(config: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        config.environment("CartPole-v1").validate()


SPACES = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Box(-1, 1, (1,))


def test_settings_of_separate_encoders_are_ignored_and_named() -> None:
    config = settings(use_lstm=True, vf_share_layers=True, free_log_std=True)
    policy = make_policy(config.freeze(), *SPACES)
    assert isinstance(policy, RecurrentActorCritic)
    told = " ".join(config.ignored_settings(policy))
    assert "model.vf_share_layers=True has no effect" in told
    assert "model.free_log_std=True has no effect" in told
