"""Importance sampling against exact values."""

from __future__ import annotations

import numpy as np
import pytest
from tabular import ACTED, BEHAVIOR, GAMMA, OBSERVED, TARGET, Table, exact_value, logged, played

from reef.errors import ConfigError
from reef.learn.estimators import ImportanceSampling, LoggedSteps, WeightedImportanceSampling
from reef.learn.estimators.importance import summed_logs

KINDS = [ImportanceSampling, WeightedImportanceSampling]


def made(kind: type[ImportanceSampling], gamma: float = GAMMA) -> ImportanceSampling:
    return kind(OBSERVED, ACTED, gamma=gamma, seed=0)


def three_errors(estimate: dict[str, float]) -> float:
    return 3 * estimate["v_target_std"] / np.sqrt(estimate["episodes"])


def test_ratios_are_multiplied_from_the_start_of_each_episode() -> None:
    log_ratios = np.log([2.0, 3.0, 0.5, 5.0, 7.0])
    np.testing.assert_allclose(np.exp(summed_logs(log_ratios, np.array([0, 3]))), [2, 6, 3, 5, 35])


def test_an_action_that_the_target_never_takes_leaves_other_episodes_alone() -> None:
    logs = summed_logs(np.array([-np.inf, 0.0, 0.0, np.log(2)]), np.array([0, 2]))
    assert logs.tolist() == [-np.inf, -np.inf, 0, np.log(2)]


def test_the_estimate_is_within_three_standard_errors_of_the_truth() -> None:
    estimate = made(ImportanceSampling).estimate(logged(4000), Table(TARGET))
    assert estimate["v_target"] == pytest.approx(exact_value(TARGET), abs=three_errors(estimate))
    assert abs(exact_value(TARGET) - exact_value(BEHAVIOR)) > 2 * three_errors(estimate), "or it would show nothing"
    behavior_error = 3 * estimate["v_behavior_std"] / np.sqrt(4000)
    assert estimate["v_behavior"] == pytest.approx(exact_value(BEHAVIOR), abs=behavior_error)


