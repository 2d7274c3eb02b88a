"""Estimates from recorded episodes in an evaluation.

It tests reef.run.recorded.reading, reef.learn.estimators.make,
reef.learn.estimators.arguments and reef.config.groups.recorded too.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from recorded import folder_until_exit

from reef.algorithms.registry import config_class
from reef.cli.main import main
from reef.config import AlgorithmConfig
from reef.errors import ConfigError
from reef.learn.estimators import LoggedSteps, OffPolicyEstimator
from reef.types import Array


class Guess(gym.Env[np.ndarray, int]):
    """Three steps, of which each shows a number; the action that is the number earns 1."""

    observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def __init__(self, config: dict[str, Any]) -> None:
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.show(), {}

    def show(self) -> np.ndarray:
        self.number = int(self.np_random.integers(2))
        return np.eye(2, dtype=np.float32)[self.number]

    def step(self, action: int) -> Any:
        reward, self.steps = float(np.argmax(np.atleast_1d(action)) == self.number), self.steps + 1
        if isinstance(self.action_space, spaces.Discrete):
            reward = float(action == self.number)
        return self.show(), reward, self.steps == 3, False, {}


class Real(Guess):
    """The same, by real numbers."""

    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)


METHODS = {name: {"type": name} for name in ("is", "wis", "dm", "dr")}
METHODS["dm"] = METHODS["dr"] = {"type": "dm", "q_model_config": {"n_iters": 2}}
METHODS["dr"] = {**METHODS["dr"], "type": "DoublyRobust"}


def config_of(name: str, env: Any = Guess, **settings: Any) -> AlgorithmConfig:
    small = {"env": env, "seed": 1, "model": {"fcnet_hiddens": [8]}, "train_batch_size": 60}
    small |= {"sgd_minibatch_size": 60} if name == "PPO" else {}
    return config_class(name).from_dict({**small, **settings})  # type: ignore[no-any-return]


@functools.cache
def recorded(name: str, env: Any = Guess, episodes: int = 200, **settings: Any) -> str:
    """A folder of episodes that an untrained policy played."""
    folder = str(folder_until_exit())
    with config_of(name, env, output=folder, **settings).build() as algorithm:
        for _ in range(episodes // 20):
            algorithm.workers.sample(60)
    return folder


def estimated(name: str, path: Any, env: Any = Guess, **settings: Any) -> dict[str, Any]:
    more = settings.pop("evaluation_config", {})
    given = {"off_policy_estimation_methods": METHODS, "evaluation_interval": 1, "evaluation_duration": 3, **settings}
    with config_of(name, env, evaluation_config={"input_": path, **more}, **given).build() as algorithm:
        return dict(algorithm.evaluate()["evaluation"])


def test_estimates_are_in_the_evaluation_beside_what_was_played() -> None:
    metrics = estimated("PPO", recorded("PPO"))
    assert metrics["episodes_this_iter"] == 3
    found = metrics["off_policy_estimator"]
    assert found.keys() == METHODS.keys()
    for each in found.values():
        assert each["episodes"] == 200
        assert each["v_behavior"] == pytest.approx(0.5 * (1 + 0.99 + 0.99**2), abs=0.1)
        assert each["v_target_low"] <= each["v_target"] <= each["v_target_high"]
    # the policy that recorded them, and the same seed
    assert found["is"]["v_target"] == pytest.approx(found["is"]["v_behavior"])


def test_the_trained_policy_is_evaluated_and_the_result_has_it_too() -> None:
    given = {"off_policy_estimation_methods": {"wis": {"type": "wis"}}, "evaluation_interval": 1}
    given |= {
        "train_batch_size": 300,
        "sgd_minibatch_size": 50,
        "num_sgd_iter": 10,
        "lr": 0.02,
        "evaluation_duration": 1,
    }
    config = config_of("PPO", evaluation_config={"input_": recorded("PPO")}, **given)
    with config.build() as algorithm:
        result = [algorithm.train() for _ in range(3)][-1]
    found = result["evaluation"]["off_policy_estimator"]["wis"]
    assert result["off_policy_estimator"]["wis"] == found
    assert found["v_delta"] > 0.7, "it learned to guess, and behaved at random"
    assert found["v_target"] == pytest.approx(1 + 0.99 + 0.99**2, abs=0.5)


def test_single_steps_can_be_episodes() -> None:
    found = estimated("PPO", recorded("PPO"), ope_split_batch_by_episode=False)["off_policy_estimator"]
    assert found["is"]["episodes"] == 600
    assert found["is"]["v_behavior"] == pytest.approx(0.5, abs=0.07)


@pytest.mark.parametrize("exploration", [{"type": "EpsilonGreedy", "epsilon_schedule": [[0, 0.5]]}, {"type": "SoftQ"}])
def test_dqn_records_how_likely_its_actions_were_and_is_evaluated_as_it_acts(
    exploration: dict[str, Any], tmp_path: Path
) -> None:
    folder = str(tmp_path)
    with config_of("DQN", output=folder, exploration_config=exploration).build() as algorithm:
        algorithm.workers.sample(900)
    metrics = estimated("DQN", folder, evaluation_duration=100)
    found, played = metrics["off_policy_estimator"], metrics["episode_reward_mean"]
    # the best of two actions, which is taken with certainty
    assert found["wis"]["v_target"] == pytest.approx(played, abs=0.35)
    assert found["is"]["v_target"] == pytest.approx(found["wis"]["v_target"], abs=0.35)


@pytest.mark.parametrize("name", ["PPO", "SAC"])
def test_real_numbers_have_densities(name: str) -> None:
    methods = {"is": {"type": "is"}}
    path = recorded(name, Real, episodes=40)
    found = estimated(name, path, Real, off_policy_estimation_methods=methods)["off_policy_estimator"]["is"]
    assert found["v_target"] == pytest.approx(found["v_behavior"], rel=1e-3)


class Longest(OffPolicyEstimator):
    """An estimator of the user's own."""

    def __init__(self, *layouts: Any, gamma: float, seed: int | None, factor: float = 1.0) -> None:
        super().__init__(*layouts, gamma=gamma, seed=seed)
        self.factor = factor

    def values(self, steps: LoggedSteps, target: Any) -> Array:
        return self.factor * steps.lengths


