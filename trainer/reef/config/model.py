"""The network's settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

    use_lstm: bool = setting(False, "Put an LSTM behind the encoder; PPO.")
    max_seq_len: int = setting(20, "Longest sequence that a recurrent network is trained on.", minimum=1, unit="steps")
    lstm_cell_size: int = setting(256, "Size of the LSTM's state.", minimum=1)
    lstm_use_prev_action: bool = setting(False, "Feed the previous action to the LSTM.")
    lstm_use_prev_reward: bool = setting(False, "Feed the previous reward to the LSTM.")
    recurrent_cell: str = setting("lstm", "The cell that use_lstm puts there.", choices=("lstm", "gru"))

    use_attention: bool = setting(False, "Put a gated transformer (GTrXL) behind the encoder; PPO.")
    attention_num_transformer_units: int = setting(1, "Number of transformer blocks.", minimum=1)
    attention_dim: int = setting(64, "Input and output size of each block.", minimum=1)
    attention_num_heads: int = setting(1, "Attention heads that work in parallel.", minimum=1)
    attention_head_dim: int = setting(32, "Size of one attention head.", minimum=1)
    attention_memory_inference: int = setting(
        50, "Steps of the past that are attended to when acting.", minimum=1, unit="steps"
    )
    attention_memory_training: int = setting(
        50, "Steps of the past that are attended to when training.", minimum=1, unit="steps"
    )
    attention_position_wise_mlp_dim: int = setting(32, "Size of the layer inside a block.", minimum=1)
    attention_init_gru_gate_bias: float = setting(2.0, "First bias of the gates; above 0 lets inputs pass.")
    attention_use_n_prev_actions: int = setting(0, "Previous actions that are fed in.", minimum=0, unit="actions")
    attention_use_n_prev_rewards: int = setting(0, "Previous rewards that are fed in.", minimum=0, unit="rewards")

    custom_model: str | type | Callable[..., Any] | None = setting(
        None,
        "The whole network as 'package.module:Class' or as a class; of its other settings only max_seq_len has an "
        "effect then.",
    )
    custom_model_config: dict[str, Any] = setting({}, "Keyword arguments of the custom model.")

    @property
    def memories(self) -> list[str]:
        """The settings that put a memory behind the encoder and are on."""
        asked = {"use_lstm": self.use_lstm, "use_attention": self.use_attention}
        return [key for key, on in asked.items() if on]

    def problems(self) -> Iterator[str]:
        """Contradictions about the memory."""
        yield from super().problems()
        if len(self.memories) > 1:
            yield "model.use_lstm=True beside model.use_attention=True: there is one memory. Set one of them to False."
        elif self.memories and self.custom_model:
            yield (
                f"model.{self.memories[0]}=True beside model.custom_model, which is the whole network. Leave it at "
                "False; a custom model of your own may be recurrent."
            )
