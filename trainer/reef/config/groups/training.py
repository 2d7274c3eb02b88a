"""The learning itself: what all algorithms share, with the settings of the network and of the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from reef.config.declaration import setting
from reef.config.groups.group import GroupSetter
from reef.config.ignored import problems_of_frames
from reef.config.refusals import refusals_in
from reef.config.settings import Settings
from reef.schedules import Scheduled

ACTIVATIONS = ("tanh", "relu", "silu", "swish", "elu", "gelu", "linear")
MOST_STEPS = 10**12  # of a batch: with more, the bytes of its arrays could be no 64-bit number


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
    conv_filters: list[tuple[int, int | tuple[int, int], int]] | None = setting(
        None,
        "Convolutions as [channels, kernel, stride] each, with a kernel of one size or of [height, width]; null picks "
        "them by the image's size.",
        minimum=1,
    )
    conv_activation: str = setting("relu", "Activation of the convolutions.", choices=ACTIVATIONS)
    post_fcnet_hiddens: list[int] = setting(
        [],
        "Sizes of fully connected layers after convolutions ([256] when empty), else after fcnet_hiddens.",
        minimum=1,
    )
    dim: int = setting(84, "Height and width of the frames of Atari games.", minimum=36, unit="pixels")
    framestack: bool = setting(True, "Observe 4 frames of Atari games at a time, with preprocessor_pref 'deepmind'.")
    grayscale: bool = setting(False, "Make frames of Atari games gray, with preprocessor_pref 'rllib'.")
    zero_mean: bool = setting(
        True,
        "Scale frames of Atari games to -1..1 as float32, with preprocessor_pref 'rllib'; false keeps bytes, which the "
        "network scales to 0..1.",
    )
    free_log_std: bool = setting(
        False,
        "Learn the standard deviation of continuous actions as parameters of its own, apart from the observation.",
    )
    vf_share_layers: bool = setting(True, "Let policy and value function share the encoder.")

    use_lstm: bool = setting(False, "Put an LSTM behind the encoder; PPO, DDPPO, A2C, A3C, PG, IMPALA, APPO, DQN.")
    max_seq_len: int = setting(20, "Longest sequence that a recurrent network is trained on.", minimum=1, unit="steps")
    lstm_cell_size: int = setting(256, "Size of the LSTM's state.", minimum=1)
    lstm_use_prev_action: bool = setting(False, "Feed the previous action to the LSTM.")
    lstm_use_prev_reward: bool = setting(False, "Feed the previous reward to the LSTM.")
    recurrent_cell: str = setting("lstm", "The cell that use_lstm puts there.", choices=("lstm", "gru"))

    use_attention: bool = setting(
        False, "Put a gated transformer (GTrXL) behind the encoder; PPO, DDPPO, A2C, A3C, PG, IMPALA, APPO."
    )
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
    custom_action_dist: str | type | None = setting(
        None,
        "The action distribution as 'package.module:Class' or as a class, a subclass of "
        "reef.nn.distributions.CustomDistribution; not of algorithms with Q-values.",
    )

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
        if self.custom_action_dist is not None and self.free_log_std:
            yield (
                "model.free_log_std=True beside model.custom_action_dist: the outputs have a meaning of their own. "
                "Leave it at False."
            )


ADAM, RMSPROP, SGD = ("Adam", "AdamW"), ("RMSprop", "RMSpropTF"), ("SGD",)
TAKEN_BY: dict[str, tuple[str, ...]] = {
    "betas": ADAM,
    "amsgrad": ADAM,
    "eps": (*ADAM, *RMSPROP),
    "alpha": RMSPROP,
    "centered": RMSPROP,
    "momentum": (*RMSPROP, *SGD),
    "dampening": SGD,
    "nesterov": SGD,
    "weight_decay": (*ADAM, *RMSPROP, *SGD),
}


class OptimizerConfig(Settings):
    """Which optimizer moves the parameters, with torch's names and defaults."""

    label: ClassVar[str] = "optimizer"
    prefix: ClassVar[str] = "optimizer."

    type: str = setting("Adam", "RMSpropTF is RMSprop as TensorFlow computes it.", choices=(*ADAM, *RMSPROP, *SGD))
    betas: tuple[float, float] | None = setting(
        None, "Adam, AdamW: decay of the means of gradients and of their squares; null: 0.9 and 0.999.", minimum=0.0
    )
    eps: float | None = setting(None, "Not SGD: keeps the division from infinity; null: 1e-8.", minimum=0.0)
    weight_decay: float | None = setting(None, "Pull of the weights to 0; null: 0, with AdamW 0.01.", minimum=0.0)
    amsgrad: bool | None = setting(None, "Adam, AdamW: divide by the largest mean square so far.")
    alpha: float | None = setting(
        None, "RMSprop, RMSpropTF: decay of the mean of squared gradients; null: 0.99.", minimum=0.0, maximum=1.0
    )
    centered: bool | None = setting(None, "RMSprop, RMSpropTF: divide by the variance instead of the mean square.")
    momentum: float | None = setting(
        None, "RMSprop, RMSpropTF, SGD: share of the last step that is taken again; null: 0.", minimum=0.0, maximum=1.0
    )
    dampening: float | None = setting(None, "SGD: share of a gradient that momentum leaves out; null: 0.", minimum=0.0)
    nesterov: bool | None = setting(None, "SGD: look ahead by the momentum.")

    def arguments(self) -> dict[str, Any]:
        """What was given beside the type."""
        values = {name: getattr(self, name) for name in TAKEN_BY}
        return {name: value for name, value in values.items() if value is not None}

    def problems(self) -> Iterator[str]:
        """Arguments that the type does not take, or not together."""
        yield from super().problems()
        given = self.arguments()
        for name, value in given.items():
            if self.type not in TAKEN_BY[name]:
                own = ", ".join(key for key, kinds in TAKEN_BY.items() if self.type in kinds)
                yield f"optimizer.{name}={value!r}: {self.type} takes {own}. Leave it out, or choose another type."
        if max(given.get("betas", (0.0,))) >= 1.0:
            yield f"optimizer.betas={self.betas}: each must be below 1."
        if given.get("nesterov") and (not given.get("momentum") or given.get("dampening")):
            yield "optimizer.nesterov=True: it needs a momentum above 0, and no dampening."


