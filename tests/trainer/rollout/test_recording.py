"""Environments that record what a worker does with them."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from games import LEFT, RIGHT, Game

from reef.algorithms.ppo import PPOConfig
from reef.config import AlgorithmConfig
from reef.envs.context import env_context
from reef.envs.make import make_env
from reef.errors import EnvironmentError
from reef.offline.steps import STEP_KEYS
from reef.rollout.recording import RecordedEnv, recording_worker
from reef.rollout.worker import RolloutWorker


class Line(gym.Env[np.ndarray, int]):
    """Walks to 5, where it ends; every step is worth where it leads."""

    observation_space = gym.spaces.Box(0.0, 9.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config: dict[str, Any]) -> None:
        self.resets: list[int | None] = []
        self.fail_at = config.get("fail_at")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.resets.append(seed)
        self.place = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        if self.place == self.fail_at:
            raise ZeroDivisionError("no floor")
        self.place += 1
        return np.full(1, self.place, np.float32), float(self.place), self.place == 5, False, {}


def made(env: type[Line] = Line, **settings: Any) -> tuple[RolloutWorker, RecordedEnv, Line]:
    config: AlgorithmConfig = PPOConfig().environment(env).training(model={"fcnet_hiddens": [4]})
    settings = config.update_from_dict({"seed": 3, **settings}).evaluation_settings().freeze()
    line = env(settings.env_config)
    worker, recorded = recording_worker(settings, RolloutWorker(config.freeze()), line, STEP_KEYS)
    return worker, recorded, line


def test_one_episode_is_played_whenever_one_is_asked_for() -> None:
    worker, recorded, line = made()
    for number in (1, 2):
        recorded.begin(number, math.inf)
        sample = worker.sample_episodes(1)
        episode = recorded.episode
        assert (episode.number, episode.reward, episode.length, episode.complete) == (number, 15.0, 5, True)
        assert [step["next_obs"].tolist() for step in episode.steps] == [[1.0], [2.0], [3.0], [4.0], [5.0]]
        assert (sample.env_steps, sample.episodes[0].reward) == (5, 15.0)
        assert line.place == 5, "the next one has not begun"
    assert line.resets == [3, None]


def test_a_lost_life_is_an_end_for_the_policy_as_in_training() -> None:
    config = PPOConfig().environment(lambda context: Game())
    config.training(model={"conv_filters": [[2, 8, 8]], "post_fcnet_hiddens": [4]})
    settings = config.evaluation_settings().freeze()
    game = make_env(settings, env_context(settings, 0, recreated=False))
    worker, recorded = recording_worker(settings, RolloutWorker(config.freeze(), with_env=False), game)
    assert worker.env is not None
    recorded.begin(1, math.inf)
    worker.env.reset()
    ends = []
    for action in (LEFT, RIGHT, LEFT, LEFT):
        result = worker.env.step({"default_policy": np.array([action])}).results["default_policy"]
        ends.append((result.terminated.tolist(), bool(result.final_obs)))
    assert ends == [([True], False), ([False], False), ([True], False), ([True], True)]
    assert (recorded.episode.length, recorded.episode.complete) == (4, True)


@pytest.mark.parametrize(
    ("settings", "limit", "length", "complete"),
    [({}, 2, 2, False), ({}, 5, 5, True), ({"horizon": 3}, 9, 3, True), ({"horizon": 3}, 3, 3, True),
     ({"horizon": 3, "soft_horizon": True}, 9, 3, True)],
)  # fmt: skip
def test_only_the_limit_leaves_an_episode_incomplete(
    settings: dict[str, Any], limit: int, length: int, complete: bool
) -> None:
    worker, recorded, line = made(**settings)
    for number in (1, 2):
        recorded.begin(number, limit)
        worker.sample_episodes(1)
        assert (recorded.episode.length, recorded.episode.complete) == (length, complete)
        assert not recorded.episode.steps[-1]["truncated"], "as the environment said"
    assert len(line.resets) == 2


@pytest.mark.parametrize("restart", [False, True])
def test_a_failure_says_where_once(restart: bool) -> None:
    worker, recorded, _ = made(env_config={"fail_at": 2}, restart_failed_sub_environments=restart)
    recorded.begin(4, math.inf)
    with pytest.raises(
        EnvironmentError, match=r"^environment 'Line' raised in step\(\) after 2 steps of episode 4: Zero"
    ):
        worker.sample_episodes(1)


class SameBuffer(Line):
    """Returns the same objects with every step."""

    observation_space = gym.spaces.Dict({"place": Line.observation_space})  # type: ignore[assignment]
    buffer: dict[str, np.ndarray]
    info: dict[str, Any]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.buffer, self.info = {"place": np.zeros(1, np.float32)}, {}
        super().reset(seed=seed, options=options)
        return self.buffer, self.info

    def step(self, action: int) -> Any:
        obs, *rest, _ = super().step(action)
        self.buffer["place"][:] = obs
        self.info["place"] = self.place
        return self.buffer, *rest, self.info


def test_each_step_keeps_its_own_observation() -> None:
    worker, recorded, _ = made(env=SameBuffer)
    recorded.begin(1, math.inf)
    worker.sample_episodes(1)
    steps = recorded.episode.steps
    assert [step["obs"]["place"].tolist() for step in steps] == [[0.0], [1.0], [2.0], [3.0], [4.0]]
    assert [step["next_obs"]["place"].tolist() for step in steps] == [[1.0], [2.0], [3.0], [4.0], [5.0]]
    assert [step["info"]["place"] for step in steps] == [1, 2, 3, 4, 5]


def test_an_episode_may_take_as_long_as_it_takes() -> None:
    worker, recorded, _ = made(evaluation_sample_timeout_s=1e-9)
    recorded.begin(1, math.inf)
    assert worker.sample_episodes(1).env_steps == 5
