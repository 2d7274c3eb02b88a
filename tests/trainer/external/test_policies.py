"""Episodes of several agents: who acts with which policy, and what is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from applications import ACTIONS, OBSERVATIONS, client_of, observation, settings
from gymnasium import spaces

from reef import PolicyClient, PPOConfig
from reef.batch import Rollout, Sample, concat_columns
from reef.envs.multi_agent import MultiAgentEnv
from reef.errors import CallbackError, ConfigError, EpisodeLostError, ExternalEpisodeError, PolicyServerError
from reef.external import policies as external_policies
from reef.external.worker import ExternalWorker
from reef.rollout.worker import RolloutWorker

Serve = Callable[..., ExternalWorker]
MODES = ["remote", "local"]
LENGTH = 8  # steps of an episode
AGENTS = ("red", "blue", 3)


def team(agent: Any, *_: Any) -> str:
    """`policy_mapping_fn`."""
    return "solo" if agent == "red" else "shared"


def by_episode(agent: Any, episode: Any) -> str:
    """One that is asked in each episode."""
    return "solo" if str(episode.episode_id).startswith("own") else "shared"


def by_worker(agent: Any, episode: Any) -> str:
    """One that depends on the worker."""
    return "solo" if episode.worker_index == 2 else "shared"


def failing(agent: Any) -> str:
    raise ZeroDivisionError("of the user")


OF_TEAMS: dict[str, Any] = {"policies": {"solo": {}, "shared": {}}, "policy_mapping_fn": team}


class Meeting(MultiAgentEnv):
    """Red stays; blue goes in the middle of the episode, where 3 comes. Rewards depend on all actions."""

    possible_agents = AGENTS
    observation_spaces = dict.fromkeys(AGENTS, OBSERVATIONS)
    action_spaces = dict.fromkeys(AGENTS, ACTIONS)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t, self.sum = 0, 0.0
        return {agent: self._seen(agent) for agent in ("red", "blue")}, {}

    def step(self, actions: dict[Any, Any]) -> Any:
        self.t, self.sum = self.t + 1, 0.7 * self.sum + sum(1.0 if action else -1.0 for action in actions.values())
        seen = {*actions} | ({3} if self.t == LENGTH // 2 else set())
        done = {"blue": self.t == LENGTH // 2, "__all__": self.t == LENGTH}
        rewards = {agent: AGENTS.index(agent) + self.sum for agent in actions}
        return {agent: self._seen(agent) for agent in seen}, rewards, done, {}, {}

    def _seen(self, agent: Any) -> Any:
        return np.array([np.sin(self.t), 0.1 * self.sum, 0.3 * AGENTS.index(agent)], np.float32)


class Turns(Meeting):
    """Red and blue act in turn; who waits is rewarded too."""

    agents_take_turns = True

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset()
        return {"red": self._seen("red")}, {}

    def step(self, actions: dict[Any, Any]) -> Any:
        (action,) = actions.values()
        self.t, self.sum = self.t + 1, 0.7 * self.sum + (1.0 if action else -1.0)
        following = "blue" if "red" in actions else "red"
        over = self.t == LENGTH
        seen = {agent: self._seen(agent) for agent in (("red", "blue") if over else (following,))}
        return seen, {"red": self.sum, "blue": -self.sum}, {"__all__": over}, {}, {}


def play(client: PolicyClient, env: Meeting, episode_id: str | None = None) -> None:
    """Play an episode, in which rewards are reported in two parts."""
    episode, (obs, _), over = client.start_episode(episode_id), env.reset(), False
    while not over:
        actions = client.get_action(episode, obs)
        obs, rewards, done, *_ = env.step(actions)
        client.log_returns(episode, {agent: 0.25 * reward for agent, reward in rewards.items()})
        over = done.pop("__all__")
        ended = {agent: is_done and agent in obs for agent, is_done in done.items()}
        client.log_returns(episode, {agent: 0.75 * reward for agent, reward in rewards.items()}, None, ended)
    client.end_episode(episode, obs)


def transitions(sample: Sample | list[Sample]) -> dict[str, Any]:
    """By policy its steps, agent after agent."""
    samples = sample if isinstance(sample, list) else [sample]
    rollouts: dict[str, list[Rollout]] = {}
    for one in samples:
        for policy_id, rollout in one.rollouts.items():
            rollouts.setdefault(policy_id, []).append(rollout)
    return {policy_id: concat_columns(parts).flatten() for policy_id, parts in rollouts.items()}


def sorted_rows(flat: Any) -> np.ndarray:
    """Everything of each step as a row, in an order of their own."""
    parts = (flat.obs, flat.actions, flat.rewards, flat.next_obs, flat.terminated, *flat.extras.values())
    rows = np.concatenate([part.reshape(len(flat), -1).astype(np.float64) for part in parts], 1).round(4)
    return rows[np.lexsort(rows.T)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_class", [Meeting, Turns])
def test_the_batch_is_that_of_a_worker_that_steps_the_environment(serve: Serve, mode: str, env_class: Any) -> None:
    """One that explores draws in another order, so that the policies here do not."""
    shared: dict[str, Any] = {**OF_TEAMS, "explore": False, "rollout_fragment_length": LENGTH, "clip_rewards": 3.0}
    shared |= {"train_batch_size": LENGTH, "sgd_minibatch_size": 8, "model": {"fcnet_hiddens": [8]}}
    stepping = RolloutWorker(PPOConfig().update_from_dict({"env": env_class, "seed": 1} | shared).checked())
    worker, env = serve(**shared), env_class()
    worker.set_weights(stepping.get_weights())
    client = client_of(worker, mode)
    for _ in range(2):
        play(client, env)
        found, expected = worker.sample(LENGTH), stepping.sample()
        assert (found.env_steps, found.progress) == (expected.env_steps, expected.progress) == (LENGTH, LENGTH)
        (ours,), (theirs,) = found.episodes, expected.episodes
        assert (ours.length, ours.reward) == (theirs.length, pytest.approx(theirs.reward, abs=1e-4))
        assert ours.policy_rewards == pytest.approx(theirs.policy_rewards, abs=1e-4)
        steps, wanted = transitions(found), transitions(expected)
        assert steps.keys() == wanted.keys()
        for policy_id, own in steps.items():
            assert sorted_rows(own) == pytest.approx(sorted_rows(wanted[policy_id]), abs=1e-3)


@pytest.mark.parametrize("mode", MODES)
def test_policies_of_several_agents_are_trained(mode: str) -> None:
    given = OF_TEAMS | {
        "train_batch_size": 2 * LENGTH,
        "rollout_fragment_length": LENGTH,
        "count_steps_by": "agent_steps",
    }
    with settings(**given).build() as algorithm:
        worker = algorithm.workers.local_worker()
        before = {name: values.copy() for name, values in worker.get_weights().items()}
        play(client_of(worker, mode), Meeting())
        result = algorithm.train()
        assert (result["num_env_steps_trained"], result["num_agent_steps_trained"]) == (LENGTH, 2 * LENGTH)
        assert {*result["policy_reward_mean"]} == {"solo", "shared"}
        assert all((worker.get_weights()[name] != values).any() for name, values in before.items())
        with pytest.raises(ConfigError, match="policies cannot change while applications play"):
            algorithm.add_policy("third")


@pytest.mark.parametrize("mode", MODES)
def test_each_policy_has_its_own_spaces(serve: Serve, mode: str) -> None:
    small = {"observation_space": spaces.Box(-1, 1, (1,)), "action_space": spaces.Box(-2, 2, (1,))}
    worker = serve(**OF_TEAMS | {"policies": {"solo": small, "shared": {"config": {"gamma": 0.5}}}})
    client = client_of(worker, mode)
    episode = client.start_episode()
    actions = client.get_action(episode, {"red": [0.5], "blue": observation()})
    assert (actions["red"].shape, actions["blue"] in (0, 1)) == ((1,), True)
    client.log_action(episode, {"red": [0.25]}, {"red": [1.0]})
    client.end_episode(episode, {"red": [0.0], "blue": observation(0.5)})
    rollouts = worker.sample(2).rollouts
    assert rollouts["solo"].actions[1, 0].tolist() == [0.5]  # as the policy would have chosen it
    assert rollouts["solo"].obs[:, 0].tolist() == [[0.5], [0.25]]
    assert rollouts["shared"].next_obs[0, 0].tolist() == [0.5] * 3


@pytest.mark.parametrize("mode", MODES)
def test_each_agent_has_a_memory_of_its_own(serve: Serve, mode: str) -> None:
    model = {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 4, "fcnet_hiddens": [4]}
    worker = serve(model=model, policies={"shared": {}})
    client = client_of(worker, mode)
    episode = client.start_episode()
    for t in range(6):
        client.get_action(episode, {agent: observation(value * t) for agent, value in (("a", 0.1), ("b", -0.1))})
    client.end_episode(episode, {})
    rollout = worker.sample(6).rollouts["shared"]
    states = next(iter(rollout.state_in.values()))
    assert rollout.mask.sum(0).tolist() == [8, 2, 2]  # both agents begin, and each goes on in a column
    assert not states[0].any()
    assert (states[1] != states[2]).all()
    # the state before a step is that of the agent's own observations alone
    policy, memory = worker.runners["shared"].policy, worker.runners["shared"].policy.initial_state(1)
    for t in range(4):
        _, memory = policy.act(observation(0.1 * t)[None], memory)
    assert next(iter(memory.values()))[0] == pytest.approx(states[1], abs=1e-5)


def test_a_policy_may_be_chosen_in_each_episode(serve: Serve) -> None:
    worker = serve(**OF_TEAMS | {"policy_mapping_fn": by_episode})
    for mode in MODES:
        client = client_of(worker, mode)
        for name, policy_id in (("own", "solo"), ("other", "shared")):
            episode = client.start_episode(f"{name} {mode}")
            client.get_action(episode, {"a": observation(), "b": observation()})
            client.end_episode(episode, {})
            sample = worker.sample(1)
            assert {*sample.rollouts} == {policy_id}
            assert len(sample.rollouts[policy_id]) == 2
            assert (sample.env_steps, sample.progress) == (1, 1)


@pytest.mark.parametrize("mode", MODES)
def test_a_mapping_function_finds_the_worker_s_index(mode: str) -> None:
    worker = ExternalWorker(settings(**OF_TEAMS | {"policy_mapping_fn": by_worker}).checked(), worker_index=2)
    try:
        client = client_of(worker, mode)
        client.get_action(episode := client.start_episode(), {"red": observation()})
        client.end_episode(episode, {})
        assert {*worker.sample(1).rollouts} == {"solo"}
    finally:
        worker.stop()


@pytest.mark.parametrize("mode", MODES)
def test_several_episodes_of_several_agents(serve: Serve, mode: str) -> None:
    worker = serve(**OF_TEAMS)
    client = client_of(worker, mode)
    first, second = client.start_episode(), client.start_episode()
    actions = client.get_action(
        [first, second], {first: {"red": observation()}, second: {"red": observation(), "blue": observation()}}
    )
    assert (actions[first].keys(), actions[second].keys()) == ({"red"}, {"red", "blue"})
    for episode in (first, second):
        client.end_episode(episode, {}, truncated=episode == first)
    sample = worker.sample(2)
    assert {name: len(rollout) for name, rollout in sample.rollouts.items()} == {"solo": 1, "shared": 1}
    assert sample.env_steps == 2  # of the first episode its only step is lost: nobody knows what it led to


@pytest.mark.parametrize("mode", MODES)
def test_wrong_use_is_refused_and_the_episode_goes_on(serve: Serve, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of(serve(**OF_TEAMS), mode)
    episode = client.start_episode()
    client.get_action(episode, {"red": observation()})
    for wrong in (observation(), {}):
        with pytest.raises(ConfigError, match="has agents: give a mapping {agent: observation} of at least one"):
            client.get_action(episode, wrong)
    with pytest.raises(ConfigError, match="give a mapping {agent: action} of the agents that act"):
        client.log_action(episode, {"red": observation()}, {"blue": 1})
    with pytest.raises(ConfigError, match="reward=1.0: an episode has agents here: give {agent: reward}"):
        client.log_returns(episode, 1.0)
    with pytest.raises(ConfigError, match="multiagent_done_dict: 'blue' never acted, or ended before"):
        client.log_returns(episode, {"red": 1.0}, None, {"blue": True})
    with pytest.raises(ConfigError, match="has '__all__': call end_episode to end it for all"):
        client.log_returns(episode, {"red": 1.0}, None, {"__all__": True})
    with pytest.raises(ExternalEpisodeError, match="agent 'red': the reward is nan"):
        client.log_returns(episode, {"blue": 1.0, "red": float("nan")})
    with pytest.raises(ConfigError, match="end_episode: an episode has agents here"):
        client.end_episode(episode, observation())
    with pytest.raises(ConfigError, match="the observation has shape"):
        client.get_action(episode, {"red": [1.0]})
    monkeypatch.setattr(external_policies, "MOST_AGENTS", 1)
    with pytest.raises(ExternalEpisodeError, match="there are 1 agents, which is the most"):
        client.get_action(episode, {"blue": observation()})
    with pytest.raises(ExternalEpisodeError, match="agent 'green': there are 1 agents, which is the most"):
        client.get_action(client.start_episode(), {"blue": observation(), "green": observation()})
    client.log_returns(episode, {"red": 1.0}, None, {"red": True, "blue": False, "__all__": False})
    assert client.get_action(episode, {"red": observation()}) == {}
    client.end_episode(episode, {})


def test_what_does_not_go_together_is_refused(serve: Serve) -> None:
    with pytest.raises(ConfigError, match="observation_space of solo, shared: input_='policy_server' has"):
        serve(**OF_TEAMS, observation_space=None)
    with pytest.raises(ConfigError, match=r"policy_mapping_fn='.*<lambda>': a client that acts by itself cannot"):
        client_of(serve(**OF_TEAMS | {"policy_mapping_fn": lambda agent: "solo"}), "local")


def test_an_error_of_the_mapping_is_told(serve: Serve) -> None:
    worker = serve(**OF_TEAMS | {"policy_mapping_fn": failing})
    for mode, kind in (("remote", PolicyServerError), ("local", CallbackError)):
        client = client_of(worker, mode)
        with pytest.raises(kind, match="policy_mapping_fn raised ZeroDivisionError: of the user"):
            client.get_action(client.start_episode(), {"red": observation()})


@pytest.mark.parametrize("mode", MODES)
def test_dqn_replays_what_each_policy_s_agents_played(mode: str) -> None:
    given = {"num_steps_sampled_before_learning_starts": 4, "n_step": 2, "min_sample_timesteps_per_iteration": 8}
    with settings("DQN", **OF_TEAMS | given).build() as algorithm:
        client = client_of(algorithm.workers.local_worker(), mode)
        for _ in range(2):
            play(client, Meeting())
        result = algorithm.train()
        assert result["num_env_steps_trained"] > 0
        assert {*result["info"]["learner"]} == {"solo", "shared"}


@pytest.mark.parametrize("mode", MODES)
def test_without_a_critic_the_episode_of_each_agent_is_whole(serve: Serve, mode: str) -> None:
    worker = serve("PG", **OF_TEAMS)
    play(client_of(worker, mode), Meeting())
    sample = worker.sample(LENGTH)
    shared = sample.rollouts["shared"]
    assert len(sample.rollouts["solo"]) == LENGTH  # in spite of fragments of 4 steps
    assert (len(shared), shared.terminated.sum()) == (LENGTH, 2)


@pytest.mark.parametrize("mode", MODES)
def test_an_agent_with_as_many_steps_as_there_may_be_ends(
    serve: Serve, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = serve("PG", **OF_TEAMS)
    client = client_of(worker, mode)
    for policies in (worker.source._server._policies, getattr(client._acts, "policies", None)):
        if policies is not None:
            monkeypatch.setattr(policies, "fragment_length", 2)
    episode = client.start_episode()
    for _ in range(2):
        client.get_action(episode, {"red": observation()})
    with pytest.raises(ExternalEpisodeError, match="has 2 steps, which is the most"):
        client.get_action(episode, {"red": observation()})
    client.log_returns(episode, {"red": 1.0}, None, {"red": True})
    client.get_action(episode, {"red": observation(), "blue": observation()})
    client.end_episode(episode, {})
    assert len(worker.sample(3).rollouts["solo"]) == 2


def test_a_filter_learns_from_right_requests_of_episodes_that_learn(serve: Serve) -> None:
    worker = serve(**OF_TEAMS, observation_filter="MeanStdFilter")
    client = client_of(worker)
    own, watched = client.start_episode(), client.start_episode(training_enabled=False)
    for agents in (1, 2):
        client.get_action(own, {"red": observation(), **({"blue": observation()} if agents == 2 else {})})
        client.get_action(watched, {"red": observation()})
        with pytest.raises(ConfigError, match="the observation has shape"):
            client.get_action(own, {"red": observation(), "blue": [1.0]})
    assert worker.filters["solo"].stat.count == 2
    assert worker.filters["shared"].stat.count == 1


def test_agents_are_lost_with_their_server(serve: Serve) -> None:
    worker = serve(**OF_TEAMS)
    client = client_of(worker)
    episode = client.start_episode()
    client.get_action(episode, {"red": observation()})
    worker.source._server._episodes.found(episode).used_at -= 301.0  # episode_timeout is 300
    with pytest.raises(EpisodeLostError, match="is not open here"):
        client.get_action(episode, {"red": observation()})
    assert client.get_action(client.start_episode(), {"red": observation()})["red"] in (0, 1)


def test_a_crowd_of_agents_is_cut_too(serve: Serve) -> None:
    worker = serve(**OF_TEAMS, rollout_fragment_length=100, train_batch_size=100, input_config={"max_queued_steps": 6})
    client = client_of(worker)
    episode = client.start_episode()
    for t in range(4):
        client.get_action(episode, {"red": observation(0.1 * t), "blue": observation(0.1 * t)})
    sample = worker.sample(3)
    assert (sample.env_steps, {name: len(own) for name, own in sample.rollouts.items()}) == (
        3,
        {"solo": 3, "shared": 3},
    )
