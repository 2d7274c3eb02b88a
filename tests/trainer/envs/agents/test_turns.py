"""Agents that take turns: what a step of theirs is, which rewards it gets, and which policy acts in an episode.

It tests reef.envs.agents.columns, reef.rollout.policies.turn_fragment and reef.rollout.policies.turn_runner too.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from pettingzoo.classic.tictactoe import tictactoe

from reef.algorithms.ppo import PPOConfig
from reef.batch import Rollout
from reef.callbacks import DefaultCallbacks
from reef.envs.agents.turns import TurnEnvs
from reef.envs.multi_agent import MultiAgentEnv
from reef.errors import ConfigError, EnvironmentError
from reef.offline.steps import STEP_KEYS
from reef.rollout.recording import recording_worker
from reef.rollout.worker import RolloutWorker


class Counting(MultiAgentEnv):
    """Agents "a" and "b" act in turns. Step n of an episode, from 1, gives n to "a" and 10 n to "b".

    The observation is the number of steps so far. `env_config`: how many steps an episode has, and how it ends.
    """

    possible_agents = ("a", "b")
    agents_take_turns = True

    def __init__(self, context: Any) -> None:
        self.length, self.how = context.get("length", 5), context.get("how", "terminated")
        self.observation_spaces = dict.fromkeys(self.possible_agents, gym.spaces.Box(0, 99, (1,)))
        self.action_spaces = dict.fromkeys(self.possible_agents, gym.spaces.Discrete(2))

    def seen(self, *agents: str) -> dict[Any, Any]:
        return {agent: np.array([self.steps], np.float32) for agent in agents}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return self.seen("a"), {}

    def step(self, actions: dict[Any, Any]) -> Any:
        assert actions.keys() == {"ab"[self.steps % 2]}, "the one whose turn it is"
        self.steps += 1
        rewards = {"a": float(self.steps), "b": 10.0 * self.steps}
        over = self.steps == self.length
        ended = {"__all__": over}
        if self.how == "silent" and over:
            return {}, rewards, {}, {}, {}
        seen = self.seen(*("ab" if over and self.how == "truncated" else "ab"[self.steps % 2]))
        if self.how == "blind" and over:
            return self.seen("b"), rewards, {}, {"a": True, "b": True}, {}
        return seen, rewards, *((ended, {}) if self.how == "terminated" else ({}, ended)), {}


def config(steps: int = 10, **env_config: Any) -> PPOConfig:
    made = PPOConfig().environment(Counting, env_config=env_config).multi_agent(policies=["a", "b"])
    return made.rollouts(rollout_fragment_length=steps).training(model={"fcnet_hiddens": [4]}).debugging(seed=1)


def rewards(rollout: Rollout, column: int = 0) -> list[float]:
    return list(rollout.rewards[rollout.mask[:, column], column].tolist())


def test_a_step_lasts_until_the_agent_acts_again_and_gets_the_rewards_until_then() -> None:
    worker = RolloutWorker(config(5).freeze())
    assert isinstance(worker.env, TurnEnvs)
    sample = worker.sample()
    a, b = sample.rollouts["a"], sample.rollouts["b"]
    assert rewards(a) == [1 + 2, 3 + 4, 5]
    assert rewards(b) == [10 * (2 + 3), 10 * (4 + 5)]
    assert a.obs[:, 0, 0].tolist() == [0, 2, 4]
    assert b.obs[:, 0, 0].tolist() == [1, 3]
    assert a.next_obs[:2, 0, 0].tolist() == [2, 4]
    assert b.next_obs[0, 0, 0] == 3
    assert a.terminated[:, 0].tolist() == [False, False, True]
    assert b.terminated[:, 0].tolist() == [False, True]
    assert sample.env_steps == 5
    (episode,) = sample.episodes
    assert episode.policy_rewards == {"a": 15.0, "b": 150.0}, "with the reward of b before its first action"


def test_an_action_whose_result_comes_later_is_in_the_next_fragment() -> None:
    worker = RolloutWorker(config(3).freeze())
    one, two = worker.sample(), worker.sample()
    first, second = one.rollouts["b"], two.rollouts["b"]
    assert rewards(one.rollouts["a"]) == [3], "it has acted in step 3 too, and b has to act first"
    assert rewards(first) == [50]
    assert rewards(two.rollouts["a"])[0] == 3 + 4
    assert rewards(second) == [90], "it began in the first fragment's last observation"
    undivided = RolloutWorker(config(6).freeze())
    undivided.set_weights(worker.get_weights())
    whole = undivided.sample().rollouts
    for name, rollout in whole.items():
        parts = [part.rollouts[name] for part in (one, two)]
        for field in ("obs", "actions", "rewards", "next_obs", "terminated"):
            joined = np.concatenate([getattr(part, field)[part.mask] for part in parts])
            np.testing.assert_array_equal(joined, getattr(rollout, field)[rollout.mask])
        logp = np.concatenate([part.extras["action_logp"][part.mask] for part in parts])
        np.testing.assert_allclose(logp, rollout.extras["action_logp"][rollout.mask], rtol=1e-5)


def test_columns_have_as_many_steps_as_their_agents_took() -> None:
    made = config(7).rollouts(num_envs_per_worker=2).multi_agent(policies=["both"])
    sample = RolloutWorker(made.freeze()).sample()
    rollout = sample.rollouts["both"]
    assert rollout.mask.sum(axis=0).tolist() == [4, 2, 4, 2], "the fifth step of b is not over"
    assert rollout.shape == (4, 4)
    assert not (rollout.mask[1:] & ~rollout.mask[:-1]).any(), "padding comes last"
    assert sample.env_steps == 14
    assert sample.episodes[0].policy_rewards == {"both": (15 + 150) / 2}


@pytest.mark.parametrize("length", [4, 5])
def test_who_is_truncated_with_an_observation_learns_from_the_last_step(length: int) -> None:
    rollouts = RolloutWorker(config(length, length=length, how="truncated").freeze()).sample().rollouts
    for rollout in rollouts.values():
        assert rollout.truncated[rollout.mask].tolist()[-1]
        assert not rollout.terminated.any()
        assert rollout.next_obs[rollout.mask][-1].tolist() == [length]


def test_a_horizon_leaves_out_the_step_whose_result_was_not_seen() -> None:
    sample = RolloutWorker(config(6).environment(Counting, env_config={"length": 9}, horizon=3).freeze()).sample()
    assert rewards(sample.rollouts["a"]) == [3, 3], "it acted in step 3, and has no observation after that"
    assert rewards(sample.rollouts["b"]) == [50, 50], "it sees the last step, with which the episode is cut off"
    assert sample.rollouts["b"].truncated[:, 0].tolist() == [True, True]
    assert [episode.length for episode in sample.episodes] == [3, 3]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("blind", "agent 'a' is truncated without a last observation"),
        ("silent", r"no agent has an observation, although the episode of \['a', 'b'\] is not over"),
    ],
)
def test_what_cannot_be_is_refused(how: str, message: str) -> None:
    with pytest.raises(EnvironmentError, match=message):
        RolloutWorker(config(how=how).freeze()).sample()


def test_whole_episodes() -> None:
    made = config(8).rollouts(batch_mode="complete_episodes", num_envs_per_worker=2)
    sample = RolloutWorker(made.freeze()).sample()
    assert [episode.length for episode in sample.episodes] == [5] * 4
    assert {name: len(rollout) for name, rollout in sample.rollouts.items()} == {"a": 12, "b": 8}
    assert rewards(sample.rollouts["a"], 1) == [3, 7, 5] * 2


def test_filters_count_every_observation_once() -> None:
    worker = RolloutWorker(config(5).rollouts(observation_filter="MeanStdFilter").freeze())
    worker.sample()
    counts = {name: observed.state()["stat"]["count"] for name, observed in worker.filters.items()}
    assert counts == {"a": 4, "b": 2}, "of a: three, and the first one of the next episode"


@pytest.mark.parametrize("memory", [{}, {"use_lstm": True, "lstm_cell_size": 3, "lstm_use_prev_action": True}])
def test_a_restored_worker_goes_on_with_what_was_open(memory: dict[str, Any]) -> None:
    made = config(3).rollouts(num_envs_per_worker=2).training(model=memory)
    one, two = RolloutWorker(made.freeze()), RolloutWorker(made.copy().debugging(seed=7).freeze())
    one.sample()
    two.set_weights(one.get_weights())
    two.set_state(one.state())
    for _ in range(3):
        first, second = one.sample(), two.sample()
        for name, rollout in first.rollouts.items():
            np.testing.assert_array_equal(rollout.mask, second.rollouts[name].mask)
            for field in ("obs", "actions", "rewards", "next_obs"):
                values = getattr(rollout, field), getattr(second.rollouts[name], field)
                np.testing.assert_array_equal(*(each[rollout.mask] for each in values))
            for key, state in rollout.state_in.items():
                np.testing.assert_array_equal(state, second.rollouts[name].state_in[key])
        assert [e.policy_rewards for e in first.episodes] == [e.policy_rewards for e in second.episodes]


def test_a_memory_begins_where_its_first_row_does() -> None:
    memory = {"use_lstm": True, "lstm_cell_size": 3, "fcnet_hiddens": [4], "max_seq_len": 8}
    worker = RolloutWorker(config(3, length=99).training(model=memory).freeze())
    policy = worker.policy_map["b"]
    state = policy.initial_state(1)
    for _ in range(3):
        rollout = worker.sample().rollouts["b"]
        for name, values in state.items():
            np.testing.assert_allclose(rollout.state_in[name], values, rtol=1e-5)
        for row in np.flatnonzero(rollout.mask[:, 0]):
            _, state = policy.act(rollout.obs[row], state)


def by_episode(agent_id: str, episode: Any, worker: Any, **kwargs: Any) -> str:
    return "main" if (episode.episode_id % 2 == 0) == (agent_id == "a") else "past"


def test_a_mapping_function_is_asked_in_each_episode() -> None:
    made = config(15).multi_agent(policies=["main", "past"], policy_mapping_fn=by_episode)
    sample = RolloutWorker(made.freeze()).sample()
    main, past = sample.rollouts["main"], sample.rollouts["past"]
    assert main.shape[1] == past.shape[1] == 2, "a column for each agent"
    assert len(main) + len(past) == 15
    # the first episode has the number 1, so that b acts with main
    assert [tuple(sorted(e.policy_rewards.items())) for e in sample.episodes] == [
        (("main", 150.0), ("past", 15.0)),
        (("main", 15.0), ("past", 150.0)),
        (("main", 150.0), ("past", 15.0)),
    ]
    assert rewards(main, 0) == [3, 7, 5]
    assert rewards(main, 1) == [50, 90] * 2


def test_a_restored_worker_keeps_the_policies_of_its_episodes() -> None:
    made = config(7).multi_agent(policies=["main", "past"], policy_mapping_fn=by_episode)
    one, two = (RolloutWorker(made.copy().debugging(seed=seed).freeze()) for seed in (1, 2))
    one.sample()
    two.set_weights(one.get_weights())
    two.set_state(one.state())
    first, second = one.sample(), two.sample()
    for name, rollout in first.rollouts.items():
        np.testing.assert_array_equal(rollout.rewards[rollout.mask], second.rollouts[name].rewards[rollout.mask])
        np.testing.assert_array_equal(rollout.actions[rollout.mask], second.rollouts[name].actions[rollout.mask])
    assert [e.policy_rewards for e in first.episodes] == [e.policy_rewards for e in second.episodes]


ASKED: list[Any] = []


def noting(agent_id: str, episode: Any) -> str:
    ASKED.append(episode.episode_id)
    return "main" if agent_id == "a" else "past"


def test_an_episode_has_a_number_of_its_own_in_the_whole_run() -> None:
    made = config(12).multi_agent(policies=["main", "past"], policy_mapping_fn=noting).rollouts(num_envs_per_worker=2)
    made.evaluation(evaluation_num_workers=1)
    kinds = [
        RolloutWorker(made.copy().freeze(), 1),
        RolloutWorker(made.copy().freeze(), 2),
        RolloutWorker(made.evaluation_settings().freeze(), 1),
        RolloutWorker(made.copy().freeze(), 1, recreated=True),
    ]
    found = []
    for worker in kinds:
        ASKED.clear()
        worker.sample()
        found.append(set(ASKED))
        assert len(found[-1]) * 2 == len(ASKED) > 6, "an episode asks for two agents"
        assert all(0 < number < 2**63 for number in ASKED)
    assert len(set.union(*found)) == sum(map(len, found))
    resumed = RolloutWorker(made.copy().freeze(), 1)
    resumed.set_weights(kinds[0].get_weights())
    resumed.set_state(kinds[0].state())
    ASKED.clear()
    resumed.sample()
    assert ASKED and not found[0] & set(ASKED)


def test_one_that_cannot_be_replayed_is_followed_by_one_of_another_seed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = config(7).multi_agent(policies=["main", "past"], policy_mapping_fn=by_episode).freeze()
    one, two = RolloutWorker(made), RolloutWorker(made)
    one.sample()
    state = one.state()
    (episode,) = state["env"]["episodes"]
    episode["roles"] = ["main", "gone"]
    seed = one.env.seeds.current(0)
    two.set_state(state)
    assert "failed while its episode was replayed" in caplog.text
    assert two.env.seeds.current(0) != seed
    assert two.env.seeds.episodes[0] == one.env.seeds.episodes[0] + 1


def test_a_policy_that_the_mapping_makes_up_is_refused() -> None:
    made = config().multi_agent(policies=["main"], policy_mapping_fn=lambda agent, episode: "other")
    with pytest.raises(ConfigError, match="PolicyID 'other', which agent 'a' acts with, not found in PolicyMap"):
        RolloutWorker(made.freeze()).sample()


class Unlike(Counting):
    """Agent "b" has three actions."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.action_spaces["b"] = gym.spaces.Discrete(3)


