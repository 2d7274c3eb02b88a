"""Puts a run together: the one place that makes workers and learners and hands them to an algorithm.

The command line, Python, the trials of a sweep and the head of a cluster's job all come here. It is the only module
that names lower layers, by string, so that Ray and the algorithms load when they are used.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from gymnasium import spaces

from reef.allocator import keep_freed_memory
from reef.config import AlgorithmConfig
from reef.config.loading import load
from reef.envs.make import unprepared
from reef.errors import ConfigError
from reef.learn.learner import Learner
from reef.learn.learner_group import Learners, LocalLearners
from reef.rollout.seams import Workers
from reef.rollout.worker_set import LocalWorkers
from reef.run.algorithm import Algorithm, Parts
from reef.run.checkpoint import find_checkpoint, read_algorithm, restoring
from reef.run.evaluation import Evaluation
from reef.types import State

log = logging.getLogger(__name__)


def build_algorithm(config: AlgorithmConfig) -> Algorithm:
    """The algorithm of settings that were checked and are frozen; `AlgorithmConfig.build` checks them first.

    Raises:
        ConfigError, EnvironmentError: environment, network or algorithm cannot be made.
        ResourceError, WorkerError: the cluster is too small, or none of the workers can be made.
    """
    if not config.algorithm_class:
        raise ConfigError(f"{config.label} names no algorithm. Use the configuration of one, such as PPOConfig.")
    algorithm_class: type[Algorithm] = load(config.algorithm_class, "algorithm")
    os.environ.update(config.extra_python_environs_for_driver)
    keep_freed_memory()
    evaluation = Evaluation(config, partial(make_workers, evaluation=True))
    with ExitStack() as on_failure:  # or their processes would stay behind
        workers = make_workers(config, config.num_rollout_workers)
        on_failure.callback(workers.stop)
        local = workers.local_worker()
        evaluation.check_spaces(local.observation_space, local.action_space)
        for text in (*local.policy.ignored_settings(), *unprepared(config, local.observation_space)):
            log.warning("%s", text)
        learners = make_learners(
            algorithm_class.learner_class,
            config,
            local.observation_space,
            local.action_space,
            neighbours=lambda: workers.num_here,
        )
        on_failure.callback(learners.stop)
        algorithm = algorithm_class(config, Parts(workers=workers, learners=learners, evaluation=evaluation))
        on_failure.pop_all()
    return algorithm


def build_from_checkpoint(path: str | Path) -> Algorithm:
    """The algorithm that wrote a checkpoint, with its settings, and restored."""
    path = find_checkpoint(path)
    state, metadata = read_algorithm(path)
    config: AlgorithmConfig = load("reef.algorithms.registry:stored_config")(metadata)
    return build_restored(config, path, state)


def build_restored(config: AlgorithmConfig, path: str | Path, state: State) -> Algorithm:
    """The algorithm of these settings with the `state` of the checkpoint at `path`; nothing is left of a failure."""
    with ExitStack() as on_failure:
        algorithm = config.build()
        on_failure.callback(algorithm.stop)
        with restoring(path):
            algorithm.set_state(state)
        on_failure.pop_all()
    return algorithm


def make_workers(config: AlgorithmConfig, count: int, *, evaluation: bool = False) -> Workers:
    """`count` workers as Ray actors; with 0 one in this process."""
    if count == 0:
        return LocalWorkers(config)
    ray_workers = load("reef.distributed.worker_set:RayWorkers")
    return ray_workers(config, count, evaluation=evaluation)  # type: ignore[no-any-return]


def make_learners(
    learner_class: type[Learner[Any]],
    config: AlgorithmConfig,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    neighbours: Callable[[], int],
) -> Learners:
    """The learner in this process, or several as Ray actors; `neighbours()` counts rollout workers on this machine."""
    if config.num_learner_workers == 0:
        return LocalLearners(learner_class, config, observation_space, action_space, neighbours)
    ray_learners = load("reef.distributed.learner_group:RayLearners")
    return ray_learners(learner_class, config, observation_space, action_space)  # type: ignore[no-any-return]
