"""Population-based training: which trial goes on from which, and with what parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reef.algorithms.ppo import PPOConfig
from reef.api.tune import Tune
from reef.errors import ConfigError
from reef.sweep.plan import Plan
from reef.sweep.population import exchange
from reef.sweep.record import Record

LR = {"lr": {"logUniform": [1e-5, 1e-2]}}
SETTINGS = {"env": "CartPole-v1", "train_batch_size": 256, "sgd_minibatch_size": 32, "seed": 7}


def population(parameters: dict[str, Any] = LR, count: int = 4, mode: str = "max", **scheduler: Any) -> Plan:
    fields = {"kind": "pbt", "perturbationInterval": 5, **scheduler}
    tune = {"parameters": parameters, "numSamples": count, "mode": mode, "scheduler": fields}
    return Plan(Tune.model_validate(tune), PPOConfig.from_dict(SETTINGS), {"training_iteration": 50})


def record(plan: Plan, tmp_path: Path, *metrics: float | None, iteration: int = 5) -> Record:
    made = Record(tmp_path, "episode_reward_mean", plan.tune.mode, plan.trials)
    for trial, metric in zip(made.trials.values(), metrics, strict=True):
        trial.metric, trial.iteration, trial.state = metric, iteration, "running"
    return made


def test_the_weakest_goes_on_from_the_strongest_at_the_interval(tmp_path: Path) -> None:
    plan = population()
    made = record(plan, tmp_path, 4.0, 1.0, 3.0, 2.0)
    found = exchange(plan, made, "trial_0002")
    assert found is not None and found.source == "trial_0001"
    assert found == exchange(plan, made, "trial_0002"), "it follows from the seed"
    assert [exchange(plan, made, f"trial_000{number}") for number in (1, 3, 4)] == [None] * 3
    made.trials["trial_0002"].iteration = 6
    assert exchange(plan, made, "trial_0002") is None
    least = population(mode="min")
    assert exchange(least, record(least, tmp_path, 4.0, 1.0, 3.0, 2.0), "trial_0001").source == "trial_0002"  # type: ignore[union-attr]


def test_equal_failed_and_unknown_trials_are_no_sources(tmp_path: Path) -> None:
    plan = population()
    assert exchange(plan, record(plan, tmp_path, 1.0, 1.0, 1.0, 1.0), "trial_0001") is None
    assert exchange(plan, record(plan, tmp_path, 1.0, None, None, None), "trial_0001") is None
    made = record(plan, tmp_path, 1.0, 9.0, 5.0, None)
    made.trials["trial_0002"].state = "failed"
    assert exchange(plan, made, "trial_0001").source == "trial_0003"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("parameter", "before", "possible"),
    [
        ({"lr": {"logUniform": [1e-5, 1e-2]}}, 1e-3, {8e-4, 1.2e-3}),
        ({"lr": {"logUniform": [1e-5, 1e-2]}}, 1e-2, {8e-3, 1e-2}),  # within its limits
        ({"lr": {"grid": [0.1, 0.2, 0.3]}}, 0.2, {0.1, 0.3}),
        ({"lr": {"choice": [0.1, 0.2, 0.3]}}, 0.3, {0.2, 0.3}),
        ({"train_batch_size": {"uniform": [100, 1000]}}, 500, {400, 600}),
        ({"num_sgd_iter": {"uniform": [1, 10]}}, 2, {1, 3}),
    ],
)
def test_parameters_move_to_a_value_beside_that_of_the_source(
    parameter: dict[str, Any], before: Any, possible: set[Any], tmp_path: Path
) -> None:
    (key,) = parameter
    plan = population(parameter, count=2, resampleProbability=0)
    found = set()
    for iteration in range(5, 200, 5):
        made = record(plan, tmp_path, *[float(number) for number in range(len(plan.trials))], iteration=iteration)
        for trial in made.trials.values():
            trial.parameters = {key: before}
        change = exchange(plan, made, "trial_0001")
        assert change is not None
        found.add(change.parameters[key])
    assert found == possible


def test_parameters_are_drawn_again_with_the_given_probability(tmp_path: Path) -> None:
    plan = population({"lr": {"choice": [1e-4, 1e-3]}}, count=2, resampleProbability=1)
    made = record(plan, tmp_path, 1.0, 2.0)
    made.trials["trial_0002"].parameters = {"lr": 0.5}
    assert exchange(plan, made, "trial_0001").parameters["lr"] in (1e-4, 1e-3)  # type: ignore[union-attr]


def test_settings_that_would_contradict_each_other_stay_those_of_the_source(tmp_path: Path) -> None:
    plan = population({"sgd_minibatch_size": {"uniform": [16, 256]}}, count=2, resampleProbability=0)
    plan.base.train_batch_size = 20  # every neighbour of 100 is larger
    made = record(plan, tmp_path, 1.0, 2.0)
    made.trials["trial_0002"].parameters = {"sgd_minibatch_size": 100}
    assert exchange(plan, made, "trial_0001").parameters == {"sgd_minibatch_size": 100}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("parameters", "fields", "expected"),
    [
        (LR, {"perturbationInterval": 50}, "perturbationInterval=50: every trial ends by stop.training_iteration=50"),
        (LR, {"count": 1}, "kind=pbt: there is one trial, which has no other to go on from. Raise numSamples."),
        ({"model.fcnet_hiddens": {"choice": [[8], [9]]}}, {}, "kind=pbt: model.fcnet_hiddens cannot change in a trial"),
        ({"num_envs_per_worker": {"choice": [1, 2]}}, {}, "kind=pbt: num_envs_per_worker cannot change in a trial"),
        ({"num_rollout_workers": {"choice": [1, 2]}}, {}, "kind=pbt: num_rollout_workers cannot change in a trial"),
        ({"env_config.size": {"choice": [1, 2]}}, {}, "kind=pbt: env_config.size cannot change in a trial"),
        ({"seed": {"choice": [1, 2]}}, {}, "kind=pbt: seed cannot change in a trial that goes on."),
    ],
)
def test_what_cannot_be_exchanged_is_refused(parameters: dict[str, Any], fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        population(parameters, **fields)
    assert f"spec.tune.scheduler.{expected}" in str(caught.value)


def test_settings_of_training_can_be_exchanged() -> None:
    keys = {"num_sgd_iter": [1, 2], "lambda": [0.9, 1.0], "clip_param": [0.1, 0.2], "train_batch_size": [64, 128]}
    assert len(population({key: {"choice": values} for key, values in keys.items()}).trials) == 4


def test_all_trials_run_at_once() -> None:
    tune = {"parameters": LR, "numSamples": 4, "maxConcurrentTrials": 2, "scheduler": {"kind": "pbt"}}
    with pytest.raises(ConfigError, match="all 4 trials run at the same time. Leave out maxConcurrentTrials=2"):
        Plan(Tune.model_validate(tune), PPOConfig.from_dict(SETTINGS), {"training_iteration": 50})