def test_policies_name_their_spaces_where_agents_differ_and_roles_change() -> None:
    made = config().environment(Unlike).multi_agent(policies=["main", "b"], policy_mapping_fn=by_episode)
    with pytest.raises(ConfigError, match="'main': policy_mapping_fn is asked in each episode.*action_space"):
        RolloutWorker(made.freeze())
    two, three = ({"action_space": gym.spaces.Discrete(n)} for n in (2, 3))
    made = made.copy().multi_agent(
        policies={"main": two, "past": three}, policy_mapping_fn=lambda agent, episode: {"a": "main"}.get(agent, "past")
    )
    sample = RolloutWorker(made.freeze()).sample()
    assert {name: rollout.shape[1] for name, rollout in sample.rollouts.items()} == {"main": 1, "past": 1}
    wrong = made.copy().multi_agent(policy_mapping_fn=lambda agent, episode: "main")
    with pytest.raises(ConfigError, match=r"gives agent 'b' the policy 'main', whose spaces are those of \['a'\]"):
        RolloutWorker(wrong.freeze()).sample()


def tic_tac_toe(env_config: dict[str, Any]) -> Any:
    return tictactoe.env(**env_config)


def test_a_game_of_pettingzoo() -> None:
    made = PPOConfig().environment(tic_tac_toe).multi_agent(policies=["player_1", "player_2"]).debugging(seed=1)
    made = made.rollouts(rollout_fragment_length=60, batch_mode="complete_episodes")
    sample = RolloutWorker(made.training(model={"fcnet_hiddens": [4]}).freeze()).sample()
    assert len(sample.episodes) > 5
    one, two = sample.rollouts["player_1"], sample.rollouts["player_2"]
    assert sample.env_steps == len(one) + len(two), "every action is learned from"
    assert one.terminated.sum() == two.terminated[:, 0].sum() == len(sample.episodes)
    for rollout in (one, two):
        ends = rollout.terminated & rollout.mask
        assert not rollout.rewards[rollout.mask & ~ends].any(), "a game is won or lost at its end"
    assert sum(one.rewards[one.mask]) == sum(episode.policy_rewards["player_1"] for episode in sample.episodes)


