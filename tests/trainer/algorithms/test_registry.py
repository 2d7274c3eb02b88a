from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from types import ModuleType

import pytest

from reef.algorithms.registry import ALGORITHMS, algorithm_class, config_class, stored_config
from reef.errors import ConfigError
from reef.run.algorithm import Algorithm


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_name_leads_to_its_algorithm_and_settings(name: str) -> None:
    assert config_class(name).algorithm == name
    assert config_class(name).algorithm_class == ALGORITHMS[name]
    assert algorithm_class(name.lower()) is algorithm_class(name)


def test_a_misspelt_name_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'PPOO' is unknown.*'PPO'"):
        algorithm_class("PPOO")


def test_one_of_your_own_is_given_by_its_path() -> None:
    assert algorithm_class(ALGORITHMS["PPO"]) is algorithm_class("PPO")


@pytest.mark.parametrize("path", ["math:sqrt", "collections:OrderedDict", "reef.run.algorithm:Algorithm"])
def test_a_path_to_something_else_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match=f"algorithm='{path}': expected a subclass of reef.Algorithm"):
        config_class(path)


OWN = """
from reef.algorithms.ppo import PPO, PPOConfig
from reef.config import setting
from typing import ClassVar

class Plain(PPO): pass

class OwnSettings(PPOConfig):
    bonus: float = setting(0.0, "Bonus.")

class WithSettings(PPO):
    config_class = OwnSettings

class SameSettings(PPO):
    config_class = PPOConfig

class NamedSettings(PPOConfig):
    algorithm: ClassVar[str] = "MINE"
    algorithm_class: ClassVar[str] = f"{__name__}:Named"

class Named(PPO):
    config_class = NamedSettings

class PathSettings(PPOConfig):
    algorithm_class: ClassVar[str] = f"{__name__}:Path"

class Path(PPO):
    config_class = PathSettings
"""


@pytest.fixture(name="own")
def own_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "own_algorithms.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("own_algorithms")
    del sys.modules["own_algorithms"]


@pytest.mark.parametrize("name", ["Plain", "WithSettings", "SameSettings", "Named", "Path"])
def test_the_class_that_is_asked_for_is_built_and_written_down(name: str, own: ModuleType, tmp_path: Path) -> None:
    path = f"own_algorithms:{name}"
    settings = config_class(path)
    assert (settings.algorithm, settings.algorithm_class) == ("MINE" if name == "Named" else path, path)
    by_name = attrgetter(settings.__qualname__)(sys.modules[settings.__module__])
    assert by_name is settings, "so do Ray's processes find it"
    small = {"env": "CartPole-v1", "model": {"fcnet_hiddens": [4]}, "train_batch_size": 8, "sgd_minibatch_size": 8}
    with settings.from_dict(small).build() as algorithm:
        assert type(algorithm) is getattr(own, name)
        checkpoint = algorithm.save(tmp_path / "checkpoint")
    with Algorithm.from_checkpoint(checkpoint) as again:
        assert type(again) is getattr(own, name)
        assert type(again.config) is settings
    assert (config_class("PPO").algorithm, config_class("PPO").algorithm_class) == ("PPO", ALGORITHMS["PPO"])


def test_settings_of_your_own_build_the_algorithm_that_names_them(own: ModuleType) -> None:
    assert config_class("own_algorithms:WithSettings") is own.OwnSettings
    assert own.OwnSettings().label == "WithSettings"


def test_checkpoints_without_a_class_are_of_the_named_algorithm() -> None:
    assert type(stored_config({"algorithm": "PPO", "config": {"lr": 1.0}})) is config_class("PPO")
