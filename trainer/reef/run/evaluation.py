"""Evaluation: episodes with workers of their own, whose data is not learned from."""

from __future__ import annotations

import json
import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from concurrent.futures import Future
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from reef.batch import Episode
from reef.callbacks.hooks import guarded
from reef.config import AlgorithmConfig
from reef.config.loading import load_function
from reef.envs.failures import env_name
from reef.envs.make import LOOP_SETTINGS, make_envs
from reef.errors import ConfigError, WorkerTimeoutError, sentence
from reef.rollout.policies.connectors import TO_ENV, TO_POLICY, observed_space
from reef.rollout.seams import Workers
from reef.rollout.videos.drawing import take_videos
from reef.rollout.worker import RolloutWorker
from reef.run.metrics import summarize_episodes
from reef.run.process.deadline import BackgroundDeadline, Deadline
from reef.run.recorded.estimation import Estimation
from reef.run.reporters.videos import VideoFolder
from reef.spaces import Layout, PolicySpaces
from reef.trees import json_safe
from reef.types import State

if TYPE_CHECKING:
    from reef.run.algorithm import Algorithm

T = TypeVar("T")
LOOK_AGAIN_S = 0.2  # how often to look whether the run is to end, while an evaluation is waited for
PATIENCE_S = 10.0  # for a thread that is to end, and for workers that are started again

log = logging.getLogger(__name__)
OF_ENVIRONMENT = {"env", "env_config", "observation_space", "action_space", TO_POLICY, TO_ENV, *LOOP_SETTINGS}
TIMED_OUT = (
    "evaluation took longer than evaluation_sample_timeout_s=%g; the metrics of the last one are reported. Either "
    "(1) raise evaluation_sample_timeout_s, (2) lower evaluation_duration or set evaluation_duration_unit='timesteps', "
    "or (3) raise evaluation_num_workers. %s"
)
NOT_STARTED = (
    "evaluation workers did not start within worker_restore_timeout_s=%g: there is no new evaluation. See that the "
    "cluster has room for evaluation_num_workers. %s"
)
NO_WORKER = (
    "evaluation waits for room: none of evaluation_num_workers={} is up. Training goes on without it. Lower "
    "evaluation_num_workers or num_rollout_workers, or give the cluster more room"
)
NOWHERE = (
    "evaluation has no environment to play in: env=None, so that neither this process nor evaluation workers have one. "
    "Either (1) set env, (2) give evaluation its own with evaluation_config={'env': ...}, or (3) set "
    "evaluation_interval=None and do not call evaluate()."
)
GREEDY = (
    "evaluation takes the most likely action, but %s was trained to draw its actions, and may do better or worse so. "
    "Set evaluation_config={'explore': True} (reef evaluate: --explore) to evaluate it as it acts in training, or "
    "explore to False there (--no-explore) to keep this without the warning."
)
CUSTOM = "custom_evaluation_function"


