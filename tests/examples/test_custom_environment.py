"""The program examples/custom_environment.py: a house is heated at lower cost than by a thermostat."""

from __future__ import annotations

from typing import Any

from gymnasium.utils.env_checker import check_env


def test_ppo_heats_better_than_a_thermostat(example: Any) -> None:
    names = example("custom_environment")
    assert names["train"](names["settings"](), 40) > names["thermostat"](20) + 1


def test_the_house_keeps_gymnasium_s_contract(example: Any) -> None:
    check_env(example("custom_environment")["House"]({}), skip_render_check=True)


def test_a_better_insulated_house_costs_less(example: Any) -> None:
    names = example("custom_environment")

    def cost(**env_config: float) -> float:
        house = names["House"](env_config)
        house.reset(seed=1)
        return -sum(float(house.step([0.5])[1]) for _ in range(96))

    assert cost(insulation=20.0) < cost()