class Watching(DefaultCallbacks):
    """Notes what hooks get."""

    calls: ClassVar[list[Any]] = []

    def on_episode_end(self, *, episode: Any, **kwargs: Any) -> None:
        self.calls.append(("end", episode.policy_for("a"), episode.length, dict(episode.agent_rewards)))

    def on_postprocess_trajectory(self, *, agent_id: str, policy_id: str, postprocessed_batch: Any, **kw: Any) -> None:
        self.calls.append((agent_id, policy_id, postprocessed_batch["rewards"].tolist()))


def test_hooks_get_the_steps_of_each_agent() -> None:
    Watching.calls.clear()
    made = config(7).multi_agent(policies=["main", "past"], policy_mapping_fn=by_episode).callbacks(Watching)
    worker = RolloutWorker(made.freeze())
    for _ in range(2):
        worker.sample()
    assert Watching.calls == [
        ("end", "past", 5, {("a", "past"): 15.0, ("b", "main"): 150.0}),
        ("b", "main", [50.0, 90.0]),
        ("a", "past", [3.0, 7.0, 5.0]),
        ("a", "main", [3.0]),
        ("end", "main", 5, {("a", "main"): 15.0, ("b", "past"): 150.0}),
        ("a", "main", [7.0, 5.0]),
        ("b", "past", [50.0, 90.0]),
        ("b", "main", [50.0]),
        ("a", "past", [3.0, 7.0]),
    ]


def test_an_episode_is_recorded() -> None:
    made = config().multi_agent(policies=["main", "past"], policy_mapping_fn=by_episode).freeze()
    worker, recorded = recording_worker(made, RolloutWorker(made), Counting({}), STEP_KEYS)
    recorded.begin(1, math.inf)
    worker.sample_episodes(1)
    episode = recorded.episode
    assert (episode.length, episode.reward, episode.complete) == (5, 165.0, True)
    assert [list(step["action"]) for step in episode.steps] == [["a"], ["b"], ["a"], ["b"], ["a"]]
