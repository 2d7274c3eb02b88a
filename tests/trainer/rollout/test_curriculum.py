"""Tasks of environments in the algorithm's process; it tests reef.envs.curriculum.tasks too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from reef import PPOConfig, TaskSettableEnv
from reef.callbacks import DefaultCallbacks
from reef.envs import make_vector_env
from reef.envs.multi_agent import MultiAgentEnv
from reef.errors import CallbackError, ConfigError, EnvironmentError
from reef.rollout.local_workers import without_episodes
from reef.run.algorithm import Algorithm


class Corridor(TaskSettableEnv):
    """Episodes of as many steps as the task says; observations are the length of this episode and the step."""

    observation_space, action_space = gym.spaces.Box(0.0, 100.0, (2,)), gym.spaces.Discrete(2)

    def __init__(self, env_config: Any) -> None:
        self.task: Any = env_config.get("length", 2)
        self.breaks_at, self.given = env_config.get("breaks_at"), []
        self.steps = self.length = 0

    def get_task(self) -> Any:
        return self.task

    def set_task(self, task: Any) -> None:
        self.task = task
        self.given.append(task)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.steps, self.length = 0, int(self.task)
        return self.observation(), {}

    def observation(self) -> Any:
        return np.array([self.length, self.steps], np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == self.breaks_at:
            raise RuntimeError("it broke")
        return self.observation(), 1.0, self.steps >= self.length, False, {}


class Corridors(MultiAgentEnv):
    """Two agents in a corridor each."""

    possible_agents = ("a", "b")
    observation_spaces = dict.fromkeys(possible_agents, Corridor.observation_space)
    action_spaces = dict.fromkeys(possible_agents, Corridor.action_space)

    def __init__(self, env_config: Any) -> None:
        self.own = Corridor(env_config)
        self.get_task, self.set_task = self.own.get_task, self.own.set_task

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return dict.fromkeys(self.possible_agents, self.own.reset()[0]), {}

    def step(self, actions: Any) -> Any:
        return tuple(dict.fromkeys(actions, part) for part in self.own.step(0))


class NoCorridor(gym.Env[Any, Any]):
    """An environment without a task."""

    observation_space, action_space = Corridor.observation_space, Corridor.action_space

    def __init__(self, env_config: Any) -> None:
        self.own = Corridor(env_config)
        self.reset, self.step = self.own.reset, self.own.step


def config(env: Any = Corridor, **environment: Any) -> PPOConfig:
    return (
        PPOConfig()
        .environment(env, **{"env_task_fn": longer} | environment)
        .rollouts(num_envs_per_worker=2, rollout_fragment_length=15)
        .training(train_batch_size=30, sgd_minibatch_size=30, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
        .debugging(seed=0)
    )


def longer(train_results: dict[str, Any], task_settable_env: Corridor, env_ctx: Any) -> int:
    """After iteration n: 10 n, and 1 more in the second environment."""
    assert isinstance(task_settable_env, Corridor | Corridors) and "length" not in env_ctx
    return 10 * train_results["training_iteration"] + env_ctx.vector_index


def tasks(algorithm: Algorithm) -> list[Any]:
    (found,) = algorithm.workers.foreach_worker(lambda worker: worker.foreach_env(lambda env: env.get_task()))
    return list(found)


@pytest.mark.parametrize("env", [Corridor, Corridors])
def test_every_environment_gets_its_task_after_each_iteration(env: Any) -> None:
    with config(env).build() as algorithm:
        assert tasks(algorithm) == [2, 2]
        assert algorithm.train()["hist_stats"]["episode_lengths"][0] == 2
        assert tasks(algorithm) == [10, 11]
        assert max(algorithm.train()["hist_stats"]["episode_lengths"]) in (10, 11)
        assert tasks(algorithm) == [20, 21]


def test_a_path_names_the_function() -> None:
    with config(env_task_fn=f"{__name__}:longer").build() as algorithm:
        algorithm.train()
        assert tasks(algorithm) == [10, 11]


def test_a_task_that_stays_is_not_set_again() -> None:
    with config(env_task_fn=lambda *_: (5, 6)[1] - 1).build() as algorithm:
        for _ in range(3):
            algorithm.train()
        (given,) = algorithm.workers.foreach_worker(lambda worker: worker.foreach_env(lambda env: env.given))
    assert given == [[5], [5]]


@pytest.mark.parametrize("env", [Corridor, Corridors])
def test_a_resumed_run_goes_on_with_the_tasks_in_the_middle_of_episodes(env: Any, tmp_path: Path) -> None:
    def obs_of(algorithm: Algorithm) -> Any:
        return [rollout.obs for sample in algorithm.workers.sample() for rollout in sample.rollouts.values()]

    with config(env).build() as one, config(env).build() as two:
        for _ in range(3):
            one.train()
        path = one.save(tmp_path / "here")
        two.restore(path)
        assert tasks(one) == tasks(two) == [30, 31]
        for mine, other in zip(obs_of(one), obs_of(two), strict=True):
            assert np.array_equal(mine, other), "episodes of the earlier length go on, and then come longer ones"
            assert len(np.unique(mine[..., 0])) > 1


def test_more_environments_than_were_saved_get_the_tasks_too(tmp_path: Path) -> None:
    with config().build() as algorithm:
        algorithm.train()
        path = algorithm.save(tmp_path / "here")
    with config().rollouts(num_envs_per_worker=5, rollout_fragment_length=6).build() as algorithm:
        algorithm.restore(path)
        assert tasks(algorithm) == [10, 11, 10, 11, 10]


def test_a_state_without_episodes_has_the_tasks() -> None:
    with config().build() as one, config().build() as two:
        one.train()
        state = one.state()
        two.set_state(state | {"workers": without_episodes(state["workers"])})
        assert tasks(two) == [10, 11]


def test_an_environment_that_is_made_again_keeps_its_task() -> None:
    breaking = {"breaks_at": 4}
    env = make_vector_env(config(env_config=breaking).fault_tolerance(restart_failed_sub_environments=True), 0, 1)
    env.reset()
    first = env.envs[0]
    first.set_task(7)
    for _ in range(6):  # 2 steps, then 3 of 7 steps, and the one that breaks
        env.step(np.zeros(1, np.int64))
    assert env.restarts == 1 and env.envs[0] is not first
    assert env.envs[0].get_task() == 7 and env.observations[0, 0] == 7


def test_a_callback_or_a_loop_of_ones_own_can_set_tasks(tmp_path: Path) -> None:
    class Grow(DefaultCallbacks):
        def on_train_result(self, *, algorithm: Any, result: dict[str, Any], **kwargs: Any) -> None:
            task = result["training_iteration"] + 4
            algorithm.workers.foreach_worker(lambda worker: worker.foreach_env(lambda env: env.set_task(task)))

    with config(env_task_fn=None).callbacks(Grow).build() as algorithm:
        algorithm.train()
        assert tasks(algorithm) == [5, 5]
        path = algorithm.save(tmp_path / "here")
    with config(env_task_fn=None).build() as algorithm:
        algorithm.restore(path)
        assert tasks(algorithm) == [5, 5]
        algorithm.workers.foreach_worker(lambda worker: worker.foreach_env(lambda env: env.set_task(9)))
        algorithm.train()
        assert tasks(algorithm) == [9, 9]


def test_evaluation_keeps_the_task_that_its_environment_is_made_with() -> None:
    settings = config().evaluation(evaluation_interval=1, evaluation_duration=2)
    with settings.evaluation(evaluation_config={"env_config": {"length": 3}}).build() as algorithm:
        algorithm.train()
        assert algorithm.train()["evaluation"]["hist_stats"]["episode_lengths"] == [3, 3]


def test_a_registered_environment_is_found_inside_its_wrappers() -> None:
    gym.register("Corridor-v0", lambda: Corridor({}), max_episode_steps=50)
    try:
        with config("Corridor-v0").build() as algorithm:
            algorithm.train()
            (found,) = algorithm.workers.foreach_worker(
                lambda worker: worker.foreach_env(lambda env: env.unwrapped.get_task())
            )
    finally:
        del gym.registry["Corridor-v0"]
    assert found == [10, 11]


@pytest.mark.parametrize(
    ("environment", "error", "message"),
    [
        ({"env": NoCorridor}, ConfigError, r"env_task_fn=.*: environment 'NoCorridor' has no get_task and set_task"),
        ({"env": "CartPole-v1"}, ConfigError, r"'CartPole-v1' has no get_task and set_task. Derive it from reef.Task"),
        ({"env_task_fn": 7}, ConfigError, r"env_task_fn=7: expected text or function or null"),
        ({"env_task_fn": lambda result: 1}, ConfigError, r"It is called with \(train_results, task_settable_env, env_"),
        ({"env_task_fn": "no_module:f"}, ConfigError, r"env_task_fn 'no_module:f': there is no module 'no_module'"),
        ({"env_config": {"length": {1, 2}}}, EnvironmentError, r"get_task\(\) returned \{1, 2\}, which a checkpoint"),
    ],
)
def test_what_cannot_be_a_curriculum_is_found_before_training(
    environment: dict[str, Any], error: type[Exception], message: str
) -> None:
    given = {"env": Corridor} | environment
    with pytest.raises(error, match=message):
        config(**given).rollouts().training().environment(disable_env_checking=True).build()


def test_a_function_that_raises_is_named() -> None:
    settings = config(env_task_fn=lambda results, env, context: results["no such"])
    with settings.build() as algorithm, pytest.raises(CallbackError, match="env_task_fn raised KeyError: 'no such'"):
        algorithm.train()
