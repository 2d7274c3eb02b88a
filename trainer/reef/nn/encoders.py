"""Encoders, chosen from the observation space: observations [N, *obs] -> features [branches, N, F]."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from reef.config import ModelConfig
from reef.errors import ConfigError
from reef.nn.stacked import ACTIVATIONS, StackedMLP
from reef.spaces import Layout, Leaf

Filters = Sequence[Sequence[int]]  # [[channels, kernel, stride], ...]


def is_image(space: spaces.Space[object]) -> bool:
    """A Box [height, width, channels] at least 8 pixels wide and high is treated as an image."""
    return isinstance(space, spaces.Box) and len(space.shape) == 3 and min(space.shape[:2]) >= 8


def default_filters(shape: tuple[int, ...]) -> Filters:
    """[[channels, kernel, stride], ...] for an image [height, width, channels].

    From 36 pixels on the three layers of Mnih et al. (2015), below that one stride-2 layer per halving down to 4 pixels.
    """
    size = min(shape[:2])
    if size >= 36:
        return [[32, 8, 4], [64, 4, 2], [64, 3, 1]]
    return [[16 * 2**i, 3, 2] for i in range(max(1, int(math.log2(size / 4))))]


class ImageEncoder(nn.Module):
    """Convolutions over [N, height, width, channels]; bytes are scaled to [0, 1]."""

    def __init__(self, space: spaces.Box, filters: Filters | None, activation: str) -> None:
        """Raises ConfigError when the filters do not fit the image."""
        super().__init__()
        self.scale = 1 / 255 if space.dtype.kind == "u" else 1.0
        self.activation = ACTIVATIONS[activation]
        height, width, channels = space.shape
        self.layers = nn.ModuleList()
        for out_channels, kernel, stride in filters or default_filters(space.shape):
            layer = nn.Conv2d(channels, out_channels, kernel, stride)
            nn.init.orthogonal_(layer.weight, math.sqrt(2))
            nn.init.zeros_(layer.bias)
            self.layers.append(layer)
            channels = out_channels
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
            if min(height, width) < 1:
                raise ConfigError(f"model.conv_filters={filters} shrinks an image of shape {space.shape} to nothing")
        self.out_features = height * width * channels

    def forward(self, images: Tensor) -> Tensor:
        """[N, height, width, channels] -> [N, out_features]."""
        x = images.permute(0, 3, 1, 2).float() * self.scale
        for layer in self.layers:
            x = self.activation(layer(x))
        return x.flatten(1)


class LeafFeatures(nn.Module):
    """One leaf of an observation as features: an image through convolutions, a number of choices as one-hot."""

    def __init__(self, leaf: Leaf, model: ModelConfig) -> None:
        """`leaf`: where it lies in the flat observation and its space."""
        super().__init__()
        self.leaf = leaf
        space = leaf.space
        self.image: ImageEncoder | None = None
        if is_image(space):
            self.image = ImageEncoder(space, model.conv_filters, model.conv_activation)
            self.out_features = self.image.out_features
        elif isinstance(space, spaces.Discrete):
            self.out_features = int(space.n)
        elif isinstance(space, spaces.MultiDiscrete):
            self.register_buffer("sizes", torch.as_tensor(space.nvec.reshape(-1)), persistent=False)
            self.out_features = int(space.nvec.sum())
        elif isinstance(space, spaces.Box | spaces.MultiBinary):
            self.out_features = math.prod(space.shape)
        else:
            raise ConfigError(f"observation space {space} has no encoder; use Box, Discrete, Dict, Tuple or custom_model")

    def forward(self, values: Tensor) -> Tensor:
        """The leaf's raw values [N, ...] -> [N, out_features]."""
        space = self.leaf.space
        if self.image is not None:
            return self.image(values.reshape(-1, *space.shape))
        if isinstance(space, spaces.Discrete):
            return F.one_hot(values.reshape(-1).long(), self.out_features).float()
        if isinstance(space, spaces.MultiDiscrete):
            columns = values.reshape(len(values), -1).long().unbind(1)
            return torch.cat([F.one_hot(c, int(n)) for c, n in zip(columns, self.sizes, strict=True)], dim=1).float()
        return values.reshape(len(values), -1).float()


class Features(nn.Module):
    """Observations [N, *obs] -> one vector per row [N, out_features]."""

    def __init__(self, layout: Layout, model: ModelConfig) -> None:
        """`layout`: how the observation space became arrays."""
        super().__init__()
        self.leaves = nn.ModuleList(LeafFeatures(leaf, model) for leaf in layout.leaves)
        self.composite = isinstance(layout.space, spaces.Dict | spaces.Tuple)
        self.plain = isinstance(layout.space, spaces.Box) and len(layout.shape) == 1
        self.has_image = any(is_image(leaf.space) for leaf in layout.leaves)
        self.out_features = sum(leaf.out_features for leaf in self.leaves)

    def forward(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N, out_features]."""
        if self.plain:
            return obs if obs.dtype == torch.float32 else obs.float()
        if not self.composite:
            return self.leaves[0](obs)
        spans = [module.leaf for module in self.leaves]
        parts = [
            module(obs[:, leaf.offset : leaf.offset + leaf.size])
            for module, leaf in zip(self.leaves, spans, strict=True)
        ]
        return torch.cat(parts, dim=1)


class Encoder(nn.Module):
    """`branches` separate ways from an observation to features, for example one for the actor and one for the critic.

    Vectors go through `model.fcnet_hiddens`; with an image in the observation the features of its convolutions go
    through `model.post_fcnet_hiddens` (256 when empty). Convolutions are not shared between branches.
    """

    def __init__(self, layout: Layout, model: ModelConfig, branches: int = 1) -> None:
        """Raises ConfigError for spaces and filters that do not fit."""
        super().__init__()
        self.branches = branches
        first = Features(layout, model)
        separate = branches if first.has_image else 1
        self.features = nn.ModuleList([first, *(Features(layout, model) for _ in range(separate - 1))])
        if first.has_image:
            self.mlp = StackedMLP(first.out_features, model.post_fcnet_hiddens or [256], model.conv_activation, branches)
        else:
            hiddens = [*model.fcnet_hiddens, *model.post_fcnet_hiddens]
            self.mlp = StackedMLP(first.out_features, hiddens, model.fcnet_activation, branches)
        self.out_features = self.mlp.out_features

    def forward(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [branches, N, out_features]."""
        if len(self.features) == 1:
            features = self.features[0](obs)
        else:
            features = torch.stack([module(obs) for module in self.features])
        return self.mlp(features)

    def single(self, branch: int, obs: Tensor) -> Tensor:
        """Only one branch: [N, *obs] -> [N, out_features]."""
        return self.mlp.single(branch, self.features[min(branch, len(self.features) - 1)](obs))
