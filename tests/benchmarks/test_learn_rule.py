"""When a line of `make learn` is met, from evaluations written down by hand."""

from __future__ import annotations

import pytest
from benchmarks.learn.rule import Evaluation, FirstPass, Threshold, first_pass, held, met, reached

LINE = Threshold(steps=500, reward=100.0)


def evaluations(*rewards: float) -> list[Evaluation]:
    """One every 100 steps, which take a second."""
    return [Evaluation(100 * number, float(number), reward) for number, reward in enumerate(rewards, 1)]


def test_three_in_a_row_within_the_steps_are_enough():
    assert reached(evaluations(0, 100, 100, 101, 0), LINE)
    assert reached(evaluations(0, 0, 100, 100, 100), LINE)


@pytest.mark.parametrize(
    "rewards",
    [
        (0, 0, 0, 100, 100),
        (100, 100, 0, 100, 100),
        (100, 100, 99.9, 100, 100),
        (0, 0, 0, 100, 100, 100),
        (0, 0, 0, 0, 0, 200, 200, 200),
    ],
    ids=["two in a row", "two in a row twice", "one just below", "the third too late", "all too late"],
)
def test_fewer_or_later_ones_are_not(rewards: tuple[float, ...]):
    assert not reached(evaluations(*rewards), LINE)


def test_the_last_evaluation_may_be_a_tenth_below():
    assert held(evaluations(0, 0, 0, 0, 90), LINE)
    assert not held(evaluations(100, 100, 100, 100, 89.9), LINE)


def test_a_tenth_below_a_negative_reward():
    line = Threshold(steps=500, reward=-200.0)
    assert held(evaluations(0, 0, 0, 0, -220), line)
    assert not held(evaluations(0, 0, 0, 0, -220.1), line)


def test_a_run_that_was_cut_off_holds_nothing():
    assert not held(evaluations(100, 100, 100, 100), LINE)


def test_a_run_that_ends_below_its_reward_is_not_met():
    assert met(evaluations(0, 100, 100, 100, 95), [LINE], [10.0, 20.0])
    assert not met(evaluations(0, 100, 100, 100, 80), [LINE], [10.0, 20.0])


def test_every_threshold_has_to_be_reached_in_its_steps_and_the_last_one_held():
    two = [Threshold(steps=300, reward=50.0), LINE]
    assert met(evaluations(50, 50, 100, 100, 100), two, [0.0])
    assert not met(evaluations(0, 50, 100, 100, 100), two, [0.0])
    assert not met(evaluations(50, 50, 100, 100, 99), two, [0.0])
    assert not met(evaluations(100, 100, 100, 60, 60), two, [0.0])


@pytest.mark.parametrize("unlearned", [(100.0, 0.0), (0.0, 100.0)], ids=["random", "untrained"])
def test_a_line_that_needs_no_learning_is_never_met(unlearned: tuple[float, float]):
    assert not met(evaluations(200, 200, 200, 200, 200), [LINE], unlearned)


def test_the_easiest_threshold_is_the_one_that_no_learning_must_miss():
    two = [Threshold(steps=300, reward=50.0), LINE]
    assert not met(evaluations(100, 100, 100, 100, 100), two, [60.0])


def test_a_measured_reward_of_others_is_reached_as_well_and_held_in_full():
    learned = evaluations(0, 100, 100, 101, 95)
    assert met(learned, [LINE], [0.0], compared=95.0)
    assert not met(learned, [LINE], [0.0], compared=96.0), "the last one is below"
    assert not met(evaluations(0, 100, 100, 101, 200), [LINE], [0.0], compared=102.0), "never three in a row"


def test_first_pass_and_what_came_of_it():
    assert first_pass(evaluations(0, 100, 0, 100, 0), LINE) == FirstPass(200, 2.0, 1 / 3)
    assert first_pass(evaluations(0, 0, 0, 0, 100), LINE) == FirstPass(500, 5.0, None)
    assert first_pass(evaluations(0, 99), LINE) is None
