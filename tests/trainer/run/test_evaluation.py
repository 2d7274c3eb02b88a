"""Evaluation in the algorithm's process."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPOConfig
from reef.config import AlgorithmConfig
from reef.errors import CallbackError, ConfigError, EnvironmentError, WorkerTimeoutError
from reef.rollout.local_workers import LocalWorkers
from reef.rollout.seams import Workers
from reef.run.algorithm import Algorithm
from reef.run.build import make_workers
from reef.run.evaluation import Evaluation
from reef.run.metrics import summarize_episodes
from reef.run.process.deadline import Deadline
from reef.run.prometheus import RunState


def config(**evaluation: Any) -> PPOConfig:
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .rollouts(num_envs_per_worker=2)
        .training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
        .evaluation(**evaluation)
        .debugging(seed=0)
    )


@pytest.mark.parametrize("interval", [None, 1])
def test_evaluation_without_an_environment_has_three_remedies(interval: int | None) -> None:
    evaluation = Evaluation(config(evaluation_interval=interval).environment(None), make_workers)
    remedies = r"\(1\) set env, \(2\) give evaluation its own.* or \(3\) set evaluation_interval=None"
    with pytest.raises(ValueError, match=f"evaluation has no environment to play in.*{remedies}"):
        _ = evaluation.check_spaces({}) if interval else evaluation.workers


@pytest.mark.parametrize("wrong", [{"env": "CartPol-v1"}, {"env_config": {"lenght": 3}}])
def test_a_wrong_environment_of_evaluation_is_found_before_training(wrong: dict[str, Any]) -> None:
    with pytest.raises((ConfigError, EnvironmentError), match=r"CartPol-v1|lenght"):
        config(evaluation_interval=100, evaluation_config=wrong).build()


class Sized(gym.Env[Any, Any]):
    """As many observations as asked for; nothing to close, as far as it can."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, env_config: dict[str, Any]) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (env_config.get("size", 2),))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(self.observation_space.shape or (), np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.reset()[0], 1.0, False, True, {}

    def close(self) -> None:
        raise OSError("its simulator has gone")


def test_settings_that_evaluations_environment_does_not_know_are_found_before_training() -> None:
    gym.register("VectorOnly-v0", vector_entry_point=lambda num_envs: CartPoleVectorEnv(num_envs))
    try:
        with pytest.raises(ConfigError, match="horizon=20"):
            config(evaluation_interval=100, evaluation_config={"env": "VectorOnly-v0", "horizon": 20}).build()
    finally:
        del gym.registry["VectorOnly-v0"]


def test_spaces_that_differ_in_evaluation_are_found_before_training() -> None:
    def built(size: int) -> Algorithm:
        asked = config(evaluation_interval=100, evaluation_config={"env_config": {"size": size}})
        return asked.environment(Sized).build()

    with pytest.raises(ConfigError, match=r"evaluation_config: its environment .*Sized.* has the space Box.*\(3,\)"):
        built(3)
    built(2).stop()


def test_steps_are_shared_by_the_environments_of_evaluation() -> None:
    settings = config(
        evaluation_duration=200, evaluation_duration_unit="timesteps", evaluation_config={"num_envs_per_worker": 20}
    )
    with settings.build() as algorithm:
        assert algorithm.evaluate()["evaluation"]["timesteps_this_iter"] == 200


def test_a_result_says_what_was_evaluated(caplog: pytest.LogCaptureFixture) -> None:
    settings = config(evaluation_duration=4, evaluation_interval=1)
    with caplog.at_level("INFO", logger="reef"), settings.build() as algorithm:
        evaluation = algorithm.train()["evaluation"]
    assert (evaluation["episodes_this_iter"], evaluation["training_iteration"]) == (4, 1)
    assert evaluation["timesteps_this_iter"] == sum(evaluation["hist_stats"]["episode_lengths"])
    assert {"custom_metrics", "episode_len_mean"} <= evaluation.keys()
    assert {"episode_reward_max", "episode_reward_mean", "episode_reward_min"} <= evaluation.keys()
    assert "Evaluating current policy for 4 episodes." in caplog.text
    assert "parallel evaluation" not in caplog.text


class NotThereYet(LocalWorkers):
    """Workers of which none was ready when they were counted."""

    num_healthy = 0


def test_steps_are_shared_by_workers_that_are_still_to_come() -> None:
    settings = config(evaluation_duration=40, evaluation_duration_unit="timesteps", evaluation_num_workers=1)
    evaluation = Evaluation(settings.freeze(), partial(make_workers, deadline=Deadline()))
    _, steps = evaluation._play(NotThereYet(evaluation.settings))
    assert steps == 40


