"""A policy of Reef as the target of estimates: with and without a memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import reef.learn.estimators.target
from reef.algorithms.registry import config_class
from reef.errors import ConfigError
from reef.learn.estimators import LoggedSteps
from reef.learn.estimators.target import EvaluatedPolicy
from reef.nn.distributions import Categorical, CustomDistribution
from reef.nn.dueling import QPolicy
from reef.nn.make import make_policy
from reef.nn.policies import Policy
from reef.types import Array, RecurrentState

OBSERVED = spaces.Box(0.0, 1.0, (2,))


def made(name: str, actions: spaces.Space[Any] | None = None, **model: Any) -> Policy:
    """A policy with random weights."""
    config = config_class(name).from_dict({"model": {"fcnet_hiddens": [8], **model}}).environment("CartPole-v1")
    policy = make_policy(config.checked(), OBSERVED, actions or spaces.Discrete(2))
    policy.flat.vector.copy_(torch.randn(policy.flat.vector.shape, generator=torch.Generator().manual_seed(9)))
    return policy


def same(values: Array) -> Array:
    return values


def guesses(lengths: list[int]) -> LoggedSteps:
    """Episodes that show one of two observations; rewards are 2 and -2."""
    rng, count = np.random.default_rng(0), sum(lengths)
    rows = np.eye(2, dtype=np.float32)[rng.integers(2, size=count + 1)]
    return LoggedSteps(
        obs=rows[:-1],
        actions=rng.integers(2, size=count),
        rewards=rng.choice([-2.0, 2.0], count),
        next_obs=rows[1:],
        terminated=np.isin(np.arange(count) + 1, np.cumsum(lengths)),
        starts=np.cumsum([0, *lengths[:-1]]),
        behavior_logp=np.full(count, np.log(0.5)),
    )


class Turned(CustomDistribution):
    """Of two actions, with the logits of each other."""

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any) -> int:
        return 2

    @staticmethod
    def draw(inputs: Array, generator: np.random.Generator) -> Array:
        return Categorical.draw(inputs[:, ::-1], generator)

    @staticmethod
    def mode(inputs: Array) -> Array:
        return Categorical.mode(inputs[:, ::-1])

    def logp(self, actions: torch.Tensor) -> torch.Tensor:
        return Categorical(self.inputs.flip(1)).logp(actions)

    def entropy(self) -> torch.Tensor:
        return Categorical(self.inputs).entropy()

    def kl(self, other: Any) -> torch.Tensor:
        return Categorical(self.inputs).kl(Categorical(other.inputs))


@pytest.mark.parametrize("own", [{}, {"custom_action_dist": Turned}])
def test_the_chances_of_actions_are_those_of_the_distribution(own: dict[str, Any]) -> None:
    target, steps = EvaluatedPolicy(made("PPO", **own), same, same), guesses([3])
    chances = target.probabilities(steps)
    assert abs(chances[:, 0] - 0.5).max() > 0.05, "or it would show nothing"
    for action in range(2):
        taken = replace(steps, actions=np.full(3, action))
        np.testing.assert_allclose(chances[:, action], np.exp(target.logp(taken)), rtol=1e-5)


def test_the_chances_after_a_step_are_those_at_its_next_observation() -> None:
    target, steps = EvaluatedPolicy(made("PPO"), same, same), guesses([3, 2])
    at_next = target.probabilities(replace(steps, obs=steps.next_obs))
    np.testing.assert_array_equal(target.next_probabilities(steps), at_next)
    assert (target.probabilities(steps) != at_next).any()


def test_real_numbers_have_no_chances() -> None:
    policy = made("PPO", spaces.Box(-1.0, 1.0, (2,)))
    with pytest.raises(ConfigError, match=r"probabilities: Box.* is not Discrete\. Ask the policy for logp"):
        EvaluatedPolicy(policy, same, same).probabilities(guesses([3]))


LSTM = {"use_lstm": True, "lstm_cell_size": 8}
MEMORIES: list[tuple[str, dict[str, Any]]] = [
    ("PPO", LSTM),
    ("PPO", LSTM | {"recurrent_cell": "gru"}),
    ("PPO", LSTM | {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}),
    ("PPO", {"use_attention": True, "attention_num_transformer_units": 1, "attention_dim": 8}),
    ("DQN", LSTM | {"lstm_use_prev_reward": True}),
]


@pytest.mark.parametrize("rows", [2, 4096])
@pytest.mark.parametrize(("name", "memory"), MEMORIES)
def test_a_policy_with_a_memory_acts_in_each_episode_from_its_first_step_on(
    name: str, memory: dict[str, Any], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reef.learn.estimators.target, "ROWS", rows)
    policy = made(name, **memory)
    steps = guesses([9, 1, 12, 4, 12])
    target = EvaluatedPolicy(policy, lambda obs: obs - 0.5, np.sign)
    before, after = acted_by(policy, replace(steps, obs=steps.obs - 0.5, next_obs=steps.next_obs - 0.5), np.sign)
    assert np.ptp(before[steps.obs[:, 0] == 1, 0]) > 0.05, "the same observation, or it would show nothing"
    np.testing.assert_allclose(target.probabilities(steps), before, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(target.next_probabilities(steps), after, rtol=1e-4, atol=1e-6)
    of_actions = before[np.arange(len(steps)), steps.actions]
    np.testing.assert_allclose(np.exp(target.logp(steps)), of_actions, rtol=1e-4, atol=1e-6)


def acted_by(policy: Policy, steps: LoggedSteps, seen: Callable[[Array], Array]) -> tuple[Array, Array]:
    """[N, A] before and after each step: the probabilities of a policy that acts in one episode after the other."""
    before, after = [], []
    for start, length in zip(steps.starts, steps.lengths, strict=True):
        state = policy.initial_state(1)
        for row in range(start, start + length):
            chances, state = acted(policy, steps.obs[row], state)
            before.append(chances)
            rewards = seen(steps.rewards[[row]]).astype(np.float32)
            state = policy.after_step(state, steps.actions[[row]], rewards, np.array([False]))
            after.append(acted(policy, steps.next_obs[row], state)[0])
    return np.array(before), np.array(after)


def acted(policy: Policy, obs: Array, state: RecurrentState) -> tuple[Array, RecurrentState]:
    distribution, following = policy.act(obs[None], state)
    outputs = distribution.inputs[0]
    if isinstance(policy, QPolicy):
        return np.eye(2)[outputs.argmax()], following
    return torch.from_numpy(outputs).softmax(-1).numpy(), following
