"""What a policy of a worker answers: actions, and what it learns from batches.

It tests reef.rollout.exploration.on_request and reef.run.inference too.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from reef.algorithms.a3c import A3CConfig
from reef.algorithms.ddpg import DDPGConfig
from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPOConfig
from reef.batch import Transitions
from reef.callbacks import SampleBatch
from reef.config import AlgorithmConfig, PolicySpec
from reef.errors import ConfigError
from reef.learn.learner import Update
from reef.nn.make import make_policy
from reef.rollout.worker import RolloutWorker

ROWS = np.zeros((50, 4), np.float32)


class Wide(gym.Env[Any, Any]):
    """Takes actions between -10 and 30."""

    observation_space, action_space = spaces.Box(-1, 1, (3,)), spaces.Box(-10, 30, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(3, np.float32), 0.0, False, True, {}


def worker(kind: type[AlgorithmConfig], env: Any = "CartPole-v1", **settings: Any) -> RolloutWorker:
    return RolloutWorker(kind.from_dict({"env": env, "seed": 1, "model": {"fcnet_hiddens": [4]}, **settings}).freeze())


def test_exploring_is_by_the_exploration_of_the_settings() -> None:
    asked = worker(DQNConfig, exploration_config={"epsilon_timesteps": 100, "final_epsilon": 0.0})
    policy = asked.get_policy()
    best, state, extras = policy.compute_actions(ROWS, explore=False)
    assert (len(set(best.tolist())), state, extras["action_dist_inputs"].shape) == (1, [], (50, 2))
    for explore in (True, None):  # epsilon is 1
        assert 10 < policy.compute_actions(ROWS, explore=explore)[0].sum() < 40
    asked.timestep = 100  # epsilon is 0, and the Q-values are no logits to sample by
    assert (policy.compute_actions(ROWS, explore=True)[0] == best).all()


def test_without_a_word_it_explores_as_the_setting_says() -> None:
    policy = worker(DQNConfig, explore=False).get_policy()
    assert len(set(policy.compute_actions(ROWS)[0].tolist())) == 1


def test_actions_are_stretched_and_clipped_as_asked() -> None:
    policy = worker(PPOConfig, Wide).get_policy()
    weights = policy.get_weights()
    weights["pi.bias"][:] = (2.0, -5.0)  # mean and logarithm of the deviation
    policy.set_weights(weights)

    def first(**how: bool) -> float:
        return float(policy.compute_single_action(np.zeros(3), explore=False, **how)[0][0])

    assert first() == first(unsquash_actions=True) == 30.0
    assert first(unsquash_actions=False, clip_actions=False) == pytest.approx(2.0, abs=0.2)
    weights["pi.bias"][:] = (40.0, -5.0)
    policy.set_weights(weights)
    assert first(unsquash_actions=False, clip_actions=True) == 30.0


def test_one_action_is_as_the_first_of_several() -> None:
    policy = worker(PPOConfig).get_policy()
    action, state, extras = policy.compute_single_action(ROWS[0], explore=False)
    actions, _, several = policy.compute_actions(ROWS[:1], explore=False)
    assert (action, type(action), state) == (actions[0], int, [])
    np.testing.assert_array_equal(extras["action_dist_inputs"], several["action_dist_inputs"][0])


def test_states_and_earlier_actions_come_in_batches() -> None:
    model = {"use_lstm": True, "lstm_cell_size": 3, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    policy = worker(PPOConfig, model=model).get_policy()
    actions, state, _ = policy.compute_actions(ROWS[:2], explore=False)
    assert [each.shape for each in state] == [each.shape for each in policy.initial_state(2).values()]

    def inputs(*previous: Any) -> np.ndarray:
        return policy.compute_actions(ROWS[:2], state, *previous, explore=False)[2]["action_dist_inputs"]

    np.testing.assert_array_equal(inputs(), inputs(actions.tolist(), [0.0, 0.0]))
    other = inputs([1 - actions[0], actions[1]])
    assert (other[0] != inputs()[0]).any()
    np.testing.assert_array_equal(other[1], inputs()[1])
    assert (inputs(None, [1.0, 1.0]) != inputs()).all()
    with pytest.raises(ConfigError, match="3 prev_rewards for 2 observations: give one for each"):
        inputs(None, [1.0] * 3)
    with pytest.raises(ConfigError, match=r"the previous action .* is no value of Discrete\(2\)"):
        inputs([[0, 1], [0, 1]])
    with pytest.raises(ConfigError, match=r"state has arrays of the shapes"):
        policy.compute_actions(ROWS[:3], state)


class Nested(Wide):
    observation_space = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1, 1, (2,))})
    action_space = spaces.Dict({"left": spaces.Discrete(2, start=1), "right": spaces.Box(0, 1, (2,))})

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return {"a": 0, "b": np.zeros(2, np.float32)}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.reset()[0], 0.0, False, True, {}


def test_observations_are_values_or_preprocessed_and_actions_are_values() -> None:
    asked = worker(PPOConfig, Nested, observation_filter="MeanStdFilter")
    policy, value = asked.get_policy(), {"a": 2, "b": np.array([0.5, 0.25], np.float32)}
    preprocessed = asked.preprocessors["default_policy"].transform(value)
    assert preprocessed.tolist() == [0, 0, 1, 0.5, 0.25]
    found = [policy.compute_single_action(each, explore=False) for each in (value, preprocessed)]
    np.testing.assert_array_equal(*(extras["action_dist_inputs"] for _, _, extras in found))
    assert Nested.action_space.contains(found[0][0])
    actions, _, _ = policy.compute_actions({"a": [0, 1], "b": np.zeros((2, 2))})
    assert all(map(Nested.action_space.contains, actions))


def test_a_filter_is_asked_for_each_policy() -> None:
    plain, filtered = worker(PPOConfig), worker(PPOConfig, observation_filter="MeanStdFilter")
    obs = plain.preprocessors["default_policy"].transform([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(plain.filters["default_policy"](obs, update=False), obs)
    filtered.sample(20)
    assert (filtered.filters["default_policy"](obs, update=False) != obs).any()
    with pytest.raises(KeyError, match="PolicyID 'other' not found"):
        plain.filters["other"]


def test_wrong_use_is_named() -> None:
    policy = worker(PPOConfig).get_policy()
    with pytest.raises(ConfigError, match=r"info=\{'lives': 3\} has no effect"):
        policy.compute_actions(ROWS, info_batch=[{}, {"lives": 3}])
    assert len(policy.compute_actions(ROWS, info_batch=[{}] * len(ROWS))[0]) == len(ROWS)
    for timestep in (-1, 1.5, True):
        with pytest.raises(ConfigError, match=f"timestep={timestep!r}: expected environment steps"):
            policy.compute_single_action(ROWS[0], timestep=timestep)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="explore='yes': expected true, false or None"):
        policy.compute_single_action(ROWS[0], explore="yes")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"have shape \(4,\), expected \('N', 4\): a batch"):
        policy.compute_actions(ROWS[0])
    alone = make_policy(PPOConfig(), spaces.Box(-1, 1, (4,)), spaces.Discrete(2))
    with pytest.raises(ConfigError, match="belongs to no worker"):
        alone.compute_actions(ROWS)
    with pytest.raises(ConfigError, match="belongs to no learner"):
        policy.learn_on_batch([])


def small(kind: type[AlgorithmConfig], **settings: Any) -> Any:
    config = kind.from_dict({"env": "CartPole-v1", "seed": 1, "model": {"fcnet_hiddens": [4]}, **settings})
    return config.build()


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (PPOConfig, {"train_batch_size": 64, "sgd_minibatch_size": 32, "num_sgd_iter": 2}),
        (DQNConfig, {"rollout_fragment_length": 40, "train_batch_size": 32, "n_step": 3}),
    ],
)
def test_a_policy_learns_from_what_workers_sampled(kind: type[AlgorithmConfig], settings: dict[str, Any]) -> None:
    with small(kind, **settings) as algorithm:
        policy = algorithm.get_policy()
        batch = SampleBatch.concat_samples(algorithm.workers.sample())
        before = policy.get_weights()
        stats = policy.learn_on_batch(batch)["learner_stats"]
        assert np.isfinite(stats["total_loss"])
        after = policy.get_weights()
        assert any((before[name] != after[name]).any() for name in before)
        policy.set_weights({name: np.zeros_like(value) for name, value in after.items()})
        policy.learn_on_batch(algorithm.workers.sample())
        assert max(np.abs(value).max() for value in policy.get_weights().values()) < 0.01, "it went on from zeros"
        assert algorithm.train()["training_iteration"] == 1


def test_a_policy_learns_by_its_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"policies": {"p": PolicySpec(config={"gamma": 0.5})}, "policy_mapping_fn": lambda *_, **__: "p"}
    learned: list[Transitions] = []

    def update(batches: dict[str, Transitions], timestep: int) -> dict[str, Update]:
        learned.append(batches["p"])
        return {"p": Update({}, {})}

    env = {"env": "reef.envs.multi_agent:IndependentAgents", "env_config": {"env": "CartPole-v1", "num_agents": 1}}
    with small(DQNConfig, rollout_fragment_length=40, **env, **own) as algorithm:
        monkeypatch.setattr(algorithm.learners, "update", update)
        algorithm.learn_on_batch(algorithm.workers.sample(), "p")
    (batch,) = learned
    assert set(batch.extras["discounts"]) == {0.5}


def test_what_cannot_be_learned_from_steps_is_refused() -> None:
    with small(DQNConfig) as algorithm, pytest.raises(ConfigError, match="4 rows are fewer than train_batch_size=32"):
        algorithm.get_policy().learn_on_batch(algorithm.workers.sample())
    with small(A3CConfig) as algorithm, pytest.raises(ConfigError, match="A3C does not learn from steps in the driver"):
        algorithm.get_policy().learn_on_batch(algorithm.workers.local_worker().sample())
    with small(PPOConfig, model={"use_lstm": True}) as algorithm, pytest.raises(ConfigError, match="PPO has a memory"):
        algorithm.get_policy().learn_on_batch(algorithm.workers.sample())


def test_noise_on_actions_is_added_on_request() -> None:
    asked = worker(DDPGConfig, "Pendulum-v1")
    asked.timestep = 5000
    actions = asked.get_policy().compute_actions(np.zeros((9, 3)), explore=True)[0]
    assert (actions.shape, len(np.unique(actions))) == ((9, 1), 9)


def test_a_filter_takes_no_one_hot_vectors() -> None:
    asked = worker(PPOConfig, Nested, observation_filter="MeanStdFilter")
    array = asked.preprocessors["default_policy"].transform(Nested.observation_space.sample())
    with pytest.raises(ConfigError, match=r"takes observations of the shape \(3,\), not \(5,\): where indices are"):
        asked.filters["default_policy"](array, update=False)