class Endless(gym.Env[Any, int]):
    """One step ends an episode, unless none of them ever ends."""

    observation_space = gym.spaces.Box(0, 1, (1,))
    action_space = gym.spaces.Discrete(2)
    goes_on = False

    def __init__(self, env_config: Any) -> None:
        pass

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        return np.zeros(1, np.float32), 1.0, not self.goes_on, False, {}


@pytest.mark.timeout(60)
def test_episodes_that_never_end_cost_one_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = config(evaluation_duration=4, evaluation_sample_timeout_s=2.0).environment(Endless)
    with settings.build() as algorithm:
        first = algorithm.evaluate()["evaluation"]
        path = algorithm.save(tmp_path / "here")
    with settings.build() as algorithm:
        algorithm.restore(path)
        monkeypatch.setattr(Endless, "goes_on", True)
        assert algorithm.evaluate()["evaluation"] == first, "the last metrics are reported"
        assert "evaluation took longer than evaluation_sample_timeout_s=2" in caplog.text
        monkeypatch.setattr(Endless, "goes_on", False)
        assert algorithm.evaluate()["evaluation"]["episodes_this_iter"] == 4
        (worker,) = algorithm.evaluation.workers.foreach_worker(lambda worker: worker)
        episodes = worker.state()["env"]["seeds"]["episodes"]
        assert max(episodes) <= 3, "new workers begin with episodes of their own"


@pytest.mark.timeout(60)
def test_a_first_evaluation_that_takes_too_long_is_of_no_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Endless, "goes_on", True)
    run_state = RunState()
    with config(evaluation_duration=4, evaluation_sample_timeout_s=0.5).environment(Endless).build() as algorithm:
        none = algorithm.evaluate()["evaluation"]
        assert (none["training_iteration"], none["episodes_this_iter"]) == (None, 0)
    run_state.report({"training_iteration": 3, "evaluation": none})
    assert "evaluation" not in run_state.progress()


def test_workers_that_do_not_start_cost_one_evaluation(caplog: pytest.LogCaptureFixture) -> None:
    def without_room(settings: AlgorithmConfig, count: int) -> Workers:
        error = WorkerTimeoutError("evaluation worker 1 failed in start()")
        error.in_start = True
        raise error

    with config().build() as algorithm:
        evaluation = Evaluation(algorithm.config, without_room)
        evaluation.begin(algorithm)
        assert not evaluation.is_under_way
        assert evaluation.run(algorithm)["episodes_this_iter"] == 0
    assert caplog.text.count("evaluation workers did not start within worker_restore_timeout_s=1800") == 2


def test_a_state_of_before_the_first_evaluation_is_restored() -> None:
    with config().build() as algorithm:
        before = algorithm.evaluation.state()
        algorithm.evaluate()
        algorithm.evaluation.set_state(before)
        assert algorithm.evaluation.state() == before == {"latest": None, "workers": None}


