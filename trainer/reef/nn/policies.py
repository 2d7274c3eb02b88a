"""Policies: a network and its action distribution."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from reef.config import AlgorithmConfig, ModelConfig
from reef.errors import ConfigError
from reef.nn.architecture import Architecture, architecture_of
from reef.nn.distributions import ActionDistribution, distribution_maker
from reef.nn.flat import FlatParameters
from reef.nn.layers.action_mask import action_mask
from reef.nn.layers.encoders import Encoder
from reef.nn.layers.leaf_encoders import ImageEncoder
from reef.nn.queries.policy import QueriedPolicy
from reef.spaces import Layout, Space
from reef.types import Array, RecurrentState


class FastActor(Protocol):
    """A faster replacement for the network when acting."""

    def __call__(self, obs: Array, state: RecurrentState) -> tuple[Array, RecurrentState]:
        """[N, *obs] and the recurrent state -> distribution inputs [N, D] and the next state."""


class Policy(QueriedPolicy):
    """A network that acts. Observations are flat, as in the observation layout: [N, *obs]."""

    # What a worker records with each step, see PolicyRunner.
    acting_extras: tuple[str, ...] = ()

    def __init__(self, config: AlgorithmConfig, observation_space: Space, action_space: Space) -> None:
        """Subclasses build their layers."""
        super().__init__()
        self.config = config
        self.observation_layout = Layout.of(observation_space)
        self.action_layout = Layout.of(action_space)
        self.dist_class = distribution_maker(config.model, self.action_layout)
        self.action_mask = action_mask(config.action_mask_key, self.observation_layout, self.dist_class)
        # what encoders read
        self.input_layout = self.observation_layout if self.action_mask is None else self.action_mask.rest
        self.fast_actor: FastActor | None = None
        self.acts_fast = False  # whether it has one while its weights are in memory

    def architecture(self) -> Architecture:
        """What its weights fit: a checkpoint cannot be loaded into a network of another architecture."""
        settings: dict[str, Any] = {"action_mask_key": self.config.action_mask_key}
        if not self.config.model.custom_model:
            given = self.config.model.to_dict().items()
            settings |= {f"model.{key}": value for key, value in given if not key.startswith("custom_")}
        mask = None if self.action_mask is None else self.action_mask.key
        return architecture_of(self, settings, action_mask_key=mask)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that the network gets in training."""
        return ("obs",)

    @property
    def multiply_adds(self) -> int:
        """Multiplications for one observation: one per parameter, for convolutions one per parameter and position."""
        again = sum(module.again for module in self.modules() if isinstance(module, ImageEncoder))
        return self.flat.vector.numel() + again

    def bind_parameters(self, device: torch.device | str = "cpu") -> None:
        """Move to `device` and make the parameters views of one vector: `self.flat`."""
        self.to(device)
        self.device = torch.device(device)
        self.flat = FlatParameters(self.parameters())

    def move_to(self, device: torch.device) -> None:
        """Move the policy to a device, for acting and training."""
        self.bind_parameters(device)
        self.fast_actor, self.acts_fast = None, False

    def __getstate__(self) -> dict[str, Any]:
        """A copy, in this or another process, gets its own flat vector, and acts in torch."""
        own = {name: value for name, value in vars(self).items() if name not in ("chooser", "learn", "model", "recall")}
        return {**own, "flat": None, "fast_actor": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The reverse."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if "device" in state:
            self.bind_parameters(self.device)

    @property
    def has_image(self) -> bool | None:
        """Whether its `Encoder` reads an image; None for a network without an `Encoder`."""
        return next((module.has_image for module in self.modules() if isinstance(module, Encoder)), None)

    def compile_acting(self, **options: Any) -> None:
        """Compile `dist_inputs`; `options` go to `torch.compile`."""
        self.dist_inputs = torch.compile(self.dist_inputs, **options)  # type: ignore[method-assign]
        self.fast_actor, self.acts_fast = None, False

    @abstractmethod
    def dist_inputs(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N, D], the inputs of the action distribution."""

    def masked(self, obs: Tensor, inputs: Tensor) -> Tensor:
        """[..., *obs] and distribution inputs [..., D] -> the inputs without excluded actions, if there is a mask."""
        return inputs if self.action_mask is None else self.action_mask(obs, inputs)

    def unmasked(self, obs: Tensor) -> Tensor:
        """[..., *obs] -> what a custom model gets: observations without the mask, if there is one."""
        return obs if self.action_mask is None else self.action_mask.without(obs)

    def initial_state(self, columns: int) -> RecurrentState:
        """The recurrent state before the first step of an episode; empty unless the policy is recurrent."""
        return {}

    def act(
        self,
        obs: Array,  # [N, *obs]
        state: RecurrentState,  # [N, ...] each, from `initial_state` or from the step before
        generator: np.random.Generator | None = None,
    ) -> tuple[ActionDistribution, RecurrentState]:
        """Return action distributions and the next state; the `generator` samples the noise of noisy weights."""
        if self.fast_actor is not None:
            inputs, state = self.fast_actor(obs, state)
            return ActionDistribution(self.dist_class, inputs), state
        with torch.inference_mode():
            found = self.dist_inputs(torch.as_tensor(obs, device=self.device))
            return ActionDistribution(self.dist_class, found.cpu().numpy()), state

    def after_step(
        self,
        state: RecurrentState,  # [N, ...] each, as `act` returned it
        actions: Array,  # [N, *action]
        rewards: Array,  # [N]
        done: Array,  # [N] bool: an episode ended
    ) -> RecurrentState:
        """Update the recurrent state after the environments have executed the actions."""
        return state

    def outputs(self, obs: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, Tensor | None, dict[str, Tensor]]:
        """[N, *obs] and the recurrent state -> distribution inputs [N, D], values [N] if any, the next state."""
        return self.dist_inputs(obs), None, {}

    @property
    def acting_parameters(self) -> list[Tensor]:
        """Views of the parameters that `act` reads, without gradients: all, unless a critic is apart from the actor."""
        return [self.flat.vector]

    def acting_weights(self) -> NDArray[np.float32]:
        """A copy of the acting parameters as one vector, on the CPU."""
        return torch.cat([values.reshape(-1) for values in self.acting_parameters]).cpu().numpy()

    def load_acting_weights(self, weights: NDArray[np.float32]) -> None:
        """Overwrite the acting parameters; the others stay what they are."""
        acting = self.acting_parameters
        # a copy: torch knows no arrays that are read-only, as those from Ray's object store
        parts = torch.split(torch.from_numpy(weights.copy()), [values.numel() for values in acting])
        for values, part in zip(acting, parts, strict=True):
            values.copy_(part.view_as(values))


class ActorPolicy(Policy):
    """An actor without a critic."""

    def __init__(
        self, config: AlgorithmConfig, observation_space: Space, action_space: Space, branches: int = 1
    ) -> None:
        """Made from `config.model`; the actor is the first of the encoder's `branches`."""
        super().__init__(config, observation_space, action_space)
        model: ModelConfig = config.model
        self.encoder = Encoder(self.input_layout, model, branches)
        gaussian = self.dist_class.gaussian
        self.log_std: nn.Parameter | None = None
        outputs = self.dist_class.num_inputs
        if model.free_log_std:
            if gaussian.start == gaussian.stop:
                raise ConfigError("model.free_log_std=True needs a Box action space; set it to False")
            outputs = gaussian.start
            self.log_std = nn.Parameter(torch.zeros(outputs))
        self.pi = linear(self.encoder.out_features, outputs, gain=0.01)

    @property
    def acting_parameters(self) -> list[Tensor]:
        """The first branch of the encoder, and what the actor makes of it."""
        branch = [stacked.data[:1] for stacked in self.encoder.mlp.parameters()]
        rest = [*self.encoder.features[0].parameters(), *self.pi.parameters(), self.log_std]
        return [*branch, *(parameter.data for parameter in rest if parameter is not None)]

    def dist_inputs(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N, D], computed by the actor alone, because acting needs no critic."""
        features = self.encoder.forward_branch(0, obs)
        return self.masked(obs, self.with_log_std(F.linear(features, self.pi.weight, self.pi.bias)))

    def forward(self, obs: Tensor) -> Any:
        """[N, *obs] -> [N, D]."""
        return self.dist_inputs(obs)

    def with_log_std(self, outputs: Tensor) -> Tensor:
        """Append the free log standard deviations to the outputs [N, n] of `pi`: [N, 2 n]."""
        if self.log_std is None:
            return outputs
        return torch.cat([outputs, self.log_std.expand_as(outputs)], dim=-1)


class ActorCritic(ActorPolicy):
    """An actor and a critic: separate branches of one batched encoder, or one shared branch (`vf_share_layers`)."""

    acting_extras = ("action_dist_inputs", "action_logp")

    def __init__(self, config: AlgorithmConfig, observation_space: Space, action_space: Space) -> None:
        """Made from `config.model`; the critic is the encoder's last branch."""
        super().__init__(config, observation_space, action_space, branches=1 if config.model.vf_share_layers else 2)
        self.vf = linear(self.encoder.out_features, 1, gain=1.0)

    def values(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N] state values, computed by the critic alone."""
        values: Tensor = self.vf(self.encoder.forward_branch(self.encoder.branches - 1, obs))
        return values.squeeze(-1)

    def outputs(self, obs: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """As every policy's, with values."""
        return *self.forward(obs), {}

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """[N, *obs] -> distribution inputs [N, D] and state values [N]."""
        # Indexing would create a gradient of the size of all branches for each.
        branches = self.encoder(obs).unbind()
        outputs = F.linear(branches[0], self.pi.weight, self.pi.bias)
        values = F.linear(branches[-1], self.vf.weight, self.vf.bias)
        return self.masked(obs, self.with_log_std(outputs)), values.squeeze(-1)


def linear(in_features: int, out_features: int, gain: float) -> nn.Linear:
    """A layer with orthogonal weights, scaled by `gain`, and biases of 0."""
    layer = nn.Linear(in_features, out_features)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
