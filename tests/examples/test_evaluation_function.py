"""The program examples/evaluation_function.py: a policy is measured with poles of other lengths."""

from __future__ import annotations

from typing import Any


def test_each_pole_has_its_reward_and_the_smallest_is_that_of_the_evaluation(example: Any) -> None:
    names = example("evaluation_function")
    (found,) = names["train"](names["settings"]().training(num_sgd_iter=2), 5)
    rewards = [found[f"pole_{length:g}"] for length in names["LENGTHS"]]
    assert min(rewards) == found["episode_reward_mean"] > 0
    assert len(set(rewards)) > 1, "the poles differ"
