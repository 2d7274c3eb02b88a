"""Makes an exploration from the setting `exploration_config`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from reef.config import AlgorithmConfig
from reef.config.loading import load
from reef.errors import ConfigError, nearest
from reef.rollout.exploration.action_box import ActionBox
from reef.rollout.exploration.discrete import EpsilonGreedy, Random, SoftQ
from reef.rollout.exploration.exploration import Exploration, StochasticSampling
from reef.rollout.exploration.intrinsic import RE3, Curiosity, IntrinsicExploration
from reef.rollout.exploration.noise import GaussianNoise, OrnsteinUhlenbeckNoise
from reef.rollout.exploration.parameter_noise import ParameterNoise
from reef.rollout.exploration.sub_exploration import WithSubExploration
from reef.spaces import Layout

EXPLORATIONS: dict[str, type[Exploration]] = {
    kind.__name__: kind
    for kind in (
        StochasticSampling,
        Random,
        EpsilonGreedy,
        SoftQ,
        GaussianNoise,
        OrnsteinUhlenbeckNoise,
        ParameterNoise,
        Curiosity,
        RE3,
    )
}
# RLlib's names for these types with per_worker=True; they take no argument from the algorithm's default.
PER_WORKER: dict[str, type[Exploration]] = {
    f"PerWorker{kind.__name__}": kind for kind in (EpsilonGreedy, GaussianNoise, OrnsteinUhlenbeckNoise)
}


def make_exploration(
    config: AlgorithmConfig,
    action_layout: Layout,
    worker_index: int = 0,
) -> Exploration:
    """Make the exploration of one policy on one worker; ConfigError names a wrong type or argument."""
    box = ActionBox.of(
        action_layout,
        normalized=config.normalize_actions,
        worker_index=worker_index,
        num_workers=config.num_rollout_workers,
    )
    made = _make(config.exploration_config, config.declared["exploration_config"].fresh(), box)
    if isinstance(made, IntrinsicExploration):
        made.check_config(config)
    chooses = made.sub if isinstance(made, WithSubExploration) else made
    if config.model.custom_action_dist is not None and isinstance(chooses, EpsilonGreedy | SoftQ):
        raise ConfigError(
            f"exploration_config.type={type(chooses).__name__!r} reads the network's outputs as Q-values, which they "
            "are not beside model.custom_action_dist. Use 'StochasticSampling' or 'Random'."
        )
    return made


def rewards_what_is_new(config: AlgorithmConfig) -> bool:
    """Whether the learner adds intrinsic rewards."""
    usual = config.declared["exploration_config"].fresh()
    kind = _constructor(config.exploration_config.get("type", usual["type"]))
    return isinstance(kind, type) and issubclass(kind, IntrinsicExploration)


def _make(given: dict[str, Any], usual: dict[str, Any], box: ActionBox) -> Exploration:
    """`given`: what a person sets; `usual`: the algorithm's default."""
    kind = given.get("type", usual["type"])
    make = _constructor(kind)
    if kind in PER_WORKER:
        arguments = {**given, "per_worker": True}
    else:
        arguments = {**(usual if make is _constructor(usual["type"]) else {}), **given}
    arguments.pop("type", None)
    known = list(inspect.signature(make).parameters)[1:]
    for name in arguments:
        if name not in known:
            raise ConfigError(
                f"exploration_config.{name}={arguments[name]!r} is not an argument of {make.__name__}, which takes: "
                f"{', '.join(known) or 'none'}.{nearest(name, known)}"
            )
    if "sub_exploration" in known:
        arguments["sub_exploration"] = _make_sub(arguments.get("sub_exploration"), usual, box)
    return make(box, **arguments)


def _make_sub(given: Any, usual: dict[str, Any], box: ActionBox) -> Exploration:
    """The exploration that another one leaves the choice of actions to."""
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise ConfigError(
            f"exploration_config.sub_exploration={given!r} must be a mapping such as "
            "{'type': 'EpsilonGreedy', 'final_epsilon': 0.05}."
        )
    if "sub_exploration" in inspect.signature(_constructor(usual["type"])).parameters:
        usual = {"type": "StochasticSampling"}
    try:
        made = _make(given, usual, box)
    except ConfigError as error:
        text = str(error).replace("exploration_config", "exploration_config.sub_exploration")
        raise ConfigError(text) from error
    if isinstance(made, WithSubExploration):
        raise ConfigError(
            f"exploration_config.sub_exploration.type={type(made).__name__!r} leaves the choice of actions to another "
            "exploration itself. Use one that chooses them, such as 'EpsilonGreedy'."
        )
    return made


def _constructor(kind: Any) -> Callable[..., Exploration]:
    if isinstance(kind, str) and ("." in kind or ":" in kind):
        path = kind if ":" in kind else ":".join(kind.rsplit(".", 1))
        kind = load(path, what="exploration_config.type")
    if isinstance(kind, str):
        named = EXPLORATIONS | PER_WORKER
        if kind not in named:
            raise ConfigError(
                f"exploration_config.type={kind!r} is unknown. Use one of {', '.join(named)}, or a path "
                f"'package.module:Name'.{nearest(kind, named)}"
            )
        return named[kind]
    if not (isinstance(kind, type) and issubclass(kind, Exploration)):
        raise ConfigError(f"exploration_config.type={kind!r} must be a name or a subclass of Exploration.")
    if kind.get_exploration_action is not Exploration.get_exploration_action:
        raise ConfigError(
            f"exploration_config.type={kind!r} overrides get_exploration_action, which workers do not call. Override "
            "explore(distribution, timestep, generator), which returns the actions."
        )
    return kind
