"""When a line is met: pure functions of the evaluations that were made during training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

IN_A_ROW = 3  # evaluations
TOLERANCE = 0.1  # share of the reward that the last evaluation may be below it


class Threshold(NamedTuple):
    """A mean reward to reach within a number of environment steps."""

    steps: int
    reward: float


class Evaluation(NamedTuple):
    """Mean reward of the greedy policy after so many environment steps and seconds of training."""

    steps: int
    seconds: float
    reward: float


def reached(evaluations: Sequence[Evaluation], threshold: Threshold) -> bool:
    """Whether `IN_A_ROW` consecutive evaluations within the steps have the reward."""
    row = 0
    for each in evaluations:
        row = row + 1 if each.reward >= threshold.reward and each.steps <= threshold.steps else 0
        if row == IN_A_ROW:
            return True
    return False


def held(evaluations: Sequence[Evaluation], threshold: Threshold) -> bool:
    """Whether the last evaluation is at the end of the steps and has not fallen far below the reward."""
    last = evaluations[-1]
    return last.steps >= threshold.steps and last.reward >= threshold.reward - TOLERANCE * abs(threshold.reward)


def met(
    evaluations: Sequence[Evaluation],
    thresholds: Sequence[Threshold],
    unlearned: Sequence[float],
    compared: float = -math.inf,
) -> bool:
    """Whether a seed met a line: every threshold was reached, the last one held, and what learned nothing falls short.

    `thresholds` in the order of their steps; `unlearned`: rewards of policies that were not trained; `compared`: a
    reward that is measured with the line, to be reached like the last threshold and held in full.
    """
    if not evaluations or max(unlearned) >= min(each.reward for each in thresholds):
        return False
    last = thresholds[-1]
    every = all(reached(evaluations, each) for each in (*thresholds, Threshold(last.steps, compared)))
    return every and held(evaluations, last) and evaluations[-1].reward >= compared


@dataclass(frozen=True)
class FirstPass:
    """The first evaluation above a line, and what came of it."""

    steps: int
    seconds: float
    share_after: float | None  # of the later evaluations that are above the line; None when it was the last


def first_pass(evaluations: Sequence[Evaluation], threshold: Threshold) -> FirstPass | None:
    """Find the first evaluation that has the reward, or None."""
    above = [each.reward >= threshold.reward for each in evaluations]
    if True not in above:
        return None
    index = above.index(True)
    later = above[index + 1 :]
    share = sum(later) / len(later) if later else None
    return FirstPass(evaluations[index].steps, evaluations[index].seconds, share)
