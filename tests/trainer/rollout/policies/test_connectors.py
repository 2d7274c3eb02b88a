"""Functions between environments and policy, in every place where a policy acts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from reef import Algorithm
from reef.algorithms.ppo import PPOConfig
from reef.envs.multi_agent import IndependentAgents, MultiAgentEnv
from reef.errors import CallbackError, ConfigError
from reef.rollout.policies.connectors import ObservationConnector, action_connector, observed_space
from reef.rollout.worker import RolloutWorker
from reef.spaces import Layout

HERE = "tests.trainer.rollout.policies.test_connectors"
SEEN: list[float] = []


class Counting(gym.Env[Any, Any]):
    """Observations count the steps; it keeps the actions that it gets."""

    observation_space, action_space = spaces.Box(-9, 9, (2,)), spaces.Box(-2, 2, (1,))

    def __init__(self, context: Any) -> None:
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        SEEN.append(float(action[0]))
        self.t += 1
        return np.full(2, self.t, np.float32), 1.0, False, self.t == 5, {}


def with_square(observations: Any) -> Any:
    return np.concatenate([observations, np.square(observations[:, :1])], axis=1)


def halves(actions: Any) -> Any:
    return np.full_like(actions, 0.5)


def in_place(observations: Any) -> Any:
    observations += 1
    return observations


def connected(**settings: Any) -> PPOConfig:
    sizes = {"train_batch_size": 8, "sgd_minibatch_size": 8, "num_sgd_iter": 1, "model": {"fcnet_hiddens": [4]}}
    return PPOConfig().environment(Counting).debugging(seed=1).update_from_dict(sizes | settings)


def test_observations_and_actions_go_through_the_functions() -> None:
    SEEN.clear()
    config = connected(env_to_module_connector=with_square, module_to_env_connector=halves)
    with config.build() as algorithm:
        (sample,) = algorithm.workers.sample()
        rollout = sample.rollouts["default_policy"]
        assert algorithm.get_policy().observation_layout.shape == (3,)
        assert rollout.obs[:6, 0].tolist() == [[t, t, t * t] for t in (0, 1, 2, 3, 4, 0)]
        assert rollout.next_obs[4, 0].tolist() == [5, 5, 25]
        # half of the way from 0 to the bound; the batch has what the policy chose
        assert set(SEEN[-8:]) == {1.0}
        assert len(set(rollout.actions[:, 0, 0].tolist())) == 8
        algorithm.train()


def test_one_asks_for_actions_with_an_observation_of_the_environment() -> None:
    config = connected(env_to_module_connector=with_square, module_to_env_connector=halves)
    with config.build() as algorithm:
        assert algorithm.compute_single_action(np.ones(2, np.float32)).tolist() == [1.0]
        own = algorithm.get_policy().compute_actions(np.ones((1, 3), np.float32), unsquash_actions=False)[0]
        assert own.tolist() == [[0.5]]
        with pytest.raises(ConfigError, match=re.escape("has shape (3,), expected (2,)")):
            algorithm.compute_single_action(np.ones(3, np.float32))


def test_a_previous_action_is_refused() -> None:
    model = {
        "use_lstm": True,
        "lstm_use_prev_action": True,
        "lstm_cell_size": 4,
        "fcnet_hiddens": [4],
        "max_seq_len": 4,
    }
    with connected(module_to_env_connector=halves, model=model).build() as algorithm:
        policy = algorithm.get_policy()
        with pytest.raises(ConfigError, match="prev_action has no meaning with module_to_env_connector"):
            policy.compute_single_action(np.ones(2, np.float32), prev_action=np.zeros(1, np.float32))


def test_a_checkpoint_has_their_paths(tmp_path: Path) -> None:
    config = connected(env_to_module_connector=f"{HERE}:with_square", module_to_env_connector=halves)
    with config.build() as algorithm:
        algorithm.train()
        algorithm.save(tmp_path / "checkpoint")
        expected = algorithm.train()["info"]["learner"]
    with Algorithm.from_checkpoint(tmp_path / "checkpoint") as algorithm:
        assert algorithm.config.module_to_env_connector == f"{HERE}:halves"
        assert algorithm.train()["info"]["learner"] == expected


def test_evaluation_has_them_too_and_may_have_others() -> None:
    evaluation = {"evaluation_interval": 1, "evaluation_duration": 1, "env_to_module_connector": with_square}
    with connected(**evaluation).build() as algorithm:
        algorithm.evaluate()
        assert algorithm.evaluation.workers.local_worker().spaces["default_policy"][0].shape == (3,)
    with connected(**evaluation, evaluation_config={"module_to_env_connector": halves}).build() as algorithm:
        SEEN.clear()
        algorithm.evaluate()
        assert set(SEEN[-5:]) == {1.0}
    with pytest.raises(ConfigError, match="evaluation_config: its environment 'Counting' has the space"):
        connected(**evaluation, evaluation_config={"env_to_module_connector": None}).build()


def test_the_filter_sees_what_the_function_returns() -> None:
    config = connected(env_to_module_connector=with_square, observation_filter="MeanStdFilter")
    with config.build() as algorithm:
        algorithm.train()
        assert algorithm.workers.local_worker().filters["default_policy"].stat.mean.shape == (3,)


def test_a_function_may_write_to_what_it_gets() -> None:
    env = connected(env="CartPole-v1", env_to_module_connector=in_place)
    with env.build() as changed, connected(env="CartPole-v1").build() as plain:
        first = [algorithm.workers.sample()[0].rollouts["default_policy"] for algorithm in (changed, plain)]
        assert np.allclose(first[0].obs[0], first[1].obs[0] + 1)
        worker = changed.workers.local_worker()
        assert np.allclose(worker.env.env.observations + 1, worker.runners["default_policy"].obs)


def test_one_of_several_policies_may_have_its_own() -> None:
    policies = {"0": {"config": {"env_to_module_connector": with_one}}, "1": None}
    config = connected(env=IndependentAgents, env_config={"env": "CartPole-v1", "num_agents": 2}, policies=policies)
    with config.build() as algorithm:
        observed = {name: space for name, (space, _) in algorithm.workers.local_worker().spaces.items()}
        assert list(observed["0"].spaces) == ["one", "own"]
        assert observed["1"].shape == (4,)
        algorithm.train()


def with_one(observations: Any) -> Any:
    return {"own": observations, "one": np.ones((len(observations), 1), np.float32)}


class Coming(MultiAgentEnv):
    """Observations are ones. Agent "b" is there in every other step if agents take turns, else in the second one."""

    possible_agents = ("a", "b")

    def __init__(self, context: Any) -> None:
        self.agents_take_turns = context["turns"]
        self.observation_spaces = dict.fromkeys(self.possible_agents, spaces.Box(0.5, 9, (2,)))
        self.action_spaces = dict.fromkeys(self.possible_agents, spaces.Discrete(2))

    def seen(self) -> dict[Any, Any]:
        there = "ab"[self.t % 2] if self.agents_take_turns else "ab" if self.t == 1 else "a"
        return {agent: np.ones(2, np.float32) for agent in there}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return self.seen(), {}

    def step(self, actions: dict[Any, Any]) -> Any:
        self.t += 1
        ended = {"b": not self.agents_take_turns and self.t == 2, "__all__": self.t == 6}
        return self.seen(), {}, ended, {}, {}


def shares(observations: Any) -> Any:
    assert observations.all(), "only observations of agents"
    return observations / observations.sum(1, keepdims=True)


@pytest.mark.parametrize("turns", [True, False])
@pytest.mark.parametrize("observation_filter", ["NoFilter", "MeanStdFilter"])
def test_it_gets_no_rows_of_agents_that_are_not_there(turns: bool, observation_filter: str) -> None:
    given = {"env": Coming, "env_config": {"turns": turns}, "policies": ["a", "b"], "rollout_fragment_length": 8}
    config = connected(**given, env_to_module_connector=shares, observation_filter=observation_filter)
    worker = RolloutWorker(config.freeze())
    for rollout in (worker.sample() and worker.sample()).rollouts.values():
        expected = 0.5 if observation_filter == "NoFilter" else 0.0
        assert (rollout.obs[rollout.mask] == expected).all()
        assert (rollout.next_obs[rollout.mask] == expected).all()
    RolloutWorker(config.freeze()).set_state(worker.state())


@pytest.mark.ray
def test_workers_have_them(ray_cluster: Any) -> None:
    config = connected(env_to_module_connector=f"{HERE}:with_square", num_rollout_workers=1)
    with config.build() as algorithm:
        algorithm.train()
        assert algorithm.workers.foreach_worker(lambda worker: worker.spaces["default_policy"][0].shape)[-1] == (3,)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lambda rows: rows.astype(np.uint8), spaces.Box(0, 255, (2,), np.uint8)),
        (lambda rows: rows > 0, spaces.Box(-np.inf, np.inf, (2,))),
        (lambda rows: rows[:, 0], spaces.Box(-np.inf, np.inf, ())),
        (lambda rows: (rows, {"b": rows}), None),
    ],
)
def test_the_space_is_that_of_what_is_returned(found: Any, expected: Any) -> None:
    connector = ObservationConnector(found, spaces.Box(-9, 9, (2,)))
    own = spaces.Box(-np.inf, np.inf, (2,))
    assert connector.space == (expected or spaces.Tuple([own, spaces.Dict({"b": own})]))


def test_parts_of_a_dict_are_arrays_by_key() -> None:
    space = spaces.Dict({"place": spaces.Discrete(4, start=1), "speed": spaces.Box(-1, 1, (2,))})

    def kept(observations: Any) -> Any:
        assert observations["place"].shape == (len(observations["speed"]),)
        return {"place": observations["place"], "fast": observations["speed"] > 0.5}

    connector = ObservationConnector(kept, space)
    assert connector.space == spaces.Dict({"place": space["place"], "fast": spaces.Box(-np.inf, np.inf, (2,))})
    assert connector(np.array([[3, 0.7, 0.2]], np.float32)).tolist() == [[1, 0, 3]]  # parts by name, an index from 0


def test_an_index_stays_one() -> None:
    assert ObservationConnector(lambda rows: 3 - rows, spaces.Discrete(4)).space == spaces.Discrete(4)
    with pytest.raises(CallbackError, match="at index"):
        ObservationConnector(lambda rows: rows + 4, spaces.Discrete(4))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda rows: None, "env_to_module_connector returned None for a single observation"),
        (lambda rows: rows[0, 0], "expected an array of numbers whose first axis has a row for each"),
        (lambda rows: 1 / 0, "env_to_module_connector raised ZeroDivisionError"),
        (lambda rows: np.full_like(rows, np.nan), "values that are NaN or infinite"),
    ],
)
def test_other_results_are_refused(function: Any, message: str) -> None:
    with pytest.raises(CallbackError, match=message):
        ObservationConnector(function, spaces.Box(-9, 9, (2,)))


def test_a_batch_of_another_shape_is_refused_when_it_comes() -> None:
    connector = ObservationConnector(lambda rows: rows[:1], spaces.Box(-9, 9, (2,)))
    with pytest.raises(CallbackError, match=re.escape("returned 1 rows for 2 observations")):
        connector(np.zeros((2, 2), np.float32))
    connector = ObservationConnector(lambda rows: rows, spaces.Box(-9, 9, (2,)))
    with pytest.raises(CallbackError, match="It was called with such values: look at the environment"):
        connector(np.full((2, 2), np.nan, np.float32))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda actions: actions[:1], re.escape("for actions of the shape (2,): expected finite numbers")),
        (lambda actions: "left", "module_to_env_connector returned 'left'"),
        (lambda actions: actions + 3, re.escape("returned 3 at index [0, 0], expected 0 to 2")),
        (lambda actions: actions + 0.5, re.escape("returned 0.5 at index [0, 0], expected 0 to 2")),
        (lambda actions: [[0], [0, 1]], re.escape("for actions of the shape (2,): expected finite numbers")),
    ],
)
def test_other_actions_are_refused(function: Any, message: str) -> None:
    connector = action_connector(PPOConfig().rollouts(module_to_env_connector=function), spaces.Discrete(3))
    assert connector is not None
    with pytest.raises(CallbackError, match=message):
        connector(np.zeros(2, np.int64))


def test_real_numbers_may_be_indices_and_of_a_tuple_too() -> None:
    several = spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (1,))])
    for space, given in ((spaces.Discrete(3), 2.0), (several, [2.0, 0.5])):
        config = PPOConfig().rollouts(module_to_env_connector=lambda actions, given=given: [given] * len(actions))
        connector = action_connector(config, space)
        actions = np.zeros((2, *Layout.of(space).shape), Layout.of(space).action_dtype)
        assert connector is not None
        assert connector(actions).tolist() == [given, given]
        assert connector(actions).dtype == actions.dtype
    connector = action_connector(PPOConfig().rollouts(module_to_env_connector=lambda actions: actions + 0.5), several)
    assert connector is not None
    with pytest.raises(CallbackError, match=re.escape("returned 0.5 at index [0, 0], expected 0 to 2")):
        connector(np.zeros((2, 2), np.float32))


def test_without_them_nothing_changes() -> None:
    space = spaces.Discrete(3)
    assert action_connector(PPOConfig(), space) is None
    assert observed_space(PPOConfig(), space) is space


@pytest.mark.parametrize("key", ["env_to_module_connector", "module_to_env_connector"])
def test_a_function_of_other_arguments_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key}=.*It is called with \((observations|actions)\)"):
        connected(**{key: lambda env, spaces: None}).validate()
