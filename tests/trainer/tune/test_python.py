"""reef.tune in Python programs: algorithms as trainables of Ray Tune, their checkpoints, resources, and wrong use."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
from ray.tune import CheckpointConfig, FailureConfig, RunConfig
from ray.tune.schedulers import HyperBandScheduler, MedianStoppingRule, PopulationBasedTraining
from reef.agents.ppo import PPOTrainer
from tests.sweeps import SMALL  # as processes of Ray find it too

from reef import tune
from reef.algorithms.ppo import PPO, PPOConfig
from reef.errors import ConfigError
from reef.run.algorithm import Algorithm
from reef.tune.trainable import comparable

pytestmark = pytest.mark.timeout(300)


def small_config() -> PPOConfig:
    return PPOConfig.from_dict(SMALL)


@pytest.mark.ray
def test_run_by_name_has_the_checkpoints_of_every_trial(ray_cluster: Any) -> None:
    analysis = tune.run(
        "PPO",
        name="by-name",
        stop={"training_iteration": 2},
        config={**SMALL, "lr": tune.grid_search([0.01, 0.001])},
        checkpoint_at_end=True,
        verbose=0,
    )
    assert sorted(trial.config["lr"] for trial in analysis.trials) == [0.001, 0.01]
    assert analysis.experiment_path == str(Path("~/reef_results/by-name").expanduser())
    best = analysis.get_best_trial("episode_reward_mean", "max")
    ((path, reward),) = analysis.get_trial_checkpoints_paths(best, "episode_reward_mean")
    assert reward == best.last_result["episode_reward_mean"]
    last = analysis.get_last_checkpoint(metric="episode_reward_mean", mode="max")
    assert last.path == path
    assert not list(Path(path).glob("*.pkl"))
    with Algorithm.from_checkpoint(last) as algorithm:
        assert (algorithm.iteration, algorithm.timestep) == (2, 128)
        assert algorithm.config.lr == best.config["lr"]
    with small_config().build() as algorithm:
        algorithm.restore(path)
        assert algorithm.train()["training_iteration"] == 3


@pytest.mark.ray
def test_workers_of_a_trial_run_in_the_room_that_its_settings_ask_for(ray_cluster: Any, tmp_path: Path) -> None:
    config = small_config().rollouts(num_rollout_workers=1)
    results = tune.Tuner(
        PPO,
        param_space=config,
        run_config=RunConfig(
            stop={"training_iteration": 1},
            storage_path=str(tmp_path),
            checkpoint_config=CheckpointConfig(checkpoint_at_end=True),
            verbose=0,
        ),
    ).fit()
    assert [result.metrics["num_healthy_workers"] for result in results] == [1]
    best = results.get_best_result("episode_reward_mean", "max")
    assert str(tmp_path) in best.path
    with Algorithm.from_checkpoint(best.checkpoint) as algorithm:
        assert (algorithm.iteration, algorithm.config.num_rollout_workers) == (1, 1)


def test_resources_follow_from_the_settings() -> None:
    config = small_config().rollouts(num_rollout_workers=2).resources(num_cpus_per_worker=0.5).evaluation()
    request = tune.trainable("PPO").default_resource_request(config.to_dict())
    assert request.bundles == [{"CPU": 1.0}, {"CPU": 0.5}, {"CPU": 0.5}]
    assert request.strategy == "PACK"


def test_names_are_those_of_the_algorithms() -> None:
    class Mine(PPO):
        pass

    assert [tune.trainable(given).__name__ for given in ("ppo", PPO, PPOTrainer, Mine)] == ["PPO", "PPO", "PPO", "Mine"]
    assert tune.trainable(Mine).algorithm is Mine
    assert tune.trainable(print) is print  # a function of Ray Tune's


@pytest.mark.ray
def test_a_dictionary_of_all_settings_is_a_search_space(ray_cluster: Any, tmp_path: Path) -> None:
    space = small_config().training(gamma=tune.grid_search([0.9, 0.99])).to_dict()
    run_config = RunConfig(stop={"training_iteration": 1}, storage_path=str(tmp_path), verbose=0)
    results = tune.Tuner("PPO", param_space=space, run_config=run_config).fit()
    assert sorted(result.config["gamma"] for result in results) == [0.9, 0.99]


class FailsOnce(PPO):
    """Fails in its third iteration unless a file says that it did so before."""

    def training_step(self) -> Any:
        marker = Path(self.config.env_config["marker"])
        if self.iteration == 2 and not marker.exists():
            marker.touch()
            raise RuntimeError("lost on purpose")
        return super().training_step()


@pytest.mark.ray
def test_a_failed_trial_goes_on_from_its_newest_checkpoint(ray_cluster: Any, tmp_path: Path) -> None:
    config = {**SMALL, "env": "tests.short_episodes:Short", "env_config": {"marker": str(tmp_path / "marker")}}
    options: dict[str, Any] = {"storage_path": tmp_path, "name": "fails", "verbose": 0}
    analysis = tune.run(
        FailsOnce, config=config, stop={"training_iteration": 4}, checkpoint_freq=1, max_failures=1, **options
    )
    (trial,) = analysis.trials
    assert (trial.status, trial.num_failures) == ("TERMINATED", 1)
    assert trial.last_result["training_iteration"] == 4
    assert trial.last_result["timesteps_total"] == 4 * 64
    assert trial.last_result["iterations_since_restore"] == 2


class UntilExchanged(tune.Stopper):  # type: ignore[name-defined, misc]
    """Ends all trials when one has trained with the settings of another, or after 500 iterations."""

    def __init__(self) -> None:
        self.is_over = False

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.is_over = self.is_over or result["config"]["lr"] == 0.005 or result["training_iteration"] >= 500
        return self.is_over

    def stop_all(self) -> bool:
        return self.is_over


@pytest.mark.ray
def test_population_based_training_exchanges_checkpoints_and_settings(ray_cluster: Any, tmp_path: Path) -> None:
    scheduler = PopulationBasedTraining(
        metric="episode_reward_mean",
        mode="max",
        time_attr="training_iteration",
        perturbation_interval=2,
        quantile_fraction=0.5,
        resample_probability=1.0,
        hyperparam_mutations={"lr": [0.005]},
    )
    (tmp_path / "met").mkdir()
    meeting = {"folder": str(tmp_path / "met"), "count": 2, "driver": os.getpid()}
    limits = {"max_episode_steps": tune.grid_search([20, 3])}
    analysis = tune.run(
        PPOTrainer,
        config={**SMALL, "env": "tests.meeting:Meeting", "lr": 0.01, "env_config": meeting | limits},
        stop=UntilExchanged(),
        scheduler=scheduler,
        storage_path=tmp_path,
        reuse_actors=True,
        verbose=0,
    )
    taken = next(trial for trial in analysis.trials if trial.config["lr"] == 0.005)
    assert taken.last_result["info"]["learner"]["default_policy"]["learner_stats"]["cur_lr"] == 0.005
    assert taken.last_result["iterations_since_restore"] < taken.last_result["training_iteration"]


def test_a_trial_goes_on_from_a_checkpoint_with_settings_of_its_own(tmp_path: Path) -> None:
    """As population-based training has it do, in a new process or, with `reset`, in the same one."""
    kind = tune.trainable("PPO")
    first = kind(SMALL | {"lr": 0.01})
    first.train()
    first.save(str(tmp_path / "checkpoint"))
    second = kind(SMALL | {"lr": 0.005})
    second.restore(str(tmp_path / "checkpoint"))
    assert first.reset(SMALL | {"lr": 0.005})
    first.restore(str(tmp_path / "checkpoint"))
    for trial in (first, second):
        result = trial.train()
        assert (result["training_iteration"], result["timesteps_total"]) == (2, 128)
        assert result["info"]["learner"]["default_policy"]["learner_stats"]["cur_lr"] == 0.005
        trial.stop()


@pytest.mark.ray
@pytest.mark.parametrize(
    "scheduler",
    [
        lambda: HyperBandScheduler(metric="episode_reward_mean", mode="max", max_t=3),
        lambda: MedianStoppingRule(metric="episode_reward_mean", mode="max", grace_period=1, min_samples_required=1),
    ],
    ids=["hyperband", "median"],
)
def test_schedulers_of_ray_work(scheduler: Any, ray_cluster: Any, tmp_path: Path) -> None:
    config = {**SMALL, "lr": tune.grid_search([0.01, 1e-9])}
    options: dict[str, Any] = {"storage_path": tmp_path, "verbose": 0, "scheduler": scheduler()}
    analysis = tune.run("PPO", config=config, stop={"training_iteration": 3}, **options)
    assert {trial.status for trial in analysis.trials} == {"TERMINATED"}
    assert all(1 <= trial.last_result["training_iteration"] <= 3 for trial in analysis.trials)


def test_numbers_that_are_not_known_can_be_compared() -> None:
    result = comparable({"episode_reward_mean": None, "episode_reward_reason": None, "training_iteration": 1})
    assert result["training_iteration"] == 1
    assert math.isnan(result["episode_reward_mean"])
    assert "episode_reward_reason" not in result
    assert comparable({"episode_reward_reason": "no episode has ended yet"}) == {
        "episode_reward_reason": "no episode has ended yet"
    }


@pytest.mark.parametrize(
    ("algorithm", "options", "text"),
    [
        ("PPOO", {}, "algorithm='PPOO' is unknown. Did you mean 'PPO'?"),
        ("PPO", {"local_dir": "a", "storage_path": "b"}, "local_dir='a': an older name of storage_path"),
        (
            "PPO",
            {"checkpoint_config": CheckpointConfig(), "checkpoint_freq": 2},
            "checkpoint_config is given, and beside it checkpoint_frequency. Put them into it.",
        ),
    ],
)
def test_wrong_arguments_are_refused_before_ray_starts(algorithm: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text.replace("?", r"\?")):
        tune.run(algorithm, config=SMALL, **options)


@pytest.mark.ray
@pytest.mark.parametrize("given", [{}, {"run_config": tune.RunConfig(stop={"training_iteration": 1})}])
def test_results_of_a_tuner_are_where_all_others_are(given: dict[str, Any], ray_cluster: Any) -> None:
    tuner: Any = tune.Tuner("PPO", param_space={"env": "CartPole-v1"}, **given)
    assert tuner._local_tuner.get_run_config().storage_path == str(Path.home() / "reef_results")


@pytest.mark.ray
def test_wrong_settings_are_refused_before_a_trial_starts(ray_cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="lr=-1.0: must be larger than 0") as caught:
        tune.run("PPO", config={**SMALL, "lr": tune.grid_search([0.1, -1])}, storage_path=tmp_path, verbose=0)
    assert isinstance(caught.value, ConfigError)
    with pytest.raises(Exception, match="have been automatically set"):
        tune.run("PPO", config=SMALL, resources_per_trial={"cpu": 2}, storage_path=tmp_path, verbose=0)
    with pytest.raises(ConfigError, match="learnin_rate: PPO has no such setting"):
        tune.Tuner(
            "PPO",
            param_space={**SMALL, "learnin_rate": 1},
            run_config=RunConfig(failure_config=FailureConfig(), storage_path=str(tmp_path), verbose=0),
        ).fit()
