"""Encoders for the parts of an observation: images, numbers and indices -> one vector per row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from reef.config import ModelConfig
from reef.errors import ConfigError
from reef.nn.layers.activations import ACTIVATIONS
from reef.spaces import Leaf

# [[channels, kernel, stride], ...]; a kernel is a number or [height, width]
Filters = Sequence[Sequence[Any]]


def image_axes(space: spaces.Space[object]) -> tuple[int, int] | None:
    """The axes of height and width (at least 8 pixels each) if a Box is treated as an image, else None.

    An image is [height, width, channels]; or bytes in another order, such as [channels, height, width], [height, width]
    or [frames, height, width, channels], if all axes except two neighbouring ones are shorter than 8.
    """
    if not isinstance(space, spaces.Box):
        return None
    if len(space.shape) == 3 and min(space.shape[:2]) >= 8:
        return 0, 1
    wide = [axis for axis, length in enumerate(space.shape) if length >= 8]
    if space.dtype == np.uint8 and len(wide) == 2 and wide[1] == wide[0] + 1:
        return wide[0], wide[1]
    return None


def default_filters(size: int) -> Filters:
    """[[channels, kernel, stride], ...] for an image of `size` pixels, the smaller of height and width.

    For 36 pixels and more, the three layers of Mnih et al. (2015); below, one stride-2 layer per halving down to 4.
    """
    if size >= 36:
        return [[32, 8, 4], [64, 4, 2], [64, 3, 1]]
    return [[16 * 2**i, 3, 2] for i in range(max(1, int(math.log2(size / 4))))]


class ImageEncoder(nn.Module):
    """Convolutions over an image; bytes are scaled to [0, 1]. All axes except height and width are channels."""

    def __init__(self, space: spaces.Box, filters: Filters | None, activation: str) -> None:
        """Raises ConfigError if the filters do not fit the image."""
        super().__init__()
        axes = image_axes(space)
        assert axes is not None, space
        self.scale = 1 / 255 if space.high.max() > 1 and space.dtype.kind == "u" else 1.0
        self.activation = ACTIVATIONS[activation]
        height, width = (space.shape[axis] for axis in axes)
        channels = math.prod(space.shape) // (height * width)
        self.order = [0, *(axis + 1 for axis in range(len(space.shape)) if axis not in axes), *(a + 1 for a in axes)]
        self.shape = channels, height, width
        self.layers = nn.ModuleList()
        self.again = 0  # multiplications per image in addition to one per parameter
        for out_channels, kernel, stride in filters or default_filters(min(height, width)):
            layer = nn.Conv2d(channels, out_channels, kernel, stride)
            nn.init.orthogonal_(layer.weight, math.sqrt(2))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
            self.layers.append(layer)
            channels = out_channels
            rows, columns = layer.kernel_size
            height, width = (height - rows) // stride + 1, (width - columns) // stride + 1
            if min(height, width) < 1:
                raise ConfigError(f"model.conv_filters={filters} shrinks an image of shape {space.shape} to nothing")
            self.again += layer.weight.numel() * (height * width - 1)
        self.out_features = height * width * channels

    def forward(self, images: Tensor) -> Tensor:
        """[N, *image] -> [N, out_features]."""
        x = images.permute(self.order).reshape(-1, *self.shape).float() * self.scale
        for layer in self.layers:
            x = self.activation(layer(x))
        return x.flatten(1)


class OneHot(nn.Module):
    """Indices [N] or [N, k] of choices -> one-hot rows [N, sum of sizes]."""

    def __init__(self, sizes: Sequence[int]) -> None:
        """`sizes`: number of choices of each index."""
        super().__init__()
        self.sizes = list(sizes)
        self.out_features = sum(sizes)

    def forward(self, values: Tensor) -> Tensor:
        """[N, ...] -> [N, out_features]."""
        columns = values.reshape(values.shape[0], -1).long().unbind(1)
        return torch.cat([F.one_hot(c, n) for c, n in zip(columns, self.sizes, strict=True)], dim=1).float()


class Numbers(nn.Module):
    """Numbers of any rank -> one float vector per row."""

    def __init__(self, size: int, scale: float = 1.0) -> None:
        """`size`: number of elements of one value; each is multiplied by `scale`."""
        super().__init__()
        self.out_features = size
        self.scale = scale

    def forward(self, values: Tensor) -> Tensor:
        """[N, ...] -> [N, out_features]."""
        numbers = values.reshape(values.shape[0], -1).float()
        return numbers if self.scale == 1.0 else numbers * self.scale


def leaf_encoder(leaf: Leaf, model: ModelConfig) -> ImageEncoder | OneHot | Numbers:
    """Return the encoder for one leaf of an observation; ConfigError for a space without an encoder."""
    space = leaf.space
    if isinstance(space, spaces.Box):
        if image_axes(space) is not None:
            return ImageEncoder(space, model.conv_filters, model.conv_activation)
        return Numbers(leaf.size, 1 / 255 if leaf.is_bytes else 1.0)
    if isinstance(space, spaces.MultiBinary):
        return Numbers(leaf.size)
    if isinstance(space, spaces.Discrete):
        return OneHot([int(space.n)])
    if isinstance(space, spaces.MultiDiscrete):
        return OneHot([int(n) for n in space.nvec.reshape(-1)])
    raise ConfigError(f"observation space {space} has no encoder; use Box, Discrete, Dict, Tuple or model.custom_model")
