"""Which trials are drawn, with which settings, and what is refused before anything starts."""

from typing import Any

import pytest

from reef.algorithms.ppo import PPOConfig
from reef.api.tune import Tune
from reef.errors import ConfigError
from reef.sweep.plan import MOST_TRIALS, Plan


def plan(parameters: dict[str, Any], stop: dict[str, float] | None = None, **fields: Any) -> Plan:
    settings = fields.pop("settings", {"seed": 7})
    base = PPOConfig.from_dict({"env": "CartPole-v1", "train_batch_size": 256, "sgd_minibatch_size": 32} | settings)
    scheme = Tune.model_validate({"parameters": parameters} | fields)
    return Plan(scheme, base, stop or {"training_iteration": 10})


def test_a_grid_makes_every_combination_as_often_as_asked():
    trials = plan({"lr": {"grid": [0.1, 0.01]}, "gamma": {"grid": [0.9, 0.99]}}, numSamples=2).trials
    assert [(trial.name, trial.repetition, *trial.parameters.values()) for trial in trials] == [
        ("trial_0001", 0, 0.1, 0.9),
        ("trial_0002", 0, 0.1, 0.99),
        ("trial_0003", 0, 0.01, 0.9),
        ("trial_0004", 0, 0.01, 0.99),
        ("trial_0005", 1, 0.1, 0.9),
        ("trial_0006", 1, 0.1, 0.99),
        ("trial_0007", 1, 0.01, 0.9),
        ("trial_0008", 1, 0.01, 0.99),
    ]


RANDOM = {
    "lr": {"logUniform": [1e-5, 1e-1]},
    "gamma": {"uniform": [0.8, 1]},
    "sgd_minibatch_size": {"uniform": [16, 64]},
    "model.fcnet_hiddens": {"choice": [[8], [16, 16]]},
}


def test_draws_lie_where_they_should_and_follow_from_the_seed():
    trials = plan(RANDOM, numSamples=200).trials
    rates = [trial.parameters["lr"] for trial in trials]
    assert 1e-5 <= min(rates) < 1e-4 < 1e-2 < max(rates) <= 1e-1
    assert 80 < sum(rate < 1e-3 for rate in rates) < 120, "evenly over the logarithm"
    assert {type(trial.parameters["sgd_minibatch_size"]) for trial in trials} == {int}
    assert all(16 <= trial.parameters["sgd_minibatch_size"] <= 64 for trial in trials)
    assert {len(trial.parameters["model.fcnet_hiddens"]) for trial in trials} == {1, 2}
    assert plan(RANDOM, numSamples=200).trials == trials
    assert plan(RANDOM, numSamples=200, settings={"seed": 8}).trials != trials
    unseeded = {"settings": {"seed": None}}
    assert plan(RANDOM, **unseeded).trials != plan(RANDOM, **unseeded).trials


def test_a_parameter_takes_the_place_of_the_setting_and_repetitions_have_seeds_of_their_own():
    made = plan(
        {"lr": {"grid": [0.5]}, "model.fcnet_hiddens": {"grid": [[4]]}},
        numSamples=2,
        settings={"seed": 7, "lr": 0.1, "model": {"fcnet_activation": "relu"}},
    )
    configs = [made.config(trial) for trial in made.trials]
    assert [(config.lr, config.seed, config.model.fcnet_hiddens) for config in configs] == [
        (0.5, 7, [4]),
        (0.5, 8, [4]),
    ]
    assert configs[0].model.fcnet_activation == "relu"
    assert made.base.lr == 0.1
    (fixed,) = plan({"seed": {"grid": [3]}}).trials
    assert plan({"seed": {"grid": [3]}}).config(fixed).seed == 3


@pytest.mark.parametrize(
    ("parameters", "fields", "expected"),
    [
        ({"lrr": {"grid": [1]}}, {}, "spec.tune.parameters.lrr: PPO has no such setting. Did you mean 'lr'?"),
        ({"model.fcnet_hidden": {"grid": [[1]]}}, {}, "'fcnet_hiddens'"),
        ({"config.lr": {"grid": [1]}}, {}, "parameters.config.lr: keys begin inside spec.config. Write 'lr'."),
        (
            {"spec.config.lr": {"grid": [1]}},
            {},
            "parameters.spec.config.lr: keys begin inside spec.config. Write 'lr'.",
        ),
        ({"lr.x": {"grid": [1]}}, {}, "spec.tune.parameters.lr.x=1: lr has nothing inside"),
        ({"lr": {"grid": [0.1, "fast"]}}, {}, "spec.tune.parameters.lr='fast': expected number"),
        ({"gamma": {"uniform": [0.5, 2]}}, {}, "spec.tune.parameters.gamma=2"),
        ({"sgd_minibatch_size": {"uniform": [0.5, 2]}}, {}, "expected whole number"),
        ({"env": {"grid": ["CartPole-v1"]}}, {}, "env: the environment is the job's"),
        ({"sgd_minibatch_size": {"grid": [64, 512]}}, {}, "with sgd_minibatch_size=512: 1 problem"),
        ({"lr": {"grid": [1]}}, {"numSamples": MOST_TRIALS + 1}, f"at most {MOST_TRIALS}"),
        ({"lr": {"grid": [1]}}, {"metric": "evaluation/episode_reward_mean"}, "Set config.evaluation_interval"),
        ({"lr": {"grid": [1]}}, {"scheduler": {"kind": "asha", "gracePeriod": 10}}, "gracePeriod=10"),
    ],
)
def test_what_is_wrong_is_named_with_its_fix(parameters, fields, expected):
    with pytest.raises(ConfigError) as refusal:
        plan(parameters, **fields)
    assert expected in str(refusal.value)


def test_everything_wrong_is_said_at_once():
    with pytest.raises(ConfigError) as refusal:
        plan(
            {"lrr": {"grid": [1]}, "gamma": {"grid": [3]}},
            metric="evaluation/episode_reward_mean",
            scheduler={"kind": "asha", "gracePeriod": 99},
        )
    assert all(text in str(refusal.value) for text in ("'lr'", "gamma=3", "evaluation_interval", "gracePeriod=99"))


def test_what_optuna_cannot_propose_is_refused(monkeypatch: pytest.MonkeyPatch):
    made = plan({"lr": {"uniform": [0.1, 0.2]}}, numSamples=3, search="optuna")
    assert [(trial.name, trial.parameters) for trial in made.trials] == [
        ("trial_0001", {}),
        ("trial_0002", {}),
        ("trial_0003", {}),
    ]
    wrong = {"lr": {"grid": [0.1]}, "num_workers": {"choice": [0, 1]}, "num_gpus": {"choice": [0, 1]}}
    monkeypatch.setattr("reef.sweep.plan.find_spec", lambda name: None)
    with pytest.raises(ConfigError) as caught:
        plan(wrong, search="optuna")
    text = str(caught.value)
    assert "spec.tune.search=optuna: the package is not installed. Install reef[optuna]" in text
    assert "spec.tune.parameters.lr: search optuna chooses values by itself. Give `choice`" in text
    assert "spec.tune.parameters.num_workers: with search optuna all trials reserve the same" in text
    assert "spec.tune.parameters.num_gpus: with search optuna all trials reserve the same" in text
