"""Makes the estimators of the setting `off_policy_estimation_methods`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reef.errors import ConfigError
from reef.learn.estimators.arguments import check_arguments, named_class
from reef.learn.estimators.estimator import OffPolicyEstimator
from reef.learn.estimators.importance import ImportanceSampling, WeightedImportanceSampling
from reef.learn.estimators.model_based import DirectMethod, DoublyRobust
from reef.spaces import Layout

KEY = "off_policy_estimation_methods"
ESTIMATORS: dict[str, type[OffPolicyEstimator]] = {
    "is": ImportanceSampling,
    "wis": WeightedImportanceSampling,
    "dm": DirectMethod,
    "dr": DoublyRobust,
}


def make_estimators(
    methods: Mapping[str, Mapping[str, Any]], observations: Layout, actions: Layout, *, gamma: float, seed: int | None
) -> dict[str, OffPolicyEstimator]:
    """By name; ConfigError for a type that is unknown, or an argument that it does not take."""
    made = {}
    for name, method in methods.items():
        key, arguments = f"{KEY}: {name}", dict(method)
        kind: Any = named_class(arguments.pop("type"), f"{key}.type", ESTIMATORS, OffPolicyEstimator)
        check_arguments(kind, key, arguments)
        try:
            made[name] = kind(observations, actions, gamma=gamma, seed=seed, **arguments)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from error
    return made
