"""Settings of training from applications that bring their own loop: what goes with them, and what their clients get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from reef.callbacks.default import OF_EPISODES
from reef.callbacks.hooks import is_overridden
from reef.config.callback_classes import callback_classes
from reef.config.groups.inputs import POLICY_SERVER, is_function
from reef.config.loading import load_function
from reef.config.values import plain
from reef.errors import ConfigError
from reef.types import DEFAULT_POLICY

if TYPE_CHECKING:
    from reef.config.algorithm_config import AlgorithmConfig

EXTERNAL = "external"  # the environment of a document in which applications play
# What only an environment that Reef steps would read.
OF_STEPPED = (
    "env_config", "env_task_fn", "record_env", "render_env", "horizon", "soft_horizon", "no_done_at_end",
    "restart_failed_sub_environments", "num_envs_per_worker", "create_env_on_local_worker", "observation_fn", "output",
    "remote_worker_envs", "actions_in_input_normalized", "shuffle_buffer_size",
)  # fmt: skip
OF_STEPPING = ("on_environment_created", *OF_EPISODES)
# What a client's policy is made with.
OF_POLICY = ("training", "exploration", "environment")
OF_CLIENTS = (
    "env_to_module_connector", "module_to_env_connector", "policies", "policy_mapping_fn",
    "algorithm_config_overrides_per_module",
)  # fmt: skip


def comes_from_applications(input_: Any) -> bool:
    """Whether this value of `input_`, where there is no environment, makes a policy server."""
    return input_ == POLICY_SERVER or is_function(input_)


def named_in_document(env: Any, settings: Mapping[str, Any]) -> Any:
    """The `environment.name` of a job document for an `env` of these settings by key."""
    played = comes_from_applications(settings.get("input_", settings.get("input")))
    return EXTERNAL if env is None and played else env


def application_problems(config: AlgorithmConfig) -> Iterator[str]:
    """What does not go together with applications that play."""
    begin = f"input_={config.input_!r}"
    yield from _function_problems(config.input_)
    if config.asynchronous or config.decentralized or config.worker_class or config.sample_async:
        what = "sample_async=True" if config.sample_async else config.label
        yield f"{begin}: not available with {what}. Use PPO, A2C, PG, DQN, SimpleQ, SAC, TQC, DDPG or TD3 without it."
    if config.env is not None:
        yield (
            f"env={config.env!r}: {begin} has no environment: applications bring theirs. Set env to null, "
            f"in a job document environment.name to {EXTERNAL!r}."
        )
    for key in ("observation_space", "action_space"):
        missing = [name for name in config.policies if getattr(config.spec(name), key) is None]
        if getattr(config, key) is None and missing:
            of = f" of {', '.join(missing)}" if has_agents(config) else ""
            yield f"{key}{of}: {begin} has no environment to read it from. Give it."
    if getattr(config, "replay_mode", "independent") != "independent":
        yield f"replay_mode={config.replay_mode!r}: {begin} has no whole steps of an environment. Leave it out."
    if config.model.memories and "replay_buffer_config" in config.groups:
        yield (
            f"model.{config.model.memories[0]}: {config.label} replays sequences of the columns of environments, and "
            f"{begin} has none. Leave it out, or use PPO, A2C or PG."
        )
    yield from _without_effect(config, begin)


def has_agents(config: AlgorithmConfig) -> bool:
    """Whether an application's episodes have several agents: there are policies for them."""
    return config.policy_mapping_fn is not None or [*config.policies] != [DEFAULT_POLICY]


def _without_effect(config: AlgorithmConfig, begin: str) -> Iterator[str]:
    for key in OF_STEPPED:
        if (value := getattr(config, key)) != config.declared[key].fresh():
            yield f"{key}={value!r}: has no effect with {begin}, which steps no environment. Leave it out."
    classes = callback_classes(config.callbacks_class)
    if hooks := [name for name in OF_STEPPING if any(is_overridden(cls, name) for cls in classes)]:
        yield f"callbacks: {', '.join(hooks)}: not called with {begin}, which steps no environment. Leave them out."


def _function_problems(input_: Any) -> Iterator[str]:
    try:
        if input_ != POLICY_SERVER:
            load_function(input_, "input_", "ioctx")
    except ConfigError as error:
        yield str(error)


def as_sent(config: AlgorithmConfig) -> dict[str, Any]:
    """The settings, as JSON data, with which a client makes its copy of the policy."""
    changed = config.changed()
    found = {key: plain(changed[key]) for key in changed if config.groups[key] in OF_POLICY or key in OF_CLIENTS}
    if isinstance(mapping := found.get("policy_mapping_fn"), str) and "<" in mapping:
        raise ConfigError(
            f"policy_mapping_fn={mapping!r}: a client that acts by itself cannot import it. Give a function of a "
            "module, a mapping, or use inference_mode='remote'."
        )
    return found
