"""The result of one training iteration: what `Algorithm.train()` returns and every reporter shows.

How an algorithm uses it:

    metrics = IterationMetrics(config)
    metrics.samples.add(sample)                     # for every Sample that a worker returned
    result = metrics.result(iteration, elapsed_s=..., counters=..., learner_stats=..., timers=..., ...)
    checkpoint["metrics"] = metrics.state()         # a restored run reports the same numbers

`counters` are totals over the whole run; those named in `COUNTER_FIELDS` also become top-level fields. `timers` are
seconds spent in this iteration by name ("sample", "learn") and are reported as `timers/<name>_time_ms`.
`summarize_episodes` alone makes the episode part, for evaluation.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

import yaml

from reef.api.keys import STOP_FIELDS
from reef.batch import Episode
from reef.config import AlgorithmConfig
from reef.errors import CallbackError
from reef.rollout.statistics import SampleStatistics
from reef.run.process.system_load import SystemLoad
from reef.trees import json_safe, require_like
from reef.types import PolicyId, State, Stats

if TYPE_CHECKING:
    from reef.run.reporters.videos import VideoFolder

Result = dict[str, Any]

COUNTER_FIELDS = (
    "num_env_steps_sampled",
    "num_env_steps_trained",
    "num_agent_steps_sampled",
    "num_agent_steps_trained",
)
READ_FIELDS = STOP_FIELDS | {"done", "evaluation", "info"}  # hooks must leave them in a result


class IterationMetrics:
    """Collects what workers report and builds the result of each iteration."""

    def __init__(self, config: AlgorithmConfig) -> None:
        self.samples = SampleStatistics(config)
        self._keep_per_episode = config.keep_per_episode_custom_metrics
        self._config = json_safe(config.to_dict())
        self.videos: VideoFolder | None = None  # where those of `record_env` go
        self._load = SystemLoad() if config.log_sys_usage else None
        self._experiment_id = uuid.uuid4().hex
        self._host = {"pid": os.getpid(), "hostname": socket.gethostname(), "node_ip": node_ip()}
        self._previous: dict[str, int] = {}  # counters of the last result
        self._restored_iteration = self._restored_timesteps = 0
        self._time_total_s = self._restored_time_s = 0.0

    def result(
        self,
        iteration: int,
        *,
        elapsed_s: float,
        counters: Mapping[str, int],
        learner_stats: Mapping[PolicyId, Stats],
        exploration: Mapping[PolicyId, Stats] | None = None,
        timers: Mapping[str, float] | None = None,
        num_healthy_workers: int = 0,
        num_waiting_workers: int = 0,
        num_lost_workers: int = 0,
        num_worker_restarts: int = 0,
        evaluation: Mapping[str, Any] | None = None,
    ) -> Result:
        """Build the result of the iteration that ends now, as JSON values (NaN and infinities become null).

        Without `evaluation` the result has no key of that name: no evaluation was due.
        """
        self._time_total_s += elapsed_s
        episodes, new_episodes = self.samples.window.take()
        result: Result = {
            **summarize_episodes(episodes, keep_per_episode=self._keep_per_episode),
            "episode_media": self.videos.write(iteration) if self.videos else {},
            "episodes_this_iter": new_episodes,
            "episodes_total": self.samples.window.total,
            **self._step_counts(counters, elapsed_s),
            "training_iteration": iteration,
            "iterations_since_restore": iteration - self._restored_iteration,
            "time_this_iter_s": elapsed_s,
            "time_total_s": self._time_total_s,
            "time_since_restore": self._time_total_s - self._restored_time_s,
            "num_healthy_workers": num_healthy_workers,
            "num_waiting_workers": num_waiting_workers,
            "num_lost_workers": num_lost_workers,
            "num_worker_restarts": num_worker_restarts,
            "counters": dict(counters),
            "timers": {f"{name}_time_ms": 1000.0 * seconds for name, seconds in (timers or {}).items()},
            "sampler_perf": self.samples.sampler_perf.means_ms(),
            "info": {
                "learner": {policy: {"learner_stats": dict(stats)} for policy, stats in learner_stats.items()},
                "exploration": {policy: dict(stats) for policy, stats in (exploration or {}).items()},
            },
            "off_policy_estimator": (evaluation or {}).get("off_policy_estimator", {}),
            "perf": self._load.percent() if self._load else {},
            **self._identity(),
            "config": self._config,
        }
        if evaluation is not None:
            result["evaluation"] = dict(evaluation)
        self._previous = dict(counters)
        make_json_safe(result)
        return result

    def _step_counts(self, counters: Mapping[str, int], elapsed_s: float) -> Result:
        def since_last(name: str) -> int:
            return counters.get(name, 0) - self._previous.get(name, 0)

        total, fresh = counters.get("num_env_steps_sampled", 0), since_last("num_env_steps_sampled")
        return {
            **{name: counters.get(name, 0) for name in COUNTER_FIELDS},
            "num_env_steps_sampled_this_iter": fresh,
            "num_env_steps_trained_this_iter": since_last("num_env_steps_trained"),
            "num_env_steps_sampled_throughput_per_sec": fresh / elapsed_s if elapsed_s > 0 else None,
            "timesteps_total": total,
            "timesteps_this_iter": fresh,
            "timesteps_since_restore": total - self._restored_timesteps,
            "agent_timesteps_total": counters.get("num_agent_steps_sampled", total),
        }

    def _identity(self) -> Result:
        now = datetime.now().astimezone()
        return {
            "date": now.strftime("%Y-%m-%d_%H-%M-%S"),
            "timestamp": int(now.timestamp()),
            **self._host,
            # an experiment puts its own values here, see reef.run.experiment
            "done": False,
            "trial_id": self._experiment_id[:8],
            "experiment_id": self._experiment_id,
            "experiment_tag": "",
        }

    def state(self) -> State:
        """What a checkpoint keeps, so that the restored run reports the same numbers."""
        return {
            **self.samples.state(),
            "counters": dict(self._previous),
            "time_total_s": self._time_total_s,
            "experiment_id": self._experiment_id,
        }

    def set_state(self, state: State, *, iteration: int) -> None:
        """Take up where `state` was written, after `iteration` iterations; `CheckpointError` where it is damaged."""
        require_like(state, {"counters": {}, "time_total_s": 0.0, "experiment_id": ""}, "metrics")
        self.samples.set_state(state)
        self._previous = dict(state["counters"])
        self._time_total_s = self._restored_time_s = float(state["time_total_s"])
        self._experiment_id = state["experiment_id"]
        self._restored_timesteps = self._previous.get("num_env_steps_sampled", 0)
        self._restored_iteration = iteration


def summarize_episodes(episodes: Sequence[Episode], *, keep_per_episode: bool = False) -> Result:
    """The episode fields of a result; null, with `episode_reward_reason`, where `episodes` is empty.

    `keep_per_episode` reports custom metrics as the list of their values instead of mean, min and max.
    """
    rewards = [episode.reward for episode in episodes]
    by_policy = _collect(episode.policy_rewards for episode in episodes)
    custom = _collect(episode.custom_metrics for episode in episodes)
    lengths = [episode.length for episode in episodes]
    return {
        "episode_reward_max": max(rewards, default=None),
        "episode_reward_min": min(rewards, default=None),
        "episode_reward_mean": _mean(rewards),
        "episode_reward_reason": None if episodes else "no episode has ended yet",
        "episode_len_mean": _mean(lengths),
        "episode_media": {},
        "episodes_this_iter": len(episodes),
        "policy_reward_min": {policy: min(values) for policy, values in by_policy.items()},
        "policy_reward_max": {policy: max(values) for policy, values in by_policy.items()},
        "policy_reward_mean": {policy: _mean(values) for policy, values in by_policy.items()},
        "custom_metrics": custom if keep_per_episode else _mean_min_max(custom),
        "hist_stats": {
            "episode_reward": rewards,
            "episode_lengths": lengths,
            **{f"policy_{policy}_reward": values for policy, values in by_policy.items()},
            **{
                name: list(chain.from_iterable(lists))
                for name, lists in _collect(e.hist_data for e in episodes).items()
            },
        },
    }


def _collect(dicts: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for values in dicts:
        for name, value in values.items():
            columns.setdefault(name, []).append(value)
    return columns


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _mean_min_max(columns: Mapping[str, Sequence[float]]) -> dict[str, float | None]:
    """<name>_mean, _min and _max; values that are not finite are left out of them."""
    summary: dict[str, float | None] = {}
    for name, values in columns.items():
        finite = [float(value) for value in values if math.isfinite(value)]
        summary[f"{name}_mean"] = _mean(finite)
        summary[f"{name}_min"] = min(finite, default=None)
        summary[f"{name}_max"] = max(finite, default=None)
    return summary


def pretty_print(result: Mapping[str, Any]) -> str:
    """A result as YAML to read, without its settings, its lists of episodes and what is null."""
    shown = {key: value for key, value in result.items() if key not in ("config", "hist_stats") and value is not None}
    return yaml.safe_dump(json_safe(shown), default_flow_style=False, sort_keys=False)


def check_kept(fields: Iterable[str], result: Result) -> None:
    """Raise CallbackError where hooks took some of its `fields` that are read out of a result."""
    if gone := [name for name in fields if name in READ_FIELDS and name not in result]:
        raise CallbackError(
            f"callbacks: on_train_result took {', '.join(gone[:3])} out of the result, which others read. Add to it."
        )


def make_json_safe(result: Result) -> None:
    """Replace the values of a result by JSON values; its "config" holds them already."""
    result.update({key: json_safe(value) for key, value in result.items() if key != "config"})


def node_ip() -> str:
    """This machine's address as its neighbours see it (a connected UDP socket sends nothing)."""
    for family, nowhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):  # for documentation
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((nowhere, 9))
            return str(probe.getsockname()[0])
    return "127.0.0.1"
