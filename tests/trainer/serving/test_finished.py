"""A finished policy acts as the algorithm that trained it; what clients may send is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from any_spaces import with_spaces
from finished import MEMORY, checkpoint_of, finished, ppo
from gymnasium import spaces
from masked import Allowed

from reef import Algorithm
from reef.envs.multi_agent import IndependentAgents
from reef.errors import CheckpointError, ConfigError
from reef.serving.finished import ActionRequest, ActionResponse, FinishedPolicy

OBS = [0.1, -0.2, 0.03, 0.4]


def acted(policy: FinishedPolicy, *asked: ActionRequest) -> list[ActionResponse]:
    found = policy.act(asked)
    assert all(isinstance(each, ActionResponse) for each in found), found
    return found  # type: ignore[return-value]


def doubled(observations: Any) -> Any:
    return 2 * observations


def inverse(observations: Any) -> Any:
    with np.errstate(divide="ignore"):
        return 1 / observations


@pytest.mark.parametrize(
    "settings",
    [
        {"observation_filter": "MeanStdFilter"},
        {"env": "Pendulum-v1", "normalize_actions": True},
        {"env": "FrozenLake-v1"},
        {"env_to_module_connector": doubled},
        with_spaces(
            spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3, start=2)}),
            spaces.Tuple([spaces.Discrete(2, start=5), spaces.Box(0, 4, (2,))]),
        ),
    ],
    ids=["filter", "bounds", "one-hot", "connector", "composite"],
)
def test_it_acts_as_the_algorithm_does_in_evaluation(settings: dict[str, Any], tmp_path: Path) -> None:
    policy = finished(ppo(**settings), tmp_path / "c")
    with Algorithm.from_checkpoint(tmp_path / "c") as algorithm:
        policy.observation_space.seed(1)
        observations = [policy.observation_space.sample() for _ in range(3)]
        (found,) = acted(policy, policy.read(observations))
        for observation, action in zip(observations, found.actions, strict=True):
            expected = algorithm.compute_single_action(observation, explore=False)
            for one, other in zip(
                *(each if isinstance(each, tuple) else (each,) for each in (action, expected)), strict=True
            ):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
            assert policy.action_space.contains(action)


def test_the_filter_does_not_learn_from_what_is_asked(tmp_path: Path) -> None:
    policy = finished(ppo(observation_filter="MeanStdFilter"), tmp_path / "c")
    before = policy.runner.filter.stat.count
    acted(policy, policy.read([OBS]))
    assert policy.runner.filter.stat.count == before > 0


def test_a_state_that_is_sent_back_goes_on_and_without_one_an_episode_begins(tmp_path: Path) -> None:
    policy = finished(ppo(model=MEMORY), tmp_path / "c")
    (first,) = acted(policy, policy.read([OBS]))
    (second,) = acted(policy, policy.read([OBS], first.states))
    (both,) = acted(policy, policy.read([OBS, OBS], [None, first.states[0]]))
    for part, (begun, gone_on) in enumerate(zip(first.states[0], second.states[0], strict=True)):
        np.testing.assert_allclose(both.states[0][part], begun, atol=1e-6)
        np.testing.assert_allclose(both.states[1][part], gone_on, atol=1e-6)
    assert not np.allclose(first.states[0][0], second.states[0][0])


def test_a_reward_counts_for_a_policy_that_reads_rewards(tmp_path: Path) -> None:
    policy = finished(ppo(model=MEMORY), tmp_path / "c")
    (first,) = acted(policy, policy.read([OBS]))
    (without,), (with_reward,) = (
        acted(policy, policy.read([OBS], first.states, rewards)) for rewards in (None, [100.0])
    )
    assert not np.allclose(without.states[0][0], with_reward.states[0][0])


def passes_of(policy: FinishedPolicy, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The observations of each forward pass from now on."""
    passes: list[int] = []
    compute = policy.policy.compute_actions

    def counted(obs: Any, *rest: Any, **more: Any) -> Any:
        passes.append(len(obs))
        return compute(obs, *rest, **more)

    monkeypatch.setattr(policy.policy, "compute_actions", counted)
    return passes


def test_requests_are_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = finished(ppo(), tmp_path / "c")
    passes = passes_of(policy, monkeypatch)
    one, several = policy.read([OBS]), policy.read([OBS, OBS])
    assert [len(each.actions) for each in acted(policy, one, several)] == [1, 2]
    assert passes == [3]


def test_outputs_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    policy = finished(ppo(model={"fcnet_hiddens": [8], "fcnet_activation": "relu"}), tmp_path / "c")
    policy.policy.set_weights({name: np.full_like(w, 1e30) for name, w in policy.policy.get_weights().items()})
    (found,) = policy.act([policy.read([[0.1, 1e30, 0.1, 1e30]])])
    assert isinstance(found, ConfigError)
    assert "are NaN or infinite: its values are too large" in str(found)


@pytest.mark.parametrize("explore", [False, True])
def test_too_large_values_fail_alone_and_in_the_same_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, explore: bool
) -> None:
    policy = finished(ppo(model={"fcnet_hiddens": [8], "fcnet_activation": "relu"}), tmp_path / "c", explore=explore)
    policy.policy.set_weights({name: np.full_like(w, 1e10) for name, w in policy.policy.get_weights().items()})
    passes = passes_of(policy, monkeypatch)
    large = [1e30, 1e30, 1e30, 1e30]
    refused, found = policy.act([policy.read([OBS, large]), policy.read([OBS])])
    assert "outputs for the observation 1 of 2 are NaN or infinite: its values are too large" in str(refused)
    assert isinstance(found, ActionResponse)
    assert passes == [3]


