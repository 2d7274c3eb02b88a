"""The rollout worker, with the runners of its policies.

It tests reef.rollout.policy_runner too.
"""

from __future__ import annotations

import logging
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPOConfig
from reef.batch import Sample
from reef.config import AlgorithmConfig
from reef.errors import EnvironmentError
from reef.nn.distributions import ActionDistribution
from reef.rollout.exploration import SoftQ
from reef.rollout.worker import RolloutWorker
from reef.types import DEFAULT_POLICY


class Counter(gym.Env[np.ndarray, int]):
    """The observation counts the steps of the episode; an episode has `length` steps, each worth 1."""

    observation_space = gym.spaces.Box(-1, 1000, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, env_config: dict[str, Any]) -> None:
        self.length = env_config.get("length", 3) + env_config.vector_index * env_config.get("longer", 0)
        self.truncates, self.bad = env_config.get("truncates", False), env_config.get("bad_at", -1)
        self.bad_reset, self.resets = env_config.get("bad_reset", False), 0
        self.blind = env_config.get("blind", False)
        self.breaks = env_config.get("breaks_at", -1) if not env_config.recreated_worker else -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        self.resets += 1
        return np.full(1, np.nan if self.bad_reset and self.resets > 2 else 0, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == self.breaks and self.resets == 2:
            raise RuntimeError("broken")
        over = self.steps >= self.length
        value = np.nan if self.steps == self.bad else 0 if self.blind else self.steps
        return np.full(1, value, np.float32), 1.0, over and not self.truncates, over and self.truncates, {}


def worker(num_envs: int = 2, length: int = 4, mode: str = "truncate_episodes", **env_config: Any) -> RolloutWorker:
    restart = env_config.pop("restart", False)
    config = (
        PPOConfig()
        .environment(Counter, env_config=env_config)
        .fault_tolerance(restart_failed_sub_environments=restart)
        .rollouts(num_envs_per_worker=num_envs, rollout_fragment_length=length, batch_mode=mode)
        .training(model={"fcnet_hiddens": [4]})
        .debugging(seed=1)
    )
    return RolloutWorker(config)


def test_a_fragment_has_exactly_its_length_and_true_successors() -> None:
    sample = worker().sample()
    rollout = sample.rollouts[DEFAULT_POLICY]
    assert rollout.shape == (4, 2)
    assert sample.env_steps == len(rollout) == 8
    assert rollout.obs[:, 0, 0].tolist() == [0, 1, 2, 0]
    assert rollout.next_obs[:, 0, 0].tolist() == [1, 2, 3, 1], "the end of an episode keeps its own last observation"
    assert rollout.terminated[:, 0].tolist() == [False, False, True, False]
    assert not rollout.truncated.any()
    assert [(e.reward, e.length) for e in sample.episodes] == [(3, 3), (3, 3)]


def test_fragments_go_on_where_the_last_one_stopped() -> None:
    one = worker()
    first, second = (one.sample().rollouts[DEFAULT_POLICY] for _ in range(2))
    assert second.obs[0, 0, 0] == first.next_obs[-1, 0, 0] == 1


def test_truncated_stays_apart_from_terminated() -> None:
    rollout = worker(truncates=True).sample().rollouts[DEFAULT_POLICY]
    assert rollout.truncated[2].all()
    assert not rollout.terminated.any()


@pytest.mark.parametrize(("longer", "told"), [(0, 0), (37, 1)])
def test_an_episode_that_is_really_long_is_told_of_once(
    longer: int, told: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("reef.rollout.worker.LONG", 16)
    one = worker(length=2, mode="complete_episodes", longer=longer)
    for _ in range(2):
        one.sample(100)
    assert caplog.text.count("steps an episode has not ended") == told


def test_complete_episodes_are_whole_and_no_step_of_another_one_counts() -> None:
    one = worker(num_envs=2, length=4, mode="complete_episodes", longer=2)
    for _ in range(2):
        sample = one.sample()
        rollout = sample.rollouts[DEFAULT_POLICY]
        assert sample.env_steps >= 8
        assert rollout.obs[0, :, 0].tolist() == [0, 0]
        for column in range(2):
            steps = np.flatnonzero(rollout.mask[:, column])
            assert rollout.done[steps[-1], column], "the last step that counts ends an episode"
        assert sum(episode.length for episode in sample.episodes) == sample.env_steps


def test_exactly_as_many_episodes_as_asked_for() -> None:
    one = worker(num_envs=2, longer=4)
    sample = one.sample_episodes(5)
    assert sorted(episode.length for episode in sample.episodes) == [3, 3, 3, 7, 7]
    assert sample.env_steps == 23


def test_log_likelihoods_belong_to_the_actions() -> None:
    one = worker()
    rollout = one.sample().rollouts[DEFAULT_POLICY]
    policy = one.policy_map[DEFAULT_POLICY]
    dist = policy.dist_class(policy.dist_inputs(torch.from_numpy(rollout.obs.reshape(-1, 1))))
    logp = dist.logp(torch.from_numpy(rollout.actions.reshape(-1))).detach().numpy().reshape(4, 2)
    np.testing.assert_allclose(rollout.extras["action_logp"], logp, atol=1e-5)


class Whole(gym.Env[np.ndarray, np.ndarray]):
    observation_space, action_space = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Box(0, 10, (2,), np.int64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        return np.zeros(1, np.float32), float(action[0]), False, False, {}


@pytest.mark.parametrize("kind", ["StochasticSampling", "Random"])
def test_whole_numbers_are_learned_from_as_they_were_drawn(kind: str) -> None:
    config = PPOConfig().environment(Whole).exploration(exploration_config={"type": kind}).debugging(seed=0)
    rollout = RolloutWorker(config.rollouts(rollout_fragment_length=50)).sample().rollouts[DEFAULT_POLICY]
    drawn = rollout.actions[:, 0, 0]
    assert 0.2 < np.abs(drawn).mean() < 1.2 and not np.array_equal(drawn, np.rint(drawn))
    np.testing.assert_array_equal(rollout.rewards[:, 0], np.rint(np.clip(5 * drawn + 5, 0, 10)))


def test_evaluation_that_explores_draws_otherwise_than_training() -> None:
    draws = [
        RolloutWorker(PPOConfig().environment("CartPole-v1").debugging(seed=0).evaluation(**settings))
        .runners[DEFAULT_POLICY]
        .generator.random()
        for settings in ({}, {"in_evaluation": True})
    ]
    assert draws[0] != draws[1]


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
@pytest.mark.parametrize("env", ["CartPole-v1", "Acrobot-v1", Counter])
def test_a_restored_worker_samples_the_same(env: Any, mode: str) -> None:
    config = PPOConfig().environment(env, horizon=30).rollouts(num_envs_per_worker=3, rollout_fragment_length=11)
    config = config.rollouts(batch_mode=mode)
    config = config.training(model={"fcnet_hiddens": [4]}).rollouts(observation_filter="MeanStdFilter")
    one, two = RolloutWorker(config.debugging(seed=1)), RolloutWorker(config.copy().debugging(seed=2))
    one.sample()
    two.set_weights(one.get_weights())
    two.set_state(one.state())
    for _ in range(3):
        first, second = one.sample(), two.sample()
        assert np.array_equal(first.rollouts[DEFAULT_POLICY].obs, second.rollouts[DEFAULT_POLICY].obs)
        assert np.array_equal(first.rollouts[DEFAULT_POLICY].actions, second.rollouts[DEFAULT_POLICY].actions)
        assert first.episodes == second.episodes


def test_seeds_differ_per_worker_and_repeat_per_run() -> None:
    def first_obs(index: int) -> list[float]:
        config = PPOConfig().environment("CartPole-v1").rollouts(num_envs_per_worker=2, rollout_fragment_length=1)
        return RolloutWorker(config.debugging(seed=4), index).sample().rollouts[DEFAULT_POLICY].obs.ravel().tolist()

    assert first_obs(1) == first_obs(1)
    assert first_obs(1) != first_obs(2)
    assert first_obs(1)[:4] != first_obs(1)[4:], "and per environment"


def test_nan_observations_are_named() -> None:
    with pytest.raises(EnvironmentError, match=r"Counter.*nan"):
        worker(length=4, bad_at=2).sample()


def test_nan_in_a_first_observation_is_named() -> None:
    with pytest.raises(EnvironmentError, match="nan"):
        worker(length=12, bad_reset=True).sample()


def test_evaluation_steps_begin_new_episodes_on_request() -> None:
    one = worker(length=2)
    one.sample()
    assert one.sample(2, reset_episodes=True).rollouts[DEFAULT_POLICY].obs[0].ravel().tolist() == [0, 0]


def test_of_whole_episodes_nothing_counts_where_the_environment_broke() -> None:
    one = worker(num_envs=1, length=8, mode="complete_episodes", breaks_at=2, restart=True)
    sample = one.sample()
    rollout = sample.rollouts[DEFAULT_POLICY]
    assert sum(episode.length for episode in sample.episodes) == sample.env_steps == len(rollout) >= 8
    valid = rollout.obs[rollout.mask][:, 0].tolist()
    assert valid == [0, 1, 2] * (len(valid) // 3), "whole episodes only"


def test_the_level_of_the_log_is_the_one_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="reef"):  # which puts it back in the end
        for asked, level in (("ERROR", logging.ERROR), ("INFO", logging.INFO), (None, logging.INFO)):
            RolloutWorker(PPOConfig().environment("CartPole-v1").debugging(log_level=asked))
            assert logging.getLogger("reef.rollout").getEffectiveLevel() == level


def test_a_policy_without_environments_does_not_sample() -> None:
    config = PPOConfig().environment("CartPole-v1")
    idle = RolloutWorker(config, with_env=False)
    assert idle.env is None
    with pytest.raises(RuntimeError, match="no environment"):
        idle.sample()


def test_a_replacement_does_not_repeat_the_episodes_of_the_worker_it_replaces() -> None:
    config = PPOConfig().environment("CartPole-v1").rollouts(rollout_fragment_length=1).debugging(seed=4)
    first, again = (RolloutWorker(config, 1, recreated=recreated).sample() for recreated in (False, True))
    assert not np.array_equal(first.rollouts[DEFAULT_POLICY].obs, again.rollouts[DEFAULT_POLICY].obs)


def test_a_column_that_cannot_go_on_begins_a_new_episode_whatever_it_looks_like(monkeypatch) -> None:
    monkeypatch.setattr("reef.envs.loop.REPLAY_LIMIT", 1)
    one, two = (worker(longer=3, blind=True) for _ in range(2))  # episodes of 3 and of 6 steps
    one.sample(1)
    one.sample(3)  # column 0 is one step into its second episode, column 1 four into its first: too far to replay
    two.set_state(one.state())
    sample = two.sample(6)
    assert fragment_index(sample) == [2, 0]
    assert [episode.length for episode in sample.episodes] == [3, 3, 6]


def fragment_index(sample: Sample) -> list[int]:
    return [int(place) for place in sample.fragment_index[DEFAULT_POLICY]]


def test_fragments_are_counted_as_long_as_episodes_go_on() -> None:
    one, two = worker(), worker()
    assert [fragment_index(one.sample()) for _ in range(3)] == [[0, 0], [1, 1], [2, 2]]
    two.set_state(one.state())
    assert fragment_index(two.sample()) == fragment_index(one.sample()) == [3, 3]
    assert fragment_index(one.sample(reset_episodes=True)) == [0, 0]
    whole = worker(mode="complete_episodes")
    assert [fragment_index(whole.sample()) for _ in range(2)] == [[0, 0], [0, 0]]


class Forgetful(nn.Module):
    """Half of what it says is dropped while it learns."""

    def __init__(self, observation_space: Any, action_space: Any, num_outputs: int) -> None:
        super().__init__()
        self.head = nn.Linear(observation_space.shape[0], num_outputs + 1)
        self.dropout = nn.Dropout(0.5)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        out = self.dropout(self.head(obs))
        return out[:, :-1], out[:, -1]


def test_nothing_is_dropped_in_acting() -> None:
    settings = PPOConfig().environment("CartPole-v1").training(model={"custom_model": Forgetful})
    policy = RolloutWorker(settings.freeze()).policy_map[DEFAULT_POLICY]
    obs = np.ones((64, 4), np.float32)
    assert (np.ptp(policy.compute_actions(obs)[2]["action_dist_inputs"], axis=0) < 1e-6).all()


class Drifting(gym.Env[np.ndarray, Any]):
    """Its state is NaN from the second step on: no episode ends any more."""

    observation_space = gym.spaces.Box(-1, 1000, (1,))

    def __init__(self, env_config: dict[str, Any]) -> None:
        self.action_space = env_config["actions"]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.value = 0.0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), "what an environment says to a NaN"
        self.value = 1.0 if self.value == 0.0 else np.nan
        return np.full(1, self.value, np.float32), 1.0, self.value > 5, False, {}


def drifting(config: AlgorithmConfig, actions: gym.spaces.Space[Any], **rollouts: Any) -> RolloutWorker:
    config = config.environment(Drifting, env_config={"actions": actions}).rollouts(rollout_fragment_length=8)
    return RolloutWorker(config.training(model={"fcnet_hiddens": [4]}).rollouts(**rollouts).debugging(seed=1))


NAN = r"'Drifting' returned observations with nan at index \[2, 0, 0\]"


class Careful(SoftQ):
    def explore(self, distribution: ActionDistribution, timestep: int, generator: np.random.Generator) -> np.ndarray:
        if np.isnan(distribution.inputs).any():
            raise ValueError("what an exploration says to a NaN")
        return super().explore(distribution, timestep, generator)


def test_a_nan_is_named_where_acting_on_it_raises() -> None:
    soft = DQNConfig().exploration(exploration_config={"type": Careful})
    with pytest.raises(EnvironmentError, match=NAN) as caught:
        drifting(soft, gym.spaces.Discrete(2)).sample()
    assert "what an exploration says to a NaN" in str(caught.value.__context__)


def test_a_nan_is_named_where_the_environment_refuses_the_action_that_follows() -> None:
    with pytest.raises(EnvironmentError, match=NAN) as caught:
        drifting(PPOConfig(), gym.spaces.Box(-1, 1, (1,))).sample()
    assert "what an environment says to a NaN" in str(caught.value.__context__)


@pytest.mark.timeout(20)
def test_a_nan_that_keeps_an_episode_from_its_end_is_named() -> None:
    with pytest.raises(EnvironmentError, match=NAN):
        drifting(PPOConfig(), gym.spaces.Discrete(2), batch_mode="complete_episodes").sample()
    with pytest.raises(EnvironmentError, match=NAN):
        drifting(PPOConfig(), gym.spaces.Discrete(2)).sample_episodes(1)


class Wandering(gym.Env[int, int]):
    """Observes its steps, which soon are more than its space has."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, env_config: dict[str, Any]) -> None:
        self.start, self.length = env_config.get("start", 0), env_config["length"]
        self.observation_space = gym.spaces.Discrete(3, start=self.start)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        self.steps = 0
        return self.start, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.start + self.steps, 1.0, self.steps >= self.length, False, {}


@pytest.mark.parametrize(
    ("env_config", "message"),
    [
        ({"length": 9}, r"returned observations with 3 at index \[3, 0, 0\].*expected 0 to 2 of Discrete\(3\)"),
        ({"length": 9, "start": 5}, r"returned observations with 8 .*expected 5 to 7 of Discrete\(3, start=5\)"),
        ({"length": 3}, "returned last observations with 3"),
    ],
)
def test_an_index_that_the_space_has_not_is_named(env_config: dict[str, int], message: str) -> None:
    config = PPOConfig().environment(Wandering, env_config=env_config).rollouts(rollout_fragment_length=8)
    with pytest.raises(EnvironmentError, match=f"'Wandering' {message}"):
        RolloutWorker(config.training(model={"fcnet_hiddens": [4]})).sample()


def test_acting_and_environments_are_timed_apart() -> None:
    one = worker()
    for call in (one.sample, lambda: one.sample_episodes(2)):
        timers = call().timers
        assert all(timers[name] > 0 for name in ("inference", "env_wait"))
        assert timers["inference"] + timers["env_wait"] < timers["sample"]


class Pushed(gym.Env[np.ndarray, np.ndarray]):
    """Observes the action that it got."""

    observation_space = gym.spaces.Box(-99, 99, (1,))
    action_space = gym.spaces.Box(-0.1, 0.1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return action.copy(), 0.0, False, False, {}


@pytest.mark.parametrize("clip", [True, False])
def test_actions_are_clipped_on_the_way_to_the_environment_alone(clip: bool) -> None:
    config = PPOConfig().environment(lambda context: Pushed(), normalize_actions=False, clip_actions=clip)
    config = config.rollouts(rollout_fragment_length=16).training(model={"fcnet_hiddens": [4]}).debugging(seed=1)
    rollout = RolloutWorker(config).sample().rollouts[DEFAULT_POLICY]
    expected = np.clip(rollout.actions, -0.1, 0.1) if clip else rollout.actions
    np.testing.assert_array_equal(rollout.next_obs, expected)
    assert np.abs(rollout.actions).max() > 0.5, "what is learned from is what the policy chose"


class Leaving(Drifting):
    """Counts beyond the bounds of its observations."""

    observation_space = gym.spaces.Box(-2.0, 2.0, (1,))

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.value += 1.0
        return np.full(1, self.value, np.float32), 1.0, False, False, {}


@pytest.mark.parametrize(
    ("changes", "warnings"),
    [
        ({}, 1),
        ({"observation_filter": "MeanStdFilter"}, 0),
        ({"disable_env_checking": True}, 0),
        ({"observation_space": gym.spaces.Box(-2.0, 2.0, (1,))}, 0),
    ],
)
def test_an_observation_outside_its_bounds_is_warned_of_once(
    changes: dict[str, Any], warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    config = PPOConfig().environment(Leaving, env_config={"actions": gym.spaces.Discrete(2)})
    config = config.rollouts(rollout_fragment_length=5).training(model={"fcnet_hiddens": [4]}).debugging(seed=1)
    worker = RolloutWorker(config.update_from_dict(changes))
    worker.sample()
    worker.sample()
    told = [record.getMessage() for record in caplog.records if "outside the bounds" in record.getMessage()]
    assert len(told) == warnings
    for text in told:
        assert "environment 'Leaving' returned observations with 3 at index [3, 0, 0] (step, column, element)" in text
        assert "Box(-2.0, 2.0, (1,), float32)" in text


def test_a_policy_is_had_by_its_name() -> None:
    worker = RolloutWorker(PPOConfig().environment("CartPole-v1").freeze())
    assert worker.get_policy() is worker.policy_map["default_policy"]
    with pytest.raises(KeyError, match="PolicyID 'other' not found in PolicyMap"):
        worker.get_policy("other")


def test_actions_that_are_stretched_and_observations_that_are_filtered_are_timed():
    settings = {"env": "Pendulum-v1", "observation_filter": "MeanStdFilter", "rollout_fragment_length": 20}
    worker = RolloutWorker(PPOConfig().update_from_dict(settings).freeze())
    first, second = worker.sample().timers, worker.sample().timers
    for timers in (first, second):
        assert 0 < timers["action_processing"] < timers["sample"]
        assert 0 < timers["raw_obs_processing"] < timers["sample"]
    spent = next(iter(worker.runners.values())).columns.action_transform.seconds
    assert first["action_processing"] + second["action_processing"] == pytest.approx(spent)
