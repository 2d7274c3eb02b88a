"""The program examples/callbacks.py, in short."""

from __future__ import annotations

from typing import Any

from reef import PPOConfig


def test_the_example_reports_its_numbers(example: Any) -> None:
    names = example("callbacks")
    config = PPOConfig().environment("CartPole-v1").callbacks([names["NearTheEdge"], names["StopsWhenSafe"]])
    with config.training(train_batch_size=200).debugging(seed=1).build() as algorithm:
        result = algorithm.train()
    assert 0 <= result["custom_metrics"]["near_the_edge_mean"] <= 1
    assert len(result["hist_stats"]["angles"]) == sum(result["hist_stats"]["episode_lengths"])
    assert result["done"] is (result["custom_metrics"]["near_the_edge_mean"] < 0.05)
