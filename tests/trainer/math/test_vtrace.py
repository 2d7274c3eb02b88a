from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reef.math.gae import gae
from reef.math.vtrace import vtrace

GAMMA = 0.9


def column(*values: float) -> np.ndarray:
    return np.array(values, np.float32)[:, None]


def flags(*values: int) -> np.ndarray:
    return np.array(values, np.bool_)[:, None]


def random_batch(steps: int = 12, columns: int = 5, ends: float = 0.2) -> dict[str, np.ndarray]:
    """Episodes that end or are cut off in the middle; a successor has the value of the next step, except at ends."""
    rng = np.random.default_rng(3)
    values = rng.normal(size=(steps, columns)).astype(np.float32)
    next_values = rng.normal(size=(steps, columns)).astype(np.float32)
    terminated = rng.random((steps, columns)) < ends
    truncated = (rng.random((steps, columns)) < ends) & ~terminated
    inside = ~(terminated | truncated)[:-1]
    next_values[:-1][inside] = values[1:][inside]
    return {
        "log_ratios": rng.normal(size=(steps, columns)).astype(np.float32),
        "rewards": rng.normal(size=(steps, columns)).astype(np.float32),
        "values": values,
        "next_values": next_values,
        "terminated": terminated,
        "truncated": truncated,
    }


