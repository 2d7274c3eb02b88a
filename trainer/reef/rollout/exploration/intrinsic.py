"""Explorations that reward what is new: their settings, and how they act; a learner adds the rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from gymnasium import spaces

from reef.config import AlgorithmConfig, ModelConfig
from reef.config.groups.training import ACTIVATIONS
from reef.errors import ConfigError
from reef.rollout.exploration.arguments import check, check_choice, check_size
from reef.rollout.exploration.sub_exploration import WithSubExploration

BETA_SCHEDULES = ("constant", "linear_decay")
# Of a network that makes features: without hidden layers, unless the settings name some.
NO_LAYERS = {"fcnet_hiddens": [], "fcnet_activation": "relu"}


@dataclass
class IntrinsicExploration(WithSubExploration):
    """Chooses actions as `sub_exploration` does; the learner adds intrinsic rewards where it learns from a batch."""

    def check_config(self, config: AlgorithmConfig) -> None:
        """Raise ConfigError, naming the algorithm or setting, where the rewards would not mean what they should."""
        start = f"exploration_config.type={type(self).__name__!r}: "
        if config.decentralized or config.worker_class:
            raise ConfigError(
                f"{start}not available with {config.label}, whose workers compute the updates; the networks of the "
                "intrinsic rewards are in the learner. Use PPO, A2C, IMPALA, DQN or SAC."
            )
        if config.reads_records:
            raise ConfigError(
                f"{start}{config.label} learns from recorded episodes and does not explore. Leave it out."
            )
        n_step = getattr(config, "n_step", 1)
        if n_step > 1 and not config.model.memories:
            raise ConfigError(
                f"{start}n_step={n_step} stores sums of rewards, to which the intrinsic rewards of the steps between "
                "cannot be added when they are learned from. Set n_step to 1."
            )


@dataclass
class Curiosity(IntrinsicExploration):
    """Rewards steps whose outcome a model predicts badly (ICM, Pathak et al. 2017).

    The intrinsic reward is `eta` / 2 times the squared error of a forward model, which predicts the `feature_dim`
    features of the next observation. Features are learned with it: an inverse model predicts the action from those of
    two observations. The loss is (1 - `beta`) times the inverse loss plus `beta` times the forward loss, with the
    learning rate `lr`. `feature_net_config` has keys of the setting `model`, such as fcnet_hiddens.
    """

    _: KW_ONLY
    feature_dim: int = 288
    feature_net_config: dict[str, Any] | None = None
    inverse_net_hiddens: Sequence[int] = (256,)
    inverse_net_activation: str = "relu"
    forward_net_hiddens: Sequence[int] = (256,)
    forward_net_activation: str = "relu"
    beta: float = 0.2
    eta: float = 1.0
    lr: float = 1e-3
    feature_net: ModelConfig = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_size("feature_dim", self.feature_dim)
        check("beta", self.beta, 0.0, 1.0)
        check("eta", self.eta, 0.0)
        check("lr", self.lr, 0.0)
        for name in ("inverse_net", "forward_net"):
            hiddens = getattr(self, f"{name}_hiddens")
            if not isinstance(hiddens, list | tuple):
                raise ConfigError(f"exploration_config.{name}_hiddens={hiddens!r} must be a list of sizes, as [256].")
            for size in hiddens:
                check_size(f"{name}_hiddens", size)
            check_choice(f"{name}_activation", getattr(self, f"{name}_activation"), ACTIVATIONS)
        self.feature_net = model_of("feature_net_config", self.feature_net_config)
        kinds = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box
        if not isinstance(space := self.actions.layout.space, kinds):
            raise ConfigError(
                f"exploration_config.type 'Curiosity' needs a Discrete, MultiDiscrete, MultiBinary or Box action "
                f"space, but the environment's is {space}. Use 'RE3', which does not look at actions."
            )


@dataclass
class RE3(IntrinsicExploration):
    """Rewards observations that are far from others of the batch (random encoders, Seo et al. 2021).

    The intrinsic reward is beta log(1 + d), where d is the distance to the `k_nn`-th nearest neighbour among the
    observations of the batch, as a fixed random network of `embeds_dim` outputs embeds them. With `beta_schedule`
    "linear_decay" beta falls by the factor 1 - `rho` with every batch. `encoder_net_config` has keys of the setting
    `model`, such as fcnet_hiddens.
    """

    _: KW_ONLY
    embeds_dim: int = 128
    encoder_net_config: dict[str, Any] | None = None
    beta: float = 0.2
    beta_schedule: str = "constant"
    rho: float = 0.1
    k_nn: int = 50
    encoder_net: ModelConfig = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_size("embeds_dim", self.embeds_dim)
        check_size("k_nn", self.k_nn)
        check("beta", self.beta, 0.0)
        check("rho", self.rho, 0.0, 1.0)
        check_choice("beta_schedule", self.beta_schedule, BETA_SCHEDULES)
        self.encoder_net = model_of("encoder_net_config", self.encoder_net_config)


def model_of(name: str, given: dict[str, Any] | None) -> ModelConfig:
    """The settings of a network that makes features of observations."""
    if given is not None and not isinstance(given, dict):
        raise ConfigError(f"exploration_config.{name}={given!r} must be a mapping such as {{'fcnet_hiddens': [64]}}.")
    try:
        model = ModelConfig(**NO_LAYERS | (given or {}))
    except ConfigError as error:
        raise ConfigError(str(error).replace("model.", f"exploration_config.{name}.")) from error
    if model.memories or model.custom_model:
        raise ConfigError(
            f"exploration_config.{name}={given!r}: its network has neither a memory nor a custom model. Leave out "
            "use_lstm, use_attention and custom_model."
        )
    return model
