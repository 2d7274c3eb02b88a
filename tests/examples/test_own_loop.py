"""The program examples/own_loop.py: the cross-entropy method on Reef's workers and policy."""

from __future__ import annotations

from typing import Any


def test_the_loop_learns_from_the_best_episodes(example: Any) -> None:
    names = example("own_loop")
    rewards = names["train"](names["settings"](), 10)
    assert rewards[0] < 50
    assert max(rewards) > 150
