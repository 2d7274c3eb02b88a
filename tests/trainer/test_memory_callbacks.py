"""Memory as custom metrics: reef.callbacks.memory."""

from __future__ import annotations

import tracemalloc

from reef import PPOConfig
from reef.callbacks import MemoryTrackingCallbacks


def test_memory_is_reported_with_each_episode():
    config = PPOConfig().environment("CartPole-v1", horizon=5).callbacks(MemoryTrackingCallbacks)
    sizes = {"train_batch_size": 16, "sgd_minibatch_size": 16, "num_sgd_iter": 1, "model": {"fcnet_hiddens": [4]}}
    try:
        with config.update_from_dict(sizes).build() as algorithm:
            metrics = algorithm.train()["custom_metrics"]
    finally:
        tracemalloc.stop()
    assert metrics["memory/vms_mean"] > metrics["memory/rss_mean"] > 1e6
    assert metrics["memory/data_mean"] > 1e6
    assert any(key.startswith("tracemalloc/") and key.endswith("/size_max") for key in metrics)
