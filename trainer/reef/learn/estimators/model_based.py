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
        folds: int = 1,
    ) -> None:
        """`q_model_config`: 'type', a class with the methods of `QModel` (default: `FittedQ`), and its arguments.

        `folds`: parts of the episodes; those of each part are valued by a model that is fitted to all others. 1: one
        model is fitted to all.

        Raises:
            ConfigError: actions are not Discrete, `folds` is no number of parts, or the model cannot be made.
        """
        super().__init__(observations, actions, gamma=gamma, seed=seed)
        if not isinstance(actions.space, spaces.Discrete):
            raise ConfigError(
                f"{type(self).__name__} sums over all actions, and {actions.space} is "
                "not Discrete. Use ImportanceSampling or WeightedImportanceSampling."
            )
        if type(folds) is not int or folds < 1:
            raise ConfigError(f"folds={folds!r}: expected a whole number of parts of the episodes, at least 1.")
        self.folds = folds
        if not isinstance(q_model_config, Mapping | None):
            raise ConfigError(f"{KEY}={q_model_config!r}: expected a mapping, such as {{'n_iters': 40}}.")
        arguments = dict(q_model_config or {})
        kind: Any = named_class(arguments.pop("type", FittedQ), f"{KEY}.type", {"fqe": FittedQ}, object)
        check_arguments(kind, KEY, arguments)
        self.q_model: QModel = kind(observations, actions, gamma=gamma, seed=seed, **arguments)

    def check(self, steps: LoggedSteps) -> None:
        """Raise ConfigError also where there are fewer episodes than `folds`."""
        super().check(steps)
        if len(steps.starts) < self.folds:
            raise ConfigError(
                f"folds={self.folds}: there are {len(steps.starts)} recorded episodes. Give at most as many folds."
            )

    def values(self, steps: LoggedSteps, target: TargetPolicy) -> Array:
        """[n] by the model."""
        if self.folds == 1:
            self.q_model.fit(steps, target)
            return self.values_by_model(steps, target)
        # 5: a random stream of its own, as that of the bootstrap
        rng = np.random.default_rng(None if self.seed is None else [self.seed, 0, 5])
        fold = rng.permutation(len(steps.starts)) % self.folds
        found = np.empty(len(steps.starts))
        for number in range(self.folds):
            self.q_model.fit(steps.part(fold != number), target)
            found[fold == number] = self.values_by_model(steps.part(fold == number), target)
        return found

    def values_by_model(self, steps: LoggedSteps, target: TargetPolicy) -> Array:
        """[n] V(s_0), by the fitted model."""
        return self.expected(target.probabilities(steps)[steps.starts], steps.obs[steps.starts])

    def expected(self, probabilities: Array, obs: Array) -> Array:
        """[N, A] and [N, *obs] -> [N] the mean of the Q-values over actions of these probabilities."""
        values: Array = (probabilities * self.q_model.q_values(obs)).sum(-1)
        return values


class DoublyRobust(DirectMethod):
    """The model's values, corrected by importance sampling of its errors (Jiang & Li 2016, equation 10).

    Unbiased if the model is right or the recorded likelihoods are, when the model learns from other steps (`folds`).
    """

    needs_likelihoods = True

    def values_by_model(self, steps: LoggedSteps, target: TargetPolicy) -> Array:
        """[n] V_DR of the first step, where V_DR(t) = V(s_t) + rho_t (r_t + gamma V_DR(t + 1) - Q(s_t, a_t)).

        An episode that was cut off goes on with the model's value.
        """
        ratios = np.exp(steps.log_ratios(target))
        q_values = self.q_model.q_values(steps.obs)[np.arange(len(steps)), steps.actions]
        values = self.expected(target.probabilities(steps), steps.obs)
        ends = steps.starts + steps.lengths - 1
        ahead = self.expected(target.next_probabilities(steps)[ends], steps.next_obs[ends]) * ~steps.terminated[ends]
        found = np.empty(len(steps.starts))
        columns = list(zip(ratios.tolist(), steps.rewards.tolist(), q_values.tolist(), values.tolist(), strict=True))
        for episode, (start, end) in enumerate(zip(steps.starts.tolist(), ends.tolist(), strict=True)):
            estimate = float(ahead[episode])
            for ratio, reward, q_value, value in reversed(columns[start : end + 1]):
                estimate = value + ratio * (reward + self.gamma * estimate - q_value)
            found[episode] = estimate
        return found
