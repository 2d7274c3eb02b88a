"""The network of a policy as a person asks it: with a dict of observations, for its layers and its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from reef.errors import ConfigError
from reef.nn.queries.summary import summary

if TYPE_CHECKING:
    from reef.nn.policies import Policy


class NetworkPart(nn.Module):
    """Layers of a network under their own names, with a table of them. It has the parameters, not copies."""

    network: Any
    shown_inputs: str

    def __init__(self, network: nn.Module, inputs: str = "") -> None:
        """`network`: what it is a part of, or all; `inputs`: a name and shape for the table's first line."""
        super().__init__()
        # Not registered, or parameters had other names here than in the network.
        vars(self).update(network=network, shown_inputs=inputs)
        self._modules, self._parameters, self._buffers = network._modules, network._parameters, network._buffers

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """What the network returns."""
        return self.network(*inputs, **named)

    def summary(self) -> None:
        """Print the table of layers: names, shapes and numbers of parameters."""
        print(self)

    def variables(self, as_dict: bool = False) -> list[nn.Parameter] | dict[str, nn.Parameter]:
        """The parameters, or with `as_dict` by name."""
        found = dict(self.named_parameters())
        return found if as_dict else list(found.values())

    def trainable_variables(self, as_dict: bool = False) -> list[nn.Parameter] | dict[str, nn.Parameter]:
        """Those of `variables` that training changes."""
        found = {name: each for name, each in self.named_parameters() if each.requires_grad}
        return found if as_dict else list(found.values())

    def __repr__(self) -> str:
        return f"{type(self.network).__name__}\n{summary(self, self.shown_inputs)}"


class PolicyModel(NetworkPart):
    """`policy.model`: calling it with {"obs": observations} returns (inputs of the action distribution, state)."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy, f"obs {['N', *policy.observation_layout.shape]}".replace("'", ""))
        self._values: Tensor | None = None
        self._was_called = False

    @property
    def policy(self) -> Any:
        """The policy whose network this is."""
        return self.network

    @property
    def base_model(self) -> NetworkPart:
        """All layers."""
        return NetworkPart(self.policy, self.shown_inputs)

    def forward(self, input_dict: Mapping[str, Any], state: Sequence[Any] | None = None) -> tuple[Tensor, list[Tensor]]:
        """{"obs": N observations} and the recurrent state -> distribution inputs [N, D] and the next state.

        Observations are values of the space or preprocessed, as lists, arrays or tensors; `state` has an array
        [N, ...] for each part, as the last call returned it, and is empty for a policy without a memory. Gradients flow
        to the parameters. Raises ConfigError for what does not fit.
        """
        obs = self.observations(input_dict)
        outputs, self._values, after = self.policy.outputs(obs, self.given(len(obs), state))
        self._was_called = True
        return outputs, list(after.values())

    def from_batch(self, train_batch: Mapping[str, Any]) -> tuple[Tensor, list[Tensor]]:
        """As a call, with the observations of a batch."""
        return self(train_batch)  # type: ignore[no-any-return]

    def value_function(self) -> Tensor:
        """[N], the values of the observations of the last call; ConfigError without a call or a critic."""
        if not self._was_called:
            raise ConfigError('value_function() is of the last call: call the model with {"obs": observations} first.')
        if self._values is None:
            raise ConfigError(
                f"the network {type(self.policy).__name__} of {self.policy.config.label} estimates no values of states "
                "beside its actions: use an algorithm with a critic, such as PPO."
            )
        return self._values

    def observations(self, input_dict: Mapping[str, Any]) -> Tensor:
        """[N, *obs] on the policy's device."""
        if not isinstance(input_dict, Mapping) or "obs" not in input_dict:
            given = f"the keys {list(input_dict)}" if isinstance(input_dict, Mapping) else type(input_dict).__name__
            raise ConfigError(f'the model is called with a dict {{"obs": observations}}, not with {given}.')
        obs, layout = input_dict["obs"], self.policy.observation_layout
        if isinstance(obs, Tensor) and obs.shape[1:] == layout.shape:  # as in a batch: gradients may flow to it
            return obs.to(self.policy.device, torch.from_numpy(np.empty(0, layout.dtype)).dtype)
        if isinstance(obs, Tensor):
            obs = obs.detach().cpu().numpy()
        return torch.as_tensor(self.policy.preprocessor.observations(obs), device=self.policy.device)

    def given(self, rows: int, state: Sequence[Any] | None) -> dict[str, Tensor]:
        """The recurrent state [rows, ...] by name; that of the first step of an episode where none is given."""
        first = self.policy.initial_state(rows)
        if state is not None and len(state):
            self.policy.check_state(first, state)
            first = dict(zip(first, state, strict=True))
        return {name: torch.as_tensor(each, device=self.policy.device) for name, each in first.items()}