class Constant(gym.Env[Any, Any]):
    """Always the same observation, and a note of the actions."""

    observation_space, action_space = gym.spaces.Box(0.0, 1.0, (2,)), gym.spaces.Discrete(2)
    actions: ClassVar[dict[bool, list[int]]] = {}

    def __init__(self, env_config: dict[str, Any]) -> None:
        self.own = self.actions.setdefault(env_config.get("evaluated", False), [])
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.ones(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.own.append(int(action))
        self.steps += 1
        return self.reset()[0], 1.0, self.steps % 20 == 0, False, {}


@pytest.mark.parametrize("kind", [PPOConfig, DQNConfig])
@pytest.mark.parametrize("explore", [None, True, False])
def test_evaluation_explores_only_where_it_is_told_to(
    kind: type[AlgorithmConfig], explore: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    told = {} if explore is None else {"explore": explore}
    settings = kind().environment(Constant).training(model={"fcnet_hiddens": [8]}).debugging(seed=0)
    settings.evaluation(evaluation_duration=3, evaluation_config=told | {"env_config": {"evaluated": True}})
    with settings.build() as algorithm:
        algorithm.evaluate()
        Constant.actions[True].clear()
        algorithm.evaluate()
        assert set(Constant.actions[True]) == ({0, 1} if explore else {Constant.actions[True][0]})
    warnings = [record for record in caplog.records if "takes the most likely action" in record.message]
    assert len(warnings) == (explore is None and kind is PPOConfig), "once, and where greedy is another policy"


def test_a_whole_configuration_can_say_what_differs_in_evaluation() -> None:
    training = PPOConfig().environment(Constant, env_config={"kept": 1}).rollouts(num_rollout_workers=2)
    own = training.copy().environment(env_config={"evaluated": True}).rollouts(num_envs_per_worker=3)
    own.evaluation(evaluation_interval=4, evaluation_duration=7)
    training.evaluation(evaluation_interval=1, evaluation_num_workers=1, evaluation_config=own)
    settings = training.checked().evaluation_settings()
    assert settings.env_config == {"kept": 1, "evaluated": True}
    assert (settings.num_envs_per_worker, settings.num_rollout_workers) == (3, 1)
    assert (settings.evaluation_interval, settings.evaluation_duration, settings.explore) == (1, 10, False)
    exploring = PPOConfig().evaluation(evaluation_config=DQNConfig().exploration(explore=False))
    assert exploring.evaluation_config == {"explore": False}
    assert PPOConfig.from_dict(training.to_dict()).evaluation_config == training.to_dict()["evaluation_config"]


def test_settings_of_another_algorithm_are_refused_in_evaluation() -> None:
    with pytest.raises(ConfigError, match=r"evaluation_config\.dueling: PPO has no such setting"):
        config(evaluation_config=DQNConfig().training(dueling=False)).validate()


def count_episodes(algorithm: Algorithm, evaluation_workers: Workers) -> dict[str, Any]:
    """Evaluate with two environments of another setting each, and with a metric of its own."""
    evaluation_workers.foreach_worker(lambda worker: worker.foreach_env(lambda env: env.own.clear()))
    samples = evaluation_workers.sample_episodes(3)
    weights = evaluation_workers.local_worker().get_weights()["default_policy"]
    is_newest = np.array_equal(weights, algorithm.learners.weights()["default_policy"])
    episodes = [episode for sample in samples for episode in sample.episodes]
    return summarize_episodes(episodes) | {"foo": np.int64(1), "newest": is_newest, "each": np.arange(2.0)}


@pytest.mark.parametrize("function", [count_episodes, f"{__name__}:count_episodes"])
def test_a_custom_function_evaluates(function: Any, tmp_path: Path) -> None:
    settings = PPOConfig().environment(Constant).training(train_batch_size=128, model={"fcnet_hiddens": [8]})
    settings.evaluation(evaluation_interval=1, custom_evaluation_function=function)
    with settings.build() as algorithm:
        evaluation = algorithm.train()["evaluation"]
        algorithm.save(tmp_path)
    assert (evaluation["foo"], evaluation["newest"], evaluation["each"]) == (1, True, [0.0, 1.0])
    assert (evaluation["episodes_this_iter"], evaluation["training_iteration"]) == (3, 1)
    PPOConfig.from_dict(settings.to_dict()).validate()


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, r"custom_evaluation_function returned None: expected a dict"),
        (17.5, r"custom_evaluation_function returned 17.5: expected a dict"),
        ({3: 1.0}, r"custom_evaluation_function returned the key 3: expected text"),
        ({"env": object}, r"custom_evaluation_function returned env=<class 'object'>: expected numbers"),
    ],
)
def test_what_a_custom_function_may_not_return_is_refused(returned: Any, message: str) -> None:
    settings = config(custom_evaluation_function=lambda algorithm, workers: returned)
    with settings.build() as algorithm, pytest.raises(ValueError, match=message):
        algorithm.evaluate()


def test_a_custom_function_that_raises_is_named() -> None:
    settings = config(custom_evaluation_function=lambda algorithm, workers: {}["reward"])
    with settings.build() as algorithm, pytest.raises(CallbackError, match="evaluation_function raised KeyError"):
        algorithm.evaluate()


def test_metrics_without_rewards_can_be_shown() -> None:
    run_state = RunState()
    with config(evaluation_interval=1, custom_evaluation_function=lambda *_: {"foo": 1}).build() as algorithm:
        result = algorithm.train()
    run_state.report(result)
    assert result["evaluation"] == {"training_iteration": 1, "foo": 1}
    assert run_state.progress()["evaluation"]["iteration"] == 1
    assert list(run_state.collect())


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (7, r"custom_evaluation_function=7: expected text or function or null"),
        ("no.such.module:f", r"custom_evaluation_function 'no.such.module:f': there is no module 'no'"),
        (f"{__name__}:OF_TEXT", r"expected a function of \(algorithm, evaluation_workers\)"),
        (lambda algorithm: {}, r"It is called with \(algorithm, evaluation_workers\): take these"),
    ],
)
def test_what_is_no_evaluation_function_is_found_before_training(function: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(custom_evaluation_function=function).validate()


OF_TEXT = "text"


def test_evaluation_starts_elsewhere_than_training() -> None:
    with config().build() as algorithm:
        trained, evaluated = (
            workers.local_worker().state()["env"]["seeds"]["roots"]
            for workers in (algorithm.workers, algorithm.evaluation.workers)
        )
    assert len({*trained, *evaluated}) == 4
