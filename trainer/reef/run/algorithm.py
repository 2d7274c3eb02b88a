"""`Algorithm`: what a person builds from a configuration and trains, evaluates, saves and restores."""

from __future__ import annotations

import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
from gymnasium import spaces

from reef.allocator import keep_freed_memory
from reef.batch import Sample
from reef.config import AlgorithmConfig
from reef.config.loading import load
from reef.envs.make import unprepared
from reef.errors import ConfigError, WorkerError
from reef.learn.learner import Learner
from reef.learn.learners import Learners, local_learners
from reef.nn.policies import Policy
from reef.nn.weight_files import read_weights
from reef.rollout.local_workers import LocalWorkers
from reef.rollout.seams import Workers
from reef.run.checkpoint import find_checkpoint, read_algorithm, read_state, restoring, write_checkpoint
from reef.run.checkpoint.content import check_fit
from reef.run.evaluation import Evaluation
from reef.run.metrics import IterationMetrics
from reef.run.signals import end_if_overdue
from reef.spaces import flat_observation
from reef.types import DEFAULT_POLICY, Array, PolicyId, State, Stats

log = logging.getLogger(__name__)


class Algorithm(ABC):
    """Workers that sample, learners that improve, and the loop between them.

    Subclasses name their `config_class` and `learner_class` and write `training_step`, usually one call of a flow. One
    that only changes another algorithm gets a `config_class` by itself, which has that one's settings and builds it.
    Works as a context manager: `with PPOConfig().environment("CartPole-v1").build() as algorithm: ...`.
    """

    config_class: ClassVar[type[AlgorithmConfig]]
    learner_class: ClassVar[type[Learner[Any]]]

    def __init_subclass__(cls) -> None:
        """Have settings that build this class and not the one that it inherits from."""
        super().__init_subclass__()
        path = f"{cls.__module__}:{cls.__qualname__}"
        settings: Any = getattr(cls, "config_class", None)
        if settings is None or settings.algorithm_class == path:
            return
        if "config_class" not in vars(cls) or "algorithm_class" in vars(settings):  # they are another algorithm's
            place = {"__module__": cls.__module__, "__qualname__": f"{cls.__qualname__}.config_class"}
            settings = cls.config_class = type(f"{cls.__name__}Config", (settings,), place)
        settings.algorithm = settings.algorithm_class = path
        settings.label = cls.__name__

    def __init__(self, config: AlgorithmConfig) -> None:
        """Start workers and learners for a frozen configuration; use `config.build()`."""
        if isinstance(config, Mapping):
            name = self.config_class.__name__
            raise ConfigError(
                f"{type(self).__name__}({{...}}) takes no mapping. Write {name}.from_dict({{...}}).build(), or "
                f"{name}().environment(...).build()."
            )
        self.config = config
        self.is_stopped = False
        self.has_unpublished_weights = False  # whether the learners have some that the workers have not seen
        os.environ.update(config.extra_python_environs_for_driver)
        keep_freed_memory()
        self.iteration = 0
        self.counters = dict.fromkeys(
            ("num_env_steps_sampled", "num_env_steps_trained", "num_agent_steps_sampled", "num_agent_steps_trained"), 0
        )
        self.timers: dict[str, float] = {}
        self.metrics = IterationMetrics(config)
        self.evaluation = Evaluation(config)
        with ExitStack() as on_failure:  # or their processes would stay behind
            self.workers: Workers = make_workers(config)
            on_failure.callback(self.workers.stop)
            local = self.workers.local_worker()
            self.evaluation.check_spaces(local.observation_space, local.action_space)
            for text in (*local.policy.ignored_settings(), *unprepared(config, local.observation_space)):
                log.warning("%s", text)
            self.learners: Learners = make_learners(
                self.learner_class,
                config,
                local.observation_space,
                local.action_space,
                neighbours=lambda: self.workers.num_here,
            )
            on_failure.callback(self.learners.stop)
            self.policy_version = 0
            self.publish_weights()
            self.setup()
            on_failure.pop_all()

    def setup(self) -> None:  # noqa: B027 (most need nothing)
        """Make what a subclass needs beside workers and learners; when it raises, those are stopped."""

    @property
    def timestep(self) -> int:
        """Environment steps sampled so far."""
        return self.counters["num_env_steps_sampled"]

    @abstractmethod
    def training_step(self) -> dict[PolicyId, Stats]:
        """Sample and learn once; returns what the learners report."""

    def train(self) -> dict[str, Any]:
        """Run one iteration and return its result (see docs/results.md for the fields)."""
        self._refuse_when_stopped()
        self.metrics.start_iteration()
        self.timers = {}
        self._take_over_weights()
        if self.has_unpublished_weights:
            self.publish_weights()
        before, started = self.timestep, time.monotonic()
        trained_before = self.counters["num_env_steps_trained"]
        stats: dict[PolicyId, Stats] = {}
        while True:
            stats = self.training_step() or stats  # a step may sample only
            if self._iteration_is_full(started, before, trained_before):
                break
        self.iteration += 1
        evaluation = None
        if self.evaluation.is_due(self.iteration):
            with self.timer("evaluation"):
                evaluation = self.evaluate()["evaluation"]
        elif self.config.always_attach_evaluation_results:
            evaluation = self.evaluation.latest
        return self.metrics.result(
            self.iteration,
            counters=self.counters,
            learner_stats=stats,
            exploration=self._exploration_info(),
            timers=self.timers,
            num_healthy_workers=self.workers.num_healthy if self.config.num_rollout_workers else 0,
            num_waiting_workers=self.workers.num_waiting,
            num_lost_workers=self.workers.num_lost,
            num_worker_restarts=self.workers.num_restarts,
            evaluation=evaluation,
        )

    def _exploration_info(self) -> dict[PolicyId, Stats]:
        """How each policy explores now, such as its epsilon; nothing for one that does not."""
        info = self.workers.local_worker().exploration.info(self.timestep) if self.config.explore else {}
        return {DEFAULT_POLICY: info} if info else {}

    def _iteration_is_full(self, started: float, sampled_before: int, trained_before: int) -> bool:
        """Whether the minimum time and steps of an iteration are reached."""
        config = self.config
        return (
            time.monotonic() - started >= (config.min_time_s_per_iteration or 0)
            and self.timestep - sampled_before >= (config.min_sample_timesteps_per_iteration or 0)
            and self.counters["num_env_steps_trained"] - trained_before
            >= (config.min_train_timesteps_per_iteration or 0)
        )

    def evaluate(self) -> dict[str, Any]:
        """Run the configured evaluation with the newest weights; the metrics are under "evaluation"."""
        self._refuse_when_stopped()
        self._take_over_weights()
        weights, worker = self.learners.weights(), self.workers.local_worker()
        return {"evaluation": self.evaluation.run(weights, worker, self.iteration, self.timestep)}

    def _refuse_when_stopped(self) -> None:
        if self.is_stopped:
            raise WorkerError("the algorithm was stopped: it neither trains nor evaluates. Build another one.")

    def sample(self) -> list[Sample]:
        """One fragment from every worker, counted and reported; Overdue where a run is to end at once."""
        end_if_overdue()
        samples = self.workers.sample()
        for sample in samples:
            self.metrics.add_sample(sample)
            self.counters["num_env_steps_sampled"] += sample.env_steps
            self.counters["num_agent_steps_sampled"] += sum(len(rollout) for rollout in sample.rollouts.values())
        return samples

    def count_trained(self, steps: int) -> None:
        """Count `steps` as learned from."""
        self.counters["num_env_steps_trained"] += steps
        self.counters["num_agent_steps_trained"] += steps

    def publish_weights(self) -> None:
        """Give all workers the learners' weights, once per version, and merge their observation filters."""
        with self.timer("synch_weights"):
            self._take_over_weights()
            self.policy_version += 1
            self.workers.set_weights(self.learners.weights(), self.policy_version, self.timestep)
            self.has_unpublished_weights = False
            self.workers.synchronize_filters()

    @contextmanager
    def timer(self, name: str) -> Iterator[None]:
        """Add the seconds of a block to this iteration's timer."""
        started = time.perf_counter()
        yield
        self.timers[name] = self.timers.get(name, 0.0) + time.perf_counter() - started

    def get_policy(self, policy_id: PolicyId = DEFAULT_POLICY) -> Policy:
        """The local worker's copy of a policy; KeyError when there is none of that name."""
        policies = self.workers.local_worker().policy_map
        if policy_id not in policies:
            raise KeyError(f"PolicyID {policy_id!r} not found in PolicyMap; there is {sorted(policies)}")
        return policies[policy_id]

    def compute_single_action(
        self,
        observation: Any,  # a value of the environment's observation space
        *,
        explore: bool | None = None,
        policy_id: PolicyId = DEFAULT_POLICY,
        full_fetch: bool = False,
    ) -> Any:  # a value of the environment's action space
        """The action for one observation, filtered and unsquashed as in training.

        `explore` None means the setting of that name. With `full_fetch` returns (action, state, extras). Raises
        ConfigError for what is no observation.
        """
        worker = self.workers.local_worker()
        policy = self.get_policy(policy_id)
        flat = flat_observation(policy.observation_layout, observation)
        obs = worker.filters[policy_id](flat[None], update=False)
        chosen = self.config.explore if explore is None else explore
        distribution = policy.act(np.array(obs), worker.generator if chosen else None)
        actions = worker.exploration.get_exploration_action(distribution, self.timestep, chosen, worker.generator)
        action = policy.action_layout.unflatten(worker.action_transform(actions)[0])
        if policy.action_layout.shape == ():
            action = action.item() if isinstance(action, np.ndarray | np.generic) else action
        return (action, [], {"action_dist_inputs": distribution.inputs[0]}) if full_fetch else action

    compute_action = compute_single_action

    def get_weights(self) -> dict[PolicyId, dict[str, Array]]:
        """Parameters by policy and name."""
        return {name: policy.get_weights() for name, policy in self.workers.local_worker().policy_map.items()}

    def set_weights(self, weights: dict[PolicyId, dict[str, Array]]) -> None:
        """Overwrite parameters by policy and name, in the learners and all workers; ConfigError where they do not fit.

        The optimizer goes on as it was. Target networks become copies of the new weights.
        """
        for policy_id, named in weights.items():
            self.get_policy(policy_id).set_weights(named)
        self.publish_weights()

    def import_model(
        self, path: str | Path, *, policy_id: PolicyId = DEFAULT_POLICY, names: Mapping[str, str] | None = None
    ) -> None:
        """As `set_weights`, from a safetensors file or a torch `state_dict`, of which no code is run.

        `names` translates names of the file into those of `get_weights()`. Raises CheckpointError for a file that
        cannot be used, ConfigError for weights that do not fit; the algorithm is then as it was.
        """
        self.get_policy(policy_id).import_weights(read_weights(path), names)
        self.publish_weights()

    def _take_over_weights(self) -> None:
        """Have the learners go on from weights that were set in a policy of this process, if any were."""
        policies = self.workers.local_worker().policy_map.values()
        if any(policy.set_by_hand for policy in policies):
            self.learners.set_weights(self.workers.local_worker().get_weights())
            self.has_unpublished_weights = True
            for policy in policies:
                policy.set_by_hand = False

    def save(self, directory: str | Path | None = None) -> str:
        """Write a checkpoint (default: a new folder under the current one) and return its path."""
        path = Path(directory) if directory else Path.cwd() / f"checkpoint_{self.iteration:06d}"
        write_checkpoint(path, self.state(), self.metadata())
        return str(path)

    def restore(self, path: str | Path) -> None:
        """Go on from a checkpoint of the same algorithm and environment; CheckpointError when it does not fit."""
        path = find_checkpoint(path)
        state = read_state(path, self.config.algorithm)
        with restoring(path):
            self.set_state(state)

    @classmethod
    def from_checkpoint(cls, path: str | Path) -> Algorithm:
        """Build the algorithm that wrote a checkpoint, with its settings, and restore it."""
        path = find_checkpoint(path)
        state, metadata = read_algorithm(path)
        algorithm: Algorithm = load("reef.algorithms.registry:stored_config")(metadata).build()
        with ExitStack() as on_failure:
            on_failure.callback(algorithm.stop)
            with restoring(path):
                algorithm.set_state(state)
            on_failure.pop_all()
        return algorithm

    def metadata(self) -> dict[str, Any]:
        """What a checkpoint says about itself."""
        return {
            "algorithm": self.config.algorithm,
            "algorithm_class": self.config.algorithm_class,
            "config": self.config.to_dict(),
            "iteration": self.iteration,
        }

    def state(self) -> State:
        """Everything that training depends on, as a tree that a checkpoint can hold."""
        self._take_over_weights()
        return {
            "iteration": self.iteration,
            "policy_version": self.policy_version,
            "counters": dict(self.counters),
            "metrics": self.metrics.state(),
            "learners": self.learners.state(),
            "workers": self.workers.state(),
            "evaluation": self.evaluation.state(),
            "networks": {
                name: policy.architecture() for name, policy in self.workers.local_worker().policy_map.items()
            },
        }

    def progress(self) -> list[tuple[int, float]]:
        """That of the workers in this process, see `RolloutWorker.progress`; may be asked from any thread."""
        return [self.workers.local_worker().progress, *self.evaluation.progress()]

    def set_state(self, state: State) -> None:
        """The reverse of `state`; CheckpointError where the network or its inputs differ, before any change."""
        local = self.workers.local_worker()
        own = {
            "learners": self.learners.state(),
            "worker": local.state(),
            "networks": {name: policy.architecture() for name, policy in local.policy_map.items()},
        }
        # Here and not in the learners, who may be processes.
        check_fit(state, own, self.config.observation_filter)
        for policy in local.policy_map.values():
            policy.set_by_hand = False  # the state has others
        with restoring("its counters and metrics"):
            self.iteration, self.policy_version = state["iteration"], state["policy_version"] - 1
            self.counters = dict(state["counters"])
            self.metrics.set_state(state["metrics"], iteration=self.iteration)
        with restoring("its learners"):
            self.learners.set_state(state["learners"])
        with restoring("its evaluation"):
            self.evaluation.set_state(state["evaluation"])
        self.publish_weights()
        with restoring("its workers"):
            self.workers.set_state(state["workers"])

    def stop(self) -> None:
        """End all processes and close all environments."""
        self.is_stopped = True
        self.evaluation.stop()
        self.learners.stop()
        self.workers.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def make_workers(config: AlgorithmConfig) -> Workers:
    """Workers in this process or, with `num_rollout_workers`, as Ray actors."""
    if config.num_rollout_workers == 0:
        return LocalWorkers(config)
    return load("reef.distributed.ray_workers:RayWorkers")(config, config.num_rollout_workers)  # type: ignore[no-any-return]


def make_learners(
    learner_class: type[Learner[Any]],
    config: AlgorithmConfig,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    neighbours: Callable[[], int],
) -> Learners:
    """The learner in this process, beside so many rollout workers on its machine; or several, as Ray actors."""
    if config.num_learner_workers == 0:
        return local_learners(learner_class, config, observation_space, action_space, neighbours)
    make = load("reef.distributed.ray_learners:RayLearners")
    return make(learner_class, config, observation_space, action_space)  # type: ignore[no-any-return]
