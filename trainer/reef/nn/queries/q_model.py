"""The model of a Q-network: its features, and the parts that make Q-values and state values of them."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from reef.errors import ConfigError
from reef.nn.queries.model import NetworkPart, PolicyModel


class QModel(PolicyModel):
    """Calling it with {"obs": observations} returns (features [N, F], state), from which the heads go on."""

    @property
    def base_model(self) -> NetworkPart:
        """The layers before the heads; all of a custom model."""
        if self.policy.module is not None:
            return NetworkPart(self.policy.module, self.shown_inputs)
        names = ("encoder", "action_features", "memory")
        parts = {name: part for name in names if (part := getattr(self.policy, name, None)) is not None}
        return NetworkPart(nn.ModuleDict(parts), self.shown_inputs)

    @property
    def q_value_head(self) -> NetworkPart:
        """The layers from features to advantages of actions, or to Q-values without dueling."""
        return self._head("advantage", "no head: it puts out Q-values itself.")

    @property
    def state_value_head(self) -> NetworkPart:
        """The layers from features to state values."""
        return self._head("value", "no state values.")

    def get_q_value_distributions(self, model_out: Any) -> list[Tensor]:
        """What a call returned -> Q-values [N, A], and logits [N, A, atoms] of the distributions over returns.

        They are what the policy acts by: with dueling, state values and advantages together. With one atom the logits
        are the Q-values again.
        """
        logits = self.policy.stream_outputs(self._features(model_out))
        values = self.policy.expected(logits)
        return [values, logits.view(*values.shape, self.policy.num_atoms)]

    def get_state_value(self, model_out: Any) -> Tensor:
        """What a call returned -> the outputs of the stream of state values [N, atoms]."""
        value: Tensor = self.state_value_head(self._features(model_out))
        return value

    def _head(self, name: str, otherwise: str) -> NetworkPart:
        head = getattr(self.policy, name, None)
        if head is None:
            why = "a custom model is the whole network, with" if self.policy.module is not None else "dueling=False has"
            raise ConfigError(f"{why} {otherwise}")
        return NetworkPart(head, f"features [N, {self.policy.num_features}]")

    def _features(self, model_out: Any) -> Tensor:
        """The features in what a call returned, with the state or without it; ConfigError for anything else."""
        features = model_out[0] if isinstance(model_out, tuple | list) and model_out else model_out
        width = self.policy.num_features
        if not isinstance(features, Tensor) or features.dim() != 2 or features.shape[1] != width:
            found = f"shape {tuple(features.shape)}" if isinstance(features, Tensor) else type(features).__name__
            raise ConfigError(
                f"model_out has {found}, expected what the model returns for a dict of observations: ('N', {width})."
            )
        return features
