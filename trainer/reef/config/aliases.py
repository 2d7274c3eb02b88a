"""Older spellings of settings and what they are called here. Read only where dictionaries come in."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any

from reef.errors import ConfigError

RENAMED = {
    "learning_rate": "lr",
    "stepsize": "lr",
    "lambda": "lambda_",
    "input": "input_",
    "lr_schedule": "lr",
    "entropy_coeff_schedule": "entropy_coeff",
    "num_workers": "num_rollout_workers",
    "num_env_runners": "num_rollout_workers",
    "num_envs_per_env_runner": "num_envs_per_worker",
    "num_cpus_per_env_runner": "num_cpus_per_worker",
    "num_gpus_per_env_runner": "num_gpus_per_worker",
    "custom_resources_per_env_runner": "custom_resources_per_worker",
    "num_learners": "num_learner_workers",
    "num_cpus_per_learner": "num_cpus_per_learner_worker",
    "num_gpus_per_learner": "num_gpus_per_learner_worker",
    "create_env_on_driver": "create_env_on_local_worker",
    "create_env_on_local_env_runner": "create_env_on_local_worker",
    "num_cpus_for_driver": "num_cpus_for_local_worker",
    "num_cpus_for_main_process": "num_cpus_for_local_worker",
    "validate_env_runners_after_construction": "validate_workers_after_construction",
    "synchronize_filter": "synchronize_filters",
    "restart_failed_env_runners": "recreate_failed_workers",
    "recreate_failed_env_runners": "recreate_failed_workers",
    "ignore_env_runner_failures": "ignore_worker_failures",
    "max_num_env_runner_restarts": "max_num_worker_restarts",
    "delay_between_env_runner_restarts_s": "delay_between_worker_restarts_s",
    "num_consecutive_env_runner_failures_tolerance": "num_consecutive_worker_failures_tolerance",
    "env_runner_health_probe_timeout_s": "worker_health_probe_timeout_s",
    "env_runner_restore_timeout_s": "worker_restore_timeout_s",
    "evaluation_num_env_runners": "evaluation_num_workers",
    "custom_eval_function": "custom_evaluation_function",
    "evaluation_num_episodes": "evaluation_duration",
    "metrics_smoothing_episodes": "metrics_num_episodes_for_smoothing",
    "collect_metrics_timeout": "metrics_episode_collection_timeout_s",
    "timesteps_per_iteration": "min_sample_timesteps_per_iteration",
    "min_iter_time_s": "min_time_s_per_iteration",
    "min_time_s_per_reporting": "min_time_s_per_iteration",
    "min_train_timesteps_per_reporting": "min_train_timesteps_per_iteration",
    "min_sample_timesteps_per_reporting": "min_sample_timesteps_per_iteration",
    "max_requests_in_flight_per_env_runner": "max_requests_in_flight_per_sampler_worker",
    "monitor": "record_env",
    "learning_starts": "num_steps_sampled_before_learning_starts",
    "minibatch_size": "sgd_minibatch_size",
    "num_epochs": "num_sgd_iter",
    "max_gradient_staleness": "max_staleness",
    "_enable_learner_api": "_enable_new_api_stack",
}
MOVED = {  # into another setting
    "buffer_size": "replay_buffer_config.capacity",
    "prioritized_replay": "replay_buffer_config.prioritized_replay",
    "prioritized_replay_alpha": "replay_buffer_config.prioritized_replay_alpha",
    "prioritized_replay_beta": "replay_buffer_config.prioritized_replay_beta",
    "prioritized_replay_eps": "replay_buffer_config.prioritized_replay_eps",
}
REPLAY = "replay_buffer_config"
IN_REPLAY = {  # keys of RLlib's replay buffers
    "alpha": "prioritized_replay_alpha",
    "beta": "prioritized_replay_beta",
    "eps": "prioritized_replay_eps",
    "replay_zero_init_states": "zero_init_states",
}
IS_PRIORITIZED = {  # by RLlib's name of the class
    "ReplayBuffer": False,
    "MultiAgentReplayBuffer": False,
    "PrioritizedReplayBuffer": True,
    "MultiAgentPrioritizedReplayBuffer": True,
}
GROUPS = {  # of RLlib's newer releases, and a setting of the group that they are here
    "env_runners": "rollouts(num_rollout_workers=...)",
    "learners": "resources(num_learner_workers=...)",
    "rl_module": "training(model=...)",
}
WITHOUT_EFFECT = {"simple_optimizer": "num_learner_workers says how many learners there are"}


def translate(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` under their present names, with one warning for each older spelling.

    Raises:
        ConfigError: one setting is given in two spellings.
    """
    if isinstance(inner := settings.get("multiagent"), Mapping):
        warnings.warn("the keys of 'multiagent' are now settings of their own.", FutureWarning, stacklevel=4)
        if twice := sorted(map(str, inner.keys() & settings.keys())):
            raise ConfigError(f"multiagent: {', '.join(twice)} is given beside it too. Leave one out.")
        settings = {**{key: value for key, value in settings.items() if key != "multiagent"}, **inner}
    settings = _out_of_replay(settings)
    renamed = {old: new for old, new in RENAMED.items() if old in settings}
    given = {old: new for old, new in renamed.items() if settings[old] is not None}
    spellings = Counter([*settings.keys() & set(given.values()), *given.values()])
    clashes = {old: new for old, new in given.items() if spellings[new] > 1}
    if clashes:
        texts = (
            f"{old}={settings[old]!r}: an older spelling of {new!r}, which is given too. Leave one out."
            for old, new in clashes.items()
        )
        raise ConfigError("\n".join(texts))
    for old, new in renamed.items():
        warnings.warn(f"setting {old!r} is now called {new!r}.", FutureWarning, stacklevel=4)
    for old in WITHOUT_EFFECT.keys() & settings.keys():
        warnings.warn(f"setting {old!r} has no effect: {WITHOUT_EFFECT[old]}.", FutureWarning, stacklevel=4)
    # An old schedule of None meant "none given".
    kept = {key: value for key, value in settings.items() if not (str(key).endswith("_schedule") and value is None)}
    translated = {renamed.get(key, key): value for key, value in kept.items() if key not in WITHOUT_EFFECT}
    if "evaluation_num_episodes" in settings:
        translated.setdefault("evaluation_duration_unit", "episodes")
    for old in [old for old in MOVED if old in settings]:
        outer, _, inner = MOVED[old].partition(".")
        group = translated.get(outer, {})
        if not isinstance(group, Mapping) or inner in group:
            raise ConfigError(
                f"{old}={settings[old]!r}: an older spelling of {MOVED[old]!r}, which is given too. Leave one out."
            )
        warnings.warn(f"setting {old!r} is now called {MOVED[old]!r}.", FutureWarning, stacklevel=4)
        translated[outer] = {**group, inner: translated.pop(old)}
    return translated


