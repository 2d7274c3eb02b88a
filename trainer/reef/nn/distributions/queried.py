"""An action distribution that a person asks: it takes lists, arrays and tensors, and samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from reef.errors import ConfigError
from reef.nn.distributions.distribution import Distribution
from reef.nn.distributions.of_spaces import ActionDistribution, DistributionMaker


class QueriedDistribution(Distribution):
    """N action distributions of a policy: `policy.dist_class(logits, policy.model)`.

    Actions are as the policy chooses them, before they are brought into the bounds of a Box.
    """

    def __init__(self, maker: DistributionMaker, inputs: Any, model: object) -> None:
        """`maker`: the policy's `dist_class`; `inputs` [N, D], what its `model` returned. ConfigError for others."""
        if not isinstance(model, nn.Module):
            raise ConfigError(f"dist_class(logits, {model!r}): the second argument is policy.model.")
        self.maker = maker
        self.inputs = inputs if isinstance(inputs, Tensor) else torch.as_tensor(np.asarray(inputs, np.float32))
        if self.inputs.dim() != 2 or self.inputs.shape[1] != maker.num_inputs:
            raise ConfigError(
                f"dist_class: the inputs have shape {tuple(self.inputs.shape)}, expected ('N', {maker.num_inputs}): "
                "what policy.model returns first."
            )
        self.inner: Distribution = maker(self.inputs)

    def __len__(self) -> int:
        """N."""
        return len(self.inputs)

    def sample(self, generator: np.random.Generator | None = None) -> Tensor:
        """[N, *action], sampled; without a `generator`, `torch.manual_seed` decides which."""
        if generator is None:
            generator = np.random.default_rng(int(torch.randint(2**62, ())))
        return torch.as_tensor(self._acting.sample(generator), device=self.inputs.device)

    def deterministic_sample(self) -> Tensor:
        """[N, *action], the most likely."""
        return torch.as_tensor(self._acting.deterministic(), device=self.inputs.device)

    def logp(self, actions: Any) -> Tensor:
        """[N] log-likelihood of actions [N, *action], as a list, array or tensor; ConfigError for other shapes."""
        given = actions if isinstance(actions, Tensor) else torch.as_tensor(np.asarray(actions))
        expected = (len(self.inputs), *self.maker.shape)
        if tuple(given.shape) != expected:
            raise ConfigError(
                f"logp: the actions have shape {tuple(given.shape)}, expected {expected}: one for each row."
            )
        return _asked(self.inner.logp, given.to(self.inputs.device))

    def entropy(self) -> Tensor:
        """[N] entropy in nats."""
        return _asked(self.inner.entropy)

    def kl(self, other: Any) -> Tensor:
        """[N] KL(self || other), in nats."""
        if getattr(other, "maker", None) is not self.maker:
            raise ConfigError("kl: the other distribution is of another policy.")
        return _asked(self.inner.kl, other.inner)

    @property
    def _acting(self) -> ActionDistribution:
        return ActionDistribution(self.maker, self.inputs.detach().cpu().numpy())


def _asked(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    try:
        return function(*arguments)
    except NotImplementedError as error:  # by the kind of distribution
        raise ConfigError(f"dist_class: {error}.") from error
