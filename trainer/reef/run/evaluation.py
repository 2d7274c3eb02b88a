"""Evaluation: episodes with workers of their own, whose data is not learned from."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from reef.batch import Episode, Sample
from reef.config import AlgorithmConfig
from reef.envs.failures import env_name
from reef.envs.make import LOOP_SETTINGS, make_envs
from reef.errors import ConfigError, WorkerTimeoutError
from reef.rollout.seams import Workers
from reef.rollout.worker import RolloutWorker
from reef.run.metrics import summarize_episodes
from reef.spaces import Layout, PolicySpaces
from reef.types import State, Weights

log = logging.getLogger(__name__)
OF_ENVIRONMENT = {"env", "env_config", "observation_space", "action_space", *LOOP_SETTINGS}
TIMED_OUT = (
    "evaluation took longer than evaluation_sample_timeout_s=%g; the metrics of the last one are reported. Either "
    "(1) raise evaluation_sample_timeout_s, (2) lower evaluation_duration or set evaluation_duration_unit='timesteps', "
    "or (3) raise evaluation_num_workers. %s"
)
GREEDY = (
    "evaluation takes the most likely action, but %s was trained to draw its actions, and may do better or worse so. "
    "Set evaluation_config={'explore': True} (reef evaluate: --explore) to evaluate it as it acts in training, or "
    "explore to False there (--no-explore) to keep this without the warning."
)


class Evaluation:
    """Runs `evaluation_duration` episodes or steps every `evaluation_interval` iterations.

    Its workers are made at the first evaluation: in this process, or `evaluation_num_workers` Ray actors.
    """

    def __init__(self, config: AlgorithmConfig, make_workers: Callable[[AlgorithmConfig, int], Workers]) -> None:
        """`config`: that of training; `make_workers(settings, count)` is called with those of evaluation."""
        self.config = config
        self._make_workers = make_workers
        self.settings = config.evaluation_settings().freeze()
        self._spaces = self._try_env()
        self._told_of_greedy = False
        self.latest: dict[str, Any] | None = None
        self._workers: Workers | None = None
        self._stored: State | None = None

    def _try_env(self) -> PolicySpaces:
        """Make and close an environment as evaluation will, now and not after hours of training: its spaces by policy.

        Nothing is made where evaluation has no environment of its own. Raises as `make_envs`.
        """
        if not self.config.evaluation_interval or not self.config.evaluation_config.keys() & OF_ENVIRONMENT:
            return {}
        env = make_envs(self.settings, 1 if self.config.evaluation_num_workers else 0, 1)
        env.close()
        return {policy_id: (own.observation_space, own.action_space) for policy_id, own in env.columns.items()}

    def check_spaces(self, trained: PolicySpaces) -> None:
        """Raise ConfigError where a policy that is `trained` for these spaces cannot act in evaluation."""
        name = env_name(self.settings.env)
        for policy_id, spaces in self._spaces.items():
            if policy_id not in trained:
                raise ConfigError(
                    f"evaluation_config: in its environment {name!r} acts {policy_id!r}, which is not trained."
                )
            for own, other in zip(spaces, trained[policy_id], strict=True):
                if not self.config.model.custom_model and not Layout.of(own).fits(Layout.of(other)):
                    raise ConfigError(
                        f"evaluation_config: its environment {name!r} has the space {own}, and the "
                        f"policy is trained for {other}. Evaluate in an environment with the same spaces."
                    )

    @property
    def workers(self) -> Workers:
        """The evaluation workers."""
        if self._workers is None:
            self._workers = self._make_workers(self.settings, self.config.evaluation_num_workers)
            if self._stored is not None:
                self._workers.set_state(self._stored)
                self._stored = None  # workers in their place would go back to it
        return self._workers

    @property
    def has_workers(self) -> bool:
        """Whether the workers were made already."""
        return self._workers is not None

    def progress(self) -> list[tuple[int, float]]:
        """As `Algorithm.progress`; empty while there are no workers."""
        workers = self._workers
        return [] if workers is None else [workers.local_worker().progress]

    def is_due(self, iteration: int) -> bool:
        """Whether iteration number `iteration` (from 1) ends with an evaluation."""
        interval = self.config.evaluation_interval
        return interval is not None and interval > 0 and iteration % interval == 0

    def run(self, weights: Weights, trained: RolloutWorker, iteration: int, timestep: int) -> dict[str, Any]:
        """Evaluate the `weights` after `iteration`, with the filters of the `trained` worker.

        Returns the metrics of the episodes; after a time-out those of the evaluation before.
        """
        try:
            self.latest = {"training_iteration": iteration, **self._run(weights, trained, timestep)}
        except WorkerTimeoutError as error:
            log.warning(TIMED_OUT, self.config.evaluation_sample_timeout_s, error)
            self.stop()
            empty = {"training_iteration": None, "episodes_this_iter": 0, "timesteps_this_iter": 0}
            return self.latest or empty | summarize_episodes([])
        return self.latest

    def _run(self, weights: Weights, trained: RolloutWorker, timestep: int) -> dict[str, Any]:
        workers = self.workers
        if not self._told_of_greedy:
            tell_of_greedy(self.config, trained)
            self._told_of_greedy = True
        workers.set_weights(weights, trained.policy_version, timestep)
        workers.set_filters({policy_id: observed.state() for policy_id, observed in trained.filters.items()})
        samples = (
            self._episodes(workers) if self.config.evaluation_duration_unit == "episodes" else self._steps(workers)
        )
        episodes: list[Episode] = [episode for sample in samples for episode in sample.episodes]
        return {
            **summarize_episodes(episodes, keep_per_episode=self.config.keep_per_episode_custom_metrics),
            "episodes_this_iter": len(episodes),
            "timesteps_this_iter": sum(sample.env_steps for sample in samples),
            "num_healthy_workers": workers.num_healthy if self.config.evaluation_num_workers else 0,
        }

    def _episodes(self, workers: Workers) -> list[Sample]:
        return workers.sample_episodes(int(self.config.evaluation_duration))

    def _steps(self, workers: Workers) -> list[Sample]:
        count = workers.num_healthy or self.config.evaluation_num_workers  # none yet: `sample` waits for them
        columns = count * self.settings.num_envs_per_worker
        return workers.sample(math.ceil(int(self.config.evaluation_duration) / columns), reset_episodes=True)

    def state(self) -> State:
        """The latest metrics and the workers' states."""
        workers = self._workers.state() if self._workers is not None else self._stored
        return {"latest": self.latest, "workers": workers}

    def set_state(self, state: State) -> None:
        """The reverse of `state`."""
        self.latest, self._stored = state["latest"], None
        if state["workers"] is None:
            self.stop()
        elif self._workers is None:
            self._stored = state["workers"]  # for those that the next evaluation makes
        else:
            self._workers.set_state(state["workers"])

    def stop(self) -> None:
        """End the workers; the next evaluation would start new ones."""
        if self._workers is not None:
            self._workers.stop()
            self._workers = None


def tell_of_greedy(config: AlgorithmConfig, trained: RolloutWorker) -> None:
    """Warn where a policy that draws its actions is evaluated without, unless the settings say so themselves."""
    draws = any(runner.exploration.draws_from_policy for runner in trained.runners.values())
    if config.explore and "explore" not in config.evaluation_config and draws:
        log.warning(GREEDY, config.label)
