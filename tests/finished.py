"""Checkpoints of small policies, and what is used of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reef.algorithms.registry import config_class
from reef.config import AlgorithmConfig
from reef.serving.finished import FinishedPolicy

SMALL = {"train_batch_size": 16, "sgd_minibatch_size": 16, "num_sgd_iter": 1, "model": {"fcnet_hiddens": [8]}}
MEMORY = {
    "use_lstm": True,
    "lstm_cell_size": 4,
    "max_seq_len": 4,
    "fcnet_hiddens": [8],
    "lstm_use_prev_action": True,
    "lstm_use_prev_reward": True,
}


def ppo(**settings: Any) -> AlgorithmConfig:
    """A small PPO, on CartPole unless the settings say otherwise."""
    return config_class("PPO").from_dict({"env": "CartPole-v1", "seed": 1, **SMALL, **settings})


def checkpoint_of(config: AlgorithmConfig, folder: Path) -> str:
    """Train an iteration, and save."""
    with config.build() as algorithm:
        algorithm.train()
        algorithm.save(folder)
    return str(folder)


def finished(config: AlgorithmConfig, folder: Path, **options: Any) -> FinishedPolicy:
    """The policy of such a checkpoint."""
    return FinishedPolicy(checkpoint_of(config, folder), **options)
