"""What algorithms with an actor and Q(s, a) critics share: settings, and the loss of the critics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from reef.algorithms.replaying import OffPolicyConfig, ReplayingLearner
from reef.batch import Transitions
from reef.config import ModelConfig, Scheduled, default, setting
from reef.config.groups.training import ACTIVATIONS
from reef.config.ignored import FOR_IMAGES, FOR_VECTORS, Network, ignored, ignored_without_actor_critic
from reef.config.settings import Settings
from reef.learn.minibatches import transition_columns
from reef.math.td import weighted_mean
from reef.nn.flat import FlatParameters
from reef.nn.gradients import Columns, Gradient, Loss, LossFunction, in_training_mode
from reef.nn.q_critics import ActorWithCritics, CustomActorNetwork, CustomCritics
from reef.nn.targets import Target
from reef.types import State

RATES = ("actor_lr", "critic_lr", "alpha_lr", "value_lr")
OF_LAYERS = ("fcnet_hiddens", "fcnet_activation", "post_fcnet_hiddens")


class NetworkConfig(Settings):
    """How the actor or the critics differ from `model`."""

    fcnet_hiddens: list[int] | None = setting(
        None, "Sizes of its fully connected layers; null: those of model.fcnet_hiddens.", minimum=1
    )
    fcnet_activation: str | None = setting(
        None, "Activation of these layers; null: model.fcnet_activation.", choices=(*ACTIVATIONS, None)
    )
    post_fcnet_hiddens: list[int] | None = setting(
        None, "Sizes of the layers behind them, or behind convolutions; null: model.post_fcnet_hiddens.", minimum=1
    )
    custom_model: str | type | Callable[..., Any] | None = setting(
        None, "The whole network as 'package.module:Class' or as a class; see docs/algorithms/sac.md."
    )
    custom_model_config: dict[str, Any] = setting({}, "Keyword arguments of the custom model.")

    def layers(self) -> dict[str, Any]:
        """What is given of the layers, by key."""
        return {key: value for key in OF_LAYERS if (value := getattr(self, key)) is not None}

    def over(self, model: ModelConfig) -> ModelConfig:
        """Return the settings `model` with what is given here in their place."""
        return model.copy().assign(self.layers())

    def problems(self) -> Iterator[str]:
        """Yield what has no effect beside a custom model, or without one."""
        yield from super().problems()
        own = f"{self.prefix}custom_model"
        for key, value in self.layers().items() if self.custom_model is not None else ():
            yield f"{self.prefix}{key}={value!r} beside {own}, which is the whole network. Leave it out."
        if self.custom_model is None and self.custom_model_config:
            yield f"{own}_config={self.custom_model_config!r}: there is no {own}. Leave it out, or give one."


class PolicyModelConfig(NetworkConfig):
    """The actor, where it differs from `model`."""

    label: ClassVar[str] = "policy_model_config"
    prefix: ClassVar[str] = "policy_model_config."


class QModelConfig(NetworkConfig):
    """The critics, where they differ from `model`."""

    label: ClassVar[str] = "q_model_config"
    prefix: ClassVar[str] = "q_model_config."


class QCriticsConfig(OffPolicyConfig):
    """Settings of an actor and critics, with targets that follow them."""

    of_the_network: ClassVar[tuple[str, ...]] = ("policy_model_config", "q_model_config", "twin_q")

    train_batch_size: int = default(256)
    rollout_fragment_length: int | Literal["auto"] = default(1)
    min_sample_timesteps_per_iteration: int | None = default(1000)
    num_steps_sampled_before_learning_starts: int = default(1500)
    model: ModelConfig = default({"fcnet_activation": "relu"})
    policy_model_config: PolicyModelConfig = setting({}, "The actor, where it differs from model; see its settings.")
    q_model_config: QModelConfig = setting({}, "The critics, where they differ from model; see its settings.")
    twin_q: bool = setting(True, "Train two critics and use the smaller value; TQC has n_critics for it.")
    actor_lr: Scheduled | None = setting(None, "Learning rate of the actor; null: lr.", above=0.0)
    critic_lr: Scheduled | None = setting(None, "Learning rate of the critics; null: lr.", above=0.0)
    tau: float = setting(5e-3, "Fraction that each update copies to the targets.", above=0.0, maximum=1.0)
    target_network_update_freq: int = setting(
        0,
        "Environment steps between updates of the targets; 0: they follow the gradient steps.",
        minimum=0,
        unit="steps",
    )

    def problems(self) -> Iterator[str]:
        """Yield contradictions between these settings."""
        yield from super().problems()
        yield from self.policy_model_config.problems()
        yield from self.q_model_config.problems()
        if not self.normalize_actions:
            yield "normalize_actions=False: the actor's actions lie between -1 and 1. Leave it at True."
        if self.torch_compile_learner:
            yield f"torch_compile_learner=True: not available yet with {self.algorithm}. Leave it at False."

    @property
    def has_only_custom_networks(self) -> bool:
        """Whether no network has the layers of `model`."""
        return all(each.custom_model is not None for each in (self.policy_model_config, self.q_model_config))

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for networks whose actor and critics differ from PPO's."""
        yield from ignored_without_actor_critic(self, network, "on an actor and critics of its own kind")
        own = self.policy_model_config, self.q_model_config
        if self.has_only_custom_networks:
            reason = "beside policy_model_config.custom_model and q_model_config.custom_model, which are all networks"
            yield from ignored(self, reason, *FOR_VECTORS, *FOR_IMAGES, "model.post_fcnet_hiddens")
        for key in OF_LAYERS:
            if all(key in each.layers() for each in own):
                yield from ignored(self, f"beside {', '.join(f'{each.prefix}{key}' for each in own)}", f"model.{key}")
        if network.has_image:
            keys = (f"{each.prefix}fcnet_hiddens" for each in own)
            yield from ignored(self, "with an image in the observations. Use post_fcnet_hiddens there", *keys)
        rates = [key for key in RATES if key in self.declared]
        if all(getattr(self, key) is not None for key in rates):
            yield from ignored(self, f"beside {', '.join(rates)}, which are all given", "lr")

    def rate(self, own: Any) -> Any:
        """A learning rate of its own, or `lr`."""
        return self.lr if own is None else own


