"""Functions of a person's own as trials of reef.tune, and the same training by each of the three ways to start it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from reef.agents.ppo import PPOTrainer
from tests.sweeps import SMALL  # as processes of Ray find it too

from reef import TaskSettableEnv, tune
from reef.algorithms.ppo import PPOConfig
from reef.cli.main import main
from reef.run.algorithm import Algorithm

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(300)]
LEVELS = 3


class Level(TaskSettableEnv):
    """Each step is worth the task."""

    observation_space, action_space = gym.spaces.Box(0.0, 10.0, (1,)), gym.spaces.Discrete(2)

    def __init__(self, env_config: Any) -> None:
        self.task = 1

    def get_task(self) -> int:
        return self.task

    def set_task(self, task: int) -> None:
        self.task = task

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.array([self.task], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.reset()[0], float(self.task), True, False, {}


def settings_of(config: dict[str, Any]) -> PPOConfig:
    return PPOConfig.from_dict(SMALL | {"env": Level, "num_rollout_workers": 2, "num_cpus_per_worker": 0.5} | config)


def with_curriculum(config: dict[str, Any]) -> None:
    """Trains until each level is reached: what a person writes, with a loop of their own."""
    with settings_of(config).build() as algorithm:
        for level in range(1, LEVELS + 1):
            algorithm.workers.foreach_worker(lambda worker, to=level: worker.foreach_env(lambda env: env.set_task(to)))
            result = algorithm.train()
            tasks = algorithm.workers.foreach_worker(lambda worker: worker.foreach_env(lambda env: env.get_task()))
            tune.report(
                {
                    "level": level,
                    "tasks": [task for of_worker in tasks[1:] for task in of_worker],
                    "episode_reward_min": result["episode_reward_min"],
                    "num_healthy_workers": result["num_healthy_workers"],
                    "timesteps_total": result["timesteps_total"],
                    "lr": algorithm.config.lr,
                }
            )


def test_a_function_with_a_curriculum_trains_in_tune_with_the_resources_of_its_workers(tmp_path: Path) -> None:
    room = tune.trainable("PPO").default_resource_request(settings_of({}).to_dict() | {"env": "CartPole-v1"})
    assert room.bundles == [{"CPU": 1.0}, {"CPU": 0.5}, {"CPU": 0.5}]
    options: dict[str, Any] = {"storage_path": tmp_path, "metric": "level", "mode": "max", "verbose": 0}
    analysis = tune.run(with_curriculum, config={"lr": 0.001}, resources_per_trial=room, **options)
    (trial,) = analysis.trials
    last = trial.last_result
    assert (trial.status, last["training_iteration"], last["level"]) == ("TERMINATED", LEVELS, LEVELS)
    assert last["tasks"] == [LEVELS] * 2
    assert last["num_healthy_workers"] == 2
    assert last["timesteps_total"] == LEVELS * SMALL["train_batch_size"]
    assert last["lr"] == trial.config["lr"] == 0.001
    assert trial.placement_group_factory.bundles == room.bundles
    assert analysis.best_result["level"] == LEVELS


def weights_at(checkpoint: Any) -> dict[str, np.ndarray]:
    with Algorithm.from_checkpoint(checkpoint) as algorithm:
        assert algorithm.iteration == 1
        return algorithm.get_weights()["default_policy"]


def outcome(result: dict[str, Any]) -> list[float]:
    stats = result["info"]["learner"]["default_policy"]["learner_stats"]
    named = [result["episode_reward_mean"], result["episode_len_mean"], *(stats[name] for name in sorted(stats))]
    return [float(value) for value in named]


def test_command_line_program_and_tune_train_alike(tmp_path: Path) -> None:
    """The same settings and seed: the same weights, rewards and losses after an iteration."""
    settings = {key: value for key, value in SMALL.items() if key != "env"} | {"train_batch_size": 128}
    flags = ["--run", "PPO", "--env", "CartPole-v1", "--config", json.dumps(settings), "--checkpoint-at-end"]
    flags += ["--stop", '{"training_iteration": 1}', "-n", "by-flags", "--storage-path", str(tmp_path)]
    assert main(["train", *flags]) == 0
    (results,) = tmp_path.glob("by-flags/*/result.json")
    (checkpoint,) = (path for path in results.parent.glob("checkpoint*") if path.is_dir())
    found = {"flags": (outcome(json.loads(results.read_text().splitlines()[-1])), weights_at(checkpoint))}

    with PPOConfig.from_dict({"env": "CartPole-v1", **settings}).build() as algorithm:
        result = algorithm.train()
        found["program"] = outcome(result), algorithm.get_weights()["default_policy"]

    analysis = tune.run(
        PPOTrainer,
        config={"env": "CartPole-v1", **settings},
        stop={"training_iteration": 1},
        checkpoint_at_end=True,
        storage_path=tmp_path / "tune",
        verbose=0,
    )
    (trial,) = analysis.trials
    found["tune"] = outcome(trial.last_result), weights_at(trial.checkpoint)

    expected, weights = found.pop("program")
    assert np.isfinite(expected).all()
    for way, (others, own) in found.items():
        np.testing.assert_allclose(others, expected, rtol=1e-6, err_msg=way)
        assert own.keys() == weights.keys()
        for name, values in weights.items():
            np.testing.assert_array_equal(own[name], values, err_msg=f"{way}: {name}")
