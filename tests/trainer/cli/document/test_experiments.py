"""Experiments in RLlib's form become job documents."""

from __future__ import annotations

from typing import Any

import pytest

from reef.api import job_from_document
from reef.cli.document.experiments import document_of, documents_of, experiments_in
from reef.errors import ConfigError

CARTPOLE = {"run": "PPO", "env": "CartPole-v1", "stop": {"training_iteration": 3}}


def spec_of(**keys: Any) -> dict[str, Any]:
    document = document_of({**CARTPOLE, **keys}, "job", "here")
    job_from_document(document)
    spec: dict[str, Any] = document["spec"]
    return spec


def test_each_experiment_of_a_file_is_a_job_of_its_name() -> None:
    found = experiments_in({"CartPole PPO": CARTPOLE, "second": {**CARTPOLE, "run": "DQN"}})
    with pytest.warns(UserWarning, match="f.yaml: CartPole PPO is an experiment of RLlib") as warned:
        first, second = documents_of(found, "f.yaml")
    assert len(warned) == 2
    assert (first["metadata"]["name"], second["metadata"]["name"]) == ("cartpole-ppo", "second")
    assert second["spec"]["algorithm"] == "DQN"
    assert experiments_in({"kind": "RLTrainingJob"}) == experiments_in([1]) == experiments_in({"a": {"env": "x"}}) == {}


def test_keys_move_to_their_places() -> None:
    spec = spec_of(
        config={"lr": 0.1, "env_config": {"size": 3}},
        checkpoint_freq=5,
        checkpoint_at_end=False,
        keep_checkpoints_num=2,
        checkpoint_score_attr="min-episode_len_mean",
        restore="/ck",
        framework="torch",
    )
    assert spec["environment"] == {"name": "CartPole-v1", "config": {"size": 3}}
    assert spec["config"] == {"lr": 0.1, "framework": "torch"}
    assert spec["checkpoint"] == {"frequency": 5, "atEnd": False, "keep": 2, "scoreAttribute": "min-episode_len_mean"}
    assert (spec["restoreFrom"], "tune" in spec) == ("/ck", False)
    assert spec_of(env=None, config={"env": "Taxi-v3"})["environment"]["name"] == "Taxi-v3"


def test_searches_make_a_sweep() -> None:
    config = {"lr": {"grid_search": [0.1, 0.2]}, "model": {"fcnet_hiddens": {"grid_search": [[8], [16]]}}, "gamma": 0.9}
    spec = spec_of(config=config | {"env_config": {"size": {"grid_search": [1, 2]}}}, num_samples=2, max_failures=1)
    assert spec["tune"]["parameters"] == {
        "lr": {"grid": [0.1, 0.2]},
        "model.fcnet_hiddens": {"grid": [[8], [16]]},
        "env_config.size": {"grid": [1, 2]},
    }
    assert spec["tune"]["numSamples"] == 2
    assert spec["config"] == {"model": {}, "gamma": 0.9}
    assert spec["faultTolerance"] == {"backoffLimit": 1}


def test_repetitions_alone_differ_in_their_seed() -> None:
    assert spec_of(num_samples=3)["tune"]["parameters"] == {"seed": {"grid": [0, 1, 2]}}
    assert spec_of(num_samples=2, config={"seed": 5})["tune"]["parameters"] == {"seed": {"grid": [5, 6]}}


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("HyperBand", {"grace_period": 2, "brackets": 2}, {"kind": "hyperBand", "gracePeriod": 2, "brackets": 2}),
        ("AsyncHyperBand", {"reduction_factor": 3}, {"kind": "asha", "reductionFactor": 3}),
        ("MedianStopping", {"min_samples_required": 2}, {"kind": "medianStopping", "minSamples": 2}),
        ("asha", {}, {"kind": "asha"}),
    ],
)
def test_schedulers_by_their_older_names(name: str, fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert spec_of(num_samples=2, scheduler=name, scheduler_config=fields)["tune"]["scheduler"] == expected
    given = spec_of(
        num_samples=2, scheduler=name, scheduler_config=fields | {"metric": "episode_len_mean", "mode": "min"}
    )
    assert (given["tune"]["metric"], given["tune"]["mode"]) == ("episode_len_mean", "min")
    assert "scheduler" not in spec_of(num_samples=2, scheduler="FIFO")["tune"]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"num_sample": 2}, "f: a.num_sample: is no key of an experiment. Did you mean 'num_samples'?"),
        (
            {"resources_per_trial": {"cpu": 1}},
            "a.resources_per_trial: the resources of a trial have been automatically",
        ),
        ({"local_dir": "/x"}, "a.local_dir: give it as --storage-path."),
        ({"env": None}, "f: a: it has no env. Give one, such as env: CartPole-v1."),
        ({"scheduler": "HyperBand"}, "scheduler=HyperBand: there is one trial, and none to compare it with."),
        ({"scheduler": "HyperBnd", "num_samples": 2}, "scheduler='HyperBnd' is unknown. Did you mean 'hyperband'?"),
        ({"scheduler_config": {"a": 1}}, "scheduler_config: there is no scheduler."),
        ({"max_failures": 2}, "max_failures=2: only trials of a sweep are started again."),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_wrong_experiments(keys: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        list(documents_of({"a": CARTPOLE | keys}, "f"))
    assert expected in str(caught.value)
