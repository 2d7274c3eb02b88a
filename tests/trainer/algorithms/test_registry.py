from __future__ import annotations

import pytest

from reef.algorithms.registry import ALGORITHMS, algorithm_class, config_class
from reef.errors import ConfigError


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


def test_a_planned_algorithm_is_told_from_a_misspelt_one() -> None:
    with pytest.raises(ConfigError, match="algorithm='sac' is not available yet. Available: DQN, PPO"):
        config_class("sac")
