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
from reef.rollout.exploration.noise import GaussianNoise, OrnsteinUhlenbeckNoise
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
    given, usual = config.exploration_config, config.declared["exploration_config"].fresh()
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
    box = ActionBox.of(
        action_layout,
        normalized=config.normalize_actions,
        worker_index=worker_index,
        num_workers=config.num_rollout_workers,
    )
    return make(box, **arguments)


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
    return kind
