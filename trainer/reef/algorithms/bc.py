"""Behaviour cloning (Pomerleau 1989): MARWIL that imitates all recorded actions alike, so it has no critic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from torch import Tensor

from reef.algorithms.marwil import MARWIL, MARWILConfig, MARWILLearner, imitation_loss
from reef.config import default
from reef.config.ignored import Network, ignored
from reef.nn.gradients import Columns, Loss


class BCConfig(MARWILConfig):
    """Settings of BC."""

    algorithm: ClassVar[str] = "BC"
    algorithm_class: ClassVar[str] = "reef.algorithms.bc:BC"
    policy_class: ClassVar[str] = "reef.nn.make:actor"

    beta: float = default(0.0)

    def problems(self) -> Iterator[str]:
        """Yield what does not go together."""
        yield from super().problems()
        if self.beta > 0:
            yield f"beta={self.beta:g}: BC has no critic to weigh actions by. Leave it at 0, or train with MARWIL."

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for an actor without a critic."""
        yield from super().ignored_settings(network)
        if not self.model.custom_model:
            yield from ignored(self, "on an actor without a critic", "model.vf_share_layers")


class BCLearner(MARWILLearner):
    """As MARWIL's with beta 0; the policy is the actor alone."""

    def loss(self, outputs: Any, minibatch: Columns) -> Loss:
        """Mean loss; `outputs`: distribution inputs [N, D]."""
        dist_inputs: Tensor = outputs
        return imitation_loss(self.policy.dist_class(dist_inputs).logp(minibatch["actions"]))


class BC(MARWIL):
    """Imitate recorded episodes."""

    config_class = BCConfig
    learner_class = BCLearner
