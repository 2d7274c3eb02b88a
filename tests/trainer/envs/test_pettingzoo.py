"""Parallel environments of PettingZoo, whose agents end together or apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from pettingzoo.butterfly.knights_archers_zombies import knights_archers_zombies
from pettingzoo.classic.rps import rps

from reef.algorithms.ppo import PPOConfig
from reef.offline.steps import STEP_KEYS
from reef.rollout.recording import recording_worker
from reef.rollout.worker import RolloutWorker


def rock_paper_scissors(env_config: dict[str, Any]) -> Any:
    return rps.parallel_env(**env_config)


def zombies(env_config: dict[str, Any]) -> Any:
    return knights_archers_zombies.parallel_env(**env_config)


def settings(env: Any, policies: list[str], mapping: Any, **env_config: Any) -> PPOConfig:
    config = PPOConfig().environment(env, env_config=env_config).debugging(seed=1)
    config = config.multi_agent(policies=policies, policy_mapping_fn=mapping)
    return config.training(model={"fcnet_hiddens": [8]}, train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=1)


def test_rock_paper_scissors_is_trained() -> None:
    config = settings(rock_paper_scissors, ["player_0", "player_1"], None, max_cycles=8)
    with config.multi_agent(policies_to_train=["player_0"]).build() as algorithm:
        before = algorithm.get_weights()
        result = algorithm.train()
        after = algorithm.get_weights()
    rewards = result["policy_reward_mean"]
    assert rewards["player_0"] == -rewards["player_1"], "what one wins the other one loses"
    assert result["episode_len_mean"] == 8
    changed = {name for name in before if any((before[name][key] != after[name][key]).any() for key in before[name])}
    assert changed == {"player_0"}


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_knights_and_archers_fall_one_by_one(mode: str) -> None:
    config = settings(
        zombies, ["archers", "knights"], lambda agent: f"{agent.split('_')[0]}s", max_cycles=300, max_zombies=30
    )
    worker = RolloutWorker(config.rollouts(rollout_fragment_length=300, batch_mode=mode).freeze())
    sample = worker.sample()
    assert {name: rollout.shape[1] for name, rollout in sample.rollouts.items()} == {"archers": 2, "knights": 2}
    masks = np.concatenate([rollout.mask for rollout in sample.rollouts.values()], axis=1)
    assert masks.any(axis=1).all(), "some agent is there in every step"
    assert not masks.all(), "some are not"
    for rollout in sample.rollouts.values():
        assert (rollout.done <= rollout.mask).all(), "an agent ends in a step that counts"
        assert np.isfinite(rollout.obs[rollout.mask]).all()


def test_an_episode_is_recorded() -> None:
    config = settings(rock_paper_scissors, ["player_0", "player_1"], None, max_cycles=8).freeze()
    env = rock_paper_scissors({"max_cycles": 8})
    worker, recorded = recording_worker(config, RolloutWorker(config), env, STEP_KEYS)
    recorded.begin(1, math.inf)
    worker.sample_episodes(1)
    episode = recorded.episode
    assert (episode.length, episode.reward, episode.complete) == (8, 0.0, True), "what one wins the other one loses"
    assert episode.steps[0]["action"].keys() == {"player_0", "player_1"}
    assert episode.steps[-1]["truncated"] == {"player_0": True, "player_1": True}


def test_a_restored_worker_goes_on_among_zombies() -> None:
    config = settings(zombies, ["all"], None, max_cycles=200, max_zombies=30).rollouts(rollout_fragment_length=40)
    one, two = RolloutWorker(config.freeze()), RolloutWorker(config.copy().debugging(seed=3).freeze())
    one.sample()
    two.set_weights(one.get_weights())
    two.set_state(one.state())
    first, second = (each.sample().rollouts["all"] for each in (one, two))
    np.testing.assert_array_equal(first.obs[first.mask], second.obs[second.mask])
