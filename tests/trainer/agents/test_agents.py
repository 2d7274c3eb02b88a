"""Programs that name algorithms as older versions of RLlib do."""

from __future__ import annotations

import importlib

import pytest
import reef.agents.ppo as ppo

from reef.agents import FAMILIES
from reef.algorithms.registry import ALGORITHMS, algorithm_class
from reef.errors import ConfigError

SMALL = {"train_batch_size": 64, "sgd_minibatch_size": 32, "num_sgd_iter": 1, "model": {"fcnet_hiddens": [4]}}


def test_a_trainer_is_made_of_the_default_settings() -> None:
    config = ppo.DEFAULT_CONFIG.copy()
    config["num_gpus"] = 0
    with pytest.warns(FutureWarning, match="'num_workers' is now called 'num_rollout_workers'"):
        config["num_workers"] = 0
    config.update(SMALL, lr=1e-3)
    with ppo.PPOTrainer(config=config, env="CartPole-v1") as trainer:
        assert trainer.train()["timesteps_total"] == 64
        assert trainer.config.changed() == {**SMALL, "env": "CartPole-v1", "lr": 1e-3, "model": trainer.config.model}
    assert ppo.DEFAULT_CONFIG["train_batch_size"] == 4000, "the copy was changed"


def test_every_algorithm_has_a_trainer() -> None:
    found = []
    for family, trainers in FAMILIES.items():
        module = importlib.import_module(f"reef.agents.{family}")
        assert dir(module) == sorted([*trainers, "DEFAULT_CONFIG"])
        assert getattr(module, next(iter(trainers))).config_class().to_dict() == module.DEFAULT_CONFIG
        for trainer, name in trainers.items():
            assert getattr(module, trainer) is algorithm_class(name)
            assert getattr(module, algorithm_class(name).config_class.__name__) is algorithm_class(name).config_class
            found.append(name)
    assert set(ALGORITHMS) - {"IQL", "TQC"} == set(found), "older versions of RLlib have neither"
    assert len(found) == len(set(found))


def test_the_config_class_is_there_too() -> None:
    assert ppo.PPOTrainer is ppo.PPO
    assert ppo.PPOConfig().to_dict() == ppo.DEFAULT_CONFIG


def test_what_is_not_there_is_refused_with_what_is() -> None:
    with pytest.raises(AttributeError, match=r"'reef\.agents\.ppo' has no attribute 'PP0Trainer': it has PPOTrainer, "):
        ppo.PP0Trainer  # noqa: B018
    with pytest.raises(ImportError, match=r"reef\.agents\.pp0"):
        importlib.import_module("reef.agents.pp0")


def test_a_setting_in_two_spellings_means_the_last_one() -> None:
    config = ppo.DEFAULT_CONFIG.copy()
    with pytest.warns(FutureWarning):
        config["monitor"] = False
        config["lambda"] = 0.9
    assert config["lambda_"] == 0.9
    with pytest.raises(ConfigError, match="no_such_setting"):
        ppo.PPOTrainer(config | {"no_such_setting": 1}, "CartPole-v1")
