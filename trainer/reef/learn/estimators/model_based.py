"""Estimators with a model of the Q-values: by the model alone, and corrected by what was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from reef.errors import ConfigError
from reef.learn.estimators.arguments import check_arguments, named_class
from reef.learn.estimators.estimator import OffPolicyEstimator
from reef.learn.estimators.fitted_q import FittedQ, QModel
from reef.learn.estimators.logged import LoggedSteps, TargetPolicy
from reef.spaces import Layout
from reef.types import Array

KEY = "q_model_config"


class DirectMethod(OffPolicyEstimator):
    """The model's values of the first observations. Its variance is small, its bias is that of the model."""

    def __init__(
        self,
        observations: Layout,
        actions: Layout,
        *,
        gamma: float,
        seed: int | None = None,
        q_model_config: Mapping[str, Any] | None = None,
    ) -> None:
        """`q_model_config`: 'type', a class with the methods of `QModel` (default: `FittedQ`), and its arguments.

        Raises:
            ConfigError: actions are not Discrete, or the model cannot be made.
        """
        super().__init__(observations, actions, gamma=gamma, seed=seed)
        if not isinstance(actions.space, spaces.Discrete):
            raise ConfigError(
                f"{type(self).__name__} sums over all actions, and {actions.space} is "
                "not Discrete. Use ImportanceSampling or WeightedImportanceSampling."
            )
        if not isinstance(q_model_config, Mapping | None):
            raise ConfigError(f"{KEY}={q_model_config!r}: expected a mapping, such as {{'n_iters': 40}}.")
        arguments = dict(q_model_config or {})
        kind: Any = named_class(arguments.pop("type", FittedQ), f"{KEY}.type", {"fqe": FittedQ}, object)
        check_arguments(kind, KEY, arguments)
        self.q_model: QModel = kind(observations, actions, gamma=gamma, seed=seed, **arguments)

    def values(self, steps: LoggedSteps, target: TargetPolicy) -> Array:
        """[n] V(s_0)."""
        self.q_model.fit(steps, target)
        return self.state_values(steps.obs[steps.starts], target)

    def state_values(self, obs: Array, target: TargetPolicy) -> Array:
        """[N, *obs] -> [N] the mean of the Q-values over the target's actions."""
        values: Array = (target.probabilities(obs) * self.q_model.q_values(obs)).sum(-1)
        return values


class DoublyRobust(DirectMethod):
    """The model's values, corrected by importance sampling of its errors (Jiang & Li 2016, equation 10).

    Unbiased if the model is right or the recorded likelihoods are, when the model is not learned from the same steps.
    """

    needs_likelihoods = True

    def values(self, steps: LoggedSteps, target: TargetPolicy) -> Array:
        """[n] V_DR of the first step, where V_DR(t) = V(s_t) + rho_t (r_t + gamma V_DR(t + 1) - Q(s_t, a_t)).

        An episode that was cut off goes on with the model's value.
        """
        ratios = np.exp(steps.log_ratios(target))
        self.q_model.fit(steps, target)
        q_values = self.q_model.q_values(steps.obs)[np.arange(len(steps)), steps.actions]
        values = self.state_values(steps.obs, target)
        ends = steps.starts + steps.lengths - 1
        ahead = self.state_values(steps.next_obs[ends], target) * ~steps.terminated[ends]
        found = np.empty(len(steps.starts))
        columns = list(zip(ratios.tolist(), steps.rewards.tolist(), q_values.tolist(), values.tolist(), strict=True))
        for episode, (start, end) in enumerate(zip(steps.starts.tolist(), ends.tolist(), strict=True)):
            estimate = float(ahead[episode])
            for ratio, reward, q_value, value in reversed(columns[start : end + 1]):
                estimate = value + ratio * (reward + self.gamma * estimate - q_value)
            found[episode] = estimate
        return found