def test_what_a_connector_makes_no_number_of_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = finished(ppo(env_to_module_connector=inverse), tmp_path / "c")
    passes = passes_of(policy, monkeypatch)
    refused, found = policy.act([policy.read([[1.0, 1.0, 0.0, 1.0]]), policy.read([OBS])])
    assert "the observations have values that are NaN or infinite" in str(refused)
    assert isinstance(found, ActionResponse)
    assert passes == [1]


@pytest.mark.parametrize(
    ("observations", "states", "rewards", "problem"),
    [
        ([[1.0]], None, None, r"^the observation has shape \(1,\), expected \(4,\)"),
        ([OBS, [1.0]], None, None, r"observation 1 of 2: the observation has shape \(1,\)"),
        (["left"], None, None, "the observation is no value of Box"),
        ([None], None, None, "the observation"),
        ([[float("nan"), 0, 0, 0]], None, None, "has values that are NaN or infinite"),
        ([[1e39, 0, 0, 0]], None, None, "has values that are NaN or infinite"),
        ([{"a": 1}], None, None, "the observation is no value of Box"),
        ([OBS], [[]], None, None),
        ([OBS], [[[1.0]]], None, "state has arrays of the shapes"),
        ([OBS], ["x"], None, "state"),
        ([OBS], [None, None], None, "2 states for 1 observations: give one for each"),
        ([OBS], None, [1.0], "a reward was sent without a state"),
        ([OBS], [None], [1.0, 2.0], "2 rewards for 1 observations"),
        ([OBS], [None], [float("nan")], "a reward is NaN or infinite"),
        ([OBS, OBS], [None, None], [0.0, 5.0], "a reward of 5 without a state: where an episode begins it is 0"),
        ([OBS], [None], [0.0], None),
    ],
)
def test_what_is_wrong_is_named(
    memory: FinishedPolicy, observations: Any, states: Any, rewards: Any, problem: str | None
) -> None:
    if problem is None:
        memory.read(observations, states, rewards)
        return
    with pytest.raises(ConfigError, match=problem):
        memory.read(observations, states, rewards)


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> FinishedPolicy:
    return finished(ppo(model=MEMORY), tmp_path_factory.mktemp("memory") / "c")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("h", np.nan, "the state has values that are NaN or infinite"),
        ("prev_actions", 7, "the state holds the action 7, expected 0 to 1"),
        ("prev_actions", -1, "the state holds the action -1"),
    ],
)
def test_a_state_that_no_answer_had_is_refused(memory: FinishedPolicy, name: str, value: float, problem: str) -> None:
    state = [each[0] for each in memory.policy.initial_state(1).values()]
    state[memory.state_names.index(name)] = np.full_like(state[memory.state_names.index(name)], value)
    with pytest.raises(ConfigError, match=problem):
        memory.read([OBS], [state])


def test_a_policy_without_a_memory_takes_no_state_and_no_reward(tmp_path: Path) -> None:
    policy = finished(ppo(), tmp_path / "c")
    with pytest.raises(ConfigError, match="this policy has no memory. Leave it out"):
        policy.read([OBS], [[[0.0]]])
    with pytest.raises(ConfigError, match="this policy reads none. Leave it out"):
        policy.read([OBS], None, [1.0])


def test_excluded_actions_are_never_taken_and_a_mask_without_any_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = finished(ppo(env=Allowed, action_mask_key=Allowed.key), tmp_path / "c")
    masks = np.eye(4, dtype=np.int8)
    (found,) = acted(policy, policy.read([{"action_mask": mask, "hint": np.zeros(4)} for mask in masks]))
    assert found.actions == [0, 1, 2, 3]
    none = policy.read([{"action_mask": np.zeros(4, np.int8), "hint": np.zeros(4)}])
    passes = passes_of(policy, monkeypatch)
    refused, found_too = policy.act([none, policy.read([{"action_mask": masks[2], "hint": np.zeros(4)}])])
    assert isinstance(refused, ConfigError)
    assert isinstance(found_too, ActionResponse)
    assert found_too.actions == [2]
    assert "'action_mask' excludes every action" in str(refused)
    assert passes == [1]
    both = policy.act([none, none])
    assert all(isinstance(each, ConfigError) for each in both), both


def test_it_explores_where_it_is_asked_to_or_evaluation_config_says_so(tmp_path: Path) -> None:
    greedy = checkpoint_of(ppo(), tmp_path / "greedy")
    drawing = checkpoint_of(ppo(evaluation_config={"explore": True}), tmp_path / "drawing")
    assert [FinishedPolicy(path).explore for path in (greedy, drawing)] == [False, True]
    assert [
        FinishedPolicy(path, explore=not default).explore for path, default in ((greedy, False), (drawing, True))
    ] == [
        True,
        False,
    ]
    (found,) = acted(policy := FinishedPolicy(greedy, explore=True), policy.read([OBS] * 64))
    assert set(found.actions) == {0, 1}


def test_one_of_several_policies_has_to_be_named(tmp_path: Path) -> None:
    env = {"env": IndependentAgents, "env_config": {"env": "CartPole-v1", "num_agents": 2}}
    path = checkpoint_of(ppo(**env, policies=["0", "1"]), tmp_path / "c")
    with pytest.raises(ConfigError, match="has the policies 0, 1. Give one with --policy ID"):
        FinishedPolicy(path)
    assert FinishedPolicy(path, "1").policy_id == "1"
    with pytest.raises(CheckpointError, match="PolicyID '2' not found"):
        FinishedPolicy(path, "2")


def test_the_environment_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = checkpoint_of(ppo(), tmp_path / "c")
    monkeypatch.setattr(gym, "make", None)
    assert FinishedPolicy(path).observation_space.shape == (4,)
