"""Fitted Q evaluation (Le et al. 2019): a network learns the Q-values of the target policy from recorded steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch

from reef.config import AlgorithmConfig, ModelConfig
from reef.errors import ConfigError
from reef.learn.adam import Adam
from reef.learn.estimators.logged import LoggedSteps, TargetPolicy
from reef.nn.dueling import QPolicy
from reef.nn.targets import Target
from reef.spaces import Layout
from reef.types import Array

ROWS = 4096  # that the network reads at a time
# the settings of `model` that have an effect on the network
READ = (
    *("fcnet_hiddens", "fcnet_activation", "conv_filters", "conv_activation", "post_fcnet_hiddens"),
    *("custom_model", "custom_model_config"),
)


class QModel(Protocol):
    """Estimates Q-values of Discrete actions, as an estimator with a model needs them."""

    def fit(self, steps: LoggedSteps, target: TargetPolicy) -> None:
        """Learn the values of the target policy."""

    def q_values(self, obs: Array) -> Array:
        """[N, *obs] -> [N, A]."""


def _checked(model_config: Any) -> dict[str, Any]:
    """The settings of the network, of a small one by default; ConfigError for one that it does not read."""
    key = "q_model_config.model_config"
    if not isinstance(model_config, Mapping | None):
        raise ConfigError(f"{key}={model_config!r}: expected a mapping, such as {{'fcnet_hiddens': [64, 64]}}.")
    for name, value in (model_config or {}).items():
        if name in ModelConfig.by_key and name not in READ:
            raise ConfigError(f"{key}.{name}={value!r}: the network reads {', '.join(READ)}. Leave it out.")
    return dict(model_config or {"fcnet_hiddens": [64, 64]})


class FittedQ:
    """The mean square of r + gamma E_target Q'(s', a') - Q(s, a) is reduced; Q' follows Q slowly."""

    def __init__(
        self,
        observations: Layout,
        actions: Layout,
        *,
        gamma: float,
        seed: int | None = None,
        model_config: Mapping[str, Any] | None = None,
        n_iters: int = 20,
        lr: float = 1e-3,
        minibatch_size: int = 128,
        polyak_coef: float = 0.05,
    ) -> None:
        """`model_config`: of the network, those settings of `model` that are in `READ`.

        `n_iters`: passes over all steps. `polyak_coef`: share by which Q' moves towards Q after each gradient step.

        Raises:
            ConfigError: one of these is of the wrong type or size, or the network does not read it.
        """
        for name, value in {"n_iters": n_iters, "minibatch_size": minibatch_size}.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"q_model_config.{name}={value!r}: expected a whole number of 1 or more.")
        for name, share in {"lr": lr, "polyak_coef": polyak_coef}.items():
            if not isinstance(share, int | float) or isinstance(share, bool) or not 0 < share <= 1:
                raise ConfigError(f"q_model_config.{name}={share!r}: expected a number above 0, and at most 1.")
        self.spaces, self.gamma, self.seed = (observations.space, actions.space), gamma, seed
        self.config = AlgorithmConfig().training(model=_checked(model_config)).checked()
        if model_config and (unread := list(self.config.ignored_settings(self._new_network(0)))):
            raise ConfigError(f"q_model_config.model_config: {unread[0]} Leave it out.")
        self.n_iters, self.lr, self.minibatch_size, self.polyak_coef = n_iters, lr, minibatch_size, polyak_coef

    def fit(self, steps: LoggedSteps, target: TargetPolicy) -> None:
        """Begin with a new network, so that an estimate depends on no earlier one."""
        rng = np.random.default_rng(self.seed)
        self.network = self._new_network(int(rng.integers(2**63)))
        self.network.bind_parameters()
        behind = Target(self.network, tau=self.polyak_coef, period=1)
        optimizer = Adam(self.network.flat, self.lr)
        rewards = steps.rewards.astype(np.float32)
        following = target.next_probabilities(steps).astype(np.float32)  # [N, A]
        columns = (steps.obs, steps.actions, rewards, steps.next_obs, ~steps.terminated, following)
        for _ in range(self.n_iters):
            order = rng.permutation(len(steps))
            for first in range(0, len(order), self.minibatch_size):
                rows = order[first : first + self.minibatch_size]
                obs, actions, reward, next_obs, goes_on, probabilities = (torch.from_numpy(c[rows]) for c in columns)
                with torch.no_grad():
                    next_value = (probabilities * behind.network.q_values(next_obs)).sum(-1)
                    wanted = reward + self.gamma * goes_on * next_value
                found = self.network.q_values(obs).gather(-1, actions[:, None]).squeeze(-1)
                self.network.flat.gradient.zero_()
                (found - wanted).square().mean().backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                behind.move()

    def _new_network(self, seed: int) -> QPolicy:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # first weights come from torch's global generator
            return QPolicy(self.config, *self.spaces)

    def q_values(self, obs: Array) -> Array:
        """[N, *obs] -> [N, A]."""
        with torch.inference_mode():
            parts = [self.network.q_values(torch.from_numpy(obs[i : i + ROWS])) for i in range(0, len(obs), ROWS)]
        found: Array = torch.cat(parts).numpy().astype(np.float64)
        return found
