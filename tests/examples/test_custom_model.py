"""The program examples/custom_model.py: a network that treats all coins alike learns from fewer steps."""

from __future__ import annotations

from typing import Any

import torch


def test_the_own_network_collects_more_coins_after_the_same_steps(example: Any) -> None:
    names = example("custom_model")
    settings, train = names["settings"], names["train"]
    plain = train(settings(fcnet_hiddens=[64, 64]), 12)
    assert train(settings(custom_model=names["SetNetwork"]), 12) > 1.5 * plain


def test_the_order_of_the_coins_means_nothing(example: Any) -> None:
    names = example("custom_model")
    network = names["SetNetwork"](names["Coins"].observation_space, names["Coins"].action_space, 4)
    coins = torch.rand(2, names["COINS"], 3)
    for one, other in zip(network(coins), network(coins.flip(1)), strict=True):
        torch.testing.assert_close(one, other)


def test_a_coin_is_collected_once_and_then_is_nothing(example: Any) -> None:
    coins = example("custom_model")["Coins"]({})
    coins.reset(seed=1)
    coins.coins[0] = 0.1, 0.0
    coins.coins[1:] = 1.0
    observation, reward, *_ = coins.step(0)
    assert (reward, observation[0].tolist()) == (1.0, [0.0, 0.0, 0.0])
    assert coins.step(1)[1] == 0
