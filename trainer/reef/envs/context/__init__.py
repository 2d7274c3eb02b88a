"""What an environment is told of where it is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reef.config import AlgorithmConfig
from reef.envs.check import render_mode_of


class EnvContext(dict[str, Any]):
    """The setting `env_config` as a dict, with where the environment is made as attributes."""

    def __init__(
        self,
        env_config: Mapping[str, Any],
        *,
        worker_index: int = 0,
        vector_index: int = 0,
        num_workers: int = 0,
        remote: bool = False,
        recreated_worker: bool = False,
        render_mode: str | None = None,
    ) -> None:
        """`render_mode`: how the environment is to draw itself; Gymnasium's ids are made with it."""
        super().__init__(env_config)
        self.worker_index = worker_index
        self.vector_index = vector_index
        self.num_workers = self.num_rollout_workers = num_workers
        self.remote = remote
        self.recreated_worker = recreated_worker
        self.render_mode = render_mode


def env_context(config: AlgorithmConfig, worker_index: int, vector_index: int = 0, *, recreated: bool) -> EnvContext:
    """The context of one environment of a worker."""
    return EnvContext(
        config.env_config,
        worker_index=worker_index,
        vector_index=vector_index,
        num_workers=config.num_rollout_workers,
        remote=config.remote_worker_envs,
        recreated_worker=recreated,
        render_mode=render_mode_of(config, worker_index, vector_index),
    )
