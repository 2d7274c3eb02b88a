"""`Algorithm`: what a person builds from a configuration and trains, evaluates, saves and restores."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from reef.batch import Sample
from reef.callbacks.default import OF_DRIVER
from reef.config import AlgorithmConfig
from reef.errors import ResourceError, WorkerError
from reef.learn.learner import Update
from reef.learn.learner_queue import samples_of, stored_samples
from reef.learn.learners import Batches, Learners
from reef.rollout.curriculum import set_next_tasks
from reef.rollout.seams import Workers
from reef.run.checkpoint import find_checkpoint, read_state, restoring, write_checkpoint
from reef.run.checkpoint.policies import described
from reef.run.evaluation import Evaluation
from reef.run.events import BatchLearned, Evaluated, Events, SampleTaken
from reef.run.metrics import COUNTER_FIELDS, IterationMetrics, check_kept, make_json_safe
from reef.run.policies.changes import ChangingPolicies
from reef.run.process.deadline import Deadline
from reef.types import PolicyId, State, Stats


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What an algorithm works with; `reef.run.build` makes it."""

    workers: Workers
    learners: Learners
    evaluation: Evaluation
    deadline: Deadline
    events: Events


class Algorithm(ChangingPolicies):
    """Workers that sample, learners that improve, and the loop between them.

    Subclasses name their `config_class` and `learner_class` and write `training_step`, usually one call of a flow. One
    that only changes another algorithm gets a `config_class` by itself, which has that one's settings and builds it.
    Works as a context manager: `with PPOConfig().environment("CartPole-v1").build() as algorithm: ...`.
    """

    config_class: ClassVar[type[AlgorithmConfig]]

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

    def __new__(
        cls, config: AlgorithmConfig | Mapping[str, Any] | None = None, env: Any = None, parts: Parts | None = None
    ) -> Self:
        """Without `parts`, as `config.build(env)`; a mapping has settings of this algorithm by key."""
        if parts is not None:
            return super().__new__(cls)
        from reef.run.build import build_of_settings  # which makes algorithms, and so imports this module

        return build_of_settings(cls, config or {}, env)

    def __init__(
        self, config: AlgorithmConfig | Mapping[str, Any] | None = None, env: Any = None, parts: Parts | None = None
    ) -> None:
        """Publish the first weights; `config.build()` makes the parts."""
        if parts is None:  # `__new__` returned what that built
            return
        assert isinstance(config, AlgorithmConfig)
        self.config = config
        self.is_stopped = False
        self.has_unpublished_weights = False  # whether the learners have some that the workers have not seen
        self.has_new_fixed_weights = True  # the same of policies that do not learn
        self.iteration = 0
        self.is_idle = False  # whether the last samples had no step, as applications were idle
        self.collected: list[Sample] = []  # what was sampled in iterations that could not learn from it yet
        self.counters = dict.fromkeys(COUNTER_FIELDS, 0)
        self.timers: dict[str, float] = {}
        self.metrics = IterationMetrics(config)
        self.workers, self.learners, self.evaluation = parts.workers, parts.learners, parts.evaluation
        self.deadline, self.events = parts.deadline, parts.events
        self.events.subscribe(SampleTaken, lambda taken: self.metrics.samples.add(taken.sample))
        self.policy_version = 0
        self.none_learns = False  # no policy did from the last batch: to wait for trained steps would be in vain
        self.let_policies_learn()
        self.hooks = config.hooks(*OF_DRIVER, worker=self.workers.local_worker())
        self.publish_weights()
        self.setup()
        self.hooks.call("on_algorithm_init", algorithm=self)
        self.hooks.call("on_trainer_init", trainer=self)

    def setup(self) -> None:
        """Make what a subclass needs beside workers and learners; when it raises, `config.build()` stops those."""

    @property
    def timestep(self) -> int:
        """Steps sampled so far, of environments or of agents by `count_steps_by`."""
        return self.counters[f"num_{self.config.count_steps_by}_sampled"]

    @property
    def _trained(self) -> int:
        """Steps learned from so far, counted as in `timestep`."""
        return self.counters[f"num_{self.config.count_steps_by}_trained"]

    @abstractmethod
    def training_step(self) -> dict[PolicyId, Stats]:
        """Sample and learn once; returns what the learners report."""

    def train(self) -> dict[str, Any]:
        """Run one iteration and return its result (see docs/results.md for the fields)."""
        self._refuse_when_stopped()
        started = time.monotonic()
        self.timers, self.none_learns = {}, False
        self._take_over_weights()
        if self.has_unpublished_weights:
            self.publish_weights()
        if self.config.evaluates_beside_training and self.evaluation.is_due(self.iteration + 1):
            self._begin_evaluation()
        before, trained_before = self.timestep, self._trained
        try:
            stats = self.training_step()
            while not self._iteration_is_full(started, before, trained_before):
                stats = self.training_step() or stats  # a step may sample only
        except MemoryError as error:
            raise ResourceError(
                f"train_batch_size={self.config.total_train_batch_size}: training needs more memory than there is "
                f"({error}). Lower it, or the setting that makes something else so large."
            ) from error
        if self.config.asynchronous:  # once per iteration: it waits for all workers
            self.synchronize_filters()
        self._report_recreated(self.workers, is_evaluation=False)
        self.iteration += 1
        evaluation = self._evaluation_of_iteration()
        result = self.metrics.result(
            self.iteration,
            elapsed_s=time.monotonic() - started,
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
        if "on_train_result" in self.hooks:
            fields = [*result]
            self.hooks.call("on_train_result", algorithm=self, result=result)
            check_kept(fields, result)
            make_json_safe(result)
        if self.config.env_task_fn is not None:
            self.workers.foreach_worker(partial(set_next_tasks, result=result))
        return result

    def _report_recreated(self, workers: Workers, *, is_evaluation: bool) -> None:
        if "on_workers_recreated" in self.hooks and (ids := workers.take_recreated()):
            arguments = {"worker_set": workers, "worker_ids": ids, "is_evaluation": is_evaluation}
            self.hooks.call("on_workers_recreated", algorithm=self, **arguments)

    def _exploration_info(self) -> dict[PolicyId, Stats]:
        """How each policy explores now, such as its epsilon; nothing for one that does not."""
        runners = self.workers.local_worker().runners if self.config.explore else {}
        info = {policy_id: runner.exploration.info(self.timestep) for policy_id, runner in runners.items()}
        return {policy_id: found for policy_id, found in info.items() if found}

    def _iteration_is_full(self, started: float, sampled_before: int, trained_before: int) -> bool:
        """Whether the minimum time and steps are reached, trained ones if a policy learns; or applications are idle."""
        config = self.config
        return self.is_idle or (
            time.monotonic() - started >= (config.min_time_s_per_iteration or 0)
            and self.timestep - sampled_before >= (config.min_sample_timesteps_per_iteration or 0)
            and (self.none_learns or self._trained - trained_before >= (config.min_train_timesteps_per_iteration or 0))
        )

    def evaluate(self) -> dict[str, Any]:
        """Run the configured evaluation with the newest weights; the metrics are under "evaluation"."""
        self._refuse_when_stopped()
        self.finish_evaluation()
        self._take_over_weights()
        self.hooks.call("on_evaluate_start", algorithm=self)
        return {"evaluation": self._report_evaluation(self.evaluation.run(self))}

    def _begin_evaluation(self) -> None:
        """Begin one beside training, unless another one is still under way."""
        if not self.evaluation.is_under_way:
            with self.timer("evaluation"):
                self.hooks.call("on_evaluate_start", algorithm=self)
                self.evaluation.begin(self)

    def finish_evaluation(self, *, wait: bool = True) -> dict[str, Any] | None:
        """The metrics of the evaluation under way, by the policies of when it began; None without one to `wait` for."""
        if not self.evaluation.is_under_way:
            return None
        with self.timer("evaluation"):
            metrics = self.evaluation.finish(wait=wait)
        return None if metrics is None else self._report_evaluation(metrics)

    def _evaluation_of_iteration(self) -> dict[str, Any] | None:
        """What goes into the result of the iteration that ends now."""
        metrics = None
        if self.config.evaluates_beside_training:
            metrics = self.finish_evaluation(wait=not self.config.enable_async_evaluation)
        elif self.evaluation.is_due(self.iteration):
            with self.timer("evaluation"):
                metrics = self.evaluate()["evaluation"]
        return self.evaluation.latest if metrics is None and self.config.always_attach_evaluation_results else metrics

    def _report_evaluation(self, metrics: dict[str, Any]) -> dict[str, Any]:
        if self.evaluation.has_workers:
            self._report_recreated(self.evaluation.workers, is_evaluation=True)
        self.hooks.call("on_evaluate_end", algorithm=self, evaluation_metrics=metrics)
        self.events.emit(Evaluated, self.iteration, metrics)
        return metrics

    def _refuse_when_stopped(self) -> None:
        if self.is_stopped:
            raise WorkerError("the algorithm was stopped: it neither trains nor evaluates. Build another one.")

    def sample(self) -> list[Sample]:
        """One fragment from every worker, counted and reported; Overdue where a run is to end at once."""
        self.deadline.end_if_over()
        samples = self.workers.sample()
        for sample in samples:
            self.count_sampled(sample)
        self.is_idle = self.config.uses_policy_server and not any(sample.env_steps for sample in samples)
        return samples

    def count_sampled(self, sample: Sample) -> None:
        """Count and report a sample."""
        self.events.emit(SampleTaken, sample)
        self.counters["num_env_steps_sampled"] += sample.env_steps
        agent_steps = *map(len, sample.rollouts.values()), *sample.agent_steps.values()
        self.counters["num_agent_steps_sampled"] += sum(agent_steps)

    def learn(self, batches: Batches) -> dict[PolicyId, Update]:
        """Have the learners improve each policy that is trained on its batch; one without a step is left out."""
        learned: Any = {policy_id: batches[policy_id] for policy_id in self.policies_to_learn(batches)}
        updates = self.learners.update(learned, self.timestep)
        self.events.emit(BatchLearned, updates, batches)
        return updates

    def policies_to_learn(self, batches: Mapping[PolicyId, Sized]) -> list[PolicyId]:
        """The policies that are trained and have a step in their batch; all that are trained if no batch has one."""
        trained = [policy_id for policy_id in batches if self.config.trains(policy_id, batches[policy_id])]
        with_steps = [policy_id for policy_id in trained if len(batches[policy_id])]
        chosen = with_steps if with_steps or any(map(len, batches.values())) else trained
        self.none_learns = not chosen
        return chosen

    def count_trained(self, env_steps: int, agent_steps: int) -> None:
        """Count steps as learned from: of environments, and of agents in them. None counts if no policy learned."""
        self.counters["num_env_steps_trained"] += env_steps if agent_steps else 0
        self.counters["num_agent_steps_trained"] += agent_steps

    def publish_weights(self, to: Collection[int] | None = None, *, is_new: bool = True) -> None:
        """Give all workers, or the workers `to`, the learners' weights; `is_new`: they are another version."""
        with self.timer("synch_weights"):
            self._take_over_weights()
            self.publish_fixed_weights()
            self.policy_version += is_new
            self.workers.set_weights(self.learners.weights(), self.policy_version, self.timestep, to)
            self.has_unpublished_weights = False

    def _take_over_weights(self) -> None:
        """Have the learners go on from weights that were set in a policy of this process, if any were."""
        policies = self.workers.local_worker().policy_map
        if by_hand := [name for name, policy in policies.items() if policy.set_by_hand]:
            if learned := {name: policies[name].flat.numpy() for name in by_hand if self.config.may_train(name)}:
                self.learners.set_weights(learned)
            self.has_unpublished_weights = True
            self.has_new_fixed_weights |= len(learned) < len(by_hand)
            for name in by_hand:
                policies[name].set_by_hand = False

    def synchronize_filters(self) -> None:
        """Merge what the workers' observation filters have seen, and give all workers the sum."""
        with self.timer("synch_weights"):
            self.workers.synchronize_filters()

    @contextmanager
    def timer(self, name: str) -> Iterator[None]:
        """Add the seconds of a block to this iteration's timer."""
        started = time.perf_counter()
        yield
        self.timers[name] = self.timers.get(name, 0.0) + time.perf_counter() - started

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
            self.take_over(state)

    def take_over(self, state: State) -> None:
        """Go on from the state of a checkpoint, as `set_state`, and say so to the callbacks."""
        self.set_state(state)
        self.hooks.call("on_checkpoint_loaded", algorithm=self)

    @classmethod
    def from_checkpoint(cls, path: str | Path) -> Algorithm:
        """Build the algorithm that wrote a checkpoint, with its settings, and restore it."""
        from reef.run.build import build_from_checkpoint  # which makes algorithms, and so imports this module

        return build_from_checkpoint(path)

    def metadata(self) -> dict[str, Any]:
        """What a checkpoint says about itself."""
        return {
            "algorithm": self.config.algorithm,
            "algorithm_class": self.config.algorithm_class,
            "config": self.config.to_dict(),
            "iteration": self.iteration,
            "exports_models": self.config.export_native_model_files,
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
            "fixed": {} if self.config.checkpoint_trainable_policies_only else self.fixed_weights(),
            "policies": self.policies_state(),
            "workers": self.workers.state(),
            "collected": stored_samples(self.collected),
            "evaluation": self.evaluation.state(),
            "spaces": described(self.workers.local_worker().env_spaces),
            "networks": {
                name: policy.architecture() for name, policy in self.workers.local_worker().policy_map.items()
            },
        }

    def progress(self) -> list[tuple[int, float]]:
        """That of the workers in this process, see `RolloutWorker.progress`; may be asked from any thread."""
        return [self.workers.local_worker().progress, *self.evaluation.progress()]

    def set_state(self, state: State) -> None:
        """The reverse of `state`; CheckpointError where the network or its inputs differ, before they change.

        The policies are those of the state by then, where policies can change.
        """
        self.restore_policies(state)
        for policy in self.workers.local_worker().policy_map.values():
            policy.set_by_hand = False  # the state has others
        with restoring("its counters and metrics"):
            self.iteration, self.policy_version = state["iteration"], state["policy_version"] - 1
            self.counters = dict.fromkeys(self.counters, 0) | state["counters"]  # older states have fewer
            self.metrics.set_state(state["metrics"], iteration=self.iteration)
            self.collected = samples_of(state.get("collected", ()))  # older states have none
        with restoring("its learners"):
            self.learners.set_state(state["learners"])
            self.restore_fixed_weights(state)
        with restoring("its evaluation"):
            self.evaluation.set_state(state["evaluation"])
        self.publish_weights()
        self.synchronize_filters()  # or what was seen before would be merged into the filters of the state
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

    def __exit__(self, *_: object) -> None:
        self.stop()