class QCriticsLearner(ReplayingLearner):
    """Critics of (observation, action), an actor, and targets of both."""

    config: QCriticsConfig
    policy: ActorWithCritics

    def setup(self) -> None:
        """Train the critics by `critic_loss` and the actor by `actor_loss`."""
        self.steps = 0  # `step` counts them
        policy, config = self.policy, self.config
        observed, rates = ("obs",), (config.rate(config.critic_lr), config.rate(config.actor_lr))
        self.critics = self.train_by(
            self.critic_loss, policy.critics, (*observed, "actions"), lr=rates[0], name="critic"
        )
        self.actor = self.train_by(self.actor_loss, policy.actor, observed, lr=rates[1], name="actor")
        self.target = Target(policy, tau=config.tau, period=config.target_network_update_freq)

    def _gradient(
        self, network: nn.Module, flat: FlatParameters, inputs: Sequence[str], loss: LossFunction
    ) -> Gradient:
        """As of every learner; a custom network is in training mode."""
        gradient = super()._gradient(network, flat, inputs, loss)
        if isinstance(network, CustomActorNetwork | CustomCritics):
            return in_training_mode(gradient, self.policy, self.generator, self.rank)
        return gradient

    def begin(self, timestep: int) -> None:
        """Set learning rates by their schedules; update the targets when they are due."""
        super().begin(timestep)
        if self.config.target_network_update_freq:
            self.target.follow(timestep)

    def prepare(self, batch: Transitions) -> Columns:
        """Return the columns of the replayed transitions."""
        return transition_columns(batch, self.device)

    def critic_loss(self, outputs: Tensor, minibatch: Columns) -> Loss:
        """Half the squared error of each critic, weighted if replay is prioritized; `outputs`: [critics, N]."""
        errors = outputs - minibatch["targets"]
        losses = self.critic_error(errors).sum(0)
        loss = weighted_mean(losses, minibatch.get("weights"))
        stats = {"mean_q": outputs.detach().mean(), "mean_td_error": errors.detach().mean()}
        return Loss(loss, stats, {"td_errors": errors.detach().abs().mean(0)})

    def critic_error(self, errors: Tensor) -> Tensor:
        """Half the square."""
        return 0.5 * errors.square()

    def actor_loss(self, outputs: Tensor, minibatch: Columns) -> Loss:
        """What the actor is trained by; `outputs`: of the actor [N, D]."""
        raise NotImplementedError

    def noise(self, rows: int) -> Tensor:
        """[rows, n] standard normal, for each element of the actions."""
        # All learners draw the same noise and each uses its part, so that several learners compute what one would.
        drawn = torch.randn(rows * self.world_size, self.policy.action_layout.size, generator=self.generator)
        return drawn[rows * self.rank :][:rows].to(self.device)

    def state(self) -> State:
        """The learner's state with the number of steps."""
        return super().state() | {"steps": self.steps}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        super().set_state(state)
        self.steps = state.get("steps", 0)  # older ones of SAC have none
