"""The keys of `spec.config` and `spec.stop`, without the trainer's packages: the operator refuses others too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from reef.api.known_settings import OWN, SHARED
from reef.errors import nearest

OVERRIDES = "evaluation_config"  # holds settings itself
SHOWN = 10  # problems of a kind that are named one by one

STOP_FIELDS = frozenset(
    {
        "agent_timesteps_total",
        "episode_len_mean",
        "episode_reward_max",
        "episode_reward_mean",
        "episode_reward_min",
        "episodes_this_iter",
        "episodes_total",
        "iterations_since_restore",
        "num_agent_steps_sampled",
        "num_agent_steps_trained",
        "num_env_steps_sampled",
        "num_env_steps_sampled_this_iter",
        "num_env_steps_sampled_throughput_per_sec",
        "num_env_steps_trained",
        "num_env_steps_trained_this_iter",
        "num_healthy_workers",
        "num_lost_workers",
        "num_waiting_workers",
        "num_worker_restarts",
        "pid",
        "time_since_restore",
        "time_this_iter_s",
        "time_total_s",
        "timestamp",
        "timesteps_since_restore",
        "timesteps_this_iter",
        "timesteps_total",
        "training_iteration",
    }
)
# Fields that only grow, from 0 on, so that their share of the threshold tells how far the run is.
GROWING_FIELDS = frozenset(
    {
        "agent_timesteps_total",
        "episodes_total",
        "num_agent_steps_sampled",
        "num_agent_steps_trained",
        "num_env_steps_sampled",
        "num_env_steps_trained",
        "time_total_s",
        "timesteps_total",
        "training_iteration",
    }
)
SINCE_RESTORE = frozenset({"iterations_since_restore", "time_since_restore", "timesteps_since_restore"})
# Groups whose members only the running training knows: policy ids, timers, a user's own metrics.
OPEN_GROUPS = frozenset(
    {
        "counters",
        "custom_metrics",
        "info",
        "off_policy_estimator",
        "perf",
        "policy_reward_max",
        "policy_reward_mean",
        "policy_reward_min",
        "sampler_perf",
        "timers",
    }
)


def stop_key_problem(key: str) -> str | None:
    """Return what is wrong with a stop key (a result field, or `group/field`), or None."""
    group, _, field = key.partition("/")
    if group == "evaluation" and field:  # a custom evaluation function reports under names of its own
        close = nearest(field, STOP_FIELDS)
        known = not close or field in STOP_FIELDS or field.partition("/")[0] in OPEN_GROUPS
        return None if known else f"is no field of an evaluation's result.{close}"
    if key in STOP_FIELDS or (group in OPEN_GROUPS and field):
        return None
    if group in OPEN_GROUPS | {"evaluation"}:
        return f"is a group of results: name a number in it, as '{group}/<name>'."
    close = nearest(key.replace("episode_return", "episode_reward"), STOP_FIELDS)  # as others call it
    return f"is no result field that is a number.{close} A number of your own is 'custom_metrics/<name>_mean'."


def stop_value_problem(key: str, value: float) -> str | None:
    """Return what is wrong with the value of a stop key, or None: what grows from 0 has reached 0 before it begins."""
    if key in GROWING_FIELDS | SINCE_RESTORE and value <= 0:
        return f"is {value:g}, which is reached before training begins. Give a number above 0."
    return None


def setting_problems(algorithm: str, config: Mapping[str, Any]) -> Iterator[str]:
    """Name the keys that no setting of `algorithm` has; of one of your own, only the trainer knows the settings.

    Many are counted: a hint takes milliseconds to find, and nobody reads thousands of them.
    """
    own = {name.upper(): (name, keys) for name, keys in OWN.items()}.get(algorithm.upper())
    if own is None:
        return
    unknown = _unknown(config, {*SHARED, *own[1]}, "")
    for prefix, key, known in islice(unknown, SHOWN):
        hint = nearest(key, sorted(name for name in known if "." not in name))
        yield f"{prefix}{key}: {own[0]} has no such setting.{hint}"
    if rest := sum(1 for _ in unknown):
        yield f"and {rest} more keys that are no settings of {own[0]}"


def _unknown(config: Mapping[str, Any], known: set[str], prefix: str) -> Iterator[tuple[str, str, set[str]]]:
    """Yield the keys that are not known, each with what is before it and with the known ones there."""
    for key, value in config.items():
        if value is None and str(key).endswith("_schedule"):  # an older way to say that there is none
            continue
        if key not in known:
            yield prefix, key, known
        elif isinstance(value, Mapping):
            inner = {name.removeprefix(f"{key}.") for name in known if name.startswith(f"{key}.")}
            if inner or key == OVERRIDES:
                yield from _unknown(value, inner or known, f"{prefix}{key}.")
