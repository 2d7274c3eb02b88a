"""The network's settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from reef.config.declaration import setting
from reef.config.refusals import refusals_in
from reef.config.settings import Settings

ACTIVATIONS = ("tanh", "relu", "silu", "elu", "gelu", "linear")


class ModelConfig(Settings):
    """Which encoder and heads a policy has. Given as a mapping, it is merged over the algorithm's own defaults."""

    label: ClassVar[str] = "model"
    prefix: ClassVar[str] = "model."
    refusals = refusals_in("model.")

    fcnet_hiddens: list[int] = setting(
        [256, 256],
        "Sizes of the fully connected layers of the encoder, without an image in the observations.",
        minimum=1,
    )
    fcnet_activation: str = setting("tanh", "Activation of the fully connected layers.", choices=ACTIVATIONS)
    conv_filters: list[tuple[int, int, int]] | None = setting(
        None, "Convolutions as [channels, kernel, stride] each; null picks them by the image's size.", minimum=1
    )
    conv_activation: str = setting("relu", "Activation of the convolutions.", choices=ACTIVATIONS)
    post_fcnet_hiddens: list[int] = setting(
        [],
        "Sizes of fully connected layers after convolutions ([256] when empty), else after fcnet_hiddens.",
        minimum=1,
    )
    free_log_std: bool = setting(
        False,
        "Learn the standard deviation of continuous actions as parameters of its own, apart from the observation.",
    )
    vf_share_layers: bool = setting(True, "Let policy and value function share the encoder.")

    custom_model: str | type | Callable[..., Any] | None = setting(
        None,
        "The whole network as 'package.module:Class' or as a class; others of its settings have no effect then.",
    )
    custom_model_config: dict[str, Any] = setting({}, "Keyword arguments of the custom model.")