def by_definition(
    batch: dict[str, np.ndarray], lambda_: float = 1.0, clip_rho: float = 1.0, clip_pg_rho: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Eq. 1 and the policy gradient of section 4.2, one column and one sum after the other."""
    ratios, values = np.exp(batch["log_ratios"].astype(np.float64)), batch["values"].astype(np.float64)
    rhos, cs = np.minimum(clip_rho, ratios), lambda_ * np.minimum(1.0, ratios)
    after = np.where(batch["terminated"], 0.0, batch["next_values"])
    deltas = rhos * (batch["rewards"] + GAMMA * after - values)
    ended = batch["terminated"] | batch["truncated"]
    targets, advantages = np.array(values), np.zeros_like(values)
    for b in range(values.shape[1]):
        for s in range(len(values)):
            product = 1.0
            for t in range(s, len(values)):
                targets[s, b] += GAMMA ** (t - s) * product * deltas[t, b]
                product *= cs[t, b]
                if ended[t, b]:
                    break
        for s in range(len(values)):
            inside = s + 1 < len(values) and not ended[s, b]
            target = targets[s + 1, b] if inside else after[s, b]
            error = batch["rewards"][s, b] + GAMMA * target - values[s, b]
            advantages[s, b] = min(clip_pg_rho, ratios[s, b]) * error
    return advantages, targets


def test_hand_numbers() -> None:
    advantages, targets = vtrace(
        np.log(column(2, 0.5, 1)), column(1, 2, 3), column(0.5, 1, 1.5), column(1, 1.5, 2),
        flags(0, 0, 0), flags(0, 0, 0), 0.5,
    )  # fmt: skip
    # errors 1, 1.75, 2.5; rho 1, 0.5, 1; corrections 2.5, 0.875 + 0.25 * 2.5 = 1.5, 1 + 0.5 * 1.5 = 1.75
    assert targets[:, 0].tolist() == [0.5 + 1.75, 1 + 1.5, 1.5 + 2.5]
    assert advantages[:, 0].tolist() == [1 + 0.5 * 1.5, 0.5 * (1.75 + 0.5 * 2.5), 2.5]


@pytest.mark.parametrize(
    "settings", [{}, {"lambda_": 0.7}, {"clip_rho": 3.0, "clip_pg_rho": 2.0}, {"clip_rho": 0.5, "clip_pg_rho": 0.4}]
)
def test_it_is_the_sum_of_the_definition(settings: dict[str, float]) -> None:
    batch = random_batch()
    for mine, slow in zip(vtrace(**batch, gamma=GAMMA, **settings), by_definition(batch, **settings), strict=True):
        np.testing.assert_allclose(mine, slow, rtol=1e-4, atol=1e-5)
        assert mine.dtype == np.float32


@pytest.mark.parametrize("lambda_", [1.0, 0.6, 0.0])
def test_with_ratios_of_one_the_targets_are_those_of_gae_and_so_n_step_returns(lambda_: float) -> None:
    batch = random_batch() | {"log_ratios": np.zeros((12, 5), np.float32)}
    advantages, targets = vtrace(**batch, gamma=GAMMA, lambda_=lambda_)
    rest = {name: array for name, array in batch.items() if name != "log_ratios"}
    expected, returns = gae(**rest, gamma=GAMMA, lambda_=lambda_)
    np.testing.assert_allclose(targets, returns, rtol=1e-5, atol=1e-5)
    if lambda_ == 1.0:
        np.testing.assert_allclose(advantages, expected, rtol=1e-5, atol=1e-5)


def split(batch: dict[str, np.ndarray], at: int, mine: slice) -> dict[str, np.ndarray]:
    assert mine.stop == at or mine.start == at
    return {name: array[mine] for name, array in batch.items()}


@pytest.mark.parametrize("end", ["truncated", "terminated"])
def test_a_batch_with_an_episode_end_inside_is_its_two_trajectories_apart(end: str) -> None:
    """The value of the reset observation, which is the next row, must not be read where an episode was cut off."""
    batch = random_batch(8, 3, ends=0.0)
    batch[end][3] = True
    batch["next_values"][3] = [5.0, -7.0, 9.0]  # of the last observations, which differ from the reset ones
    whole = vtrace(**batch, gamma=GAMMA)
    parts = [vtrace(**split(batch, 4, part), gamma=GAMMA) for part in (slice(0, 4), slice(4, 8))]
    for mine, first, second in zip(whole, *parts, strict=True):
        np.testing.assert_array_equal(mine, np.concatenate([first, second]))
    other = batch | {"values": np.concatenate([batch["values"][:4], 100 + batch["values"][4:]])}
    np.testing.assert_array_equal(vtrace(**other, gamma=GAMMA)[1][:4], whole[1][:4])


def test_a_truncated_step_is_worth_its_reward_and_what_follows_and_a_terminated_one_its_reward() -> None:
    common: tuple[Any, ...] = (column(0, 0), column(1, 5), column(0, 0), column(100, 0))
    _, cut_off = vtrace(*common, flags(0, 0), flags(1, 0), GAMMA)
    _, over = vtrace(*common, flags(1, 0), flags(0, 0), GAMMA)
    assert cut_off[:, 0].tolist() == [91, 5]
    assert over[:, 0].tolist() == [1, 5]


def test_a_cut_between_fragments_is_bootstrapped_like_a_truncation() -> None:
    batch = random_batch(6, 2, ends=0.0)
    first = split(batch, 3, slice(0, 3))
    truncated = np.zeros_like(first["truncated"])
    truncated[-1] = True
    for one, other in zip(
        vtrace(**first, gamma=GAMMA), vtrace(**(first | {"truncated": truncated}), gamma=GAMMA), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_masked_step_counts_for_nothing_whatever_it_holds() -> None:
    batch = random_batch(6, 2, ends=0.0)
    mask = np.ones((6, 2), np.bool_)
    mask[4:, 1] = False
    kept = split(batch, 4, slice(0, 4))
    expected = vtrace(**kept, gamma=GAMMA)
    batch["rewards"][4:, 1], batch["log_ratios"][4:, 1] = np.nan, 1000.0
    found = vtrace(**batch, gamma=GAMMA, mask=mask)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine[:4, 1], theirs[:, 1])
    assert found[0][4:, 1].tolist() == [0, 0]


def test_a_ratio_too_large_for_a_float_is_clipped_like_any_other() -> None:
    batch = random_batch()
    large = vtrace(**(batch | {"log_ratios": np.full((12, 5), 2000.0, np.float32)}), gamma=GAMMA)
    ones = vtrace(**(batch | {"log_ratios": np.zeros((12, 5), np.float32)}), gamma=GAMMA)
    for one, other in zip(large, ones, strict=True):
        np.testing.assert_array_equal(one, other)
