"""`--metrics-port`: /metrics for Prometheus, /progress for programs (JSON), /healthz for probes.

Everything is computed at scrape time from the newest result. Units are in the names; nothing is labelled by worker,
environment index or seed. Of an iteration without a value (no episode ended) the series is absent, not zero.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from reef.api.status import CheckpointStatus, EvaluationStatus, TrainingStatus, TrialsStatus, TrialStatus
from reef.endpoint import Answer, Endpoint
from reef.errors import ResourceError
from reef.run.metrics import Result
from reef.run.process.identity import IDENTITY
from reef.run.reporters.reporter import Applications, Reporter, Run, Summary
from reef.run.stopping import lookup
from reef.types import DEFAULT_POLICY, PolicyId


class Field(NamedTuple):
    """One number of a result as a metric."""

    name: str  # counters without their _total
    key: str  # where it is in a result
    help: str
    scale: float = 1.0  # to the base unit


TRAINING_COUNTERS = (
    Field("iterations", "training_iteration", "Training iterations done."),
    Field("env_steps_sampled", "num_env_steps_sampled", "Environment steps sampled."),
    Field("env_steps_trained", "num_env_steps_trained", "Environment steps learned from."),
    Field("agent_steps_sampled", "num_agent_steps_sampled", "Steps of single agents sampled."),
    Field("agent_steps_trained", "num_agent_steps_trained", "Steps of single agents learned from."),
    Field("episodes", "episodes_total", "Episodes finished."),
    Field("seconds", "time_total_s", "Time spent training, in seconds."),
    Field("workers_recreated", "num_worker_restarts", "Rollout workers that were started again."),
)
ASYNC_COUNTERS = (
    Field("batches_dropped", "counters/num_batches_dropped", "Train batches dropped by a full learner queue."),
    Field("gradients_dropped", "counters/num_gradients_dropped", "Gradients dropped, of weights that are too old."),
    Field("replay_shards_recreated", "counters/num_replay_shards_recreated", "Replay shards that came back empty."),
)
EPISODE_GAUGES = (
    Field("episode_reward_mean", "episode_reward_mean", "Mean episode reward."),
    Field("episode_reward_min", "episode_reward_min", "Smallest episode reward."),
    Field("episode_reward_max", "episode_reward_max", "Largest episode reward."),
    Field("episode_length_mean", "episode_len_mean", "Mean episode length, in environment steps."),
)
TRAINING_GAUGES = (
    *EPISODE_GAUGES,
    Field("env_steps_per_second", "num_env_steps_sampled_throughput_per_sec", "Pace of the newest iteration."),
    Field("iteration_seconds", "time_this_iter_s", "Length of the newest iteration, in seconds."),
    Field("sample_seconds", "timers/sample_time_ms", "Time the newest iteration spent sampling, in seconds.", 1e-3),
    Field("learn_seconds", "timers/learn_time_ms", "Time the newest iteration spent learning, in seconds.", 1e-3),
    Field("last_result_timestamp_seconds", "timestamp", "When the newest iteration ended, in Unix time."),
    Field("workers_healthy", "num_healthy_workers", "Remote rollout workers at work."),
    Field("workers_waiting", "num_waiting_workers", "Rollout workers that wait for room on more nodes."),
    Field("workers_lost", "num_lost_workers", "Rollout workers that have room and are missing."),
)
CHECKPOINT_GAUGES = (
    Field("iteration", "iteration", "Iteration of the newest checkpoint."),
    Field("seconds", "seconds", "Time to write the newest checkpoint, in seconds."),
    Field("bytes", "bytes", "Size of the newest checkpoint, in bytes."),
    Field("timestamp_seconds", "timestamp", "When it was written, in Unix time."),
)
EVALUATION_GAUGES = (
    Field("iteration", "training_iteration", "Training iteration of the newest evaluation."),
    *EPISODE_GAUGES,
    Field("episodes", "episodes_this_iter", "Episodes of the newest evaluation."),
)
LOSS_TERMS = {"total_loss": "total", "policy_loss": "policy", "vf_loss": "value", "td_loss": "td"}
LEARNER_GAUGES = {  # statistics with a name of their own; losses and the rest have a label
    "kl": ("kl", "Kullback-Leibler divergence of the policy from the one that sampled."),
    "entropy": ("entropy", "Mean entropy of the policy's action distribution."),
    "grad_gnorm": ("gradient_norm", "Norm of the gradient before clipping."),
    "cur_lr": ("learning_rate", "Learning rate."),
    "staleness": ("staleness_versions", "Updates made since the weights that sampled the newest batch, on average."),
    "staleness_max": ("staleness_max_versions", "Updates made since the oldest weights that sampled the newest batch."),
}


NOTHING: Mapping[str, Any] = MappingProxyType({})


class RunState(Reporter, Collector):
    """The newest result and checkpoint of a run: a reporter for the driver, a collector for the scrapes."""

    def __init__(self) -> None:
        self.identity = ""  # of the process that serves it: another one may be at its address later
        self._run: Run | None = None
        self.result: Result | None = None  # the newest
        self._evaluation: tuple[int, Result] | None = None  # iteration, metrics
        self._checkpoint: tuple[CheckpointStatus, float | None, int] | None = None  # what, seconds, bytes
        self.storage_problem: str | None = None  # what keeps checkpoints from the object store; None: there is none
        self._ended: Summary | None = None
        self._sweep: tuple[TrialStatus | None, TrialsStatus] | None = None
        self._refused: Mapping[str, float] = NOTHING

    def start(self, run: Run) -> None:
        """Take in what is trained."""
        self._run = run

    def report(self, result: Result) -> None:
        """Take in the newest result."""
        evaluation = result.get("evaluation")
        if evaluation and (iteration := evaluation.get("training_iteration", result["training_iteration"])) is not None:
            self._evaluation = (iteration, evaluation)
        self.result = result

    def saved(
        self, path: Path, iteration: int, time: str, seconds: float | None = None, uri: str | None = None
    ) -> None:
        """Take in the newest checkpoint: where, of which iteration, when (RFC 3339), and what it took to write.

        `seconds` is None for one that an earlier process wrote; `uri` is where it is kept, when `path` is a copy.
        """
        size = sum(file.stat().st_size for file in path.iterdir())
        self._checkpoint = (CheckpointStatus(path=uri or str(path), iteration=iteration, time=time), seconds, size)

    def swept(self, best: TrialStatus | None, trials: TrialsStatus) -> None:
        """Take in the state of a sweep."""
        self._sweep = best, trials

    def refused(self, statistics: Mapping[str, float]) -> None:
        """Take in the loss and the gradient norm of an update that was not made, as they are not finite."""
        self._refused = statistics

    @property
    def has_begun(self) -> bool:
        """Whether a training has begun, so that there is something to show."""
        return self._run is not None or self._sweep is not None

    def finish(self, summary: Summary | None) -> None:
        """Take in how it ended."""
        self._ended = summary

    def progress(self) -> dict[str, Any]:
        """The parts of a job's status that the run knows, with the names of the job document.

        Without a run there is no `training`: what an earlier life said of it is still the newest.
        """
        parts: dict[str, Any] = {}
        if self._run is not None or self.result is not None:
            parts["training"] = self._training()
        if self._evaluation is not None:
            iteration, metrics = self._evaluation
            episodes = metrics.get("episodes_this_iter", 0)
            parts["evaluation"] = EvaluationStatus(iteration=iteration, episodes=episodes, **rewards(metrics))
        if self._checkpoint is not None:
            parts["checkpoint"] = self._checkpoint[0]
        if self._sweep is not None:
            best, parts["trials"] = self._sweep
            if best is not None:
                parts["bestTrial"] = best
        status = {name: part.model_dump(mode="json", by_alias=True) for name, part in parts.items()}
        stopped = self._ended.reason if self._ended else None
        worker_problem = self._run.worker_problem() if self._run and not self._ended else ""
        problems = {"storageProblem": self.storage_problem, "workerProblem": worker_problem}
        failing = {name: problem for name, problem in problems.items() if problem}
        return status | failing | {"stopped": stopped}

    def _training(self) -> TrainingStatus:
        result, run = self.result or {}, self._run
        pace = result.get("num_env_steps_sampled_throughput_per_sec")
        return TrainingStatus(
            iteration=result.get("training_iteration", run.restored_iteration if run else 0),
            timesteps=result.get("timesteps_total", run.restored_timesteps if run else 0),
            episodes=result.get("episodes_total", 0),
            steps_per_second=None if pace is None else round(pace, 1),
            **rewards(result),
        )

    def collect(self) -> Iterator[Metric]:
        """Every series, from the newest result."""
        if self._run is not None:
            labels = {"algorithm": self._run.algorithm, "environment": self._run.environment}
            yield InfoMetricFamily("reef_training", "What is trained.", value=labels)
        result = self.result
        if result is not None:
            for field in TRAINING_COUNTERS:
                value = lookup(result, field.key)
                yield CounterMetricFamily(f"reef_training_{field.name}", field.help, value=value or 0)
            for field in ASYNC_COUNTERS:
                if (value := lookup(result, field.key)) is not None:
                    yield CounterMetricFamily(f"reef_training_{field.name}", field.help, value=value)
            yield from gauges("reef_training", TRAINING_GAUGES, result)
        yield from learner_gauges(self._learner_statistics())
        if self._run is not None and not self._ended and (found := self._run.applications()) is not None:
            yield from application_metrics(found)
        if self._sweep is not None:
            yield from trial_gauges(*self._sweep)
        yield from self._checkpoint_gauges()
        if self._evaluation is not None:
            iteration, metrics = self._evaluation
            yield from gauges("reef_evaluation", EVALUATION_GAUGES, metrics | {"training_iteration": iteration})

    def _learner_statistics(self) -> dict[PolicyId, dict[str, Any]]:
        learners = self.result["info"]["learner"] if self.result else {}
        found = {policy: dict(stats["learner_stats"]) for policy, stats in learners.items()}
        if self._refused:  # by the one policy that there is
            found[DEFAULT_POLICY] = found.get(DEFAULT_POLICY, {}) | dict(self._refused)
        return found

    def _checkpoint_gauges(self) -> Iterator[Metric]:
        if self.storage_problem is not None:
            text = "Whether what was written last cannot be uploaded to the object store."
            yield GaugeMetricFamily("reef_training_storage_failing", text, bool(self.storage_problem))
        if self._checkpoint is not None:
            status, seconds, size = self._checkpoint
            when = datetime.fromisoformat(status.time).timestamp()
            found = {"iteration": status.iteration, "seconds": seconds, "bytes": size, "timestamp": when}
            yield from gauges("reef_training_checkpoint", CHECKPOINT_GAUGES, found)


def rewards(metrics: Result) -> dict[str, float | None]:
    """Mean, smallest and largest episode reward with the names of a status; None for what is no number in JSON."""
    found = {name: metrics.get(f"episode_reward_{name}") for name in ("mean", "min", "max")}
    return {
        f"reward_{name}": None if value is None or not math.isfinite(value) else value for name, value in found.items()
    }


def gauges(prefix: str, fields: tuple[Field, ...], result: Result) -> Iterator[Metric]:
    """One gauge for each field that has a value."""
    for field in fields:
        value = lookup(result, field.key)
        if value is not None:
            yield GaugeMetricFamily(f"{prefix}_{field.name}", field.help, value=value * field.scale)


def trial_gauges(best: TrialStatus | None, trials: TrialsStatus) -> Iterator[Metric]:
    """The trials of a sweep by state."""
    counts = {state: getattr(trials, state) for state in ("running", "finished", "failed")}
    family = GaugeMetricFamily("reef_sweep_trials", "Trials of the sweep, by state.", labels=["state"])
    for state, count in {**counts, "waiting": trials.total - sum(counts.values())}.items():
        family.add_metric([state], count)
    yield family
    if best is not None and best.metric is not None:
        yield GaugeMetricFamily("reef_sweep_best_metric", "The sweep's metric of its best trial.", best.metric)


def application_metrics(found: Applications) -> Iterator[Metric]:
    """What applications have at the policy server of this process."""
    for name, text, value in (
        ("open_episodes", "Episodes that are open at the policy server.", found.open_episodes),
        ("queued_steps", "Steps of applications that wait to be learned from.", found.queued_steps),
    ):
        yield GaugeMetricFamily(f"reef_training_external_{name}", text, value)
    text = "Requests that the policy server refused, by the status of the answer."
    family = CounterMetricFamily("reef_training_external_refused", text, labels=["code"])
    for status, count in found.refused.items():
        family.add_metric([str(status)], count)
    yield family


def learner_gauges(statistics: Mapping[PolicyId, Mapping[str, Any]]) -> Iterator[Metric]:
    """What the learners report, by policy."""
    loss = GaugeMetricFamily("reef_training_loss", "Loss of the newest update.", labels=["policy", "term"])
    other = GaugeMetricFamily("reef_training_learner", "Other statistics of learners.", labels=["policy", "statistic"])
    named = {
        key: GaugeMetricFamily(f"reef_training_{name}", text, labels=["policy"])
        for key, (name, text) in LEARNER_GAUGES.items()
    }
    for policy, stats in statistics.items():
        for key, value in stats.items():
            if value is None:
                continue
            if key in named:
                named[key].add_metric([policy], value)
            elif key in LOSS_TERMS:
                loss.add_metric([policy, LOSS_TERMS[key]], value)
            else:
                other.add_metric([policy, key], value)
    yield from (family for family in (loss, *named.values(), other) if family.samples)


class MetricsServer:
    """Serves the state of a run over HTTP from a thread of its own."""

    def __init__(self, run_state: RunState, port: int, address: str = "127.0.0.1") -> None:
        """Listen at once (port 0: any free one, see `port`); raises `ResourceError` when the port is taken."""
        self._run_state = run_state
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(run_state)
        try:
            self._endpoint = Endpoint(address, port, self._answer)
        except (OSError, OverflowError) as error:
            problem = str(error).rstrip(".")
            raise ResourceError(
                f"cannot serve metrics on {address}:{port}: {problem}. Give another --metrics-port, or leave it out."
            ) from error
        self.port = self._endpoint.port

    def stop(self) -> None:
        """Stop listening."""
        self._endpoint.stop()

    def _answer(self, path: str) -> Answer:
        if path == "/metrics":
            return Answer(generate_latest(self._registry), CONTENT_TYPE_LATEST)
        if path == "/progress":
            return Answer(json.dumps(self._run_state.progress()).encode(), "application/json")
        if path == "/healthz":
            return Answer(b"ok\n", headers={IDENTITY: self._run_state.identity})
        return Answer(b"there are /metrics, /progress and /healthz\n", status=HTTPStatus.NOT_FOUND)