class TrainingSettings(Settings):
    """Batch, step size, network. An algorithm's own settings belong to this group too."""

    training = GroupSetter()
    # the settings of model that may give the algorithm's network a memory
    possible_memories: ClassVar[tuple[str, ...]] = ()
    torch_compile_learner: bool
    preprocessor_pref: str | None

    gamma: float = setting(0.99, "Discount of future rewards.", minimum=0.0, maximum=1.0)
    lr: Scheduled = setting(
        1e-3,
        "Learning rate: a number, or [[timestep, value], ...] to interpolate between, starting at timestep 0.",
        above=0.0,
    )
    grad_clip: float | None = setting(
        None, "Limit of the gradients, in the sense of grad_clip_by; null clips nothing.", above=0.0
    )
    grad_clip_by: str = setting(
        "global_norm",
        "'value' clips each element, 'norm' the L2 norm of each tensor, 'global_norm' the L2 norm of all together.",
        choices=("value", "norm", "global_norm"),
    )
    train_batch_size: int = setting(
        32, "Environment steps in one train batch.", minimum=1, maximum=MOST_STEPS, unit="steps"
    )
    train_batch_size_per_learner: int | None = setting(
        None,
        "Train batch of each learner; the whole batch is this times the learners. null uses train_batch_size.",
        minimum=1,
        maximum=MOST_STEPS,
        unit="steps",
    )
    model: ModelConfig = setting({}, "The network; see the model settings.")
    learner_connector: str | Callable[..., Any] | None = setting(
        None,
        "A function, or its path 'package.module:function', of each train batch that returns the batch to learn from. "
        "See docs/callbacks.md.",
        called_with=("batch",),
    )
    optimizer: OptimizerConfig = setting({}, "What moves the parameters; see its settings.")
    max_requests_in_flight_per_sampler_worker: int = setting(
        2,
        "Fragments that one worker may be ahead of the learner with sample_async: its weights are at most that many "
        "versions older. In IMPALA, APPO, A3C and Ape-X: fragments that are requested from one worker at a time.",
        minimum=1,
    )

    def problems(self) -> Iterator[str]:
        """The optimizer takes only its own arguments; a memory needs an algorithm that learns from sequences."""
        yield from super().problems()
        yield from self.optimizer.problems()
        yield from self.model.problems()
        yield from problems_of_frames(self.model, self.preprocessor_pref)
        for key in self.model.memories:
            if key not in self.possible_memories:
                instead = f"set model.{self.possible_memories[0]}" if self.possible_memories else "use PPO"
                yield f"model.{key}=True: this algorithm has no network with a memory like that. Omit it, or {instead}."
            elif self.torch_compile_learner:
                yield f"torch_compile_learner=True: not available with model.{key}=True. Leave it at False."