def test_weighted_ratios_lead_to_the_truth_with_less_variance() -> None:
    steps = logged(1500)
    weighted, plain = (made(kind).estimate(steps, Table(TARGET)) for kind in reversed(KINDS))
    assert weighted["v_target"] == pytest.approx(exact_value(TARGET), abs=0.1)
    assert weighted["v_target_high"] - weighted["v_target_low"] < plain["v_target_high"] - plain["v_target_low"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_policy_that_played_has_the_mean_of_what_it_got(kind: type[ImportanceSampling]) -> None:
    estimate = made(kind).estimate(logged(50), Table(BEHAVIOR))
    assert estimate["v_target"] == pytest.approx(estimate["v_behavior"])
    assert estimate["v_gain"] == pytest.approx(1.0)
    assert estimate["effective_episodes"] == pytest.approx(50)


def test_two_episodes_by_hand() -> None:
    """Ratios 1.6 and 0.4 at the first step, 0.5 at the second of the first episode."""
    one, other = played(2, seed=3)
    steps = LoggedSteps(
        obs=np.eye(3, dtype=np.float32)[[0, 1, 0]],
        actions=np.array([0, 0, 1]),
        rewards=np.array([1.0, 2.0, 4.0]),
        next_obs=np.eye(3, dtype=np.float32)[[1, 2, 2]],
        terminated=np.array([False, True, True]),
        starts=np.array([0, 2]),
        behavior_logp=np.log([0.5, 0.6, 0.5]),
    )
    assert len(LoggedSteps.of([one, other])) == len(one) + len(other)
    target = Table(TARGET)  # 0.8, 0.3 and 0.2
    np.testing.assert_allclose(made(ImportanceSampling).values(steps, target), [1.6 + 0.9 * 0.8 * 2, 0.4 * 4])
    # means of the products: (1.6 + 0.4) / 2, then (0.8 + 0.4) / 2 with the ended episode
    expected = [1.6 / 1.0 + 0.9 * 0.8 / 0.6 * 2, 0.4 / 1.0 * 4]
    np.testing.assert_allclose(made(WeightedImportanceSampling).values(steps, target), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_single_steps_are_those_of_a_bandit(kind: type[ImportanceSampling]) -> None:
    steps = logged(300).step_by_step()
    estimate = made(kind).estimate(steps, Table(TARGET))
    ratios = np.exp(Table(TARGET).logp(steps) - steps.behavior_logp)
    weights = ratios / ratios.mean() if kind is WeightedImportanceSampling else ratios
    assert estimate["episodes"] == len(steps)
    assert estimate["v_target"] == pytest.approx((weights * steps.rewards).mean())


@pytest.mark.parametrize("kind", KINDS)
def test_the_interval_holds_the_truth_about_as_often_as_it_says(kind: type[ImportanceSampling]) -> None:
    estimates = [made(kind).estimate(logged(60, seed=seed), Table(TARGET)) for seed in range(40)]
    held = [each["v_target_low"] <= exact_value(TARGET) <= each["v_target_high"] for each in estimates]
    assert 32 <= sum(held) <= 40


def test_a_seed_draws_the_same_interval() -> None:
    first, second = (made(ImportanceSampling).estimate(logged(20), Table(TARGET)) for _ in range(2))
    assert first == second


def test_a_target_that_takes_none_of_the_actions_is_worth_nothing_here() -> None:
    never = np.array([[0.0, 1.0]] * 3)
    steps = logged(30, policy=np.array([[1.0, 0.0]] * 3))
    for kind in KINDS:
        estimate = made(kind).estimate(steps, Table(never))
        assert (estimate["v_target"], estimate["effective_episodes"]) == (0.0, 0.0)


def test_gain_is_left_out_where_its_sense_would_turn() -> None:
    losing = logged(30)
    estimate = made(ImportanceSampling).estimate(
        LoggedSteps(**vars(losing) | {"rewards": -np.abs(losing.rewards)}), Table(TARGET)
    )
    assert estimate["v_gain"] is None
    assert estimate["v_delta"] == pytest.approx(estimate["v_target"] - estimate["v_behavior"])


def long_episodes(log_ratio: float, lengths: list[int]) -> LoggedSteps:
    """Episodes of reward -1 in each step, whose log ratios to `Table(TARGET)` are about `log_ratio`."""
    count = sum(lengths)
    noise = 0.1 * np.random.default_rng(0).standard_normal(count)
    return LoggedSteps(
        obs=np.eye(3, dtype=np.float32)[np.zeros(count, np.int64)],
        actions=np.zeros(count, np.int64),
        rewards=np.full(count, -1.0),
        next_obs=np.eye(3, dtype=np.float32)[np.zeros(count, np.int64)],
        terminated=np.isin(np.arange(count) + 1, np.cumsum(lengths)),
        starts=np.cumsum([0, *lengths[:-1]]),
        behavior_logp=np.log(TARGET[0, 0]) - log_ratio + noise,
    )


@pytest.mark.parametrize("log_ratio", [-0.9, 0.9])
def test_products_beyond_float64_are_weighed(log_ratio: float) -> None:
    estimate = made(WeightedImportanceSampling, gamma=1.0).estimate(
        long_episodes(log_ratio, [1000] * 20), Table(TARGET)
    )
    for key in ("v_target", "v_target_low", "v_target_high"):
        assert estimate[key] == pytest.approx(-1000)
    assert 1 <= estimate["effective_episodes"] < 10, "the products differ by e^6"


@pytest.mark.parametrize("log_ratio", [-0.9, 0.9])
def test_ended_episodes_count_beyond_float64_too(log_ratio: float) -> None:
    """The short episode outweighs the long one, or is outweighed, from its end on."""
    steps = long_episodes(log_ratio, [900, 1000])
    value = made(WeightedImportanceSampling, gamma=1.0).values(steps, Table(TARGET)).mean()
    assert value == pytest.approx(-900 if log_ratio < 0 else -1000, abs=2)


def test_likelihoods_that_are_not_recorded_are_named() -> None:
    first, second = played(2)
    second.extras.clear()
    with pytest.raises(ConfigError, match=r"1 of 2 recorded episodes do not say how likely .*action_logp.*or estimate"):
        made(ImportanceSampling).check(LoggedSteps.of([first, second]))
    with pytest.raises(ConfigError, match="1 of 2 recorded episodes"):
        LoggedSteps.of([first, second]).log_ratios(Table(TARGET))
