"""Which result fields can stop a training."""

from __future__ import annotations

from reef.errors import nearest

STOP_FIELDS = (
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
    "num_env_steps_trained",
    "num_healthy_workers",
    "time_since_restore",
    "time_this_iter_s",
    "time_total_s",
    "timesteps_since_restore",
    "timesteps_this_iter",
    "timesteps_total",
    "training_iteration",
)
EVALUATION_FIELDS = (
    "episode_len_mean",
    "episode_reward_max",
    "episode_reward_mean",
    "episode_reward_min",
    "episodes_this_iter",
)
# Groups whose members only the running training knows: policy ids, timers, a user's own metrics.
OPEN_GROUPS = (
    "counters",
    "custom_metrics",
    "info",
    "perf",
    "policy_reward_max",
    "policy_reward_mean",
    "policy_reward_min",
    "sampler_perf",
    "timers",
)


def stop_key_problem(key: str) -> str | None:
    """Return what is wrong with a stop key (a result field, or `group/field`), or None."""
    group, slash, field = key.partition("/")
    if group == "evaluation" and slash:
        if field in EVALUATION_FIELDS or field.startswith("custom_metrics/"):
            return None
        return f"is no result field that can stop a training.{nearest(key, _evaluation_keys())}"
    if key in STOP_FIELDS or (group in OPEN_GROUPS and field):
        return None
    guess = nearest(key, (*STOP_FIELDS, *_evaluation_keys()))
    return f"is no result field that can stop a training.{guess or ' Valid: ' + ', '.join(STOP_FIELDS) + '.'}"


def _evaluation_keys() -> list[str]:
    return [f"evaluation/{field}" for field in EVALUATION_FIELDS]
