"""Noise on the weights that act.

It tests reef.rollout.exploration.parameter_noise.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from short_episodes import Short

from reef.algorithms.ddpg import DDPGConfig
from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPOConfig
from reef.config import AlgorithmConfig
from reef.errors import ConfigError
from reef.nn.make import make_policy
from reef.rollout.exploration import ParameterNoise, make_exploration
from reef.rollout.exploration.parameter_noise import ADAPT_EVERY, ADAPTATION, kl_of_epsilon, mean_kl
from reef.rollout.worker import RolloutWorker

OBS, THREE, BOX = spaces.Box(-1, 1, (2,)), spaces.Discrete(3), spaces.Box(-1, 1, (2,))
NOISY: dict[str, Any] = {"type": "ParameterNoise", "random_timesteps": 0}
GREEDY = {"initial_epsilon": 0.0, "final_epsilon": 0.0}


def settings(kind: type[AlgorithmConfig] = DQNConfig, **exploration: Any) -> AlgorithmConfig:
    config = kind().environment(Short).debugging(seed=4).exploration(exploration_config=NOISY | exploration)
    config.rollouts(num_envs_per_worker=2, rollout_fragment_length=4)
    return config.training(model={"fcnet_hiddens": [8]})


def noise_of(config: AlgorithmConfig, actions: spaces.Space[Any] = THREE) -> tuple[ParameterNoise, Any]:
    policy = make_policy(config, OBS, actions)
    made = make_exploration(config, policy.action_layout)
    assert isinstance(made, ParameterNoise)
    return made, policy


def test_each_column_keeps_its_noise_until_its_episode_ends() -> None:
    noise, policy = noise_of(settings())
    generator, obs = np.random.default_rng(0), np.ones((2, 2), np.float32)
    first, true, _ = noise.act(policy, obs, {}, 0, generator)
    again, _, _ = noise.act(policy, obs, {}, 0, generator)
    np.testing.assert_array_equal(first.inputs, again.inputs)
    assert not np.allclose(first.inputs[0], first.inputs[1]), "each column has noise of its own"
    np.testing.assert_array_equal(true.inputs, policy.act(obs, {})[0].inputs)
    noise.end_episodes(np.array([False, True]))
    later, _, _ = noise.act(policy, obs, {}, 0, generator)
    np.testing.assert_array_equal(later.inputs[0], first.inputs[0])
    assert not np.allclose(later.inputs[1], first.inputs[1])


def test_the_noise_is_that_of_the_standard_deviation_and_follows_new_weights() -> None:
    noise, policy = noise_of(settings(initial_stddev=0.5))
    before = policy.flat.numpy()
    obs = np.ones((2, 2), np.float32)
    noise.act(policy, obs, {}, 0, np.random.default_rng(0))
    assert noise.noise.std() == pytest.approx(0.5, rel=0.05)
    np.testing.assert_array_equal(policy.flat.numpy(), before, "the published weights stay what they are")
    policy.flat.vector += 1.0
    noise.begin(new_episodes=False)
    kept = noise.noise.copy()
    noise.act(policy, obs, {}, 0, np.random.default_rng(0))
    np.testing.assert_array_equal(noise.noise, kept)
    np.testing.assert_allclose(noise.policies[1].flat.numpy(), before + 1.0 + kept[1], rtol=1e-6)


def test_the_threshold_of_epsilon_is_the_divergence_of_the_policies() -> None:
    assert kl_of_epsilon(0.1, 2) == pytest.approx(-math.log(0.95))
    assert kl_of_epsilon(0.0, 2) == 0.0
    rows = np.log(np.array([[0.5, 0.5], [0.9, 0.1]]))
    assert mean_kl(rows[:1], rows[1:]) == pytest.approx(0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1))


@pytest.mark.parametrize(("epsilon", "factor"), [(0.0, 1 / ADAPTATION), (1.0, ADAPTATION)])
def test_the_standard_deviation_falls_where_actions_differ_too_much(epsilon: float, factor: float) -> None:
    sub = {"initial_epsilon": epsilon, "final_epsilon": epsilon}
    noise, policy = noise_of(settings(initial_stddev=0.1, sub_exploration=sub))
    for step in range(ADAPT_EVERY):
        assert (step, noise.stddev) == (step, 0.1)
        noise.act(policy, np.ones((1, 2), np.float32), {}, 0, np.random.default_rng(0))
    assert noise.stddev == pytest.approx(0.1 * factor)


@pytest.mark.parametrize(("stddev", "factor"), [(0.0, 1 / ADAPTATION), (1.5, ADAPTATION)])
def test_actions_that_are_real_numbers_are_compared_by_their_distance(stddev: float, factor: float) -> None:
    sub = {"type": "GaussianNoise", "random_timesteps": 0, "stddev": stddev}
    noise, policy = noise_of(settings(DDPGConfig, initial_stddev=0.1, sub_exploration=sub), BOX)
    for _ in range(ADAPT_EVERY):
        noise.act(policy, np.ones((1, 2), np.float32), {}, 0, np.random.default_rng(0))
    assert noise.stddev == pytest.approx(0.1 * factor)


def test_the_target_of_a_process_is_its_deviation_after_many_steps() -> None:
    sub = {"type": "OrnsteinUhlenbeckNoise", "random_timesteps": 0, "scale_timesteps": 0, "final_scale": 1.0}
    noise, _ = noise_of(settings(DDPGConfig, sub_exploration=sub), BOX)
    process: Any = noise.sub
    generator = np.random.default_rng(0)
    drawn = [process.noise(np.zeros((500, 2), np.float32), generator) for _ in range(60)]
    assert np.std(drawn[-1]) == pytest.approx(process.deviation(100), rel=0.1)


def test_the_first_steps_are_random() -> None:
    config = settings(random_timesteps=100, sub_exploration=GREEDY)
    noise, policy = noise_of(config)
    distribution, _ = policy.act(np.ones((300, 2), np.float32), {})
    counts = [
        np.bincount(noise.choose(distribution, step, True, np.random.default_rng(0)), minlength=3) for step in (99, 100)
    ]
    assert counts[0].min() > 60
    assert sorted(counts[1]) == [0, 0, 300]


def test_a_worker_that_is_restored_goes_on_with_the_same_noise() -> None:
    config = settings()
    one, other = RolloutWorker(config), RolloutWorker(config)
    for _ in range(3):
        one.sample()
    other.set_weights(one.get_weights())
    other.set_state(one.state())
    runners = [worker.runners["default_policy"] for worker in (one, other)]
    np.testing.assert_array_equal(*(runner.parameter_noise.noise for runner in runners))
    assert one.runners["default_policy"].exploration.info(0).keys() == {"cur_epsilon", "cur_stddev"}
    states = [runner.exploration.state() for runner in runners]
    assert states[0]["stddev"] == states[1]["stddev"]


def test_training_is_resumed_and_evaluation_acts_without_noise(tmp_path: Path) -> None:
    config = settings().training(num_steps_sampled_before_learning_starts=16, train_batch_size=8)
    config.reporting(min_sample_timesteps_per_iteration=40).evaluation(evaluation_duration=2)
    with config.copy().build() as one, config.copy().build() as other:
        one.train()
        other.restore(one.save(tmp_path / "checkpoint"))
        local = one.workers.local_worker()
        assert local.runners["default_policy"].exploration.info(0)["cur_stddev"] > 0
        one.evaluate()
        acting = one.evaluation.workers.local_worker().runners["default_policy"]
        assert acting.parameter_noise is None
        obs = np.array([0.3, -0.3], np.float32)
        q_values = one.get_policy().act(obs[None], {})[0].inputs
        assert one.compute_single_action(obs, explore=False) == int(q_values.argmax())
        *_, extras = one.compute_single_action(obs, explore=True, full_fetch=True)
        assert not np.allclose(extras["action_dist_inputs"], q_values[0])
        np.testing.assert_array_equal(one.learners.weights()["default_policy"], local.get_weights()["default_policy"])


def test_algorithms_that_learn_from_their_own_actions_are_refused() -> None:
    with pytest.raises(ConfigError, match="learn as if their own weights had acted"):
        noise_of(settings(PPOConfig))
