"""A run is checked once and put together from one set of parts."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPO, PPOConfig
from reef.api import job_from_document
from reef.cli.experiment import Options, run_job
from reef.config import AlgorithmConfig
from reef.errors import ConfigError
from reef.rollout import worker
from reef.run.build import build_algorithm, make_local_worker
from reef.run.folders import with_output_in

SMALL = {"train_batch_size": 64, "sgd_minibatch_size": 64, "num_sgd_iter": 1, "num_envs_per_worker": 2}


def document(config: dict[str, Any], **spec: Any) -> Any:
    base = {"algorithm": "PPO", "environment": {"name": "CartPole-v1"}, "stop": {"training_iteration": 1}}
    spec = base | {"config": SMALL | config} | spec
    return {"apiVersion": "reef.dev/v1", "kind": "RLTrainingJob", "metadata": {"name": "cart"}, "spec": spec}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Sizes of vector environments that were made, and settings that were validated."""
    found: dict[str, list[Any]] = {"environments": [], "validated": []}
    make, validate = worker.make_envs, AlgorithmConfig.validate

    def counted(config: AlgorithmConfig, index: int, count: int, **rest: Any) -> Any:
        found["environments"].append(count)
        return make(config, index, count, **rest)

    def noted(config: AlgorithmConfig) -> AlgorithmConfig:
        found["validated"].append(config.num_rollout_workers)
        return validate(config)

    monkeypatch.setattr(worker, "make_envs", counted)
    monkeypatch.setattr(AlgorithmConfig, "validate", noted)
    return found


def test_a_run_in_one_process_is_checked_once_and_makes_no_environment_but_those_it_samples_in(
    made: dict[str, list[Any]], tmp_path: Path
) -> None:
    assert run_job(job_from_document(document({})), Options(tmp_path, verbosity=1)) == 0
    assert made == {"environments": [2], "validated": [0]}


@pytest.mark.parametrize(
    ("config", "pools", "environments", "validated"),
    [
        ({"num_rollout_workers": 2}, [], [1], [2]),  # to know the spaces before Ray starts
        ({"num_rollout_workers": 2, "create_env_on_local_worker": True}, [], [2], [2]),
        ({"num_learner_workers": 1}, [], [2], [0]),
        ({}, [{"name": "a", "replicas": 2, "rolloutWorkers": 2}], [1], [4, 3]),  # again, as there is room for fewer
    ],
)
def test_a_run_with_ray_trains_with_the_worker_that_its_settings_were_tried_out_with(
    made: dict[str, list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    config: dict[str, Any],
    pools: list[dict[str, Any]],
    environments: list[int],
    validated: list[int],
) -> None:
    calls: list[dict[str, Any]] = []

    def run_experiment(config: Any, **arguments: Any) -> SimpleNamespace:
        calls.append({"config": config, **arguments})
        return SimpleNamespace(result=None, exit_code=0)

    monkeypatch.setattr("reef.run.build.run_experiment", run_experiment)
    monkeypatch.setattr("reef.cli.experiment._session", lambda *_: nullcontext())
    monkeypatch.setattr("reef.distributed.resources.check_resources", lambda config: None)
    asked = document(config | {"batch_mode": "complete_episodes"}, **({"workers": pools} if pools else {}))
    with pytest.warns(UserWarning, match="room for 3") if pools else nullcontext():
        assert run_job(job_from_document(asked), Options(tmp_path)) == 0
    assert made == {"environments": environments, "validated": validated}
    assert calls[0]["local"].config is calls[0]["config"] is calls[0]["config"].checked()


def test_an_algorithm_samples_with_the_worker_that_it_is_given() -> None:
    config = PPOConfig.from_dict(SMALL).environment("CartPole-v1").checked()
    local = make_local_worker(config, with_env=True)
    with build_algorithm(config, local) as algorithm:
        assert algorithm.workers.local_worker() is local
        assert algorithm.config is config
        assert algorithm.train()["timesteps_total"] == 64


def test_a_worker_that_is_not_used_has_its_environments_closed(tmp_path: Path) -> None:
    config = PPOConfig.from_dict(SMALL | {"output": "logdir"}).environment("CartPole-v1").checked()
    tried = make_local_worker(config, with_env=True)
    stopped: list[bool] = []
    tried.stop = lambda: stopped.append(True)  # type: ignore[method-assign]
    with build_algorithm(with_output_in(config, tmp_path), tried) as algorithm:
        assert algorithm.workers.local_worker() is not tried
        assert stopped == [True]


class Own(PPO):
    """An algorithm whose settings have no name of their own."""


@pytest.mark.parametrize("kind", [PPO, Own])
def test_an_algorithm_is_made_of_settings_in_every_form(kind: type[PPO]) -> None:
    of_mapping = kind({**SMALL, "num_workers": 0}, env="CartPole-v1")
    of_config = kind(config=PPOConfig.from_dict(SMALL).environment("CartPole-v1"))
    for algorithm in (of_mapping, of_config):
        with algorithm:
            assert type(algorithm) is kind
            assert algorithm.train()["timesteps_total"] == 64


def test_settings_of_another_algorithm_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"PPO got a DQNConfig: give a PPOConfig, or a dict of its settings\."):
        PPO(DQNConfig().environment("CartPole-v1"))


def test_a_wrong_setting_is_refused_as_elsewhere() -> None:
    with pytest.raises(ConfigError, match="lrr"):
        PPO({"lrr": 1.0}, env="CartPole-v1")
    with pytest.raises(ConfigError, match="env"):
        PPO({})
