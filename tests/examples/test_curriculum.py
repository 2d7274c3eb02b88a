"""The program examples/curriculum.py: the full lake is learned with its curriculum and not without."""

from __future__ import annotations

from typing import Any

ITERATIONS = 80


def test_the_example_learns_the_full_lake_and_fails_without_its_curriculum(example: Any) -> None:
    names = example("curriculum")
    settings, train = names["settings"], names["train"]
    assert train(settings(env_task_fn=names["grow"]), ITERATIONS) == 1
    assert train(settings(env_config={"size": names["LARGEST"]}), ITERATIONS) == 0
