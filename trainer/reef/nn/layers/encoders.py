"""Encoders for observation spaces: observations [N, *obs] -> features [branches, N, F]."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from reef.config import ModelConfig
from reef.nn.layers.leaf_encoders import ImageEncoder, leaf_encoder
from reef.nn.layers.stacked import StackedMLP
from reef.spaces import Layout

Mask = Callable[[Tensor, Tensor], Tensor]


class Features(nn.Module):
    """Observations [N, *obs] -> one vector per row [N, out_features]."""

    def __init__(self, layout: Layout, model: ModelConfig) -> None:
        """`layout`: how the observation space is flattened to arrays."""
        super().__init__()
        self.leaves = layout.leaves
        encoders = [leaf_encoder(leaf, model) for leaf in self.leaves]
        self.encoders = nn.ModuleList(encoders)
        self.composite = layout.composite
        self.plain = isinstance(layout.space, spaces.Box) and len(layout.shape) == 1 and not self.leaves[0].is_bytes
        self.has_image = any(isinstance(encoder, ImageEncoder) for encoder in encoders)
        self.out_features = sum(encoder.out_features for encoder in encoders)

    def forward(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N, out_features]."""
        if self.plain:
            return obs if obs.dtype == torch.float32 else obs.float()
        if not self.composite:
            features: Tensor = self.encoders[0](obs)
            return features
        parts = [
            encoder(obs[:, leaf.offset : leaf.offset + leaf.size].reshape(-1, *leaf.shape))
            for encoder, leaf in zip(self.encoders, self.leaves, strict=True)
        ]
        return torch.cat(parts, dim=1)

    def layers_behind(self, model: ModelConfig) -> tuple[list[int], str]:
        """Sizes and activation of the layers after the features."""
        if self.has_image:
            return model.post_fcnet_hiddens or [256], model.conv_activation
        return [*model.fcnet_hiddens, *model.post_fcnet_hiddens], model.fcnet_activation


class Encoder(nn.Module):
    """`branches` separate networks from observations to features, for example one for the actor and one for the critic.

    Vectors go through `model.fcnet_hiddens`. With an image in the observation, the features of its convolutions go
    through `model.post_fcnet_hiddens` (256 if empty), also with `model.conv_activation`. Branches do not share
    convolutions.
    """

    def __init__(self, layout: Layout, model: ModelConfig, branches: int = 1) -> None:
        """Raises ConfigError for spaces and filters that do not fit."""
        super().__init__()
        self.branches = branches
        first = Features(layout, model)
        self.has_image = first.has_image
        separate = branches if self.has_image else 1
        self.features = nn.ModuleList([first, *(Features(layout, model) for _ in range(separate - 1))])
        self.mlp = StackedMLP(first.out_features, *first.layers_behind(model), branches)
        self.out_features = self.mlp.out_features
        self.plain = first.plain and layout.dtype == np.float32

    def forward(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [branches, N, out_features]."""
        if len(self.features) == 1:
            features = self.features[0](obs)
        else:
            features = torch.stack([module(obs) for module in self.features])
        encoded: Tensor = self.mlp(features)
        return encoded

    def forward_branch(self, branch: int, obs: Tensor) -> Tensor:
        """One branch only: [N, *obs] -> [N, out_features]."""
        # A plain encoder saves two module calls, which matter when acting on few observations.
        if not self.plain:
            obs = self.features[min(branch, len(self.features) - 1)](obs)
        return self.mlp.forward_branch(branch, obs)


class EncoderWithHead(nn.Module):
    """An encoder and a linear layer behind it: observations [N, *obs] -> [N, outputs]."""

    def __init__(self, layout: Layout, model: ModelConfig, outputs: int, mask: Mask | None = None) -> None:
        """`mask`: (observations, outputs) -> outputs, where some actions may be excluded."""
        super().__init__()
        self.mask = mask
        self.encoder = Encoder(layout, model)
        self.out = nn.Linear(self.encoder.out_features, outputs)

    def forward(self, obs: Tensor) -> Tensor:
        """[N, outputs]."""
        outputs: Tensor = self.out(self.encoder.forward_branch(0, obs))
        return outputs if self.mask is None else self.mask(obs, outputs)
