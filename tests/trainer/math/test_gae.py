from __future__ import annotations

import numpy as np
import pytest

from reef.math.gae import gae


def column(*values: float) -> np.ndarray:
    return np.array(values, np.float32)[:, None]


def flags(*values: int) -> np.ndarray:
    return np.array(values, np.bool_)[:, None]


def test_hand_numbers() -> None:
    advantages, targets = gae(
        column(1, 2, 3), column(0.5, 1, 1.5), column(1, 1.5, 2), flags(0, 0, 0), flags(0, 0, 0), 0.5, 0.5
    )
    # deltas: 1 + .5 - .5 = 1; 2 + .75 - 1 = 1.75; 3 + 1 - 1.5 = 2.5, each carried back with gamma * lambda = 0.25
    assert advantages[:, 0].tolist() == [1 + 0.25 * (1.75 + 0.25 * 2.5), 1.75 + 0.25 * 2.5, 2.5]
    assert targets[:, 0].tolist() == pytest.approx([2.09375, 3.375, 4.0])


def test_a_terminated_step_has_no_successor() -> None:
    advantages, _ = gae(column(1, 5), column(0, 0), column(100, 0), flags(1, 0), flags(0, 0), 0.9, 1.0)
    assert advantages[:, 0].tolist() == [1, 5]


def test_a_truncated_step_keeps_the_value_of_its_successor_and_nothing_of_the_next_episode() -> None:
    advantages, _ = gae(column(1, 5), column(0, 0), column(100, 0), flags(0, 0), flags(1, 0), 0.9, 1.0)
    assert advantages[:, 0].tolist() == [91, 5]


@pytest.mark.parametrize("garbage", [7.0, np.nan, np.inf])
def test_a_masked_step_counts_for_nothing(garbage: float) -> None:
    advantages, _ = gae(
        column(1, garbage, 5), column(0, 3, 0), column(0, garbage, 0), flags(1, 0, 0), flags(0, 0, 0), 0.9, 1.0,
        np.array([[True], [False], [True]]),
    )  # fmt: skip
    assert advantages[:, 0].tolist() == [1, 0, 5]


def test_lambda_1_is_monte_carlo_and_lambda_0_one_step() -> None:
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, 20, 3)).astype(np.float32)
    next_values = np.concatenate([values[1:], np.zeros((1, 3), np.float32)])
    none = np.zeros((20, 3), np.bool_)
    discounts = 0.9 ** np.arange(20)
    _, targets = gae(rewards, values, next_values, none, none, 0.9, 1.0)
    returns = [(rewards[t:] * discounts[: 20 - t, None]).sum(0) for t in range(20)]
    np.testing.assert_allclose(targets, returns, rtol=1e-4, atol=1e-5)
    one_step, _ = gae(rewards, values, next_values, none, none, 0.9, 0.0)
    np.testing.assert_allclose(one_step, rewards + 0.9 * next_values - values, rtol=1e-5, atol=1e-6)