def test_an_estimator_of_your_own() -> None:
    for kind in (Longest, f"{__name__}:Longest"):
        methods = {"mine": {"type": kind, "factor": 2.0}}
        found = estimated("PPO", recorded("PPO"), off_policy_estimation_methods=methods)
        assert found["off_policy_estimator"]["mine"]["v_target"] == 6.0


def test_a_policy_with_a_memory_is_estimated_from_what_it_played() -> None:
    model = {"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 8, "lstm_use_prev_reward": True}
    own = {"model": model, "clip_rewards": 0.5}
    found = estimated("PPO", recorded.__wrapped__("PPO", **own), **own)["off_policy_estimator"]
    assert found.keys() == METHODS.keys()
    assert found["is"]["v_target"] == pytest.approx(found["is"]["v_behavior"], rel=1e-3)
    assert found["is"]["effective_episodes"] == pytest.approx(200, rel=1e-3)


def test_a_memory_needs_whole_episodes() -> None:
    with pytest.raises(
        ConfigError, match="ope_split_batch_by_episode=False: the policy has a memory.*Leave it at True"
    ):
        estimated("PPO", recorded("PPO"), model={"use_lstm": True}, ope_split_batch_by_episode=False)


class DirectMethod(Longest):
    """An estimator of the user's own, with the name of one of Reef's."""


def test_an_estimator_of_your_own_may_have_the_name_of_one_of_ours() -> None:
    methods = {"mine": {"type": f"{__name__}:DirectMethod"}}
    methods |= {"reefs": {"type": "ray.rllib.offline.estimators:ImportanceSampling"}}
    found = estimated("PPO", recorded("PPO"), off_policy_estimation_methods=methods)["off_policy_estimator"]
    assert found["mine"]["v_target"] == 3.0
    assert "effective_episodes" in found["reefs"]


def test_the_command_line_estimates_without_playing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with config_of("PPO", f"{__name__}:Guess").build() as algorithm:
        algorithm.save(tmp_path / "checkpoint")
    path = recorded("PPO")
    asked = ["evaluate", str(tmp_path / "checkpoint"), "--estimate", "is,wis", "--input", path]
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {"is", "wis"}
    assert found["is"]["episodes"] == 200
    assert main(asked) == 0
    assert "is: recorded 1." in capsys.readouterr().out
    for wrong, message in {
        ("--estimate", "is"): "--estimate METHODS and --input PATH belong together",
        ("--estimate", "is", "--input", path, "--episodes", "3"): "--episodes: --estimate plays nothing",
        ("--estimate", "iss", "--input", path): "iss.type='iss': expected one of is, wis, dm, dr",
    }.items():
        assert main(["evaluate", str(tmp_path / "checkpoint"), *wrong]) == 2
        assert message in capsys.readouterr().err


def read_one(ioctx: Any) -> list[Any]:
    """A reader of the user's own."""
    assert ioctx.input_config == {"a": 1}
    step = {"obs": [0, 1], "next_obs": [1, 0], "action": [0.0, 0.5], "reward": 1.0, "action_logp": -1.0}
    return [[step | {"terminated": True, "truncated": False}]]


@pytest.mark.parametrize(
    "stored",
    [{"actions_in_input_normalized": True}, {"input_": f"{__name__}:read_one", "input_config": {"a": 1}}],
)
def test_how_training_read_its_episodes_says_nothing_of_other_files(
    stored: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recorded("PPO", Real, episodes=40)
    methods = {"off_policy_estimation_methods": {"is": {"type": "is"}}, "ope_split_batch_by_episode": False}
    config = config_of("PPO", f"{__name__}:Real", **methods, evaluation_config={"input_": path, **stored})
    with config.build() as algorithm:
        algorithm.save(tmp_path / "checkpoint")
    assert main(["evaluate", str(tmp_path / "checkpoint"), "--episodes", "1", "--json"]) == 0
    capsys.readouterr()
    asked = ["evaluate", str(tmp_path / "checkpoint"), "--estimate", "is", "--input", path, "--json"]
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)["is"]
    assert found["episodes"] == 120, "each step is an episode, as in training"
    assert found["v_target"] == pytest.approx(found["v_behavior"], rel=1e-3)
    assert main([*asked, "--config", '{"evaluation_config": {"input_config": {"a": 1}}}']) == 2
    assert "evaluation_config.input_config={'a': 1}: 'a' is for a reader of your own" in capsys.readouterr().err


def test_episodes_of_reef_evaluate_say_how_likely_explored_actions_were(tmp_path: Path) -> None:
    with config_of("PPO", f"{__name__}:Guess").build() as algorithm:
        algorithm.save(tmp_path / "checkpoint")
    for flags, known in ((["--explore"], True), (["--no-explore"], False)):
        out = tmp_path / "played.json"
        assert main(["evaluate", str(tmp_path / "checkpoint"), "--episodes", "2", "--out", str(out), *flags]) == 0
        steps = [step for line in out.read_text().splitlines() for step in json.loads(line)["steps"]]
        assert all(("action_logp" in step) is known for step in steps)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"off_policy_estimation_methods": {"is": {}}}, r"is=\{\}: expected a 'type', such as 'wis'"),
        ({"off_policy_estimation_methods": {"is": {"type": "is", "k": 5}}}, "is.k=5 is not an argument of Importance"),
        ({"off_policy_estimation_methods": {"x": {"type": dict}}}, "x.type=.*expected a class derived from reef.lea"),
        ({"off_policy_estimation_methods": {}}, "evaluation_config.input_=.*recorded episodes are for estimates"),
        ({"evaluation_config": {"input_": "sampler"}}, "there are no recorded episodes to estimate from. Set evaluat"),
        ({"evaluation_config": {"input_": {"a": 1.0}}}, "each recorded episode counts once in estimates"),
        ({"evaluation_config": {"input_": "nowhere.json"}}, "input_='nowhere.json': there is no such file"),
        ({"evaluation_config": {"shuffle_buffer_size": 9}}, "estimates are from all recorded episodes"),
        ({"evaluation_config": {"input_config": {"a": 1}}}, "evaluation_config.input_config=.*reader of your own"),
        ({"env_to_module_connector": lambda obs: obs}, "off_policy_estimation_methods read observations and act"),
        ({"policies": ["a", "b"], "policy_mapping_fn": lambda agent: "a"}, "recorded episodes are of one policy"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        estimated("PPO", recorded("PPO"), **settings)


def test_estimates_by_step_need_methods() -> None:
    with pytest.raises(ConfigError, match="ope_split_batch_by_episode=False: there are no off_policy_estimation_meth"):
        config_of("PPO", ope_split_batch_by_episode=False).validate()


def test_a_single_action_has_no_likelihood_among_real_numbers() -> None:
    methods = {"is": {"type": "is"}}
    with pytest.raises(ConfigError, match="DDPG learns a single action for each observation.*by playing, or train SAC"):
        estimated("DDPG", recorded("PPO", Real, episodes=20), Real, off_policy_estimation_methods=methods)


@pytest.mark.parametrize("kind", ["is", "wis", "dr"])
def test_greedy_episodes_have_no_likelihoods_which_is_said_before_training(kind: str) -> None:
    given = {"evaluation_config": {"input_": recorded("PPO", episodes=20, explore=False)}, "evaluation_interval": 9}
    with pytest.raises(ConfigError, match="20 of 20 recorded episodes do not say how likely"):
        config_of("PPO", off_policy_estimation_methods={kind: {"type": kind}}, **given).build()


def test_the_direct_method_needs_no_likelihoods() -> None:
    folder = recorded("PPO", episodes=20, explore=False)
    assert estimated("PPO", folder, off_policy_estimation_methods={"dm": METHODS["dm"]})