class Evaluation:
    """Runs `evaluation_duration` episodes or steps every `evaluation_interval` iterations.

    Its workers are made at the first evaluation: in this process, or `evaluation_num_workers` Ray actors. With those an
    evaluation can be under way in a thread, beside training; then only that thread uses them.
    """

    def __init__(
        self,
        config: AlgorithmConfig,
        make_workers: Callable[[AlgorithmConfig, int], Workers],
        deadline: BackgroundDeadline | None = None,
    ) -> None:
        """`config`: that of training; `make_workers(settings, count)` is called with those of evaluation.

        `deadline`: that of these workers, beside the run's.
        """
        self.config = config
        self._make_workers = make_workers
        self.settings = config.evaluation_settings().freeze()
        self.videos = VideoFolder(self.settings.record_env) if self.settings.record_env else None
        self._spaces = self._try_env()
        self._told_of_greedy = False
        self.latest: dict[str, Any] | None = None
        self._workers: Workers | None = None
        self._stored: State | None = None
        self._deadline = deadline or BackgroundDeadline(Deadline())
        self._under_way: Future[dict[str, Any]] | None = None
        self._training_is_over = threading.Event()  # beside which it is under way
        self._had_worker_at = 0.0  # when one was up last, or the evaluation began
        self.problem = ""  # why an evaluation beside training does not end; empty without a problem
        self._estimation: Estimation | None = None

    def _try_env(self) -> PolicySpaces:
        """Make and close an environment as evaluation will, now and not after hours of training: its spaces by policy.

        Nothing is made where evaluation has no environment of its own. Raises as `make_envs`.
        """
        if not self.config.evaluation_interval or not self.config.evaluation_config.keys() & OF_ENVIRONMENT:
            return {}
        env = make_envs(self.settings, 1 if self.config.evaluation_num_workers else 0, 1)
        env.close()
        return {
            policy_id: (observed_space(self.settings.for_policy(policy_id), own.observation_space), own.action_space)
            for policy_id, own in env.columns.items()
        }

    def check_spaces(self, trained: PolicySpaces) -> None:
        """Raise ConfigError where a policy that is `trained` for these spaces cannot act in evaluation, or nowhere."""
        if self.config.evaluation_interval:
            self._require_env()
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

    def read_recorded(self, trained: RolloutWorker) -> None:
        """Read the recorded episodes to evaluate by, if there are any; ConfigError where these policies cannot be."""
        if self.settings.off_policy_estimation_methods:
            self._estimation = Estimation(self.settings, trained)

    @property
    def workers(self) -> Workers:
        """The evaluation workers; ConfigError where they would have no environment."""
        if self._workers is None:
            self._require_env()
            self._workers = self._make_workers(self.settings, self.config.evaluation_num_workers)
            if self._stored is not None:
                self._workers.set_state(self._stored)
                self._stored = None  # workers in their place would go back to it
        return self._workers

    def _require_env(self) -> None:
        if self.settings.env is None:
            raise ConfigError(NOWHERE)

    @property
    def has_workers(self) -> bool:
        """Whether the workers were made already."""
        return self._workers is not None

    def progress(self) -> list[tuple[int, float]]:
        """As `Algorithm.progress`; empty while there are no workers."""
        workers = self._workers
        return [] if workers is None else [workers.local_worker().progress]

    def set_policies(self, config: AlgorithmConfig) -> None:
        """Play with the policies of `config` from the next evaluation on."""
        if self.is_under_way:  # and waits for workers
            self.stop()
        if self._stored is not None:  # for the policies from before
            _ = self.workers
        self.config, self.settings = config, config.evaluation_settings().freeze()
        if self._workers is not None:
            self._workers.set_policies(self.settings)

    def is_due(self, iteration: int) -> bool:
        """Whether iteration number `iteration` (from 1) ends with an evaluation."""
        interval = self.config.evaluation_interval
        return interval is not None and interval > 0 and iteration % interval == 0

    @property
    def is_under_way(self) -> bool:
        """Whether one was begun beside training and is not finished."""
        return self._under_way is not None

    def run(self, algorithm: Algorithm) -> dict[str, Any]:
        """Evaluate the newest weights of an algorithm, with the filters of its local worker.

        Returns the metrics of the episodes; after a time-out those of the evaluation before.
        """
        if self.is_under_way:  # and waits for workers
            self.stop()
        self._training_is_over.set()
        return self._recorded(lambda: self._measure(algorithm, self._prepared(algorithm), algorithm.iteration))

    def begin(self, algorithm: Algorithm) -> None:
        """As `run`, in a thread: training may go on, with other weights. None begins where its workers do not start."""
        self._training_is_over.clear()
        try:
            workers, iteration = self._prepared(algorithm), algorithm.iteration
        except WorkerTimeoutError as error:
            self._give_up(error)
            return
        self._had_worker_at = time.monotonic()
        self._under_way = in_background(lambda: self._measure(algorithm, workers, iteration))

    def finish(self, *, wait: bool) -> dict[str, Any] | None:
        """What `run` returns, of the one that was begun; None where it has not ended, unless this is to `wait`.

        It waits for no workers that do not come up: then the evaluation stays under way.
        """
        assert self._under_way is not None, "none was begun"
        self._training_is_over.set()
        while not self._under_way.done() and self._has_workers_up() and wait:
            self._deadline.end_if_over()
            futures.wait([self._under_way], timeout=LOOK_AGAIN_S)
        if not self._under_way.done():
            return None
        ended, self._under_way, self.problem = self._under_way, None, ""
        return self._recorded(ended.result)

    def _has_workers_up(self) -> bool:
        """Whether one works now, or did a moment ago; says so where none does."""
        assert self._workers is not None
        if self._workers.num_healthy:
            self._had_worker_at, self.problem = time.monotonic(), ""
        elif time.monotonic() - self._had_worker_at > PATIENCE_S and not self.problem:
            self.problem = NO_WORKER.format(self.config.evaluation_num_workers)
            log.warning("%s", self.problem)
        return not self.problem

    def _recorded(self, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            self.latest = measure()
        except WorkerTimeoutError as error:
            self._give_up(error)
            empty = {"training_iteration": None, "episodes_this_iter": 0, "timesteps_this_iter": 0}
            return self.latest or empty | summarize_episodes([])
        return self.latest

    def _give_up(self, error: WorkerTimeoutError) -> None:
        if error.in_start:
            log.warning(NOT_STARTED, self.settings.worker_restore_timeout_s, error)
        else:
            log.warning(TIMED_OUT, self.config.evaluation_sample_timeout_s, error)
        self.stop()

    def _prepared(self, algorithm: Algorithm) -> Workers:
        """The evaluation workers, with the newest weights and filters."""
        workers, trained = self.workers, algorithm.workers.local_worker()
        if not self._told_of_greedy:
            tell_of_greedy(self.config, trained)
            self._told_of_greedy = True
        workers.set_weights(
            algorithm.fixed_weights() | algorithm.learners.weights(), trained.policy_version, algorithm.timestep
        )
        workers.set_filters({policy_id: observed.state() for policy_id, observed in trained.filters.items()})
        return workers

    def _measure(self, algorithm: Algorithm, workers: Workers, iteration: int) -> dict[str, Any]:
        """The metrics of an evaluation of the weights of an iteration, with what is estimated of them."""
        metrics = self._metrics(algorithm, workers, iteration)
        if self._estimation is not None:
            metrics["off_policy_estimator"] = self.estimates(workers.local_worker())
        return metrics

    def estimates(self, worker: RolloutWorker) -> dict[str, Any]:
        """What recorded episodes say of the policy of a worker, by method; empty without such methods."""
        return {} if self._estimation is None else self._estimation.measure(worker)

    def _metrics(self, algorithm: Algorithm, workers: Workers, iteration: int) -> dict[str, Any]:
        """What comes of playing."""
        if self.config.custom_evaluation_function is not None:
            function = load_function(self.config.custom_evaluation_function, CUSTOM, "algorithm", "evaluation_workers")
            metrics = guarded(CUSTOM, function, algorithm, workers)
            return {"training_iteration": iteration, **self._media(workers, iteration), **checked_metrics(metrics)}
        episodes, steps = self._play(workers)
        return {
            "training_iteration": iteration,
            **summarize_episodes(episodes, keep_per_episode=self.config.keep_per_episode_custom_metrics),
            **self._media(workers, iteration),
            "timesteps_this_iter": steps,
            "num_healthy_workers": workers.num_healthy if self.config.evaluation_num_workers else 0,
        }

    def _media(self, workers: Workers, iteration: int) -> dict[str, Any]:
        """Where the videos of an evaluation are, whoever had it played; nothing where none are recorded."""
        if self.videos is None:
            return {}
        videos = [video for each in workers.collect(take_videos) for video in each]
        return {"episode_media": self.videos.write_all(videos, iteration)}

    def _play(self, workers: Workers) -> tuple[list[Episode], int]:
        """Play rounds until the duration is reached; returns the episodes and the number of steps.

        One round is enough, unless workers fail in it. With the duration "auto" a round is an episode of each
        environment, or a fragment, and none begins once training is over.
        """
        config, unit, wanted = self.config, self.config.evaluation_duration_unit, self.config.evaluation_duration
        log.info("Evaluating current policy for %s.", "one iteration" if wanted == "auto" else f"{wanted} {unit}")
        episodes: list[Episode] = []
        steps = done = 0
        for number in count():
            num_workers = workers.num_healthy or config.evaluation_num_workers  # none yet: they are waited for
            columns = num_workers * self.settings.num_envs_per_worker
            if unit == "episodes":
                samples = workers.sample_episodes(columns if wanted == "auto" else wanted - done)
            else:
                length = None if wanted == "auto" else math.ceil((wanted - done) / columns)
                samples = workers.sample(length, reset_episodes=number == 0)
            for sample in samples:
                episodes += sample.episodes
                steps += sample.env_steps
            done = len(episodes) if unit == "episodes" else steps
            if config.evaluation_num_workers:
                log.info("Running round %d of parallel evaluation (%d/%s %s)", number, done, wanted, unit)
            if done and self._training_is_over.is_set() if wanted == "auto" else done >= wanted:
                break
        return episodes, steps

    def state(self) -> State:
        """The latest metrics and the workers' states, without those of workers that an evaluation is under way with."""
        workers = self._stored
        if self._workers is not None:
            workers = None if self.is_under_way else self._workers.state()
        return {"latest": self.latest, "workers": workers}

    def set_state(self, state: State) -> None:
        """The reverse of `state`."""
        self.latest, self._stored = state["latest"], None
        if state["workers"] is None or self.is_under_way:
            self.stop()
        if self._workers is None:
            self._stored = state["workers"]  # for those that the next evaluation makes
        else:
            self._workers.set_state(state["workers"])

    def give_way(self) -> None:
        """End the workers, as no rollout worker finds room beside them."""
        if self._workers is not None:
            log.warning("no rollout worker is up: evaluation workers are ended, in case they hold the room for one")
            self.stop()

    def stop(self) -> None:
        """End the workers, and what is under way with them; the next evaluation would start new ones."""
        if self._under_way is not None:
            self._deadline.cancel()
            futures.wait([self._under_way], timeout=PATIENCE_S)
            self._deadline.clear()
            self._under_way, self.problem = None, ""
        if self._workers is not None:
            self._workers.stop()
            self._workers = None


def in_background(function: Callable[[], T]) -> Future[T]:
    """Call a function in a thread that ends with the process; the future has its value, or what it raised."""
    future: Future[T] = Future()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=call, name="evaluation", daemon=True).start()
    return future


def tell_of_greedy(config: AlgorithmConfig, trained: RolloutWorker) -> None:
    """Warn where a policy that draws its actions is evaluated without, unless the settings say so themselves."""
    draws = any(runner.exploration.follows_policy(sys.maxsize) for runner in trained.runners.values())
    if config.explore and "explore" not in config.evaluation_config and draws:
        log.warning(GREEDY, config.label)


def checked_metrics(metrics: Any) -> dict[str, Any]:
    """What a custom evaluation function returned, as JSON values; ConfigError for what cannot be reported."""
    if not isinstance(metrics, Mapping):
        raise ConfigError(f"{CUSTOM} returned {metrics!r}: expected a dict of metrics by name.")
    for key, value in metrics.items():
        if not isinstance(key, str):
            raise ConfigError(f"{CUSTOM} returned the key {key!r}: expected text, the name of a metric.")
        try:
            json.dumps(value, default=_of_numpy)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{CUSTOM} returned {key}={value!r}: expected numbers, text, lists and dicts. {sentence(error)}"
            ) from error
    return {key: json_safe(value) for key, value in metrics.items()}


def _of_numpy(value: object) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"A {type(value).__name__} is none of these")
