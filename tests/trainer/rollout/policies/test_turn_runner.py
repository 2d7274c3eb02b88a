"""Agents that do not act in every step, whose episodes are cut off while they wait for the result of an action."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reef.algorithms.apex import ApexDQNConfig
from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPOConfig, PPOLearner
from reef.algorithms.sac import SACConfig
from reef.envs.multi_agent import MultiAgentEnv
from reef.learn.learners import learners_of
from reef.math.gae import gae
from reef.replay.n_step import NStep
from reef.replay.shards import cut_at_end
from reef.rollout.worker import RolloutWorker

BOX = spaces.Box(-1e6, 1e6, (1,), np.float32)


class InTurn(MultiAgentEnv):
    """Two agents act in turn, without an end; the observation is 100 times the episode's number and the step's."""

    agents_take_turns = True

    def __init__(self, config: dict[str, Any]) -> None:
        self.possible_agents = ["a", "b"]
        self.observation_spaces = dict.fromkeys("ab", BOX)
        self.action_spaces = {agent: spaces.Discrete(2) for agent in "ab"}
        self.episode = self.steps = 0
        self.scale = config.get("scale", 1.0)

    def shown(self) -> np.ndarray:
        return np.array([self.scale * (100 * self.episode + self.steps)], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.episode, self.steps = self.episode + 1, 0
        return {"a": self.shown()}, {}

    def step(self, actions: Any) -> Any:
        self.steps += 1
        agent = "ab"[self.steps % 2]
        return {agent: self.shown()}, {agent: 1.0}, {}, {}, {}


def in_turn(config: Any, horizon: int, **settings: Any) -> Any:
    config.environment(InTurn, horizon=horizon, disable_env_checking=True).debugging(seed=0)
    return config.multi_agent(policies=["a", "b"]).assign(settings).freeze()


def test_the_next_episode_does_not_follow_an_action_whose_result_never_came() -> None:
    config = in_turn(PPOConfig(), 3, rollout_fragment_length=9, train_batch_size=9, sgd_minibatch_size=9)
    rollout = RolloutWorker(config).sample(9).rollouts["a"]
    rows = rollout.mask[:, 0]
    assert rows.tolist() == [True, False] * 3
    assert rollout.obs[rows, 0, 0].tolist() == [100, 200, 300]
    assert rollout.next_obs[rows, 0, 0].tolist() == [102, 202, 302]
    nothing = np.zeros(rollout.shape, np.float32)
    ends = rollout.terminated, rollout.truncated
    advantages, _ = gae(rollout.rewards, nothing, nothing, *ends, 1.0, 1.0, rollout.mask)
    assert advantages[rows, 0].tolist() == [1, 1, 1]


class MovesInTurn(InTurn):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.action_spaces = {agent: spaces.Box(-1.0, 1.0, (1,)) for agent in "ab"}


def test_correlated_noise_follows_the_steps_of_each_agent() -> None:
    correlated = {"type": "OrnsteinUhlenbeckNoise", "random_timesteps": 0, "ou_sigma": 0.0}
    config = SACConfig().environment(MovesInTurn, disable_env_checking=True).debugging(seed=0)
    config.exploration(exploration_config=correlated).rollouts(rollout_fragment_length=5)
    worker = RolloutWorker(config.multi_agent(policies=["both"]).freeze())
    worker.sample()
    noise: Any = worker.runners["both"].exploration
    noise.set_state({"walk": np.ones((2, 1), np.float32)})
    worker.sample()
    # "a" acts in the even steps, so here in 6 and 8
    np.testing.assert_allclose(noise.walk[:, 0], [0.85**2, 0.85**3], rtol=1e-5)


@pytest.mark.parametrize("length", [5, 8])
def test_no_n_step_transition_runs_from_one_episode_into_the_next(length: int) -> None:
    worker = RolloutWorker(in_turn(DQNConfig(), 7, rollout_fragment_length=length))
    for name, n_step in {"a": NStep(3, 0.99), "b": NStep(3, 0.99)}.items():
        found = [n_step.add(worker.sample().rollouts[name]) for _ in range(10)]
        before, after = (np.concatenate([getattr(each, key)[:, 0] for each in found]) for key in ("obs", "next_obs"))
        assert len(before) > 15
        assert (before // 100 == after // 100).all()


def test_a_memory_begins_anew_where_it_did_when_it_acted() -> None:
    model = {"use_lstm": True, "lstm_cell_size": 8, "fcnet_hiddens": [8]}
    sizes = {"rollout_fragment_length": 40, "train_batch_size": 40, "sgd_minibatch_size": 40, "num_sgd_iter": 1}
    config = in_turn(PPOConfig(), 7, model=model, lr=1e-9, env_config={"scale": 0.01}, **sizes)
    worker = RolloutWorker(config)
    learners = learners_of(PPOLearner, config, worker.spaces)
    for learner in learners.values():
        with torch.no_grad():
            learner.policy.pi.weight *= 100  # so that what a memory holds changes much
    worker.set_weights({name: learner.weights() for name, learner in learners.items()})
    rollouts = worker.sample().rollouts
    assert [learners[name].update(rollouts[name], 0).stats["kl"] for name in "ab"] == pytest.approx([0, 0], abs=1e-6)


@pytest.mark.parametrize("by_workers", [True, False])
def test_a_policy_by_which_no_agent_acted_has_no_rows(by_workers: bool) -> None:
    config = ApexDQNConfig().environment(InTurn, horizon=20, disable_env_checking=True).debugging(seed=0)
    policies = ["main", "old", "older"]
    config.multi_agent(policies=policies, policy_mapping_fn=lambda agent, *_, **__: "main" if agent == "a" else "old")
    settings = {"num_rollout_workers": 0, "rollout_fragment_length": 5, "worker_side_prioritization": by_workers}
    sample = cut_at_end(RolloutWorker(config.assign(settings).freeze()).sample())
    assert {name: rollout.shape[0] for name, rollout in sample.rollouts.items()} == {"main": 2, "old": 2, "older": 0}


EPSILON = {"type": "EpsilonGreedy", "epsilon_schedule": [[0, 1.0], [10, 0.0]]}


def exploring(**settings: Any) -> RolloutWorker:
    """One that has acted at random, and whose epsilon is 0 from now on."""
    sizes = {"rollout_fragment_length": 5, "train_batch_size": 5, "sgd_minibatch_size": 5}
    worker = RolloutWorker(in_turn(PPOConfig(), 100, exploration_config=EPSILON, **sizes, **settings))
    first = worker.sample(5).rollouts
    for name in "ab":
        rows = first[name].mask
        np.testing.assert_allclose(first[name].extras["action_logp"][rows], np.log(1 / 2), rtol=1e-6)
    worker.timestep = 10
    return worker


def logp_after(worker: RolloutWorker) -> dict[str, list[float]]:
    rollouts = worker.sample(5).rollouts
    return {name: own.extras["action_logp"][own.mask].tolist() for name, own in rollouts.items()}


def test_an_action_of_the_fragment_before_keeps_the_likelihood_of_its_time() -> None:
    found = logp_after(exploring())
    waited = [name for name in "ab" if found[name][0]]
    assert len(waited) == 1, "the other agent acted in the last step, and its result came"
    assert found[waited[0]][0] == pytest.approx(np.log(1 / 2))
    assert not any(logp for name in "ab" for logp in found[name][name in waited :])


@pytest.mark.parametrize("is_older", [False, True])
def test_a_restored_worker_knows_the_likelihood_of_an_action_without_a_result(is_older: bool) -> None:
    one, two = exploring(), exploring()
    two.set_weights(one.get_weights(), 0, 10)
    state = one.state()
    for own in state["runners"].values():
        assert "logp" in own["open"]
        if is_older:
            del own["open"]["logp"]
    two.set_state(state)
    found, expected = logp_after(two), logp_after(one)
    for name in "ab":
        assert found[name][1:] == expected[name][1:]
        if not is_older:
            assert found[name][0] == expected[name][0]
        assert np.isfinite(found[name]).all()