def _out_of_replay(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """`settings` with RLlib's keys inside `replay_buffer_config` under their present names, one of them beside it."""
    given = settings.get(REPLAY)
    if not isinstance(given, Mapping):
        return settings
    inner, beside = dict(given), dict[str, Any]()
    for old, new in IN_REPLAY.items():
        if old in inner:
            _move(inner, old, inner, new, f"{REPLAY}.{new}")
    if isinstance(kind := inner.get("type"), str) and (name := re.split("[.:]", kind)[-1]) in IS_PRIORITIZED:
        prioritized = inner.setdefault("prioritized_replay", IS_PRIORITIZED[name])
        if prioritized != IS_PRIORITIZED[name]:
            raise ConfigError(f"{REPLAY}.type={kind!r}: prioritized_replay={prioritized!r} says otherwise. Drop one.")
        warnings.warn(f"setting '{REPLAY}.type' is now called '{REPLAY}.prioritized_replay'.", FutureWarning, 5)
        del inner["type"]
    if "learning_starts" in inner:
        new = RENAMED["learning_starts"]
        beside = {key: value for key, value in settings.items() if key in (new, "learning_starts")}
        _move(inner, "learning_starts", beside, new, new)
    return {**settings, **beside, REPLAY: inner}


def _move(source: dict[str, Any], old: str, target: dict[str, Any], new: str, path: str) -> None:
    """Move a value from `old` in the replay buffer's settings to `new` in `target`, which messages call `path`."""
    if {old, new} & target.keys() - ({old} if source is target else set()):
        raise ConfigError(
            f"{REPLAY}.{old}={source[old]!r}: an older spelling of {path!r}, which is given too. Leave one out."
        )
    warnings.warn(f"setting '{REPLAY}.{old}' is now called {path!r}.", FutureWarning, stacklevel=6)
    target[new] = source.pop(old)
